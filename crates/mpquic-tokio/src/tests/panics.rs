//! Panics in code that the application gave to the endpoint.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mpquic_core::qlog::{ConnectionStart, Factory, Sink};
use tokio::time::timeout;

use crate::testing::{Pair, TestResult, server, transfer};
use crate::{
    ConnectionError, ConnectionId, ConnectionIdGenerator, ConnectionIds, EndpointOptions,
    default_transport,
};

/// Makes connection IDs by counting, and panics on command.
#[derive(Debug, Clone)]
struct Counter {
    next: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl ConnectionIdGenerator for Counter {
    fn generate_cid(&mut self) -> ConnectionId {
        assert!(!self.panics.load(Ordering::SeqCst), "as this test wants");
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        ConnectionId::new(&number.to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A log that cannot be started.
#[derive(Debug, Default)]
struct Broken(Arc<AtomicBool>);

impl Factory for Broken {
    fn start(&self, _: &ConnectionStart) -> Option<Box<dyn Sink>> {
        assert!(!self.0.load(Ordering::SeqCst), "as this test wants");
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_the_start_of_a_connection_is_its_own() -> TestResult {
    let mut pair = Pair::with_paths(1)?;
    let panics = Arc::new(AtomicBool::new(true));
    let mut transport = default_transport();
    transport.qlog = Some(Arc::new(Broken(panics.clone())));
    let options = EndpointOptions::new([7; 32]);
    pair.restart_server(server(transport)?, options.build()?)?;
    let listening = &pair.server.endpoint;
    let to = listening.local_addr()?;
    let connecting = pair.client.endpoint.connect(to, "localhost")?;
    let incoming = listening.accept().await.ok_or("closed")?;
    assert_eq!(incoming.accept().err(), Some(ConnectionError::Panicked));
    assert_eq!(listening.driver_stats().panicked_connections, 1);
    drop(connecting);
    // The client's packets from meanwhile look like another attempt.
    while let Ok(incoming) = timeout(Duration::from_secs(1), listening.accept()).await {
        incoming.ok_or("closed")?.ignore();
    }
    panics.store(false, Ordering::SeqCst);
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 1 << 20).await?;
    assert_eq!(listening.driver_stats().panicked_connections, 1);
    Ok(())
}

/// The panic happens before the datagram's connection is known.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_endpoint_does_not_end_its_socket() -> TestResult {
    let counter = Counter {
        next: Arc::default(),
        panics: Arc::default(),
    };
    let mut options = EndpointOptions::new([7; 32]);
    let made = counter.clone();
    options.connection_ids = ConnectionIds::new(move |_| made.clone())?;
    let config = server(default_transport())?;
    let mut pair = Pair::with_paths(1)?;
    pair.restart_server(config.clone(), options.build()?)?;
    let (a, at_a) = pair.connect().await?;

    // The endpoint needs a connection ID to refuse a client.
    let listening = &pair.server.endpoint;
    listening.set_server_config(None)?;
    counter.panics.store(true, Ordering::SeqCst);
    let refused = pair
        .client
        .endpoint
        .connect(listening.local_addr()?, "localhost")?;
    let refused = timeout(Duration::from_secs(1), refused).await;
    assert!(refused.is_err(), "it got an answer: nothing panicked");
    counter.panics.store(false, Ordering::SeqCst);
    transfer(&a, &at_a, 1 << 20).await?;
    listening.set_server_config(Some(config))?;
    let (b, at_b) = pair.connect().await?;
    transfer(&b, &at_b, 1 << 20).await?;
    Ok(())
}

/// The panic comes in a call that expects no panic.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_call_of_the_application_ends_this_connection_alone() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    let state = pair.client.connection()?;
    let (other, at_other) = pair.connect().await?;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _call = state.lock();
        panic!("as this test wants");
    }));
    assert!(ended.is_err());
    assert_eq!(pair.client.endpoint.open_connections(), 1);
    assert_eq!(a.closed().await, ConnectionError::Panicked);
    assert_eq!(other.close_reason(), None);
    let panicked = pair.client.endpoint.driver_stats().panicked_connections;
    assert_eq!(panicked, 1);
    transfer(&other, &at_other, 1 << 20).await?;
    // The connection's task has ended, and no reference to the connection is left.
    let gone = Arc::downgrade(&state);
    drop((a, b, state));
    assert!(gone.upgrade().is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_handle_dropped_by_a_panic_of_the_application_ends_nothing() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    let streams = a.open_bi().await?;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _streams = streams;
        panic!("as this test wants");
    }));
    assert!(ended.is_err());
    transfer(&a, &b, 1 << 20).await?;
    Ok(())
}
