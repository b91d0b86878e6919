//! Tests of the server's side of HTTP/3.

use std::sync::atomic::Ordering;

use http::{Request, StatusCode};
use mpquic_h3::OpenStreams;
use mpquic_h3::h3::client::SendRequest;
use mpquic_h3::h3::quic::ConnectionErrorIncoming;

use super::*;
use crate::options::Alpn;
use crate::process::clock;
use crate::serve::client_limits::AddressLimits;
use crate::serve::limits::Limits;
use crate::testing::{
    Anything, Control, Served, Slow, close_of, is_cut_after, most_read_in_vain, soon,
};

const WINDOW: u64 = 1 << 20;

struct Client {
    connection: Connection,
    requests: SendRequest<OpenStreams, Bytes>,
}

type ClientStream = h3::client::RequestStream<mpquic_h3::BidiStream<Bytes>, Bytes>;

async fn connect(served: &Served, window: u64) -> Client {
    let connection = served.connect(window).await;
    let quic = mpquic_h3::Connection::new(connection.clone());
    let (mut driver, requests) = soon(h3::client::new(quic)).await.unwrap();
    tokio::spawn(async move { driver.wait_idle().await });
    Client {
        connection,
        requests,
    }
}

impl Client {
    async fn request(&mut self) -> Result<ClientStream, StreamError> {
        let request = Request::get("https://localhost/file").body(()).unwrap();
        let mut stream = self.requests.send_request(request).await?;
        stream.finish().await?;
        Ok(stream)
    }

    /// Fetches a file, and returns the length of its body.
    async fn fetch(&mut self) -> usize {
        let mut stream = soon(self.request()).await.unwrap();
        let response = soon(stream.recv_response()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut length = 0;
        while let Some(data) = soon(stream.recv_data()).await.unwrap() {
            length += data.remaining();
        }
        length
    }
}

/// A shortened file must not end like a complete one.
#[tokio::test]
// The window is smaller than the content, so the reset comes after the client's first read.
async fn a_file_that_shrinks_ends_with_an_error() {
    let source = Anything::new(400_000).that_became(300_000);
    let served = Served::start(source, Limits::default(), Alpn::H3);
    let mut client = connect(&served, 100_000).await;
    let mut stream = soon(client.request()).await.unwrap();
    let response = soon(stream.recv_response()).await.unwrap();
    assert_eq!(response.headers()["content-length"], "400000");
    let end = loop {
        match soon(stream.recv_data()).await {
            Ok(Some(_)) => {}
            end => break end.map(|_| ()),
        }
    };
    let Err(StreamError::RemoteTerminate { code, .. }) = end else {
        panic!("{end:?}");
    };
    assert_eq!(code, Code::H3_INTERNAL_ERROR);
}

#[tokio::test]
async fn bytes_of_a_cut_answer_are_logged() {
    let (served, log) = Served::logged(Alpn::H3);
    let mut client = connect(&served, 1000).await;
    let mut stream = soon(client.request()).await.unwrap();
    soon(stream.recv_response()).await.unwrap();
    assert!(soon(stream.recv_data()).await.unwrap().is_some());
    // The client goes away.
    client.connection.close(0u32.into(), b"");
    is_cut_after(log.path(), 500).await;
}

/// Bytes appended during the transfer are not sent.
#[tokio::test]
async fn a_file_that_grows_is_as_long_as_announced() {
    let source = Anything::new(300_000).that_became(400_000);
    let served = Served::start(source, Limits::default(), Alpn::H3);
    let mut client = connect(&served, WINDOW).await;
    assert_eq!(client.fetch().await, 300_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_stall_cost_others_nothing() {
    let source = Anything::new(1 << 20);
    let served = Served::start(source.clone(), Limits::default(), Alpn::H3);
    let mut stalled = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..6 {
        // The window has room for the first bytes, so the server opens the file.
        let mut client = connect(&served, 300).await;
        for _ in 0..100 {
            stalled.push(soon(client.request()).await.unwrap());
        }
        clients.push(client);
    }
    let all_stall = async {
        while source.open.load(Ordering::SeqCst) < 6 * 16 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(all_stall).await;
    let mut other = connect(&served, WINDOW).await;
    assert_eq!(other.fetch().await, 1 << 20);
    let most = source.most_open.load(Ordering::SeqCst);
    assert!(most <= 6 * 16 + 1, "{most} files were open");
}

#[tokio::test]
async fn a_client_that_cancels_all_the_time_is_turned_away() {
    let source = Anything::new(770_000);
    let served = Served::start(source.clone(), Limits::default(), Alpn::H3);
    let mut client = connect(&served, WINDOW).await;
    let start = clock::now();
    let attack = async {
        for _ in 0..1000 {
            // Dropping the request cancels it.
            if client.request().await.is_err() {
                break;
            }
        }
        client.connection.closed().await
    };
    let end = soon(attack).await;
    let mpquic_tokio::ConnectionError::ApplicationClosed(close) = end else {
        panic!("{end:?}");
    };
    assert_eq!(close.error_code, code(Code::H3_EXCESSIVE_LOAD));
    let read = source.read.load(Ordering::SeqCst);
    assert!(read <= most_read_in_vain(start), "{read} bytes");
}

/// A client that is turned away gains nothing by a new connection.
#[tokio::test]
async fn cancelled_requests_of_an_address_count_together() {
    const ADDRESS: usize = 8;
    let limits = Limits {
        address: AddressLimits {
            cancelled: ADDRESS as u32,
            cancelled_per_second: 0,
            ..AddressLimits::default()
        },
        ..Limits::default()
    };
    let served = Served::start(Anything::new(770_000), limits, Alpn::H3);
    let mut clients = Vec::new();
    for _ in 0..3 {
        // The window is far smaller than an answer, so no request ends before its client cancels
        // it.
        let mut client = connect(&served, 1000).await;
        for _ in 0..ADDRESS / 2 {
            // The server may have closed this connection already.
            let Ok(mut stream) = soon(client.request()).await else {
                break;
            };
            let _ = soon(stream.recv_response()).await;
        }
        clients.push(client);
    }
    let closes = clients
        .iter()
        .map(|client| Box::pin(close_of(&client.connection)));
    let (close, ..) = futures_util::future::select_all(closes).await;
    assert_eq!(close.error_code, code(Code::H3_EXCESSIVE_LOAD));
    assert_eq!(&close.reason[..], b"too many requests cancelled");
}

#[tokio::test]
async fn cancelling_beginnings_of_requests_counts_as_well() {
    let limits = Limits {
        cancelled: 4,
        cancelled_per_second: 0,
        ..Limits::default()
    };
    let served = Served::start(Anything::new(1), limits, Alpn::H3);
    let client = connect(&served, WINDOW).await;
    for _ in 0..5 {
        let Ok((mut send, _recv)) = soon(client.connection.open_bi()).await else {
            break;
        };
        // Header fields of 50 bytes, of which none arrives.
        let _ = send.write_all(&[1, 50]).await;
        let _ = send.reset(code(Code::H3_REQUEST_CANCELLED));
    }
    let close = close_of(&client.connection).await;
    assert_eq!(close.error_code, code(Code::H3_EXCESSIVE_LOAD));
}

#[tokio::test]
async fn a_request_that_stalls_is_given_up() {
    let limits = Limits {
        stall: Duration::from_millis(200),
        ..Limits::default()
    };
    let served = Served::start(Anything::new(1 << 20), limits, Alpn::H3);
    let mut client = connect(&served, 300).await;
    let mut stream = soon(client.request()).await.unwrap();
    let watch = client.connection.clone();
    let mut reset = soon(stream.recv_response()).await.map(|_| ());
    while reset.is_ok() {
        // Each read makes room in the window, and this client reads once a second.
        tokio::time::sleep(Duration::from_secs(1)).await;
        reset = soon(stream.recv_data()).await.map(|_| ());
    }
    let Err(StreamError::RemoteTerminate { code, .. }) = reset else {
        panic!("{reset:?}");
    };
    assert_eq!(code, Code::H3_REQUEST_CANCELLED);
    // The server also refuses a request without an end.
    let (mut send, mut recv) = watch.open_bi().await.unwrap();
    send.write_all(&[1, 50]).await.unwrap();
    let code = soon(recv.received_reset()).await.unwrap();
    assert_eq!(code, Some(super::code(Code::H3_REQUEST_CANCELLED)));
}

/// A stalled client makes room for another client, without the usual wait.
#[tokio::test]
async fn slowest_client_gives_way_at_the_file_limit() {
    let limits = Limits {
        files: 1,
        ..Limits::default()
    };
    let served = Served::start(Anything::new(1 << 20), limits, Alpn::H3);
    let mut slow = connect(&served, 300).await;
    let mut first = soon(slow.request()).await.unwrap();
    soon(first.recv_response()).await.unwrap();
    let mut other = connect(&served, WINDOW).await;
    assert_eq!(other.fetch().await, 1 << 20);
}

/// A slow reader makes progress, even if one piece takes longer than the stall timeout.
#[tokio::test]
async fn slow_reader_is_not_given_up() {
    let limits = Limits {
        stall: Duration::from_millis(1500),
        ..Limits::default()
    };
    let served = Served::start(Anything::new(40_000), limits, Alpn::H3);
    let mut client = connect(&served, 2_000).await;
    let mut stream = soon(client.request()).await.unwrap();
    soon(stream.recv_response()).await.unwrap();
    let (start, mut length) = (clock::now(), 0);
    while let Some(data) = soon(stream.recv_data()).await.unwrap() {
        length += data.remaining();
        // At most 20 kB/s, however many bytes each packet brings.
        tokio::time::sleep(Duration::from_micros(50) * data.remaining() as u32).await;
    }
    assert_eq!(length, 40_000);
    assert!(start.elapsed() > Duration::from_millis(1500), "not slow");
}

#[tokio::test]
async fn fields_that_are_too_long_are_refused() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let mut client = connect(&served, WINDOW).await;
    // After the server's settings have arrived, `h3` refuses to send a request this long, so the
    // test writes to a raw stream.
    let (mut send, mut recv) = client.connection.open_bi().await.unwrap();
    send.write_all(&[1, 0x80, 0, 0x80, 0]).await.unwrap();
    send.write_all(&[0; 0x8000]).await.unwrap();
    let stopped = soon(send.stopped()).await.unwrap();
    assert_eq!(stopped, Some(code(Code::H3_EXCESSIVE_LOAD)));
    assert!(soon(recv.received_reset()).await.unwrap().is_some());
    assert_eq!(client.fetch().await, 1, "only that request is refused");
}

/// A violation of the protocol ends the connection, with the code of the violation.
#[tokio::test]
async fn faults_end_the_connection() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let mut client = connect(&served, WINDOW).await;
    let (mut send, _recv) = client.connection.open_bi().await.unwrap();
    // A request whose first frame is DATA.
    send.write_all(&[0, 1, 7]).await.unwrap();
    let end = soon(client.connection.closed()).await;
    let mpquic_tokio::ConnectionError::ApplicationClosed(close) = end else {
        panic!("{end:?}");
    };
    assert_eq!(close.error_code, code(Code::H3_FRAME_UNEXPECTED));
    let refused = client.request().await.map(|_| ());
    let Err(StreamError::ConnectionError(ConnectionError::Remote(
        ConnectionErrorIncoming::ApplicationClose { error_code },
    ))) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(Code::from(error_code), Code::H3_FRAME_UNEXPECTED);
}

/// RFC 9114 section 5.2: clients learn of the end, and earlier requests are answered.
#[tokio::test]
async fn at_the_end_open_requests_are_answered_and_new_ones_are_not_begun() {
    let mut served = Served::start(Anything::new(100_000), Limits::default(), Alpn::H3);
    let mut idle = connect(&served, WINDOW).await;
    assert_eq!(idle.fetch().await, 100_000);
    let mut busy = connect(&served, 2_000).await;
    let mut open = soon(busy.request()).await.unwrap();
    soon(open.recv_response()).await.unwrap();
    served.drain.begin();

    let end = soon(idle.connection.closed()).await;
    let mpquic_tokio::ConnectionError::ApplicationClosed(close) = end else {
        panic!("{end:?}");
    };
    assert_eq!(close.error_code, code(Code::H3_NO_ERROR));
    let refused = async {
        loop {
            // A request may leave before the client learns of the end. The server rejects this
            // request.
            match busy.request().await {
                Err(StreamError::RemoteClosing) => break,
                Err(error) => panic!("{error:?}"),
                Ok(mut stream) => {
                    let answer = stream.recv_response().await;
                    if let Err(error) = answer {
                        let Code::H3_REQUEST_REJECTED = told(&error) else {
                            panic!("{error:?}");
                        };
                    }
                }
            }
        }
    };
    soon(refused).await;
    let mut length = 0;
    while let Some(data) = soon(open.recv_data()).await.unwrap() {
        length += data.remaining();
    }
    assert_eq!(length, 100_000);
    soon(served.drain.done()).await;
    assert!(soon(served.try_connect(WINDOW)).await.is_err(), "let in");
}

fn told(error: &StreamError) -> Code {
    match error {
        StreamError::RemoteTerminate { code, .. } => *code,
        other => panic!("{other:?}"),
    }
}

/// Sends a request with an unfinished body of this length, and waits for the answer.
async fn with_body(client: &mut Client, length: usize) -> (ClientStream, StreamWatch) {
    let request = Request::get("https://localhost/file").body(()).unwrap();
    let mut stream = soon(client.requests.send_request(request)).await.unwrap();
    soon(stream.send_data(vec![0; length].into()))
        .await
        .unwrap();
    let response = soon(stream.recv_response()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    while soon(stream.recv_data()).await.unwrap().is_some() {}
    let id = VarInt::from_u64(stream.id().into_inner()).unwrap();
    let watch = client.connection.watch_stream(StreamId::from(id));
    (stream, watch)
}

#[tokio::test]
async fn body_of_a_get_request_is_read_up_to_a_limit() {
    let served = Served::start(Anything::new(4), Limits::default(), Alpn::H3);
    let mut client = connect(&served, WINDOW).await;
    let (mut few, sent) = with_body(&mut client, (8 << 10) - 1).await;
    // The server handles the first request before this answer, so a stop would have arrived.
    assert_eq!(client.fetch().await, 4);
    few.finish().await.unwrap();
    assert_eq!(soon(sent.stopped()).await, Ok(None), "it was told to stop");
    let (_many, sent) = with_body(&mut client, 8 << 10).await;
    let stopped = soon(sent.stopped()).await.unwrap();
    assert!(stopped.is_some());
    assert_eq!(client.fetch().await, 4, "only that request is stopped");
}

/// Answers that wait to be sent count, too.
#[tokio::test]
async fn cancelling_waiting_answers_counts_as_well() {
    let slow = Slow::start(Alpn::H3);
    let mut client = connect(&slow.served, WINDOW).await;
    let mut answers = Vec::new();
    for _ in 0..Slow::REQUESTS {
        answers.push(client.request().await.unwrap());
    }
    slow.has_written().await;
    // Dropping the requests cancels them.
    drop(answers);
    let close = close_of(&client.connection).await;
    assert_eq!(close.error_code, code(Code::H3_EXCESSIVE_LOAD));
    assert_eq!(&close.reason[..], b"too many requests cancelled");
}

#[tokio::test]
async fn client_above_its_request_rate_is_told_when_to_come_again() {
    let limits = Limits {
        address: AddressLimits {
            requests_per_second: Some(1),
            ..AddressLimits::default()
        },
        ..Limits::default()
    };
    let served = Served::start(Anything::new(1), limits, Alpn::H3);
    let mut client = connect(&served, WINDOW).await;
    let told = async {
        loop {
            let mut stream = client.request().await.unwrap();
            let response = stream.recv_response().await.unwrap();
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                let text = stream.recv_data().await.unwrap().unwrap();
                break (response, text.chunk().to_vec());
            }
        }
    };
    let (response, text) = soon(told).await;
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(text, b"too many requests\n");
}

/// A client with raw streams, which may break the protocol.
struct Raw(Connection);

impl Raw {
    /// Sends a request in the form of HTTP/3, and leaves the stream open.
    async fn request(&self) -> (SendHalf, mpquic_tokio::RecvStream) {
        let (mut send, recv) = self.0.open_bi().await.unwrap();
        // RFC 9204 appendix A: GET, https, / and the name of the host.
        let fields = b"\0\0\xd1\xd7\xc1\x50\x09localhost";
        send.write_all(&[1, fields.len() as u8]).await.unwrap();
        send.write_all(fields).await.unwrap();
        (send, recv)
    }
}

type SendHalf = mpquic_tokio::SendStream;

#[tokio::test]
async fn clients_are_told_how_long_fields_may_be() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
    let client = Raw(served.connect(WINDOW).await);
    let longest = Control::of(&client.0).await.max_field_section_size().await;
    assert_eq!(longest, Some(16 << 10));
}

/// A client that ignores the server's end learns that its late requests had no effect.
#[tokio::test]
async fn requests_that_come_too_late_are_rejected() {
    let served = Served::start(Anything::new(100_000), Limits::default(), Alpn::H3);
    let client = Raw(served.connect(2_000).await);
    let mut control = Control::of(&client.0).await;
    let (mut send, mut open) = client.request().await;
    send.finish().unwrap();
    assert!(soon(open.read_chunk(1, true)).await.unwrap().is_some());
    served.drain.begin();
    // The first GOAWAY excludes no request. The second GOAWAY excludes all streams after the
    // accepted requests.
    let mut ends = Vec::new();
    while ends.len() < 2 {
        let (kind, integers) = control.frame().await;
        if kind == 7 {
            ends.push(integers[0]);
        }
    }
    assert!(ends[0] > ends[1], "{ends:?}");
    let rejected = code(Code::H3_REQUEST_REJECTED);
    loop {
        let (late, mut recv) = client.request().await;
        if u64::from(late.id()) < ends[1] {
            continue;
        }
        let end = soon(recv.received_reset()).await.unwrap();
        assert_eq!(end, Some(rejected));
        assert_eq!(soon(late.stopped()).await, Ok(Some(rejected)));
        break;
    }
    let rest = soon(open.read_to_end(200_000)).await.unwrap();
    assert!(rest.len() > 100_000, "{}", rest.len());
    let end = soon(client.0.closed()).await;
    let mpquic_tokio::ConnectionError::ApplicationClosed(close) = end else {
        panic!("{end:?}");
    };
    assert_eq!(close.error_code, code(Code::H3_NO_ERROR));
}
