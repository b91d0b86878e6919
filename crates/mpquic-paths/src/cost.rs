//! [`Costs`]: the cheapest paths that work, or that reach a wanted rate, carry data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::{FourTuple, PathEvent, PathId, PathState, PathStatus};

use crate::local::{Local, Origin};
use crate::manager::{Action, Event, Outcome, PathManager, PathManagerFactory, Start, factory};
use crate::view::{PathView, View};

/// Time between two measurements of the rate.
const LOOK: Duration = Duration::from_millis(500);
/// A measured rate counts as enough from this part of the wanted rate on.
const ENOUGH: f64 = 0.9;
/// After this long below the wanted rate, the next dearer paths are used.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this long with enough throughput, the next cheaper paths are tried alone. The time doubles
/// after each try that failed, up to [`LONGEST_TRIAL`].
const TRIAL: Duration = Duration::from_secs(10);
/// The longest time with enough throughput before cheaper paths are tried alone.
const LONGEST_TRIAL: Duration = Duration::from_secs(320);

/// The cost of the paths from a local address or interface, in a unit of one's own. Paths without a
/// price cost 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Price {
    /// Where the paths start.
    pub from: Origin,
    /// Their cost.
    pub cost: u32,
}

impl Price {
    /// Paths from there have this cost.
    pub fn new(from: Origin, cost: u32) -> Self {
        Self { from, cost }
    }
}

/// The highest cost of a path that carries data, raised and lowered by the measured rate.
#[derive(Debug)]
struct Policy {
    /// The wanted rate in bytes per second; `None` to use the cheapest working paths only.
    wanted: Option<f64>,
    /// Paths up to this cost carry data.
    allowed: u32,
    /// The rate has been below the wanted one since then.
    short_since: Option<Instant>,
    enough_since: Option<Instant>,
    /// The last time that [`Self::allowed`] was lowered to try cheaper paths.
    saved_at: Option<Instant>,
    trial: Duration,
}

impl Policy {
    fn new(wanted: Option<u64>) -> Self {
        Self {
            wanted: wanted.map(|rate| rate as f64),
            allowed: 0,
            short_since: None,
            enough_since: None,
            saved_at: None,
            trial: TRIAL,
        }
    }

    /// Returns the new highest cost. `working` are the costs of the working paths, `rate` their
    /// rate in bytes per second.
    fn look(&mut self, now: Instant, working: &[u32], rate: f64) -> u32 {
        let of = |is: &dyn Fn(u32) -> bool| {
            let costs = working.iter().copied();
            costs.filter(|cost| is(*cost)).collect::<Vec<_>>()
        };
        let Some(cheapest) = working.iter().copied().min() else {
            // No path works: the connection tries all of them whatever their status.
            return self.allowed;
        };
        let Some(wanted) = self.wanted else {
            self.allowed = cheapest;
            return cheapest;
        };
        let allowed = self.allowed;
        let affordable = of(&|cost| cost <= allowed).into_iter().max();
        self.allowed = affordable.unwrap_or(cheapest);
        let allowed = self.allowed;
        if rate >= ENOUGH * wanted {
            self.short_since = None;
            let since = *self.enough_since.get_or_insert(now);
            let cheaper = of(&|cost| cost < allowed).into_iter().max();
            if let Some(cheaper) = cheaper.filter(|_| now >= since + self.trial) {
                self.allowed = cheaper;
                self.enough_since = None;
                self.saved_at = Some(now);
            }
        } else {
            self.enough_since = None;
            let since = *self.short_since.get_or_insert(now);
            let dearer = of(&|cost| cost > allowed).into_iter().min();
            if let Some(dearer) = dearer.filter(|_| now >= since + PATIENCE) {
                self.allowed = dearer;
                self.short_since = None;
                let was_tried = self.saved_at.is_some_and(|at| now < at + 3 * PATIENCE);
                self.trial = if was_tried {
                    (2 * self.trial).min(LONGEST_TRIAL)
                } else {
                    TRIAL
                };
            }
        }
        self.allowed
    }
}

/// When each path answered last, or was seen first.
#[derive(Debug, Default)]
struct Answers(BTreeMap<PathId, Instant>);

impl Answers {
    fn forget(&mut self, path: PathId) {
        self.0.remove(&path);
    }

    /// True if a path works, or worked less than [`PATIENCE`] ago. A pause of this process can make
    /// a path suspect for a moment. Dearer paths are not needed for such a moment, as the
    /// connection then uses its backup paths by itself.
    fn works(&mut self, now: Instant, path: PathId, state: PathState) -> bool {
        match state {
            PathState::Active => {
                self.0.insert(path, now);
                true
            }
            PathState::Suspect => now < *self.0.entry(path).or_insert(now) + PATIENCE,
            _ => false,
        }
    }
}

/// The bytes that the paths had carried at the last measurement.
#[derive(Debug)]
struct Carried {
    at: Instant,
    bytes: u64,
}

impl Carried {
    fn new(now: Instant) -> Self {
        Self { at: now, bytes: 0 }
    }

    /// Bytes per second since the last measurement, in the direction with more bytes in all.
    fn rate(&mut self, now: Instant, paths: &[PathView]) -> f64 {
        let sent: u64 = paths.iter().map(|path| path.bytes_sent).sum();
        let received: u64 = paths.iter().map(|path| path.bytes_received).sum();
        let bytes = sent.max(received);
        let time = (now - self.at).as_secs_f64().max(1e-3);
        let rate = bytes.saturating_sub(self.bytes) as f64 / time;
        *self = Self { at: now, bytes };
        rate
    }
}

/// The status of a path.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// The status that the inner manager set.
    wanted: PathStatus,
    /// The status that the path has.
    status: PathStatus,
}

/// Wraps another path manager: the cheapest working paths carry data, and dearer paths stand by.
/// With a wanted rate, the next dearer paths also carry data after two seconds below this rate.
/// After ten seconds at the wanted rate (longer after failed tries), cheaper paths are tried alone.
///
/// A path with a price has its status from the price, a path without one from the inner manager.
#[derive(Debug)]
pub struct Costs {
    inner: Box<dyn PathManager>,
    prices: Vec<Price>,
    locals: Vec<Local>,
    policy: Policy,
    answers: Answers,
    carried: Option<Carried>,
    next_look: Option<Instant>,
    told: BTreeMap<PathId, Told>,
    /// The status of a path may have changed since [`Self::tell`] last went through all paths.
    has_news: bool,
    /// The inner manager's action that is being applied.
    asked: Option<Action>,
}

impl Costs {
    /// Gives prices to the paths of `inner`; the first price that fits a path counts. `wanted` is
    /// the rate to reach in bytes per second. With `None`, dearer paths carry data only while no
    /// cheaper path works.
    pub fn new(
        inner: &dyn PathManagerFactory,
        prices: Vec<Price>,
        wanted: Option<u64>,
        start: &Start,
    ) -> Self {
        let mut inside = start.clone();
        inside.locals = marked(&prices, &start.locals).into();
        Self {
            inner: inner.build(&inside),
            prices,
            locals: start.locals.to_vec(),
            policy: Policy::new(wanted),
            answers: Answers::default(),
            carried: None,
            next_look: None,
            told: BTreeMap::new(),
            has_news: false,
            asked: None,
        }
    }

    /// A factory that makes a [`Costs`] for each connection.
    pub fn factory(
        inner: Arc<dyn PathManagerFactory>,
        prices: Vec<Price>,
        wanted: Option<u64>,
    ) -> Arc<dyn PathManagerFactory> {
        factory("costs", move |start| {
            Box::new(Self::new(&*inner, prices.clone(), wanted, start))
        })
    }

    /// Replaces the prices of open and later paths. The inner manager learns of them by the next
    /// [`Event::Locals`].
    pub(crate) fn set_prices(&mut self, prices: Vec<Price>, view: &View<'_>) {
        self.prices = prices;
        self.has_news = true;
        if self.next_look.is_some() {
            self.look(view);
        }
    }

    /// The price of paths between these addresses.
    fn price(&self, four_tuple: FourTuple) -> Option<u32> {
        let owner = Local::owner(&self.locals, four_tuple.local);
        let price = self.prices.iter().find(|price| price.from.is(&owner));
        price.map(|price| price.cost)
    }

    /// The status of a path between these addresses: from its price, or else `wanted` by the inner
    /// manager.
    fn status(&self, four_tuple: FourTuple, wanted: PathStatus) -> PathStatus {
        match self.price(four_tuple) {
            Some(cost) if cost <= self.policy.allowed => PathStatus::Available,
            Some(_) => PathStatus::Backup,
            None => wanted,
        }
    }

    fn told(&mut self, path: PathId) -> &mut Told {
        let status = PathStatus::Available;
        let wanted = status;
        let of_new = || Told { wanted, status };
        self.told.entry(path).or_insert_with(of_new)
    }

    /// Measures the rate and decides which costs are allowed.
    fn look(&mut self, view: &View<'_>) {
        let now = view.now;
        let paths: Vec<_> = view.paths().collect();
        let carried = self.carried.get_or_insert_with(|| Carried::new(now));
        let rate = carried.rate(now, &paths);
        let mut working = Vec::new();
        for path in &paths {
            if self.answers.works(now, path.id, path.state) {
                working.push(self.price(path.four_tuple).unwrap_or(0));
            }
        }
        self.policy.look(now, &working, rate);
        self.next_look = Some(now + LOOK);
        self.has_news = true;
    }

    /// Sets the status of the next path that needs another status.
    fn tell(&mut self, view: &View<'_>) -> Option<Action> {
        if !std::mem::take(&mut self.has_news) {
            return None;
        }
        for path in view
            .paths()
            .filter(|path| path.state != PathState::Abandoned)
        {
            let told = *self.told(path.id);
            let status = self.status(path.four_tuple, told.wanted);
            if status != told.status {
                self.has_news = true;
                self.told(path.id).status = status;
                let path = path.id;
                return Some(Action::SetStatus { path, status });
            }
        }
        None
    }

    /// The inner manager's action with a status that follows the prices; `None` if the path already
    /// has this status.
    fn adapt(&mut self, action: Action, view: &View<'_>) -> Option<Action> {
        match action {
            Action::Open { four_tuple, status } => {
                let status = self.status(four_tuple, status);
                Some(Action::Open { four_tuple, status })
            }
            Action::SetStatus { path, status } => {
                let four_tuple = view.path(path)?.four_tuple;
                self.told(path).wanted = status;
                let status = self.status(four_tuple, status);
                let is_new = std::mem::replace(&mut self.told(path).status, status) != status;
                is_new.then_some(Action::SetStatus { path, status })
            }
            _ => Some(action),
        }
    }

    fn on_applied(&mut self, action: Action, outcome: Outcome, view: &View<'_>) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        if let (
            Action::Open { status, .. },
            Action::Open { status: wanted, .. },
            Outcome::Opened(path),
        ) = (action, asked, outcome)
        {
            self.told.insert(path, Told { wanted, status });
        }
        self.has_news |= matches!(action, Action::Move { .. });
        self.inner.on_event(&Event::Applied(asked, outcome), view);
    }
}

/// The local addresses. Addresses with a cost above 0 are marked as backups, so that the inner
/// manager opens their paths last.
fn marked(prices: &[Price], locals: &[Local]) -> Vec<Local> {
    Local::mark_backups(locals, |local| {
        let price = prices.iter().find(|price| price.from.is(local));
        price.is_some_and(|price| price.cost > 0)
    })
}

impl PathManager for Costs {
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>) {
        match event {
            Event::Applied(action, outcome) => {
                return self.on_applied(*action, *outcome, view);
            }
            Event::Locals(locals) => {
                self.locals = locals.to_vec();
                self.has_news = true;
                let locals = marked(&self.prices, locals);
                return self.inner.on_event(&Event::Locals(&locals), view);
            }
            Event::Connected => {
                // Paths that cost something are backups until the first measurement, so that
                // cheaper paths have time to open.
                self.next_look = Some(view.now + LOOK);
                self.carried = Some(Carried::new(view.now));
            }
            Event::Path(PathEvent::Discarded(last)) => {
                self.told.remove(&last.id);
                self.answers.forget(last.id);
            }
            Event::Path(_) | Event::Opened(..) | Event::Moved(..) => self.has_news = true,
            Event::Closed(_) | Event::NetworkChanged => {}
        }
        self.inner.on_event(event, view);
    }

    fn poll(&mut self, view: &View<'_>) -> Option<Action> {
        if self.next_look.is_some_and(|at| at <= view.now) {
            self.look(view);
        }
        self.asked = None;
        // The inner manager first: statuses without a price follow its latest word.
        while let Some(asked) = self.inner.poll(view) {
            if let Some(action) = self.adapt(asked, view) {
                self.asked = Some(asked);
                return Some(action);
            }
            let applied = Event::Applied(asked, Outcome::Done);
            self.inner.on_event(&applied, view);
        }
        self.tell(view)
    }

    fn next_timeout(&self) -> Option<Instant> {
        let inner = self.inner.next_timeout();
        // Without prices, no status depends on a measurement.
        let look = self.next_look.filter(|_| !self.prices.is_empty());
        inner.into_iter().chain(look).min()
    }

    fn may_use(&self, local: &Local) -> bool {
        self.inner.may_use(local)
    }

    fn name(&self) -> &'static str {
        "costs"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathStats;

    use super::*;
    use crate::testing::epoch;

    /// The wanted rate of the tests: 20 Mbit/s in bytes per second.
    const MBIT_20: u64 = 2_500_000;

    fn address(text: &str) -> std::net::SocketAddr {
        text.parse().expect("an address")
    }

    /// A path from 192.0.2.10, 192.0.2.11 and so on.
    fn path(id: u32) -> PathView {
        let local = std::net::SocketAddr::from(([192, 0, 2, 10 + id as u8], 5));
        let four_tuple = FourTuple::new(local, address("203.0.113.1:443"));
        PathStats::new(PathId(id), four_tuple).into()
    }

    /// The allowed cost after each half second at these rates in Mbit/s.
    fn allowed(
        policy: &mut Policy,
        from: &mut Instant,
        working: &[u32],
        rates: &[u32],
    ) -> Vec<u32> {
        let looks = rates.iter().map(|rate| {
            *from += LOOK;
            policy.look(*from, working, f64::from(*rate) * 1e6 / 8.0)
        });
        looks.collect()
    }

    #[test]
    fn without_a_rate_the_cheapest_working_paths_are_used() {
        let mut policy = Policy::new(None);
        let mut now = epoch();
        for (working, expected) in [
            (&[0, 1, 5][..], 0),
            (&[1, 5], 1),
            (&[5], 5),
            (&[], 5),
            (&[1, 5], 1),
            (&[0, 5], 0),
        ] {
            assert_eq!(allowed(&mut policy, &mut now, working, &[1]), [expected]);
        }
    }

    #[test]
    fn rate_is_measured_since_the_last_look_in_the_busier_direction() {
        let start = epoch();
        let paths = |received: [u64; 2], sent: [u64; 2]| {
            [0, 1].map(|id| {
                let mut path = path(id as u32);
                (path.bytes_received, path.bytes_sent) = (received[id], sent[id]);
                path
            })
        };
        let mut carried = Carried::new(start);
        let mut rate = |millis, paths: &[PathView]| {
            let now = start + Duration::from_millis(millis);
            carried.rate(now, paths)
        };
        assert_eq!(rate(500, &paths([2000, 1000], [5, 5])), 6000.0);
        assert_eq!(rate(2500, &paths([3000, 3000], [900, 900])), 1500.0);
        // Now more bytes are sent than received. In the next step a path is gone.
        assert_eq!(rate(3500, &paths([3000, 3000], [4000, 3500])), 1500.0);
        assert_eq!(rate(4500, &paths([3000, 3000], [4000, 3500])[..1]), 0.0);
        assert_eq!(
            rate(4500, &paths([4005, 0], [0, 0])),
            5000.0,
            "at the same moment"
        );
    }

    /// A manager with a price of 5 for the second of three local addresses.
    fn costs(wanted: Option<u64>) -> (Costs, crate::Snapshot) {
        let locals: Vec<_> = [0, 1, 2]
            .map(|id| Local::new(path(id).four_tuple.local))
            .into();
        let start = Start::new(path(0).four_tuple, locals);
        let from = Origin::Address([192, 0, 2, 11].into());
        let again = Price::new(from.clone(), 9);
        let prices = vec![Price::new(from, 5), again];
        let costs = Costs::new(&*crate::default(), prices, wanted, &start);
        let mut connection = crate::Snapshot::default();
        connection.paths.push(path(0));
        (costs, connection)
    }

    /// Applies the manager's actions until it has none left, and returns them.
    fn run(costs: &mut Costs, connection: &mut crate::Snapshot, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        loop {
            let polled = costs.poll(&View::of_snapshot(connection, now));
            let Some(action) = polled else {
                return actions;
            };
            let outcome = match action {
                Action::Open { four_tuple, .. } => {
                    let id = PathId(connection.paths.len() as u32);
                    connection.paths.push(PathStats::new(id, four_tuple).into());
                    Outcome::Opened(id)
                }
                _ => Outcome::Done,
            };
            actions.push(action);
            let applied = Event::Applied(action, outcome);
            costs.on_event(&applied, &View::of_snapshot(connection, now));
        }
    }

    fn statuses(actions: &[Action]) -> Vec<(Option<u32>, PathStatus)> {
        let told = actions.iter().filter_map(|action| match action {
            Action::Open { status, .. } => Some((None, *status)),
            Action::SetStatus { path, status } => Some((Some(path.0), *status)),
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn dear_paths_open_as_backups_and_are_used_once_the_cheap_ones_fail() {
        let (mut costs, mut connection) = costs(None);
        let now = epoch();
        for event in [Event::Connected, Event::Path(&PathEvent::Available)] {
            costs.on_event(&event, &View::of_snapshot(&connection, now));
        }
        let actions = run(&mut costs, &mut connection, now);
        let (used, backup) = (PathStatus::Available, PathStatus::Backup);
        // The third address costs nothing, and comes first.
        assert_eq!(statuses(&actions), [(None, used), (None, backup)]);
        let dear = |four_tuple: FourTuple| four_tuple.local.ip().to_string() == "192.0.2.11";
        assert!(matches!(actions[1], Action::Open { four_tuple, .. } if dear(four_tuple)));
        assert!(run(&mut costs, &mut connection, now).is_empty());
        for path in &mut connection.paths[..2] {
            path.state = PathState::Suspect;
        }
        let mut told = Vec::new();
        let mut at = now;
        while at < now + Duration::from_secs(4) {
            at += LOOK;
            told.extend(statuses(&run(&mut costs, &mut connection, at)));
        }
        assert_eq!(told, [(Some(2), used)]);
        connection.paths[0].state = PathState::Active;
        let told = statuses(&run(&mut costs, &mut connection, at + LOOK));
        assert_eq!(told, [(Some(2), backup)]);
        assert!(run(&mut costs, &mut connection, at + LOOK).is_empty());
        assert_eq!(costs.next_timeout(), Some(at + 2 * LOOK));
    }

    /// Paths from 192.0.2.10 have no price, and paths from 192.0.2.11 have a price.
    #[test]
    fn paths_without_a_price_have_the_status_that_the_inner_manager_wants() {
        let (mut costs, connection) = costs(None);
        let view = View::of_snapshot(&connection, epoch());
        let (status, path) = (PathStatus::Backup, PathId::ZERO);
        let action = Action::SetStatus { path, status };
        assert_eq!(costs.adapt(action, &view), Some(action));
        assert_eq!(costs.adapt(action, &view), None, "it was told");
        let dear = FourTuple::new(super::tests::path(1).four_tuple.local, address("[::1]:1"));
        assert_eq!(
            costs.status(dear, PathStatus::Available),
            PathStatus::Backup
        );
        costs.policy.allowed = 5;
        assert_eq!(
            costs.status(dear, PathStatus::Backup),
            PathStatus::Available
        );
    }

    #[test]
    fn briefly_suspect_path_counts_as_working() {
        let mut answers = Answers::default();
        let (path, other, start) = (PathId(0), PathId(1), epoch());
        assert!(answers.works(start, path, PathState::Active));
        let late = start + PATIENCE - Duration::from_millis(1);
        assert!(answers.works(late, path, PathState::Suspect));
        assert!(!answers.works(late, path, PathState::Abandoned));
        // A suspect path seen for the first time counts as working for a while.
        assert!(answers.works(late, other, PathState::Suspect));
        assert!(!answers.works(late, other, PathState::Validating));
        assert!(!answers.works(start + PATIENCE, path, PathState::Suspect));
        assert!(answers.works(start + PATIENCE, other, PathState::Suspect));
        assert!(!answers.works(late + PATIENCE, other, PathState::Suspect));
    }

    #[test]
    fn more_is_paid_while_the_cheap_paths_do_not_suffice() {
        let mut policy = Policy::new(Some(MBIT_20));
        let mut now = epoch();
        let mut looks =
            |working: &[u32], rates: &[u32]| allowed(&mut policy, &mut now, working, rates);
        let all = [0, 1, 5];
        // A dip of 1.5 s changes nothing.
        assert_eq!(looks(&all, &[20, 10, 10, 10, 20]), [0; 5]);
        // Two seconds below the rate add the paths of cost 1, two more add those of cost 5.
        assert_eq!(looks(&all, &[10; 10]), [0, 0, 0, 0, 1, 1, 1, 1, 1, 5]);
        assert_eq!(looks(&all, &[10; 20]), [5; 20], "there is nothing dearer");
        // After ten seconds at the rate, cheaper paths are tried and fail. The next try waits
        // twenty seconds.
        let mut expected = vec![5; 20];
        expected.push(1);
        assert_eq!(looks(&all, &[20; 21]), expected);
        assert_eq!(looks(&all, &[10; 5]), [1, 1, 1, 1, 5]);
        let mut expected = vec![5; 40];
        expected.push(1);
        assert_eq!(looks(&all, &[20; 41]), expected);
        // The cheap paths fail, and come back.
        assert_eq!(looks(&[5], &[20; 2]), [5; 2]);
        assert_eq!(looks(&[0], &[20; 2]), [0; 2]);
    }

    /// A try of cheaper paths fails if dearer paths are needed again within six seconds. Each
    /// failed try doubles the time to the next one, up to `LONGEST_TRIAL`; a successful try resets
    /// this time to `TRIAL`.
    #[test]
    fn each_failed_try_of_cheaper_paths_doubles_the_time_to_the_next() {
        let mut policy = Policy::new(Some(MBIT_20));
        let mut now = epoch();
        let both = [0, 5];
        allowed(&mut policy, &mut now, &[5], &[20]);
        // Seconds at nine tenths of the wanted rate until cheaper paths are tried.
        let until_less = |policy: &mut Policy, now: &mut Instant| {
            let looks = (1..1000).find(|_| allowed(policy, now, &both, &[18]) == [0]);
            looks.unwrap() / 2
        };
        let too_little = |policy: &mut Policy, now: &mut Instant| {
            let looks = allowed(policy, now, &both, &[17; 5]);
            assert_eq!(looks, [0, 0, 0, 0, 5]);
        };
        let mut seconds = Vec::new();
        for _ in 0..7 {
            seconds.push(until_less(&mut policy, &mut now));
            too_little(&mut policy, &mut now);
        }
        assert_eq!(seconds, [10, 20, 40, 80, 160, 320, 320]);
        until_less(&mut policy, &mut now);
        let looks = allowed(&mut policy, &mut now, &both, &[18; 8]);
        assert_eq!(looks, [0; 8]);
        too_little(&mut policy, &mut now);
        assert_eq!(until_less(&mut policy, &mut now), 10);
        // A try that ends after 5.5 s has failed.
        let looks = allowed(&mut policy, &mut now, &both, &[18; 6]);
        assert_eq!(looks, [0; 6]);
        too_little(&mut policy, &mut now);
        assert_eq!(until_less(&mut policy, &mut now), 20);
    }
}
