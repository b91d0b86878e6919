//! Peers that break the rules of HTTP/3 (RFC 9114) and QPACK (RFC 9204) hear which one it was.

use h3::error::Code;
use mpquic_h3::h3;

use crate::harness::{ClientDriver, Error, Pair, ServerRequests, TestResult, closed, get, within};

/// Frame types.
const DATA: u8 = 0x00;
const HEADERS: u8 = 0x01;
const CANCEL_PUSH: u8 = 0x03;
const SETTINGS: u8 = 0x04;
const PUSH_PROMISE: u8 = 0x05;
const GOAWAY: u8 = 0x07;
const MAX_PUSH_ID: u8 = 0x0d;
/// Stream types of QPACK.
const ENCODER: u8 = 2;
const DECODER: u8 = 3;
/// Stream type of a push.
const PUSH: u8 = 1;

/// Bytes of a stream that a client opens.
#[derive(Debug)]
enum Stream {
    /// A unidirectional one.
    Uni(Vec<u8>),
    /// The same, which ends.
    Ended(Vec<u8>),
    /// One with a request, which ends.
    Request(Vec<u8>),
}
use Stream::{Ended, Request, Uni};

/// The control stream's type, and empty SETTINGS.
const CONTROL: &[u8] = &[0x00, SETTINGS, 0x00];
/// GET, https, /, and the authority `a`, by the static table of QPACK.
const GET: &[u8] = &[0x00, 0x00, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'a'];

/// A frame with a short type and payload.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, u8::try_from(payload.len()).unwrap()], payload].concat()
}

/// A control stream, with these bytes behind the settings.
fn control(frames: &[u8]) -> Stream {
    Uni([CONTROL, frames].concat())
}

/// A request, with these bytes behind its fields.
fn request(frames: &[u8]) -> Stream {
    Request([&frame(HEADERS, GET)[..], frames].concat())
}

/// What a server closes the connection with.
async fn told(streams: &[Stream]) -> Result<Code, Error> {
    let pair = Pair::new().await?;
    let quic = mpquic_h3::Connection::new(pair.server.clone());
    let mut server: ServerRequests = h3::server::Connection::new(quic).await?;
    let serving = tokio::spawn(async move {
        while let Ok(Some(request)) = server.accept().await {
            tokio::spawn(async move {
                if let Ok((_, mut stream)) = request.resolve_request().await {
                    while let Ok(Some(_)) = stream.recv_data().await {}
                }
            });
        }
    });
    let mut open = Vec::new();
    for stream in streams {
        let (bytes, mut send) = match stream {
            Uni(bytes) | Ended(bytes) => (bytes, pair.client.open_uni().await?),
            Request(bytes) => {
                let (send, recv) = pair.client.open_bi().await?;
                open.push((None, Some(recv)));
                (bytes, send)
            }
        };
        send.write_all(bytes).await?;
        if !matches!(stream, Uni(_)) {
            send.finish()?;
        }
        open.push((Some(send), None));
    }
    let code = closed(&pair.client).await?;
    serving.abort();
    Ok(code)
}

/// Each connection with such streams is closed with this code.
async fn each_is_told(code: Code, cases: impl IntoIterator<Item = Vec<Stream>>) -> TestResult {
    for streams in cases {
        assert_eq!(told(&streams).await?, code, "{streams:?}");
    }
    Ok(())
}

#[tokio::test]
async fn settings_come_first() -> TestResult {
    let first = [
        frame(GOAWAY, &[0]),
        // Of a reserved type, and the settings behind it.
        [frame(0x21, &[0]), frame(SETTINGS, &[])].concat(),
    ];
    let streams = first.map(|frames| vec![Uni([&[0][..], &frames].concat())]);
    each_is_told(Code::H3_MISSING_SETTINGS, streams).await
}

#[tokio::test]
async fn settings_make_sense() -> TestResult {
    // One twice, and two of HTTP/2.
    let settings = [&[6, 10, 6, 10][..], &[2, 1], &[3, 1]];
    let streams = settings.map(|settings| [&[0][..], &frame(SETTINGS, settings)].concat());
    each_is_told(
        Code::H3_SETTINGS_ERROR,
        streams.map(|bytes| vec![Uni(bytes)]),
    )
    .await
}

#[tokio::test]
async fn frames_stay_where_they_belong() -> TestResult {
    let on_control = [
        frame(DATA, b"x"),
        frame(DATA, b""),
        frame(HEADERS, GET),
        frame(SETTINGS, &[]),
        frame(PUSH_PROMISE, &[0]),
        // Those of HTTP/2: PRIORITY, PING, WINDOW_UPDATE, CONTINUATION.
        frame(2, &[0; 5]),
        frame(6, &[0; 8]),
        frame(8, &[0; 4]),
        frame(9, &[0; 4]),
    ];
    let streams = on_control.map(|frame| vec![control(&frame)]);
    each_is_told(Code::H3_FRAME_UNEXPECTED, streams).await?;
    let on_request = [
        frame(SETTINGS, &[]),
        frame(GOAWAY, &[0]),
        frame(CANCEL_PUSH, &[0]),
        frame(MAX_PUSH_ID, &[0]),
        frame(PUSH_PROMISE, &[0, 0, 0]),
        frame(6, &[0; 8]),
    ];
    let streams = on_request.map(|frame| vec![control(&[]), request(&frame)]);
    each_is_told(Code::H3_FRAME_UNEXPECTED, streams).await?;
    let before_fields = [frame(DATA, b"x"), frame(SETTINGS, &[])];
    let streams = before_fields.map(|frame| vec![control(&[]), Request(frame)]);
    each_is_told(Code::H3_FRAME_UNEXPECTED, streams).await
}

#[tokio::test]
async fn frames_are_as_long_as_what_is_in_them() -> TestResult {
    let on_control = [&[0, 0][..], &[], &[0x40]].map(|payload| control(&frame(GOAWAY, payload)));
    let cut = Ended([CONTROL, &[GOAWAY, 2, 0]].concat());
    let streams = on_control
        .into_iter()
        .chain([cut])
        .map(|stream| vec![stream]);
    each_is_told(Code::H3_FRAME_ERROR, streams).await?;
    let requests = [Request(vec![HEADERS, 10, 0, 0]), request(&[DATA, 10, 0, 0])];
    let streams = requests.map(|request| vec![control(&[]), request]);
    each_is_told(Code::H3_FRAME_ERROR, streams).await
}

#[tokio::test]
async fn there_is_one_stream_of_each_kind() -> TestResult {
    let streams = [
        vec![control(&[]), control(&[])],
        vec![control(&[]), Uni(vec![ENCODER]), Uni(vec![ENCODER])],
        vec![control(&[]), Uni(vec![DECODER]), Uni(vec![DECODER])],
        // And none on which a client pushes.
        vec![control(&[]), Uni(vec![PUSH, 0])],
    ];
    each_is_told(Code::H3_STREAM_CREATION_ERROR, streams).await?;
    let ended = [vec![Ended(CONTROL.to_vec())]];
    each_is_told(Code::H3_CLOSED_CRITICAL_STREAM, ended).await
}

/// A stream of this type with these instructions, beside the control stream.
fn qpack(kind: u8, instructions: &[u8]) -> Vec<Stream> {
    vec![control(&[]), Uni([&[kind], instructions].concat())]
}

#[tokio::test]
async fn no_instruction_is_about_a_dynamic_table() -> TestResult {
    // A capacity of 1 and of 31, insertions with a name of the static table and one of their own, a
    // duplicate.
    let instructions: [&[u8]; 5] = [
        &[0x21],
        &[0x3f, 0],
        &[0xc1, 1, b'a'],
        &[0x41, b'a', 1, b'b'],
        &[0],
    ];
    let streams = instructions.map(|instructions| qpack(ENCODER, instructions));
    each_is_told(Code::QPACK_ENCODER_STREAM_ERROR, streams).await?;
    // A section acknowledgement, an insert count increment, and a cancelled stream with an endless
    // ID.
    let instructions: [&[u8]; 3] = [&[0x80], &[1], &[&[0x7f][..], &[0x80; 10]].concat()];
    let streams = instructions.map(|instructions| qpack(DECODER, instructions));
    each_is_told(Code::QPACK_DECODER_STREAM_ERROR, streams).await
}

#[tokio::test]
async fn streams_of_qpack_stay_open() -> TestResult {
    let streams = [ENCODER, DECODER].map(|kind| vec![control(&[]), Ended(vec![kind])]);
    each_is_told(Code::H3_CLOSED_CRITICAL_STREAM, streams).await
}

/// A server has no rule that a capacity of 0, or a cancelled stream, breaks: it closes the
/// connection for the stream that comes behind.
#[tokio::test]
async fn instructions_without_a_table_are_taken() -> TestResult {
    let right = [
        qpack(ENCODER, &[0x20]),
        qpack(DECODER, &[0x44, 0x7f, 0xff, 0x03]),
    ];
    for mut streams in right {
        streams.push(Uni(vec![PUSH, 0]));
        let code = told(&streams).await?;
        assert_eq!(code, Code::H3_STREAM_CREATION_ERROR, "{streams:?}");
    }
    Ok(())
}

#[tokio::test]
async fn numbers_are_of_something() -> TestResult {
    let streams = [
        [frame(GOAWAY, &[4]), frame(GOAWAY, &[8])].concat(),
        [frame(MAX_PUSH_ID, &[8]), frame(MAX_PUSH_ID, &[4])].concat(),
        // Nothing was pushed.
        frame(CANCEL_PUSH, &[0]),
    ];
    each_is_told(
        Code::H3_ID_ERROR,
        streams.map(|frames| vec![control(&frames)]),
    )
    .await
}

/// A client allows no pushes: RFC 9114 sections 4.6, 7.2.3 and 7.2.5.
#[tokio::test]
async fn nothing_is_pushed_to_a_client() -> TestResult {
    for stream in [
        Uni(vec![PUSH, 0]),
        control(&frame(CANCEL_PUSH, &[0])),
        Request(frame(PUSH_PROMISE, &[0, 0, 0])),
    ] {
        let pair = Pair::new().await?;
        let quic = mpquic_h3::Connection::new(pair.client.clone());
        let (mut driver, mut requests): (ClientDriver, _) = h3::client::new(quic).await?;
        let driving = tokio::spawn(async move { driver.wait_idle().await });
        let mut request = requests.send_request(get("/")?).await?;
        let asking = tokio::spawn(async move { request.recv_response().await.is_err() });
        let (bytes, mut send) = match &stream {
            Request(bytes) => (bytes, within("accept", pair.server.accept_bi()).await??.0),
            Uni(bytes) | Ended(bytes) => (bytes, pair.server.open_uni().await?),
        };
        send.write_all(bytes).await?;
        assert_eq!(closed(&pair.server).await?, Code::H3_ID_ERROR, "{stream:?}");
        within("the client", driving).await??;
        assert!(within("the request", asking).await??, "{stream:?}");
    }
    Ok(())
}

#[tokio::test]
async fn fields_refer_to_what_is_there() -> TestResult {
    let sections = [
        // Line 99 of the static table.
        &[0, 0, 0xff, 36][..],
        // The dynamic table, which has no room.
        &[2, 0, 0x80],
        &[0, 0, 0x80],
        // Not even a prefix.
        &[],
    ];
    let streams = sections.map(|section| vec![control(&[]), Request(frame(HEADERS, section))]);
    each_is_told(Code::QPACK_DECOMPRESSION_FAILED, streams).await
}
