//! Requests and responses that go well.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use mpquic_h3::h3;
use mpquic_tokio::{FrameKind, default_transport};

use crate::harness::{
    Error, Pair, ServerStream, TestResult, accept, get, ok, pattern, read_request, read_response,
    within,
};

const LENGTHS: [usize; 3] = [0, 1, 10 << 20];
/// Larger than what a packet or a send buffer holds, and no divisor of the lengths.
const PIECE: usize = 300_007;

fn pieces(data: &Bytes) -> impl Iterator<Item = Bytes> + Send {
    let starts = (0..data.len()).step_by(PIECE);
    starts.map(|start| data.slice(start..data.len().min(start + PIECE)))
}

/// Answers with the request's body, and trailers that have its length.
async fn echo(request: Request<()>, mut stream: ServerStream) -> TestResult {
    let body = match *request.method() {
        Method::POST => Bytes::from(read_request(&mut stream).await?),
        _ => Bytes::new(),
    };
    let sent = stream.recv_trailers().await?;
    let seen = sent.and_then(|trailers| trailers.get("x-sent").cloned());
    let mut response = Response::builder().header("x-method", request.method().as_str());
    if let Some(seen) = seen {
        response = response.header("x-seen", seen);
    }
    stream.send_response(response.body(())?).await?;
    for piece in pieces(&body) {
        stream.send_data(piece.into()).await?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-length", body.len().into());
    stream.send_trailers(trailers).await?;
    stream.finish().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_all_sizes_go_both_ways_over_two_paths() -> TestResult {
    let mut transport = default_transport();
    // The default need not use both where one is as fast as the machine.
    transport.scheduler = mpquic_sched::by_name("round-robin")?;
    let pair = Pair::with(transport).await?;
    pair.until_two_paths().await?;
    let mut running = pair.http().await?.run(echo);
    for length in LENGTHS {
        let body = pattern(length, 7);
        let request = Request::post("https://localhost/echo").body(())?;
        let stream = running.requests.send_request(request).await?;
        let (mut send, mut recv) = stream.split();
        let sending = async {
            for piece in pieces(&body) {
                send.send_data(piece).await?;
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sent", length.into());
            send.send_trailers(trailers).await?;
            send.finish().await?;
            Ok::<_, Error>(())
        };
        let receiving = async {
            let response = recv.recv_response().await?;
            assert_eq!(response.headers()["x-method"], "POST");
            assert_eq!(response.headers()["x-seen"], length.to_string());
            let mut received = Vec::new();
            while let Some(data) = recv.recv_data().await? {
                received.extend_from_slice(bytes::Buf::chunk(&data));
            }
            assert!(received == body, "{length} bytes differ");
            let trailers = recv.recv_trailers().await?.ok_or("no trailers")?;
            assert_eq!(trailers["x-length"], length.to_string());
            Ok::<_, Error>(())
        };
        within("exchange", async { tokio::try_join!(sending, receiving) }).await??;
    }
    for path in pair.server.path_stats() {
        assert!(path.bytes_sent > 1 << 20, "{path:?}");
    }
    Ok(())
}

/// On one thread, so nobody acknowledges anything as long as the test goes on.
#[tokio::test]
async fn a_long_body_is_sent_from_where_it_is() -> TestResult {
    let pair = Pair::new().await?;
    let (mut server, mut requests) = pair.http().await?.run_client();
    let mut request = requests.send_request(get("/")?).await?;
    request.finish().await?;
    let mut answer = accept(&mut server).await?;
    answer.send_response(ok()).await?;
    for (length, is_copied) in [(1000, true), (20_000, false)] {
        let body = pattern(length, 3);
        answer.send_data(body.clone().into()).await?;
        assert_eq!(body.is_unique(), is_copied, "{length} bytes");
    }
    Ok(())
}

#[tokio::test]
async fn the_answer_to_head_has_no_body() -> TestResult {
    let pair = Pair::new().await?;
    let mut running = pair.http().await?.run(echo);
    let request = Request::head("https://localhost/").body(())?;
    let mut stream = running.requests.send_request(request).await?;
    stream.finish().await?;
    let response = within("response", stream.recv_response()).await??;
    assert_eq!(response.headers()["x-method"], "HEAD");
    assert!(
        within("body", read_response(&mut stream))
            .await??
            .is_empty()
    );
    Ok(())
}

#[tokio::test]
async fn many_requests_run_at_once() -> TestResult {
    async fn path(request: Request<()>, mut stream: ServerStream) -> TestResult {
        stream.send_response(ok()).await?;
        let path = request.uri().path().to_owned();
        stream.send_data(Bytes::from(path).into()).await?;
        stream.finish().await?;
        Ok(())
    }
    let pair = Pair::new().await?;
    let running = pair.http().await?.run(path);
    // More than the peer allows at a time, so that clients wait for one another.
    let clients = (0..300).map(|number| {
        let mut requests = running.requests.clone();
        tokio::spawn(async move {
            let path = format!("/{number}");
            let mut stream = requests.send_request(get(&path)?).await?;
            stream.finish().await?;
            assert_eq!(stream.recv_response().await?.status(), 200);
            assert_eq!(read_response(&mut stream).await?, path.as_bytes());
            Ok::<_, Error>(())
        })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        within("a client", client).await???;
    }
    drop(running.requests);
    let end = within("the end", running.driver).await??;
    assert!(end.is_h3_no_error(), "{end}");
    let end: Result<(), h3::error::ConnectionError> = within("the end", running.server).await??;
    assert!(end.unwrap_err().is_h3_no_error());
    // All was read to its end, or was known to have ended: nobody was told to stop, but for the
    // stream of a reserved type that h3 opens.
    let counted = pair.client.stats();
    assert!(counted.frames_sent[FrameKind::StopSending] <= 1);
    assert!(counted.frames_received[FrameKind::StopSending] <= 1);
    Ok(())
}
