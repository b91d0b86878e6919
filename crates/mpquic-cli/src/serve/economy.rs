//! Attacks on a whole server in virtual time: hostile clients with a limited rate, beside an honest
//! client.
//!
//! Each scenario runs in its own process, because the test measures resident memory. The honest
//! request must take at most twice its time alone, and resident memory must stay below a bound.
//! Each scenario also runs without the rule against its attack; then the test must find a fault.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, StatusCode};
use mpquic_h3::h3;
use mpquic_proxy::{Access, Credentials, STREAMS_OF_STRANGERS, ServerOptions};
use mpquic_tokio::{Connection, MemoryLink, MemoryNetwork};
use tokio::time::{Instant, sleep, timeout};

use crate::files::attributes::Attributes;
use crate::files::{Content, Entry, Listing, OpenError, Source};
use crate::options::Alpn;
use crate::serve::Service;
use crate::serve::drain::Draining;
use crate::serve::http3::serve_requests;
use crate::serve::limits::{Limits, Resources, Shared};
use crate::serve::tcp::in_memory::Tcp;
use crate::testing::{Anything, Served};

/// The environment variable with the name of the scenario.
const SCENARIO: &str = "MPQUIC_ECONOMY";
/// Delay of a datagram in the network.
const DELAY: Duration = Duration::from_millis(10);
/// Rate of all hostile clients of one machine together, bits per second.
const HOSTILE_RATE: u64 = 2_000_000;
/// Longest wait for the honest request.
const PATIENCE: Duration = Duration::from_secs(20);
/// Honest requests while the attack goes on, and the time between them.
const REQUESTS: usize = 5;
const PAUSE: Duration = Duration::from_secs(3);
const FILE: u64 = 64 << 10;
/// Bytes and pause of a slow reader: half of the least rate.
const SIP: (usize, Duration) = (128, Duration::from_millis(640));

const SERVER: &str = "192.0.2.1:443";
const HONEST: &str = "192.0.2.2:0";
const HOSTILE: &str = "198.51.100.1:0";

type H3Connection = h3::client::Connection<mpquic_h3::Connection, Bytes>;

/// A file, and a directory of many names.
struct Site;

impl Source for Site {
    fn open(&self, path: &str) -> Result<Content, OpenError> {
        if path.starts_with("/names/") {
            Err(OpenError::NotFound)
        } else {
            Anything::new(FILE).open(path)
        }
    }

    fn list(&self, _: &str) -> Result<Listing, OpenError> {
        let entry = |number| Entry {
            name: format!("{number:0>100}").into(),
            length: Some(1),
            attributes: Attributes::default(),
        };
        Ok(Listing {
            entries: (0..10_000).map(entry).collect(),
            others: Vec::new(),
            more_after: None,
        })
    }
}

/// The attack of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    /// Pages of directories wait for slow readers.
    Pages,
    /// Slow readers have all files open.
    SlowReaders,
    /// Strangers begin requests at a proxy.
    Strangers,
    /// Strangers begin requests at a server of files.
    HalfRequests,
    /// Silent connections over TCP.
    SilentTcp,
}

const ATTACKS: [(&str, Attack); 5] = [
    ("pages", Attack::Pages),
    ("slow-readers", Attack::SlowReaders),
    ("strangers", Attack::Strangers),
    ("half-requests", Attack::HalfRequests),
    ("silent-tcp", Attack::SilentTcp),
];

/// The result of a scenario.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    alone: Duration,
    /// The slowest honest request beside the attack.
    beside: Duration,
    /// Growth of resident memory, KiB.
    grown: u64,
}

impl Outcome {
    fn is_fair(&self) -> bool {
        self.beside <= 2 * self.alone
    }

    fn is_small(&self, mebibytes: u64) -> bool {
        self.grown <= mebibytes << 10
    }
}

/// Runs a scenario in a process of its own.
fn outcome(scenario: &str) -> Outcome {
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program)
        .args([
            "serve::economy::a_scenario",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(SCENARIO, scenario)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    let line = text.lines().find_map(|line| line.split_once("outcome "));
    let (_, figures) = line.unwrap_or_else(|| panic!("{run:?}"));
    let figures: Vec<u64> = figures
        .split_whitespace()
        .map(|figure| figure.parse().unwrap())
        .collect();
    Outcome {
        alone: Duration::from_millis(figures[0]),
        beside: Duration::from_millis(figures[1]),
        grown: figures[2],
    }
}

/// Peak of the resident memory of this process, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure.unwrap().parse().unwrap()
}

struct World {
    network: MemoryNetwork,
    served: Served,
    shared: Arc<Shared>,
    tcp: Tcp,
}

impl World {
    /// A server whose rules `without` changes.
    fn new(attack: Attack, without: impl FnOnce(&mut Resources), streams: Option<u32>) -> Self {
        let network = MemoryNetwork::new(DELAY);
        let limits = Limits::default();
        let mut resources = Resources::new(&limits);
        without(&mut resources);
        let shared = Shared::with(limits, &resources);
        let mut transport = mpquic_tokio::default_transport();
        if attack == Attack::Strangers {
            mpquic_proxy::adapt(&mut transport, streams.unwrap_or(STREAMS_OF_STRANGERS));
        }
        let at = Served::in_memory(&network, SERVER);
        let (_, served, draining) = Served::listen_at(at, Alpn::H3, transport);
        let endpoints = served.endpoints.clone();
        let tcp = Tcp::new(Arc::new(Site), shared.clone());
        let service = Service {
            limits: shared.clone(),
            ..Service::new(Arc::new(Site))
        };
        if attack == Attack::Strangers {
            let users = Credentials::new(["basic alice:wonderland".parse().unwrap()]);
            let proxy = mpquic_proxy::Server::new(ServerOptions::new(Access::Users(users)));
            let serve = move |_: SocketAddr, connection: Connection, draining: Draining| {
                let proxy = proxy.clone();
                async move {
                    let requests = proxy.connection(&connection);
                    let quic = mpquic_h3::Connection::new(connection.clone());
                    let answer = |request| {
                        let requests = requests.clone();
                        async move { requests.answer(request).await }
                    };
                    let http = mpquic_proxy::Server::http();
                    serve_requests(&connection, http.build(quic), answer, draining).await
                }
            };
            tokio::spawn(async move {
                crate::serve::accept(&endpoints, false, serve, draining).await;
            });
        } else {
            tokio::spawn(async move { service.accept(&endpoints, draining).await });
        }
        Self {
            network,
            served,
            shared,
            tcp,
        }
    }

    /// A connection from an address, with a receive window of this size for each stream.
    async fn connect(&self, from: &str, window: u64) -> (mpquic_tokio::Endpoint, Connection) {
        let mut address: SocketAddr = from.parse().unwrap();
        address.set_port(0);
        let socket = self.network.bind(address).unwrap();
        let mut transport = mpquic_tokio::default_transport();
        transport.initial_stream_receive_window = window;
        if from == HOSTILE {
            socket.set_link(MemoryLink::default().rate(HOSTILE_RATE));
            // An answer waits at the server.
            transport.max_stream_receive_window = Some(window);
        }
        let builder = mpquic_tokio::Endpoint::builder().abstract_socket(socket);
        let address = self.served.address;
        let connected = self.served.connect_over(builder, address, transport);
        connected.await.unwrap()
    }

    /// Time of the honest request with its connection.
    async fn honest(&self, attack: Attack) -> Duration {
        let start = Instant::now();
        let fetched = async {
            match attack {
                Attack::SilentTcp => self.tcp.fetch(HONEST.parse().unwrap(), "/file").await,
                Attack::Strangers => self.ask(StatusCode::PROXY_AUTHENTICATION_REQUIRED).await,
                _ => self.ask(StatusCode::OK).await,
            }
        };
        let fetched = timeout(PATIENCE, fetched).await.unwrap_or(false);
        if fetched { start.elapsed() } else { PATIENCE }
    }

    /// True if the answer has this status and is complete.
    async fn ask(&self, status: StatusCode) -> bool {
        let (_endpoint, connection) = self.connect(HONEST, 1 << 20).await;
        let quic = mpquic_h3::Connection::new(connection);
        let connected: Result<(H3Connection, _), _> = h3::client::new(quic).await;
        let Ok((mut driver, mut requests)) = connected else {
            return false;
        };
        tokio::spawn(async move { driver.wait_idle().await });
        let request = match status {
            StatusCode::OK => Request::get("https://localhost/file"),
            _ => Request::connect("example.org:443"),
        };
        let answered = async {
            let mut stream = requests.send_request(request.body(()).unwrap()).await?;
            stream.finish().await?;
            let answered = stream.recv_response().await?.status();
            let mut length = 0;
            while let Some(data) = stream.recv_data().await? {
                length += data.remaining() as u64;
            }
            let is_whole = status != StatusCode::OK || length == FILE;
            Ok::<_, h3::error::StreamError>(answered == status && is_whole)
        };
        answered.await.unwrap_or(false)
    }

    /// Begins an attack. Dropping the result ends the attack.
    async fn attack(&self, attack: Attack) -> Box<dyn std::any::Any> {
        let (connections, requests, window) = match attack {
            Attack::Pages => (12, 16, 512),
            Attack::SlowReaders => (20, 16, 512),
            Attack::Strangers => (16, 1040, 1 << 10),
            Attack::HalfRequests => (100, 100, 1 << 10),
            Attack::SilentTcp => {
                let hostile = HOSTILE.parse().unwrap();
                return Box::new(
                    (0..600)
                        .map(|_| self.tcp.connect(hostile))
                        .collect::<Vec<_>>(),
                );
            }
        };
        let mut held = Vec::new();
        for _ in 0..connections {
            let (endpoint, connection) = self.connect(HOSTILE, window).await;
            for _ in 0..requests {
                let connection = connection.clone();
                tokio::spawn(async move {
                    match attack {
                        Attack::Pages => sip(&connection, b"/names/").await,
                        Attack::SlowReaders => sip(&connection, b"/file").await,
                        _ => begin(&connection).await,
                    }
                });
            }
            held.push((endpoint, connection));
        }
        Box::new(held)
    }
}

/// A request as HTTP/3 writes it (RFC 9204 appendix A): GET, https, the path and the name of the
/// host.
fn request(path: &[u8]) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    let fields = [
        b"\0\0\xd1\xd7\x51",
        &[length][..],
        path,
        b"\x50\x09localhost",
    ]
    .concat();
    [&[1, u8::try_from(fields.len()).unwrap()][..], &fields].concat()
}

/// Reads answers slowly, one after another.
async fn sip(connection: &Connection, path: &[u8]) {
    while let Ok((mut send, mut recv)) = connection.open_bi().await {
        let _may_be_over = send.write_all(&request(path)).await;
        let _is_open = send.finish();
        while let Ok(Some(_)) = recv.read_chunk(SIP.0, true).await {
            sleep(SIP.1).await;
        }
        sleep(SIP.1).await;
    }
}

/// Begins requests without an end, one after another.
async fn begin(connection: &Connection) {
    while let Ok((mut send, mut recv)) = connection.open_bi().await {
        let _may_be_over = send.write_all(&[1, 50, 0, 0]).await;
        let _ended = recv.read_chunk(1, true).await;
        sleep(PAUSE).await;
    }
}

/// Removes the rules of a resource: each request gets units while some are left.
fn lift(rules: &mut mpquic_proxy::shares::Rules) {
    rules.floor = rules.capacity;
    rules.grace = Duration::MAX;
    rules.window = Duration::MAX;
}

#[tokio::test(start_paused = true)]
#[ignore = "the tests of this file run it in a process of its own"]
#[expect(
    clippy::print_stdout,
    reason = "the test that started this process reads the output"
)]
async fn a_scenario() {
    let scenario = std::env::var(SCENARIO).unwrap();
    let (name, is_without) = match scenario.strip_prefix("without ") {
        Some(name) => (name, true),
        None => (&*scenario, false),
    };
    let (_, attack) = ATTACKS.into_iter().find(|(it, _)| *it == name).unwrap();
    let without = |resources: &mut Resources| match attack {
        _ if !is_without => {}
        Attack::Pages | Attack::HalfRequests => {
            resources.memory.capacity = u64::MAX;
            lift(&mut resources.memory);
        }
        Attack::SlowReaders => lift(&mut resources.files),
        Attack::SilentTcp => lift(&mut resources.tcp),
        Attack::Strangers => {}
    };
    let world = World::new(attack, without, is_without.then_some(1040));
    let alone = world.honest(attack).await;
    let before = resident();
    let attacking = world.attack(attack).await;
    sleep(2 * PAUSE).await;
    let mut beside = Duration::ZERO;
    for _ in 0..REQUESTS {
        sleep(PAUSE).await;
        beside = beside.max(world.honest(attack).await);
    }
    let grown = resident() - before;
    println!(
        "{} bytes of memory are in the account, {} files are open",
        world.shared.memory(),
        world.shared.files()
    );
    println!(
        "outcome {} {} {grown}",
        alone.as_millis(),
        beside.as_millis()
    );
    drop(attacking);
}

/// Memory must stay below a bound with the rule, and exceed the bound without the rule.
fn memory_is_bounded(name: &str, mebibytes: u64) {
    let with = outcome(name);
    assert!(with.is_fair() && with.is_small(mebibytes), "{with:?}");
    let without = outcome(&format!("without {name}"));
    assert!(!without.is_small(mebibytes), "nothing notices: {without:?}");
}

/// The honest request must be fast with the rule, and slow without the rule.
fn nobody_is_kept_out(name: &str, mebibytes: u64) {
    let with = outcome(name);
    assert!(with.is_fair() && with.is_small(mebibytes), "{with:?}");
    let without = outcome(&format!("without {name}"));
    assert!(!without.is_fair(), "nothing notices: {without:?}");
}

#[test]
fn pages_that_wait_for_slow_readers() {
    memory_is_bounded("pages", 72);
}

#[test]
fn slow_readers_keep_nobody_out() {
    nobody_is_kept_out("slow-readers", 26);
}

#[test]
fn strangers_begin_few_requests_at_a_proxy() {
    memory_is_bounded("strangers", 32);
}

#[test]
fn requests_that_do_not_end() {
    memory_is_bounded("half-requests", 148);
}

#[test]
fn silent_connections_over_tcp_keep_nobody_out() {
    nobody_is_kept_out("silent-tcp", 16);
}
