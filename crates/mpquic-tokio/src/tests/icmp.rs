//! ICMP messages about a client's datagrams, true and forged messages.

use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::{ConnectionError, PathState};
use tokio::time::{Instant, sleep, timeout};

use crate::error_queue::Unreachable;
use crate::runtime::{Runtime, TokioRuntime};
use crate::testing::{Error, Pair, TestResult, client, transfer};
use crate::{Connecting, default_transport};

/// Gives the client's connections an ICMP message: the server's port is closed for a datagram that
/// a socket of the client sent, quoted by its first bytes. Returns the error of a connection that
/// ended.
fn tell(pair: &Pair, from: usize, quoted: &[u8]) -> Option<ConnectionError> {
    tell_that(pair, from, true, quoted)
}

/// As `tell`, for a closed port or for a missing route.
fn tell_that(pair: &Pair, from: usize, is_port: bool, quoted: &[u8]) -> Option<ConnectionError> {
    let error = Unreachable::new(pair.at_server[0].local(), is_port, quoted);
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
    // A forger who has not seen the datagram does not know its connection ID.
    let mut forged = quoted.clone();
    forged[6] ^= 1;
    assert_eq!(tell(&pair, 0, &forged), None);
    assert_eq!(tell(&pair, 0, b""), None);
    // Another path may work later.
    assert_eq!(tell_that(&pair, 0, false, &quoted), None);
    let error = tell(&pair, 0, &quoted[..40]);
    assert_eq!(error, Some(ConnectionError::PortUnreachable));
    // The connection ends even if no task waits for the connection.
    let start = Instant::now();
    pair.client.endpoint.wait_idle().await;
    let error = connecting.await.err();
    assert_eq!(error, Some(ConnectionError::PortUnreachable));
    assert_eq!(start.elapsed(), Duration::ZERO);
    Ok(())
}

/// RFC 9000 section 14.2.1: not even the right connection ID makes a message count, for every
/// router on the way knows the ID.
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
    // Nor does a message about a path without a received packet.
    pair.at_client[1].silence(true);
    sleep(Duration::from_millis(100)).await;
    assert!(a.path_stats().iter().any(|path| path.packets_received == 0));
    assert_eq!(tell(&pair, 1, &quoted), None);
    pair.at_client[1].silence(false);
    b.wait_for_paths(2).await?;
    transfer(&a, &b, 100_000).await?;
    assert_eq!(a.close_reason(), None);
    // The path is probed at once, and again a second later.
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

/// An attempt with a known first datagram. The messages quote the datagram, for the attempt's
/// server and for another server.
fn attempt(pair: &Pair) -> Result<(Connecting, [Unreachable; 2]), Error> {
    pair.at_server[0].silence(true);
    let to = pair.server.endpoint.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let quoted = first_datagram(pair);
    let other = Unreachable::new("10.0.0.9:443".parse()?, true, &quoted);
    Ok((connecting, [Unreachable::new(to, true, &quoted), other]))
}

#[tokio::test(start_paused = true)]
async fn messages_count_up_to_sixteen_in_ten_milliseconds() -> TestResult {
    for (forged, counts) in [(0, true), (15, true), (16, false), (40, false)] {
        let pair = Pair::with_paths(1)?;
        let (connecting, [true_one, other]) = attempt(&pair)?;
        tokio::pin!(connecting);
        let port = &pair.at_client[0];
        port.tell_unreachable(&vec![other; forged]);
        sleep(Duration::from_millis(9)).await;
        port.tell_unreachable(&[true_one]);
        let ended = timeout(Duration::from_micros(500), &mut connecting).await;
        assert_eq!(ended.is_ok(), counts, "behind {forged}");
        if !counts {
            // The next ten milliseconds begin.
            sleep(Duration::from_micros(1500)).await;
            port.tell_unreachable(&[true_one]);
            let error = connecting.await.err();
            assert_eq!(error, Some(ConnectionError::PortUnreachable));
        }
    }
    Ok(())
}

/// A single call takes all messages that arrive together.
#[tokio::test(start_paused = true)]
async fn first_sixteen_of_many_messages_count() -> TestResult {
    for (forged, counts) in [(15, true), (16, false)] {
        let pair = Pair::with_paths(1)?;
        let (connecting, [true_one, other]) = attempt(&pair)?;
        let mut messages = vec![other; forged];
        messages.push(true_one);
        pair.at_client[0].tell_unreachable(&messages);
        let ended = timeout(Duration::from_millis(5), connecting).await;
        assert_eq!(ended.is_ok(), counts, "behind {forged}");
    }
    Ok(())
}

/// Attempts from other addresses end with the first attempt, and no attempt begins.
#[tokio::test(start_paused = true)]
async fn closed_port_is_not_tried_from_other_local_addresses() -> TestResult {
    for wait in [0, 350] {
        let pair = Pair::with_paths(2)?;
        let (mut connecting, [true_one, _]) = attempt(&pair)?;
        let wait = timeout(Duration::from_millis(wait), &mut connecting);
        assert!(wait.await.is_err());
        pair.at_client[1].take_calls();
        pair.at_client[0].tell_unreachable(&[true_one]);
        let ended = timeout(Duration::from_millis(5), connecting).await?;
        assert_eq!(ended.err(), Some(ConnectionError::PortUnreachable));
        sleep(Duration::from_secs(5)).await;
        let later = pair.at_client[1].take_calls();
        // An attempt on the way may report its end.
        assert!(later.len() <= 1, "{later:?}");
    }
    Ok(())
}

/// A closed port is closed for every path. The client moves to the other address of the server
/// without a wait.
#[tokio::test(start_paused = true)]
async fn closed_port_is_not_tried_again() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let to = pair.server.endpoint.local_addr()?;
    let closed: SocketAddr = "10.0.0.9:443".parse()?;
    let config = client(default_transport())?.server_addresses(vec![to]);
    let endpoint = &pair.client.endpoint;
    let connecting = endpoint.connect_with(config, closed, "localhost")?;
    let quoted = first_datagram(&pair);
    // Copies of the first flight.
    assert!(!pair.at_client[1].take_calls().is_empty());
    pair.at_client[0].tell_unreachable(&[Unreachable::new(closed, true, &quoted)]);
    let start = Instant::now();
    tokio::try_join!(async { Ok(connecting.await?) }, pair.accept())?;
    assert!(
        start.elapsed() < Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
    sleep(Duration::from_secs(1)).await;
    let calls = pair.at_client.iter().flat_map(|port| port.take_calls());
    assert!(calls.map(|call| call.to).all(|to| to != closed));
    Ok(())
}

/// The endpoint forgets the attempt even if no task waits for the attempt.
#[tokio::test(start_paused = true)]
async fn ended_attempt_is_forgotten_at_once() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (_connecting, [message, _]) = attempt(&pair)?;
    pair.at_client[0].tell_unreachable(&[message]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pair.client.endpoint.open_connections(), 0);
    Ok(())
}

/// The port is open but the path fails: other paths may work, or the same path later.
#[tokio::test(start_paused = true)]
async fn an_attempt_goes_on_if_there_is_no_way_at_present() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (connecting, _) = attempt(&pair)?;
    let to = pair.server.endpoint.local_addr()?;
    let quoted = pair.at_client[0].take_calls();
    assert!(quoted.is_empty());
    let no_way = Unreachable::new(to, false, b"");
    pair.at_client[0].tell_unreachable(&[no_way]);
    let connecting = async { Ok::<_, Error>(timeout(Duration::from_secs(5), connecting).await??) };
    let accept = async {
        sleep(Duration::from_secs(1)).await;
        pair.at_server[0].silence(false);
        pair.accept().await
    };
    tokio::try_join!(connecting, accept)?;
    Ok(())
}

/// Servers do not enable messages: each message would cost a search.
#[tokio::test(start_paused = true)]
async fn sockets_tell_of_messages_once_a_client_connects_also_new_ones() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (_a, _b) = pair.connect().await?;
    let later = pair.client.bind("10.0.2.1:1")?;
    let message = Unreachable::new(pair.server.endpoint.local_addr()?, true, b"");
    let all = [&pair.at_client[0], &later, &pair.at_server[0]];
    let taken = all.map(|port| {
        port.tell_unreachable(&[message]);
        let mut taken = 0;
        port.take_errors(|_| taken += 1);
        taken
    });
    assert_eq!(taken, [1, 1, 0]);
    Ok(())
}

/// Messages at once, after 999 ms and after a second: `asks` is true if a message makes the
/// connection probe the path.
#[tokio::test(start_paused = true)]
async fn messages_make_a_path_ask_once_a_second() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (_a, _b) = pair.connect().await?;
    sleep(Duration::from_secs(10)).await;
    for (after, asks) in [(0, true), (999, false), (1, true), (999, false), (1, true)] {
        sleep(Duration::from_millis(after)).await;
        pair.at_client[0].take_calls();
        tell(&pair, 0, b"");
        assert_eq!(!pair.at_client[0].take_calls().is_empty(), asks, "{after}");
    }
    Ok(())
}

/// A message reveals a dead path without data to send.
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

/// Gives the server's socket of a path a message about a datagram to the client, and lets the
/// socket's task read the message.
async fn tell_server(pair: &Pair, path: usize, is_port: bool) {
    let error = Unreachable::new(pair.at_client[path].local(), is_port, b"");
    pair.at_server[0].tell_unreachable(&[error]);
    sleep(Duration::from_millis(20)).await;
}

/// The reports of all paths count, after the last packet. A report of a missing route says nothing
/// about the program.
#[tokio::test(start_paused = true)]
async fn a_peer_is_gone_if_its_ports_are_closed_on_all_paths() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect_over(2).await?;
    transfer(&a, &b, 100_000).await?;
    sleep(Duration::from_secs(1)).await;
    for port in &pair.at_client {
        port.silence(true);
    }
    let watch = b.watch_ports();
    assert!(!watch.are_closed());
    tell_server(&pair, 0, true).await;
    tell_server(&pair, 1, false).await;
    assert!(!watch.are_closed(), "the second path may work again");
    tell_server(&pair, 1, true).await;
    assert!(watch.are_closed() && b.close_reason().is_none());
    // A packet shows that somebody is there after all.
    for port in &pair.at_client {
        port.silence(false);
    }
    transfer(&a, &b, 1000).await?;
    assert!(!watch.are_closed());
    // Without a watch, a server's connection hears of no message.
    drop(watch);
    for port in &pair.at_client {
        port.silence(true);
    }
    for path in [0, 1] {
        tell_server(&pair, path, true).await;
    }
    assert!(!b.watch_ports().are_closed());
    Ok(())
}

/// A vanished client's system: Linux answers one datagram a second from a host, and a few more at
/// first (`icmp_ratelimit`).
struct LimitedReports {
    tokens: Duration,
    last: Instant,
}

impl LimitedReports {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// True if a datagram to a closed port is answered.
    fn answers(&mut self) -> bool {
        self.tokens = (self.tokens + self.last.elapsed()).min(6 * Self::INTERVAL);
        self.last = Instant::now();
        let is_answered = self.tokens >= Self::INTERVAL;
        if is_answered {
            self.tokens -= Self::INTERVAL;
        }
        is_answered
    }
}

/// Each path gets its report, although the client's system answers few datagrams: probes of paths
/// with equal intervals would leave the reports of all others to the first path.
#[tokio::test(start_paused = true)]
async fn ports_of_all_paths_are_reported_by_a_system_that_answers_rarely() -> TestResult {
    let pair = Pair::with_paths(3)?;
    let (a, b) = pair.connect_over(3).await?;
    transfer(&a, &b, 100_000).await?;
    for port in &pair.at_client {
        port.silence(true);
    }
    let mut system = LimitedReports {
        tokens: Duration::ZERO,
        last: Instant::now(),
    };
    let watch = b.watch_ports();
    b.ping();
    pair.at_server[0].take_calls();
    let start = Instant::now();
    while !watch.are_closed() {
        sleep(Duration::from_millis(1)).await;
        for call in pair.at_server[0].take_calls() {
            let answers = call.datagrams.iter().filter(|_| system.answers());
            let reports: Vec<_> = answers
                .map(|_| Unreachable::new(call.to, true, b""))
                .collect();
            pair.at_server[0].tell_unreachable(&reports);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "never all paths");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_ping_asks_for_an_answer_on_each_path() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, _b) = pair.connect_over(2).await?;
    sleep(Duration::from_secs(10)).await;
    let sent = || [0, 1].map(|index| pair.at_client[index].take_calls().len());
    sent();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(sent(), [0, 0]);
    a.ping();
    sleep(Duration::from_millis(100)).await;
    let asked = sent();
    assert!(asked.iter().all(|calls| *calls > 0), "{asked:?}");
    Ok(())
}
