//! Endpoints on another runtime than tokio, and outside of it: tokio's timers, sockets and tasks
//! panic there.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use async_executor::Executor;
use mpquic_tokio::{
    ClientConfig, ConnectToError, Connection, ConnectionError, Endpoint, EndpointBuilder, Runtime,
    RuntimeSocket, ServerConfig, Timer, default_transport,
};

use crate::async_io_runtime::AsyncIo;
use crate::harness::{ALPN, Error, TestResult};

/// The clock is so far ahead of tokio's, so that a look at the latter shows.
const AHEAD: Duration = Duration::from_secs(3600);
/// A test takes no longer.
const LIMIT: Duration = Duration::from_secs(30);
/// Connections end after so much silence.
const IDLE: Duration = Duration::from_millis(300);

/// [`AsyncIo`] with a clock of its own. It notices tasks that panic, of which the executor tells
/// nobody.
#[derive(Debug)]
struct Ahead {
    inner: AsyncIo,
    has_panicked: Arc<AtomicBool>,
}

struct Noticed(Arc<AtomicBool>);

impl Drop for Noticed {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

impl Runtime for Ahead {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let noticed = Noticed(self.has_panicked.clone());
        self.inner.spawn(Box::pin(async move {
            let _noticed = noticed;
            task.await;
        }));
    }

    fn now(&self) -> Instant {
        self.inner.now() + AHEAD
    }

    fn timer(&self, at: Instant) -> Pin<Box<dyn Timer>> {
        Box::pin(AheadTimer(self.inner.timer(at - AHEAD)))
    }

    fn socket(&self, socket: UdpSocket) -> io::Result<RuntimeSocket> {
        self.inner.socket(socket)
    }
}

#[derive(Debug)]
struct AheadTimer(Pin<Box<dyn Timer>>);

impl Future for AheadTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Timer for AheadTimer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.0.as_mut().reset(at - AHEAD);
    }
}

/// Runs a test outside of tokio.
fn run<F: Future<Output = TestResult>>(test: impl FnOnce(Arc<dyn Runtime>) -> F) -> TestResult {
    assert!(tokio::runtime::Handle::try_current().is_err());
    let executor = Arc::new(Executor::new());
    let has_panicked = Arc::new(AtomicBool::new(false));
    let runtime = Arc::new(Ahead {
        inner: AsyncIo(executor.clone()),
        has_panicked: has_panicked.clone(),
    });
    let limited = async {
        tokio::select! {
            result = test(runtime) => result,
            _ = async_io::Timer::after(LIMIT) => Err("it takes too long".into()),
        }
    };
    async_io::block_on(executor.run(limited))?;
    assert!(!has_panicked.load(Ordering::Relaxed), "a task panicked");
    Ok(())
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn server(runtime: &Arc<dyn Runtime>) -> Result<Endpoint, Error> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let builder = Endpoint::builder().runtime(runtime.clone());
    Ok(builder.bind(loopback()).server(config).build()?)
}

fn client(runtime: &Arc<dyn Runtime>) -> Result<EndpointBuilder, Error> {
    let config = ClientConfig::dangerous_insecure(ALPN)?;
    Ok(Endpoint::builder().runtime(runtime.clone()).client(config))
}

async fn connect(client: &Endpoint, server: &Endpoint) -> Result<(Connection, Connection), Error> {
    let connecting = client.connect(server.local_addr()?, "localhost")?;
    let incoming = server.accept().await.ok_or("the endpoint is closed")?;
    Ok(tokio::try_join!(connecting, async { incoming.await })?)
}

/// Sends as much both ways at once.
async fn exchange(near: &Connection, far: &Connection) -> TestResult {
    let data: Vec<u8> = (0..1_u32 << 20).map(|i| (i % 251) as u8).collect();
    let asks = async {
        let (mut send, mut recv) = near.open_bi().await?;
        let write = async {
            send.write_all(&data).await?;
            send.finish()?;
            Ok::<_, Error>(())
        };
        let read = async { Ok::<_, Error>(recv.read_to_end(data.len()).await?) };
        let ((), received) = tokio::try_join!(write, read)?;
        Ok::<_, Error>(received)
    };
    let answers = async {
        let (mut send, mut recv) = far.accept_bi().await?;
        while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
            send.write_chunk(chunk.bytes).await?;
        }
        send.finish()?;
        Ok::<_, Error>(())
    };
    let (received, ()) = tokio::try_join!(asks, answers)?;
    assert!(received == data, "{} bytes", received.len());
    Ok(())
}

#[test]
fn endpoints_run_outside_of_tokio() -> TestResult {
    run(async |runtime| {
        let server = server(&runtime)?;
        let client = client(&runtime)?.bind(loopback()).build()?;
        client.add_local(loopback())?;
        let (near, far) = connect(&client, &server).await?;
        near.wait_for_paths(2).await?;
        exchange(&near, &far).await?;
        far.close(7u32.into(), b"done");
        let end = near.closed().await;
        assert!(
            matches!(&end, ConnectionError::ApplicationClosed(close) if close.error_code == 7u32.into()),
            "{end}"
        );
        // The timers of the draining state end it.
        tokio::join!(client.wait_idle(), server.wait_idle());
        assert_eq!(client.driver_stats().panicked_connections, 0);
        assert_eq!(server.driver_stats().panicked_connections, 0);
        Ok(())
    })
}

#[test]
fn timers_run_outside_of_tokio() -> TestResult {
    run(async |runtime| {
        let server = server(&runtime)?;
        let mut transport = default_transport();
        transport.max_idle_timeout = Some(IDLE);
        let config = ClientConfig::dangerous_insecure(ALPN)?;
        let config = config.transport_config(transport.build()?);
        let client = client(&runtime)?.client(config).bind(loopback()).build()?;
        let before = runtime.now();
        let (near, _far) = connect(&client, &server).await?;
        assert_eq!(near.closed().await, ConnectionError::TimedOut);
        let took = runtime.now() - before;
        assert!(took >= IDLE, "{took:?}");
        client.wait_idle().await;
        Ok(())
    })
}

/// Nothing tells of changes there, so interfaces are looked at again and again.
#[cfg(feature = "interfaces")]
#[test]
fn interfaces_are_followed_outside_of_tokio() -> TestResult {
    run(async |runtime| {
        let server = server(&runtime)?;
        let name = if cfg!(target_os = "linux") {
            "lo"
        } else {
            "lo0"
        };
        let client = client(&runtime)?.bind_interface(name).build()?;
        let (near, far) = connect(&client, &server).await?;
        exchange(&near, &far).await
    })
}

#[test]
fn calls_that_need_tokio_fail_on_other_runtimes() -> TestResult {
    /// Sockets are given to it.
    #[derive(Debug)]
    struct Socketless(Arc<dyn Runtime>);

    impl Runtime for Socketless {
        fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
            self.0.spawn(task);
        }

        fn now(&self) -> Instant {
            self.0.now()
        }

        fn timer(&self, at: Instant) -> Pin<Box<dyn Timer>> {
            self.0.timer(at)
        }
    }

    run(async |runtime| {
        let client = client(&runtime)?.bind(loopback()).build()?;
        let failed = client.connect_to("localhost", 1).await.map(drop);
        assert!(
            matches!(failed, Err(ConnectToError::Name(..))),
            "{failed:?}"
        );
        let socketless = Arc::new(Socketless(runtime));
        let built = Endpoint::builder()
            .runtime(socketless.clone())
            .bind(loopback())
            .build();
        assert_eq!(
            built.map(drop).map_err(|error| error.kind()),
            Err(io::ErrorKind::Unsupported)
        );
        let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let workers = Endpoint::builder()
            .runtime(socketless)
            .bind(loopback())
            .server(config)
            .workers(1);
        assert_eq!(
            workers.map(drop).map_err(|error| error.kind()),
            Err(io::ErrorKind::InvalidInput)
        );
        Ok(())
    })
}
