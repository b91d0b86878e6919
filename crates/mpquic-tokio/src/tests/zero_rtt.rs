//! The time at which a client with 0-RTT sends its first flight.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, client, server, transfer};
use crate::{
    Connecting, Connection, ConnectionError, EndpointConfig, Incoming, ReadError, RecvStream,
    SendStream, WriteError, default_transport,
};

/// The coarseness of timers.
const TICK: Duration = Duration::from_millis(2);

impl Pair {
    /// A pair whose client had a connection before.
    async fn resuming() -> Result<Self, Error> {
        let pair = Self::with_paths(1)?;
        let (a, b) = pair.connect().await?;
        transfer(&a, &b, 1000).await?;
        a.close(0u32.into(), b"");
        b.closed().await;
        pair.at_client[0].take_calls();
        Ok(pair)
    }

    fn start(&self) -> Result<Connecting, Error> {
        let to = self.server.endpoint.local_addr()?;
        Ok(self.client.endpoint.connect(to, "localhost")?)
    }

    async fn attempt(&self) -> Result<Incoming, Error> {
        Ok(self.server.endpoint.accept().await.ok_or("closed")?)
    }

    /// The times of the client's sending calls, counted from `start`.
    fn sent(&self, start: Instant) -> Vec<Duration> {
        let calls = self.at_client[0].take_calls().into_iter();
        calls.map(|call| call.at - start).collect()
    }
}

/// On loopback a handshake takes a millisecond: a request that misses the first flight would often
/// follow the handshake.
#[tokio::test(start_paused = true)]
async fn a_request_that_takes_its_time_leaves_with_the_first_flight() -> TestResult {
    const THINKS: Duration = Duration::from_millis(5);
    let pair = Pair::resuming().await?;
    let start = Instant::now();
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    // Other tasks wait for streams of the server, as HTTP/3 does, and for a rejection.
    let waiting = a.clone();
    tokio::spawn(async move { waiting.accept_uni().await });
    let accepted = tokio::spawn(accepted);
    sleep(THINKS).await;
    let (mut request, mut response) = a.open_bi().await?;
    request.write_all(b"early").await?;
    sleep(THINKS).await;
    request.finish()?;
    assert!(pair.sent(start).is_empty());
    let answer = async {
        let Ok((b, _)) = pair.attempt().await?.accept()?.into_0rtt() else {
            return Err("servers always may".into());
        };
        let (mut send, mut receive) = b.accept_bi().await?;
        assert!(receive.is_0rtt());
        assert_eq!(receive.read_to_end(10).await?, b"early");
        let elapsed = start.elapsed();
        assert!(elapsed <= 2 * THINKS + DELAY + TICK, "{elapsed:?}");
        send.finish()?;
        Ok::<_, Error>(b)
    };
    let (end, b) = tokio::join!(response.read_to_end(10), answer);
    let _b = b?;
    assert_eq!(end?, b"");
    assert!(accepted.await?);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_connection_or_a_large_write_releases_the_first_flight() -> TestResult {
    let pair = Pair::resuming().await?;
    let start = Instant::now();
    let (connected, incoming) = tokio::join!(pair.start()?, pair.attempt());
    let (a, _incoming) = (connected, incoming?);
    assert_eq!(pair.sent(start).first(), Some(&Duration::ZERO));
    drop(a);

    let pair = Pair::resuming().await?;
    let start = Instant::now();
    let Ok((a, _accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    a.open_uni().await?.write_all(&[7; 20_000]).await?;
    assert_eq!(pair.sent(start).first(), Some(&Duration::ZERO));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn writer_that_waits_for_the_handshake_releases_the_first_flight() -> TestResult {
    let pair = Pair::resuming().await?;
    let start = Instant::now();
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    a.open_uni().await?.write_all(b"e").await?;
    let (accepted, incoming) = tokio::join!(accepted, async {
        Ok::<_, Error>(pair.attempt().await?.accept()?)
    });
    assert_eq!(pair.sent(start).first(), Some(&Duration::ZERO));
    assert!(accepted);
    drop(incoming?);
    Ok(())
}

type Waiting<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Wait = for<'a> fn(&'a mut Connection, &'a SendStream, &'a mut RecvStream) -> Waiting<'a>;

/// The calls that wait for the peer.
const WAITS: [(&str, Wait); 9] = [
    ("bytes", |_, _, receive| {
        Box::pin(async { drop(receive.read(&mut [0]).await) })
    }),
    ("reset", |_, _, receive| {
        Box::pin(async { drop(receive.received_reset().await) })
    }),
    ("stop", |_, send, _| {
        Box::pin(async { drop(send.stopped().await) })
    }),
    ("stop of a watched stream", |a, send, _| {
        let watch = a.watch_stream(send.id());
        Box::pin(async move { drop(watch.stopped().await) })
    }),
    ("DATAGRAM", |a, _, _| {
        Box::pin(async { drop(a.read_datagram().await) })
    }),
    ("DATAGRAM, polled", |a, _, _| {
        Box::pin(async { drop(poll_fn(|cx| a.poll_read_datagram(cx)).await) })
    }),
    ("confirmation", |a, _, _| {
        Box::pin(async { drop(a.handshake_confirmed().await) })
    }),
    ("paths", |a, _, _| {
        Box::pin(async { drop(a.wait_for_paths(2).await) })
    }),
    ("end", |a, _, _| Box::pin(async { drop(a.closed().await) })),
];

#[tokio::test(start_paused = true)]
async fn waiting_writer_releases_the_first_flight() -> TestResult {
    let little = Duration::from_millis(1);
    for (what, wait) in WAITS {
        let pair = Pair::resuming().await?;
        let start = Instant::now();
        let Ok((mut a, _accepted)) = pair.start()?.into_0rtt() else {
            return Err("no 0-RTT".into());
        };
        let (mut send, mut receive) = a.open_bi().await?;
        send.write_all(b"early").await?;
        let waits = timeout(little, wait(&mut a, &send, &mut receive)).await;
        assert!(waits.is_err(), "{what}");
        assert_eq!(pair.sent(start).first(), Some(&Duration::ZERO), "{what}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn silent_application_holds_the_first_flight_briefly() -> TestResult {
    let pair = Pair::resuming().await?;
    let start = Instant::now();
    let Ok((a, _accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    sleep(Duration::from_millis(30)).await;
    let first = pair.sent(start).first().copied();
    let first = first.ok_or("nothing was sent")?;
    assert!((Duration::from_millis(20)..=Duration::from_millis(20) + TICK).contains(&first));
    drop(a);

    // Nor does a task wait in vain for a connection that the application closes.
    let Ok((a, _accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    a.close(0u32.into(), b"");
    pair.client.endpoint.wait_idle().await;
    Ok(())
}

/// A client with a ticket that its server, started anew, rejects.
async fn rejecting() -> Result<Pair, Error> {
    let mut pair = Pair::resuming().await?;
    let config = EndpointConfig::new([1; 32]);
    pair.restart_server(server(default_transport())?, config)?;
    Ok(pair)
}

/// A server with another key cannot read the client's ticket.
#[tokio::test(start_paused = true)]
async fn waiting_reader_hears_of_a_rejection() -> TestResult {
    let pair = rejecting().await?;
    let start = Instant::now();
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let (mut send, mut receive) = a.open_bi().await?;
    send.write_all(b"early").await?;
    let mut byte = [0];
    let (read, b) = tokio::join!(receive.read(&mut byte), pair.accept());
    assert_eq!(read, Err(ReadError::ZeroRttRejected));
    assert!(!accepted.await);
    let elapsed = start.elapsed();
    assert!(elapsed <= 4 * DELAY + TICK, "{elapsed:?}");
    drop(b?);
    Ok(())
}

/// A task of its own runs again only if somebody wakes it. The connection goes on, so its end wakes
/// no task.
#[tokio::test(start_paused = true)]
async fn reader_and_writer_in_tasks_of_their_own_hear_of_a_rejection() -> TestResult {
    let pair = rejecting().await?;
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let (mut send, mut receive) = a.open_bi().await?;
    send.write_all(b"early").await?;
    let reading = tokio::spawn(async move { receive.read(&mut [0]).await });
    // More than the server lets a stream carry before the handshake.
    let writing = tokio::spawn(async move { send.write_all(&[7; 100 << 20]).await });
    let b = pair.accept().await?;
    assert!(!accepted.await);
    let patience = Duration::from_secs(5);
    let read = timeout(patience, reading)
        .await
        .map_err(|_| "the reader sleeps")?;
    assert_eq!(read?, Err(ReadError::ZeroRttRejected));
    let written = timeout(patience, writing)
        .await
        .map_err(|_| "the writer sleeps")?;
    assert_eq!(written?, Err(WriteError::ZeroRttRejected));
    assert!(a.close_reason().is_none() && b.close_reason().is_none());
    Ok(())
}

/// The next stream has the ID of a rejected stream.
#[tokio::test(start_paused = true)]
async fn handles_of_rejected_streams_leave_the_next_ones_alone() -> TestResult {
    let pair = rejecting().await?;
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let (mut send, mut receive) = a.open_bi().await?;
    send.write_all(b"early").await?;
    let (is_accepted, b) = tokio::join!(accepted, pair.accept());
    let b = b?;
    assert!(!is_accepted);
    let (mut again, mut answer) = a.open_bi().await?;
    assert_eq!(again.id(), send.id());
    again.write_all(b"late").await?;
    assert!(send.set_priority(7).is_err());
    assert_eq!(again.priority()?, 0);
    assert!(receive.stop(7u32.into()).is_ok());
    drop((send, receive));
    sleep(2 * DELAY).await;
    again.write_all(b"r").await?;
    again.finish()?;
    let (mut reply, mut question) = b.accept_bi().await?;
    assert_eq!(question.read_to_end(10).await?, b"later");
    reply.write_all(b"answer").await?;
    reply.finish()?;
    assert_eq!(answer.read_to_end(10).await?, b"answer");
    Ok(())
}

/// A client with an earlier connection to a server with two addresses. The first address is dead by
/// now.
async fn at_a_dead_address() -> Result<Pair, Error> {
    let configs = (server(default_transport())?, client(default_transport())?);
    let at_server: &[&str] = &["10.0.0.1:443", "10.0.0.2:443"];
    let pair = Pair::new((configs.0, at_server), (configs.1, &["10.0.1.1:1"]))?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1000).await?;
    a.close(0u32.into(), b"");
    b.closed().await;
    pair.at_server[0].silence(true);
    Ok(pair)
}

/// The request is lost, because its keys belong to the first attempt. But the client does not wait
/// for the idle timeout of 30 s, and its next attempt gets an answer at once.
#[tokio::test(start_paused = true)]
async fn a_dead_address_does_not_hold_up_who_takes_0rtt() -> TestResult {
    let pair = at_a_dead_address().await?;
    let accepting = pair.server.endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move {
                let connection = incoming.await?;
                let (mut send, mut receive) = connection.accept_bi().await?;
                send.write_all(&receive.read_to_end(10).await?).await?;
                send.finish()?;
                connection.closed().await;
                Ok::<_, Error>(())
            });
        }
    });
    let ask = async |a: &Connection| {
        let (mut request, mut response) = a.open_bi().await?;
        request.write_all(b"early").await?;
        request.finish()?;
        Ok::<_, Error>(response.read_to_end(10).await?)
    };
    let start = Instant::now();
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    assert!(ask(&a).await.is_err());
    assert_eq!(a.closed().await, ConnectionError::HandshakeTimedOut);
    assert!(!accepted.await);
    let elapsed = start.elapsed();
    assert!(elapsed <= Duration::from_millis(3500), "{elapsed:?}");

    let start = Instant::now();
    let a = match pair.start()?.into_0rtt() {
        Ok((a, _)) => a,
        Err(connecting) => connecting.await?,
    };
    assert_eq!(ask(&a).await?, b"early");
    let elapsed = start.elapsed();
    assert!(elapsed <= 6 * DELAY, "{elapsed:?}");
    Ok(())
}

/// A server with a late answer counts as alive, even if another way is quicker.
#[tokio::test(start_paused = true)]
async fn zero_rtt_connection_waits_for_a_server_with_a_late_answer() -> TestResult {
    let pair = at_a_dead_address().await?;
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    a.open_uni().await?.write_all(b"e").await?;
    let accepting = pair.server.endpoint.clone();
    tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(incoming) = accepting.accept().await {
            all.push(incoming.accept());
        }
    });
    sleep(Duration::from_millis(900)).await;
    pair.at_server[0].silence(false);
    assert!(accepted.await);
    sleep(Duration::from_secs(10)).await;
    assert!(a.close_reason().is_none());
    Ok(())
}

/// The attempts beside a dropped connection do not keep the connection, and end with the
/// connection.
#[tokio::test(start_paused = true)]
async fn zero_rtt_connection_can_be_dropped() -> TestResult {
    let pair = at_a_dead_address().await?;
    let Ok((a, accepted)) = pair.start()?.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    sleep(Duration::from_millis(400)).await;
    drop((a, accepted));
    timeout(Duration::from_secs(5), pair.client.endpoint.wait_idle()).await?;
    Ok(())
}
