//! The transfers that `benches/policies.rs` measures ask for each scheduler's own rule.

use mpquic_benches::decisions::{Counts, Record, Replay};
use mpquic_core::sched::SchedulerFactory;

const PATHS: [u32; 3] = [2, 4, 8];
const STREAMS: [u64; 3] = [1, 32, 1000];
/// Enough for some transfers of a thousand streams.
const DECISIONS: usize = 2048;
/// Schedulers that begin with lowest-RTT-first's branch: only if the fastest path is full, or if no
/// new data waits, their own rule decides.
const BEGIN_AS_LOWEST_RTT_FIRST: [&str; 6] = [
    "blest",
    "blest-paper",
    "ecf",
    "ecf-kernel",
    "nine-tails",
    "peekaboo",
];
/// Lowest-RTT-first itself, and schedulers that differ from it only while a path has no RTT sample.
const LOWEST_RTT_FIRST: [&str; 3] = ["lrf", "lrf-assume", "lrf-probe"];

fn factory(name: &str) -> std::sync::Arc<dyn SchedulerFactory> {
    mpquic_sched::by_name(name).expect("it is listed")
}

/// The sums over all numbers of paths and streams.
fn count(name: &str) -> Counts {
    let mut all = Counts::default();
    for paths in PATHS {
        for streams in STREAMS {
            let counts = Record::new(&*factory(name), paths, streams, DECISIONS).counts;
            all.decisions += counts.decisions;
            all.own += counts.own;
            all.fast_full += counts.fast_full;
            all.waits += counts.waits;
            all.idle += counts.idle;
            all.lost_waiting += counts.lost_waiting;
            all.sent += counts.sent;
            all.acked += counts.acked;
            all.lost += counts.lost;
        }
    }
    all
}

/// All paths are measured and usable, so no scheduler meets the cases without a choice.
#[test]
fn each_scheduler_follows_its_own_rule_in_at_least_half_of_the_decisions() {
    println!(
        "per cent of decisions: unlike lrf's, fast path full, waits, no new data, lost data waits"
    );
    for info in mpquic_sched::list() {
        let counts = count(info.name);
        let share = |number: u64| 100 * number / counts.decisions;
        println!(
            "{:22} {:3} {:3} {:3} {:3} {:3}",
            info.name,
            share(counts.own),
            share(counts.fast_full),
            share(counts.waits),
            share(counts.idle),
            share(counts.lost_waiting)
        );
        let name = info.name;
        assert!(counts.acked > 0 && counts.lost > 0, "{name}: {counts:?}");
        // Lost data comes before the plans of all schedulers.
        assert!(share(counts.lost_waiting) < 10, "{name}: {counts:?}");
        if BEGIN_AS_LOWEST_RTT_FIRST.contains(&name) {
            assert!(share(counts.own) >= 50, "{name}: {counts:?}");
        }
        let is_unlike = !LOWEST_RTT_FIRST.contains(&name);
        assert_eq!(counts.own > 0, is_unlike, "{name}: {counts:?}");
    }
}

#[test]
fn a_replay_gets_the_recorded_decisions() {
    for info in mpquic_sched::list() {
        let factory = factory(info.name);
        let record = Record::new(&*factory, 4, 32, DECISIONS);
        let mut replay = Replay::new(&record, &*factory);
        // The second round begins anew.
        for number in 0..2 * DECISIONS {
            let (now, recorded) = replay.decide();
            assert_eq!(now, *recorded, "{} {number}", info.name);
        }
    }
}
