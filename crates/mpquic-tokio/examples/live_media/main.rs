//! A live sender: each frame of a video is a stream with a deadline, and those that matter most
//! travel twice. Compared with other ways to send the same, over links that lose packets in bursts
//! and of which one is dead for two seconds.
//!
//! ```text
//! cargo run --release -p mpquic-tokio --example live_media [-- PART OF THE NAME OF A WAY]
//! ```
//!
//! Nothing is waited for: the network is in memory, and the clock is tokio's, paused. What the
//! links lose is drawn from a seed; connections draw at random themselves, so that figures differ a
//! little from run to run.

mod link;

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use link::{Conditions, Link};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, MemoryNetwork, PathState, SendStream, ServerConfig,
    certificate_fingerprint, default_transport,
};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

type Failure = Box<dyn Error + Send + Sync>;

const ALPN: &[&[u8]] = &[b"live-media"];
/// 50 frames in a second, 4 Mbit/s with the keys.
const FRAME_TIME: Duration = Duration::from_millis(20);
const FRAME: usize = 9_600;
/// Each so many frames there is a key, of three times the size: without it, nothing is seen until
/// the next.
const KEY_EVERY: u64 = 50;
const KEY: usize = 3 * FRAME;
/// What comes later is of no use.
const DEADLINE: Duration = Duration::from_millis(100);
/// Codes of streams whose frame is too late.
const LATE: u32 = 1;
/// Runs of each way: what is drawn at random differs.
const SEEDS: u64 = 10;
/// One way.
const DELAY: Duration = Duration::from_millis(15);
/// When a frame is sent again that is not acknowledged, counted from when it was made: a round trip
/// is 30 ms.
const REPEATS: [Duration; 2] = [Duration::from_millis(60), Duration::from_millis(80)];
/// When the first link is dead.
const OUTAGE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(22));

/// Which frames are sent on two paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twice {
    Nothing,
    Keys,
    /// Keys, and again what should have arrived and is not acknowledged.
    KeysAndLate,
    Everything,
}

/// A way to send.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    paths: usize,
    scheduler: &'static str,
    controller: &'static str,
    twice: Twice,
}

const fn way(name: &'static str, scheduler: &'static str, twice: Twice) -> Way {
    Way {
        name,
        paths: 2,
        scheduler,
        controller: "coupled-bbr",
        twice,
    }
}

const ONE_PATH: Way = Way {
    paths: 1,
    ..way("one path", "lrf", Twice::Nothing)
};
/// What this example is about.
const SELECTIVE: Way = way(
    "auto, keys twice, late ones again",
    "auto",
    Twice::KeysAndLate,
);
const WAYS: [Way; 7] = [
    ONE_PATH,
    way("lrf", "lrf", Twice::Nothing),
    way("auto", "auto", Twice::Nothing),
    way("auto, keys twice", "auto", Twice::Keys),
    SELECTIVE,
    way("auto, all twice", "auto", Twice::Everything),
    Way {
        name: "auto, keys twice, late ones again, bbr",
        controller: "bbr",
        ..SELECTIVE
    },
];

/// What came of a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    frames: u64,
    on_time: u64,
    keys: u64,
    keys_on_time: u64,
    /// Bytes in datagrams, both of media and of everything else.
    bytes_sent: u64,
}

fn main() -> Result<(), Failure> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let ways = || WAYS.into_iter().filter(|way| way.name.contains(&wanted));
    if ways().next().is_none() {
        let names = WAYS.map(|way| way.name).join("; ");
        return Err(format!("no way has '{wanted}' in its name: {names}").into());
    }
    println!("of {SEEDS} minutes, % of frames on time           mean  worst   keys  MB a minute");
    for way in ways() {
        let seen = (1..=SEEDS).map(|seed| broadcast(way, Duration::from_secs(60), seed));
        let seen = seen.collect::<Result<Vec<Seen>, _>>()?;
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>() as f64;
        let worst = seen
            .iter()
            .map(|seen| 100.0 * seen.on_time as f64 / seen.frames as f64);
        println!(
            "{:46} {:6.2} {:6.2} {:6.2} {:6.1}",
            way.name,
            100.0 * sum(|seen| seen.on_time) / sum(|seen| seen.frames),
            worst.fold(100.0, f64::min),
            100.0 * sum(|seen| seen.keys_on_time) / sum(|seen| seen.keys),
            sum(|seen| seen.bytes_sent) / 1e6 / SEEDS as f64,
        );
    }
    Ok(())
}

/// Sends for so long, in no time.
fn broadcast(way: Way, length: Duration, seed: u64) -> Result<Seen, Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let network = MemoryNetwork::new(DELAY);
        let (config, certificate) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let mut transport = default_transport();
        // Who sends wants to know soon what has arrived.
        transport.max_ack_delay = Duration::from_millis(5);
        let viewer = Endpoint::builder()
            .abstract_socket(network.bind("10.0.0.1:443".parse()?)?)
            .server(config.transport_config(transport.build()?))
            .build()?;
        let mut transport = default_transport();
        transport.scheduler = mpquic_sched::by_name(way.scheduler)?;
        transport.controller = mpquic_cc::by_name(way.controller)?;
        let config = ClientConfig::with_pin(certificate_fingerprint(&certificate), ALPN)?;
        let mut sender = Endpoint::builder().client(config.transport_config(transport.build()?));
        for (index, address) in ["10.1.0.1:1", "10.2.0.1:1"][..way.paths].iter().enumerate() {
            let conditions = Conditions {
                bits_per_second: 12_000_000,
                loss: 0.03,
                burst: Duration::from_millis(10),
                outage: (index == 0).then_some(OUTAGE),
            };
            let socket = network.bind(address.parse()?)?;
            let link = Link::new(socket, conditions, 2 * seed + index as u64);
            sender = sender.abstract_socket(Arc::new(link));
        }
        let sender = sender.build()?;
        let connecting = sender.connect(viewer.local_addr()?, "localhost")?;
        let incoming = viewer.accept().await.ok_or("closed")?;
        let (at_sender, at_viewer) = tokio::try_join!(connecting, async { incoming.await })?;
        at_sender.wait_for_paths(way.paths).await?;

        let start = Instant::now();
        let frames = (length.as_nanos() / FRAME_TIME.as_nanos()) as u64;
        let watching = tokio::spawn(watch(at_viewer, start));
        send(&at_sender, start, frames, way.twice).await?;
        tokio::time::sleep(DEADLINE).await;
        at_sender.close(0u32.into(), b"the end");
        let mut seen = watching.await??;
        seen.frames = frames;
        seen.keys = frames.div_ceil(KEY_EVERY);
        seen.bytes_sent = at_sender.stats().bytes_sent;
        Ok(seen)
    })
}

/// Sends each frame when it is made.
async fn send(
    connection: &Connection,
    start: Instant,
    frames: u64,
    twice: Twice,
) -> Result<(), Failure> {
    let picture = Bytes::from(vec![7; KEY]);
    let mut sending = JoinSet::new();
    for number in 0..frames {
        let made = start + FRAME_TIME * number as u32;
        tokio::time::sleep_until(made).await;
        let is_key = number % KEY_EVERY == 0;
        let picture = picture.slice(8..if is_key { KEY } else { FRAME });
        let frame = [Bytes::copy_from_slice(&number.to_be_bytes()), picture];
        let at_once = twice == Twice::Everything || (is_key && twice != Twice::Nothing);
        let first = write(connection, frame.clone(), (start, made), at_once).await?;
        if twice == Twice::KeysAndLate {
            sending.spawn(repeat(connection.clone(), first, frame, (start, made)));
        }
        while let Some(sent) = sending.try_join_next() {
            sent??;
        }
    }
    sending.join_all().await.into_iter().collect()
}

/// Writes a frame. Dropped, a stream that is finished goes on.
async fn write(
    connection: &Connection,
    mut frame: [Bytes; 2],
    (start, made): (Instant, Instant),
    twice: bool,
) -> Result<SendStream, Failure> {
    let mut stream = connection.open_uni().await?;
    stream.set_deadline((made + DEADLINE).into_std(), LATE.into())?;
    stream.set_redundant(twice)?;
    // The newest goes first: where there is not enough room for all, one that is late already makes
    // no other late.
    let at = (made - start).as_millis();
    stream.set_priority(i32::try_from(at)?)?;
    stream.write_all_chunks(&mut frame).await?;
    stream.finish()?;
    Ok(stream)
}

/// Sends a frame again, on two paths, each time that it should have been acknowledged and is not.
async fn repeat(
    connection: Connection,
    first: SendStream,
    frame: [Bytes; 2],
    (start, made): (Instant, Instant),
) -> Result<(), Failure> {
    let mut before = first;
    for after in REPEATS {
        if timeout_at(made + after, before.stopped()).await.is_ok() {
            break;
        }
        let paths = connection.path_stats().into_iter();
        if paths.filter(|path| path.state == PathState::Active).count() < 2 {
            break; // More would only make more late.
        }
        before = write(&connection, frame.clone(), (start, made), true).await?;
    }
    Ok(())
}

/// Counts the frames that are whole in time, until the connection ends.
async fn watch(connection: Connection, start: Instant) -> Result<Seen, Failure> {
    let mut frames = JoinSet::new();
    while let Ok(mut stream) = connection.accept_uni().await {
        frames.spawn(async move {
            let frame = stream.read_to_end(KEY).await.ok()?;
            let number = u64::from_be_bytes(frame.get(..8)?.try_into().ok()?);
            let made = start + FRAME_TIME * u32::try_from(number).ok()?;
            Some((number, made.elapsed() <= DEADLINE))
        });
    }
    let mut seen = Seen {
        frames: 0,
        on_time: 0,
        keys: 0,
        keys_on_time: 0,
        bytes_sent: 0,
    };
    // Of some there are several copies.
    let whole = frames.join_all().await.into_iter().flatten();
    let on_time = whole.filter(|(_, is_on_time)| *is_on_time);
    let on_time = BTreeSet::from_iter(on_time.map(|(number, _)| number));
    seen.on_time = on_time.len() as u64;
    seen.keys_on_time = on_time
        .iter()
        .filter(|number| **number % KEY_EVERY == 0)
        .count() as u64;
    Ok(seen)
}

/// The outage alone costs one path in fifteen of its frames, and losses more.
#[test]
fn frames_are_on_time_where_one_path_cannot() -> Result<(), Failure> {
    let share = |way| {
        let seen = broadcast(way, Duration::from_secs(30), 1)?;
        assert_eq!((seen.frames, seen.keys), (1500, 30));
        Ok::<_, Failure>(seen.on_time as f64 / seen.frames as f64)
    };
    let (one, both) = (share(ONE_PATH)?, share(SELECTIVE)?);
    assert!(one < 0.95 && both > 0.99, "one path {one}, both {both}");
    Ok(())
}
