//! Attempts to connect where nobody takes them any more, and connections whose peer has forgotten
//! them.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::testing::{DELAY, Host, Pair, TestResult, server, transfer};
use crate::{ConnectionError, TransportErrorCode, default_transport};

/// There and back, and the coarseness of timers.
const ROUND_TRIP: Duration = Duration::from_millis(22);

fn is_refusal(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ConnectionClosed(close)
        if close.code == TransportErrorCode::CONNECTION_REFUSED)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarted_ends_the_connections_it_does_not_know() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1000).await?;
    // With the same key.
    let restarted = Host::new(&pair.network, Some(server(default_transport())?), None, 1)?;
    restarted.bind("10.0.0.1:443")?;
    let start = Instant::now();
    let mut stream = a.open_uni().await?;
    stream.write_all(&[7; 1000]).await?;
    assert_eq!(a.closed().await, ConnectionError::Reset);
    assert!(start.elapsed() <= ROUND_TRIP, "{:?}", start.elapsed());
    assert_eq!(restarted.endpoint.stats().stateless_resets, 1);
    Ok(())
}

/// While a connection is left, its sockets stay; but nobody can take another one.
#[tokio::test(start_paused = true)]
async fn attempts_are_refused_once_the_last_handle_is_gone() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    let to = pair.server.endpoint.local_addr()?;
    drop(pair.server.endpoint);
    let start = Instant::now();
    let refused = pair.client.endpoint.connect(to, "localhost")?.await;
    let error = refused.err().ok_or("accepted")?;
    assert!(is_refusal(&error), "{error:?}");
    assert!(start.elapsed() <= ROUND_TRIP, "{:?}", start.elapsed());
    transfer(&a, &b, 1000).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn attempts_that_wait_are_refused_when_the_endpoint_is_closed() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let to = pair.server.endpoint.local_addr()?;
    let connecting = [(); 2].map(|()| pair.client.endpoint.connect(to, "localhost"));
    sleep(2 * DELAY).await;
    let start = Instant::now();
    pair.server.endpoint.close(0u32.into(), b"");
    for connecting in connecting {
        let error = connecting?.await.err().ok_or("accepted")?;
        assert!(is_refusal(&error), "{error:?}");
    }
    assert!(start.elapsed() <= ROUND_TRIP, "{:?}", start.elapsed());
    assert_eq!(pair.server.endpoint.stats().refused_handshakes, 2);
    Ok(())
}
