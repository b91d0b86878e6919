//! Calls that wait for the peer's limits, for the limits of the configuration, or for an event.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, client, pattern, server};
use crate::{
    Connection, PathStatus, ReadError, ResetError, TransportOptions, VarInt, default_transport,
};

/// Much longer than any call that need not wait.
const LONG: Duration = Duration::from_secs(1);

/// True if `future` has no result.
async fn waits(future: impl Future) -> bool {
    timeout(LONG, future).await.is_err()
}

/// With transport options of the server and of the client.
fn pair(at_server: TransportOptions, at_client: TransportOptions) -> Result<Pair, Error> {
    Pair::new(
        (server(at_server)?, &["10.0.0.1:443"]),
        (client(at_client)?, &["10.0.1.1:1"]),
    )
}

#[tokio::test(start_paused = true)]
async fn more_streams_can_be_allowed_while_connected() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_bidi_streams = 0;
    transport.max_concurrent_uni_streams = 1;
    let pair = pair(transport, default_transport())?;
    let (a, b) = pair.connect().await?;
    let _first = a.open_uni().await?;
    assert!(waits(a.open_uni()).await && waits(a.open_bi()).await);
    b.set_max_concurrent_uni_streams(VarInt::from_u32(2));
    timeout(LONG, a.open_uni()).await??;
    assert!(waits(a.open_bi()).await);
    b.set_max_concurrent_bi_streams(VarInt::from_u32(1));
    timeout(LONG, a.open_bi()).await??;
    Ok(())
}

/// Writes until a write has to wait; returns the number of bytes.
async fn fill(connection: &Connection) -> Result<usize, Error> {
    let mut stream = connection.open_uni().await?;
    let (chunk, mut written) = (pattern(64 << 10), 0);
    while let Ok(result) = timeout(LONG, stream.write(&chunk)).await {
        written += result?;
    }
    Ok(written)
}

#[tokio::test(start_paused = true)]
async fn windows_can_be_changed_while_connected() -> TestResult {
    let mut transport = default_transport();
    transport.initial_receive_window = 1 << 20;
    transport.max_receive_window = 1 << 20;
    let pair = pair(transport.clone(), transport)?;
    let (a, b) = pair.connect().await?;
    // The peer takes 1 MiB, which waits for a reader; later bytes fill the send buffer.
    a.set_send_window(100 << 10);
    assert_eq!(fill(&a).await?, 1 << 20);
    assert_eq!(fill(&a).await?, 100 << 10);
    // A stream may always have some bytes.
    assert_eq!(fill(&a).await?, 4 << 10);
    a.set_send_window(200 << 10);
    assert_eq!(fill(&a).await?, 96 << 10);

    // With a smaller window, the peer can send no more than the window once all data is read.
    b.set_receive_window(VarInt::from_u32(300 << 10));
    for _ in 0..4 {
        b.accept_uni().await?.read_to_end(8 << 20).await?;
    }
    a.set_send_window(8 << 20);
    let before = b.stats().bytes_received;
    assert_eq!(fill(&a).await?, 1 << 20, "the window of the stream");
    let received = b.stats().bytes_received - before;
    assert!((300 << 10..=320 << 10).contains(&received), "{received}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_the_writer_back() -> TestResult {
    let mut transport = default_transport();
    transport.send_window = 1 << 20;
    let pair = pair(default_transport(), transport)?;
    let (a, b) = pair.connect().await?;
    let mut stream = a.open_uni().await?;
    let chunk = pattern(64 << 10);
    let mut written = 0;
    while let Ok(result) = timeout(LONG, stream.write(&chunk)).await {
        written += result?;
        assert!(written < 64 << 20, "nothing holds the writer back");
    }
    let reader = async {
        let mut stream = b.accept_uni().await?;
        let mut read = 0;
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            read += chunk.bytes.len();
        }
        Ok::<_, Error>(read)
    };
    let writer = async {
        stream.write_all(&chunk).await?;
        stream.finish()?;
        Ok(())
    };
    let (read, ()) = timeout(LONG, async { tokio::try_join!(reader, writer) }).await??;
    assert_eq!(read, written + chunk.len());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn resets_are_told_without_reading() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect().await?;
    let mut stream = a.open_uni().await?;
    stream.write_all(b"the beginning").await?;
    let mut accepted = b.accept_uni().await?;
    assert!(
        waits(accepted.received_reset()).await,
        "nothing happened yet"
    );
    stream.reset(9u32.into())?;
    let reset = timeout(LONG, accepted.received_reset()).await??;
    assert_eq!(reset, Some(9u32.into()));
    let reset = accepted.received_reset().await?;
    assert_eq!(reset, Some(9u32.into()), "told again");
    let read = accepted.read(&mut [0; 10]).await;
    assert_eq!(read, Err(ReadError::Reset(9u32.into())));

    // No reset comes once all data has arrived.
    let mut stream = a.open_uni().await?;
    stream.write_all(b"all of it").await?;
    stream.finish()?;
    let mut accepted = b.accept_uni().await?;
    assert_eq!(timeout(LONG, accepted.received_reset()).await??, None);
    assert_eq!(accepted.read_to_end(100).await?, b"all of it");
    assert_eq!(accepted.received_reset().await?, None);

    let mut stream = a.open_uni().await?;
    stream.write_all(b"cut off").await?;
    let mut accepted = b.accept_uni().await?;
    a.close(3u32.into(), b"");
    let lost = timeout(LONG, accepted.received_reset()).await?;
    assert!(
        matches!(lost, Err(ResetError::ConnectionLost(_))),
        "{lost:?}"
    );
    Ok(())
}

/// Less waits for the connection's task, which sends several small writes together.
#[tokio::test(start_paused = true)]
async fn large_write_is_sent_within_its_call() -> TestResult {
    let pair = pair(default_transport(), default_transport())?;
    let (a, b) = pair.connect().await?;
    crate::testing::transfer(&a, &b, 4 << 20).await?;
    let sent = || !pair.at_client[0].take_calls().is_empty();
    for (size, leaves) in [(1, false), ((16 << 10) - 1, false), (16 << 10, true)] {
        let mut stream = a.open_uni().await?;
        sleep(LONG).await;
        sent();
        assert_eq!(stream.write(&pattern(size)).await?, size);
        assert_eq!(sent(), leaves, "{size}");
        sleep(LONG).await;
        assert_eq!(sent(), !leaves, "{size}");
        // Two halves count like one write.
        stream.write_all(&pattern(8 << 10)).await?;
        assert!(!sent());
        stream.write_all(&pattern(8 << 10)).await?;
        assert!(sent());
    }
    sleep(LONG).await;
    sent();
    for count in 1..=64 {
        a.send_datagram(pattern(1024))?;
        assert_eq!(sent(), count == 64, "{count} KiB in DATAGRAMs");
    }
    Ok(())
}

/// True if the frames of the call `ask` leave at once, without any other data to send.
async fn leaves_at_once(pair: &Pair, ask: impl Future<Output = TestResult>) -> Result<bool, Error> {
    sleep(LONG).await;
    let ports = || pair.at_client.iter().chain(&pair.at_server);
    ports().for_each(|port| drop(port.take_calls()));
    ask.await?;
    sleep(Duration::from_millis(1)).await;
    Ok(ports().any(|port| !port.take_calls().is_empty()))
}

#[tokio::test(start_paused = true)]
async fn requested_frames_leave_at_once() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 1;
    transport.max_concurrent_paths = 3;
    let pair = pair(transport, default_transport())?;
    let (a, b) = pair.connect().await?;
    let mut stream = a.open_uni().await?;
    let path = a.paths().into_iter().next().ok_or("no path")?;
    let (local, remote) = (path.local_address(), path.remote_address());
    let (local, remote) = (local.ok_or("no address")?, remote.ok_or("no address")?);
    assert!(
        leaves_at_once(&pair, async { Ok(path.ping()?) }).await?,
        "ping"
    );
    assert!(!leaves_at_once(&pair, async { Ok(()) }).await?, "nothing");
    let streams = async {
        assert!(waits(a.open_uni()).await);
        Ok(())
    };
    // STREAMS_BLOCKED
    assert!(leaves_at_once(&pair, streams).await?, "open_uni");
    let status = async { Ok(path.set_status(PathStatus::Backup)?) };
    assert!(leaves_at_once(&pair, status).await?, "set_status");
    let ids = async {
        a.replace_connection_ids();
        Ok(())
    };
    assert!(leaves_at_once(&pair, ids).await?, "replace_connection_ids");
    let more = async {
        b.set_max_concurrent_bi_streams(VarInt::from_u32(1000));
        Ok(())
    };
    assert!(
        leaves_at_once(&pair, more).await?,
        "set_max_concurrent_bi_streams"
    );
    let write = async { Ok(stream.write_all(b"little").await?) };
    assert!(leaves_at_once(&pair, write).await?, "write_all");
    let end = async { Ok(stream.finish()?) };
    assert!(leaves_at_once(&pair, end).await?, "finish");
    let datagram = async { Ok(a.send_datagram(pattern(4))?) };
    assert!(leaves_at_once(&pair, datagram).await?, "send_datagram");
    // PATHS_BLOCKED, once the allowed number of paths is open.
    for count in 1.. {
        let mut is_open = false;
        let open = async {
            if let Ok(path) = timeout(LONG, a.open_path(local, remote)).await {
                is_open = path.is_ok();
            }
            Ok(())
        };
        let leaves = leaves_at_once(&pair, open).await?;
        assert!(leaves && count < 100, "open_path of {count}: {leaves}");
        if !is_open {
            break;
        }
    }
    Ok(())
}

/// The first packet of a path that the application opens leaves at once.
#[tokio::test(start_paused = true)]
async fn a_path_opens_when_it_is_asked_for() -> TestResult {
    let pair = Pair::new(
        (
            server(default_transport())?,
            &["10.0.0.1:443", "10.0.0.2:443"],
        ),
        (client(default_transport())?, &["10.0.1.1:1"]),
    )?;
    let to = pair.at_server[0].local();
    let config = client(default_transport())?;
    let connecting = pair.client.endpoint.connect_with(config, to, "localhost")?;
    let connect = async { Ok::<_, Error>(connecting.await?) };
    let (a, _b) = tokio::try_join!(connect, pair.accept())?;
    sleep(Duration::from_secs(5)).await;
    let (port, remote) = (&pair.at_client[0], pair.at_server[1].local());
    port.take_calls();
    // The named port does not matter: the path uses this socket.
    let local = SocketAddr::new(port.local().ip(), 0);
    let start = Instant::now();
    let path = a.open_path(local, remote).await?;
    let calls = port.take_calls();
    let first = calls.iter().find(|call| call.to == remote);
    assert_eq!(first.map(|call| call.at), Some(start));
    assert_eq!(path.local_address(), Some(port.local()));
    Ok(())
}

/// With a limit of one stream, a stream with an early end makes room for the next stream at once:
/// after a wait for its reset, and after the drop of a stopped stream.
#[tokio::test(start_paused = true)]
async fn streams_that_end_early_make_room_at_once() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 1;
    let pair = pair(transport, default_transport())?;
    let (a, b) = pair.connect().await?;
    for is_reset in [true, false, true] {
        let mut stream = timeout(3 * DELAY, a.open_uni()).await??;
        stream.write_all(b"x").await?;
        let mut receiving = b.accept_uni().await?;
        sleep(LONG).await;
        if is_reset {
            stream.reset(7u32.into())?;
            assert_eq!(receiving.received_reset().await?, Some(7u32.into()));
        } else {
            receiving.stop(7u32.into())?;
            sleep(LONG).await;
            drop(stream);
        }
    }
    Ok(())
}

/// Calls on a stream of an ended connection have no effect, and are no error.
#[tokio::test(start_paused = true)]
async fn streams_can_be_stopped_after_the_end() -> TestResult {
    let pair = pair(default_transport(), default_transport())?;
    let (a, b) = pair.connect().await?;
    let (mut send, mut receive) = a.open_bi().await?;
    send.write_all(b"x").await?;
    a.close(0u32.into(), b"");
    b.closed().await;
    assert!(receive.stop(7u32.into()).is_ok());
    Ok(())
}
