//! Sockets with full buffers, and the datagrams that wait for them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::testing::{Call, DELAY, Error, Pair, TestResult, transfer};
use crate::{Connection, ConnectionError};

/// Longer than a probe timeout.
const PROBE: Duration = Duration::from_millis(100);

/// A client with `paths` paths, each with a large window and no data in flight.
async fn warm(paths: usize) -> Result<(Pair, Connection, Connection), Error> {
    let pair = Pair::with_paths(paths)?;
    let (a, b) = pair.connect_over(paths).await?;
    transfer(&a, &b, 4 << 20).await?;
    sleep(Duration::from_secs(8)).await;
    for port in &pair.at_client {
        port.take_calls();
    }
    Ok((pair, a, b))
}

fn lost(connection: &Connection) -> u64 {
    let stats = connection.path_stats();
    stats.iter().map(|path| path.packets_lost).sum()
}

/// Fails if a datagram left twice: no two packets are alike. Returns the number of datagrams.
fn each_once(calls: &[Call]) -> usize {
    let datagrams = || calls.iter().flat_map(|call| &call.datagrams);
    let different: BTreeSet<_> = datagrams().collect();
    assert_eq!(different.len(), datagrams().count(), "sent again");
    different.len()
}

#[tokio::test(start_paused = true)]
async fn full_socket_sends_waiting_trains_when_it_has_room() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fill_after(0);
    let empty = async {
        sleep(DELAY).await;
        assert!(port.take_calls().is_empty());
        port.empty();
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 100_000), empty)?;
    assert_eq!(elapsed, 2 * DELAY, "it left at once");
    assert_eq!((each_once(&port.take_calls()), lost(&a)), (72, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_train_that_was_taken_in_part_goes_on_where_it_stopped() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.set_max_segments(4);
    port.fill_after(3);
    let empty = async {
        sleep(DELAY).await;
        let mut before = port.take_calls();
        assert_eq!(each_once(&before), 12);
        // Then the buffer has room for a further part.
        port.fill_after(2);
        port.wake();
        sleep(DELAY).await;
        before.extend(port.take_calls());
        assert_eq!(each_once(&before), 20);
        port.empty();
        Ok(before)
    };
    let (elapsed, mut calls) = tokio::try_join!(transfer(&a, &b, 100_000), empty)?;
    assert_eq!(elapsed, 3 * DELAY);
    calls.extend(port.take_calls());
    assert_eq!((each_once(&calls), lost(&a)), (72, 0));
    Ok(())
}

/// As in the network, excess datagrams are lost: without the loss, a full socket would use up
/// memory.
#[tokio::test(start_paused = true)]
async fn no_more_than_some_trains_wait_behind_a_full_socket() -> TestResult {
    const MAX: usize = 8;
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fill_after(0);
    let waiting = || -> Result<_, Error> {
        let connection = pair.client.connection()?;
        let count = connection.lock().sending.full_sockets().count();
        Ok(count)
    };
    let empty = async {
        // Each probe timeout sends further datagrams.
        for _ in 0..20 {
            sleep(PROBE).await;
            assert_eq!(waiting()?, MAX);
        }
        port.empty();
        Ok(())
    };
    // The transfer is larger than the window, and the window is larger than the waiting trains.
    let window = a.path_stats()[0].window;
    assert!(window > 2 * MAX as u64 * (1 << 16), "{window}");
    tokio::try_join!(transfer(&a, &b, 4 << 20), empty)?;
    assert_eq!(waiting()?, 0);
    assert!(lost(&a) > 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn all_tasks_hear_of_room_in_a_socket() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let (c, d) = pair.connect().await?;
    transfer(&c, &d, 4 << 20).await?;
    let port = &pair.at_client[0];
    port.fill_after(0);
    let empty = async {
        sleep(DELAY).await;
        port.empty();
        Ok(())
    };
    let both = tokio::try_join!(transfer(&a, &b, 10_000), transfer(&c, &d, 10_000), empty);
    let (first, second, ()) = both?;
    assert_eq!((first, second), (2 * DELAY, 2 * DELAY));
    Ok(())
}

/// The runtime hears of room after the kernel reported a full buffer, and before the driver stores
/// the report: the driver must not forget the room.
#[tokio::test(start_paused = true)]
async fn room_during_a_full_result_is_noticed() -> TestResult {
    for times in 1.. {
        let (pair, a, b) = warm(1).await?;
        let port = &pair.at_client[0];
        port.fill_after(0);
        port.empty_when_found_full(times);
        let empty = async {
            sleep(DELAY).await;
            let left = port.times_left();
            port.empty();
            Ok(left)
        };
        let (elapsed, left) = tokio::try_join!(transfer(&a, &b, 10_000), empty)?;
        if left > 0 {
            // The driver does not try more often while the buffer is full.
            assert_eq!(elapsed, 2 * DELAY);
            assert!(times > 2);
            break;
        }
        assert_eq!(elapsed, DELAY, "found full {times} times");
    }
    Ok(())
}

/// The driver sends again at the news of room, and does not only wait again.
#[tokio::test(start_paused = true)]
async fn room_before_the_wait_is_used() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fill_after(0);
    port.empty_when_awaited(2);
    let wake = async {
        sleep(DELAY).await;
        port.wake();
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 10_000), wake)?;
    assert_eq!(elapsed, 2 * DELAY);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_close_that_finds_no_room_leaves_later() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fill_after(0);
    let start = Instant::now();
    a.close(7u32.into(), b"");
    sleep(DELAY).await;
    port.empty();
    let reason = b.closed().await;
    assert!(matches!(reason, ConnectionError::ApplicationClosed(_)));
    assert_eq!(start.elapsed(), 2 * DELAY);
    Ok(())
}

/// The data arrives even if the runtime never reports room: connections have timers.
#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_a_probe_timeout() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fill_after(0);
    let empty = async {
        sleep(DELAY).await;
        port.empty_in_silence();
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 10_000), empty)?;
    assert!((2 * DELAY..PROBE).contains(&elapsed), "{elapsed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_full_socket_does_not_hold_up_another_path() -> TestResult {
    for index in 0..2 {
        let (pair, a, b) = warm(2).await?;
        pair.at_client[index].fill_after(0);
        // The other path carries the waiting data after a probe timeout.
        let elapsed = transfer(&a, &b, 1 << 20).await?;
        assert!(elapsed < PROBE, "{elapsed:?}");
    }
    Ok(())
}

/// Errors without an `ErrorKind`, such as ENOBUFS: the refused datagram is lost.
#[tokio::test(start_paused = true)]
async fn errors_that_pass_are_like_losses() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fail_to_send(Some(ErrorKind::Other));
    let end = async {
        sleep(DELAY).await;
        port.fail_to_send(None);
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 100_000), end)?;
    assert!((2 * DELAY..2 * PROBE).contains(&elapsed), "{elapsed:?}");
    assert_eq!(lost(&a), 72);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn datagrams_go_one_by_one_if_trains_are_refused() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.refuse_trains();
    assert_eq!(transfer(&a, &b, 100_000).await?, DELAY);
    let calls = port.take_calls();
    assert_eq!((each_once(&calls), calls.len(), lost(&a)), (72, 72, 0));
    Ok(())
}
