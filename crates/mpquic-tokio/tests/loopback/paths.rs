//! Paths: opened, closed, lost and moved.

use std::net::SocketAddr;

use mpquic_tokio::{
    ClosePathError, Endpoint, OpenPathError, PathEvent, PathId, PathState, ServerConfig,
    default_transport,
};

use crate::harness::{
    ALPN, Error, Net, TestResult, address_like, address_with, client, eventually, exchange,
    pattern, send_all, sha256, until_active, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_paths_carry_data_in_both_directions() -> TestResult {
    // Equal turns: the default would be right to prefer the faster one, if only by microseconds.
    let mut transport = default_transport();
    transport.scheduler = mpquic_sched::by_name("round-robin")?;
    let config = client(transport.clone())?;
    let locals = ["127.0.0.1", "127.0.0.2"];
    let net = Net::with_server(transport, &["127.0.0.1"], &locals, config)?;
    let (a, b) = net.connect().await?;
    assert!(a.is_multipath() && b.is_multipath());
    until_active(&a, 2).await?;
    until_active(&b, 2).await?;
    exchange(&a, &b, 32 << 20).await?;
    for connection in [&a, &b] {
        let stats = connection.path_stats();
        assert_eq!(stats.len(), 2, "{stats:?}");
        for path in stats {
            assert!(path.bytes_sent > 1 << 20, "{path:?}");
            assert!(path.bytes_received > 1 << 20, "{path:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn one_thread_is_enough() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 8 << 20).await
}

/// Sends both ways, and takes an address away when a third of that has arrived at the server. How
/// little that disturbs is measured in virtual time, by the driver's own tests.
async fn lose(net: &Net, remove: impl FnOnce(&Net)) -> TestResult {
    const LENGTH: usize = 6 << 20;
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    let data = pattern(LENGTH, 1);
    let send = async { send_all(a.open_uni().await?, data.clone()).await };
    let receive = async {
        let mut stream = b.accept_uni().await?;
        let (mut received, mut remove) = (Vec::with_capacity(LENGTH), Some(remove));
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            received.extend_from_slice(&chunk.bytes);
            if received.len() > LENGTH / 3
                && let Some(remove) = remove.take()
            {
                remove(net);
            }
        }
        assert!(sha256(&received) == sha256(&data) && remove.is_none());
        Ok::<_, Error>(())
    };
    let all = async { tokio::try_join!(exchange(&a, &b, LENGTH), send, receive) };
    within("transfer", all).await??;
    exchange(&a, &b, 1 << 20).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_arrives_though_a_local_address_is_lost() -> TestResult {
    for index in 0..2 {
        let net = Net::two_paths()?;
        let gone = net.client.local_addrs()[index];
        lose(&net, |net| assert!(net.client.remove_local(gone))).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_arrives_though_a_path_falls_silent() -> TestResult {
    for index in 0..2 {
        let config = client(default_transport())?;
        let net = Net::new(
            &["127.0.0.1", "127.0.0.3"],
            &["127.0.0.1", "127.0.0.2"],
            config,
        )?;
        // The server tells nobody: its paths over this address just stop.
        let gone = net.server.local_addrs()[index];
        lose(&net, |net| assert!(net.server.remove_local(gone))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_last_path_moves_to_a_new_address() -> TestResult {
    let config = client(default_transport())?;
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1"], config)?;
    let (a, b) = net.connect().await?;
    exchange(&a, &b, 1 << 20).await?;
    assert!(net.client.remove_local(net.client.local_addr()?));
    let new = net.client.add_local(address_like("127.0.0.2")?)?;
    exchange(&a, &b, 1 << 20).await?;
    let stats = a.path_stats();
    assert!(
        stats.iter().any(|path| path.four_tuple.local == new),
        "{stats:?}"
    );
    Ok(())
}

#[tokio::test]
async fn paths_open_and_close_by_hand() -> TestResult {
    let config = client(default_transport())?.automatic_paths(false);
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1"], config)?;
    let (a, b) = net.connect().await?;
    let (mut at_a, mut at_b) = (a.path_events(), b.path_events());
    let local = address_with("127.0.0.2")?;
    let path = within("open", a.open_path(local, net.server.local_addr()?)).await??;
    assert_eq!(
        path.local_address().map(|a| a.ip().to_string()).as_deref(),
        Some("127.0.0.2")
    );
    assert_eq!(a.paths().len(), 2);
    let wait_for = async |events: &mut mpquic_tokio::PathEvents, wanted: fn(&PathEvent) -> bool| {
        while let Some(event) = events.next().await {
            if wanted(&event) {
                return Ok(event);
            }
        }
        Err::<_, Error>("closed".into())
    };
    let established = |event: &PathEvent| matches!(event, PathEvent::Established(_));
    within("event", wait_for(&mut at_b, established)).await??;
    path.close()?;
    assert_eq!(path.close(), Err(ClosePathError::NoSuchPath));
    let last = a.path(PathId::ZERO).ok_or("no path")?;
    assert_eq!(last.close(), Err(ClosePathError::LastPath));
    let abandoned = |event: &PathEvent| matches!(event, PathEvent::Abandoned { .. });
    let ours = within("event", wait_for(&mut at_a, abandoned)).await??;
    let theirs = within("event", wait_for(&mut at_b, abandoned)).await??;
    // The counters of the path stay readable.
    let discarded = |event: &PathEvent| matches!(event, PathEvent::Discarded(_));
    let PathEvent::Discarded(last) = within("event", wait_for(&mut at_a, discarded)).await?? else {
        return Err("another event".into());
    };
    assert_eq!((last.id, last.state), (path.id(), PathState::Abandoned));
    assert!(
        last.bytes_sent > 1000 && last.bytes_received > 1000,
        "{last:?}"
    );
    assert_eq!(a.ended_path_stats(), [*last]);
    assert_eq!(a.path_stats().len(), 1);
    for (event, expected) in [(ours, false), (theirs, true)] {
        let PathEvent::Abandoned {
            path: id, by_peer, ..
        } = event
        else {
            return Err("another event".into());
        };
        assert_eq!((id, by_peer), (path.id(), expected));
    }
    exchange(&a, &b, 1 << 20).await
}

#[tokio::test]
async fn a_client_without_multipath_is_served() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_paths = 0;
    let net = Net::new(
        &["127.0.0.1"],
        &["127.0.0.1", "127.0.0.2"],
        client(transport)?,
    )?;
    let (a, b) = net.connect().await?;
    assert!(!a.is_multipath() && !b.is_multipath());
    exchange(&a, &b, 4 << 20).await?;
    assert_eq!(
        a.paths().iter().map(|path| path.id()).collect::<Vec<_>>(),
        [PathId::ZERO]
    );
    let local = net.client.local_addrs()[1];
    let refused = within("open", a.open_path(local, net.server.local_addr()?)).await?;
    assert!(matches!(refused, Err(OpenPathError::NotNegotiated)));
    Ok(())
}

/// RFC 9000 section 9.6, MP-019: the server binds the address it prefers; the first path moves
/// there, and so do others that have to open anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_moves_to_the_servers_preferred_address() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let SocketAddr::V4(other) = address_like("127.0.0.9")? else {
        return Err("an IPv6 address".into());
    };
    let config = config.preferred_address_v4(Some(other));
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let addresses = server.local_addrs();
    let [first, preferred] = addresses[..] else {
        return Err(format!("{addresses:?}").into());
    };
    let client = Endpoint::builder()
        .client(client(default_transport())?)
        .bind("127.0.0.1:0".parse()?)
        .build()?;
    let net = Net { server, client };
    let (a, b) = net.connect().await?;
    let mut events = a.path_events();
    let is_there = || {
        a.path_stats()
            .iter()
            .any(|path| path.four_tuple.remote == preferred)
    };
    let moved = async {
        while !is_there() {
            events.next().await.ok_or("closed")?;
        }
        Ok::<_, Error>(())
    };
    within("moving", moved).await??;
    assert_eq!(preferred.ip(), *other.ip());
    assert_ne!(first, preferred);

    let data = pattern(1 << 20, 3);
    let mut send = a.open_uni().await?;
    let sent = async {
        send.write_all(&data).await?;
        send.finish()?;
        Ok::<_, Error>(())
    };
    let received = async {
        let mut recv = b.accept_uni().await?;
        Ok::<_, Error>(recv.read_to_end(2 << 20).await?)
    };
    let (_, received) = within("a transfer", async { tokio::try_join!(sent, received) }).await??;
    assert_eq!(sha256(&received), sha256(&data));
    let there = b.path_stats();
    assert!(
        there.iter().all(|path| path.four_tuple.local == preferred),
        "{there:?}"
    );
    Ok(())
}

/// What the application closed stays closed, and what it opened is not opened a second time.
#[tokio::test]
async fn paths_that_the_application_sees_to_are_left_to_it() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    let second = a.path(PathId(1)).ok_or("no path")?;
    let (local, remote) = (
        second.local_address().ok_or("gone")?,
        net.server.local_addr()?,
    );
    second.close()?;
    // Time enough to open it again, were it not for the application.
    exchange(&a, &b, 16 << 20).await?;
    let open = || {
        a.path_stats()
            .iter()
            .filter(|path| path.state != PathState::Abandoned)
            .count()
    };
    assert_eq!(open(), 1, "{:?}", a.path_stats());
    let again = within("open", a.open_path(local, remote)).await??;
    until_active(&a, 2).await?;
    exchange(&a, &b, 16 << 20).await?;
    assert_eq!(open(), 2, "{:?}", a.path_stats());
    assert_eq!(again.local_address(), Some(local));
    Ok(())
}

/// The peer hears of new connection IDs without anything to transfer, and transfers go on with
/// them.
#[tokio::test]
async fn connection_ids_are_replaced() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    exchange(&a, &b, 1 << 20).await?;
    let received = a.stats().datagrams_received;
    b.replace_connection_ids();
    let is_told = || a.stats().datagrams_received != received;
    eventually("new connection IDs", is_told).await?;
    exchange(&a, &b, 1 << 20).await
}
