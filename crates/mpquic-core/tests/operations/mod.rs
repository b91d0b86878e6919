//! Random topologies, configurations and operations of network, client and server: whatever
//! happens, no invariant breaks, every transfer completes once the network works again, and no
//! state is left.
//!
//! The reference model is plain: bytes are a function of stream, direction and offset, so that each
//! must arrive once and in its place, and all of them; DATAGRAMs are numbered; resets, stops and
//! the end of the connection are what the other side asked for. The simulator watches the wire for
//! nonces used twice, for datagrams beyond the window or three times what came, and for statistics
//! that do not add up.
//!
//! `OPERATIONS=100000` sets the number of sequences of each test, `SEED=n` lets others follow. By
//! default they are few, to be quick; CI runs ten times as many.

mod found;
mod operation;
mod reasons;
mod recorded;
mod run;
pub(crate) mod setup;

use operation::operation;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestRunner};
use run::Run;
use setup::Sides;

fn number(variable: &str, default: u32) -> u32 {
    let given = std::env::var(variable);
    given.map_or(default, |value| value.parse().unwrap())
}

fn sequences(tls: bool, cases: u32) {
    let config = ProptestConfig {
        cases: number("OPERATIONS", cases),
        rng_seed: RngSeed::Fixed(number("SEED", 0).into()),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/operations.regressions",
        ))),
        ..ProptestConfig::default()
    };
    let operations = proptest::collection::vec((operation(), 0..400u32), 5..40);
    let result = TestRunner::new(config).run(&(any::<u64>(), operations), |(seed, operations)| {
        let run = Run::new(seed, tls, Sides::Apart);
        if run.is_some_and(|mut run| run.run(&operations)) {
            return Ok(());
        }
        Err(TestCaseError::reject("the network lost the handshake"))
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn random_operations() {
    sequences(false, 300);
}

#[test]
fn random_operations_with_tls() {
    sequences(true, 300);
}
