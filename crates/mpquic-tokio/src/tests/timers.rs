//! Timers end in time: a timer set to a far time moves to a nearer time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::testing::{DELAY, Pair, TestResult, transfer};

/// After this time without work, every timer of a transfer has expired.
const LONG: Duration = Duration::from_secs(8);

#[tokio::test(start_paused = true)]
async fn a_single_packet_is_acknowledged_in_time_after_a_long_silence() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1000).await?;
    sleep(LONG).await;
    let start = Instant::now();
    let mut stream = a.open_uni().await?;
    stream.write_all(b"x").await?;
    stream.finish()?;
    stream.stopped().await?;
    // The way there and back, and the longest wait of an acknowledgement.
    let expected = 2 * DELAY + crate::default_transport().max_ack_delay;
    let elapsed = start.elapsed();
    assert!(
        elapsed <= expected + Duration::from_millis(2),
        "{elapsed:?}"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_probe_leaves_in_time_after_a_long_silence() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1000).await?;
    sleep(LONG).await;
    pair.at_server[0].silence(true);
    pair.at_client[0].take_calls();
    let start = Instant::now();
    let mut stream = a.open_uni().await?;
    stream.write_all(b"x").await?;
    sleep(LONG).await;
    let sent = pair.at_client[0].take_calls().into_iter();
    let sent: Vec<_> = sent.map(|call| call.at - start).collect();
    let [_, probe, ..] = sent[..] else {
        return Err(format!("{sent:?}").into());
    };
    // RFC 9002 section 6.2.1: the round-trip time, four times a variation of at most half a
    // round-trip time, and the longest wait of an acknowledgement.
    let timeout = 6 * DELAY + crate::default_transport().max_ack_delay;
    assert!((2 * DELAY..=timeout).contains(&probe), "{sent:?}");
    Ok(())
}
