//! Sockets that the application hands in: of the kernel, in memory, of its own making.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use mpquic_tokio::{
    ClientConfig, Connection, DatagramSocket, Endpoint, MemoryNetwork, MemorySocket, OpenPathError,
    PathEvent, PathStatus, ReceivedBatch, SentBatch, ServerConfig, TransportErrorCode,
};

use crate::harness::TestResult;

type Error = Box<dyn std::error::Error + Send + Sync>;

const ALPN: &[&[u8]] = &[b"test"];
const MUCH: usize = 4 << 20;

fn server(socket: Arc<dyn DatagramSocket>) -> Result<Endpoint, Error> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    Ok(Endpoint::builder()
        .abstract_socket(socket)
        .server(config)
        .build()?)
}

fn client(sockets: [Arc<dyn DatagramSocket>; 2]) -> Result<Endpoint, Error> {
    let mut builder = Endpoint::builder().client(ClientConfig::dangerous_insecure(ALPN)?);
    for socket in sockets {
        builder = builder.abstract_socket(socket);
    }
    Ok(builder.build()?)
}

/// Connects over so many paths.
async fn connect(
    client: &Endpoint,
    server: &Endpoint,
    paths: usize,
) -> Result<(Connection, Connection), Error> {
    let connecting = client.connect(server.local_addr()?, "localhost")?;
    let incoming = server.accept().await.ok_or("closed")?;
    let (a, b) = tokio::try_join!(connecting, async { incoming.await })?;
    a.wait_for_paths(paths).await?;
    Ok((a, b))
}

/// Sends so many bytes from `a` to `b`; `meanwhile` is called half-way.
async fn transfer(
    a: &Connection,
    b: &Connection,
    length: usize,
    meanwhile: impl FnOnce(),
) -> Result<(), Error> {
    let send = async {
        let mut stream = a.open_uni().await?;
        stream.write_all(&vec![1; length / 2]).await?;
        meanwhile();
        stream.write_all(&vec![2; length / 2]).await?;
        stream.finish()?;
        Ok::<_, Error>(())
    };
    let receive = async { Ok(b.accept_uni().await?.read_to_end(length).await?) };
    let ((), received) = tokio::try_join!(send, receive)?;
    let ones = received.iter().filter(|byte| **byte == 1).count();
    assert_eq!((ones, received.len()), (length / 2, length));
    Ok(())
}

async fn wait_for(
    connection: &Connection,
    wanted: impl Fn(&PathEvent) -> bool,
) -> Result<(), Error> {
    let mut events = connection.path_events();
    while !wanted(&events.next().await.ok_or("closed")?) {}
    Ok(())
}

/// No kernel and no waiting: two paths, of which one falls silent in the middle of a transfer, is
/// then removed, and followed by another one.
#[tokio::test(start_paused = true)]
async fn paths_come_and_go_on_a_network_in_memory() -> TestResult {
    let network = MemoryNetwork::new(Duration::from_millis(10));
    let bind =
        |address: &str| -> Result<Arc<MemorySocket>, Error> { Ok(network.bind(address.parse()?)?) };
    let server = server(bind("10.0.0.1:443")?)?;
    let (wifi, mobile) = (bind("192.168.1.2:0")?, bind("100.64.0.2:0")?);
    let client = client([wifi.clone(), mobile])?;
    let (a, b) = connect(&client, &server, 2).await?;
    let used = |connection: &Connection| -> Vec<u64> {
        let paths = connection.path_stats().into_iter();
        paths.map(|path| path.bytes_sent).collect()
    };
    transfer(&a, &b, MUCH, || {}).await?;
    assert!(
        used(&a).iter().all(|bytes| *bytes > 500_000),
        "{:?}",
        used(&a)
    );

    let (done, suspect) = tokio::join!(
        transfer(&a, &b, MUCH, || wifi.cut_off(true)),
        wait_for(&a, |event| matches!(event, PathEvent::Suspect(_))),
    );
    done.and(suspect)?;
    let gone = wifi.local_addr()?;
    let abandoned = wait_for(&a, |event| matches!(event, PathEvent::Abandoned { .. }));
    let remove = async {
        assert!(client.remove_local(gone));
    };
    tokio::join!(abandoned, remove).0?;
    let (established, added) = tokio::join!(
        wait_for(&a, |event| matches!(event, PathEvent::Established(_))),
        async {
            client
                .add_abstract_socket(bind("192.168.7.7:7000")?)
                .map_err(Error::from)
        },
    );
    established?;
    assert_eq!(added?, "192.168.7.7:7000".parse()?);
    let before = used(&a);
    transfer(&a, &b, MUCH, || {}).await?;
    assert!(used(&a).last() > before.last(), "{before:?}");
    a.close(0u32.into(), b"done");
    client.wait_idle().await;
    Ok(())
}

/// An address belongs to one socket as long as that lives.
#[tokio::test]
async fn addresses_in_memory_are_like_those_of_a_machine() -> TestResult {
    let network = MemoryNetwork::new(Duration::ZERO);
    let any: SocketAddr = "10.0.0.1:0".parse()?;
    let first = network.bind(any)?;
    let second = network.bind(any)?;
    assert_ne!(first.local_addr()?, second.local_addr()?);
    let taken = network.bind(first.local_addr()?).map(|_| ());
    assert_eq!(
        taken.map_err(|error| error.kind()),
        Err(io::ErrorKind::AddrInUse)
    );
    let address = first.local_addr()?;
    drop(first);
    assert_eq!(network.bind(address)?.local_addr()?, address);
    let none = network.bind("0.0.0.0:1".parse()?).map(|_| ());
    assert_eq!(
        none.map_err(|error| error.kind()),
        Err(io::ErrorKind::InvalidInput)
    );
    Ok(())
}

/// A carrier of the application's own: it counts what passes, and is full every so often.
#[derive(Debug)]
struct Counting {
    inner: Arc<MemorySocket>,
    sent: AtomicUsize,
    receives: AtomicUsize,
    received: AtomicUsize,
}

impl Counting {
    fn new(inner: Arc<MemorySocket>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            sent: AtomicUsize::new(0),
            receives: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
        })
    }
}

impl DatagramSocket for Counting {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()> {
        assert_eq!(batch.segment_size, None, "it takes one at a time");
        if self.sent.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.inner.try_send(batch)
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_readable(cx)
    }

    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize> {
        let count = self.inner.try_receive(buffers, batches)?;
        self.receives.fetch_add(1, Ordering::Relaxed);
        self.received.fetch_add(count, Ordering::Relaxed);
        Ok(count)
    }
}

#[tokio::test(start_paused = true)]
async fn a_carrier_of_ones_own_is_asked_for_batches() -> TestResult {
    let network = MemoryNetwork::new(Duration::from_millis(10));
    let at_server = Counting::new(network.bind("10.0.0.1:443".parse()?)?);
    let at_client = Counting::new(network.bind("10.0.0.2:1".parse()?)?);
    let server = server(at_server.clone())?;
    let client = client([at_client.clone(), network.bind("10.0.0.3:1".parse()?)?])?;
    let (a, b) = connect(&client, &server, 2).await?;
    transfer(&a, &b, MUCH, || {}).await?;
    assert!(at_client.sent.load(Ordering::Relaxed) > 500);
    let received = at_server.received.load(Ordering::Relaxed);
    let calls = at_server.receives.load(Ordering::Relaxed);
    assert!(received > 4 * calls, "{received} in {calls} calls");
    Ok(())
}

/// The application has bound them, and they need not be non-blocking.
#[tokio::test]
async fn bound_sockets_are_taken_as_they_are() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let server = Endpoint::builder().socket(socket).server(config).build()?;
    assert_eq!(server.local_addr()?, address);
    let [first, second] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0"));
    let first = first?;
    let locals = [first.local_addr()?];
    let config = ClientConfig::dangerous_insecure(ALPN)?;
    let client = Endpoint::builder().socket(first).client(config).build()?;
    assert_eq!(client.local_addrs(), locals);
    let (a, b) = connect(&client, &server, 1).await?;
    transfer(&a, &b, 10_000, || {}).await?;
    // Another one in the middle of the connection.
    let second = client.add_socket(second?)?;
    while !a
        .path_stats()
        .iter()
        .any(|path| path.four_tuple.local == second)
    {
        a.path_events().next().await.ok_or("closed")?;
    }
    Ok(())
}

/// A path that is opened as backup carries nothing but what opens it; one on which nothing comes
/// back is given up, and the reason is told.
#[tokio::test(start_paused = true)]
async fn opened_paths_stand_by_or_say_why_they_failed() -> TestResult {
    let network = MemoryNetwork::new(Duration::from_millis(10));
    let bind =
        |address: &str| -> Result<Arc<MemorySocket>, Error> { Ok(network.bind(address.parse()?)?) };
    let server = server(bind("10.0.0.1:443")?)?;
    let (first, backup, dead) = (
        bind("10.1.0.1:1")?,
        bind("10.2.0.1:1")?,
        bind("10.3.0.1:1")?,
    );
    dead.cut_off(true);
    let locals = [backup.local_addr()?, dead.local_addr()?];
    let client = client([first, backup])?;
    client.add_abstract_socket(dead)?;
    let config = ClientConfig::dangerous_insecure(ALPN)?.automatic_paths(false);
    client.set_default_client_config(config);
    let (a, b) = connect(&client, &server, 1).await?;
    let (to, standby) = (server.local_addr()?, PathStatus::Backup);

    let path = a.open_path_with(locals[0], to, standby).await?;
    a.wait_for_paths(2).await?;
    assert_eq!(path.status()?.0, standby);
    transfer(&a, &b, 1 << 20, || {}).await?;
    let sent = path.stats().ok_or("discarded")?.bytes_sent;
    assert!(sent < 20_000, "{sent} bytes on a path that stands by");
    let at_server = b.path(path.id()).ok_or("no path")?;
    assert_eq!(at_server.status()?.1, Some(standby));

    let failed = a.open_path(locals[1], to).await;
    let expected = TransportErrorCode::PATH_UNSTABLE_OR_POOR;
    assert!(
        matches!(failed, Err(OpenPathError::Failed { error_code, by_peer: false }) if error_code == expected),
        "{failed:?}"
    );
    Ok(())
}

/// Who has closed everything need not stay for the three probe timeouts in which late packets are
/// answered: after a handshake that failed, those are seconds.
#[tokio::test(start_paused = true)]
async fn a_program_may_end_once_all_is_said() -> TestResult {
    let network = MemoryNetwork::new(Duration::from_millis(10));
    let server = server(network.bind("10.0.0.1:443".parse()?)?)?;
    let socket = network.bind("10.1.0.1:1".parse()?)?;
    let config = ClientConfig::with_pin([0; 32], ALPN)?;
    let client = Endpoint::builder().abstract_socket(socket).client(config);
    let client = client.build()?;
    let connecting = client.connect(server.local_addr()?, "localhost")?;
    let incoming = server.accept().await.ok_or("closed")?;
    let (refused, told) = tokio::join!(connecting, incoming);
    assert!(refused.is_err() && told.is_err());
    let start = tokio::time::Instant::now();
    server.close(0u32.into(), b"");
    for endpoint in [&client, &server] {
        endpoint.wait_all_draining().await;
    }
    assert!(start.elapsed() < Duration::from_millis(1));
    server.wait_idle().await;
    assert!(start.elapsed() > Duration::from_millis(100));
    Ok(())
}
