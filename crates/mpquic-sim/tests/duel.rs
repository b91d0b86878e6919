//! A connection over several paths beside one over one path, through the same bottleneck.

use std::time::Duration;

use mpquic_sim::{Pair, Setup, Side, Topology};

/// Who meets, and for how long.
pub(crate) struct Duel<'a> {
    /// Controllers, of the connection over several paths and of the other one.
    pub(crate) multipath: &'a str,
    pub(crate) single: &'a str,
    /// Of the connection over several; the other one has the next.
    pub(crate) paths: usize,
    /// What arrives in the first part of the time does not count.
    pub(crate) settling: Duration,
    pub(crate) counted: Duration,
}

impl Duel<'_> {
    /// How many times the single path's share the other connection took.
    pub(crate) fn run(&self, topology: &Topology, seed: u64) -> f64 {
        let mut pair = connected(topology, self.multipath, seed);
        for path in 1..self.paths {
            let opened =
                pair.open_path(&format!("path {path}"), mpquic_core::PathStatus::Available);
            assert!(opened.is_ok());
        }
        pair.send(Side::Client, 1 << 40);
        pair.setup_mut().client.controller = mpquic_cc::by_name(self.single).unwrap();
        pair.connect_over(self.paths);
        pair.run_until_confirmed(Duration::from_secs(1)).unwrap();
        pair.send(Side::Client, 1 << 40);
        pair.drive(self.settling);
        let before = received(&pair);
        pair.drive(self.counted);
        let after = received(&pair);
        let got = |index: usize| (after[index] - before[index]) as f64;
        got(0) / got(1)
    }
}

/// A connection that sends nothing yet.
pub(crate) fn connected(topology: &Topology, controller: &str, seed: u64) -> Pair {
    let scheduler = mpquic_sched::by_name("lrf").unwrap();
    let controller = mpquic_cc::by_name(controller).unwrap();
    let mut setup = Setup::with_policies(scheduler, controller).seed(seed);
    setup.checks = false;
    Pair::connected(topology, setup)
}

/// Bytes the server got, connection by connection.
pub(crate) fn received(pair: &Pair) -> Vec<u64> {
    let server = pair.host(pair.host_id(Side::Server));
    let connections = server.connections().iter();
    connections
        .map(|hosted| hosted.application.received())
        .collect()
}
