//! Paths for which the kernel has no route.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, transfer};
use crate::{Connection, PathEvent, PathState};

/// Bytes that fill a part of both windows, but not one window.
const MUCH: usize = 900_000;

async fn warm(paths: usize) -> Result<(Pair, Connection, Connection), Error> {
    let pair = Pair::with_paths(paths)?;
    let (a, b) = pair.connect_over(paths).await?;
    transfer(&a, &b, 4 << 20).await?;
    sleep(Duration::from_secs(8)).await;
    Ok((pair, a, b))
}

/// The data does not wait for a probe timeout, and the path carries data again a second later.
#[tokio::test(start_paused = true)]
async fn data_leaves_an_unreachable_path_at_once_and_comes_back() -> TestResult {
    for (index, error) in [
        (0, ErrorKind::NetworkUnreachable),
        (1, ErrorKind::HostUnreachable),
    ] {
        let (pair, a, b) = warm(2).await?;
        let port = &pair.at_client[index];
        port.take_calls();
        let undisturbed = transfer(&a, &b, MUCH).await?;
        assert!(!port.take_calls().is_empty());
        sleep(Duration::from_secs(8)).await;

        port.fail_to_send(Some(error));
        let start = Instant::now();
        let elapsed = transfer(&a, &b, MUCH).await?;
        assert!(
            elapsed <= undisturbed + DELAY,
            "{elapsed:?}, not {undisturbed:?}"
        );
        assert_eq!(a.path_stats()[index].state, PathState::Suspect);
        port.fail_to_send(None);
        let mut events = a.path_events();
        let event = timeout(Duration::from_secs(10), events.next()).await?;
        let event = event.ok_or("closed")?;
        assert!(matches!(event, PathEvent::Recovered(_)), "{event:?}");
        // The path is tried after a second, and then needs an answer.
        let expected = Duration::from_secs(1) + 2 * DELAY;
        let recovered = start.elapsed();
        assert!(recovered >= expected, "{recovered:?}");
        assert!(recovered <= expected + 4 * DELAY, "{recovered:?}");
        port.take_calls();
        transfer(&a, &b, MUCH).await?;
        assert!(!port.take_calls().is_empty(), "it is used again");
    }
    Ok(())
}

/// No other path exists, but the connection lives, and continues when a route appears.
#[tokio::test(start_paused = true)]
async fn the_only_path_goes_on_once_it_has_a_route() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fail_to_send(Some(ErrorKind::NetworkUnreachable));
    let gone = Duration::from_secs(10);
    let end = async {
        sleep(gone).await;
        assert_eq!(a.path_stats()[0].state, PathState::Suspect);
        port.fail_to_send(None);
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 100_000), end)?;
    // The path is tried once a second.
    assert!(
        (gone..gone + Duration::from_millis(1300)).contains(&elapsed),
        "{elapsed:?}"
    );
    Ok(())
}

/// The path is not tried a second later, but as soon as the system reports a change of routes.
#[cfg(feature = "interfaces")]
#[tokio::test(start_paused = true)]
async fn a_path_is_tried_again_when_routes_change() -> TestResult {
    let (pair, a, b) = warm(1).await?;
    let port = &pair.at_client[0];
    port.fail_to_send(Some(ErrorKind::NetworkUnreachable));
    let gone = Duration::from_millis(300);
    let end = async {
        sleep(gone).await;
        port.fail_to_send(None);
        crate::local_addresses::retry(&pair.client.state);
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 10_000), end)?;
    // The path is probed, answers, and carries the data.
    assert_eq!(elapsed, gone + 3 * DELAY);
    Ok(())
}

/// A socket that is bound to an interface without a route loses datagrams, and the kernel reports
/// no error. A new route opens the path at once, not at the next time of its validation.
#[cfg(feature = "interfaces")]
#[tokio::test(start_paused = true)]
async fn a_path_without_an_answer_is_tried_again_when_routes_change() -> TestResult {
    for waited in [300, 1200, 2200] {
        let pair = Pair::with_paths(2)?;
        pair.at_client[1].silence(true);
        let (a, _b) = pair.connect_over(1).await?;
        sleep(Duration::from_millis(waited)).await;
        assert_eq!(a.path_stats()[1].state, PathState::Validating, "{waited}");
        pair.at_client[1].silence(false);
        let start = Instant::now();
        crate::local_addresses::retry(&pair.client.state);
        a.wait_for_paths(2).await?;
        let took = start.elapsed();
        assert!(took <= 6 * DELAY, "{waited}: {took:?}");
    }
    Ok(())
}

/// The same for a path that has carried data: its probes come ever more rarely.
#[cfg(feature = "interfaces")]
#[tokio::test(start_paused = true)]
async fn a_silent_path_is_probed_when_routes_change() -> TestResult {
    let (pair, a, b) = warm(2).await?;
    pair.at_client[1].silence(true);
    transfer(&a, &b, MUCH).await?;
    sleep(Duration::from_millis(2300)).await;
    assert_eq!(a.path_stats()[1].state, PathState::Suspect);
    pair.at_client[1].silence(false);
    let mut events = a.path_events();
    let start = Instant::now();
    crate::local_addresses::retry(&pair.client.state);
    let event = timeout(Duration::from_secs(10), events.next()).await?;
    assert!(matches!(event, Some(PathEvent::Recovered(_))), "{event:?}");
    let took = start.elapsed();
    assert!(took <= 3 * DELAY, "{took:?}");
    Ok(())
}
