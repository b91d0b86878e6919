//! [`DatagramFlows`]: the UDP flows of one local socket, or the flows of a device.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::datagram_flow::{DatagramFlow, Wanted};
use super::flows::{Client, NoFlow};
use crate::datagrams::Deliver;
use crate::giving_way::{Order, Use};
use crate::target::Target;

/// Most open flows of one socket or device. A further flow displaces another.
pub(crate) const MOST: usize = 16_384;
/// Bytes of payloads that wait while a flow opens, which takes a round trip. Further payloads are
/// lost.
const WAITING: usize = 256 << 10;

/// Time without a second request for a refused flow; payloads for the flow are lost.
const REFUSED: Duration = Duration::from_secs(1);

/// The key of a flow.
pub(crate) trait Key: Ord + Clone + Send + Sync + 'static {
    /// The sender of a flow, on a socket with flows of many senders. Each sender gets its share.
    fn source(&self) -> Option<IpAddr>;
}

impl Key for SocketAddr {
    fn source(&self) -> Option<IpAddr> {
        Some(self.ip())
    }
}

/// The addresses of an application and of a target.
impl Key for (SocketAddr, SocketAddr) {
    fn source(&self) -> Option<IpAddr> {
        Some(self.0.ip())
    }
}

/// The key of a single flow.
impl Key for () {
    fn source(&self) -> Option<IpAddr> {
        None
    }
}

/// All flows belong to one program.
impl Key for Target {
    fn source(&self) -> Option<IpAddr> {
        None
    }
}

/// Flows by key. Dropping this ends the flows.
pub(crate) struct DatagramFlows<K: Key> {
    client: Client,
    most: usize,
    flows: Mutex<Table<K>>,
}

struct Table<K: Key> {
    flows: BTreeMap<K, Entry>,
    /// The flows of each source,
    sources: BTreeMap<Option<IpAddr>, Order<K>>,
    /// Sources by their number of flows.
    largest: BTreeSet<(usize, Option<IpAddr>)>,
    next_number: u64,
}

struct Entry {
    /// Identifies the flow, since a later flow may have the same key.
    number: u64,
    began: Instant,
    flow: Flow,
    /// Dropping the entry drops this sender, which ends the task.
    _alive: oneshot::Sender<()>,
}

enum Flow {
    Opening(Waiting),
    Open(Arc<DatagramFlow>),
    /// The proxy refused the flow less than [`REFUSED`] ago.
    Refused,
}

impl Entry {
    fn used(&self) -> Use {
        match &self.flow {
            Flow::Open(flow) => flow.used(),
            Flow::Opening(_) | Flow::Refused => Use {
                is_answered: false,
                last: self.began,
            },
        }
    }
}

impl<K: Key> Default for Table<K> {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            sources: BTreeMap::new(),
            largest: BTreeSet::new(),
            next_number: 0,
        }
    }
}

impl<K: Key> Table<K> {
    /// Adds a flow that opens; returns its number, and a value that ends with the flow.
    fn insert(&mut self, key: K, waiting: Waiting) -> (u64, oneshot::Receiver<()>) {
        let (alive, ended) = oneshot::channel();
        let number = self.next_number;
        self.next_number += 1;
        let entry = Entry {
            number,
            began: Instant::now(),
            flow: Flow::Opening(waiting),
            _alive: alive,
        };
        let used = entry.used();
        self.change(key.source(), |order| order.insert(key.clone(), used));
        self.flows.insert(key, entry);
        (number, ended)
    }

    fn remove(&mut self, key: &K) {
        if self.flows.remove(key).is_some() {
            self.change(key.source(), |order| order.remove(key));
        }
    }

    /// Changes the flows of a source.
    fn change(&mut self, source: Option<IpAddr>, by: impl FnOnce(&mut Order<K>)) {
        let order = self.sources.entry(source).or_default();
        self.largest.remove(&(order.len(), source));
        by(order);
        match order.len() {
            0 => drop(self.sources.remove(&source)),
            count => drop(self.largest.insert((count, source))),
        }
    }

    /// Ends the least used flow of the source with the most flows.
    fn make_room(&mut self) {
        let Some((_, source)) = self.largest.last() else {
            return;
        };
        let (flows, order) = (&self.flows, self.sources.get_mut(source));
        let used = |key: &K| flows.get(key).map(Entry::used);
        // Each key of an order belongs to a flow.
        let first = order.and_then(|order| {
            order.first(|key| {
                used(key).unwrap_or(Use {
                    is_answered: false,
                    last: Instant::now(),
                })
            })
        });
        if let Some((_, key)) = first {
            self.remove(&key);
        }
    }

    /// The flow with this number, until its end.
    fn own(&mut self, key: &K, number: u64) -> Option<&mut Flow> {
        let entry = self.flows.get_mut(key);
        entry
            .filter(|entry| entry.number == number)
            .map(|entry| &mut entry.flow)
    }
}

/// Payloads that wait for a flow to open.
#[derive(Default)]
struct Waiting {
    payloads: Vec<Vec<u8>>,
    /// Bytes, including the memory overhead of each payload.
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, payload: &[u8]) {
        self.bytes += payload.len() + 64;
        self.payloads.push(payload.to_vec());
    }
}

impl<K: Key> DatagramFlows<K> {
    /// At most `most` flows are open at a time.
    pub(crate) fn new(client: Client, most: usize) -> Arc<Self> {
        Arc::new(Self {
            client,
            most,
            flows: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table<K>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a payload, behind a byte with the value 0; on a binding, a datagram of the
    /// uncompressed context. A missing flow is opened, and its answers go to `deliver`.
    pub(crate) fn send(
        self: &Arc<Self>,
        key: &K,
        payload: &[u8],
        open: impl FnOnce() -> (Wanted, Arc<dyn Deliver>),
    ) {
        let mut table = self.lock();
        match table.flows.get_mut(key).map(|entry| &mut entry.flow) {
            Some(Flow::Open(flow)) => {
                let flow = flow.clone();
                drop(table);
                flow.send(payload);
            }
            Some(Flow::Opening(waiting)) if waiting.bytes + payload.len() <= WAITING => {
                waiting.push(payload);
            }
            Some(Flow::Opening(_) | Flow::Refused) => {}
            None => {
                if table.flows.len() >= self.most {
                    table.make_room();
                    self.client.on_displaced(self.most);
                }
                let mut waiting = Waiting::default();
                waiting.push(payload);
                let (number, ended) = table.insert(key.clone(), waiting);
                drop(table);
                let (wanted, deliver) = open();
                let flows = Arc::downgrade(self);
                let client = self.client.clone();
                let opening = carry(flows, client, (key.clone(), number), wanted, deliver);
                tokio::spawn(async move {
                    tokio::select! {
                        () = opening => {}
                        _ = ended => {}
                    }
                });
            }
        }
    }
}

/// Opens a flow and waits for its end.
async fn carry<K: Key>(
    flows: Weak<DatagramFlows<K>>,
    client: Client,
    (key, number): (K, u64),
    wanted: Wanted,
    deliver: Arc<dyn Deliver>,
) {
    // Replaces the flow, and returns the old one.
    let replace = |next: Flow| {
        let flows = flows.upgrade()?;
        let mut table = flows.lock();
        Some(std::mem::replace(table.own(&key, number)?, next))
    };
    match client.connect_datagrams(&wanted, deliver).await {
        Ok(flow) => {
            let flow = Arc::new(flow);
            if let Some(Flow::Opening(waiting)) = replace(Flow::Open(flow.clone())) {
                (waiting.payloads.iter()).for_each(|payload| flow.send(payload));
            }
            flow.ended().await;
        }
        // A new connection follows soon, or the next payload opens a flow for its target. The
        // reason was already reported.
        Err(error @ (NoFlow::Unconnected | NoFlow::Broken | NoFlow::NoBinding)) => {
            tracing::debug!("no {wanted}: {error}");
        }
        Err(error) => {
            tracing::info!("no {wanted}: {error}");
            // A refused flow is not asked for again for every payload.
            replace(Flow::Refused);
            tokio::time::sleep(REFUSED).await;
        }
    }
    if let Some(flows) = flows.upgrade() {
        let mut table = flows.lock();
        if table.own(&key, number).is_some() {
            table.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::flows::ClientOptions;

    struct Nowhere;

    impl Deliver for Nowhere {
        fn deliver(&self, _: &[u8]) {}
    }

    fn from(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    /// The sources of the flows, and their ports.
    fn open(flows: &DatagramFlows<SocketAddr>) -> Vec<(u8, u16)> {
        let table = flows.lock();
        let keys = table.flows.keys().map(|key| match key.ip() {
            IpAddr::V4(ip) => (ip.octets()[3], key.port()),
            IpAddr::V6(_) => (0, key.port()),
        });
        let keys: Vec<_> = keys.collect();
        let counted: usize = table.sources.values().map(Order::len).sum();
        assert_eq!((counted, table.flows.len()), (keys.len(), keys.len()));
        let counts = table
            .sources
            .iter()
            .map(|(source, order)| (order.len(), *source));
        assert_eq!(table.largest, counts.collect());
        keys
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_whoever_has_most_gives_way() {
        let client = Client::new(ClientOptions::new("proxy.test:1".parse().unwrap()));
        let flows = DatagramFlows::<SocketAddr>::new(client.clone(), 4);
        // The test's clock stands still, so each flow gets its own time.
        let clock = std::cell::Cell::new(0);
        let send = |host, port| {
            flows.send(&from(host, port), b"\0question", || {
                let target = "192.0.2.9:53".parse().unwrap();
                (Wanted::Udp(target, None), Arc::new(Nowhere))
            });
            clock.set(clock.get() + 1);
            let mut table = flows.lock();
            let entry = table.flows.get_mut(&from(host, port)).unwrap();
            entry.began += Duration::from_millis(clock.get());
        };
        send(7, 1);
        for port in [4, 3, 2, 1] {
            send(1, port);
        }
        assert_eq!(open(&flows), [(1, 1), (1, 2), (1, 3), (7, 1)]);
        assert_eq!(client.stats().displaced_udp, 1);
        for (host, port) in [(2, 1), (3, 1)] {
            send(host, port);
        }
        assert_eq!(open(&flows), [(1, 1), (2, 1), (3, 1), (7, 1)]);
        assert_eq!(client.stats().displaced_udp, 3);
        // Without a connection, all flows end, and no state is left.
        while !open(&flows).is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(flows.lock().sources.is_empty());
    }
}
