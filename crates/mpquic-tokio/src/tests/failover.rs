//! How long readers get no data after the loss of a path.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, client, server, transfer};
use crate::{Connection, PathEvent, default_transport};

/// Interval and size of the writes.
const TICK: Duration = Duration::from_millis(1);
const WRITTEN: usize = 2_500;
const TICKS: usize = 500;

/// Sends a stream at a steady rate and disturbs the transfer half-way. Returns the longest time
/// without data for the receiver.
async fn longest_gap(
    a: &Connection,
    b: &Connection,
    disturb: impl FnOnce(),
) -> Result<Duration, Error> {
    let send = async {
        let mut stream = a.open_uni().await?;
        let mut disturb = Some(disturb);
        for tick in 0..TICKS {
            if tick == TICKS / 2
                && let Some(disturb) = disturb.take()
            {
                disturb();
            }
            stream.write_all(&[7; WRITTEN]).await?;
            sleep(TICK).await;
        }
        stream.finish()?;
        Ok::<_, Error>(())
    };
    let receive = async {
        let mut stream = b.accept_uni().await?;
        let (mut last, mut longest, mut read) = (Instant::now(), Duration::ZERO, 0);
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            let now = Instant::now();
            // The first gaps are an effect of slow start.
            if read > WRITTEN * TICKS / 4 {
                longest = longest.max(now - last);
            }
            last = now;
            read += chunk.bytes.len();
        }
        assert_eq!(read, WRITTEN * TICKS);
        Ok(longest)
    };
    let ((), longest) = tokio::try_join!(send, receive)?;
    Ok(longest)
}

/// Two addresses on each side, and a scheduler that uses all four paths.
fn pair() -> Result<Pair, Error> {
    let mut transport = default_transport();
    transport.scheduler = mpquic_sched::by_name("round-robin")?;
    Pair::new(
        (
            server(transport.clone())?,
            &["10.0.0.1:443", "10.0.0.2:443"],
        ),
        (client(transport)?, &["10.0.1.1:1", "10.0.2.1:1"]),
    )
}

/// Disturbs transfers of new pairs in both directions, for each of two addresses in turn, and
/// returns the longest gaps.
async fn gaps(disturb: impl Fn(&Pair, usize)) -> Result<Vec<Duration>, Error> {
    let mut gaps = Vec::new();
    for index in 0..2 {
        for is_upload in [true, false] {
            let pair = pair()?;
            let (a, b) = pair.connect_over(4).await?;
            let (from, to) = if is_upload { (&a, &b) } else { (&b, &a) };
            gaps.push(longest_gap(from, to, || disturb(&pair, index)).await?);
            a.close(0u32.into(), b"");
        }
    }
    Ok(gaps)
}

#[tokio::test(start_paused = true)]
async fn reader_has_no_gap_unless_a_path_is_lost() -> TestResult {
    let gaps = gaps(|_, _| {}).await?;
    assert!(gaps.iter().all(|gap| *gap <= 2 * TICK), "{gaps:?}");
    Ok(())
}

/// The client reports the loss to the server at once, and the server repeats data that may be lost.
#[tokio::test(start_paused = true)]
async fn losing_a_local_address_costs_a_round_trip() -> TestResult {
    let remove = |pair: &Pair, index: usize| {
        let gone = pair.at_client[index].local();
        assert!(pair.client.endpoint.remove_local(gone));
    };
    let gaps = gaps(remove).await?;
    let most = 2 * DELAY + 2 * TICK;
    assert!(gaps.iter().all(|gap| *gap <= most), "{gaps:?}");
    Ok(())
}

/// The longest time until each path is suspect: two probe timeouts, each a round trip, a margin,
/// and the longest delay of an acknowledgement.
const TWO_TIMEOUTS: Duration = Duration::from_millis(120);

#[tokio::test(start_paused = true)]
async fn a_clients_address_that_falls_silent_costs_two_timeouts() -> TestResult {
    let gaps = gaps(|pair, index| pair.at_client[index].silence(true)).await?;
    assert!(gaps.iter().all(|gap| *gap <= TWO_TIMEOUTS), "{gaps:?}");
    // The silent address was in use.
    assert!(gaps.iter().all(|gap| *gap >= 2 * DELAY), "{gaps:?}");
    Ok(())
}

/// A server does not announce a closed socket: the paths over the socket just stop.
#[tokio::test(start_paused = true)]
async fn a_servers_address_that_is_gone_costs_two_timeouts() -> TestResult {
    let remove = |pair: &Pair, index: usize| {
        let gone = pair.at_server[index].local();
        assert!(pair.server.endpoint.remove_local(gone));
    };
    let gaps = gaps(remove).await?;
    assert!(gaps.iter().all(|gap| *gap <= TWO_TIMEOUTS), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= 2 * DELAY), "{gaps:?}");
    Ok(())
}

/// A path without an answer for a long time is tried again at short intervals while much data
/// waits, so that the path carries data soon after its link appears.
#[tokio::test(start_paused = true)]
async fn a_link_that_comes_late_is_used_soon() -> TestResult {
    const SECONDS: u32 = 40;
    let pair = Pair::with_paths(2)?;
    pair.at_client[1].silence(true);
    let (a, b) = pair.connect_over(1).await?;
    let mut events = a.path_events();
    let send = async {
        let mut stream = a.open_uni().await?;
        for tick in 0..SECONDS * 10 + 60 {
            if tick == SECONDS * 10 {
                pair.at_client[1].silence(false);
            }
            stream.write_all(&[7; 40_000]).await?;
            sleep(Duration::from_millis(100)).await;
        }
        stream.finish()?;
        Ok::<_, Error>(())
    };
    let receive = async {
        let mut stream = b.accept_uni().await?;
        while stream.read_chunk(usize::MAX, true).await?.is_some() {}
        Ok(())
    };
    let start = Instant::now();
    let used = async {
        let established = |event| matches!(event, Some(PathEvent::Established(_)));
        while !established(events.next().await) {}
        Ok(start.elapsed())
    };
    let (_, _, used) = tokio::try_join!(send, receive, used)?;
    let wait = used.saturating_sub(Duration::from_secs(SECONDS.into()));
    assert!(
        used > Duration::from_secs(SECONDS.into()),
        "it was silent: {used:?}"
    );
    assert!(wait < Duration::from_secs(5), "{wait:?}");
    Ok(())
}

/// The client changes its socket while no packet passes, for longer than the validation of an
/// address takes. The path must not return to the address of the old socket, which no longer sends.
#[tokio::test(start_paused = true)]
async fn an_outage_after_the_socket_was_replaced_is_survived() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect_over(1).await?;
    a.handshake_confirmed().await?;
    transfer(&a, &b, 10_000).await?;
    pair.at_server[0].silence(true);
    let mut events = a.path_events();
    let new = pair
        .client
        .replace(pair.at_client[0].local(), "10.0.1.1:2")?;
    sleep(Duration::from_secs(8)).await;
    pair.at_server[0].silence(false);
    timeout(Duration::from_secs(15), transfer(&a, &b, 10_000)).await??;
    let local = a.path_stats().first().map(|path| path.four_tuple.local);
    assert_eq!(local, Some(new.local()));
    // The application hears of the new address after its validation.
    let told = async { while !matches!(events.next().await, Some(PathEvent::Migrated(..))) {} };
    timeout(Duration::from_secs(5), told).await?;
    Ok(())
}
