//! Further addresses that a server announces, and the paths that its clients open to them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;

use crate::testing::{Error, Pair, TestResult, client, server, transfer};
use crate::{
    AnnounceError, Connection, PathEvent, PathState, PathStatus, ServerAddress, default_transport,
};

const SECOND: Duration = Duration::from_secs(1);

const FIRST: &str = "10.0.0.1:443";
const SECOND_UPLINK: &str = "10.0.0.2:443";
const THIRD_UPLINK: &str = "10.0.0.3:8443";

/// A server with these addresses. The client knows the first address, asks for the other addresses,
/// and uses all paths alike.
fn pair(at_server: &[&str], at_client: &[&str]) -> Result<Pair, Error> {
    let config = client(default_transport())?.use_alternative_addresses(true);
    let mut transport = default_transport();
    transport.scheduler = mpquic_sched::by_name("round-robin")?;
    let mut pair = Pair::new((server(transport)?, &at_server[..1]), (config, at_client))?;
    for address in &at_server[1..] {
        pair.at_server.push(pair.server.bind(address)?);
    }
    Ok(pair)
}

fn addresses(all: &[&str]) -> Result<Vec<ServerAddress>, std::net::AddrParseError> {
    let all = all.iter().map(|text| Ok(ServerAddress::new(text.parse()?)));
    all.collect()
}

/// The server addresses of the paths that carry data, sorted.
fn remotes(connection: &Connection) -> Vec<String> {
    let paths = connection.path_stats().into_iter();
    let usable = paths.filter(|path| path.state == PathState::Active);
    let mut remotes: Vec<_> = usable
        .map(|path| path.four_tuple.remote.to_string())
        .collect();
    remotes.sort();
    remotes
}

/// Bytes that the server has sent from an address.
fn sent_from(connection: &Connection, address: &str) -> u64 {
    let paths = connection.path_stats().into_iter();
    let from = paths.filter(|path| path.four_tuple.local.to_string() == address);
    from.map(|path| path.bytes_sent).sum()
}

#[tokio::test(start_paused = true)]
async fn a_client_uses_all_three_addresses_of_a_server() -> TestResult {
    let all = [FIRST, SECOND_UPLINK, THIRD_UPLINK];
    let pair = pair(&all, &["10.0.1.1:1"])?;
    // The announcement also counts for later clients.
    pair.server
        .endpoint
        .announce_addresses(&addresses(&all[1..])?)?;
    let (a, b) = pair.connect_over(3).await?;
    assert_eq!(remotes(&a), all);
    transfer(&b, &a, 4 << 20).await?;
    for address in all {
        let sent = sent_from(&b, address);
        assert!(sent > 500_000, "{address}: {sent} of 4 MiB");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_announcement_does_not_wait_for_anything_else() -> TestResult {
    let pair = pair(&[FIRST], &["10.0.1.1:1"])?;
    let (_a, _b) = pair.connect_over(1).await?;
    sleep(SECOND).await;
    pair.at_server[0].take_calls();
    let announced = addresses(&[SECOND_UPLINK])?;
    pair.server.endpoint.announce_addresses(&announced)?;
    tokio::task::yield_now().await;
    assert!(!pair.at_server[0].take_calls().is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_serves_over_an_uplink_that_appears_during_a_transfer() -> TestResult {
    let pair = pair(&[FIRST], &["10.0.1.1:1"])?;
    let (a, b) = pair.connect_over(1).await?;
    let mut events = a.path_events();
    let during = async {
        // Some round trips, so that the transfer is running.
        sleep(SECOND / 20).await;
        pair.server.bind(SECOND_UPLINK)?;
        let announced = addresses(&[SECOND_UPLINK])?;
        pair.server.endpoint.announce_addresses(&announced)?;
        let told = loop {
            let event = events.next().await.ok_or("closed")?;
            if let PathEvent::ServerAddresses(told) = event {
                break told;
            }
        };
        assert_eq!(&*told, announced);
        TestResult::Ok(())
    };
    tokio::try_join!(transfer(&b, &a, 16 << 20), during)?;
    assert_eq!(remotes(&a), [FIRST, SECOND_UPLINK]);
    let sent = sent_from(&b, SECOND_UPLINK);
    assert!(sent > 200_000, "{sent} of 16 MiB");
    // The connection goes on over the announced path, without the first path.
    pair.at_server[0].silence(true);
    transfer(&b, &a, 1 << 20).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn withdrawn_addresses_lose_their_paths() -> TestResult {
    let all = [FIRST, SECOND_UPLINK, THIRD_UPLINK];
    let pair = pair(&all, &["10.0.1.1:1"])?;
    let endpoint = &pair.server.endpoint;
    endpoint.announce_addresses(&addresses(&all[1..])?)?;
    let (a, b) = pair.connect_over(3).await?;
    for (announced, expected) in [
        (&all[2..], vec![FIRST, THIRD_UPLINK]),
        (&all[..0], vec![FIRST]),
        (&all[1..2], vec![FIRST, SECOND_UPLINK]),
        (&all[2..], vec![FIRST, THIRD_UPLINK]),
        (&all[1..], vec![FIRST, SECOND_UPLINK, THIRD_UPLINK]),
    ] {
        endpoint.announce_addresses(&addresses(announced)?)?;
        sleep(SECOND).await;
        let mut found = remotes(&a);
        found.sort();
        assert_eq!(found, expected);
        transfer(&b, &a, 100_000).await?;
    }
    // The addresses are not tried again.
    endpoint.announce_addresses(&[])?;
    sleep(SECOND).await;
    for port in &pair.at_server {
        port.take_calls();
    }
    for _ in 0..20 {
        sleep(SECOND).await;
        transfer(&b, &a, 10_000).await?;
    }
    assert_eq!(remotes(&a), [FIRST]);
    for port in &pair.at_server[1..] {
        assert!(port.take_calls().is_empty());
    }
    Ok(())
}

/// No other path works: the withdrawn address stays until another path does.
#[tokio::test(start_paused = true)]
async fn only_working_path_survives_a_withdrawal() -> TestResult {
    let pair = pair(&[FIRST, SECOND_UPLINK], &["10.0.1.1:1"])?;
    let endpoint = &pair.server.endpoint;
    endpoint.announce_addresses(&addresses(&[SECOND_UPLINK])?)?;
    let (a, b) = pair.connect_over(2).await?;
    pair.at_server[0].silence(true);
    transfer(&b, &a, 100_000).await?;
    endpoint.announce_addresses(&[])?;
    sleep(SECOND).await;
    assert_eq!(remotes(&a), [SECOND_UPLINK]);
    pair.at_server[0].silence(false);
    sleep(10 * SECOND).await;
    assert_eq!(remotes(&a), [FIRST]);
    Ok(())
}

/// A client with addresses of both families finds the server at its address of the other family.
#[tokio::test(start_paused = true)]
async fn ipv6_joins_ipv4() -> TestResult {
    const IPV6: &str = "[2001:db8::1]:443";
    let pair = pair(&[FIRST, IPV6], &["10.0.1.1:1", "[2001:db8::2]:1"])?;
    let endpoint = &pair.server.endpoint;
    endpoint.announce_addresses(&addresses(&[IPV6])?)?;
    let (a, b) = pair.connect_over(2).await?;
    assert_eq!(remotes(&a), [FIRST, IPV6]);
    transfer(&b, &a, 1 << 20).await?;
    assert!(sent_from(&b, IPV6) > 100_000);
    Ok(())
}

/// An address for bad times, and a change of mind.
#[tokio::test(start_paused = true)]
async fn backup_addresses_stand_by() -> TestResult {
    let pair = pair(&[FIRST, SECOND_UPLINK], &["10.0.1.1:1"])?;
    let endpoint = &pair.server.endpoint;
    let uplink = ServerAddress::new(SECOND_UPLINK.parse()?);
    endpoint.announce_addresses(&[uplink.backup()])?;
    let (a, b) = pair.connect_over(2).await?;
    let status = || -> Result<PathStatus, Error> {
        let mut paths = a.paths().into_iter();
        let path = paths.find(|path| path.remote_address() == Some(uplink.address));
        Ok(path.ok_or("no path")?.status()?.0)
    };
    assert_eq!(status()?, PathStatus::Backup);
    transfer(&b, &a, 1 << 20).await?;
    // Probes for larger datagrams, and acknowledgements.
    let idle = sent_from(&b, SECOND_UPLINK);
    assert!(idle < 50_000, "{idle}");
    endpoint.announce_addresses(&[uplink])?;
    sleep(SECOND).await;
    assert_eq!(status()?, PathStatus::Available);
    transfer(&b, &a, 8 << 20).await?;
    let sent = sent_from(&b, SECOND_UPLINK);
    assert!(sent > idle + 100_000, "{idle}, {sent}");
    Ok(())
}

/// Announced to a single client, and not to a client that does not ask.
#[tokio::test(start_paused = true)]
async fn announcements_reach_only_the_meant_clients() -> TestResult {
    let pair = pair(&[FIRST, SECOND_UPLINK], &["10.0.1.1:1"])?;
    let plain = client(default_transport())?;
    let (a, b) = pair.connect().await?;
    let (c, d) = pair.connect().await?;
    let to: SocketAddr = FIRST.parse()?;
    let connecting = pair.client.endpoint.connect_with(plain, to, "localhost")?;
    let connect = async { Ok::<_, Error>(connecting.await?) };
    let (e, f) = tokio::try_join!(connect, pair.accept())?;
    let uplink = addresses(&[SECOND_UPLINK])?;
    for announcing in [&b, &f] {
        announcing.announce_addresses(&uplink)?;
    }
    sleep(SECOND).await;
    assert_eq!(remotes(&a), [FIRST, SECOND_UPLINK]);
    for alone in [&c, &e] {
        assert_eq!(remotes(alone), [FIRST]);
    }
    assert_eq!(
        a.announce_addresses(&uplink),
        Err(AnnounceError::ClientSide)
    );
    let wrong = addresses(&["0.0.0.0:443"])?;
    let refused = Err(AnnounceError::NotUsable(wrong[0].address));
    assert_eq!(d.announce_addresses(&wrong), refused);
    assert_eq!(pair.server.endpoint.announce_addresses(&wrong), refused);
    Ok(())
}

/// Without an answer at the address, the connection goes on, and the client soon stops its tries.
#[tokio::test(start_paused = true)]
async fn an_address_where_nobody_answers_is_asked_a_few_times() -> TestResult {
    let pair = pair(&[FIRST], &["10.0.1.1:1"])?;
    let (a, b) = pair.connect_over(1).await?;
    let mut events = a.path_events();
    sleep(SECOND).await;
    pair.at_server[0].take_calls();
    b.announce_addresses(&addresses(&["10.9.9.9:443"])?)?;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        pair.at_server[0].take_calls().len(),
        1,
        "it is told at once"
    );
    let mut failed = 0;
    let count = async {
        while let Some(event) = events.next().await {
            failed += u32::from(matches!(event, PathEvent::Abandoned { .. }));
        }
    };
    let busy = async {
        for _ in 0..100 {
            sleep(SECOND).await;
            transfer(&b, &a, 1000).await?;
        }
        // Enough to try failed paths again for.
        transfer(&b, &a, 2 << 20).await?;
        sleep(10 * SECOND).await;
        TestResult::Ok(())
    };
    tokio::select! {
        () = count => return Err("it ended".into()),
        done = busy => done?,
    }
    assert_eq!(failed, 3);
    assert_eq!(remotes(&a), [FIRST]);
    Ok(())
}
