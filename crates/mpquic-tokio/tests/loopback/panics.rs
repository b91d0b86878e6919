//! Something panics while a connection is run: that one ends, and all others go on.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mpquic_core::qlog::{ConnectionStart, Event, Factory, Sink};
use mpquic_tokio::{
    ClosePathError, ClosedPath, Connection, ConnectionError, PathId, ReadError, ResetError,
    SendDatagramError, StoppedError, TransportErrorCode, TransportOptions, VarInt, WriteError,
    default_transport,
};

use crate::harness::{Error, Net, TestResult, client, exchange, pattern, within};

/// Nothing panics.
const SAFE: u8 = 0;
/// The next packet that arrives does it.
const RECEIVING: u8 = 1;
/// The next packet that is sent does it.
const SENDING: u8 = 2;

/// Logs that panic when told to; one for each connection, in the order in which they start.
#[derive(Debug, Default)]
struct Logs(Mutex<Vec<Arc<AtomicU8>>>);

impl Logs {
    fn set(&self, connection: usize, when: u8) -> TestResult {
        let logs = self.0.lock().map_err(|_| "poisoned")?;
        let log = logs.get(connection).ok_or("no such connection")?;
        log.store(when, Ordering::SeqCst);
        Ok(())
    }
}

impl Factory for Logs {
    fn start(&self, _: &ConnectionStart) -> Option<Box<dyn Sink>> {
        let when = Arc::new(AtomicU8::new(SAFE));
        self.0.lock().ok()?.push(when.clone());
        Some(Box::new(Log(when)))
    }
}

#[derive(Debug)]
struct Log(Arc<AtomicU8>);

impl Sink for Log {
    fn on_event(&mut self, _: Instant, event: &Event<'_>) {
        let is_due = match self.0.load(Ordering::SeqCst) {
            RECEIVING => matches!(event, Event::PacketReceived(_)),
            SENDING => matches!(event, Event::PacketSent(_)),
            _ => false,
        };
        assert!(!is_due, "a log that panics, as this test wants");
    }
}

/// A server whose logs can be made to panic.
fn net(transport: TransportOptions) -> Result<(Net, Arc<Logs>), Error> {
    let logs = Arc::new(Logs::default());
    let mut transport = transport;
    transport.qlog = Some(logs.clone());
    let one = ["127.0.0.1"];
    let net = Net::with_server(transport, &one, &one, client(default_transport())?)?;
    Ok((net, logs))
}

/// Every call on a connection that panicked gives an error, and none waits.
async fn all_calls_fail(connection: &Connection) -> TestResult {
    let broken = || ConnectionError::Panicked;
    assert_eq!(connection.close_reason(), Some(broken()));
    assert_eq!(connection.open_bi().await.err(), Some(broken()));
    assert_eq!(connection.open_uni().await.err(), Some(broken()));
    assert_eq!(connection.accept_bi().await.err(), Some(broken()));
    assert_eq!(connection.accept_uni().await.err(), Some(broken()));
    assert_eq!(connection.read_datagram().await.err(), Some(broken()));
    let sent = connection.send_datagram(pattern(10, 1));
    assert_eq!(sent, Err(SendDatagramError::ConnectionLost(broken())));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(7));
    connection.set_receive_window(VarInt::from_u32(1 << 20));
    connection.set_send_window(1 << 20);
    assert!(!connection.force_key_update());
    assert!(connection.path_events().next().await.is_none());
    let path = connection.path(PathId(0)).ok_or("no path")?;
    assert_eq!(path.ping(), Err(ClosedPath));
    assert_eq!(path.status(), Err(ClosedPath));
    let code = TransportErrorCode::NO_ERROR;
    assert_eq!(path.close_with(code), Err(ClosePathError::NoSuchPath));
    connection.close(VarInt::from_u32(1), b"");
    assert_eq!(connection.closed().await, broken());
    Ok(())
}

#[tokio::test]
async fn a_panic_in_one_connection_spares_the_others() -> TestResult {
    let (net, logs) = net(default_transport())?;
    let (a, at_a) = net.connect().await?;
    let (b, at_b) = net.connect().await?;
    let (c, at_c) = net.connect().await?;
    let (mut a_send, mut a_recv) = a.open_bi().await?;
    a_send.write_all(b"hello").await?;
    let (mut send, mut recv) = within("stream", at_a.accept_bi()).await??;
    let mut hello = [0; 5];
    within("hello", recv.read_exact(&mut hello)).await??;

    logs.set(0, RECEIVING)?;
    a_send.write_all(b"more").await?;
    let reason = within("the end", at_a.closed()).await?;
    assert_eq!(reason, ConnectionError::Panicked);
    assert_eq!(net.server.driver_stats().panicked_connections, 1);
    assert_eq!(net.server.open_connections(), 2);
    within("calls", all_calls_fail(&at_a)).await??;
    let lost = || ConnectionError::Panicked;
    let read = within("read", recv.read_chunk(10, true)).await?;
    assert_eq!(read.err(), Some(ReadError::ConnectionLost(lost())));
    let reset = within("reset", recv.received_reset()).await?;
    assert_eq!(reset.err(), Some(ResetError::ConnectionLost(lost())));
    let written = within("write", send.write(b"x")).await?;
    assert_eq!(written, Err(WriteError::ConnectionLost(lost())));
    let stopped = within("stopped", send.stopped()).await?;
    assert_eq!(stopped, Err(StoppedError::ConnectionLost(lost())));
    assert!(send.finish().is_err() && send.priority().is_err());
    drop((send, recv, at_a));

    // Its peer hears of it, the others do not notice, and there is room for a new one.
    let told = within("reset", a_recv.read_chunk(10, true)).await?;
    assert_eq!(
        told.err(),
        Some(ReadError::ConnectionLost(ConnectionError::Reset))
    );
    exchange(&b, &at_b, 1 << 20).await?;
    exchange(&c, &at_c, 1 << 20).await?;
    let (d, at_d) = within("a new client", net.connect()).await??;
    exchange(&d, &at_d, 1 << 20).await
}

#[tokio::test]
async fn a_panic_in_a_timer_is_contained() -> TestResult {
    let mut transport = default_transport();
    transport.keep_alive_interval = Some(Duration::from_millis(100));
    let (net, logs) = net(transport)?;
    let (_a, at_a) = net.connect().await?;
    let (b, at_b) = net.connect().await?;
    exchange(&b, &at_b, 10_000).await?;
    logs.set(0, SENDING)?;
    let reason = within("the end", at_a.closed()).await?;
    assert_eq!(reason, ConnectionError::Panicked);
    assert_eq!(net.server.open_connections(), 1);
    exchange(&b, &at_b, 10_000).await
}

#[tokio::test]
async fn a_panic_in_a_call_is_an_error() -> TestResult {
    let (net, logs) = net(default_transport())?;
    let (_a, at_a) = net.connect().await?;
    let mut stream = at_a.open_uni().await?;
    let waits = {
        let at_a = at_a.clone();
        tokio::spawn(async move { at_a.accept_uni().await.map(|_| ()) })
    };
    tokio::task::yield_now().await;
    logs.set(0, SENDING)?;
    // Large enough to be sent by the call itself.
    let written = stream.write_all(&pattern(1 << 20, 1)).await;
    let lost = WriteError::ConnectionLost(ConnectionError::Panicked);
    assert_eq!(written, Err(lost));
    let told = within("the other task", waits).await??;
    assert_eq!(told, Err(ConnectionError::Panicked));
    within("idle", net.server.wait_idle()).await?;
    all_calls_fail(&at_a).await
}
