//! The outage of `mpquic demo`: a link is cut while data flows, and comes back.

use std::sync::Arc;
use std::time::Duration;

use mpquic_tokio::Connection;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::args::Demo;
use crate::count::Count;
use crate::relay::Relay;

/// When the link is cut, and when it is back, percent of the file.
const CUT: u64 = 40;
const BACK: u64 = 70;
/// How often is looked.
const LOOK: Duration = Duration::from_millis(2);
/// What a path receives that only answers probes, bytes.
const PROBES: u64 = 64 << 10;

/// What became of it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Told {
    /// How long the link was cut.
    cut_ms: Option<f64>,
    /// How long after it was back it carried data again.
    pub(crate) used_again_ms: Option<f64>,
}

/// An outage, at its time.
pub(crate) struct Outage<'a> {
    relay: Relay,
    connection: &'a Connection,
    count: Arc<Count>,
    length: u64,
    quiet: bool,
    pub(crate) told: Told,
}

impl<'a> Outage<'a> {
    pub(crate) fn new(
        args: &Demo,
        relay: Relay,
        connection: &'a Connection,
        count: Arc<Count>,
    ) -> Self {
        Self {
            relay,
            connection,
            count,
            length: args.mib << 20,
            quiet: args.json,
            told: Told::default(),
        }
    }

    /// Cuts the link, and mends it. Does not end.
    pub(crate) async fn run(&mut self) {
        self.until(CUT).await;
        self.say("one link is cut");
        self.relay.cut(true);
        let cut = Instant::now();
        self.until(BACK).await;
        self.say("it is back");
        self.told.cut_ms = Some(millis(cut));
        self.relay.cut(false);
        let (back, before) = (Instant::now(), self.carried());
        while self.carried() < before + PROBES {
            sleep(LOOK).await;
        }
        self.told.used_again_ms = Some(millis(back));
        std::future::pending().await
    }

    async fn until(&self, percent: u64) {
        while self.count.received() * 100 < self.length * percent {
            sleep(LOOK).await;
        }
    }

    /// Bytes received over the link.
    fn carried(&self) -> u64 {
        let paths = self.connection.path_stats().into_iter();
        let over = paths.filter(|path| path.four_tuple.remote == self.relay.address());
        over.map(|path| path.bytes_received).sum()
    }

    fn say(&self, what: &str) {
        if !self.quiet {
            let percent = self.count.received() * 100 / self.length.max(1);
            eprintln!("{percent} %: {what}");
        }
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
