//! A decision must not allocate memory once the scheduler has seen its paths and streams.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::world::{Step, World, any_steps};
use crate::testing::start;
use crate::{by_name, list, published, reinjections};

/// Allocations of a scheduler in the third run of the same steps.
fn allocations(name: &str, steps: &[Step]) -> u64 {
    let mut scheduler = by_name(name).expect("a listed name").build();
    let mut world = World::new(start());
    for _ in 0..3 {
        world.allocations = 0;
        for step in steps {
            let decisions = world.step(scheduler.as_mut(), step);
            decisions.expect("legal decisions");
        }
    }
    world.allocations
}

#[test]
fn decisions_do_not_allocate_once_warm() {
    let mut runner = TestRunner::deterministic();
    let steps = any_steps(8);
    let mut all = Vec::new();
    while all.len() < 600 {
        all.extend(steps.new_tree(&mut runner).expect("steps").current());
    }
    let policies: Vec<_> = reinjections().iter().map(|info| info.name).collect();
    for info in list().iter().chain(published()) {
        let wrapped = format!("{}+{}", info.name, policies.join("+"));
        for name in [info.name, &wrapped] {
            assert_eq!(allocations(name, &all), 0, "{name}");
        }
    }
}
