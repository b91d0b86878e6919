//! Endpoints over sockets and runtimes of programs, 0-RTT, tokens, controllers.

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use mpquic_quinn as quinn;
use quinn::congestion::{
    BbrConfig, Controller, ControllerFactory, Cubic, CubicConfig, NewRenoConfig,
};
use quinn::{
    AsyncTimer, AsyncUdpSocket, Endpoint, EndpointConfig, Interfaces, Runtime, TokenStore,
    TokioRuntime, TransportConfig, default_runtime,
};

use crate::harness::{Identity, LOCAL, Pair, TestResult};

/// A runtime of a program, which leaves the work to tokio: mpquic does not know what is below.
#[derive(Debug, Default)]
struct Own {
    timers: AtomicUsize,
    tasks: AtomicUsize,
    sockets: AtomicUsize,
}

impl Runtime for Own {
    fn new_timer(&self, i: Instant) -> Pin<Box<dyn AsyncTimer>> {
        self.timers.fetch_add(1, Ordering::Relaxed);
        TokioRuntime.new_timer(i)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, t: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        self.sockets.fetch_add(1, Ordering::Relaxed);
        TokioRuntime.wrap_udp_socket(t)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

#[tokio::test]
async fn endpoints_run_on_a_runtime_of_the_program() -> TestResult {
    let identity = Identity::new()?;
    let own = Arc::new(Own::default());
    let config = EndpointConfig::default;
    let server_config = Some(identity.server()?);
    let server = Endpoint::new(
        config(),
        server_config,
        UdpSocket::bind(LOCAL)?,
        own.clone(),
    )?;
    let socket = own.wrap_udp_socket(UdpSocket::bind(LOCAL)?)?;
    let addr = socket.local_addr()?;
    let mut client = Endpoint::new_with_abstract_socket(config(), None, socket, own.clone())?;
    assert_eq!(client.local_addr()?, addr);
    client.set_default_client_config(identity.client()?);
    let pair = Pair::connect(client, server).await?;
    assert_eq!(pair.server.remote_address(), addr);
    pair.echo(&vec![7; 2_000_000]).await?;

    let socket = own.wrap_udp_socket(UdpSocket::bind(LOCAL)?)?;
    let moved = socket.local_addr()?;
    pair.client_endpoint.rebind_abstract(socket)?;
    assert_eq!(pair.client_endpoint.local_addr()?, moved);
    pair.echo(b"after the move").await?;
    for used in [&own.timers, &own.tasks, &own.sockets] {
        assert!(used.load(Ordering::Relaxed) > 1);
    }
    Ok(())
}

/// A program may write all of its request before it reads, while the other side answers byte for
/// byte: then both windows are full.
#[tokio::test]
async fn a_stream_holds_as_much_unread_as_with_quinn() -> TestResult {
    let pair = Pair::new().await?;
    pair.echo(&vec![1; 2_250_000]).await
}

#[tokio::test]
async fn a_client_moves_to_another_socket() -> TestResult {
    let pair = Pair::new().await?;
    pair.echo(b"before").await?;
    let socket = UdpSocket::bind(LOCAL)?;
    let moved = socket.local_addr()?;
    pair.client_endpoint.rebind(socket)?;
    pair.echo(b"after").await?;
    assert_eq!(pair.client_endpoint.local_addr()?, moved);
    assert_eq!(pair.server.remote_address(), moved);
    Ok(())
}

#[tokio::test]
async fn early_data_arrives() -> TestResult {
    let identity = Identity::new()?;
    let server = Endpoint::server(identity.server()?, LOCAL)?;
    let mut client = Endpoint::client(LOCAL)?;
    client.set_default_client_config(identity.client()?);
    let first = client.connect(server.local_addr()?, "localhost")?;
    let first = first.into_0rtt().err().ok_or("there is no session yet")?;
    let accept = async {
        server
            .accept()
            .await
            .ok_or("no client")?
            .await
            .map_err(|_| "failed")
    };
    let (first, accepted) = tokio::join!(first, accept);
    // Tickets come after the handshake.
    crate::harness::echo(&first?, &accepted?, b"for tickets").await?;

    let second = client.connect(server.local_addr()?, "localhost")?;
    let (second, early) = second.into_0rtt().map_err(|_| "a session was kept")?;
    let mut send = second.open_uni().await?;
    send.write_all(b"early").await?;
    send.finish()?;
    let incoming = server.accept().await.ok_or("no client")?;
    let (accepted, _) = incoming
        .accept()?
        .into_0rtt()
        .map_err(|_| "a server can always")?;
    let mut recv = accepted.accept_uni().await?;
    assert!(recv.is_0rtt());
    assert_eq!(recv.read_to_end(9).await?, b"early");
    assert!(early.await);
    Ok(())
}

#[tokio::test]
async fn a_server_decides_about_its_clients() -> TestResult {
    let identity = Identity::new()?;
    let server = Endpoint::server(identity.server()?, LOCAL)?;
    let mut client = Endpoint::client(LOCAL)?;
    client.set_default_client_config(identity.client()?);
    let connecting = client.connect(server.local_addr()?, "localhost")?;
    let decide = async {
        let incoming = server.accept().await.ok_or("no client")?;
        assert!(incoming.may_retry() && !incoming.remote_address_validated());
        incoming.retry()?;
        let incoming = server.accept().await.ok_or("no client")?;
        assert!(!incoming.may_retry() && incoming.remote_address_validated());
        assert_eq!(incoming.remote_address(), client.local_addr()?);
        let incoming = incoming.retry().err().ok_or("only once")?.into_incoming();
        let mut other = identity.server()?;
        let mut transport = TransportConfig::default();
        transport.max_concurrent_bidi_streams(1u8.into());
        other.transport_config(Arc::new(transport));
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
            incoming.accept_with(Arc::new(other))?.await?,
        )
    };
    let (connection, accepted) = tokio::join!(connecting, decide);
    let (connection, _accepted) = (connection?, accepted?);
    let _first = connection.open_bi().await?;
    let second = connection.open_bi();
    tokio::select! {
        biased;
        _ = second => panic!("the limit is one stream"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(server.stats().accepted_handshakes, 1);
    assert_eq!(client.stats().outgoing_handshakes, 1);
    Ok(())
}

/// A store that counts.
#[derive(Default)]
struct Tokens(Mutex<Vec<(String, Bytes)>>);

impl TokenStore for Tokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push((server_name.to_owned(), token));
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tokens.iter().position(|(name, _)| name == server_name)?;
        Some(tokens.swap_remove(found).1)
    }
}

#[tokio::test]
async fn tokens_go_to_the_programs_store() -> TestResult {
    let identity = Identity::new()?;
    let server = Endpoint::server(identity.server()?, LOCAL)?;
    let tokens = Arc::new(Tokens::default());
    let mut config = identity.client()?;
    config.token_store(tokens.clone());
    let mut client = Endpoint::client(LOCAL)?;
    client.set_default_client_config(config);
    let pair = Pair::connect(client, server).await?;
    pair.echo(b"for tokens").await?;
    let kept = tokens
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .len();
    assert!(kept > 0);

    let connecting = pair
        .client_endpoint
        .connect(pair.server_endpoint.local_addr()?, "localhost")?;
    let incoming = pair.server_endpoint.accept().await.ok_or("no client")?;
    assert!(incoming.remote_address_validated());
    drop((connecting, incoming));
    Ok(())
}

/// A factory of a program, whose controllers leave the work to CUBIC.
#[derive(Default)]
struct OwnFactory(AtomicUsize);

impl ControllerFactory for OwnFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::new(Cubic::new(Arc::default(), now, current_mtu))
    }
}

#[tokio::test]
async fn controllers_of_programs_and_of_the_crate_send_data() -> TestResult {
    let own = Arc::new(OwnFactory::default());
    let factories: [Arc<dyn ControllerFactory + Send + Sync>; 4] = [
        own.clone(),
        Arc::new(CubicConfig::default()),
        Arc::new(NewRenoConfig::default()),
        Arc::new(BbrConfig::default()),
    ];
    for factory in factories {
        let mut transport = TransportConfig::default();
        transport.congestion_controller_factory(factory);
        let pair = Pair::with(transport, TransportConfig::default()).await?;
        pair.echo(&vec![1; 1_000_000]).await?;
        let state = pair.client.congestion_state();
        assert!(state.window() > 0);
        assert_eq!(state.metrics().congestion_window, state.window());
        let stats = pair.client.stats();
        assert_eq!(stats.path.cwnd, state.window());
        assert!(stats.udp_tx.bytes > 1_000_000 && stats.frame_tx.stream > 0);
    }
    assert_eq!(own.0.load(Ordering::Relaxed), 1);
    Ok(())
}

/// Two loopback addresses stand for two links.
#[cfg(not(target_vendor = "apple"))]
#[tokio::test]
async fn a_connection_goes_on_without_its_first_address() -> TestResult {
    let pair = Pair::new().await?;
    pair.echo(b"over one path").await?;
    let first = pair.client_endpoint.local_addr()?;
    let second = pair
        .client_endpoint
        .as_mpquic()
        .add_local("127.0.0.2:0".parse()?)?;
    pair.client.as_mpquic().wait_for_paths(2).await?;
    assert!(pair.client_endpoint.as_mpquic().remove_local(first));
    pair.echo(&vec![3; 300_000]).await?;
    assert_eq!(pair.client_endpoint.local_addr()?, second);
    assert_eq!(pair.client.close_reason(), None);
    Ok(())
}

/// The loopback interface is none of the usable interfaces.
#[tokio::test]
async fn servers_of_the_same_machine_are_reached_from_all_interfaces() -> TestResult {
    let identity = Identity::new()?;
    let server = Endpoint::server(identity.server()?, LOCAL)?;
    let mut client = Endpoint::client_on(&Interfaces::All)?;
    client.set_default_client_config(identity.client()?);
    let pair = Pair::connect(client, server).await?;
    pair.echo(b"local").await?;
    Ok(())
}

#[test]
fn there_is_no_endpoint_outside_of_a_runtime() {
    assert!(default_runtime().is_none());
    assert!(Endpoint::client(LOCAL).is_err());
}
