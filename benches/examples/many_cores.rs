//! A server with one worker and with two workers: requests and handshakes per second, over
//! loopback.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --example many_cores -- [SECONDS] [--share PERCENT]
//! ```
//!
//! A worker is a thread of the server with a socket of its own (`EndpointBuilder::workers`). The
//! clients, in another process, open connections from 32 ports for each worker, and keep all
//! workers busy: with requests of 100 bytes and responses of 1 KiB on streams of their own, or with
//! handshakes, each on a connection without data. Prints the number of requests or handshakes per
//! second, and per second of the server's processor time.
//!
//! With `--share`, as root on Linux with control groups of version 1 at `/sys/fs/cgroup/cpu`, each
//! worker gets at most this share of a processor. If clients and server share two processors, the
//! limit gives two workers the same conditions as one worker: with a share of 30, clients have 1.4
//! processors.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use mpquic_benches::process::{Failure, Process, cpu_seconds};
use mpquic_tokio::{ClientConfig, Connection, Endpoint, ServerConfig, Worker};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const ALPN: &[&[u8]] = &[b"workers"];
/// Client ports for each worker: the kernel spreads ports over workers.
const PORTS: usize = 32;
/// Requests under way on the connection of each port.
const REQUESTS: usize = 16;
/// Handshakes under way at each port.
const HANDSHAKES: usize = 2;
const REQUEST: usize = 100;
const RESPONSE: usize = 1024;
/// Time before counting begins.
const WARM_UP: Duration = Duration::from_secs(1);
/// Comparisons of one worker with two workers.
const ROUNDS: usize = 5;
/// The period of a worker's share, microseconds.
const PERIOD_US: u64 = 10_000;
const GROUPS: &str = "/sys/fs/cgroup/cpu";

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["server", workers] => serve(workers.parse()?),
        [] => compare(4, None),
        [seconds] => compare(seconds.parse()?, None),
        [seconds, "--share", percent] => compare(seconds.parse()?, Some(percent.parse()?)),
        _ => Err("arguments: [SECONDS] [--share PERCENT]".into()),
    }
}

/// Measures one worker and two workers in turns, so that differences by chance show.
fn compare(seconds: u64, share: Option<u64>) -> Result<(), Failure> {
    println!("            one worker              two workers");
    println!("what        a second  a CPU second  a second  a CPU second  ratio");
    for work in [Work::Requests, Work::Handshakes] {
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let one = measure(work, 1, seconds, share)?;
            let two = measure(work, 2, seconds, share)?;
            let ratio = two.rate() / one.rate();
            println!(
                "{work:<11?} {:8.0} {:13.0} {:9.0} {:13.0} {ratio:6.2}",
                one.rate(),
                one.efficiency(),
                two.rate(),
                two.efficiency(),
            );
            ratios.push(ratio);
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios.get(ROUNDS / 2).ok_or("no rounds")?;
        println!("{work:?}: two workers do {median:.2} x one, the median of {ROUNDS} rounds");
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Requests,
    Handshakes,
}

/// A number of requests or handshakes, with the seconds and the server's processor time for them.
struct Seen {
    count: f64,
    seconds: f64,
    cpu: f64,
}

impl Seen {
    /// Requests or handshakes per second.
    fn rate(&self) -> f64 {
        self.count / self.seconds
    }

    /// Requests or handshakes per second of the server's processor time.
    fn efficiency(&self) -> f64 {
        self.count / self.cpu
    }
}

fn measure(work: Work, workers: usize, seconds: u64, share: Option<u64>) -> Result<Seen, Failure> {
    let mut server = Process::start(&["server", &workers.to_string()])?;
    let address: SocketAddr = server.line()?.parse()?;
    let limits = share.map(|percent| Limits::set(server.id(), percent));
    let _limits = limits.transpose()?;
    runtime()?.block_on(async {
        let done = Arc::new(AtomicU64::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..PORTS * workers {
            let endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
            endpoint.set_default_client_config(ClientConfig::dangerous_insecure(ALPN)?);
            let client = Client {
                endpoint,
                server: address,
                done: done.clone(),
                is_over: is_over.clone(),
            };
            match work {
                Work::Requests => tasks.spawn(client.requests()),
                Work::Handshakes => tasks.spawn(client.handshakes()),
            };
        }
        sleep(WARM_UP).await;
        let (cpu, before) = (cpu_seconds(server.id())?, done.load(Ordering::Relaxed));
        let start = Instant::now();
        sleep(Duration::from_secs(seconds)).await;
        let after = done.load(Ordering::Relaxed);
        let seen = Seen {
            count: (after - before) as f64,
            seconds: start.elapsed().as_secs_f64(),
            cpu: cpu_seconds(server.id())? - cpu,
        };
        is_over.store(true, Ordering::Relaxed);
        while let Some(result) = tasks.join_next().await {
            result??;
        }
        Ok(seen)
    })
}

/// The runtime of the clients.
fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// One port of the clients.
#[derive(Clone)]
struct Client {
    endpoint: Endpoint,
    server: SocketAddr,
    done: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Client {
    fn on_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    async fn requests(self) -> Result<(), Failure> {
        let connection = self.endpoint.connect(self.server, "localhost")?.await?;
        let mut tasks = JoinSet::new();
        for _ in 0..REQUESTS {
            let (client, connection) = (self.clone(), connection.clone());
            tasks.spawn(async move {
                while !client.is_over() {
                    request(&connection).await?;
                    client.on_done();
                }
                Ok::<(), Failure>(())
            });
        }
        tasks.join_all().await.into_iter().collect()
    }

    async fn handshakes(self) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for _ in 0..HANDSHAKES {
            let client = self.clone();
            tasks.spawn(async move {
                while !client.is_over() {
                    let connection = client.endpoint.connect(client.server, "localhost")?.await?;
                    connection.close(0u32.into(), b"");
                    client.on_done();
                }
                Ok::<(), Failure>(())
            });
        }
        tasks.join_all().await.into_iter().collect()
    }
}

async fn request(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&[1; REQUEST]).await?;
    send.finish()?;
    match receive.read_to_end(RESPONSE).await?.len() {
        RESPONSE => Ok(()),
        other => Err(format!("a response of {other} bytes").into()),
    }
}

/// Runs a server with this number of workers, until the process is ended. The first thread runs no
/// worker.
fn serve(workers: usize) -> Result<(), Failure> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let builder = Endpoint::builder().bind("127.0.0.1:0".parse()?);
    let workers = builder.server(config).workers(workers)?;
    let first = workers.first().ok_or("no worker")?;
    let addresses = first.local_addrs()?;
    let start = |worker: Worker| {
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async { answer(worker.start()?).await })
        })
    };
    let threads: Vec<_> = workers.into_iter().map(start).collect();
    println!("{}", addresses.first().ok_or("no address")?);
    for thread in threads {
        thread.join().map_err(|_| "panicked")??;
    }
    Ok(())
}

/// Answers every request.
async fn answer(endpoint: Endpoint) -> Result<(), Failure> {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            // The client reports failures.
            let Ok(connection) = incoming.await else {
                return;
            };
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    receive.read_to_end(REQUEST).await?;
                    send.write_all(&[2; RESPONSE]).await?;
                    Ok::<(), Failure>(send.finish()?)
                });
            }
        });
    }
    Ok(())
}

/// A control group for each thread of a process, until it is dropped.
struct Limits(Vec<(String, PathBuf)>);

impl Limits {
    /// Gives each thread of the process this share of a processor.
    fn set(process: u32, percent: u64) -> Result<Self, Failure> {
        let mut limits = Self(Vec::new());
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.file_name().into_string();
            let thread = thread.map_err(|name| format!("{name:?} is not a number"))?;
            let group = Path::new(GROUPS).join(format!("many-cores-{thread}"));
            fs::create_dir(&group)?;
            limits.0.push((thread.clone(), group.clone()));
            let quota = PERIOD_US * percent / 100;
            fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(group.join("cpu.cfs_quota_us"), quota.to_string())?;
            fs::write(group.join("tasks"), thread)?;
        }
        Ok(limits)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for (thread, group) in &self.0 {
            // A group that cannot be removed does no harm.
            let _ = fs::write(Path::new(GROUPS).join("tasks"), thread);
            let _ = fs::remove_dir(group);
        }
    }
}
