//! Managers that break the rules cost paths, never correctness.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mpquic_core::{FourTuple, PathId, PathState, PathStatus};
use mpquic_paths::{Action, Event, Managed, Outcome, PathManager, View, factory};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const SECOND: Duration = Duration::from_secs(1);

/// A manager that returns the same action at each poll, with a timeout in the past.
#[derive(Debug)]
struct Stubborn {
    says: Option<Action>,
    /// The outcomes that the manager received, and the number of polls.
    told: Arc<Told>,
    began: Option<Instant>,
}

#[derive(Debug, Default)]
struct Told {
    polls: AtomicUsize,
    refused: AtomicUsize,
    later: AtomicUsize,
}

impl PathManager for Stubborn {
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>) {
        self.began.get_or_insert(view.now);
        let count = match event {
            Event::Applied(_, Outcome::Refused) => &self.told.refused,
            Event::Applied(_, Outcome::Later) => &self.told.later,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn poll(&mut self, _: &View<'_>) -> Option<Action> {
        self.told.polls.fetch_add(1, Ordering::Relaxed);
        self.says
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.began
    }

    fn name(&self) -> &'static str {
        "stubborn"
    }
}

/// Runs a connection whose manager always returns this action, for a second and a transfer of 100
/// kB.
fn run(says: impl Fn(FourTuple) -> Option<Action> + Send + Sync + 'static) -> (Pair, Arc<Told>) {
    let link = LinkConfig::new(20.0, Duration::from_millis(10));
    let mut pair = Pair::new(&Topology::new().path("a", link), Setup::new());
    pair.connect();
    let told = Arc::new(Told::default());
    let seen = told.clone();
    let manager = factory("stubborn", move |start| {
        Box::new(Stubborn {
            says: says(start.first),
            told: seen.clone(),
            began: None,
        })
    });
    pair.manage_paths(&*manager);
    pair.drive(SECOND);
    pair.transfer(Side::Server, 100_000, SECOND);
    let stats = pair.client().path_stats(PathId::ZERO);
    assert_eq!(stats.map(|stats| stats.state), Some(PathState::Active));
    (pair, told)
}

fn count(of: &AtomicUsize) -> usize {
    of.load(Ordering::Relaxed)
}

#[test]
fn last_path_is_not_closed_and_a_run_ends_after_256_actions() {
    let (_, told) = run(|_| Some(Action::Close { path: PathId::ZERO }));
    let refused = count(&told.refused);
    assert!(refused > 0 && refused.is_multiple_of(Managed::MOST_ACTIONS));
    assert_eq!(count(&told.polls), refused);
}

#[test]
fn actions_on_unknown_paths_are_refused() {
    let path = PathId(7);
    let status = PathStatus::Backup;
    let (_, told) = run(move |_| Some(Action::SetStatus { path, status }));
    assert_eq!(count(&told.refused), count(&told.polls));
    let (_, told) = run(move |_| Some(Action::Suspend { path }));
    assert_eq!(count(&told.refused), count(&told.polls));
}

/// Paths cannot open before the handshake is complete, nor beyond the server's limit.
#[test]
fn no_more_paths_open_than_the_server_allows() {
    let (mut pair, told) = run(|four_tuple| {
        let status = PathStatus::Available;
        Some(Action::Open { four_tuple, status })
    });
    assert!(count(&told.later) > Managed::MOST_ACTIONS);
    assert!(pair.client().paths().count() <= 32);
}

#[test]
fn timeout_in_the_past_counts_as_one_in_a_millisecond() {
    let (_, told) = run(|_| None);
    let polls = count(&told.polls);
    assert!((500..5000).contains(&polls), "{polls} polls in two seconds");
}
