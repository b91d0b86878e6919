//! Which answers leave first. The client writes HTTP/3 by hand, for h3 has no word for
//! PRIORITY_UPDATE.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use h3::error::Code;
use h3::quic::StreamId;
use mpquic_h3::{Priorities, Priority, h3};
use mpquic_tokio::{RecvStream, SendStream, VarInt, default_transport};

use crate::harness::{
    ClientDriver, Error, Pair, ServerRequests, ServerStream, TestResult, accept, closed, ok,
    pattern, within,
};

/// A HEADERS frame: GET, https, /, and the authority `a`, by the static table of QPACK.
const REQUEST: &[u8] = &[0x01, 0x08, 0x00, 0x00, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'a'];
/// The control stream's type, and empty SETTINGS.
const CONTROL: &[u8] = &[0x00, 0x04, 0x00];
/// There is room for two of them, in the send buffer and at the client.
const BODY: usize = 1 << 20;
const WINDOW: u64 = 4 << 20;

/// The stream of the client's request with this number.
fn request_id(number: u64) -> StreamId {
    StreamId::try_from(4 * number).unwrap()
}

/// A PRIORITY_UPDATE frame about a request.
fn update(stream: u8, value: &str) -> Vec<u8> {
    frame(0, &[&[stream], value.as_bytes()].concat())
}

/// One of these frames, about a request (0) or a push (1).
fn frame(of: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0x80, 0x0f, 0x07, of, length][..], payload].concat()
}

/// A server, and a client that takes all.
struct Setting {
    pair: Pair,
    server: ServerRequests,
    priorities: Priorities,
    control: SendStream,
}

impl Setting {
    async fn new() -> Result<Self, Error> {
        let mut transport = default_transport();
        // One path: no packet overtakes another.
        transport.max_concurrent_paths = 0;
        transport.max_receive_window = WINDOW;
        transport.initial_receive_window = WINDOW;
        transport.initial_stream_receive_window = WINDOW;
        let pair = Pair::with(transport).await?;
        let quic = mpquic_h3::Connection::new(pair.server.clone());
        let priorities = quic.priorities();
        let server = h3::server::Connection::new(quic).await?;
        let mut control = pair.client.open_uni().await?;
        control.write_all(CONTROL).await?;
        Ok(Self {
            pair,
            server,
            priorities,
            control,
        })
    }

    /// A request, with what the server answers.
    async fn request(&mut self) -> Result<(RecvStream, ServerStream), Error> {
        let (mut send, recv) = self.pair.client.open_bi().await?;
        send.write_all(REQUEST).await?;
        send.finish()?;
        let mut answer = accept(&mut self.server).await?;
        answer.send_response(ok()).await?;
        Ok((recv, answer))
    }

    /// Waits until an update has changed the stream of an answer. [`Priorities::set`] would apply an
    /// update that the server only remembers, so this looks at the stream.
    async fn until_applied(&mut self, stream: StreamId, update: &[u8]) -> TestResult {
        let id = VarInt::from_u64(stream.into_inner())?.into();
        let watch = self.pair.server.watch_stream(id);
        let before = watch.priority();
        assert!(before.is_ok(), "the stream is open");
        self.control.write_all(update).await?;
        let applied = async {
            while watch.priority() == before {
                self.read_control().await;
            }
        };
        within("the new priority of the stream", applied).await
    }

    /// The server reads the control stream while it waits for a request.
    async fn read_control(&mut self) {
        let waiting = tokio::time::timeout(Duration::from_millis(1), self.server.accept());
        assert!(waiting.await.is_err(), "no request was sent");
    }

    /// Waits until the server knows how urgent the answer to a future request is.
    async fn until_told(&mut self, stream: StreamId, urgency: u8) -> TestResult {
        let told = async {
            while self.priorities.set(stream, Priority::default()).urgency() != urgency {
                self.read_control().await;
            }
        };
        within("the update", told).await
    }
}

/// Answers two requests, and tells which of the answers was whole while bytes of the other were
/// missing.
async fn first_to_arrive(answers: [(RecvStream, ServerStream); 2]) -> Result<Option<usize>, Error> {
    let mut received = Vec::new();
    for (recv, mut answer) in answers {
        // Into the send buffer: nothing is sent meanwhile, for the endpoint has no thread of its
        // own.
        within("send", answer.send_data(pattern(BODY, 1).into())).await??;
        answer.finish().await?;
        received.push(recv);
    }
    let both = poll_fn(|cx| {
        // What arrived of both at the same time is no matter of order.
        let ends: Vec<_> = received.iter_mut().map(|one| is_whole(one, cx)).collect();
        match ends[..] {
            [true, true] => Poll::Ready(None),
            [true, false] => Poll::Ready(Some(0)),
            [false, true] => Poll::Ready(Some(1)),
            _ => Poll::Pending,
        }
    });
    within("an answer", both).await
}

/// Reads what has arrived; true if that was all.
fn is_whole(stream: &mut RecvStream, cx: &mut Context<'_>) -> bool {
    loop {
        match stream.poll_read_chunk(cx, usize::MAX, true) {
            Poll::Ready(Ok(Some(_))) => {}
            Poll::Ready(end) => return end.is_ok(),
            Poll::Pending => return false,
        }
    }
}

/// Whichever of them it is.
#[tokio::test]
async fn an_answer_that_became_urgent_overtakes_another() -> TestResult {
    for urgent in [0, 1] {
        let mut setting = Setting::new().await?;
        let (one, two) = (setting.request().await?, setting.request().await?);
        let update = update(4 * u8::try_from(urgent)?, "u=1, i");
        let id = request_id(u64::try_from(urgent)?);
        setting.until_applied(id, &update).await?;
        assert_eq!(first_to_arrive([one, two]).await?, Some(urgent));
    }
    Ok(())
}

/// An update may overtake its request (RFC 9218 section 7), and what it says counts for more than
/// the fields.
#[tokio::test]
async fn priority_update_before_its_request_counts() -> TestResult {
    let mut setting = Setting::new().await?;
    let updates = [update(4, "u=7"), update(4, "u=2"), update(8, "nonsense")].concat();
    setting.control.write_all(&updates).await?;
    setting.until_told(request_id(1), 2).await?;
    let (one, two) = (setting.request().await?, setting.request().await?);
    let first = first_to_arrive([one, two]).await?;
    assert_eq!(first, Some(1), "the server did nothing for it");
    let (_recv, third) = setting.request().await?;
    let asked = Priority::of_request(&[(http::header::HOST, "a".parse()?)].into_iter().collect());
    assert_eq!(
        setting.priorities.set(third.id(), asked),
        Priority::default()
    );
    let mut fields = http::HeaderMap::new();
    fields.insert("priority", "u=5".parse()?);
    let (_recv, fourth) = setting.request().await?;
    let asked = Priority::of_request(&fields);
    assert_eq!(setting.priorities.set(fourth.id(), asked).urgency(), 5);
    let second = request_id(1);
    assert_eq!(setting.priorities.set(second, asked).urgency(), 2);
    Ok(())
}

/// RFC 9218 section 4.2: by the field of the request, and by what the client tells afterwards.
#[tokio::test]
async fn only_answers_of_use_in_parts_take_turns() -> TestResult {
    let mut setting = Setting::new().await?;
    let (_recv, answer) = setting.request().await?;
    let id = VarInt::from_u32(0).into();
    let incremental = |setting: &Setting| setting.pair.server.watch_stream(id).incremental();
    assert_eq!(incremental(&setting), Ok(true), "nothing was said");
    for (value, expected) in [("u=3", false), ("i", true), ("", false)] {
        let mut fields = http::HeaderMap::new();
        fields.insert("priority", value.parse()?);
        let asked = Priority::of_request(&fields);
        assert_eq!(setting.priorities.set(answer.id(), asked), asked);
        assert_eq!(incremental(&setting), Ok(expected), "{value}");
    }
    let update = update(0, "u=1, i");
    setting.until_applied(request_id(0), &update).await?;
    assert_eq!(incremental(&setting), Ok(true));
    let priority = setting.pair.server.watch_stream(id).priority();
    assert_eq!(priority, Ok(48));
    Ok(())
}

/// RFC 9218 section 7.2, RFC 9114 sections 6.2.1 and 7.1.
#[tokio::test]
async fn broken_priority_update_ends_the_connection() -> TestResult {
    let control = |frame: Vec<u8>| [CONTROL, &frame].concat();
    for (what, stream, code) in [
        (
            "a stream of the server's",
            control(update(1, "u=1")),
            Code::H3_ID_ERROR,
        ),
        (
            "no request's stream",
            control(update(2, "u=1")),
            Code::H3_ID_ERROR,
        ),
        (
            "nothing was pushed",
            control(frame(1, b"\0u=1")),
            Code::H3_ID_ERROR,
        ),
        ("no ID", control(frame(0, b"")), Code::H3_FRAME_ERROR),
        (
            "half an ID",
            control(frame(0, b"\x40")),
            Code::H3_FRAME_ERROR,
        ),
        (
            "no settings",
            [&[0][..], &update(0, "u=1")].concat(),
            Code::H3_MISSING_SETTINGS,
        ),
    ] {
        let pair = Pair::new().await?;
        let quic = mpquic_h3::Connection::new(pair.server.clone());
        let mut server: ServerRequests = h3::server::Connection::new(quic).await?;
        let serving = tokio::spawn(async move { server.accept().await.map(|_| ()) });
        let mut control = pair.client.open_uni().await?;
        control.write_all(&stream).await?;
        assert_eq!(closed(&pair.client).await?, code, "{what}");
        assert!(within("the server", serving).await??.is_err());
    }
    Ok(())
}

#[tokio::test]
async fn elsewhere_an_update_is_unexpected() -> TestResult {
    // In a request, before and after its fields.
    for request in [update(0, "u=1"), [REQUEST, &update(0, "u=1")].concat()] {
        let mut setting = Setting::new().await?;
        let (mut send, _recv) = setting.pair.client.open_bi().await?;
        send.write_all(&request).await?;
        send.finish()?;
        let serving = async {
            while let Some(request) = setting.server.accept().await? {
                let (_, mut stream) = request.resolve_request().await?;
                while stream.recv_data().await?.is_some() {}
            }
            Ok::<_, Error>(())
        };
        assert!(within("the server", serving).await?.is_err());
        let code = closed(&setting.pair.client).await?;
        assert_eq!(code, Code::H3_FRAME_UNEXPECTED);
    }
    // To a client.
    let pair = Pair::new().await?;
    let quic = mpquic_h3::Connection::new(pair.client.clone());
    let (mut driver, _requests): (ClientDriver, _) = h3::client::new(quic).await?;
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    let mut control = pair.server.open_uni().await?;
    let stream = [CONTROL, &update(0, "u=1")].concat();
    control.write_all(&stream).await?;
    assert_eq!(closed(&pair.server).await?, Code::H3_FRAME_UNEXPECTED);
    within("the client", driving).await??;
    Ok(())
}
