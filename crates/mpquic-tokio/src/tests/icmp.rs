//! ICMP messages about what a client has sent, true and forged ones.

use std::time::Duration;

use mpquic_core::{ConnectionError, PathState};
use tokio::time::{Instant, sleep, timeout};

use crate::error_queue::Unreachable;
use crate::runtime::{Runtime, TokioRuntime};
use crate::testing::{Pair, TestResult, transfer};

/// A message about a datagram from a socket of the client to the server, with its first bytes, reaches
/// the client's connections. Returns why one of them ended.
fn tell(pair: &Pair, from: usize, quoted: &[u8]) -> Option<ConnectionError> {
    let error = Unreachable::new(pair.at_server[0].local(), true, quoted);
    let state = &pair.client.state;
    let socket = state.sockets.owner(pair.at_client[from].local())?;
    let connections = state.lock().connections();
    let mut told = connections.iter().filter_map(|connection| {
        let mut engine = connection.lock();
        engine.on_unreachable(&socket, &error, TokioRuntime.now());
        engine.error.clone()
    });
    told.next()
}

/// The bytes of the client's first datagram.
fn first_datagram(pair: &Pair) -> Vec<u8> {
    let calls = pair.at_client[0].take_calls();
    calls[0].datagrams[0].clone()
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_at_once_if_nobody_listens() -> TestResult {
    let pair = Pair::with_paths(1)?;
    pair.at_server[0].silence(true);
    let to = pair.server.endpoint.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let quoted = first_datagram(&pair);
    // Somebody who has not seen the datagram does not know its connection ID.
    let mut forged = quoted.clone();
    forged[6] ^= 1;
    assert_eq!(tell(&pair, 0, &forged), None);
    assert_eq!(tell(&pair, 0, b""), None);
    let error = tell(&pair, 0, &quoted[..40]);
    assert_eq!(error, Some(ConnectionError::PortUnreachable));
    let start = Instant::now();
    let error = connecting.await.err();
    assert_eq!(error, Some(ConnectionError::PortUnreachable));
    pair.client.endpoint.wait_idle().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    Ok(())
}

/// RFC 9000 section 14.2.1: not even with the right connection ID, which is known to all on the way.
#[tokio::test(start_paused = true)]
async fn rfc_9000_14_2_1_no_message_ends_a_connection_that_works() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let to = pair.server.endpoint.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let quoted = first_datagram(&pair);
    let incoming = pair.server.endpoint.accept().await.ok_or("closed")?;
    let (a, b) = tokio::try_join!(connecting, async { incoming.await })?;
    for _ in 0..1000 {
        assert_eq!(tell(&pair, 0, &quoted), None);
    }
    transfer(&a, &b, 100_000).await?;
    assert_eq!(a.close_reason(), None);
    // The path is asked once, and another time a second later.
    sleep(Duration::from_secs(10)).await;
    for port in &pair.at_client {
        port.take_calls();
    }
    for _ in 0..1000 {
        assert_eq!(tell(&pair, 0, &quoted), None);
        sleep(Duration::from_micros(1500)).await;
    }
    sleep(Duration::from_millis(500)).await;
    let [asked, other] = [0, 1].map(|index| pair.at_client[index].take_calls().len());
    assert!((1..=6).contains(&asked) && other == 0, "{asked}, {other}");
    Ok(())
}

/// A path that is gone is noticed without anything to send.
#[tokio::test(start_paused = true)]
async fn a_message_makes_an_idle_path_suspect_if_it_is_true() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, _b) = pair.connect_over(2).await?;
    sleep(Duration::from_secs(10)).await;
    pair.at_client[1].silence(true);
    let mut events = a.path_events();
    assert_eq!(tell(&pair, 1, b""), None);
    timeout(Duration::from_secs(1), events.next()).await?;
    let states = a.path_stats().into_iter().map(|path| path.state);
    let expected = [PathState::Active, PathState::Suspect];
    assert_eq!(states.collect::<Vec<_>>(), expected);
    Ok(())
}
