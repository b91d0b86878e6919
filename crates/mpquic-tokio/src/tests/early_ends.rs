//! Connections that end before the application awaits the handshake: received data still arrives.

use tokio::time::sleep;

use crate::testing::{ALPN, DELAY, Error, Pair, TestResult, transfer};
use crate::{Connecting, Connection};

/// A client sends a message, gets the acknowledgement, and closes. Returns the server's connection
/// before any `await`.
async fn closed_after_a_message(pair: &Pair) -> Result<Connecting, Error> {
    let to = pair.server.endpoint.local_addr()?;
    let send = async {
        let a = pair.client.endpoint.connect(to, "localhost")?.await?;
        let mut stream = a.open_uni().await?;
        stream.write_all(b"order 66").await?;
        stream.finish()?;
        assert_eq!(stream.stopped().await?, None, "all of it is acknowledged");
        a.close(7u32.into(), b"done");
        Ok::<_, Error>(())
    };
    let accept = async {
        let incoming = pair.server.endpoint.accept().await.ok_or("closed")?;
        Ok(incoming.accept()?)
    };
    let ((), accepted) = tokio::try_join!(send, accept)?;
    sleep(3 * DELAY).await;
    Ok(accepted)
}

async fn read(connection: &Connection) -> TestResult {
    let mut stream = connection.accept_uni().await?;
    assert_eq!(stream.read_to_end(100).await?, b"order 66");
    assert!(connection.close_reason().is_some(), "it has ended");
    assert!(connection.accept_uni().await.is_err(), "there is no more");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn acknowledged_data_is_read_after_the_end() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let accepted = closed_after_a_message(&pair).await?;
    read(&accepted.await?).await
}

#[tokio::test(start_paused = true)]
async fn an_ended_attempt_still_tells_what_was_asked_for() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let mut accepted = closed_after_a_message(&pair).await?;
    let asked = accepted.handshake_data().await?;
    assert_eq!(asked.server_name.as_deref(), Some("localhost"));
    assert_eq!(asked.protocol.as_deref(), Some(ALPN[0]));
    read(&accepted.await?).await
}

/// The server's connection ends right after the acknowledgement of its message, before the client
/// looks.
#[tokio::test(start_paused = true)]
async fn a_client_reads_what_a_server_said_that_has_closed() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let to = pair.server.endpoint.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let b = pair.accept().await?;
    let mut stream = b.open_uni().await?;
    stream.write_all(b"order 66").await?;
    stream.finish()?;
    stream.stopped().await?;
    b.close(7u32.into(), b"done");
    sleep(3 * DELAY).await;
    read(&connecting.await?).await
}

/// The server's answer to 0-RTT outlives the connection.
#[tokio::test(start_paused = true)]
async fn accepted_zero_rtt_stays_accepted() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1000).await?;
    a.close(0u32.into(), b"");
    b.closed().await;
    let to = pair.server.endpoint.local_addr()?;
    let Ok((a, accepted)) = pair.client.endpoint.connect(to, "localhost")?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let mut stream = a.open_uni().await?;
    stream.write_all(b"early").await?;
    let b = pair.accept().await?;
    sleep(3 * DELAY).await;
    b.close(0u32.into(), b"");
    a.closed().await;
    assert!(accepted.await);
    Ok(())
}
