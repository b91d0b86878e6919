//! [`Accounts`]: flows and name lookups of each client, and the rate of its new flows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::class::FlowKind;
use crate::flow_table::Flow;
use crate::giving_way::Use;
use crate::shares::{Holding, Measure, Pool, Rules, Taker};
use crate::strangers::{Heard, StrangersOfAll, Waits};

/// Period in which new flows are counted.
const SECOND: Duration = Duration::from_secs(1);
/// Longest wait of a flow for its turn.
const WAIT: Duration = Duration::from_secs(30);
/// At this number of clients, counts of past periods are forgotten.
const MANY: usize = 1024;
/// Lookups of one client at a time. Further lookups wait.
const LOOKUPS: u64 = 16;
/// Lookups of all clients at a time.
const ALL_LOOKUPS: u64 = 256;
/// A client at its limit of UDP flows gets a new one for one that was idle for this time.
const IDLE: Duration = Duration::from_secs(2);
/// The part of all flows for UDP flows of one client, and for strangers at the client's ports:
/// names and TCP connections of the client need the rest. UDP flows take the same part of the UDP
/// ports, and DNS flows need the rest.
const PART: u64 = 4;
/// The number of strangers at a client's ports is this part of the client's limit of TCP flows.
const STRANGERS_PART: u64 = 2;
/// Open CONNECT-IP flows of one user: a client needs one. Each flow has two ICMP sockets. Where the
/// system allows raw sockets only, each raw socket hears all ICMP messages to this machine.
const IP_FLOWS: u64 = 4;

/// The flows, lookups and new flows of all clients.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// Flows of all kinds: each has a file.
    flows: Pool,
    /// The same flows by kind, each kind with a limit of its own.
    tcp_flows: Pool,
    udp_flows: Pool,
    /// UDP flows to the port of DNS: a torrent's flows leave names their room.
    name_flows: Pool,
    ip_flows: Pool,
    /// UDP flows of all kinds: each has a port.
    udp_ports: Pool,
    /// Connections to the ports of clients.
    strangers: StrangersOfAll,
    lookups: Pool,
    begun: Mutex<BTreeMap<(Taker, Turns), Begun>>,
    /// The number of flows for all clients.
    all_flows: AtomicU64,
    /// The number of UDP ports for all clients.
    all_udp_ports: AtomicU64,
}

/// Flows of a client that take turns: a torrent's flows hold up neither names nor TCP connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turns {
    /// UDP flows to ports other than that of DNS.
    Udp,
    /// All other flows.
    Other,
}

/// The count of new flows in the current period.
#[derive(Debug)]
struct Begun {
    /// Start of the period.
    since: Instant,
    count: u32,
}

/// Measures the use of a flow by the data from its target.
#[derive(Debug)]
struct Answers(Arc<Flow>);

impl Measure for Answers {
    fn used(&self, _: Instant) -> Use {
        let used = self.0.used(&self.0.carried.to_stream);
        Use {
            // Some UDP targets never answer. A TCP target has accepted the connection, which is an
            // answer.
            is_answered: used.is_answered || self.0.kind() != FlowKind::Udp,
            ..used
        }
    }
}

/// A flow that counts as open until this is dropped or the flow gives way.
#[derive(Debug)]
pub(crate) struct Counted {
    accounts: Arc<Accounts>,
    taker: Taker,
    turns: Turns,
    is_of_stranger: bool,
    holding: Holding,
    of_kind: Holding,
    udp_port: Option<Holding>,
}

impl Accounts {
    /// Accounts with this number of flows for all clients.
    pub(crate) fn new(flows: usize) -> Arc<Self> {
        let pool = |capacity, floor, window| {
            Pool::new(Rules {
                capacity,
                floor,
                grace: Duration::ZERO,
                window,
            })
        };
        // Flows have idle timeouts of their own.
        let kind = |window| pool(u64::MAX, u64::MAX, window);
        Arc::new(Self {
            flows: pool(flows as u64, 1, Duration::MAX),
            tcp_flows: kind(Duration::MAX),
            udp_flows: kind(IDLE),
            name_flows: kind(IDLE),
            ip_flows: kind(Duration::MAX),
            udp_ports: pool(u64::MAX, 1, IDLE),
            strangers: StrangersOfAll::default(),
            all_flows: AtomicU64::new(flows as u64),
            all_udp_ports: AtomicU64::new(u64::MAX),
            lookups: Pool::new(Rules {
                capacity: ALL_LOOKUPS,
                floor: 1,
                // The operating system does not end a lookup.
                grace: Duration::MAX,
                window: Duration::MAX,
            }),
            begun: Mutex::default(),
        })
    }

    /// Changes the number of flows for all clients.
    pub(crate) fn set_flows(&self, flows: usize) {
        self.flows.set_capacity(flows as u64);
        self.all_flows.store(flows as u64, Ordering::Relaxed);
    }

    /// Changes the number of UDP ports for all clients. Without a call there is no limit.
    pub(crate) fn set_udp_ports(&self, ports: usize) {
        self.udp_ports.set_capacity(ports as u64);
        self.all_udp_ports.store(ports as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Taker, Turns), Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new flow of a client, who may have `most` TCP flows, as many UDP flows and as many
    /// DNS flows. `None` for a client at its limit, if no flow gives way.
    pub(crate) fn begin(
        self: &Arc<Self>,
        taker: &Taker,
        (kind, turns): (FlowKind, Turns),
        most: usize,
    ) -> Option<Counted> {
        let most = most as u64;
        let udp_part = self.part().min(self.udp_part());
        let (pool, most) = match kind {
            FlowKind::Tcp => (&self.tcp_flows, most),
            FlowKind::Udp if turns == Turns::Other => (&self.name_flows, most),
            FlowKind::Udp => (&self.udp_flows, most.min(udp_part)),
            FlowKind::Ip => (&self.ip_flows, IP_FLOWS),
        };
        // Before `gives_way` is called, a flow gives way only if it has waited for `IDLE`.
        Some(Counted {
            of_kind: pool.try_take_of(taker, 1, most)?,
            udp_port: match kind {
                FlowKind::Udp => Some(self.udp_ports.try_take(taker, 1)?),
                FlowKind::Tcp | FlowKind::Ip => None,
            },
            holding: self.flows.try_take(taker, 1)?,
            accounts: self.clone(),
            taker: taker.clone(),
            turns,
            is_of_stranger: false,
        })
    }

    /// The number of files for a client's UDP flows, and for strangers at the client's ports.
    fn part(&self) -> u64 {
        (self.all_flows.load(Ordering::Relaxed) / PART).max(1)
    }

    /// The number of UDP ports for a client's UDP flows, without the DNS flows.
    fn udp_part(&self) -> u64 {
        (self.all_udp_ports.load(Ordering::Relaxed) / PART).max(1)
    }

    /// Counts a connection of a stranger to a port of a client with a limit of `most` TCP flows.
    /// The client's own flows neither wait nor give way for strangers. `None` if no connection of a
    /// stranger gives way.
    pub(crate) fn begin_of_stranger(
        self: &Arc<Self>,
        owner: &Taker,
        from: IpAddr,
        most: usize,
    ) -> Option<Counted> {
        let most = (most as u64 / STRANGERS_PART).clamp(1, self.part());
        let taker = Taker::Strangers(Arc::new(owner.clone()));
        let of_kind = self.strangers.try_take(owner, from, most)?;
        let holding = self.flows.try_take(&taker, 1)?;
        holding.measure(Arc::new(Waits(Instant::now())));
        Some(Counted {
            of_kind,
            holding,
            udp_port: None,
            accounts: self.clone(),
            taker,
            turns: Turns::Other,
            is_of_stranger: true,
        })
    }
}

impl Counted {
    fn holdings(&self) -> impl Iterator<Item = &Holding> {
        [&self.holding, &self.of_kind]
            .into_iter()
            .chain(&self.udp_port)
    }

    /// The flow has given way, and should end.
    pub(crate) fn has_given_way(&self) -> bool {
        self.holdings().any(Holding::has_ended)
    }

    /// Waits until the flow gives way, and should end. A UDP flow without an answer of its target,
    /// or idle for [`IDLE`], gives way to new UDP flows of its client. Any flow of the client with
    /// most flows gives way to flows of other clients. Where no UDP port is left, an idle UDP flow
    /// gives way to UDP flows of clients with fewer.
    pub(crate) async fn gives_way(&self, flow: Arc<Flow>) {
        let measure: Arc<dyn Measure> = if self.is_of_stranger {
            Arc::new(Heard {
                flow,
                bytes: |carried| &carried.to_stream,
            })
        } else {
            Arc::new(Answers(flow))
        };
        for holding in self.holdings() {
            holding.measure(measure.clone());
        }
        let port_gives_way = async {
            match &self.udp_port {
                Some(port) => port.gives_way().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.holding.gives_way() => {}
            () = self.of_kind.gives_way() => {}
            () = port_gives_way => {}
        }
    }

    /// Waits for the client's turn to look up a name.
    pub(crate) fn lookup(&self) -> impl Future<Output = Holding> + Send + use<> {
        let (lookups, taker) = (self.accounts.lookups.clone(), self.taker.clone());
        async move { lookups.take_of(&taker, 1, LOOKUPS).await }
    }

    /// Waits until the flow may begin, and returns false after too long a wait. At most
    /// `per_second` flows of the same [`Turns`] begin in a second. After a short outage of a
    /// connection, many flows arrive at once, and refused flows would come again. Waiting flows
    /// count as open.
    pub(crate) async fn turn(&self, per_second: u32) -> bool {
        let waiting = async {
            while let Some(until) = self.is_early(per_second) {
                tokio::time::sleep_until(until).await;
            }
        };
        timeout(WAIT, waiting).await.is_ok()
    }

    /// Counts the flow as begun, or returns the time of the next try.
    fn is_early(&self, per_second: u32) -> Option<Instant> {
        (self.accounts).is_early((&self.taker, self.turns), per_second)
    }

    /// Counts the peers of a binding like flows of its client.
    pub(crate) fn newcomers(&self) -> Newcomers {
        Newcomers {
            accounts: self.accounts.clone(),
            taker: self.taker.clone(),
            turns: self.turns,
        }
    }
}

/// Counts the peers to which a binding sends for the first time, beside the new flows of the same
/// client.
#[derive(Debug)]
pub(crate) struct Newcomers {
    accounts: Arc<Accounts>,
    taker: Taker,
    turns: Turns,
}

impl Newcomers {
    /// Counts a new peer. False after `per_second` new flows and peers of the client within a
    /// second.
    pub(crate) fn may_begin(&self, per_second: u32) -> bool {
        let early = (self.accounts).is_early((&self.taker, self.turns), per_second);
        early.is_none()
    }
}

impl Accounts {
    /// Counts a new flow, or returns the time of the next try.
    fn is_early(&self, (taker, turns): (&Taker, Turns), per_second: u32) -> Option<Instant> {
        let now = Instant::now();
        let mut begun = self.lock();
        if begun.len() >= MANY {
            begun.retain(|_, begun| now < begun.since + SECOND);
        }
        let begun = begun.entry((taker.clone(), turns)).or_insert(Begun {
            since: now,
            count: 0,
        });
        if now >= begun.since + SECOND {
            begun.since = now;
            begun.count = 0;
        }
        if begun.count >= per_second {
            return Some(begun.since + SECOND);
        }
        begun.count += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn taker(name: &str) -> Taker {
        Taker::User(name.into())
    }

    fn begin(accounts: &Arc<Accounts>, name: &str, most: usize) -> Option<Counted> {
        accounts.begin(&taker(name), (FlowKind::Tcp, Turns::Other), most)
    }

    #[tokio::test(start_paused = true)]
    async fn flows_of_a_client_are_bounded() {
        let accounts = Accounts::new(1000);
        let first = begin(&accounts, "a", 2).unwrap();
        let _second = begin(&accounts, "a", 2).unwrap();
        assert!(begin(&accounts, "a", 2).is_none(), "two are open");
        let other = begin(&accounts, "b", 2);
        assert!(other.is_some(), "another client");
        drop(first);
        assert!(begin(&accounts, "a", 2).is_some());
        let ip = || accounts.begin(&taker("a"), (FlowKind::Ip, Turns::Other), 100);
        let flows: Vec<_> = (0..10).filter_map(|_| ip()).collect();
        assert_eq!(flows.len(), 4);
    }

    /// Each flow has a socket, and all clients share the sockets.
    #[tokio::test(start_paused = true)]
    async fn one_client_leaves_sockets_for_others() {
        let accounts = Accounts::new(100);
        let all = |name| -> Vec<_> {
            let many = (0..100).map_while(|_| begin(&accounts, name, 1000));
            many.collect()
        };
        let held = ["a", "b", "c"].map(all);
        let counts = held.each_ref().map(Vec::len);
        assert_eq!(counts, [50, 25, 12]);
    }

    #[tokio::test(start_paused = true)]
    async fn flow_that_waited_longest_for_an_answer_gives_way() {
        let table = Arc::<crate::flow_table::FlowTable>::default();
        let accounts = Accounts::new(1000);
        let begin_udp = || {
            accounts
                .begin(&taker("a"), (FlowKind::Udp, Turns::Udp), 3)
                .map(|counted| {
                    let flow = table.begin(FlowKind::Udp, None, Some("a"), None);
                    let _stays = counted.gives_way(flow.clone()).now_or_never();
                    (counted, flow)
                })
        };
        let has_ended = |(counted, flow): &(Counted, crate::flow_table::OpenFlow)| {
            counted.gives_way((**flow).clone()).now_or_never().is_some()
        };
        let answer = |(_, flow): &(Counted, crate::flow_table::OpenFlow)| {
            (flow.carried.to_stream).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let answered = begin_udp().unwrap();
        let first = begin_udp().unwrap();
        let second = begin_udp().unwrap();
        tokio::time::advance(SECOND).await;
        answer(&answered);
        answer(&second);
        let third = begin_udp().unwrap();
        assert!(has_ended(&first) && !has_ended(&answered));
        answer(&third);
        assert!(begin_udp().is_none(), "all are in use");
        // The first flow has given way, so its end makes no room.
        drop(first);
        assert!(begin_udp().is_none());
        drop(second);
        let fourth = begin_udp().unwrap();
        answer(&fourth);
        // Answered flows give way when they are idle.
        tokio::time::advance(IDLE - SECOND).await;
        let fifth = begin_udp().unwrap();
        assert!(has_ended(&answered) && !has_ended(&third));
        drop((answered, third, fourth, fifth));
        assert_eq!(accounts.flows.used() + accounts.udp_flows.used(), 0);
    }

    /// Each UDP flow takes a port of the system, with fewer ports than files.
    #[tokio::test(start_paused = true)]
    async fn one_client_leaves_udp_ports_for_others() {
        let accounts = Accounts::new(100_000);
        accounts.set_udp_ports(100);
        let all = |name, turns| -> Vec<_> {
            let begin = || accounts.begin(&taker(name), (FlowKind::Udp, turns), 1000);
            (0..100).map_while(|_| begin()).collect()
        };
        let both = |name| [all(name, Turns::Udp), all(name, Turns::Other)];
        let held = ["a", "b", "c"].map(both);
        let counts = held.each_ref().map(|both| both.each_ref().map(Vec::len));
        assert_eq!(counts, [[25, 25], [25, 0], [12, 0]]);
        let tcp = begin(&accounts, "a", 1000);
        assert!(tcp.is_some(), "a TCP flow needs no UDP port");
        drop((held, tcp));
        assert_eq!(accounts.udp_ports.used(), 0);
    }

    /// A torrent client has thousands of UDP flows, all with answers.
    #[tokio::test(start_paused = true)]
    async fn udp_flows_leave_room_for_tcp_flows_of_their_client() {
        let taker = taker("a");
        let held = |accounts: &Arc<Accounts>, most| -> Vec<_> {
            let many =
                (0..100).map_while(|_| accounts.begin(&taker, (FlowKind::Udp, Turns::Udp), most));
            many.collect()
        };
        // At the client's own limit.
        let accounts = Accounts::new(1000);
        let udp = held(&accounts, 10);
        assert_eq!(udp.len(), 10);
        let tcp: Vec<_> = (0..10).filter_map(|_| begin(&accounts, "a", 10)).collect();
        assert_eq!(tcp.len(), 10);
        let name = (FlowKind::Udp, Turns::Other);
        assert!(accounts.begin(&taker, name, 10).is_some());
        // At the limit of files.
        let accounts = Accounts::new(100);
        let udp = held(&accounts, 1000);
        assert_eq!(udp.len(), 25);
        assert!(begin(&accounts, "a", 1000).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_take_a_part_beside_the_flows_of_their_client() {
        let from = IpAddr::from([192, 0, 2, 1]);
        let strangers = |accounts: &Arc<Accounts>, most| -> Vec<_> {
            let mut many = Vec::new();
            for _ in 0..100 {
                many.extend(accounts.begin_of_stranger(&taker("a"), from, most));
                many.retain(|counted: &Counted| !counted.has_given_way());
            }
            many
        };
        let accounts = Accounts::new(1000);
        let held = strangers(&accounts, 10);
        assert_eq!(held.len(), 5);
        let own: Vec<_> = (0..20).filter_map(|_| begin(&accounts, "a", 10)).collect();
        assert_eq!(own.len(), 10);
        // At the limit of files.
        let accounts = Accounts::new(100);
        let held = strangers(&accounts, 1000);
        assert_eq!(held.len(), 25);
        assert!(begin(&accounts, "a", 1000).is_some());
        // Flows of the client do not wait behind connections of strangers.
        let begun = Instant::now();
        for stranger in &held[..4] {
            assert!(stranger.turn(4).await);
        }
        let own = begin(&accounts, "a", 1000).unwrap();
        assert!(own.turn(4).await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(held[5].turn(4).await);
        assert_eq!(begun.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_may_begin_in_a_second_wait_for_the_next() {
        let accounts = Accounts::new(1000);
        let begun = Instant::now();
        let begin_udp = |name| accounts.begin(&taker(name), (FlowKind::Udp, Turns::Udp), 100);
        let open: Vec<_> = (0..10).map(|_| begin_udp("a")).collect();
        let mut seconds = Vec::new();
        for flow in open.iter().flatten() {
            assert!(flow.turn(4).await);
            seconds.push(begun.elapsed().as_secs());
        }
        assert_eq!(seconds, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        let other = begin_udp("b").unwrap();
        let before = Instant::now();
        assert!(other.turn(4).await);
        let name = begin(&accounts, "a", 100).unwrap();
        assert!(name.turn(4).await);
        assert_eq!(
            before.elapsed(),
            Duration::ZERO,
            "another client, and a name"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whose_turn_is_too_far_off_does_not_wait_for_it() {
        let accounts = Accounts::new(1000);
        let begun = Instant::now();
        let open: Vec<_> = (0..100).map(|_| begin(&accounts, "a", 100)).collect();
        let turns = open.iter().flatten().map(|flow| flow.turn(1));
        let had = futures_util::future::join_all(turns).await;
        assert_eq!(begun.elapsed(), WAIT);
        let had = had.iter().filter(|had| **had).count();
        assert!((30..=31).contains(&had), "{had}");
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_of_all_clients_are_bounded() {
        let accounts = Accounts::new(usize::MAX);
        let mut turns = Vec::new();
        for client in 0..2 * ALL_LOOKUPS / LOOKUPS {
            let taker = Taker::User(client.to_string().into());
            let flow = (FlowKind::Tcp, Turns::Other);
            let flow = accounts.begin(&taker, flow, 1).unwrap();
            for _ in 0..LOOKUPS {
                turns.extend(flow.lookup().now_or_never());
            }
            // tokio lets a task take 128 turns without a wait.
            tokio::task::yield_now().await;
        }
        let lookups = turns.len() as u64;
        assert!((ALL_LOOKUPS / 2..=ALL_LOOKUPS).contains(&lookups));
    }

    #[tokio::test(start_paused = true)]
    async fn account_without_flows_is_forgotten() {
        let accounts = Accounts::new(1000);
        for number in 0..3 * MANY {
            if number % MANY == 0 {
                tokio::time::advance(SECOND).await;
            }
            let flow = begin(&accounts, &number.to_string(), 1).unwrap();
            assert!(flow.turn(1).await);
        }
        assert!(accounts.lock().len() <= 2 * MANY);
        assert_eq!(accounts.flows.used(), 0);
    }
}
