//! Applications on both sides call every method in any order, and give up on slow calls: read data
//! equals written data, connections end as a side wants, and the endpoints keep no memory.
//!
//! `CALLS=1000` sets the number of seeds, `SEED=n` sets the first seed; with `CALLS_PRINT`, the
//! test prints the calls.

use std::fmt::Debug;
use std::future::poll_fn;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::time::{sleep, timeout};

use super::faults::{LIMIT, keep_nothing, number};
use crate::runtime::{Runtime, TokioRuntime};
use crate::testing::{Error, Network, Pair, Port, Random, TestResult};
use crate::{
    Connection, ConnectionError, DatagramOptions, PathEvent, PathEvents, PathId, PathStatus,
    RecvStream, SendStream, StreamId, StreamWatch,
};

const MS: Duration = Duration::from_millis(1);
const SIZES: &[u64] = &[1, 2, 100, 1500, 20_000, 300_000];

/// The bytes of a stream from an offset on.
fn content(id: StreamId, offset: u64, length: usize) -> Bytes {
    let byte = |at: u64| (at.wrapping_mul(31) ^ (at >> 8) ^ u64::from(id)) as u8;
    (offset..offset + length as u64).map(byte).collect()
}

fn take_one<T>(all: &mut Vec<T>, random: &mut Random) -> Option<T> {
    let count = all.len() as u64;
    (count > 0).then(|| all.swap_remove(random.below(count) as usize))
}

struct Reading {
    stream: RecvStream,
    offset: u64,
}

/// An application and its connection.
struct Application {
    connection: Connection,
    random: Random,
    network: Network,
    sending: Vec<(SendStream, u64)>,
    reading: Vec<Reading>,
    watches: Vec<StreamWatch>,
    events: PathEvents,
}

impl Application {
    fn new(connection: &Connection, random: Random, network: &Network) -> Self {
        Self {
            connection: connection.clone(),
            random,
            network: network.clone(),
            sending: Vec::new(),
            reading: Vec::new(),
            watches: Vec::new(),
            events: connection.path_events(),
        }
    }

    fn note(&self, what: &str, result: impl Debug) {
        let text = format!("{:?} {what}: {result:?}", self.connection.side());
        if std::env::var_os("CALLS_PRINT").is_some() {
            println!("{text}");
        }
        self.network.note(&[text.as_bytes()]);
    }

    /// How long a call may take.
    fn patience(&mut self) -> Duration {
        MS * self.random.one_of(&[0, 1, 15, 40, 300])
    }

    fn size(&mut self) -> usize {
        let size = self.random.one_of(SIZES);
        self.random.below(size + 1) as usize
    }

    fn code(&mut self) -> crate::VarInt {
        (self.random.below(100) as u32).into()
    }

    /// A sending stream; the caller puts the stream back to continue.
    fn take_sending(&mut self) -> Option<(SendStream, u64)> {
        take_one(&mut self.sending, &mut self.random)
    }

    fn take_reading(&mut self) -> Option<Reading> {
        take_one(&mut self.reading, &mut self.random)
    }

    async fn open(&mut self) {
        let patience = self.patience();
        let connection = self.connection.clone();
        if self.random.below(2) == 0 {
            let opened = timeout(patience, connection.open_uni()).await;
            self.note("open_uni", opened.as_ref().map(|result| result.is_ok()));
            let stream = opened.ok().and_then(Result::ok);
            self.sending.extend(stream.map(|stream| (stream, 0)));
        } else {
            let opened = timeout(patience, connection.open_bi()).await;
            self.note("open_bi", opened.as_ref().map(|result| result.is_ok()));
            self.took(opened.ok().and_then(Result::ok));
        }
    }

    fn took(&mut self, streams: Option<(SendStream, RecvStream)>) {
        if let Some((send, stream)) = streams {
            self.watches.push(self.connection.watch_stream(send.id()));
            self.sending.push((send, 0));
            self.reading.push(Reading { stream, offset: 0 });
        }
    }

    async fn accept(&mut self) {
        let patience = self.patience();
        let connection = self.connection.clone();
        if self.random.below(2) == 0 {
            let accepted = timeout(patience, connection.accept_uni()).await;
            self.note("accept_uni", accepted.as_ref().map(|result| result.is_ok()));
            let stream = accepted.ok().and_then(Result::ok);
            self.reading
                .extend(stream.map(|stream| Reading { stream, offset: 0 }));
        } else {
            let accepted = timeout(patience, connection.accept_bi()).await;
            self.note("accept_bi", accepted.as_ref().map(|result| result.is_ok()));
            self.took(accepted.ok().and_then(Result::ok));
        }
    }

    async fn write(&mut self) {
        let Some((mut stream, mut offset)) = self.take_sending() else {
            return;
        };
        let (patience, size) = (self.patience(), self.size());
        let id = stream.id();
        let data = content(id, offset, size);
        match self.random.below(6) {
            5 => {
                let mut parts = data.slice(..size / 2).chain(data.slice(size / 2..));
                let copy = poll_fn(|cx| stream.poll_copy_buf(cx, &mut parts));
                let copied = timeout(patience, copy).await;
                self.note("copy", &copied);
                offset += copied.ok().and_then(Result::ok).unwrap_or(0) as u64;
            }
            0 => {
                let written = timeout(patience, stream.write(&data)).await;
                self.note("write", &written);
                offset += written.ok().and_then(Result::ok).unwrap_or(0) as u64;
            }
            1 => {
                let cut = size / 3;
                let mut chunks = [data.slice(..cut), data.slice(cut..cut), data.slice(cut..)];
                let written = timeout(patience, stream.write_chunks(&mut chunks)).await;
                self.note("write_chunks", &written);
                let written = written.ok().and_then(Result::ok);
                offset += written.map_or(0, |written| written.bytes as u64);
            }
            2 => {
                let room = timeout(patience, stream.writable()).await;
                self.note("writable", &room);
            }
            3 => {
                // If the call took too long, the number of written bytes is unknown.
                let written = timeout(patience, stream.write_all(&data)).await;
                self.note("write_all", &written);
                if !matches!(written, Ok(Ok(()))) {
                    let code = self.code();
                    self.note("reset", stream.reset(code));
                    return;
                }
                offset += size as u64;
            }
            _ => {
                let written = timeout(patience, stream.write_chunk(data)).await;
                self.note("write_chunk", &written);
                if !matches!(written, Ok(Ok(()))) {
                    return;
                }
                offset += size as u64;
            }
        }
        self.sending.push((stream, offset));
    }

    async fn end_sending(&mut self) {
        let Some((mut stream, offset)) = self.take_sending() else {
            return;
        };
        let (patience, code) = (self.patience(), self.code());
        match self.random.below(5) {
            0 | 1 => {
                self.note("finish", stream.finish());
                self.note("stopped", timeout(patience, stream.stopped()).await);
            }
            2 => self.note("reset", stream.reset(code)),
            3 => {
                let kept = self.random.below(offset + 1);
                self.note("reset_at", stream.reset_at(code, kept));
            }
            // The drop of a stream finishes the stream, unless the stream was reset.
            _ => self.note("dropped", offset),
        }
    }

    /// Records the answers of a stream's methods.
    fn describe(&mut self) {
        let Some((stream, offset)) = self.take_sending() else {
            return;
        };
        let number = self.random.below(4);
        match self.random.below(6) {
            0 => self.note("set_priority", stream.set_priority(number as i32 - 2)),
            1 => self.note("set_incremental", stream.set_incremental(number < 2)),
            2 => self.note(
                "set_expected_size",
                stream.set_expected_size(offset + number * 9000),
            ),
            3 => self.note("set_redundant", stream.set_redundant(number < 2)),
            4 => {
                let path = (number < 2).then_some(PathId(number as u32));
                self.note("set_path", stream.set_path(path));
            }
            _ => {
                let deadline = TokioRuntime.now() + MS * 20 * number as u32;
                self.note("set_deadline", stream.set_deadline(deadline, 5u32.into()));
            }
        }
        self.note(
            "described",
            (stream.id(), stream.priority(), stream.incremental()),
        );
        self.sending.push((stream, offset));
    }

    async fn watch(&mut self) {
        if self.watches.is_empty() {
            return;
        }
        let index = self.random.below(self.watches.len() as u64) as usize;
        let patience = self.patience();
        let number = self.random.below(6);
        let watch = &self.watches[index];
        match number {
            0 => self.note("watch writable", timeout(patience, watch.writable()).await),
            1 => self.note("watch stopped", timeout(patience, watch.stopped()).await),
            2 => self.note("watch set_priority", watch.set_priority(3)),
            3 => self.note("watch set_incremental", watch.set_incremental(true)),
            4 => self.note("watch set_expected_size", watch.set_expected_size(10_000)),
            _ => self.note("watch", (watch.id(), watch.priority(), watch.incremental())),
        }
    }

    async fn read(&mut self) {
        let Some(mut reading) = self.take_reading() else {
            return;
        };
        let (patience, size) = (self.patience(), self.size());
        let Reading { stream, offset } = &mut reading;
        let id = stream.id();
        let is_right = |offset: u64, data: &[u8]| data == content(id, offset, data.len());
        match self.random.below(5) {
            0 | 1 => {
                let mut buffer = vec![0; size];
                let read = timeout(patience, stream.read(&mut buffer)).await;
                self.note("read", &read);
                let Ok(Ok(Some(count))) = read else {
                    return self.keep(reading, read.is_err());
                };
                assert!(is_right(*offset, &buffer[..count]), "{id} at {offset}");
                *offset += count as u64;
            }
            2 => {
                let read = timeout(patience, stream.read_chunk(size, true)).await;
                self.note("read_chunk", read.as_ref().map(|result| result.is_ok()));
                let Ok(Ok(Some(chunk))) = read else {
                    return self.keep(reading, read.is_err());
                };
                assert_eq!(chunk.offset, *offset);
                assert!(is_right(*offset, &chunk.bytes), "{id} at {offset}");
                *offset += chunk.bytes.len() as u64;
            }
            3 => {
                let mut chunks = [const { Bytes::new() }; 4];
                let read = timeout(patience, stream.read_chunks(&mut chunks)).await;
                self.note("read_chunks", &read);
                let Ok(Ok(Some(count))) = read else {
                    return self.keep(reading, read.is_err());
                };
                for chunk in &chunks[..count] {
                    assert!(is_right(*offset, chunk), "{id} at {offset}");
                    *offset += chunk.len() as u64;
                }
            }
            _ => {
                // In order of arrival from now on.
                while let Ok(Ok(Some(chunk))) =
                    timeout(patience, stream.read_chunk(size + 1, false)).await
                {
                    assert!(is_right(chunk.offset, &chunk.bytes), "{id}");
                    self.note("read unordered", (chunk.offset, chunk.bytes.len()));
                }
                return;
            }
        }
        self.reading.push(reading);
    }

    fn keep(&mut self, reading: Reading, goes_on: bool) {
        if goes_on {
            self.reading.push(reading);
        }
    }

    async fn end_reading(&mut self) {
        let Some(Reading { mut stream, offset }) = self.take_reading() else {
            return;
        };
        let (patience, code) = (self.patience(), self.code());
        match self.random.below(4) {
            0 => self.note("stop", stream.stop(code)),
            1 => {
                let reset = timeout(patience, stream.received_reset()).await;
                self.note("received_reset", reset);
            }
            2 => self.note("dropped", offset),
            _ => {
                let rest = timeout(patience, stream.read_to_end(200_000)).await;
                if let Ok(Ok(rest)) = &rest {
                    let expected = content(stream.id(), offset, rest.len());
                    assert!(*rest == expected, "{} at {offset}", stream.id());
                }
                let rest = rest.map(|rest| rest.map(|rest| rest.len()));
                self.note("read_to_end", rest);
            }
        }
    }

    async fn datagram(&mut self) {
        let patience = self.patience();
        let size = self.random.below(1500) as usize;
        let data = Bytes::from(vec![size as u8; size]);
        let connection = self.connection.clone();
        match self.random.below(5) {
            0 => self.note("send_datagram", connection.send_datagram(data)),
            1 => {
                let sent = timeout(patience, connection.send_datagram_wait(data)).await;
                self.note("send_datagram_wait", sent);
            }
            2 => {
                let options = DatagramOptions::default();
                let options = match self.random.below(3) {
                    0 => options.with_copy(),
                    1 => options.with_deadline(TokioRuntime.now() + 5 * MS),
                    _ => options.with_path(PathId(self.random.below(3) as u32)),
                };
                let sent = connection.send_datagram_with(data, options);
                self.note("send_datagram_with", sent);
            }
            3 => self.note("space", connection.datagram_send_buffer_space()),
            _ => {
                let read = timeout(patience, connection.read_datagram()).await;
                if let Ok(Ok(data)) = &read {
                    assert!(data.iter().all(|byte| *byte == data.len() as u8));
                }
                self.note("read_datagram", read);
            }
        }
    }

    fn settings(&mut self) {
        let number = self.random.below(8) as u32;
        let connection = &self.connection;
        match number {
            0 => connection.set_max_concurrent_uni_streams((self.random.below(20) as u32).into()),
            1 => connection.set_max_concurrent_bi_streams((self.random.below(20) as u32).into()),
            2 => connection.set_receive_window((self.random.below(1 << 20) as u32 + 1).into()),
            3 => connection.set_send_window(self.random.below(1 << 20) + 1),
            4 => self.note("force_key_update", connection.force_key_update()),
            5 => connection.replace_connection_ids(),
            6 => self.note("max_datagram_size", connection.max_datagram_size()),
            _ => self.note(
                "addresses",
                (connection.local_address(), connection.remote_address()),
            ),
        }
        self.note("settings", number);
    }

    async fn paths(&mut self) {
        let paths = self.connection.paths();
        if paths.is_empty() {
            return;
        }
        let patience = self.patience();
        let path = &paths[self.random.below(paths.len() as u64) as usize];
        match self.random.below(10) {
            0..=2 => {
                let status = self
                    .random
                    .one_of(&[PathStatus::Available, PathStatus::Backup]);
                self.note("set_status", (path.set_status(status), path.status()));
            }
            3 => self.note("ping", path.ping()),
            4 => self.note("path", (path.id(), path.four_tuple(), path.status())),
            5 => self.note("max_datagram_size", path.max_datagram_size()),
            6 if paths.len() > 1 => self.note("close", path.close()),
            7 => {
                let (Some(local), Some(remote)) = (path.local_address(), path.remote_address())
                else {
                    return;
                };
                let opened = timeout(patience, self.connection.open_path(local, remote)).await;
                let opened = opened.map(|opened| opened.map(|path| path.id()));
                self.note("open_path", opened);
            }
            8 => {
                let count = self.random.below(4) as usize;
                let waited = timeout(patience, self.connection.wait_for_paths(count)).await;
                self.note("wait_for_paths", waited);
            }
            _ => {
                while let Ok(Some(event)) = timeout(Duration::ZERO, self.events.next()).await {
                    match event {
                        // Not the counters, which the record has for open paths only.
                        PathEvent::Discarded(last) => {
                            self.note("event", format_args!("Discarded({:?})", last.id))
                        }
                        event => self.note("event", event),
                    }
                }
            }
        }
    }

    /// Makes a random call.
    async fn act(&mut self) {
        match self.random.below(20) {
            0 | 1 => self.open().await,
            2..=4 => self.accept().await,
            5..=7 => self.write().await,
            8 => self.end_sending().await,
            9 => self.describe(),
            10 => self.watch().await,
            11..=13 => self.read().await,
            14 => self.end_reading().await,
            15 => self.datagram().await,
            16 => self.settings(),
            17 => self.paths().await,
            _ => {
                let patience = self.patience();
                sleep(patience).await;
            }
        }
    }
}

/// The network loses its links and its room now and then.
async fn disturb(ports: &[std::sync::Arc<Port>], mut random: Random) {
    loop {
        sleep(MS * random.below(400) as u32).await;
        let port = &ports[random.below(ports.len() as u64) as usize];
        match random.below(3) {
            0 => port.silence(true),
            1 => port.fill_after(random.below(30) as usize),
            _ => port.set_max_segments(1 + random.below(8) as usize),
        }
        sleep(MS * random.below(100) as u32).await;
        port.silence(false);
        port.empty();
    }
}

async fn act(application: &mut Application, calls: u64) {
    for _ in 0..calls {
        application.act().await;
    }
}

/// Runs with the pair that `pair` makes for a number of paths.
pub(super) async fn run(seed: u64, pair: impl FnOnce(usize) -> Result<Pair, Error>) -> TestResult {
    let mut random = Random(seed ^ 0xca11_5000);
    let paths = 1 + random.below(3) as usize;
    let pair = pair(paths)?;
    let (a, b) = pair.connect().await?;
    let mut sides =
        [&a, &b].map(|side| Application::new(side, Random(random.next()), &pair.network));
    let ports: Vec<_> = pair
        .at_client
        .iter()
        .chain(&pair.at_server)
        .cloned()
        .collect();
    let calls = random.below(600);
    let [one, other] = &mut sides;
    let disturbances = Random(random.next());
    tokio::select! {
        biased;
        _ = async { tokio::join!(act(one, calls), act(other, calls)) } => {}
        () = disturb(&ports, disturbances) => {}
    }
    for side in &sides {
        side.note("paths", side.connection.path_stats());
        side.note("connection", side.connection.stats());
    }
    for port in &ports {
        port.silence(false);
        port.empty();
    }
    let closes = random.below(2) as usize;
    sides[closes].connection.close(7u32.into(), b"enough");
    // Later calls fail, at once or after the other side hears of the end.
    let [one, other] = &mut sides;
    tokio::join!(act(one, 30), act(other, 30));
    for side in &sides {
        side.note("closed", side.connection.close_reason());
    }
    // Only the other side still holds state of the connection.
    drop(sides);
    let (gone, other) = match closes {
        0 => (a, b),
        _ => (b, a),
    };
    drop(gone);
    let reason = other.closed().await;
    let is_told = matches!(reason, ConnectionError::ApplicationClosed(_));
    assert!(is_told, "{reason:?}");
    drop(other);
    for host in [&pair.client, &pair.server] {
        keep_nothing(host).await;
        let stats = host.endpoint.stats();
        let of_driver = host.endpoint.driver_stats();
        pair.network
            .note(&[format!("{stats:?} {of_driver:?}").as_bytes()]);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn applications_call_at_random() -> TestResult {
    let first = number("SEED", 0);
    for seed in first..first + number("CALLS", 40) {
        println!("seed {seed}");
        timeout(LIMIT, run(seed, Pair::with_paths)).await??;
    }
    Ok(())
}
