//! Paths that open on their own, as sockets come and go. `mpquic-paths` tests the plan itself.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backups::Backups;
use crate::testing::{DELAY, Host, Pair, TestResult, client, transfer};
use crate::{PathEvent, PathId, PathState, PathStatus};

const SECOND: Duration = Duration::from_secs(1);

/// The plan knows the path's new address, and opens no second path there.
#[tokio::test(start_paused = true)]
async fn the_last_path_moves_to_a_new_address_and_works_there() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect_over(1).await?;
    transfer(&a, &b, 1 << 20).await?;
    assert!(pair.client.endpoint.remove_local(pair.at_client[0].local()));
    sleep(3 * SECOND).await;
    let port = pair.client.bind("10.0.9.1:9")?;
    let elapsed = transfer(&a, &b, 10_000).await?;
    // The server must see the client before the server sends much.
    assert!(elapsed <= 6 * DELAY, "{elapsed:?}");
    sleep(30 * SECOND).await;
    let paths = a.path_stats();
    assert_eq!(paths.len(), 1, "{paths:?}");
    assert_eq!(paths[0].four_tuple.local, port.local());
    assert_eq!(
        (paths[0].id, paths[0].state),
        (PathId::ZERO, PathState::Active)
    );
    Ok(())
}

/// The client replaces sockets one by one, as with
/// [`Endpoint::rebind_local`](crate::Endpoint::rebind_local).
#[tokio::test(start_paused = true)]
async fn paths_go_on_with_the_socket_that_replaces_theirs() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect_over(2).await?;
    transfer(&a, &b, 1 << 20).await?;
    for (index, new) in ["10.0.8.1:8", "10.0.9.1:9"].into_iter().enumerate() {
        let old = pair.at_client[index].local();
        let port = pair.client.replace(old, new)?;
        // The other path works meanwhile.
        let elapsed = transfer(&a, &b, 10_000).await?;
        assert!(elapsed <= 6 * DELAY, "{elapsed:?}");
        sleep(SECOND).await;
        let paths = a.path_stats();
        let moved: Vec<_> = paths
            .iter()
            .filter(|path| path.four_tuple.local == port.local())
            .collect();
        assert!(
            matches!(&moved[..], [path] if path.state == PathState::Active),
            "{paths:?}"
        );
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(paths.iter().all(|path| path.four_tuple.local != old));
    }
    sleep(10 * SECOND).await;
    assert_eq!(a.path_stats().len(), 2, "no further paths there");
    Ok(())
}

/// A pair whose client has three addresses. Paths from the first address are backups.
fn with_backup() -> Result<Pair, crate::testing::Error> {
    let mut pair = Pair::with_paths(0)?;
    let server = pair.server.endpoint.local_addr()?;
    let config = client(crate::default_transport())?.server_addresses(vec![server]);
    pair.client = Host::new(&pair.network, None, Some(config), 3)?;
    let addresses = vec!["10.0.1.1".parse()?];
    pair.client.state.sockets.set_backups(Backups {
        interfaces: Vec::new(),
        addresses,
    });
    for local in ["10.0.1.1:1", "10.0.2.1:1", "10.0.3.1:1"] {
        pair.at_client.push(pair.client.bind(local)?);
    }
    Ok(pair)
}

/// A copy of the first flight leaves from each address, but not from backups.
#[tokio::test(start_paused = true)]
async fn the_first_flight_leaves_everywhere_but_from_backups() -> TestResult {
    let pair = with_backup()?;
    pair.at_client[1].silence(true);
    let to = pair.server.endpoint.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let start = Instant::now();
    let (a, _b) = tokio::try_join!(async { Ok(connecting.await?) }, pair.accept())?;
    assert!(start.elapsed() < 4 * DELAY, "{:?}", start.elapsed());
    let first = a.path(PathId::ZERO).ok_or("no path")?.local_address();
    assert_eq!(first, Some(pair.at_client[2].local()));
    assert!(pair.at_client[0].take_calls().is_empty());
    // The silent address gets a path, too, once the server is heard there.
    pair.at_client[1].silence(false);
    a.wait_for_paths(3).await?;
    Ok(())
}

/// A backup path opens as a backup, carries no data while other paths work, and then carries all
/// data.
#[tokio::test(start_paused = true)]
async fn backup_carries_data_only_while_no_other_path_works() -> TestResult {
    let pair = with_backup()?;
    let (a, b) = pair.connect_over(3).await?;
    let handshake = a.path(PathId::ZERO).ok_or("no path")?;
    let first = handshake.local_address();
    assert_eq!(first, Some(pair.at_client[1].local()), "not the first one");
    let from = |local| {
        let paths = a.paths().into_iter();
        let mut ids = paths.filter(|path| path.local_address() == Some(local));
        ids.next().map(|path| path.id()).ok_or("no path")
    };
    let id = from(pair.at_client[0].local())?;
    let status = |connection: &crate::Connection| connection.path(id).map(|path| path.status());
    let backup = PathStatus::Backup;
    assert_eq!(status(&a), Some(Ok((backup, None))));
    assert!(matches!(status(&b), Some(Ok((_, Some(told)))) if told == backup));
    let sent = |connection: &crate::Connection| {
        let stats = connection.path(id).and_then(|path| path.stats());
        stats.map_or(0, |stats| stats.bytes_sent)
    };
    let before = (sent(&a), sent(&b));
    transfer(&a, &b, 1 << 20).await?;
    transfer(&b, &a, 1 << 20).await?;
    // Probes for larger datagrams, and acknowledgements.
    let idle = (sent(&a) - before.0, sent(&b) - before.1);
    assert!(idle.0 < 50_000 && idle.1 < 50_000, "{idle:?}");
    for port in &pair.at_client[1..] {
        port.silence(true);
    }
    transfer(&b, &a, 1 << 20).await?;
    assert!(sent(&b) - before.1 >= 1 << 20);
    Ok(())
}

/// A handshake with an answer over a backup only runs there until another path works.
#[tokio::test(start_paused = true)]
async fn handshake_over_a_backup_moves_to_another_path() -> TestResult {
    let pair = with_backup()?;
    for port in &pair.at_client[1..] {
        port.silence(true);
    }
    let (a, _b) = pair.connect().await?;
    let path = a.path(PathId::ZERO).ok_or("no path")?;
    assert_eq!(path.local_address(), Some(pair.at_client[0].local()));
    a.handshake_confirmed().await?;
    sleep(SECOND / 10).await;
    // The path replaces the other paths meanwhile, so the client asks the peer to use the path.
    for port in &pair.at_client[1..] {
        port.silence(false);
    }
    let mut events = a.path_events();
    while !matches!(
        events.next().await.ok_or("closed")?,
        PathEvent::Established(_)
    ) {}
    sleep(SECOND / 10).await;
    assert_eq!(path.status()?.0, PathStatus::Backup);
    Ok(())
}

/// A path that moves to a backup address becomes a backup.
#[tokio::test(start_paused = true)]
async fn a_path_stands_by_where_it_moves_to() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect_over(1).await?;
    a.handshake_confirmed().await?;
    let addresses = vec!["10.0.9.1".parse()?];
    pair.client.state.sockets.set_backups(Backups {
        interfaces: Vec::new(),
        addresses,
    });
    assert!(pair.client.endpoint.remove_local(pair.at_client[0].local()));
    pair.client.bind("10.0.9.1:9")?;
    transfer(&a, &b, 10_000).await?;
    sleep(SECOND).await;
    let status = |connection: &crate::Connection| {
        let path = connection.path(PathId::ZERO);
        path.and_then(|path| path.status().ok())
    };
    let backup = PathStatus::Backup;
    assert_eq!(status(&a), Some((backup, None)));
    assert!(matches!(status(&b), Some((_, Some(told))) if told == backup));
    Ok(())
}

/// Even if paths without the status of a backup were silent the last time.
#[tokio::test(start_paused = true)]
async fn a_handshake_begins_over_what_does_not_stand_by() -> TestResult {
    let pair = with_backup()?;
    for (index, is_silent) in [(0, true), (1, false)] {
        for port in &pair.at_client[1..] {
            port.silence(is_silent);
        }
        let (a, _b) = pair.connect().await?;
        let first = a.path_stats()[0].four_tuple.local;
        assert_eq!(first, pair.at_client[index].local());
        a.close(0u32.into(), b"");
        sleep(SECOND).await;
    }
    Ok(())
}
