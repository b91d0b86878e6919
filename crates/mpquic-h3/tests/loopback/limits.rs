//! What a peer that breaks the rules can do. It speaks QUIC, and writes HTTP/3 by hand.

use h3::error::{Code, StreamError};
use mpquic_h3::h3;
use mpquic_tokio::{SendStream, default_transport};

use crate::harness::{
    Error, Pair, ServerRequests, ServerStream, TestResult, accept, closed, within,
};

/// A HEADERS frame: GET, https, /, and the authority `a`, by the static table of QPACK.
const HEADERS: &[u8] = &[0x01, 0x08, 0x00, 0x00, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'a'];
/// The control stream's type, and empty SETTINGS.
const CONTROL: &[u8] = &[0x00, 0x04, 0x00];

async fn serve(pair: &Pair) -> Result<ServerRequests, Error> {
    let connection = mpquic_h3::Connection::new(pair.server.clone()).max_frame_size(10_000);
    Ok(h3::server::Connection::new(connection).await?)
}

/// A frame header with a length in eight bytes.
fn frame_header(kind: u8, length: u64) -> Vec<u8> {
    let mut header = vec![kind];
    header.extend((length | 3 << 62).to_be_bytes());
    header
}

/// Writes for as long as the peer takes it, and returns how much it took.
async fn flood(send: &mut SendStream) -> Result<usize, Error> {
    let mut taken = 0;
    let flood = async {
        while let Ok(written) = send.write(&[0; 5000]).await {
            taken += written;
            assert!(taken < 64 << 20, "nothing stops it");
        }
    };
    within("the flood", flood).await?;
    Ok(taken)
}

#[tokio::test]
async fn headers_that_do_not_end_are_not_collected() -> TestResult {
    let pair = Pair::new().await?;
    let mut server = serve(&pair).await?;
    let (mut send, _recv) = pair.client.open_bi().await?;
    let serving = async {
        let request = server.accept().await?.ok_or("no request")?;
        let refused = request.resolve_request().await.map(|_| ());
        let Err(StreamError::RemoteTerminate { code, .. }) = refused else {
            return Err(format!("{refused:?}").into());
        };
        assert_eq!(code, Code::H3_EXCESSIVE_LOAD);
        Ok::<_, Error>(())
    };
    let attack = async {
        send.write_all(&frame_header(0x01, 1 << 40)).await?;
        flood(&mut send).await?;
        let code = send.stopped().await?.map(|code| code.into_inner());
        assert_eq!(code, Some(Code::H3_EXCESSIVE_LOAD.value()));
        Ok(())
    };
    within("both", async { tokio::try_join!(serving, attack) }).await??;
    // Nothing but that stream suffers.
    let (mut send, _recv) = pair.client.open_bi().await?;
    send.write_all(HEADERS).await?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let (request, _stream) = within("resolve", request.resolve_request()).await??;
    assert_eq!(request.uri().path(), "/");
    Ok(())
}

#[tokio::test]
async fn frames_that_do_not_end_on_the_control_stream_end_the_connection() -> TestResult {
    let pair = Pair::new().await?;
    let mut server = serve(&pair).await?;
    let serving = tokio::spawn(async move { server.accept().await.map(|_| ()) });
    let mut control = pair.client.open_uni().await?;
    control.write_all(CONTROL).await?;
    // A frame of a reserved type, which is to be ignored.
    control.write_all(&frame_header(0x21, 1 << 40)).await?;
    flood(&mut control).await?;
    assert_eq!(closed(&pair.client).await?, Code::H3_EXCESSIVE_LOAD);
    assert!(within("the server", serving).await??.is_err());
    Ok(())
}

/// h3 holds what has arrived of a frame. That must not hold on to all that arrived with it.
#[tokio::test]
async fn parts_of_a_frame_keep_no_more_than_themselves() -> TestResult {
    const ROUNDS: usize = 400;
    const PART: usize = 150;
    const FILLER: usize = 60_000;
    // If each part kept what it came in, 24 MB would not do.
    const ENOUGH: u64 = 10 << 20;
    let pair = Pair::new().await?;
    let connection = mpquic_h3::Connection::new(pair.server.clone());
    let mut server: ServerRequests = h3::server::Connection::new(connection).await?;
    let (mut parts, _recv) = pair.client.open_bi().await?;
    let whole = (ROUNDS * PART + 1) as u64;
    parts.write_all(&frame_header(0x01, whole)).await?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let collecting = tokio::spawn(async move { request.resolve_request().await.map(|_| ()) });
    let (mut filler, _recv) = pair.client.open_bi().await?;
    filler.write_all(HEADERS).await?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let (_, mut body) = within("resolve", request.resolve_request()).await??;
    let send = async {
        let data = [frame_header(0x00, FILLER as u64), vec![7; FILLER]].concat();
        for _ in 0..ROUNDS {
            parts.write_all(&[0; PART]).await?;
            filler.write_all(&data).await?;
        }
        filler.finish()?;
        Ok::<_, Error>(())
    };
    let read = async {
        let mut read = 0;
        while let Some(data) = body.recv_data().await? {
            read += bytes::Buf::remaining(&data);
        }
        assert_eq!(read, ROUNDS * FILLER);
        Ok(())
    };
    within("transfer", async { tokio::try_join!(send, read) }).await??;
    assert!(!collecting.is_finished(), "the frame is not whole");
    let allocated = pair.server_endpoint.driver_stats().receive_memory_allocated;
    assert!(allocated < ENOUGH, "{allocated} bytes");
    Ok(())
}

/// A stream reads several pieces at a time. The pieces behind the delivered one wait in the stream,
/// and must not hold on to the datagrams of other streams that arrived with them.
#[tokio::test]
async fn short_pieces_that_wait_in_a_stream_keep_no_more_than_themselves() -> TestResult {
    const STREAMS: usize = 40;
    const PIECES: usize = 12;
    const FILLER: usize = 60_000;
    // If each waiting piece kept the buffer that it came in, 25 MB would not do.
    const ENOUGH: u64 = 10 << 20;
    let pair = Pair::new().await?;
    let mut server = serve(&pair).await?;
    let (mut filler, mut unread) = open_body(&pair, &mut server).await?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let (mut send, mut recv) = open_body(&pair, &mut server).await?;
        let send_pieces = async {
            for _ in 0..PIECES {
                send.write_all(&[0; 100]).await?;
                filler.write_all(&[7; FILLER]).await?;
            }
            Ok::<_, Error>(())
        };
        let read_filler = async {
            let mut left = PIECES * FILLER;
            while left > 0 {
                let data = unread.recv_data().await?.ok_or("the filler ended")?;
                left -= bytes::Buf::remaining(&data);
            }
            Ok(())
        };
        let transfer = async { tokio::try_join!(send_pieces, read_filler) };
        within("transfer", transfer).await??;
        within("the first piece", recv.recv_data()).await??;
        streams.push((send, recv));
    }
    let allocated = pair.server_endpoint.driver_stats().receive_memory_allocated;
    assert!(allocated < ENOUGH, "{allocated} bytes");
    Ok(())
}

/// A request with a body that does not end, and the server's half of the request.
async fn open_body(
    pair: &Pair,
    server: &mut ServerRequests,
) -> Result<(SendStream, ServerStream), Error> {
    let (mut send, _recv) = pair.client.open_bi().await?;
    send.write_all(HEADERS).await?;
    send.write_all(&frame_header(0x00, 1 << 40)).await?;
    Ok((send, accept(server).await?))
}

/// h3 alone would end the body there.
#[tokio::test]
async fn an_empty_frame_is_not_the_end_of_a_body() -> TestResult {
    let pair = Pair::new().await?;
    let mut server = serve(&pair).await?;
    let (mut send, _recv) = pair.client.open_bi().await?;
    send.write_all(HEADERS).await?;
    send.write_all(&[0, 2, 1, 2, 0, 0, 0, 0, 0, 1, 3]).await?;
    send.finish()?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let (_, mut stream) = within("resolve", request.resolve_request()).await??;
    let body = within("body", crate::harness::read_request(&mut stream)).await??;
    assert_eq!(body, [1, 2, 3]);
    Ok(())
}

/// h3 reads a piece ahead for each that it takes. Single bytes in frames of their own must not pile
/// up while a body is read: no more leaves the stream than is taken, so its window stays closed.
#[tokio::test]
async fn small_frames_do_not_pile_up() -> TestResult {
    const READ: usize = 20_000;
    const WINDOW: u64 = 64 << 10;
    let frame: &[u8] = &[0, 1, 7];
    let mut transport = default_transport();
    transport.initial_stream_receive_window = WINDOW;
    transport.max_stream_receive_window = Some(WINDOW);
    transport.send_window = WINDOW;
    let pair = Pair::with(transport).await?;
    let mut server = serve(&pair).await?;
    let (mut send, _recv) = pair.client.open_bi().await?;
    send.write_all(HEADERS).await?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let (_, mut stream) = within("resolve", request.resolve_request()).await??;
    let mut written = 0;
    let frames = frame.repeat(1000);
    let flood = async {
        while let Ok(more) = send.write(&frames[written % frames.len()..]).await {
            written += more;
        }
    };
    let reading = async {
        for _ in 0..READ {
            let data = stream.recv_data().await?;
            assert!(data.is_some_and(|data| bytes::Buf::chunk(&data) == [7]));
            // The other side goes on.
            tokio::task::yield_now().await;
        }
        Ok::<_, Error>(())
    };
    let read = async {
        tokio::select! {
            read = reading => read,
            () = flood => Err("the flood ended".into()),
        }
    };
    within("some of the body", read).await??;
    // What was read, what the windows of both sides let in, and the pieces that were read at a
    // time.
    let most = READ * frame.len() + 2 * WINDOW as usize + 4 * 1500;
    assert!(written <= most, "{written} bytes, {most} at most");
    Ok(())
}

/// A stream that ends within a frame has lost something: RFC 9114 section 7.1.
#[tokio::test]
async fn a_stream_that_ends_within_a_frame_is_no_clean_end() -> TestResult {
    let pair = Pair::new().await?;
    let mut server = serve(&pair).await?;
    let (mut send, _recv) = pair.client.open_bi().await?;
    send.write_all(HEADERS).await?;
    send.write_all(&[0x00, 10, 1, 2, 3]).await?;
    send.finish()?;
    let request = within("accept", server.accept())
        .await??
        .ok_or("no request")?;
    let (_, mut stream) = within("resolve", request.resolve_request()).await??;
    let reading = async {
        loop {
            match stream.recv_data().await {
                Ok(Some(_)) => {}
                Ok(None) => return Err("a clean end".into()),
                Err(error) => return Ok::<_, Error>(error),
            }
        }
    };
    let error = within("read", reading).await??;
    assert!(matches!(error, StreamError::ConnectionError(_)), "{error}");
    // The task that accepts closes the connection.
    assert!(within("accept", server.accept()).await?.is_err());
    assert_eq!(closed(&pair.client).await?, Code::H3_FRAME_ERROR);
    Ok(())
}
