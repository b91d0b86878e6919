//! Connection attempts without an answer, and connections whose peer has lost its state.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::FourTuple;
use tokio::time::{Instant, sleep, timeout};

use crate::testing::{ALPN, Call, DELAY, Error, Pair, TestResult, client, server, transfer};
use crate::{
    ConnectionError, EndpointConfig, KeyExchange, ServerConfig, TransportErrorCode,
    default_transport,
};

/// The coarseness of timers.
const TICK: Duration = Duration::from_millis(2);
/// There and back.
const ROUND_TRIP: Duration = Duration::from_millis(22);

fn is_refusal(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ConnectionClosed(close)
        if close.code == TransportErrorCode::CONNECTION_REFUSED)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarted_ends_the_connections_it_does_not_know() -> TestResult {
    let mut pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1000).await?;
    let same_key = EndpointConfig::new([1; 32]);
    pair.restart_server(server(default_transport())?, same_key)?;
    let start = Instant::now();
    let mut stream = a.open_uni().await?;
    stream.write_all(&[7; 1000]).await?;
    assert_eq!(a.closed().await, ConnectionError::Reset);
    assert!(start.elapsed() <= ROUND_TRIP, "{:?}", start.elapsed());
    assert_eq!(pair.server.endpoint.stats().stateless_resets, 1);
    Ok(())
}

/// Two attempts arrive with one read, of which only one task hears: the server's socket takes
/// several messages at a time since much data arrived.
#[tokio::test(start_paused = true)]
async fn each_accepting_task_gets_one_attempt() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 4 << 20).await?;
    sleep(Duration::from_secs(1)).await;
    let to = pair.server.endpoint.local_addr()?;
    let accept = || {
        let endpoint = pair.server.endpoint.clone();
        tokio::spawn(async move { endpoint.accept().await })
    };
    let waiting = [accept(), accept()];
    sleep(DELAY).await;
    let connect = || pair.client.endpoint.connect(to, "localhost");
    let _connecting = [connect()?, connect()?];
    for accepted in waiting {
        // A client with a ticket waits for its application before its first flight.
        let accepted = timeout(5 * DELAY, accepted).await??;
        accepted.ok_or("closed")?.ignore();
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn attempts_after_the_last_handle_are_ignored() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let to = pair.server.endpoint.local_addr()?;
    let _connecting = pair.client.endpoint.connect(to, "localhost")?;
    sleep(2 * DELAY).await;
    let state = pair.server.state;
    let ignored = || state.lock().core.stats().ignored_handshakes;
    assert_eq!(ignored(), 0);
    drop(pair.server.endpoint);
    assert_eq!(ignored(), 1);
    Ok(())
}

/// RFC 9001 section 4.1: the client is done after a round trip, the server half a round trip later,
/// and the client knows that after another half.
#[tokio::test(start_paused = true)]
async fn waiting_for_the_handshake_ends_at_once() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let to = pair.server.endpoint.local_addr()?;
    let start = Instant::now();
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let client = async {
        let a = connecting.await?;
        let connected = start.elapsed();
        a.handshake_confirmed().await?;
        Ok::<_, Error>((a, [connected, start.elapsed()]))
    };
    let server = async {
        let b = pair.accept().await?;
        Ok::<_, Error>((b, start.elapsed()))
    };
    let ((_a, [connected, confirmed]), (_b, accepted)) = tokio::try_join!(client, server)?;
    for (at, delays) in [(connected, 2), (accepted, 3), (confirmed, 4)] {
        assert!(
            (delays * DELAY..=delays * DELAY + TICK).contains(&at),
            "{at:?}, {delays}"
        );
    }
    Ok(())
}

/// TLS takes long. Sockets are read before attempts are taken, but for one in 16 batches.
#[tokio::test(start_paused = true)]
async fn attempts_that_come_together_do_not_hold_up_connections() -> TestResult {
    const ATTEMPTS: usize = 200;
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    let listening = pair.server.endpoint.clone();
    let accepted = || pair.server.endpoint.stats().accepted_handshakes;
    let (to, before) = (listening.local_addr()?, accepted());
    tokio::spawn(async move {
        while let Some(incoming) = listening.accept().await {
            tokio::spawn(incoming.into_future());
        }
    });
    let connect = |_| pair.client.endpoint.connect(to, "localhost");
    let connecting: Result<Vec<_>, _> = (0..ATTEMPTS).map(connect).collect();
    let mut stream = a.open_uni().await?;
    stream.write_all(b"behind them").await?;
    stream.finish()?;
    let mut stream = b.accept_uni().await?;
    assert_eq!(stream.read_to_end(100).await?, b"behind them");
    let first = accepted() - before;
    assert!(first < 8, "{first} of {ATTEMPTS} were accepted first");
    for connecting in connecting? {
        connecting.await?;
    }
    Ok(())
}

/// Sockets stay while a connection is left, but no new connection can be accepted.
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

#[tokio::test(start_paused = true)]
async fn an_address_where_nobody_is_times_out() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(Duration::from_secs(5));
    let (config, dead) = (client(transport)?, "10.0.0.9:443".parse()?);
    let start = Instant::now();
    let connecting = pair
        .client
        .endpoint
        .connect_with(config, dead, "localhost")?;
    assert_eq!(connecting.await.err(), Some(ConnectionError::TimedOut));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    pair.client.endpoint.wait_idle().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_dead_address_keeps_a_client_from_another_for_a_moment() -> TestResult {
    let pair = Pair::new(
        (
            server(default_transport())?,
            &["10.0.0.1:443", "10.0.0.2:443"],
        ),
        (client(default_transport())?, &["10.0.1.1:1"]),
    )?;
    pair.at_server[0].silence(true);
    let start = Instant::now();
    let (a, b) = pair.connect().await?;
    let elapsed = start.elapsed();
    // The next address is tried after 300 ms, and the server has three flights to wait for.
    let expected = Duration::from_millis(300) + 3 * DELAY;
    assert!(
        (expected..expected + DELAY).contains(&elapsed),
        "{elapsed:?}"
    );
    assert_eq!(a.remote_address(), Some(pair.at_server[1].local()));
    transfer(&a, &b, 1000).await?;
    let open = pair.client.endpoint.open_connections();
    assert_eq!(open, 2, "the dead attempt is closing");
    Ok(())
}

/// Data that an application writes at once after the handshake takes no further datagram. With the
/// hybrid key exchange each flight has two datagrams, and the driver receives them one by one.
#[tokio::test(start_paused = true)]
async fn a_short_exchange_takes_the_datagrams_of_the_handshake() -> TestResult {
    for (key_exchange, expected) in [(KeyExchange::Classical, 2), (KeyExchange::Hybrid, 3)] {
        if key_exchange.is_available() {
            let sent = short_exchange(key_exchange).await?;
            assert_eq!(sent, (expected, expected), "{key_exchange:?}");
        }
    }
    Ok(())
}

/// The datagrams of client and server.
async fn short_exchange(key_exchange: KeyExchange) -> Result<(u64, u64), Error> {
    let client = client(default_transport())?.key_exchange(key_exchange)?;
    let server = server(default_transport())?;
    let pair = Pair::new((server, &["10.0.0.1:443"]), (client, &["10.0.1.1:1"]))?;
    let serve = async {
        let incoming = pair.server.endpoint.accept().await.ok_or("closed")?;
        let connection = incoming.await?;
        let (mut send, mut receive) = connection.accept_bi().await?;
        assert_eq!(receive.read_to_end(100).await?, b"question");
        send.write_all(b"answer").await?;
        send.finish()?;
        connection.closed().await;
        Ok::<_, Error>(connection.stats().datagrams_sent)
    };
    let ask = async {
        let to = pair.server.endpoint.local_addr()?;
        let connection = pair.client.endpoint.connect(to, "localhost")?.await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(b"question").await?;
        send.finish()?;
        assert_eq!(receive.read_to_end(100).await?, b"answer");
        let sent = connection.stats().datagrams_sent;
        connection.close(0u32.into(), b"");
        Ok::<_, Error>(sent)
    };
    Ok(tokio::try_join!(ask, serve)?)
}

#[tokio::test(start_paused = true)]
async fn attempts_have_properties_and_accept_another_configuration() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let listening = &pair.server.endpoint;
    let to = listening.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let first = listening.accept().await.ok_or("closed")?;
    let destination = first.orig_dst_cid().ok_or("undecided")?;
    assert!(first.may_retry() && destination.len() >= 8);
    assert_eq!(first.local_ip(), Some(to.ip()));
    first.retry()?;
    let again = listening.accept().await.ok_or("closed")?;
    assert!(!again.may_retry());
    assert_eq!(again.orig_dst_cid(), Some(destination));

    // A configuration of its own: it allows no streams, unlike the endpoint's.
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 0;
    let (config, certificate) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let accepting = again.accept_with(config.transport_config(transport.build()?))?;
    let (a, _b) = tokio::try_join!(connecting, accepting)?;
    assert_eq!(a.peer_certificates(), Some(vec![certificate]));
    let opened = timeout(Duration::from_secs(1), a.open_uni()).await;
    assert!(opened.is_err());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_attempt_tells_where_it_goes_and_who_asks() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let to = pair.server.endpoint.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    assert_eq!(connecting.remote_address(), Some(to));
    let local = pair.at_client[0].local();
    assert_eq!(connecting.local_ip(), Some(local.ip()));
    let first = pair.at_client[0].take_calls();
    let incoming = pair.server.endpoint.accept().await.ok_or("closed")?;
    assert_eq!(incoming.four_tuple(), Some(FourTuple::new(to, local)));
    assert_eq!(
        (incoming.remote_address(), incoming.local_ip()),
        (Some(local), Some(to.ip()))
    );
    assert!(incoming.may_retry() && !incoming.remote_address_validated());
    // RFC 9000 section 17.2: behind the first byte, the version and the length.
    let id = incoming.orig_dst_cid().ok_or("no connection ID")?;
    let datagram = &first[0].datagrams[0];
    assert_eq!(datagram[5] as usize, id.len());
    assert_eq!(datagram[6..6 + id.len()], id[..]);
    let mut accepting = incoming.accept()?;
    assert_eq!(accepting.remote_address(), Some(local));
    let asked = accepting.handshake_data().await?;
    assert_eq!(asked.server_name.as_deref(), Some("localhost"));
    assert_eq!(asked.protocol.as_deref(), Some(ALPN[0]));
    tokio::try_join!(connecting, accepting)?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn connection_numbers_are_unique() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, _b) = pair.connect().await?;
    let (c, _d) = pair.connect().await?;
    assert_eq!(a.stable_id(), a.clone().stable_id());
    assert_ne!(a.stable_id(), c.stable_id());
    Ok(())
}

/// The connection ID to which an Initial packet goes. Each attempt has its own.
fn destination(call: &Call) -> Vec<u8> {
    call.datagrams[0][6..14].to_vec()
}

/// The times of the first datagrams at each of the client's ports, without copies of datagrams
/// that left before from another port.
fn attempts(pair: &Pair) -> Vec<Option<Instant>> {
    let mut seen = BTreeSet::new();
    let first = |calls: Vec<Call>| {
        let mut new = calls
            .iter()
            .filter(|call| !seen.contains(&destination(call)));
        let (at, id) = new.next().map(|call| (call.at, destination(call))).unzip();
        seen.extend(id);
        at
    };
    let ports = pair.at_client.iter();
    ports.map(|port| port.take_calls()).map(first).collect()
}

/// After the first answer, silence means a slow server or a dead link: the client tries another
/// path later than without an answer.
#[tokio::test(start_paused = true)]
async fn other_addresses_wait_longer_after_an_answer() -> TestResult {
    let ms = Duration::from_millis;
    for (answers, expected) in [(true, ms(1000)..ms(2000)), (false, ms(300)..ms(300) + TICK)] {
        let pair = Pair::with_paths(2)?;
        let to = pair.server.endpoint.local_addr()?;
        let start = Instant::now();
        let connecting = pair.client.endpoint.connect(to, "localhost")?;
        let serve = async {
            let incoming = pair.server.endpoint.accept().await.ok_or("closed")?;
            if answers {
                incoming.retry()?;
            } else {
                incoming.ignore();
            }
            sleep(Duration::from_secs(2)).await;
            Ok::<_, Error>(())
        };
        tokio::select! {
            served = serve => served?,
            _ = connecting => return Err("it was connected".into()),
        }
        let second = attempts(&pair)[1].ok_or("no other way was tried")? - start;
        assert!(expected.contains(&second), "{answers}: {second:?}");
    }
    Ok(())
}

/// Addresses without a server, before the server's address.
fn dead(count: u8) -> Vec<SocketAddr> {
    let address = |last| SocketAddr::from(([10, 0, 9, last], 443));
    (1..=count).map(address).collect()
}

/// Each attempt has its own timeout.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_timed_out_does_not_end_the_others() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(Duration::from_secs(2));
    let mut addresses = dead(20);
    addresses.push(pair.server.endpoint.local_addr()?);
    let config = client(transport)?.server_addresses(addresses.split_off(1));
    let endpoint = &pair.client.endpoint;
    let connecting = endpoint.connect_with(config, addresses[0], "localhost")?;
    let start = Instant::now();
    tokio::try_join!(async { Ok(connecting.await?) }, pair.accept())?;
    assert!(start.elapsed() > Duration::from_secs(2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn automatic_paths_off_means_one_attempt() -> TestResult {
    for (automatic, reaches) in [(true, true), (false, false)] {
        let pair = Pair::with_paths(1)?;
        let to = pair.server.endpoint.local_addr()?;
        let config = client(default_transport())?
            .automatic_paths(automatic)
            .server_addresses(vec![to]);
        let endpoint = &pair.client.endpoint;
        let connecting = endpoint.connect_with(config, dead(1)[0], "localhost")?;
        let accept = async {
            tokio::select! {
                incoming = pair.server.endpoint.accept() => incoming.is_some(),
                _ = connecting => false,
            }
        };
        let start = Instant::now();
        let reached = timeout(Duration::from_secs(5), accept).await;
        assert_eq!(reached == Ok(true), reaches);
        if reaches {
            assert_eq!(start.elapsed(), Duration::from_millis(300) + DELAY);
        }
    }
    Ok(())
}

/// Who ends the process wants peers to know, but not to wait until late packets are answered.
#[tokio::test(start_paused = true)]
async fn the_end_of_use_is_waited_for_and_no_longer() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, _b) = pair.connect().await?;
    let endpoint = &pair.client.endpoint;
    let unused = timeout(Duration::from_secs(1), endpoint.wait_all_draining()).await;
    assert!(unused.is_err(), "it is still used");
    a.close(0u32.into(), b"");
    let start = Instant::now();
    endpoint.wait_all_draining().await;
    assert!(start.elapsed() < Duration::from_millis(2));
    endpoint.wait_idle().await;
    assert!(start.elapsed() > DELAY);
    Ok(())
}

/// The connection IDs in the packets with short headers that the server has sent.
fn connection_ids(pair: &Pair) -> BTreeSet<Vec<u8>> {
    let calls = pair.at_server[0].take_calls();
    let datagrams = calls.into_iter().flat_map(|call| call.datagrams);
    let short = datagrams.filter(|datagram| datagram[0] & 0x80 == 0);
    short.map(|datagram| datagram[1..9].to_vec()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_replaces_the_connection_ids_of_all_connections() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&b, &a, 100_000).await?;
    let before = connection_ids(&pair);
    transfer(&b, &a, 100_000).await?;
    assert_eq!(before, connection_ids(&pair));
    pair.client.endpoint.replace_connection_ids();
    sleep(Duration::from_secs(1)).await;
    connection_ids(&pair);
    transfer(&b, &a, 100_000).await?;
    let after = connection_ids(&pair);
    assert!(before.is_disjoint(&after), "{before:?}, {after:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_attempt_begins_300_ms_after_the_one_before() -> TestResult {
    let pair = Pair::with_paths(3)?;
    pair.at_server[0].silence(true);
    let to = pair.server.endpoint.local_addr()?;
    let start = Instant::now();
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    assert!(timeout(Duration::from_secs(1), connecting).await.is_err());
    for (index, first) in attempts(&pair).into_iter().enumerate() {
        let first = first.map(|at| at - start);
        let due = Duration::from_millis(300) * index as u32;
        assert!(
            first.is_some_and(|first| (due..=due + TICK).contains(&first)),
            "{first:?}"
        );
    }
    Ok(())
}

/// The other attempts stop, even if the future still exists.
#[tokio::test(start_paused = true)]
async fn the_end_of_one_attempt_ends_the_others() -> TestResult {
    for is_refused in [false, true] {
        let pair = Pair::with_paths(2)?;
        let listening = &pair.server.endpoint;
        if is_refused {
            listening.set_server_config(None)?;
        }
        pair.at_server[0].silence(true);
        let to = listening.local_addr()?;
        let mut connecting = pair.client.endpoint.connect(to, "localhost")?;
        let both = Duration::from_millis(400);
        assert!(timeout(both, &mut connecting).await.is_err());
        assert_eq!(pair.client.endpoint.open_connections(), 2);
        pair.at_server[0].silence(false);
        let mut accepted = Vec::new();
        let accept = timeout(Duration::from_secs(10), async {
            while let Some(incoming) = listening.accept().await {
                accepted.push(incoming.await);
            }
        });
        let (ended, _) = tokio::join!(&mut connecting, accept);
        let left = match &ended {
            Ok(_) => 1,
            Err(error) if is_refusal(error) => 0,
            Err(error) => return Err(error.clone().into()),
        };
        assert_eq!(left == 0, is_refused);
        assert_eq!(pair.client.endpoint.open_connections(), left);
        drop((connecting, accepted));
    }
    Ok(())
}

/// A local address without an answer is not used first again until it works.
#[tokio::test(start_paused = true)]
async fn the_next_connection_begins_where_the_server_was_heard() -> TestResult {
    let pair = Pair::with_paths(2)?;
    pair.at_client[0].silence(true);
    for (is_silent, first) in [(true, 1), (false, 1), (false, 0)] {
        let start = Instant::now();
        let (a, _b) = pair.connect().await?;
        let (elapsed, expected) = (start.elapsed(), 3 * DELAY..4 * DELAY);
        assert!(expected.contains(&elapsed), "{elapsed:?}");
        assert_eq!(
            a.path_stats()[0].four_tuple.local,
            pair.at_client[first].local()
        );
        if is_silent {
            sleep(Duration::from_secs(1)).await;
        } else {
            pair.at_client[0].silence(false);
            a.wait_for_paths(2).await?;
        }
        a.close(0u32.into(), b"");
        sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// The knowledge of one configuration can be given to another.
#[tokio::test(start_paused = true)]
async fn a_configuration_tells_and_learns_which_ways_are_good() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let to = pair.server.endpoint.local_addr()?;
    let connect = async |config: &crate::ClientConfig| {
        let connecting = pair
            .client
            .endpoint
            .connect_with(config.clone(), to, "localhost")?;
        let connect = async { Ok::<_, Error>(connecting.await?) };
        let (a, _b) = tokio::try_join!(connect, pair.accept())?;
        let first = a.path_stats()[0].four_tuple.local;
        sleep(Duration::from_secs(1)).await;
        a.close(0u32.into(), b"");
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Error>(first)
    };
    pair.at_client[0].silence(true);
    let learning = client(default_transport())?;
    let known = learning.core.transport.knowledge.clone();
    let known = known.ok_or("no knowledge")?;
    let from = |index: usize| FourTuple::new(pair.at_client[index].local(), to);
    assert_eq!(known.round_trip(from(0)), None);
    assert_eq!(connect(&learning).await?, pair.at_client[1].local());
    assert_eq!(known.round_trip(from(0)), Some(Duration::MAX));
    assert!(known.round_trip(from(1)) < Some(Duration::from_secs(1)));
    pair.at_client[0].silence(false);
    let fresh = client(default_transport())?;
    assert_eq!(connect(&fresh).await?, pair.at_client[0].local());
    let mut transport = default_transport();
    transport.knowledge = Some(known);
    let told = client(transport)?;
    assert_eq!(connect(&told).await?, pair.at_client[1].local());
    Ok(())
}
