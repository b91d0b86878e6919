//! Other policies for a connection that runs.

use std::time::Duration;

use mpquic_core::PathId;
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn pair() -> Pair {
    let topology = Topology::new()
        .path("short", LinkConfig::new(20.0, 10 * MS))
        .path("long", LinkConfig::new(10.0, 40 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    pair
}

/// Bytes that the client's paths have sent.
fn sent(pair: &mut Pair) -> [u64; 2] {
    let client = pair.client();
    let sent = |id| {
        client
            .path_stats(PathId(id))
            .map_or(0, |path| path.bytes_sent)
    };
    [sent(0), sent(1)]
}

#[test]
fn another_scheduler_decides_from_the_change_on() {
    let mut pair = pair();
    pair.send(Side::Client, 1 << 40);
    pair.drive(2 * SECOND);
    let before = sent(&mut pair);
    assert!(before[1] > 500_000, "both paths carry data: {before:?}");
    let backup = mpquic_sched::by_name("backup").unwrap();
    pair.client().policies().set_scheduler(&*backup);
    pair.drive(SECOND);
    let start = sent(&mut pair);
    pair.drive(3 * SECOND);
    let end = sent(&mut pair);
    assert!(
        end[1] - start[1] < 20_000,
        "one path is enough: {start:?} {end:?}"
    );
    assert!(end[0] - start[0] > 3_000_000, "{start:?} {end:?}");
    // And back.
    pair.client()
        .policies()
        .set_scheduler(&*mpquic_sched::default());
    pair.drive(3 * SECOND);
    let last = sent(&mut pair);
    assert!(last[1] - end[1] > 1_000_000, "{end:?} {last:?}");
}

/// Every scheduler and every controller takes over in the middle of a transfer, and all data
/// arrives.
#[test]
fn each_policy_takes_over_a_transfer() {
    let mut pair = pair();
    pair.send(Side::Client, 60_000_000);
    pair.send(Side::Client, 1_000_000);
    for info in mpquic_sched::list() {
        let scheduler = mpquic_sched::by_name(info.name).unwrap();
        pair.client().policies().set_scheduler(&*scheduler);
        pair.drive(300 * MS);
    }
    pair.client()
        .policies()
        .set_scheduler(&*mpquic_sched::default());
    for info in mpquic_cc::list() {
        let controller = mpquic_cc::by_name(info.name).unwrap();
        let now = pair.time(Side::Client);
        assert!(pair.client().policies().set_controller(now, &*controller));
        let before = sent(&mut pair);
        pair.drive(SECOND);
        let after = sent(&mut pair);
        let carried = after[0] + after[1] - before[0] - before[1];
        assert!(carried > 1_000_000, "{}: {carried}", info.name);
    }
    pair.run_transfers(120 * SECOND).unwrap();
}

/// Marks of a connection stay the same: a queue for ECT(1) expects other answers to its marks.
#[test]
fn a_controller_with_other_marks_is_refused() {
    let mut pair = pair();
    let controller = mpquic_cc::by_name(mpquic_cc::experimental()[0].name).unwrap();
    let now = pair.time(Side::Client);
    assert!(!pair.client().policies().set_controller(now, &*controller));
    pair.transfer(Side::Client, 1_000_000, 10 * SECOND);
}
