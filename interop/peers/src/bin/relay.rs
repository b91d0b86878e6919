//! A UDP relay that loses, repeats, delays and damages datagrams as networks do. It prints the
//! parts of QUIC that are not encrypted, and at the end the number of changed datagrams.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mpquic_interop_peers::{Error, Options};
use tokio::net::UdpSocket;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const USAGE: &str = "\
usage: relay --to ADDR:PORT [OPTION..]
  --seed N                 choose other datagrams to suffer; the same ones in each run
  --drop PERCENT           lose that many datagrams, in each direction
  --corrupt PERCENT        change a byte of that many
  --delay MS               deliver that much later, in each direction
  --drop-from-client LIST  lose these datagrams of a client, counted from 1
  --rebind-after N         give a client another port after N of its datagrams
  --readdress-after N      give it another address
  --dark-after N           let nothing pass after N datagrams of or to a client
  --dark-for MS            .. and let it pass again
  --second                 the darkness is for all clients but the first
  --first                  the darkness is for the first client only";

#[derive(Debug, Default, Clone)]
struct Plan {
    seed: u64,
    drop: u64,
    corrupt: u64,
    delay: Duration,
    drop_from_client: BTreeSet<u64>,
    rebind_after: Option<u64>,
    readdress_after: Option<u64>,
    dark_after: Option<u64>,
    dark_for: Option<Duration>,
    dark_for_whom: Whom,
}

/// A set of clients, by the order of their first datagrams.
#[derive(Debug, Default, Clone, Copy)]
enum Whom {
    #[default]
    All,
    First,
    Others,
}

impl Whom {
    /// True if the set has the client with this number, counted from 0.
    fn has(self, number: usize) -> bool {
        match self {
            Self::All => true,
            Self::First => number == 0,
            Self::Others => number > 0,
        }
    }
}

#[derive(Debug)]
struct Relay {
    to: SocketAddr,
    plan: Plan,
    front: Arc<UdpSocket>,
    sights: Arc<Sights>,
    counts: Arc<Counts>,
}

/// Counts of datagrams in both directions, by their fate.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicU64,
    lost: AtomicU64,
    changed: AtomicU64,
    /// Datagrams that arrived while no datagram passed.
    swallowed: AtomicU64,
    /// Passed datagrams of clients whose datagrams were swallowed before.
    returned: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Prints the counts as one line of JSON.
    fn tell(&self) {
        let counts = [
            ("passed", &self.passed),
            ("lost", &self.lost),
            ("changed", &self.changed),
            ("swallowed", &self.swallowed),
            ("returned", &self.returned),
        ];
        let counts =
            counts.map(|(name, count)| format!("\"{name}\": {}", count.load(Ordering::Relaxed)));
        println!("{{{}}}", counts.join(", "));
    }
}

/// The datagrams of one client.
struct Flow {
    upstream: Arc<UdpSocket>,
    to_server: mpsc::UnboundedSender<Late>,
    back: JoinHandle<()>,
    /// Datagrams of the client.
    count: u64,
    dice: Dice,
    shared: Arc<Shared>,
}

/// The state that both directions of a flow share.
#[derive(Default)]
struct Shared {
    /// The client's number, in the order of first datagrams, from 0.
    number: usize,
    /// Datagrams in both directions.
    count: AtomicU64,
    /// The time from which no datagram passes.
    darkness: OnceLock<Instant>,
    is_back: AtomicBool,
    /// Bytes passed on, until the client has proven its address.
    from_client: AtomicU64,
    from_server: AtomicU64,
    is_proven: AtomicBool,
}

/// A datagram on its way.
struct Late {
    due: Instant,
    data: Vec<u8>,
}

/// Decides the fate of datagrams from or to a client.
struct Dice(u64);

impl Dice {
    /// Dice for datagrams from the client with this number, or with `to_client` for datagrams to
    /// the client.
    fn new(plan: &Plan, client: usize, to_client: bool) -> Self {
        let which = (client as u64) << 1 | u64::from(to_client);
        let mixed = (plan.seed << 32 | which).wrapping_add(1);
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The state is never zero, because zero stays zero.
        Self((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn hit(&mut self, percent: u64) -> bool {
        percent > 0 && self.roll() % 100 < percent
    }

    /// The datagram after the network, changed or lost.
    fn suffer(&mut self, plan: &Plan, counts: &Counts, data: &[u8]) -> Option<Vec<u8>> {
        if self.hit(plan.drop) {
            Counts::add(&counts.lost);
            return None;
        }
        Counts::add(&counts.passed);
        let mut data = data.to_vec();
        if self.hit(plan.corrupt) {
            Counts::add(&counts.changed);
            let at = self.roll() as usize % data.len().max(1);
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 0x55;
            }
        }
        Some(data)
    }
}

/// Facts that were seen; each fact is printed once.
#[derive(Debug, Default)]
struct Sights(Mutex<BTreeSet<String>>);

impl Sights {
    fn tell(&self, sight: String) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(sight.clone()) {
            println!("{sight}");
        }
    }

    /// Looks at the packets of a datagram; true if one is a Handshake packet.
    fn look(&self, from: &str, mut data: &[u8]) -> bool {
        let mut has_handshake = false;
        while let Some((header, rest)) = long_header(data) {
            let version = header.version;
            let kind = header.kind;
            self.tell(format!("{kind} of version {version:08x} from the {from}"));
            has_handshake |= kind == "Handshake";
            data = rest;
        }
        has_handshake
    }
}

/// The fields of a long header.
struct Header {
    version: u32,
    kind: &'static str,
}

/// The long header at the start of a datagram, and the packets after the header's packet; `None`
/// without a long header.
fn long_header(data: &[u8]) -> Option<(Header, &[u8])> {
    let (&first, mut rest) = data.split_first()?;
    if first & 0x80 == 0 {
        return None;
    }
    let version = u32::from_be_bytes(*rest.first_chunk()?);
    // RFC 9000 section 17.2, RFC 9369 section 3.2
    let kinds = ["Initial", "0-RTT", "Handshake", "Retry"];
    let number = usize::from(first >> 4 & 3);
    let kind = match version {
        0 => "Version Negotiation",
        0x6b33_43cf => kinds[(number + 3) % 4],
        _ => kinds[number],
    };
    let header = Header { version, kind };
    rest = rest.get(4..)?;
    for _ in 0..2 {
        let (&length, after) = rest.split_first()?;
        rest = after.get(usize::from(length)..)?;
    }
    if matches!(kind, "Retry" | "Version Negotiation") {
        return Some((header, &[]));
    }
    if kind == "Initial" {
        let (token, after) = varint(rest)?;
        rest = after.get(token..)?;
    }
    let (length, after) = varint(rest)?;
    Some((header, after.get(length..)?))
}

/// RFC 9000 section 16
fn varint(data: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = data.split_first()?;
    let mut value = usize::from(first & 0x3f);
    for _ in 1..1 << (first >> 6) {
        let (&byte, after) = rest.split_first()?;
        value = value << 8 | usize::from(byte);
        rest = after;
    }
    Some((value, rest))
}

#[tokio::main]
async fn main() -> ExitCode {
    let relay = match Relay::new().await {
        Ok(relay) => relay,
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match relay.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Relay {
    async fn new() -> Result<Self, Error> {
        let mut options = Options::new(std::env::args().skip(1));
        let (mut to, mut plan) = (None, Plan::default());
        while let Some(option) = options.next() {
            match option.as_str() {
                "--to" => to = Some(options.value()?),
                "--seed" => plan.seed = options.value()?,
                "--drop" => plan.drop = options.value()?,
                "--corrupt" => plan.corrupt = options.value()?,
                "--delay" => plan.delay = Duration::from_millis(options.value()?),
                "--drop-from-client" => {
                    plan.drop_from_client = options.values()?.into_iter().collect();
                }
                "--rebind-after" => plan.rebind_after = Some(options.value()?),
                "--readdress-after" => plan.readdress_after = Some(options.value()?),
                "--dark-after" => plan.dark_after = Some(options.value()?),
                "--dark-for" => plan.dark_for = Some(Duration::from_millis(options.value()?)),
                "--second" => plan.dark_for_whom = Whom::Others,
                "--first" => plan.dark_for_whom = Whom::First,
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        let front = UdpSocket::bind("127.0.0.1:0").await?;
        println!("listening on {}", front.local_addr()?);
        Ok(Self {
            to: to.ok_or("no --to")?,
            plan,
            front: Arc::new(front),
            sights: Arc::default(),
            counts: Arc::default(),
        })
    }

    /// Relays datagrams until a signal ends the process.
    async fn run(self) -> Result<(), Error> {
        let mut end = signal(SignalKind::terminate())?;
        tokio::select! {
            result = self.pass_on() => result,
            _ = end.recv() => {
                self.counts.tell();
                Ok(())
            }
        }
    }

    async fn pass_on(&self) -> Result<(), Error> {
        let mut flows = HashMap::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (size, client) = self.front.recv_from(&mut buffer).await?;
            if !flows.contains_key(&client) {
                let flow = self.flow(client, flows.len()).await?;
                flows.insert(client, flow);
            }
            let Some(flow) = flows.get_mut(&client) else {
                continue;
            };
            flow.count += 1;
            self.change(flow, client).await?;
            let data = &buffer[..size];
            if self.plan.drop_from_client.contains(&flow.count) {
                Counts::add(&self.counts.lost);
                continue;
            }
            if flow.shared.is_dark(&self.plan, &self.counts) {
                continue;
            }
            if let Some(data) = flow.dice.suffer(&self.plan, &self.counts, data) {
                flow.shared.on_client(&self.sights, &data);
                let due = Instant::now() + self.plan.delay;
                // A flow that has ended accepts no datagram.
                let _ = flow.to_server.send(Late { due, data });
            }
        }
    }

    /// Makes the changes that are due at this datagram.
    async fn change(&self, flow: &mut Flow, client: SocketAddr) -> Result<(), Error> {
        let count = Some(flow.count);
        let address = match count {
            _ if count == self.plan.readdress_after => Some([127, 0, 0, 99]),
            _ if count == self.plan.rebind_after => Some([127, 0, 0, 1]),
            _ => None,
        };
        if let Some(address) = address {
            flow.back.abort();
            let shared = flow.shared.clone();
            (flow.upstream, flow.to_server, flow.back) =
                self.bind(client, address.into(), shared).await?;
            println!("{client} is {} now", flow.upstream.local_addr()?);
        }
        Ok(())
    }

    async fn flow(&self, client: SocketAddr, number: usize) -> Result<Flow, Error> {
        let shared = Arc::new(Shared {
            number,
            // Only a handshake shows the relay when an address is proven.
            is_proven: (number > 0).into(),
            ..Shared::default()
        });
        let address = Ipv4Addr::LOCALHOST.into();
        let (upstream, to_server, back) = self.bind(client, address, shared.clone()).await?;
        Ok(Flow {
            upstream,
            to_server,
            back,
            count: 0,
            dice: Dice::new(&self.plan, number, false),
            shared,
        })
    }

    /// Binds a socket towards the server. Returns the sender of its datagrams, and the task that
    /// passes the server's datagrams to the client.
    async fn bind(
        &self,
        client: SocketAddr,
        address: IpAddr,
        shared: Arc<Shared>,
    ) -> Result<(Arc<UdpSocket>, mpsc::UnboundedSender<Late>, JoinHandle<()>), Error> {
        let upstream = UdpSocket::bind((address, 0)).await?;
        upstream.connect(self.to).await?;
        let upstream = Arc::new(upstream);
        let (to_server, late) = mpsc::unbounded_channel();
        let socket = upstream.clone();
        tokio::spawn(deliver(late, move |data| {
            let socket = socket.clone();
            async move {
                // A send error loses the datagram, as a network would.
                let _ = socket.send(&data).await;
            }
        }));
        let (to_client, late) = mpsc::unbounded_channel();
        let front = self.front.clone();
        tokio::spawn(deliver(late, move |data| {
            let front = front.clone();
            async move {
                let _ = front.send_to(&data, client).await;
            }
        }));
        let (from, plan, sights) = (upstream.clone(), self.plan.clone(), self.sights.clone());
        let counts = self.counts.clone();
        let mut dice = Dice::new(&plan, shared.number, true);
        let back = tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            // A closed port at the server is reported as an error of one datagram, and ends
            // nothing.
            loop {
                let Ok(size) = from.recv(&mut buffer).await else {
                    continue;
                };
                shared.on_server(&sights, &buffer[..size]);
                if shared.is_dark(&plan, &counts) {
                    continue;
                }
                if let Some(data) = dice.suffer(&plan, &counts, &buffer[..size]) {
                    let due = Instant::now() + plan.delay;
                    let _ = to_client.send(Late { due, data });
                }
            }
        });
        Ok((upstream, to_server, back))
    }
}

impl Shared {
    /// Counts a datagram; true if the datagram does not pass.
    fn is_dark(&self, plan: &Plan, counts: &Counts) -> bool {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if Some(count) < plan.dark_after || plan.dark_after.is_none() {
            return false;
        }
        if !plan.dark_for_whom.has(self.number) {
            return false;
        }
        let began = self.darkness.get_or_init(|| {
            println!("a client is in the dark");
            Instant::now()
        });
        let is_over = plan.dark_for.is_some_and(|time| began.elapsed() >= time);
        if is_over && !self.is_back.swap(true, Ordering::Relaxed) {
            println!("a client is back");
        }
        Counts::add(if is_over {
            &counts.returned
        } else {
            &counts.swallowed
        });
        !is_over
    }

    fn on_client(&self, sights: &Sights, data: &[u8]) {
        let is_handshake = sights.look("client", data);
        self.from_client
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        if is_handshake {
            self.is_proven.store(true, Ordering::Relaxed);
        }
    }

    fn on_server(&self, sights: &Sights, data: &[u8]) {
        sights.look("server", data);
        if self.is_proven.load(Ordering::Relaxed) {
            return;
        }
        let size = data.len() as u64;
        let sent = self.from_server.fetch_add(size, Ordering::Relaxed) + size;
        let received = self.from_client.load(Ordering::Relaxed);
        // RFC 9000 section 8.1
        if sent > 3 * received {
            sights.tell(format!("the server sent {sent} bytes for {received}"));
        } else if sent + 1200 > 3 * received {
            sights.tell("the server is at the limit".to_owned());
        }
    }
}

/// Sends each datagram at its time.
async fn deliver<F: Future<Output = ()>>(
    mut late: mpsc::UnboundedReceiver<Late>,
    send: impl Fn(Vec<u8>) -> F,
) {
    while let Some(Late { due, data }) = late.recv().await {
        tokio::time::sleep_until(due).await;
        send(data).await;
    }
}
