//! `mpquic record`.

pub(crate) mod log;
pub(crate) mod tap;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Uri;
use mpquic_lab::PathRecording;
use mpquic_tokio::Connection;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout_at};

use crate::client::session::{Purpose, Sessions, leave};
use crate::options::Alpn;
use crate::options::origin::listed;
use crate::options::reach::{Reach, Stall};
use crate::paths::{Start, none_left, starts};
use crate::perf::args::{parse_seconds, parse_server};
use crate::perf::datagram::{FIELDS, Tally};
use crate::perf::stream::{Client, HEADER};
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::record::tap::Tap;

/// The longest time for round trips without load.
const IDLE: Duration = Duration::from_secs(1);
/// Pause between an answer and the next round trip, without load.
const IDLE_PAUSE: Duration = Duration::from_millis(10);
/// Time between two starts of round trips under load, by DATAGRAM.
const LOADED_EVERY: Duration = Duration::from_millis(10);
/// Pause between an answer and the next round trip under load, if the server takes no DATAGRAMs.
const LOADED_PAUSE: Duration = Duration::from_millis(20);

/// Measure what the paths to a server are like, for `mpquic advise`
///
/// The server runs `mpquic serve --perf`. From each usable address, or each --local, the command
/// makes one connection after the other, measures round trips without load, then downloads as fast
/// as possible. It writes rate, delay, loss and queue as a scenario for `mpquic advise` and `mpquic
/// lab run`. A path with a long round trip needs more time to reach its rate: see --time.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// The server, as HOST[:PORT] or https://HOST[:PORT]; the default port is 4433
    #[arg(value_name = "SERVER", value_parser = parse_server, required_unless_present = "log")]
    server: Option<Uri>,
    /// Do not measure; read this qlog file of a client whose download kept all paths busy (`mpquic
    /// get --qlog-dir DIR`)
    #[arg(long, value_name = "QLOG", conflicts_with = "server")]
    log: Option<PathBuf>,
    /// How long each path is loaded
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    time: Duration,
    /// Size of the scenario's transfer, MB
    #[arg(long, value_name = "MB", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    size: u32,
    /// Write the scenario to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    stall: Stall,
    #[command(flatten)]
    reach: Reach,
}

/// Measures one path after the other, and writes the scenario.
pub(crate) async fn run(args: Record) -> Result<(), Failure> {
    let recordings = match (&args.server, &args.log) {
        (_, Some(log)) => log::read(log)?,
        (Some(server), None) => measure(&args, server).await?,
        (None, None) => Vec::new(),
    };
    let scenario = mpquic_lab::recorded(&recordings, args.size)?;
    match &args.output {
        None => screen::print(scenario.trim_end()),
        Some(file) => std::fs::write(file, scenario).map_err(|error| {
            Cause::File.failed(format_args!("cannot write {}: {error}", file.display()))
        })?,
    }
    Ok(())
}

async fn measure(args: &Record, server: &Uri) -> Result<Vec<PathRecording>, Failure> {
    let listed = listed()?;
    let tap = Tap::default();
    let purpose = Purpose {
        datagrams: true,
        ..Purpose::look(server, &[Alpn::Perf])
    };
    let sessions = Sessions::with(&args.reach, purpose, |transport| {
        transport.qlog = Some(tap.before(transport.qlog.take()));
    })?;
    let addresses = sessions.addresses(server).await;
    let addresses = addresses.map_err(|failure| failure.about(server))?;
    let starts = starts(&args.reach, listed.clone(), &addresses).into_iter();
    let (starts, left_out): (Vec<_>, Vec<_>) = starts.partition(|it| it.left_out.is_none());
    let mut recordings = Vec::new();
    let mut failure = None;
    for start in &starts {
        let name = start.name();
        if !args.quiet {
            let seconds = (IDLE.min(args.time) + args.time).as_secs_f64();
            screen::say(format_args!("measuring {name} for {seconds:.1} s"));
        }
        let reached = addresses.iter().copied();
        let reached: Vec<_> = reached
            .filter(|address| start.reaches(*address, &listed))
            .collect();
        match measure_from(args, (&sessions, server, start), &reached, &tap).await {
            Ok(recording) => recordings.extend(recording),
            // Not every address leads there.
            Err(error) => {
                screen::say(format_args!("{name} is left out: {}", error.message()));
                failure = Some(error);
            }
        }
    }
    match (recordings.is_empty(), failure) {
        (false, _) => Ok(recordings),
        (true, Some(failure)) => Err(failure.about(server)),
        (true, None) => {
            let left_out = left_out.iter().filter_map(|it| it.left_out.as_deref());
            Err(Cause::Connect.failed(none_left(left_out)).about(server))
        }
    }
}

/// Measures the path from one address to the first of the server's addresses that answers there;
/// `None` if there is no address.
async fn measure_from(
    args: &Record,
    (sessions, server, start): (&Sessions<'_>, &Uri, &Start),
    addresses: &[SocketAddr],
    tap: &Tap,
) -> Result<Option<PathRecording>, Failure> {
    let name = start.name();
    let mut failure = None;
    for address in addresses {
        let session = (sessions, server, start, *address);
        match measure_path(args, session, tap, &name).await {
            Err(error) if error.cause() == Some(Cause::Connect) => failure = Some(error),
            measured => return measured.map(Some),
        }
    }
    failure.map_or(Ok(None), Err)
}

/// Measures the path from one address.
async fn measure_path(
    args: &Record,
    (sessions, server, start, address): (&Sessions<'_>, &Uri, &Start, SocketAddr),
    tap: &Tap,
    name: &str,
) -> Result<PathRecording, Failure> {
    let from = start.local.as_ref();
    let (endpoint, connection) = sessions.connect_from(server, from, address).await?;
    let client = Client {
        connection: connection.clone(),
        stall: args.stall.limit(),
    };
    let until = Instant::now() + IDLE.min(args.time);
    let idle = without_load(&client, until).await?;
    let mut recording = PathRecording::new(name, address.is_ipv4());
    for rtt in idle {
        recording.on_idle_rtt(rtt.as_secs_f64() * 1e3);
    }
    tap.begin(clock::now(), recording);
    let began = Instant::now();
    let until = began + args.time;
    let round_trips = round_trips(&client, began, until);
    let loaded = tokio::try_join!(client.download(until, |_| {}), round_trips);
    let recording = tap.end();
    leave(&endpoint, &connection, 0u32.into()).await;
    let ((), round_trips) = loaded?;
    let mut recording = recording.ok_or_else(|| Failure::other("nothing was recorded"))?;
    if round_trips.is_empty() {
        screen::say(format_args!(
            "{name}: no round trip came back under load, so nothing is known of the queue"
        ));
    }
    for (at, rtt) in round_trips {
        recording.on_loaded_rtt(at.as_secs_f64(), rtt.as_secs_f64() * 1e3);
    }
    Ok(recording)
}

/// Round trips until the given time, without load.
async fn without_load(client: &Client, until: Instant) -> Result<Vec<Duration>, Failure> {
    let mut idle = Vec::new();
    while Instant::now() < until {
        idle.push(client.ask(HEADER as u64, 1).await?);
        sleep(IDLE_PAUSE).await;
    }
    Ok(idle)
}

/// Round trips until the given time, each with its end.
async fn round_trips(
    client: &Client,
    began: Instant,
    until: Instant,
) -> Result<Vec<(Duration, Duration)>, Failure> {
    if client.connection.max_datagram_size() >= Some(FIELDS) {
        return Ok(echoes(&client.connection, began, until).await);
    }
    let mut round_trips = Vec::new();
    while Instant::now() < until {
        let rtt = client.ask(HEADER as u64, 1).await?;
        round_trips.push((began.elapsed(), rtt));
        sleep_until(until.min(Instant::now() + LOADED_PAUSE)).await;
    }
    Ok(round_trips)
}

/// Round trips of DATAGRAMs. A DATAGRAM lost in a full queue is not repeated, so its repetition
/// does not count as time in the queue.
async fn echoes(
    connection: &Connection,
    began: Instant,
    until: Instant,
) -> Vec<(Duration, Duration)> {
    let mut tally = Tally::new(clock::now());
    let mut echoes = Vec::new();
    let mut due = interval(LOADED_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let work = async {
        loop {
            tokio::select! {
                _ = due.tick() => {
                    // A DATAGRAM without room is one round trip less.
                    let _ = connection.send_datagram(tally.next(FIELDS, clock::now()));
                }
                answer = connection.read_datagram() => match answer {
                    Ok(answer) => {
                        let took = tally.on_back(&answer, clock::now());
                        echoes.extend(took.map(|took| (began.elapsed(), took)));
                    }
                    // The download tells why.
                    Err(_) => return,
                }
            }
        }
    };
    let _ = timeout_at(until, work).await;
    echoes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use futures_util::future::join;
    use mpquic_core::config::TransportOptions;

    use super::*;
    use crate::options::Alpn;
    use crate::process::screen::tests::Heard;
    use crate::serve::Service;
    use crate::testing::{Anything, Far, Served, answer_perf, end_of_first, far, far_perf, soon};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        record: Record,
    }

    /// A server of measurements that takes DATAGRAMs, or not.
    fn served(datagrams: bool) -> Served {
        let service = Service::new(Arc::new(Anything::new(1)));
        Served::over(service, Alpn::Perf, transport(datagrams))
    }

    fn of(connection: Connection) -> Client {
        Client {
            connection,
            stall: Duration::from_secs(10),
        }
    }

    async fn client(served: &Served) -> Client {
        of(served.connect(1 << 20).await)
    }

    /// The transport of such a server.
    fn transport(datagrams: bool) -> TransportOptions {
        let mut transport = mpquic_tokio::default_transport();
        if !datagrams {
            transport.datagram_receive_buffer = None;
        }
        transport
    }

    const TIME: Duration = Duration::from_millis(200);

    /// Round trips come in order, end in time, and have pauses between them.
    fn are_spread(round_trips: &[(Duration, Duration)], pause: Duration) {
        let count = round_trips.len() as u32;
        let most = TIME.div_duration_f64(pause).ceil() as u32 + 1;
        assert!((2..=most).contains(&count), "{round_trips:?}");
        assert!(round_trips.is_sorted());
        for (at, took) in round_trips {
            assert!(!took.is_zero() && at >= took, "{round_trips:?}");
        }
    }

    #[tokio::test]
    async fn round_trips_are_spread_over_the_time() {
        for (datagrams, pause) in [(true, LOADED_EVERY), (false, LOADED_PAUSE)] {
            let served = served(datagrams);
            let client = client(&served).await;
            let began = Instant::now();
            let until = began + TIME;
            let found = soon(round_trips(&client, began, until)).await.unwrap();
            assert!(Instant::now() >= until);
            are_spread(&found, pause);
            let largest = client.connection.max_datagram_size();
            assert_eq!(largest.is_some(), datagrams);
        }
    }

    #[tokio::test]
    async fn round_trips_without_load_follow_each_other() {
        let served = served(true);
        let client = client(&served).await;
        let until = Instant::now() + TIME;
        let found = soon(without_load(&client, until)).await.unwrap();
        assert!(Instant::now() >= until);
        let most = TIME.div_duration_f64(IDLE_PAUSE) as usize + 1;
        assert!((2..=most).contains(&found.len()), "{found:?}");
        assert!(found.iter().all(|took| !took.is_zero()));
        let past = Instant::now();
        assert!(without_load(&client, past).await.unwrap().is_empty());
    }

    const DELAY: Duration = Duration::from_millis(10);

    /// With round trips of 20 ms: they and the pauses make up the time.
    #[tokio::test(start_paused = true)]
    async fn pauses_between_round_trips_are_exact() {
        let far = far_perf(DELAY, transport(false)).await;
        let client = of(far.client.clone());
        let now = Instant::now();
        let idle = without_load(&client, now + TIME).await.unwrap();
        assert_eq!(idle.len(), 7, "one each 30 ms: {idle:?}");
        let now = Instant::now();
        let loaded = round_trips(&client, now, now + TIME).await.unwrap();
        assert_eq!(loaded.len(), 5, "one each 40 ms: {loaded:?}");
        // When the time is over, nothing begins.
        let now = Instant::now();
        assert!(without_load(&client, now).await.unwrap().is_empty());
        assert!(round_trips(&client, now, now).await.unwrap().is_empty());
        let far = far_perf(DELAY, transport(true)).await;
        let now = Instant::now();
        let loaded = echoes(&far.client, now, now + TIME).await;
        assert!(
            (18..=20).contains(&loaded.len()),
            "one each 10 ms: {loaded:?}"
        );
    }

    /// Measuring messages are as small as possible.
    #[tokio::test(start_paused = true)]
    async fn round_trips_are_those_of_the_smallest_messages() {
        let Far { client, server, .. } = &far(Alpn::Perf, DELAY, transport(false)).await;
        let client = of(client.clone());
        let now = Instant::now();
        let smallest = 1_u64.to_be_bytes();
        tokio::select! {
            _ = without_load(&client, now + TIME) => panic!("it is not over"),
            request = answer_perf(server, 1) => assert_eq!(request, smallest),
        }
        tokio::select! {
            _ = round_trips(&client, now, now + TIME) => panic!("it is not over"),
            request = answer_perf(server, 1) => assert_eq!(request, smallest),
        }
        let far = far(Alpn::Perf, DELAY, transport(true)).await;
        tokio::select! {
            _ = echoes(&far.client, now, now + 2 * TIME) => panic!("it is not over"),
            datagram = far.server.read_datagram() => assert_eq!(datagram.unwrap().len(), FIELDS),
        }
    }

    /// The duration is announced first: without load for a second at most, then with load.
    #[tokio::test]
    async fn how_long_it_takes_is_told_first() {
        let served = served(true);
        let heard = Heard::begin();
        for (time, told) in [("0.5", "1.0"), ("1", "2.0"), ("3", "4.0")] {
            let args = arguments(&served, "127.0.0.1", &["--time", time]);
            let server = args.server.clone().unwrap();
            let said = async {
                loop {
                    match heard.take() {
                        [_, said] if said.is_empty() => tokio::task::yield_now().await,
                        [_, said] => return said,
                    }
                }
            };
            tokio::select! {
                _ = measure(&args, &server) => panic!("it is not over"),
                said = said => assert_eq!(said, format!("measuring 127.0.0.1 for {told} s\n")),
            }
        }
    }

    fn arguments(served: &Served, local: &str, more: &[&str]) -> Record {
        let address = served.address.to_string();
        let line = ["x", &address, "--insecure", "--local", local];
        Line::try_parse_from([&line[..], more].concat())
            .unwrap()
            .record
    }

    /// The numbers of a list that the text of a recording has.
    fn numbers(recording: &str, list: &str) -> Vec<f64> {
        let (_, rest) = recording.split_once(&format!("{list}: [")).unwrap();
        let (list, _) = rest.split_once(']').unwrap();
        let is_part = |c: char| c.is_ascii_digit() || "e.-".contains(c);
        let parts = list.split(|c| !is_part(c));
        parts.filter_map(|part| part.parse().ok()).collect()
    }

    #[tokio::test]
    async fn a_path_is_measured_without_load_and_with_it() {
        let (served, observer) = Served::observed(Alpn::Perf);
        let heard = Heard::begin();
        let args = arguments(&served, "127.0.0.1", &["--time", "0.2"]);
        let server = args.server.clone().unwrap();
        let measured = join(measure(&args, &server), end_of_first(&observer));
        let (recordings, close) = soon(measured).await;
        assert_eq!(close.error_code, 0u32.into());
        let recordings = recordings.unwrap();
        let said = "measuring 127.0.0.1 for 0.4 s\n";
        assert_eq!(heard.take(), ["", said]);
        let [recording] = &recordings[..] else {
            panic!("{recordings:?}");
        };
        let text = format!("{recording:?}");
        assert!(text.contains("name: \"127.0.0.1\", headers: 28"), "{text}");
        // Milliseconds on loopback.
        let idle = numbers(&text, "idle_rtts");
        assert!(
            idle.len() > 1 && idle.iter().all(|rtt| (0.01..200.0).contains(rtt)),
            "{idle:?}"
        );
        let loaded = numbers(&text, "loaded_rtts");
        let rtts = loaded.iter().skip(1).step_by(2);
        assert!(rtts.clone().count() > 0, "{text}");
        assert!(
            rtts.clone().all(|rtt| (0.01..400.0).contains(rtt)),
            "{loaded:?}"
        );
        let arrivals = numbers(&text, "arrivals");
        let arrived: f64 = arrivals.iter().step_by(3).sum();
        assert!(arrived > 100_000.0, "{arrivals:?}");
    }

    /// One address of a name may be dead.
    #[tokio::test]
    async fn the_address_that_answers_is_measured() {
        let served = served(true);
        let _heard = Heard::begin();
        let more = ["--time", "0.2", "--connect-timeout", "1"];
        let args = arguments(&served, "127.0.0.1", &more);
        let server = args.server.clone().unwrap();
        let purpose = Purpose::look(&server, &[Alpn::Perf]);
        let tap = Tap::default();
        let sessions = Sessions::with(&args.reach, purpose, |transport| {
            transport.qlog = Some(tap.before(transport.qlog.take()));
        });
        let sessions = sessions.unwrap().that_forget();
        let start = starts(&args.reach, Vec::new(), &[served.address]).remove(0);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let silent = socket.local_addr().unwrap();
        let measured = async |addresses: &[SocketAddr]| {
            let from = (&sessions, &server, &start);
            soon(measure_from(&args, from, addresses, &tap)).await
        };
        let both = measured(&[silent, served.address]).await.unwrap();
        assert!(both.is_some());
        let dead = measured(&[silent]).await.unwrap_err();
        assert_eq!(dead.cause(), Some(Cause::Connect));
        assert!(measured(&[]).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_scenario_is_written_to_a_file() {
        let served = served(false);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("here.toml");
        let file = file.to_str().unwrap();
        let heard = Heard::begin();
        let logs = directory.path().join("logs");
        let logs = ["--qlog-dir", logs.to_str().unwrap()];
        // On a busy machine little arrives in a short time, which it says.
        let mut written = false;
        for seconds in ["0.7", "2", "6"] {
            let more = ["--time", seconds, "--quiet", "--output", file];
            let more = [&more[..], &logs].concat();
            let args = arguments(&served, "127.0.0.2", &more);
            match soon(run(args)).await {
                Ok(()) => {
                    written = true;
                    break;
                }
                Err(failure) => {
                    let told = failure.message();
                    assert!(told.starts_with("too little arrived"), "{told}");
                }
            }
        }
        assert!(written, "not even in six seconds");
        assert_eq!(heard.take(), ["", ""]);
        let scenario = std::fs::read_to_string(file).unwrap();
        assert!(scenario.contains("name = \"127-0-0-2\""), "{scenario}");
        // The log that was asked for hears of packets as well.
        let mut logs = std::fs::read_dir(logs[1]).unwrap();
        let log = std::fs::read_to_string(logs.next().unwrap().unwrap().path()).unwrap();
        assert!(log.contains("quic:packet_received"));
    }
}
