//! Random sequences of requests over HTTP/3, in virtual time: memory, files and connections of the
//! server stay within their limits, an honest client is answered, and all of it is given back at
//! the end.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use http::{Request, StatusCode};
use mpquic_h3::h3;
use mpquic_tokio::{
    Connection, Endpoint, MemoryNetwork, MemorySocket, RecvStream, SendStream, VarInt,
};
use rand::rngs::Xoshiro256PlusPlus as Random;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::files::Directory;
use crate::options::Alpn;
use crate::serve::Service;
use crate::serve::limits::{Limits, Shared};
use crate::testing::Served;

/// Sequences, unless the environment variable `MODELS` says otherwise.
const SEQUENCES: u64 = 24;
/// Operations of a sequence.
const OPERATIONS: usize = 150;
const DELAY: Duration = Duration::from_millis(10);
const SERVER: &str = "192.0.2.1:443";
/// Addresses of hostile clients: two connections from the first address, and one from each further
/// address.
const HOSTILE: [&str; 4] = [
    "198.51.100.1:0",
    "198.51.100.1:0",
    "198.51.100.2:0",
    "203.0.113.9:0",
];
const HONEST: &str = "192.0.2.2:0";
/// The longest wait of an honest request: its turn for a file, and some round trips.
const PATIENCE: Duration = Duration::from_secs(5);
/// A server gives everything back within this time after its last client is gone: the idle timeout,
/// and the longest wait for a client's bytes.
const REST: Duration = Duration::from_secs(90);
/// Open files, and those of a client.
const FILES: (usize, usize) = (8, 3);
/// Names in the served directory.
const NAMES: usize = 300;
/// The first names are those of large files.
const LARGE: usize = 10;
const LENGTH: usize = 100_000;

/// Fields of a request by the static table of QPACK (RFC 9204 appendix A): method, https, the path,
/// the host.
fn head(method: u8, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    let fields = [
        &[0, 0, method, 0xd7, 0x51, length],
        path.as_bytes(),
        b"\x50\x09localhost",
    ]
    .concat();
    [&[1, u8::try_from(fields.len()).unwrap()][..], &fields].concat()
}

const DELETE: u8 = 0xd0;
const GET: u8 = 0xd1;
const HEAD: u8 = 0xd2;
const POST: u8 = 0xd4;
const PUT: u8 = 0xd5;

/// The first bytes of a random request, some of them malformed or without an end.
fn begin(rng: &mut Random) -> Vec<u8> {
    let name = if rng.random_bool(0.7) {
        rng.random_range(0..LARGE)
    } else {
        rng.random_range(0..NAMES + 10)
    };
    let file = format!("/{name}");
    let mut bytes = match rng.random_range(0..10) {
        0..=2 => head(GET, &file),
        3 => head(GET, "/"),
        4 => head(HEAD, ["/", &file][rng.random_range(0..2)]),
        5 | 6 => head(PUT, &format!("/new{}", rng.random_range(0..4))),
        7 => head([DELETE, POST][rng.random_range(0..2)], &file),
        8 => vec![1, 50, 0, 0],
        _ => (0..40).map(|_| rng.random()).collect(),
    };
    if rng.random_bool(0.1) {
        bytes.truncate(rng.random_range(0..bytes.len()));
    }
    bytes
}

/// A request of a hostile client.
struct Open {
    send: SendStream,
    recv: RecvStream,
}

/// A hostile client: its connection, and its requests.
struct Hostile {
    from: &'static str,
    socket: Arc<MemorySocket>,
    _endpoint: Endpoint,
    connection: Connection,
    open: Vec<Open>,
}

struct World {
    network: MemoryNetwork,
    served: Served,
    shared: Arc<Shared>,
}

impl World {
    fn new(root: &Path) -> Self {
        let network = MemoryNetwork::new(DELAY);
        let limits = Limits {
            files: FILES.0,
            files_per_client: FILES.1,
            ..Limits::default()
        };
        let shared = Shared::new(limits);
        let source = Directory::new(root, false)
            .unwrap()
            .max_upload(Some(1 << 20));
        let service = Service {
            limits: shared.clone(),
            ..Service::new(Arc::new(source))
        };
        let at = Served::in_memory(&network, SERVER);
        let transport = mpquic_tokio::default_transport();
        let (_, served, draining) = Served::listen_at(at, Alpn::H3, transport);
        let endpoints = served.endpoints.clone();
        tokio::spawn(async move { service.accept(&endpoints, draining).await });
        Self {
            network,
            served,
            shared,
        }
    }

    async fn connect(&self, from: &'static str, window: u64) -> Hostile {
        let mut address: SocketAddr = from.parse().unwrap();
        address.set_port(0);
        let socket = self.network.bind(address).unwrap();
        let mut transport = mpquic_tokio::default_transport();
        transport.initial_stream_receive_window = window;
        transport.max_stream_receive_window = Some(window);
        let builder = Endpoint::builder().abstract_socket(socket.clone());
        let connected = self
            .served
            .connect_over(builder, self.served.address, transport);
        let (endpoint, connection) = connected.await.unwrap();
        Hostile {
            from,
            socket,
            _endpoint: endpoint,
            connection,
            open: Vec::new(),
        }
    }

    /// True if an honest client gets the whole file in time.
    async fn honest(&self) -> bool {
        let fetched = async {
            let client = self.connect(HONEST, 1 << 20).await;
            let quic = mpquic_h3::Connection::new(client.connection.clone());
            let (mut driver, mut requests) = h3::client::new(quic).await.unwrap();
            let driver = tokio::spawn(async move { driver.wait_idle().await });
            let request = Request::get("https://localhost/0").body(()).unwrap();
            let mut stream = requests.send_request(request).await?;
            stream.finish().await?;
            let status = stream.recv_response().await?.status();
            let mut length = 0;
            while let Some(data) = stream.recv_data().await? {
                length += data.remaining();
            }
            driver.abort();
            Ok::<_, h3::error::StreamError>(status == StatusCode::OK && length == LENGTH)
        };
        matches!(timeout(PATIENCE, fetched).await, Ok(Ok(true)))
    }

    /// An operation of a random client.
    async fn operate(&self, clients: &mut [Hostile], rng: &mut Random) {
        let client = &mut clients[rng.random_range(0..HOSTILE.len())];
        let soon = Duration::from_millis(20);
        if client.open.is_empty() || rng.random_bool(0.25) {
            let opened = timeout(soon, client.connection.open_bi()).await;
            if let Ok(Ok((mut send, recv))) = opened {
                let _may_be_closed = timeout(soon, send.write_all(&begin(rng))).await;
                if rng.random_bool(0.6) {
                    let _may_be_closed = send.finish();
                }
                client.open.push(Open { send, recv });
            } else if client.connection.close_reason().is_some() {
                *client = self.connect(client.from, client_window(rng)).await;
            }
            return;
        }
        let index = rng.random_range(0..client.open.len());
        let open = &mut client.open[index];
        let code = VarInt::from_u32(rng.random_range(0x100..0x118));
        match rng.random_range(0..9) {
            0 | 1 => {
                drop(timeout(soon, open.recv.read_chunk(rng.random_range(1..5000), true)).await)
            }
            2 | 3 => {
                let data = [&[0, 0x44, 0x00][..], &[b'x'; 1024]].concat();
                let part = rng.random_range(1..=data.len());
                drop(timeout(soon, open.send.write_all(&data[..part])).await);
            }
            4 => drop(open.send.finish()),
            5 => drop(open.send.reset(code)),
            6 => drop(open.recv.stop(code)),
            7 => drop(client.open.swap_remove(index)),
            _ => sleep(Duration::from_millis(rng.random_range(1..4000))).await,
        }
    }

    fn is_within_its_limits(&self) -> bool {
        self.shared.files() <= FILES.0 as u64 && self.shared.memory() <= 64 << 20
    }

    fn has_nothing(&self) -> bool {
        self.shared.files() == 0 && self.shared.memory() == 0 && self.shared.open_connections() == 0
    }
}

/// A window of a stream: for a few bytes of an answer, or for the whole answer.
fn client_window(rng: &mut Random) -> u64 {
    [300, 5_000, 1 << 20][rng.random_range(0..3)]
}

/// Clients close their connections, let go of them, or are not heard of again.
async fn leave(clients: Vec<Hostile>, rng: &mut Random) {
    for client in clients {
        match rng.random_range(0..3) {
            0 => client.connection.close(0u32.into(), b""),
            1 => client.socket.cut_off(true),
            _ => {}
        }
    }
}

async fn sequence(root: &Path, seed: u64) {
    let world = World::new(root);
    let mut rng = Random::seed_from_u64(seed);
    let mut clients = Vec::new();
    for from in HOSTILE {
        clients.push(world.connect(from, client_window(&mut rng)).await);
    }
    for operation in 0..OPERATIONS {
        world.operate(&mut clients, &mut rng).await;
        assert!(
            world.is_within_its_limits(),
            "{seed}, {operation}: {:?}",
            world.shared
        );
        if rng.random_bool(0.03) {
            assert!(
                world.honest().await,
                "{seed}, {operation}: {:?}",
                world.shared
            );
        }
    }
    leave(clients, &mut rng).await;
    sleep(REST).await;
    assert!(world.has_nothing(), "{seed}: {:?}", world.shared);
    // The task that accepts connections, and those of the endpoint.
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert!(tasks <= 4, "{seed}: {tasks} tasks");
    let left = std::fs::read_dir(root).unwrap();
    let left = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with('.')
    });
    assert_eq!(left.count(), 0, "{seed}: unfinished uploads");
}

#[test]
fn any_sequence_of_requests_leaves_nothing() {
    let sequences = std::env::var("MODELS").map_or(SEQUENCES, |text| text.parse().unwrap());
    let root = tempfile::tempdir().unwrap();
    for name in 0..NAMES {
        let length = if name < LARGE { LENGTH } else { 10 };
        std::fs::write(root.path().join(name.to_string()), vec![b'x'; length]).unwrap();
    }
    for seed in 0..sequences {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(sequence(root.path(), seed));
    }
}
