//! The outage of `mpquic demo`: a link is cut while data flows, and comes back.

use std::sync::Arc;
use std::time::Duration;

use mpquic_tokio::Connection;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::demo::args::Demo;
use crate::demo::relay::Relay;
use crate::get::count::Count;
use crate::process::screen;

/// The start and the end of the cut, in percent of the file.
const CUT: u64 = 40;
const BACK: u64 = 70;
/// Interval of the checks.
const LOOK: Duration = Duration::from_millis(2);
/// More bytes than a path receives as answers to probes.
const PROBES: u64 = 64 << 10;

/// The times of an outage.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Told {
    /// Duration of the cut.
    cut_ms: Option<f64>,
    /// Time from the link's return until it carried data.
    pub(crate) used_again_ms: Option<f64>,
}

/// An outage of one link during a download.
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

    /// Cuts the link, and restores the link. Stays pending.
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
            screen::say(format_args!("{percent} %: {what}"));
        }
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use clap::Parser;
    use tokio::time::timeout;

    use super::*;
    use crate::options::Alpn;
    use crate::perf::stream::Client;
    use crate::process::screen::tests::Heard;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, pair, soon};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        demo: Demo,
    }

    /// Runs for a moment, so that the outage takes all due steps.
    async fn runs(outage: &mut Outage<'_>, received: u64) {
        outage.count.received.store(received, Ordering::Relaxed);
        let _ = timeout(10 * LOOK, outage.run()).await;
    }

    /// A link is cut from two fifths of the file to seven tenths, and is used again once it carries
    /// more than probes.
    #[tokio::test]
    async fn a_link_is_cut_and_comes_back() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
        let local = served.address.ip();
        let relay = Relay::start(local, served.address).await.unwrap();
        let connecting = served.connect_to(relay.address(), 1 << 20);
        let connection = soon(connecting).await.unwrap();
        let args = Line::try_parse_from(["x", "--mib", "2"]).unwrap().demo;
        let mut outage = Outage::new(&args, relay, &connection, Arc::default());
        assert_eq!(outage.length, 2 << 20);
        outage.length = 1000;
        let heard = Heard::begin();
        runs(&mut outage, 399).await;
        assert!(!outage.relay.is_cut());
        assert_eq!(heard.take(), ["", ""]);
        for received in [400, 699] {
            runs(&mut outage, received).await;
            assert!(outage.relay.is_cut() && outage.told.cut_ms.is_none());
            let [_, said] = heard.take();
            assert_eq!(said, format!("{} %: one link is cut\n", received / 10));
        }
        runs(&mut outage, 700).await;
        assert!(!outage.relay.is_cut() && outage.told.cut_ms.is_some());
        let [_, said] = heard.take();
        assert_eq!(said, "70 %: one link is cut\n70 %: it is back\n");
        assert_eq!(outage.told.used_again_ms, None, "nothing has come over it");
        // The connection has one path, so the link carries all of the connection's received bytes.
        let before = outage.carried();
        assert!(before > 0 && before <= connection.stats().bytes_received);
        let client = Client {
            connection: connection.clone(),
            stall: Duration::from_secs(10),
        };
        outage.quiet = true;
        tokio::select! {
            () = outage.run() => unreachable!("it does not end"),
            asked = soon(client.ask(8, 2 * PROBES)) => drop(asked.unwrap()),
        }
        runs(&mut outage, 700).await;
        let carried = outage.carried() - before;
        assert!(carried > 2 * PROBES, "{carried}");
        assert_eq!(heard.take(), ["", ""]);
    }

    #[tokio::test]
    async fn returned_link_counts_as_used_after_more_than_probes() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
        let relay = Relay::start(served.address.ip(), served.address);
        let relay = relay.await.unwrap();
        let connecting = served.connect_to(relay.address(), 1 << 20);
        let connection = soon(connecting).await.unwrap();
        let count = Arc::new(Count::default());
        count.received.store(1, Ordering::Relaxed);
        let mut outage = Outage {
            relay,
            connection: &connection,
            count,
            length: 1,
            quiet: true,
            told: Told::default(),
        };
        let client = Client {
            connection: connection.clone(),
            stall: Duration::from_secs(10),
        };
        // Fewer bytes than `PROBES` may be probes.
        for (bytes, is_used) in [(PROBES / 2, false), (2 * PROBES, true)] {
            let asked = async {
                soon(client.ask(8, bytes)).await.unwrap();
                tokio::time::sleep(10 * LOOK).await;
            };
            tokio::select! {
                () = outage.run() => unreachable!("it does not end"),
                () = asked => {}
            }
            assert_eq!(outage.told.used_again_ms.is_some(), is_used, "{bytes}");
        }
    }

    /// A link without traffic, and the outage of a file of 1000 bytes.
    async fn of_a_thousand_bytes(connection: &Connection) -> Outage<'_> {
        let (local, nobody) = ([127, 0, 0, 1].into(), ([127, 0, 0, 1], 9).into());
        Outage {
            relay: Relay::start(local, nobody).await.unwrap(),
            connection,
            count: Arc::default(),
            length: 1000,
            quiet: true,
            told: Told::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn outage_checks_progress_every_two_milliseconds() {
        let pair = pair(Alpn::Perf).await;
        let mut outage = of_a_thousand_bytes(&pair.client).await;
        let count = outage.count.clone();
        let received = |bytes| count.received.store(bytes, Ordering::Relaxed);
        received(400);
        let arrives = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            received(700);
            tokio::time::sleep(10 * LOOK).await;
        };
        tokio::select! {
            () = outage.run() => unreachable!("it does not end"),
            () = arrives => {}
        }
        assert_eq!(outage.told.cut_ms, Some(2.0));
        assert_eq!(outage.told.used_again_ms, None);
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_told_in_milliseconds() {
        let since = Instant::now();
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(millis(since), 1500.0);
    }
}
