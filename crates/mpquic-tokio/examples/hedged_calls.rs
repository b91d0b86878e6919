//! Remote calls that are not held up by one path: a call without an answer in the usual time is
//! made once more, on two paths. The server runs each call once and answers both. Compared with
//! calls that are made once, and with calls that are made twice from the start, over links that
//! lose packets in bursts and of which one is dead for two seconds.
//!
//! ```text
//! cargo run --release -p mpquic-tokio --example hedged_calls
//! ```
//!
//! Nothing is waited for: the network is in memory, and the clock is tokio's, paused.

#[path = "live_media/link.rs"]
mod link;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use link::{Conditions, Link};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, MemoryNetwork, ServerConfig, certificate_fingerprint,
};
use tokio::runtime::Builder;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

type Failure = Box<dyn Error + Send + Sync>;

const ALPN: &[&[u8]] = &[b"calls"];
/// Of one client, which makes a new call each time, whatever became of those before.
const EVERY: Duration = Duration::from_millis(10);
const REQUEST: usize = 200;
const ANSWER: usize = 2000;
/// What the server takes to run a call.
const WORK: Duration = Duration::from_millis(5);
/// One way.
const DELAY: Duration = Duration::from_millis(15);
/// When the first link is dead.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(5));
/// How many answers the server keeps for calls that are made again.
const KEPT: usize = 1000;

/// When a call is made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hedge {
    Never,
    /// If there is no answer after a round trip, the work, and half as much again.
    WhenLate,
    Always,
}

const HEDGES: [(Hedge, &str); 3] = [
    (Hedge::Never, "made once"),
    (Hedge::WhenLate, "again when late"),
    (Hedge::Always, "always on two paths"),
];

/// What came of all calls.
struct Seen {
    /// How long each took, the shortest first.
    times: Vec<Duration>,
    /// How many were made again.
    again: u64,
    /// How many the server has run.
    run: u64,
    bytes_sent: u64,
}

impl Seen {
    /// What so many in a thousand calls do not exceed, ms.
    fn at_most(&self, per_thousand: usize) -> f64 {
        let place = (self.times.len() * per_thousand).div_ceil(1000);
        self.times[place.max(1) - 1].as_secs_f64() * 1e3
    }
}

fn main() -> Result<(), Failure> {
    const CALLS: u64 = 6000;
    println!(
        "{CALLS} calls, ms                50 %   99 %  99.9 %  longest   made    run  kB sent"
    );
    for (hedge, name) in HEDGES {
        let seen = all_calls(hedge, CALLS)?;
        println!(
            "{name:24} {:6.1} {:6.1} {:7.1} {:8.1} {:6} {:6} {:9}",
            seen.at_most(500),
            seen.at_most(990),
            seen.at_most(999),
            seen.at_most(1000),
            CALLS + seen.again,
            seen.run,
            seen.bytes_sent / 1000,
        );
    }
    Ok(())
}

/// Makes so many calls, in no time.
fn all_calls(hedge: Hedge, count: u64) -> Result<Seen, Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let network = MemoryNetwork::new(DELAY);
        let (config, certificate) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let server = Endpoint::builder()
            .abstract_socket(network.bind("10.0.0.1:443".parse()?)?)
            .server(config)
            .build()?;
        let config = ClientConfig::with_pin(certificate_fingerprint(&certificate), ALPN)?;
        let mut client = Endpoint::builder().client(config);
        for (index, address) in ["10.1.0.1:1", "10.2.0.1:1"].into_iter().enumerate() {
            let conditions = Conditions {
                bits_per_second: 12_000_000,
                loss: 0.03,
                burst: Duration::from_millis(10),
                outage: (index == 0).then_some(OUTAGE),
            };
            let socket = network.bind(address.parse()?)?;
            let link = Link::new(socket, conditions, index as u64 + 1);
            client = client.abstract_socket(Arc::new(link));
        }
        let client = client.build()?;
        let connecting = client.connect(server.local_addr()?, "localhost")?;
        let incoming = server.accept().await.ok_or("closed")?;
        let (ours, theirs) = tokio::try_join!(connecting, async { incoming.await })?;
        ours.wait_for_paths(2).await?;

        let service = Arc::new(Service::default());
        tokio::spawn(service.clone().serve(theirs.clone()));
        let caller = Caller {
            connection: ours,
            hedge,
            again: Arc::default(),
        };
        let mut calls = JoinSet::new();
        let start = Instant::now();
        for number in 0..count {
            sleep_until(start + EVERY * number as u32).await;
            let caller = caller.clone();
            calls.spawn(async move {
                let begun = Instant::now();
                caller.call(number).await?;
                Ok::<_, Failure>(begun.elapsed())
            });
        }
        let times = calls.join_all().await.into_iter();
        let mut times = times.collect::<Result<Vec<_>, _>>()?;
        times.sort();
        Ok(Seen {
            times,
            again: caller.again.load(Ordering::Relaxed),
            run: service.run.load(Ordering::Relaxed),
            bytes_sent: caller.connection.stats().bytes_sent + theirs.stats().bytes_sent,
        })
    })
}

#[derive(Clone)]
struct Caller {
    connection: Connection,
    hedge: Hedge,
    again: Arc<AtomicU64>,
}

impl Caller {
    /// The answer that comes first. The other one is not waited for, and the server hears of that.
    async fn call(&self, number: u64) -> Result<Vec<u8>, Failure> {
        let first = self.attempt(number, self.hedge == Hedge::Always);
        tokio::pin!(first);
        let usual = self.connection.rtt().unwrap_or(2 * DELAY) + WORK;
        tokio::select! {
            answer = &mut first => return answer,
            () = sleep(usual * 3 / 2), if self.hedge == Hedge::WhenLate => {}
        }
        self.again.fetch_add(1, Ordering::Relaxed);
        tokio::select! {
            answer = first => answer,
            answer = self.attempt(number, true) => answer,
        }
    }

    async fn attempt(&self, number: u64, on_two_paths: bool) -> Result<Vec<u8>, Failure> {
        let (mut send, mut recv) = self.connection.open_bi().await?;
        send.set_redundant(on_two_paths)?;
        let mut request = vec![u8::from(on_two_paths); REQUEST];
        request[..8].copy_from_slice(&number.to_be_bytes());
        send.write_all(&request).await?;
        send.finish()?;
        Ok(recv.read_to_end(ANSWER).await?)
    }
}

/// Runs calls, each once.
#[derive(Default)]
struct Service {
    answers: Mutex<BTreeMap<u64, Arc<OnceCell<Bytes>>>>,
    run: AtomicU64,
}

impl Service {
    async fn serve(self: Arc<Self>, connection: Connection) {
        while let Ok((mut send, mut recv)) = connection.accept_bi().await {
            let service = self.clone();
            // Who does not want the answer any more stops the stream.
            tokio::spawn(async move {
                let request = recv.read_to_end(REQUEST).await?;
                let (number, rest) = request.split_first_chunk().ok_or("no call")?;
                send.set_redundant(rest.first() == Some(&1))?;
                let answer = service.answer(u64::from_be_bytes(*number)).await;
                send.write_chunk(answer).await?;
                send.finish()?;
                Ok::<_, Failure>(())
            });
        }
    }

    /// The answer to a call that is made the first time, or again while or after it is run.
    async fn answer(&self, number: u64) -> Bytes {
        let cell = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            while answers.len() > KEPT {
                answers.pop_first();
            }
            answers.entry(number).or_default().clone()
        };
        let run = || async {
            self.run.fetch_add(1, Ordering::Relaxed);
            sleep(WORK).await;
            Bytes::from(vec![1; ANSWER])
        };
        cell.get_or_init(run).await.clone()
    }
}

/// Calls that are late are made again, and none is run twice.
#[test]
fn hedging_shortens_the_longest_calls_and_runs_none_twice() -> Result<(), Failure> {
    const CALLS: u64 = 1000;
    let [once, late, always] = HEDGES.map(|(hedge, _)| all_calls(hedge, CALLS));
    let (once, late, always) = (once?, late?, always?);
    for seen in [&once, &late, &always] {
        assert_eq!((seen.times.len() as u64, seen.run), (CALLS, CALLS));
    }
    assert_eq!((once.again, always.again), (0, 0));
    assert!((1..CALLS / 4).contains(&late.again), "{}", late.again);
    let [once_99, late_99] = [&once, &late].map(|seen| seen.at_most(990));
    assert!(late_99 < once_99, "{late_99} instead of {once_99} ms");
    let more = late.bytes_sent as f64 / once.bytes_sent as f64;
    assert!(more < 1.3 && late.bytes_sent < always.bytes_sent, "{more}");
    Ok(())
}
