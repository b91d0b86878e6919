//! `mpquic perf`.

pub(crate) mod args;
pub(crate) mod datagram;
pub(crate) mod report;
pub(crate) mod stream;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::try_join_all;
use mpquic_core::{PathId, PathStats};
use mpquic_tokio::{Connection, SendDatagramError};
use tokio::time::{Instant, MissedTickBehavior, sleep, sleep_until, timeout};

use crate::client::backup::{BACKUP, is_backup};
use crate::client::knock;
use crate::client::protocol::RequestError;
use crate::client::session::{Purpose, Sessions};
use crate::options::Alpn;
use crate::perf::args::{Perf, Test};
use crate::perf::datagram::Tally;
use crate::perf::report::{Connected, Datagrams, Event, Measured, PathFigures, tell};
use crate::perf::stream::{Client, HEADER, lost};
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::report::latency::{Bufferbloat, Latencies, Spread};
use crate::report::live::Direction;
use crate::report::live_terminal::beside;
use crate::report::{Amount, key_exchange, path_counters, with_earlier};

/// Pause between an answer and the next measurement of latency.
const PROBE_PAUSE: Duration = Duration::from_millis(20);
/// Interval of the samples of path round trips.
const LOOK: Duration = Duration::from_millis(50);
/// Time for a connection to open all of its paths before a measurement.
const PATHS_OPEN: Duration = Duration::from_secs(1);
/// Longest wait for DATAGRAMs on their way.
const LATE: Duration = Duration::from_millis(500);
/// DATAGRAMs due within this time leave together, because timers are no finer.
const TICK: Duration = Duration::from_millis(1);

/// Connects, runs the tests one after another, and closes.
pub(crate) async fn run(args: Perf) -> Result<(), Failure> {
    let urls = [args.server.clone()];
    let purpose = Purpose {
        urls: &urls,
        alpn: &[Alpn::Perf],
        early_data: false,
        quiet: true,
        datagrams: args.test.contains(&Test::Datagrams),
        rate: None,
        backup: &args.preference.backup,
        weights: &[],
        costs: &args.preference.cost,
    };
    let sessions = Sessions::new(&args.reach, purpose)?;
    let server = args.server.authority().map(|authority| authority.as_str());
    let server = server.unwrap_or_default();
    let view = args.live.view(server, Direction::Both);
    let measured = beside(view, || sessions.shown(), measure(&args, &sessions, server)).await;
    sessions.close().await;
    measured.map_err(|failure| failure.about(server))
}

async fn measure(args: &Perf, sessions: &Sessions<'_>, server: &str) -> Result<(), Failure> {
    let began = Instant::now();
    let connected = sessions.connection(&args.server).await?;
    let connection = connected.connection;
    let seconds = began.elapsed().as_secs_f64();
    let event = Event::Connected(Connected {
        server: server.to_owned(),
        seconds,
        multipath: connection.is_multipath(),
        quic_version: connection.version().to_string(),
        key_exchange: key_exchange(&connection),
    });
    tell(&event, args.json);
    all_paths(&connection).await;
    let client = Client {
        connection,
        stall: args.stall.limit(),
    };
    let mut idle = None;
    for test in &args.test {
        let measurement = Measurement {
            args,
            client: &client,
            test: *test,
            began: Instant::now(),
            idle,
            counts: Counts::default(),
            latencies: RefCell::default(),
            tally: RefCell::new(Tally::new(clock::now())),
            paths: RefCell::new(PathWatch::new(&client.connection)),
        };
        let latency = measurement.run().await?;
        if *test == Test::Latency {
            idle = latency;
        }
    }
    Ok(())
}

/// Waits until all paths are open, or for [`PATHS_OPEN`].
async fn all_paths(connection: &Connection) {
    if !connection.is_multipath() {
        return;
    }
    let open = || {
        let paths = connection.path_stats().into_iter();
        paths.map(|path| (path.id, path.state)).collect::<Vec<_>>()
    };
    let settled = async {
        let mut before = Vec::new();
        loop {
            // A path takes a round trip to begin, and a few more for its validation.
            let rtt = connection.rtt().unwrap_or_default();
            sleep(4 * rtt + LOOK).await;
            let now = open();
            if now == before {
                return;
            }
            before = now;
        }
    };
    let _ = timeout(PATHS_OPEN, settled).await;
}

/// Bytes since the start of a measurement, and the time of the last byte of each direction once
/// complete.
#[derive(Debug, Default)]
struct Counts {
    down: Cell<u64>,
    up: Cell<u64>,
    down_end: Cell<Option<f64>>,
    up_end: Cell<Option<f64>>,
}

/// The paths at the start, and their round trips since then.
struct PathWatch {
    first: Vec<PathStats>,
    rtts: BTreeMap<PathId, Latencies>,
}

impl PathWatch {
    fn new(connection: &Connection) -> Self {
        Self {
            first: path_counters(connection),
            rtts: BTreeMap::new(),
        }
    }

    fn look(&mut self, paths: &[PathStats]) {
        for path in paths {
            self.rtts.entry(path.id).or_default().add(path.rtt);
        }
    }

    fn figures(&self, before: &[PathStats], after: &[PathStats], time: f64) -> Vec<PathFigures> {
        let none = Latencies::default();
        let figures = with_earlier(before, after).map(|(before, path)| {
            let rtts = self.rtts.get(&path.id).unwrap_or(&none);
            PathFigures::new(before, path, time, rtts)
        });
        figures.collect()
    }
}

/// The counters at the start of an interval.
struct Reading {
    at: f64,
    down: u64,
    up: u64,
    samples: usize,
    paths: Vec<PathStats>,
}

/// A running measurement.
struct Measurement<'a> {
    args: &'a Perf,
    client: &'a Client,
    test: Test,
    began: Instant,
    /// Latency without load, if measured.
    idle: Option<Spread>,
    counts: Counts,
    latencies: RefCell<Latencies>,
    tally: RefCell<Tally>,
    paths: RefCell<PathWatch>,
}

impl Measurement<'_> {
    /// Runs the test, prints the result, and returns the latency.
    async fn run(&self) -> Result<Option<Spread>, Failure> {
        let until = self.began + self.args.time;
        let work = async {
            match self.test {
                Test::Latency => self.probe(until).await,
                Test::Download => self.load(until, true, false).await,
                Test::Upload => self.load(until, false, true).await,
                Test::Both => self.load(until, true, true).await,
                Test::Requests => self.requests(until).await,
                Test::Datagrams => self.datagrams(until).await,
            }
        };
        tokio::select! {
            result = work => result?,
            result = self.watch() => result?,
        }
        let end = self.began.elapsed().as_secs_f64();
        let first = Reading {
            at: 0.0,
            down: 0,
            up: 0,
            samples: 0,
            paths: self.paths.borrow().first.clone(),
        };
        let measured = self.since(&first, end);
        let latency = measured.latency;
        let bufferbloat = match self.test {
            Test::Download | Test::Upload | Test::Both => {
                let both = self.idle.zip(latency);
                both.map(|(idle, loaded)| Bufferbloat::new(idle, loaded))
            }
            Test::Latency | Test::Requests | Test::Datagrams => None,
        };
        let result = Event::Result(Measured {
            bufferbloat,
            ..measured
        });
        tell(&result, self.args.json);
        Ok(latency)
    }

    /// Samples the paths and prints the progress, until the connection is lost. After some silence
    /// of the server, a probe asks the server's system whether a program listens on the port.
    async fn watch(&self) -> Result<(), Failure> {
        let until_gone = || knock::until_gone(self.client.connection.remote_address());
        let mut gone = pin!(until_gone());
        let mut heard = 0;
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = self.began + self.args.interval;
        let mut last = self.read();
        loop {
            tokio::select! {
                error = self.client.connection.closed() => return Err(lost(error)),
                () = &mut gone => return Err(RequestError::Gone.into()),
                _ = looks.tick() => {}
            }
            let paths = self.client.connection.path_stats();
            let packets = paths.iter().map(|path| path.packets_received).sum::<u64>();
            if packets != heard {
                heard = packets;
                gone.set(until_gone());
            }
            self.paths.borrow_mut().look(&paths);
            if !self.args.interval.is_zero() && Instant::now() >= next {
                next += self.args.interval;
                let now = self.read();
                tell(&Event::Interval(self.since(&last, now.at)), self.args.json);
                last = now;
            }
        }
    }

    fn read(&self) -> Reading {
        Reading {
            at: self.began.elapsed().as_secs_f64(),
            down: self.counts.down.get(),
            up: self.counts.up.get(),
            samples: self.latencies.borrow().len(),
            paths: path_counters(&self.client.connection),
        }
    }

    /// The difference between a reading and the current counters.
    fn since(&self, before: &Reading, end: f64) -> Measured {
        let now = self.read();
        let time = end - before.at;
        let is = |tests: &[Test]| tests.contains(&self.test);
        // The last bytes of an upload may arrive long after the last bytes of a download.
        let amount = |bytes, end: &Cell<Option<f64>>| {
            let end = end.get().filter(|end| *end > before.at);
            Amount::new(bytes, end.map_or(time, |end| end - before.at))
        };
        let Counts {
            down_end, up_end, ..
        } = &self.counts;
        let latencies = self.latencies.borrow();
        let samples = now.samples.saturating_sub(before.samples);
        let requests = samples as f64 / time.max(1e-9);
        Measured {
            test: self.test.name(),
            start: before.at,
            end,
            download: is(&[Test::Download, Test::Both])
                .then(|| amount(now.down - before.down, down_end)),
            upload: is(&[Test::Upload, Test::Both]).then(|| amount(now.up - before.up, up_end)),
            requests_per_second: is(&[Test::Requests]).then_some(requests),
            datagrams: is(&[Test::Datagrams]).then(|| datagrams(&self.tally.borrow())),
            latency: latencies.spread_since(before.samples),
            bufferbloat: None,
            paths: self.figures(before, &now, time),
        }
    }

    /// The figures of the paths, which say what stands by.
    fn figures(&self, before: &Reading, now: &Reading, time: f64) -> Vec<PathFigures> {
        let paths = self.paths.borrow();
        let mut figures = paths.figures(&before.paths, &now.paths, time);
        let connection = &self.client.connection;
        for path in figures.iter_mut().filter(|path| path.state == "active") {
            if is_backup(connection, PathId(path.id)) {
                path.state = BACKUP;
            }
        }
        figures
    }

    /// Measures the latency of the smallest request, again and again.
    async fn probe(&self, until: Instant) -> Result<(), Failure> {
        while Instant::now() < until {
            let latency = self.client.ask(HEADER as u64, 1).await?;
            self.latencies.borrow_mut().add(latency);
            sleep_until(until.min(Instant::now() + PROBE_PAUSE)).await;
        }
        Ok(())
    }

    /// Downloads and uploads, and measures latency meanwhile.
    async fn load(&self, until: Instant, down: bool, up: bool) -> Result<(), Failure> {
        let add = |count: &Cell<u64>, bytes| count.set(count.get() + bytes);
        let streams = 0..self.args.streams;
        let downloads = streams.clone().filter(|_| down).map(|_| {
            let on_bytes = |bytes| add(&self.counts.down, bytes);
            self.client.download(until, on_bytes)
        });
        let uploads = streams.filter(|_| up).map(|_| {
            let on_bytes = |bytes| add(&self.counts.up, bytes);
            self.client.upload(until, on_bytes)
        });
        let over = |end: &Cell<Option<f64>>| end.set(Some(self.began.elapsed().as_secs_f64()));
        let downloads = async {
            try_join_all(downloads).await?;
            over(&self.counts.down_end);
            Ok(())
        };
        let uploads = async {
            try_join_all(uploads).await?;
            over(&self.counts.up_end);
            Ok(())
        };
        tokio::try_join!(downloads, uploads, self.probe(until))?;
        Ok(())
    }

    /// Keeps `parallel` requests open: each further request follows an answer.
    async fn requests(&self, until: Instant) -> Result<(), Failure> {
        let one = || async {
            let (size, wanted) = (self.args.request_size, self.args.response_size);
            while Instant::now() < until {
                let latency = self.client.ask(size.into(), wanted.into()).await?;
                self.latencies.borrow_mut().add(latency);
            }
            Ok::<_, Failure>(())
        };
        try_join_all((0..self.args.parallel).map(|_| one())).await?;
        Ok(())
    }

    /// Sends DATAGRAMs at their rate, and counts returned DATAGRAMs.
    async fn datagrams(&self, until: Instant) -> Result<(), Failure> {
        let connection = &self.client.connection;
        let size = self.args.datagram_size as usize;
        let Some(most) = connection.max_datagram_size() else {
            let message = "the server takes no DATAGRAMs; leave datagrams out of --test";
            return Err(Cause::Refused.failed(message));
        };
        if size > most {
            return Err(Failure::usage(format!(
                "--datagram-size {size} does not fit the paths; expected at most {most}"
            )));
        }
        let sending = async {
            let each = Duration::from_secs_f64(
                size as f64 / self.args.datagram_rate.bytes_per_second() as f64,
            );
            let mut due = Instant::now();
            while due < until {
                sleep_until(due).await;
                while due < until && due <= Instant::now() + TICK {
                    let datagram = self.tally.borrow_mut().next(size, clock::now());
                    match connection.send_datagram_wait(datagram).await {
                        Ok(()) => due += each,
                        // A new path has a smaller MTU, so the DATAGRAM is lost.
                        Err(SendDatagramError::TooLarge) => due += each,
                        Err(error) => return Err(not_sent(connection, &error)),
                    }
                }
            }
            let all_back = async {
                while self.tally.borrow().back < self.tally.borrow().sent {
                    sleep(TICK).await;
                }
            };
            let _ = timeout(LATE, all_back).await;
            Ok(())
        };
        tokio::select! {
            result = sending => result,
            result = self.take_datagrams() => result,
        }
    }

    async fn take_datagrams(&self) -> Result<(), Failure> {
        loop {
            let datagram = self.client.connection.read_datagram().await;
            let datagram = datagram.map_err(lost)?;
            let mut tally = self.tally.borrow_mut();
            if let Some(latency) = tally.on_back(&datagram, clock::now()) {
                self.latencies.borrow_mut().add(latency);
            }
        }
    }
}

fn not_sent(connection: &Connection, error: &SendDatagramError) -> Failure {
    match connection.close_reason() {
        Some(error) => lost(error),
        None => Failure::other(error),
    }
}

fn datagrams(tally: &Tally) -> Datagrams {
    let losses = tally.losses();
    Datagrams {
        sent: tally.sent,
        returned: tally.back,
        upload_loss: losses.map(|(there, _)| there),
        download_loss: losses.map(|(_, back)| back),
        upload_jitter_ms: tally.there_jitter.millis(),
        download_jitter_ms: tally.back_jitter.millis(),
    }
}

#[cfg(test)]
mod tests;
