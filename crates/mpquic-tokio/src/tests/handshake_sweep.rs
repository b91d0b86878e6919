//! At each millisecond of a handshake, the network, an address or the connection changes: a side
//! with a working link gets an answer soon, and the application reads acknowledged data.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, client, server};
use crate::{Connecting, Connection, default_transport};

const MS: Duration = Duration::from_millis(1);
/// The handshake is confirmed after four delays.
const LAST: u32 = 5 * DELAY.as_millis() as u32;
/// A connection's first probe timeout is about a second; all other times in these tests are much
/// shorter. After the probe, a handshake and an answer take some round trips.
const SOON: Duration = Duration::from_millis(1100);

/// The event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The client's first link is cut without notice.
    Cut,
    /// The server's first link is cut without notice.
    CutAtServer,
    /// The client's first socket is removed.
    Remove,
    /// The first address is removed, and its link is cut.
    RemoveAndCut,
    /// The client gets another address before its first address goes.
    AddAndRemove,
    /// The client replaces its first socket by a socket with another address.
    Rebind,
    /// As `Rebind`, and the network of the former address is gone.
    RebindAndCut,
    /// The server replaces its socket by a socket with the same address.
    RebindServer,
    /// The server's first socket is removed.
    RemoveAtServer,
}

/// How the connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Plain,
    /// The server has the client prove its address.
    Retry,
    /// The question is 0-RTT data.
    Early,
}

impl Fate {
    fn strike(self, pair: &Pair) -> TestResult {
        let first = pair.at_client[0].local();
        let client = &pair.client;
        match self {
            Self::Cut => pair.at_client[0].silence(true),
            Self::CutAtServer => pair.at_server[0].silence(true),
            Self::Remove => assert!(client.endpoint.remove_local(first)),
            Self::RemoveAndCut => {
                pair.at_client[0].silence(true);
                assert!(client.endpoint.remove_local(first));
            }
            Self::AddAndRemove => {
                client.bind("10.0.8.1:8")?;
                assert!(client.endpoint.remove_local(first));
            }
            Self::Rebind => drop(client.replace(first, "10.0.9.1:9")?),
            Self::RebindAndCut => {
                pair.at_client[0].silence(true);
                client.replace(first, "10.0.9.1:9")?;
            }
            Self::RebindServer => {
                let address = pair.at_server[0].local();
                pair.server.replace(address, &address.to_string())?;
            }
            Self::RemoveAtServer => {
                let address = pair.at_server[0].local();
                assert!(pair.server.endpoint.remove_local(address));
            }
        }
        Ok(())
    }
}

/// Answers all clients.
async fn serve(connecting: Connecting) -> TestResult {
    let connection = connecting.await?;
    loop {
        let (mut send, mut receive) = connection.accept_bi().await?;
        let question = receive.read_to_end(100).await?;
        send.write_all(&question).await?;
        send.finish()?;
    }
}

async fn ask(connection: &Connection) -> TestResult {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"question").await?;
    send.finish()?;
    assert_eq!(receive.read_to_end(100).await?, b"question");
    Ok(())
}

fn start(pair: &Pair) -> Result<Connecting, Error> {
    let to = pair.server.endpoint.local_addr()?;
    Ok(pair.client.endpoint.connect(to, "localhost")?)
}

/// Answers the questions of all clients.
fn listen(pair: &Pair, how: Start) {
    let listening = pair.server.endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = listening.accept().await {
            if how == Start::Retry && !incoming.remote_address_validated() {
                let _ = incoming.retry();
            } else if let Ok(connecting) = incoming.accept() {
                tokio::spawn(serve(connecting));
            }
        }
    });
}

/// Strikes after the time `at`. Returns the time of the first answer, and the time of a later
/// answer from its question on.
async fn answered(
    pair: &Pair,
    how: Start,
    fate: Fate,
    at: Duration,
) -> Result<[Duration; 2], Error> {
    listen(pair, how);
    if how == Start::Early {
        let before = start(pair)?.await?;
        ask(&before).await?;
        before.close(0u32.into(), b"");
        sleep(SOON).await;
    }
    let begun = Instant::now();
    let connecting = start(pair)?;
    let client = async {
        let connection = match how {
            Start::Early => match connecting.into_0rtt() {
                Ok((connection, _)) => connection,
                Err(_) => return Err("no 0-RTT".into()),
            },
            Start::Plain | Start::Retry => connecting.await?,
        };
        ask(&connection).await?;
        let first = begun.elapsed();
        sleep(2 * SOON).await;
        let begun = Instant::now();
        ask(&connection).await?;
        connection.close(0u32.into(), b"");
        Ok::<_, Error>([first, begun.elapsed()])
    };
    let strike = async {
        sleep(at).await;
        fate.strike(pair)
    };
    let (answered, struck) = tokio::join!(client, strike);
    struck?;
    answered
}

/// Collects all failures, so that a run shows every failure.
async fn sweep(pair: impl Fn() -> Result<Pair, Error>, fates: &[Fate]) -> TestResult {
    sweep_of(Start::Plain, pair, fates).await
}

async fn sweep_of(
    how: Start,
    pair: impl Fn() -> Result<Pair, Error>,
    fates: &[Fate],
) -> TestResult {
    let mut faults = Vec::new();
    // A Retry takes one round trip.
    let last = match how {
        Start::Retry => LAST + 2 * DELAY.as_millis() as u32,
        Start::Plain | Start::Early => LAST,
    };
    // A lost Retry costs one more probe timeout.
    let limit = match how {
        Start::Retry => 2 * SOON,
        Start::Plain | Start::Early => SOON,
    };
    for fate in fates {
        for at in 0..=last {
            let pair = pair()?;
            match answered(&pair, how, *fate, at * MS).await {
                Ok([first, second]) if first < limit && second < SOON => {}
                other => faults.push(format!("{fate:?} at {at} ms: {other:?}")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The client always has a network, even while its address changes.
#[tokio::test(start_paused = true)]
async fn changing_single_link_completes_the_handshake() -> TestResult {
    let pair = || Pair::quick(&["10.0.0.1:443"], &["10.0.1.1:1"]);
    let fates = [
        Fate::AddAndRemove,
        Fate::Rebind,
        Fate::RebindAndCut,
        Fate::RebindServer,
    ];
    sweep(pair, &fates).await
}

#[tokio::test(start_paused = true)]
async fn one_of_two_links_is_enough() -> TestResult {
    let pair = || Pair::quick(&["10.0.0.1:443"], &["10.0.1.1:1", "10.0.2.1:1"]);
    let fates = [
        Fate::Cut,
        Fate::Remove,
        Fate::RemoveAndCut,
        Fate::AddAndRemove,
        Fate::Rebind,
        Fate::RebindAndCut,
        Fate::RebindServer,
    ];
    sweep(pair, &fates).await
}

#[tokio::test(start_paused = true)]
async fn one_of_two_addresses_of_a_server_is_enough() -> TestResult {
    let at_server = ["10.0.0.1:443", "10.0.0.2:443"];
    for at_client in [&["10.0.1.1:1"][..], &["10.0.1.1:1", "10.0.2.1:1"]] {
        let fates = [Fate::CutAtServer, Fate::RemoveAtServer];
        sweep(|| Pair::quick(&at_server, at_client), &fates).await?;
    }
    Ok(())
}

/// The token of a Retry is for one address: one that changes meanwhile costs another round trip,
/// not the connection.
#[tokio::test(start_paused = true)]
async fn changing_link_completes_a_handshake_with_a_retry() -> TestResult {
    let one = || Pair::quick(&["10.0.0.1:443"], &["10.0.1.1:1"]);
    let fates = [
        Fate::AddAndRemove,
        Fate::Rebind,
        Fate::RebindAndCut,
        Fate::RebindServer,
    ];
    sweep_of(Start::Retry, one, &fates).await?;
    let two = || Pair::quick(&["10.0.0.1:443"], &["10.0.1.1:1", "10.0.2.1:1"]);
    sweep_of(Start::Retry, two, &[Fate::Cut, Fate::RemoveAndCut]).await
}

/// Also a question that left with the first packets is answered. (If the network of the first
/// address goes before the server's answer arrives, the connection ends as
/// [`Connecting::into_0rtt`] says.)
#[tokio::test(start_paused = true)]
async fn changing_link_loses_no_early_data() -> TestResult {
    let configs = (server(default_transport())?, client(default_transport())?);
    let one = || {
        let (server, client) = configs.clone();
        Pair::new((server, &["10.0.0.1:443"]), (client, &["10.0.1.1:1"]))
    };
    let fates = [Fate::AddAndRemove, Fate::Rebind, Fate::RebindServer];
    sweep_of(Start::Early, one, &fates).await
}

/// Without further paths, the only path moves as soon as a client may move.
#[tokio::test(start_paused = true)]
async fn a_path_of_the_application_moves_once_it_may() -> TestResult {
    for at in 0..=LAST {
        let pair = Pair::quick(&["10.0.0.1:443"], &["10.0.1.1:1"])?;
        let (a, b) = {
            let config = pair.client.state.lock().default_client.clone();
            let config = config.ok_or("no configuration")?.automatic_paths(false);
            let to = pair.server.endpoint.local_addr()?;
            let connecting = pair.client.endpoint.connect_with(config, to, "localhost")?;
            let rebind = async {
                sleep(at * MS).await;
                Fate::Rebind.strike(&pair)
            };
            let connect = async { Ok::<_, Error>(connecting.await?) };
            let (a, b, ()) = tokio::try_join!(connect, pair.accept(), rebind)?;
            (a, b)
        };
        crate::testing::transfer(&a, &b, 1000).await?;
        sleep(SOON).await;
        let to: SocketAddr = "10.0.9.1:9".parse()?;
        assert_eq!(a.path_stats()[0].four_tuple.local, to, "{at} ms");
        crate::testing::transfer(&b, &a, 1000).await?;
        assert!(pair.client.state.sockets.leaving().is_empty(), "{at} ms");
    }
    Ok(())
}

/// Sends a message and closes the connection at the time `at`. True if the peer has acknowledged
/// the whole message.
async fn say_and_close(connecting: Connecting, begun: Instant, at: Duration) -> bool {
    let say = async {
        let connection = connecting.await?;
        let mut stream = connection.open_uni().await?;
        stream.write_all(b"order 66").await?;
        stream.finish()?;
        let acknowledged = stream.stopped().await?.is_none();
        tokio::time::sleep_until(begun + at).await;
        connection.close(7u32.into(), b"done");
        Ok::<_, Error>(acknowledged)
    };
    timeout(at.saturating_sub(begun.elapsed()) + MS / 2, say)
        .await
        .is_ok_and(|said| said.unwrap_or(false))
}

/// Awaits the connection only after a second, and reads its message.
async fn look(connecting: Connecting) -> Result<Vec<u8>, Error> {
    sleep(SOON).await;
    let connection = connecting.await?;
    let mut stream = connection.accept_uni().await?;
    Ok(stream.read_to_end(100).await?)
}

#[tokio::test(start_paused = true)]
async fn data_acknowledged_before_a_close_is_read() -> TestResult {
    let mut acknowledged = [0; 2];
    for is_server in [false, true] {
        for at in 0..=2 * LAST {
            let pair = Pair::quick(&["10.0.0.1:443"], &["10.0.1.1:1", "10.0.2.1:1"])?;
            let begun = Instant::now();
            let here = start(&pair)?;
            let incoming = pair.server.endpoint.accept().await.ok_or("closed")?;
            let there = incoming.accept()?;
            let (says, looks) = if is_server {
                (there, here)
            } else {
                (here, there)
            };
            let (was, read) = tokio::join!(say_and_close(says, begun, at * MS), look(looks));
            if was {
                acknowledged[usize::from(is_server)] += 1;
                assert_eq!(
                    read?, b"order 66",
                    "closed at {at} ms by the server: {is_server}"
                );
            }
        }
    }
    assert!(
        acknowledged.iter().all(|count| *count > 10),
        "{acknowledged:?}"
    );
    Ok(())
}
