//! What a peer that breaks the rules can do. It speaks QUIC, and writes HTTP/3 by hand.

use h3::error::{Code, StreamError};
use mpquic_h3::h3;
use mpquic_tokio::{ConnectionError, SendStream};

use crate::harness::{Error, Pair, ServerRequests, TestResult, within};

/// A HEADERS frame: GET, https, /, and the authority `a`, by the static table of QPACK.
const HEADERS: &[u8] = &[0x01, 0x08, 0x00, 0x00, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'a'];
/// The control stream's type, and empty SETTINGS.
const CONTROL: &[u8] = &[0x00, 0x04, 0x00];

async fn serve(pair: &Pair) -> Result<ServerRequests, Error> {
    let connection = mpquic_h3::Connection::new(pair.server.clone()).max_frame_size(10_000);
    Ok(h3::server::Connection::new(connection).await?)
}

/// The code with which the client's connection was closed.
async fn closed(pair: &Pair) -> Result<u64, Error> {
    match within("the end", pair.client.closed()).await? {
        ConnectionError::ApplicationClosed(close) => Ok(close.error_code.into_inner()),
        other => Err(other.into()),
    }
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
    assert_eq!(
        closed(&pair).await?,
        Code::H3_CLOSED_CRITICAL_STREAM.value()
    );
    assert!(within("the server", serving).await??.is_err());
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
    assert_eq!(closed(&pair).await?, Code::H3_FRAME_ERROR.value());
    Ok(())
}
