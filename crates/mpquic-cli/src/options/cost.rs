//! What paths cost: `--cost`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpquic_core::{PathState, PathStats, PathStatus};
use mpquic_tokio::{Connection, PathId, interface_addresses};
use tokio::time::MissedTickBehavior;

use crate::options::origin::starts_from;
use crate::options::{Local, parse_local};
use crate::process::clock;
use crate::rate::Rate;

/// The highest cost.
const MOST: u32 = 1000;
/// How often is looked.
const LOOK: Duration = Duration::from_millis(500);
/// The part of the wanted rate that is enough.
const ENOUGH: f64 = 0.9;
/// How long too little arrives before more is paid.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this long with enough throughput, try the next cheaper set of paths. Doubles after each
/// failed try, up to `LONGEST_TRIAL`.
const TRIAL: Duration = Duration::from_secs(10);
const LONGEST_TRIAL: Duration = Duration::from_secs(320);

/// What the paths from somewhere cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) from: Local,
    pub(crate) cost: u32,
}

pub(crate) fn parse_cost(text: &str) -> Result<Cost, String> {
    let expected = "expected IFACE=N or ADDR=N, with N from 0 to 1000";
    let (from, cost) = text.rsplit_once('=').ok_or(expected)?;
    let cost = cost.parse().ok().filter(|cost| *cost <= MOST);
    Ok(Cost {
        cost: cost.ok_or(expected)?,
        from: parse_local(from)?,
    })
}

/// How much is paid.
#[derive(Debug)]
struct Policy {
    /// Bytes per second.
    wanted: Option<f64>,
    /// Paths up to this cost are used.
    allowed: u32,
    /// Since when it is too little, or enough.
    short_since: Option<Instant>,
    enough_since: Option<Instant>,
    /// When less was paid the last time.
    saved_at: Option<Instant>,
    trial: Duration,
}

impl Policy {
    fn new(wanted: Option<Rate>) -> Self {
        Self {
            wanted: wanted.map(|rate| rate.bytes_per_second() as f64),
            allowed: 0,
            short_since: None,
            enough_since: None,
            saved_at: None,
            trial: TRIAL,
        }
    }

    /// Decides what the dearest path may cost, of those that work, at this rate in bytes per second.
    fn look(&mut self, now: Instant, working: &[u32], rate: f64) -> u32 {
        let of = |is: &dyn Fn(u32) -> bool| {
            let costs = working.iter().copied();
            costs.filter(|cost| is(*cost)).collect::<Vec<_>>()
        };
        let Some(cheapest) = working.iter().copied().min() else {
            // The connection uses whatever answers.
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
                self.trial = match was_tried {
                    true => (2 * self.trial).min(LONGEST_TRIAL),
                    false => TRIAL,
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
    /// True if a path works, or did a moment ago. A path that is suspect for a moment, perhaps because
    /// this process got no time, is no reason to pay: meanwhile the connection uses those that stand
    /// by of its own accord.
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

/// Bytes that the paths had carried at the last check.
struct Carried {
    at: Instant,
    bytes: u64,
}

impl Carried {
    fn new(now: Instant) -> Self {
        Self { at: now, bytes: 0 }
    }

    /// Bytes per second since the last look, in the direction that counts.
    fn rate(&mut self, now: Instant, paths: &[PathStats]) -> f64 {
        let sent: u64 = paths.iter().map(|path| path.bytes_sent).sum();
        let received: u64 = paths.iter().map(|path| path.bytes_received).sum();
        let bytes = sent.max(received);
        let time = (now - self.at).as_secs_f64().max(1e-3);
        let rate = bytes.saturating_sub(self.bytes) as f64 / time;
        *self = Self { at: now, bytes };
        rate
    }
}

/// Decides which paths of a connection are used, on a task that ends with it: now and then by what
/// arrives, and at once where paths come.
pub(crate) fn follow(connection: &Connection, costs: Vec<Cost>, wanted: Option<Rate>) {
    let connection = connection.clone();
    tokio::spawn(async move {
        let mut policy = Policy::new(wanted);
        let mut answers = Answers::default();
        let mut carried = Carried::new(clock::now());
        let mut told = BTreeMap::new();
        let mut events = connection.path_events();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while connection.close_reason().is_none() {
            let is_due = tokio::select! {
                _ = looks.tick() => true,
                event = events.next() => match event {
                    Some(_) => false,
                    None => break,
                },
            };
            let stats = connection.path_stats();
            let cost_of = prices(&stats, &costs);
            if is_due {
                let now = clock::now();
                let rate = carried.rate(now, &stats);
                let works = stats.iter();
                let works = works.filter(|path| answers.works(now, path.id, path.state));
                let working = works.filter_map(|path| cost_of.get(&path.id).copied());
                policy.look(now, &working.collect::<Vec<_>>(), rate);
            }
            tell(&connection, &cost_of, policy.allowed, &mut told);
        }
    });
}

/// Tells the peer the status of paths whose status changed.
fn tell(
    connection: &Connection,
    cost_of: &BTreeMap<PathId, u32>,
    allowed: u32,
    told: &mut BTreeMap<PathId, PathStatus>,
) {
    for path in connection.paths() {
        if let Some(status) = news(path.id(), cost_of, allowed, told) {
            // A closed path needs no status.
            let _ = path.set_status(status);
        }
    }
}

/// The new status of a path, if it has changed.
fn news(
    path: PathId,
    cost_of: &BTreeMap<PathId, u32>,
    allowed: u32,
    told: &mut BTreeMap<PathId, PathStatus>,
) -> Option<PathStatus> {
    let cost = cost_of.get(&path).copied().unwrap_or(0);
    let status = match cost <= allowed {
        true => PathStatus::Available,
        false => PathStatus::Backup,
    };
    (told.insert(path, status) != Some(status)).then_some(status)
}

/// What each path costs.
fn prices(paths: &[PathStats], costs: &[Cost]) -> BTreeMap<PathId, u32> {
    let listed = interface_addresses().unwrap_or_default();
    let prices = paths.iter().map(|path| {
        let ip = path.four_tuple.local.ip();
        let is_it = |cost: &&Cost| starts_from(&cost.from, ip, &listed);
        let cost = costs.iter().find(is_it);
        (path.id, cost.map_or(0, |cost| cost.cost))
    });
    prices.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read() {
        let read = parse_cost("127.0.0.1=5").unwrap();
        assert_eq!(read.from, Local::Address([127, 0, 0, 1].into()));
        assert_eq!(read.cost, 5);
        assert_eq!(parse_cost("127.0.0.1=1000").unwrap().cost, 1000);
        for wrong in [
            "",
            "127.0.0.1",
            "127.0.0.1=",
            "127.0.0.1=-1",
            "127.0.0.1=1001",
        ] {
            let told = parse_cost(wrong).unwrap_err();
            assert_eq!(told, "expected IFACE=N or ADDR=N, with N from 0 to 1000");
        }
    }

    /// What is allowed, half a second for half a second, at these rates in Mbit/s.
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
    fn without_a_rate_the_cheapest_that_works_is_used() {
        let mut policy = Policy::new(None);
        let mut now = clock::now();
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
    fn the_rate_is_that_since_the_last_look_of_the_direction_that_counts() {
        let start = clock::now();
        let paths = |received: [u64; 2], sent: [u64; 2]| {
            [0, 1].map(|id| {
                let mut stats = crate::report::live::tests::seen(0, id as u32, received[id]).stats;
                stats.bytes_sent = sent[id];
                stats
            })
        };
        let mut carried = Carried::new(start);
        let mut rate = |millis, paths: &[PathStats]| {
            let now = start + Duration::from_millis(millis);
            carried.rate(now, paths)
        };
        assert_eq!(rate(500, &paths([2000, 1000], [5, 5])), 6000.0);
        assert_eq!(rate(2500, &paths([3000, 3000], [900, 900])), 1500.0);
        // Now more is sent; and a path is gone.
        assert_eq!(rate(3500, &paths([3000, 3000], [4000, 3500])), 1500.0);
        assert_eq!(rate(4500, &paths([3000, 3000], [4000, 3500])[..1]), 0.0);
        assert_eq!(
            rate(4500, &paths([4005, 0], [0, 0])),
            5000.0,
            "at the same moment"
        );
    }

    #[test]
    fn path_cost_is_that_of_its_local_address() {
        let paths = [0, 1, 2].map(|id| crate::report::live::tests::seen(0, id, 0).stats);
        let from = |last, cost| Cost {
            from: Local::Address([192, 0, 2, last].into()),
            cost,
        };
        // The first fitting entry counts; without one, a path costs nothing.
        let costs = [from(11, 7), from(10, 0), from(11, 9)];
        let expected = [(PathId(0), 0), (PathId(1), 7), (PathId(2), 0)];
        assert_eq!(prices(&paths, &costs), BTreeMap::from(expected));
    }

    #[test]
    fn a_path_is_told_once_whether_it_stands_by() {
        let cost_of = BTreeMap::from([(PathId(0), 0), (PathId(1), 5)]);
        let mut told = BTreeMap::new();
        let mut news = |allowed| [0, 1, 2].map(|id| news(PathId(id), &cost_of, allowed, &mut told));
        let (used, backup) = (Some(PathStatus::Available), Some(PathStatus::Backup));
        assert_eq!(news(0), [used, backup, used]);
        assert_eq!(news(4), [None; 3]);
        assert_eq!(news(5), [None, used, None]);
        assert_eq!(news(1), [None, backup, None]);
    }

    #[test]
    fn a_path_that_is_suspect_for_a_moment_counts_as_working() {
        let mut answers = Answers::default();
        let (path, other, start) = (PathId(0), PathId(1), clock::now());
        assert!(answers.works(start, path, PathState::Active));
        let late = start + PATIENCE - Duration::from_millis(1);
        assert!(answers.works(late, path, PathState::Suspect));
        assert!(!answers.works(late, path, PathState::Abandoned));
        // A path seen for the first time may have answered just before.
        assert!(answers.works(late, other, PathState::Suspect));
        assert!(!answers.works(late, other, PathState::Validating));
        assert!(!answers.works(start + PATIENCE, path, PathState::Suspect));
        assert!(answers.works(start + PATIENCE, other, PathState::Suspect));
        assert!(!answers.works(late + PATIENCE, other, PathState::Suspect));
    }

    #[test]
    fn more_is_paid_while_the_cheap_paths_do_not_suffice() {
        let mut policy = Policy::new(Some(Rate::mbit(20)));
        let mut now = clock::now();
        let mut looks =
            |working: &[u32], rates: &[u32]| allowed(&mut policy, &mut now, working, rates);
        let all = [0, 1, 5];
        // A short dip changes nothing.
        assert_eq!(looks(&all, &[20, 10, 10, 10, 20]), [0; 5]);
        // Two seconds of too little do; and then two more.
        assert_eq!(looks(&all, &[10; 10]), [0, 0, 0, 0, 1, 1, 1, 1, 1, 5]);
        assert_eq!(looks(&all, &[10; 20]), [5; 20], "there is nothing dearer");
        // After ten seconds of enough, less is tried, which fails: then after twenty.
        let mut expected = vec![5; 20];
        expected.push(1);
        assert_eq!(looks(&all, &[20; 21]), expected);
        assert_eq!(looks(&all, &[10; 5]), [1, 1, 1, 1, 5]);
        let mut expected = vec![5; 40];
        expected.push(1);
        assert_eq!(looks(&all, &[20; 41]), expected);
        // The cheap ones fail, and come back.
        assert_eq!(looks(&[5], &[20; 2]), [5; 2]);
        assert_eq!(looks(&[0], &[20; 2]), [0; 2]);
    }

    /// After each failed try with cheaper paths, the wait doubles up to a limit. After some time
    /// with enough throughput it starts again.
    #[test]
    fn failed_trials_are_repeated_at_growing_intervals() {
        let mut policy = Policy::new(Some(Rate::mbit(20)));
        let mut now = clock::now();
        let both = [0, 5];
        allowed(&mut policy, &mut now, &[5], &[20]);
        // Looks until less is paid; nine tenths of the rate are enough.
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
        // Six seconds are the limit: after a little less, it has failed.
        let looks = allowed(&mut policy, &mut now, &both, &[18; 6]);
        assert_eq!(looks, [0; 6]);
        too_little(&mut policy, &mut now);
        assert_eq!(until_less(&mut policy, &mut now), 20);
    }
}
