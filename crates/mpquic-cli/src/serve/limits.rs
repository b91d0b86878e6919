//! Limits for each client of a server, and for all clients together.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use mpquic_proxy::shares::{Holding, InUse, Pool, Rules, Taker};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::rate::Rate;
use crate::rate::bucket::Bucket;
use crate::rate::pace::Pace;
use crate::serve::client_limits::{AddressLimits, Addresses, AtAddress};

/// While clients wait, a request or a connection ends when its use lies behind the clock by this
/// time.
const WINDOW: Duration = Duration::from_secs(10);
/// After this wait, a client may get a share of the largest taker.
const GRACE: Duration = Duration::from_millis(200);
/// Most open TCP connections. Each connection takes a descriptor, and files need descriptors, too.
const TCP_CONNECTIONS: u64 = 512;
/// TCP connections that one network may always open.
const TCP_FLOOR: u64 = 16;
/// Bytes for requests outside the transport: header fields, tasks, and pages of directories.
const MEMORY: u64 = 64 << 20;
/// Bytes that one client may always hold.
const MEMORY_FLOOR: u64 = 256 << 10;
/// Bytes of a request: its header fields, its task and its stream.
const REQUEST: u64 = 8 << 10;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Open connections.
    pub(crate) connections: u32,
    /// Open files of one client.
    pub(crate) files_per_client: usize,
    /// Open files of all clients, fewer than descriptors and threads.
    pub(crate) files: usize,
    /// A request ends if its client accepts no data for this time.
    pub(crate) stall: Duration,
    /// Requests that a client may cancel at once.
    pub(crate) cancelled: u32,
    /// Further requests that a client may cancel per second.
    pub(crate) cancelled_per_second: u32,
    /// Rate of files to all clients together.
    pub(crate) rate: Option<Rate>,
    /// Limits for the connections of one address together.
    pub(crate) address: AddressLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            files_per_client: 16,
            files: 256,
            stall: Duration::from_secs(30),
            cancelled: 100,
            cancelled_per_second: 20,
            rate: None,
            address: AddressLimits::default(),
        }
    }
}

/// Rules for connections: a new client gets a place if another client has at least two connections
/// more.
fn rules_of_connections(most: u64, floor: u64) -> Rules {
    Rules {
        capacity: most,
        floor,
        grace: Duration::ZERO,
        window: WINDOW,
    }
}

/// A pool of connections. The caller passes the limit of a client with each connection.
pub(crate) fn connections(most: u32) -> Pool {
    Pool::new(rules_of_connections(most.into(), most.into()))
}

/// The rules of each resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resources {
    pub(crate) connections: Rules,
    pub(crate) tcp: Rules,
    pub(crate) files: Rules,
    pub(crate) memory: Rules,
}

impl Resources {
    pub(crate) fn new(limits: &Limits) -> Self {
        let most = limits.connections.into();
        Self {
            connections: rules_of_connections(most, most),
            tcp: rules_of_connections(TCP_CONNECTIONS, TCP_FLOOR),
            files: Rules {
                capacity: limits.files as u64,
                floor: limits.files_per_client as u64,
                grace: GRACE,
                window: WINDOW,
            },
            memory: Rules {
                capacity: MEMORY,
                floor: MEMORY_FLOOR,
                grace: Duration::ZERO,
                window: Duration::MAX,
            },
        }
    }
}

/// Number of connections that an endpoint admits: more than `most`, so the pool can compare more
/// clients and end a connection of the largest taker.
pub(crate) fn admitted(most: u32) -> u32 {
    most.saturating_add(most / 8).saturating_add(64)
}

/// The pools and rates of all clients.
#[derive(Debug)]
pub(crate) struct Shared {
    limits: Limits,
    connections: Pool,
    tcp: Pool,
    files: Pool,
    memory: Pool,
    pace: Option<Pace>,
    addresses: Arc<Addresses>,
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Self::with(limits, &Resources::new(&limits))
    }

    pub(crate) fn with(limits: Limits, resources: &Resources) -> Arc<Self> {
        Arc::new(Self {
            limits,
            connections: Pool::new(resources.connections),
            tcp: Pool::new(resources.tcp),
            files: Pool::new(resources.files),
            memory: Pool::new(resources.memory),
            pace: limits.rate.map(Pace::new),
            addresses: Addresses::new(limits.address),
        })
    }

    /// Bytes in use by requests.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.used()
    }

    /// Open files.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn files(&self) -> u64 {
        self.files.used()
    }

    /// Open connections over QUIC and TCP.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn open_connections(&self) -> u64 {
        self.connections.used()
    }
}

/// One client's use of the limits.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    taker: Taker,
    connection: Holding,
    over_tcp: Option<Holding>,
    files: Arc<Semaphore>,
    /// Requests that are answered.
    places: Semaphore,
    cancelled: Mutex<Bucket>,
    address: AtAddress,
    /// Time when the connection last accepted bytes of an answer.
    moved: Mutex<Instant>,
}

/// Permission for one open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    holding: Holding,
    _of_client: OwnedSemaphorePermit,
}

impl OpenFile {
    /// Reports bytes that the client accepted.
    pub(crate) fn on_bytes(&self, bytes: usize) {
        self.holding.activity().on_bytes(bytes);
    }

    /// Reports that the server itself waited.
    pub(crate) fn on_wait(&self) {
        self.holding.activity().renew();
    }

    /// Waits until other clients need the file more.
    pub(crate) async fn gives_way(&self) {
        self.holding.gives_way().await;
    }

    /// Runs `work` until other clients need the file more.
    pub(crate) async fn keep<T, E: From<Stalled>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            done = work => done,
            () = self.gives_way() => Err(Stalled.into()),
        }
    }
}

/// Memory of a request. Dropping this returns the memory.
#[derive(Debug)]
pub(crate) struct Memory(Holding);

impl Memory {
    /// Reduces the memory to these bytes.
    pub(crate) fn shrink(&self, bytes: u64) {
        self.0.shrink(bytes);
    }

    /// Runs `work` until other clients need the memory more.
    pub(crate) async fn keep<T>(&self, work: impl Future<Output = T>) -> Result<T, Stalled> {
        tokio::select! {
            done = work => Ok(done),
            () = self.0.gives_way() => Err(Stalled),
        }
    }
}

/// The client accepted no data for too long, or other clients need its share more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stalled;

impl Client {
    /// The use of a new connection from a validated address; `None` beyond the limit of the
    /// address.
    pub(crate) fn new(shared: Arc<Shared>, address: IpAddr) -> Option<Self> {
        Self::with(shared, address, None)
    }

    /// [`Self::new`] for a connection over TCP.
    pub(crate) fn over_tcp(shared: Arc<Shared>, address: IpAddr) -> Option<Self> {
        let taker = Taker::new(None, address);
        let over_tcp = shared.tcp.try_take(&taker, 1)?;
        Self::with(shared, address, Some(over_tcp))
    }

    fn with(shared: Arc<Shared>, address: IpAddr, over_tcp: Option<Holding>) -> Option<Self> {
        let limits = &shared.limits;
        let taker = Taker::new(None, address);
        let most = limits.address.connections.map_or(u64::MAX, u64::from);
        let connection = shared.connections.try_take_of(&taker, 1, most)?;
        let files = Arc::new(Semaphore::new(limits.files_per_client));
        let places = Semaphore::new(limits.files_per_client);
        let cancelled = Bucket::new(
            limits.cancelled,
            limits.cancelled_per_second,
            Instant::now(),
        );
        let address = shared.addresses.connect(address);
        Some(Self {
            shared,
            taker,
            connection,
            over_tcp,
            files,
            places,
            cancelled: Mutex::new(cancelled),
            address,
            moved: Mutex::new(Instant::now()),
        })
    }

    fn holdings(&self) -> impl Iterator<Item = &Holding> {
        let over_tcp = self.over_tcp.as_ref();
        over_tcp.into_iter().chain([&self.connection])
    }

    /// Waits until other clients need the connection more.
    pub(crate) fn gives_way(&self) -> impl Future<Output = ()> + Send + use<> {
        let held: Vec<_> = self.holdings().map(Holding::ends).collect();
        futures_util::future::select_all(held).map(|_| ())
    }

    /// The taker for a request: its user, or the network of the client.
    pub(crate) fn taker(&self, user: Option<&str>) -> Taker {
        match user {
            Some(user) => Taker::User(user.into()),
            None => self.taker.clone(),
        }
    }

    /// Number of requests of a connection that are answered at a time.
    pub(crate) fn most_requests(&self) -> usize {
        self.shared.limits.files_per_client
    }

    /// Waits until the connection answers fewer requests than its limit, and counts a request until
    /// the result is dropped. Wait before the request is read: a request whose first bytes are read
    /// gets a larger window, and the bytes of many waiting uploads would fill the connection's
    /// window.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// Waits for permission to open a file, for the user if known; `None` if the server allows no
    /// files.
    pub(crate) async fn open_file(&self, user: Option<&str>) -> Option<OpenFile> {
        // The permit of the connection comes first, so that many requests of one connection do not
        // hold up the requests of its network.
        let of_client = self.files.clone().acquire_owned().await.ok()?;
        let holding = self.shared.files.take(&self.taker(user), 1).await;
        Some(OpenFile {
            holding,
            _of_client: of_client,
        })
    }

    /// Marks the connection as in use until the result is dropped.
    pub(crate) fn in_use(&self) -> Vec<InUse> {
        self.holdings()
            .map(|holding| holding.activity().begin_use())
            .collect()
    }

    /// Takes the memory of a request; `None` if no memory is left for this client.
    pub(crate) fn request(&self) -> Option<Memory> {
        let memory = self.shared.memory.try_take(&self.taker, REQUEST);
        memory.map(Memory)
    }

    /// Waits for memory.
    pub(crate) async fn memory(&self, bytes: u64) -> Memory {
        Memory(self.shared.memory.take(&self.taker, bytes).await)
    }

    /// Waits for an `attempt` that depends on the client, for the stall timeout at most.
    pub(crate) async fn progress<T>(&self, attempt: impl Future<Output = T>) -> Result<T, Stalled> {
        let attempt = tokio::time::timeout(self.shared.limits.stall, attempt);
        attempt.await.map_err(|_| Stalled)
    }

    /// Waits for an attempt to send, until the whole connection has accepted no byte of any answer
    /// for the stall timeout. The answers of a connection leave one after another, so a long answer
    /// delays the next.
    pub(crate) async fn turn<T>(&self, attempt: impl Future<Output = T>) -> Result<T, Stalled> {
        tokio::pin!(attempt);
        let mut since = Instant::now();
        loop {
            let until = since + self.shared.limits.stall;
            if let Ok(done) = tokio::time::timeout_at(until, &mut attempt).await {
                return Ok(done);
            }
            let moved = *self.moved();
            if moved <= since {
                return Err(Stalled);
            }
            since = moved;
        }
    }

    /// Reports that the connection accepted bytes of an answer.
    pub(crate) fn on_sent(&self) {
        *self.moved() = Instant::now();
    }

    fn moved(&self) -> MutexGuard<'_, Instant> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a cancelled request; true after too many of the connection, or of its address.
    pub(crate) fn on_cancelled(&self) -> bool {
        let bucket = self.cancelled.lock();
        let mut bucket = bucket.unwrap_or_else(PoisonError::into_inner);
        let too_many = !bucket.take(Instant::now());
        self.address.on_cancelled() || too_many
    }

    /// Counts a request; false beyond the limit.
    pub(crate) fn may_request(&self) -> bool {
        self.address.may_request()
    }

    /// True if the server's own rates can delay this client.
    pub(crate) fn is_paced(&self) -> bool {
        self.largest_piece() < usize::MAX
    }

    /// Most bytes to send before the next [`Self::pace`].
    pub(crate) fn largest_piece(&self) -> usize {
        let of_all = self.shared.pace.as_ref().map_or(usize::MAX, Pace::piece);
        self.address.largest_piece().min(of_all)
    }

    /// Waits until these bytes may be sent to the client.
    pub(crate) async fn pace(&self, bytes: usize) {
        self.address.pace(bytes).await;
        if let Some(pace) = &self.shared.pace {
            pace.wait(bytes).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(limits: Limits) -> Client {
        Client::new(Shared::new(limits), [192, 0, 2, 1].into()).unwrap()
    }

    /// The wait for an attempt without end.
    async fn waits(client: &Client) -> Duration {
        let start = Instant::now();
        let attempt = client.progress(std::future::pending::<()>());
        assert_eq!(attempt.await, Err(Stalled));
        start.elapsed()
    }

    fn is_about(took: Duration, expected: Duration) -> bool {
        (expected..expected + Duration::from_millis(10)).contains(&took)
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_clients_are_given_up() {
        let limits = Limits::default();
        let client = client(limits);
        assert!(is_about(waits(&client).await, limits.stall));
        let late = tokio::time::sleep(limits.stall - Duration::from_millis(1));
        assert_eq!(client.progress(late).await, Ok(()));
    }

    /// An answer that waits for its turn ends only after the connection has accepted nothing.
    #[tokio::test(start_paused = true)]
    async fn answers_of_a_connection_wait_for_each_other() {
        let limits = Limits::default();
        let client = client(limits);
        let start = Instant::now();
        let turn = client.turn(std::future::pending::<()>());
        let sending = async {
            for _ in 0..10 {
                tokio::time::sleep(limits.stall - Duration::from_secs(1)).await;
                client.on_sent();
            }
        };
        let (turn, ()) = tokio::join!(turn, sending);
        assert_eq!(turn, Err(Stalled));
        let sent = 10 * (limits.stall - Duration::from_secs(1));
        assert!(is_about(start.elapsed(), sent + limits.stall));
        let late = tokio::time::sleep(limits.stall + Duration::from_secs(1));
        assert_eq!(client.turn(late).await, Err(Stalled));
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_requests_are_limited() {
        let client = client(Limits::default());
        let too_often = || (0..200).filter(|_| client.on_cancelled()).count();
        assert_eq!(too_often(), 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(too_often(), 180);
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_an_address_are_counted() {
        let mut limits = Limits::default();
        limits.address.requests_per_second = Some(2);
        let client = client(limits);
        let answered = || (0..5).filter(|_| client.may_request()).count();
        assert_eq!(answered(), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(answered(), 2);
        let unlimited = self::client(Limits::default());
        assert!((0..1000).all(|_| unlimited.may_request()));
    }

    /// Connections, rate and cancelled requests of an address are limited over all its connections.
    #[tokio::test(start_paused = true)]
    async fn limits_of_an_address_are_for_all_its_connections() {
        let mut limits = Limits::default();
        limits.address.connections = Some(2);
        limits.address.rate = Some(Rate::mbit(8));
        limits.address.cancelled = 3;
        limits.address.cancelled_per_second = 0;
        let shared = Shared::new(limits);
        let begin = |address: &str| Client::new(shared.clone(), address.parse().unwrap());
        let [first, second] = [(); 2].map(|()| begin("192.0.2.1").unwrap());
        assert!(begin("192.0.2.1").is_none());
        let other = begin("192.0.2.2").unwrap();
        let start = Instant::now();
        for _ in 0..5 {
            first.pace(100_000).await;
            second.pace(100_000).await;
        }
        assert!(is_about(start.elapsed(), Duration::from_secs(1)));
        let cancelled = [&first, &second, &first, &second, &other].map(Client::on_cancelled);
        assert_eq!(cancelled, [false, false, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn all_clients_share_a_rate() {
        let limits = Limits {
            rate: Some(Rate::mbit(8)),
            ..Limits::default()
        };
        let client = client(limits);
        assert_eq!(client.largest_piece(), 10_000);
        let start = Instant::now();
        for _ in 0..10 {
            client.pace(100_000).await;
        }
        assert!(is_about(start.elapsed(), Duration::from_secs(1)));
        let unlimited = self::client(Limits::default());
        assert_eq!(unlimited.largest_piece(), usize::MAX);
        let start = Instant::now();
        unlimited.pace(1 << 30).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    fn connected(shared: &Arc<Shared>, address: &str) -> Client {
        Client::new(shared.clone(), address.parse().unwrap()).unwrap()
    }

    async fn opened(client: &Client, patience: Duration) -> Option<OpenFile> {
        let waited = tokio::time::timeout(patience, client.open_file(None)).await;
        waited.ok().flatten()
    }

    /// The limit holds over any number of connections.
    #[tokio::test(start_paused = true)]
    async fn no_network_takes_all_files() {
        let limits = Limits {
            files: 8,
            files_per_client: 2,
            ..Limits::default()
        };
        let shared = Shared::new(limits);
        let client = |address| connected(&shared, address);
        let [first, second, third] = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(client);
        let other = client("2001:db8:0:1::1");
        let mut files = Vec::new();
        for taker in [&first, &first, &second, &second] {
            files.push(opened(taker, Duration::ZERO).await.unwrap());
        }
        let none = opened(&third, Duration::from_secs(1)).await;
        assert!(none.is_none(), "of the same network");
        for _ in 0..2 {
            files.push(opened(&other, Duration::ZERO).await.unwrap());
        }
    }

    /// The client with fewest files gets the place of the slowest request of the client with most
    /// files. Fast requests stay.
    #[tokio::test(start_paused = true)]
    async fn requests_of_the_largest_taker_give_way() {
        let shared = Shared::new(Limits {
            files: 2,
            files_per_client: 2,
            ..Limits::default()
        });
        let [greedy, honest] = ["192.0.2.1", "192.0.2.2"].map(|it| connected(&shared, it));
        let slow = greedy.open_file(None).await.unwrap();
        let quick = greedy.open_file(None).await.unwrap();
        tokio::time::advance(Duration::from_secs(5)).await;
        quick.on_bytes(1 << 20);
        let _file = opened(&honest, 2 * GRACE).await.unwrap();
        let ended = async |file: &OpenFile| {
            let work = file.keep(std::future::pending::<Result<(), Stalled>>());
            let ended = tokio::time::timeout(Duration::ZERO, work).await;
            ended.is_ok()
        };
        assert!(ended(&slow).await && !ended(&quick).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_too_little_while_others_wait() {
        let client = client(Limits {
            files: 1,
            ..Limits::default()
        });
        let until_ended = async |bytes: usize| {
            let open = client.open_file(None).await.unwrap();
            let other = connected(&client.shared, "192.0.2.2");
            let waiting = async {
                for second in 1..=60 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    open.on_bytes(bytes);
                    if open.gives_way().now_or_never().is_some() {
                        return Some(second);
                    }
                }
                None
            };
            tokio::select! {
                ended = waiting => ended,
                _ = async { drop(other.open_file(None).await); std::future::pending::<()>().await } => None,
            }
        };
        let ended = until_ended(1).await.unwrap();
        assert!((10..=12).contains(&ended), "{ended}");
        assert_eq!(until_ended(4096).await, None);
    }

    /// Idle connections of a network with all connections give way to other networks.
    #[tokio::test(start_paused = true)]
    async fn idle_connections_of_the_largest_taker_give_way() {
        let shared = Shared::new(Limits {
            connections: 4,
            ..Limits::default()
        });
        let all: Vec<_> = (0..4).map(|_| connected(&shared, "192.0.2.1")).collect();
        tokio::time::advance(Duration::from_secs(5)).await;
        let _in_use = all[0].in_use();
        let again = Client::new(shared.clone(), [192, 0, 2, 1].into());
        assert!(again.is_none(), "it has most");
        let _other = connected(&shared, "192.0.2.2");
        let ended: Vec<_> = all.iter().map(|it| it.gives_way().now_or_never()).collect();
        assert_eq!(ended[0], None, "it is in use");
        assert_eq!(ended.iter().flatten().count(), 1);
    }

    /// Tasks and pages use the same memory, and one network leaves memory for others.
    #[tokio::test(start_paused = true)]
    async fn memory_of_requests_is_bounded() {
        let shared = Shared::new(Limits::default());
        let [greedy, honest] = ["192.0.2.1", "192.0.2.2"].map(|it| connected(&shared, it));
        let requests: Vec<_> = std::iter::repeat_with(|| greedy.request())
            .map_while(|memory| memory)
            .collect();
        assert_eq!(shared.memory(), MEMORY / 2);
        assert_eq!(requests.len() as u64, MEMORY / 2 / REQUEST);
        let page = honest.memory(2 << 20).await;
        assert_eq!(shared.memory(), MEMORY / 2 + (2 << 20));
        page.shrink(1 << 20);
        assert_eq!(shared.memory(), MEMORY / 2 + (1 << 20));
        drop((page, requests));
        assert_eq!(shared.memory(), 0);
    }
}
