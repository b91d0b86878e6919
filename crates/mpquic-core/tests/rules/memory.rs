//! The memory that a peer can make us keep: the account, the allocated memory, and the cost of each
//! byte of the peer. docs/memory.md has the figures.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use bytes::Bytes;
use mpquic_core::unstable_wire::frame::{
    Crypto, Frame, NewConnectionId, PathNewConnectionId, ResetStream, Stream,
};
use mpquic_core::{ConnectionId, Dir, Fault, MemoryUse, PathId, Side, StreamId};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, Sent, path_ack};

const PATH: Kind = Kind::OneRtt(PathId::ZERO);

/// What one attack did to the server.
#[derive(Debug, Clone, Copy)]
struct Damage {
    /// Bytes of the datagrams sent, without those of UDP and IP.
    sent: u64,
    /// Bytes of memory allocated and not freed, until something was freed.
    allocated: u64,
    /// Bytes of memory in the account, the same.
    accounted: u64,
    /// Largest number of allocated bytes at a time.
    peak: u64,
    /// How long it took to handle the datagrams.
    time: Duration,
}

impl Damage {
    /// Memory for each byte sent.
    fn rate(&self) -> f64 {
        self.allocated as f64 / self.sent as f64
    }

    /// Nanoseconds for each byte sent.
    fn nanoseconds(&self) -> f64 {
        self.time.as_nanos() as f64 / self.sent as f64
    }
}

/// A client that attacks a server, and its actions so far.
struct Attack {
    net: Net,
    before: u64,
    sent: u64,
    allocated: i64,
    peak: i64,
    time: Duration,
    number: u64,
}

impl Attack {
    /// Connected. What the connection keeps without an attack does not count.
    fn new(options: Options) -> Self {
        let mut net = Net::connected(options);
        net.wait(2 * SECOND);
        let before = net.server().stats().memory.total();
        Self {
            net,
            before,
            sent: 0,
            allocated: 0,
            peak: 0,
            time: Duration::ZERO,
            number: 1000,
        }
    }

    fn used(&mut self) -> MemoryUse {
        self.net.server().stats().memory
    }

    /// Runs something that counts as the server's.
    #[expect(clippy::disallowed_methods, reason = "the time it takes is a result")]
    fn count<T>(&mut self, run: impl FnOnce(&mut Net) -> T) -> T {
        let (net, mut result) = (&mut self.net, None);
        let start = Instant::now();
        let info = measure(|| {
            result = Some(run(net));
            net.forget_data_events(Side::Server);
        });
        self.time += start.elapsed();
        self.peak = self.peak.max(self.allocated + info.bytes_max as i64);
        self.allocated += info.bytes_current;
        result.expect("it ran")
    }

    fn give(&mut self, sent: &Sent) {
        self.sent += sent.data.len() as u64;
        let answer = self.count(|net| net.give(sent.clone()));
        assert!(answer.is_none(), "the datagram is for the connection");
    }

    /// Sends one packet with these frames in a datagram of at least this size.
    fn packet(&mut self, frames: &[Frame], size: usize) {
        self.number += 1;
        let mut forgery = Forgery::new(Side::Client, PATH, self.number, frames);
        forgery.size = size;
        let sent = self.net.forge(&forgery);
        self.give(&sent);
    }

    /// Sends frames in full packets.
    fn packed(&mut self, frames: impl IntoIterator<Item = Frame>) {
        let (mut batch, mut length) = (Vec::new(), 0);
        for frame in frames {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            if length + bytes.len() > 1150 {
                self.packet(&std::mem::take(&mut batch), 0);
                length = 0;
            }
            length += bytes.len();
            batch.push(frame);
        }
        if !batch.is_empty() {
            self.packet(&batch, 0);
        }
    }

    fn damage(&mut self) -> Damage {
        assert_eq!(
            self.net.lost(Side::Server),
            None,
            "the attack is within the rules"
        );
        let accounted = self.used().total();
        Damage {
            sent: self.sent,
            allocated: u64::try_from(self.allocated).expect("more than before"),
            accounted: accounted.saturating_sub(self.before),
            peak: u64::try_from(self.peak).expect("more than nothing"),
            time: self.time,
        }
    }
}

fn uni(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

fn piece(id: StreamId, offset: u64, length: usize) -> Frame {
    Frame::Stream(Stream {
        stream_id: id,
        offset,
        fin: false,
        data: Bytes::from(vec![7; length]),
    })
}

fn new_cid(path: u32, sequence: u64) -> Frame {
    let mut id = [3; 8];
    id[0] = path as u8;
    id[1..5].copy_from_slice(&(sequence as u32).to_be_bytes());
    Frame::PathNewConnectionId(PathNewConnectionId {
        path_id: PathId(path),
        new_connection_id: NewConnectionId {
            sequence_number: sequence,
            retire_prior_to: sequence,
            connection_id: ConnectionId::new(&id),
            stateless_reset_token: [sequence as u8; 16],
        },
    })
}

fn stream_gaps() -> Damage {
    let mut attack = Attack::new(Options::default());
    attack.packed((0..4000).map(|index| piece(uni(0), 2 * index + 1, 1)));
    attack.damage()
}

fn stream_bytes_in_small_datagrams() -> Damage {
    let mut attack = Attack::new(Options::default());
    for offset in 0..20_000 {
        attack.packet(&[piece(uni(0), offset, 1)], 0);
    }
    attack.damage()
}

fn stream_bytes_in_large_datagrams() -> Damage {
    let mut attack = Attack::new(Options::default());
    for offset in 0..5000 {
        attack.packet(&[piece(uni(0), offset, 1)], 1200);
    }
    attack.damage()
}

fn full_windows() -> Damage {
    let mut attack = Attack::new(Options::default());
    for offset in (0..900_000).step_by(1100) {
        attack.packet(&[piece(uni(0), offset, 1100)], 0);
        attack.packet(&[piece(uni(1), offset, 1100)], 0);
    }
    attack.damage()
}

fn streams_opened() -> Damage {
    let mut attack = Attack::new(Options::default());
    let bidi = StreamId::new(Side::Client, Dir::Bi, 99);
    attack.packet(&[piece(uni(99), 0, 1), piece(bidi, 0, 1)], 1200);
    attack.damage()
}

fn streams_used() -> Damage {
    let mut attack = Attack::new(Options::default());
    let bidi = |index| StreamId::new(Side::Client, Dir::Bi, index);
    attack.packed((0..100).flat_map(|index| [piece(uni(index), 0, 1), piece(bidi(index), 0, 1)]));
    attack.damage()
}

fn streams_reset() -> Damage {
    let mut attack = Attack::new(Options::default());
    for index in 0..100 {
        let reset = Frame::ResetStream(ResetStream {
            stream_id: uni(index),
            error_code: 1,
            final_size: 0,
        });
        attack.packet(&[reset], 0);
    }
    attack.damage()
}

fn datagrams_in_small_packets() -> Damage {
    let mut attack = Attack::new(Options::default());
    for _ in 0..20_000 {
        attack.packet(&[Frame::Datagram(Bytes::from_static(&[7]))], 0);
    }
    attack.damage()
}

fn datagrams_in_large_packets() -> Damage {
    let mut attack = Attack::new(Options::default());
    for _ in 0..5000 {
        // It has no length field, so it comes last; the packet is filled with something else.
        let mut frames = vec![Frame::Padding; 1100];
        frames.push(Frame::Datagram(Bytes::from_static(&[7])));
        attack.packet(&frames, 0);
    }
    attack.damage()
}

fn packet_number_gaps() -> Damage {
    let mut attack = Attack::new(Options::default());
    for _ in 0..2000 {
        attack.number += 1;
        attack.packet(&[Frame::Ping], 0);
    }
    attack.damage()
}

fn connection_ids() -> Damage {
    let mut attack = Attack::new(Options::default());
    // Each makes the one before obsolete.
    let paths = (1..8).flat_map(|path| (3..20).map(move |sequence| new_cid(path, sequence)));
    attack.packed(paths);
    attack.damage()
}

fn path_challenges() -> Damage {
    let mut attack = Attack::new(Options::default());
    for round in 0..20u8 {
        attack.packed((0..50).map(|index| Frame::PathChallenge([round, index, 0, 0, 0, 0, 0, 0])));
    }
    attack.damage()
}

fn crypto_gaps() -> Damage {
    let mut attack = Attack::new(Options::default());
    attack.packed((0..250).map(|index| {
        Frame::Crypto(Crypto {
            offset: 1 << 14 | (2 * index + 1),
            data: Bytes::from_static(&[7]),
        })
    }));
    attack.damage()
}

/// Makes the server write this many bytes.
fn written(bytes: usize) -> Attack {
    let mut attack = Attack::new(Options::default().transport(|transport| {
        transport.initial_stream_receive_window = 16 << 20;
        transport.initial_receive_window = 16 << 20;
    }));
    attack.count(|net| net.write(Side::Server, bytes));
    attack
}

/// The server sends, and the client acknowledges every second packet.
fn every_second_acknowledged() -> Damage {
    let mut attack = written(1 << 20);
    for _ in 0..20 {
        let mut numbers = Vec::with_capacity(1000);
        attack.count(|net| {
            let sent = net.take(Side::Server);
            numbers.extend(
                sent.iter()
                    .flat_map(Sent::packets)
                    .map(|packet| packet.number),
            );
        });
        for number in numbers.into_iter().step_by(2) {
            attack.packet(&[path_ack(PathId::ZERO, number..number + 1)], 0);
        }
        attack.net.now += MS;
    }
    attack.damage()
}

type Case = (&'static str, fn() -> Damage);

/// The attacks on a connection, with the names they have in docs/memory.md.
const ATTACKS: &[Case] = &[
    ("single bytes of a stream, each behind a gap", stream_gaps),
    (
        "single bytes of a stream in small datagrams",
        stream_bytes_in_small_datagrams,
    ),
    (
        "single bytes of a stream in full datagrams",
        stream_bytes_in_large_datagrams,
    ),
    ("stream data that nobody reads", full_windows),
    ("one packet that opens 200 streams", streams_opened),
    ("streams that are reset at once", streams_reset),
    (
        "DATAGRAMs of one byte in small packets",
        datagrams_in_small_packets,
    ),
    (
        "DATAGRAMs of one byte in full packets",
        datagrams_in_large_packets,
    ),
    ("every second packet number", packet_number_gaps),
    ("connection IDs that retire others", connection_ids),
    ("PATH_CHALLENGE", path_challenges),
    ("single bytes of CRYPTO, each behind a gap", crypto_gaps),
];

/// Further attacks, with an account above the allocated memory: a datagram counts for each slice of
/// it.
const WITH_SHARED_DATAGRAMS: &[Case] = &[("a byte on each of 200 streams", streams_used)];

/// Memory for the server's own data, independent of the client's bytes.
const WRITTEN: &[Case] = &[
    ("nothing acknowledged", || {
        let mut attack = written(1 << 20);
        attack.count(|net| drop(net.take(Side::Server)));
        attack.damage()
    }),
    (
        "every second packet acknowledged",
        every_second_acknowledged,
    ),
];

/// Tolerance of the account, whose parts are estimates.
const TOLERANCE: u64 = 2048;

#[test]
fn the_account_equals_the_allocated_memory() {
    for (name, run) in ATTACKS.iter().chain(WRITTEN) {
        let damage = run();
        assert!(
            damage.accounted + TOLERANCE >= damage.allocated,
            "{name}: {damage:?}"
        );
        assert!(
            damage.accounted <= 2 * damage.allocated + TOLERANCE,
            "{name}: {damage:?}"
        );
    }
}

/// A row of the table in docs/memory.md: an attacker's action, the memory per byte, and the largest
/// memory of a connection, in KiB.
fn documented(name: &str) -> (f64, u64) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memory.md");
    let text = fs::read_to_string(file).expect("docs/memory.md");
    let start = format!("| {name} |");
    let row = text.lines().find(|line| line.starts_with(&start));
    let row = row.unwrap_or_else(|| panic!("docs/memory.md has no row for: {name}"));
    let mut cells = row.split('|').skip(2).map(str::trim);
    let mut number = || cells.next().and_then(|cell| cell.parse::<f64>().ok());
    let numbers = number().zip(number());
    let (rate, most) = numbers.unwrap_or_else(|| panic!("two numbers: {row}"));
    (rate, most as u64)
}

/// With `--nocapture` it prints the table. Times are those of this machine, and not checked.
#[test]
fn the_documented_figures_are_true() {
    let mut wrong = Vec::new();
    for (name, run) in ATTACKS.iter().chain(WITH_SHARED_DATAGRAMS) {
        let damage = run();
        let kept = damage.allocated.div_ceil(1024);
        let (rate, time) = (damage.rate(), damage.nanoseconds());
        let peak = damage.peak.div_ceil(1024);
        println!("| {name} | {rate:.1} | {kept} | {peak} | {time:.1} |");
        let (rate, most) = documented(name);
        let is_true = (damage.rate() - rate).abs() < 0.1 + rate / 10.0
            && kept.abs_diff(most) <= 2 + most / 10;
        if !is_true {
            wrong.push((name, damage));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Nothing is left in the account once everything was read, acknowledged and freed, but what it
/// takes to tell duplicates, and the like.
fn is_over(attack: &mut Attack) {
    const LEFT: u64 = 6 << 10;
    attack.net.wait(2 * SECOND);
    let used = attack.used();
    assert!(
        used.total() <= attack.before + LEFT,
        "{used:?}, {} before",
        attack.before
    );
    assert!(used.received == 0 && used.to_send == 0, "{used:?}");
}

#[test]
fn the_account_falls_when_data_is_read() {
    let mut attack = Attack::new(Options::default());
    for index in 0..2 {
        for offset in (0..900).rev().map(|index: u32| u64::from(index) * 1000) {
            attack.packet(&[piece(uni(index), offset, 1000)], 0);
        }
        let end = Frame::Stream(Stream {
            stream_id: uni(index),
            offset: 900_000,
            fin: true,
            data: Bytes::new(),
        });
        attack.packet(&[end], 0);
    }
    assert!(attack.used().received > 1_800_000);
    for index in 0..2 {
        assert_eq!(attack.net.read(Side::Server, uni(index)), 900_000);
    }
    is_over(&mut attack);
}

#[test]
fn the_account_falls_when_datagrams_are_read() {
    let mut attack = Attack::new(Options::default());
    for _ in 0..500 {
        attack.packet(&[Frame::Datagram(Bytes::from(vec![7; 900]))], 0);
    }
    assert!(attack.used().datagrams > 450_000);
    let server = attack.net.server();
    assert_eq!(
        std::iter::from_fn(|| server.datagrams().recv()).count(),
        500
    );
    is_over(&mut attack);
}

#[test]
fn the_account_falls_when_data_is_acknowledged() {
    let mut attack = written(3 << 20);
    assert!(attack.used().to_send >= 3 << 20);
    attack.net.exchange();
    is_over(&mut attack);
}

/// The limit of the tests below.
const LIMIT: u64 = 8 << 20;

#[test]
fn a_connection_ends_at_its_limit_of_memory() {
    const STREAMS: u64 = 1 << 20;
    let mut options = Options::default();
    options.server.memory_limit = Some(LIMIT);
    options.server.max_concurrent_uni_streams = STREAMS;
    let mut attack = Attack::new(options);
    // It would open all streams with lower numbers, too.
    attack.packet(&[piece(uni(STREAMS - 1), 0, 1)], 0);
    let fault = attack.net.fault(Side::Server);
    assert_eq!(fault.map(|(fault, _)| fault), Some(Fault::TooMuchMemory));
    assert!(attack.allocated < 1 << 20, "{} bytes", attack.allocated);
}

/// No single kind of memory has reached its own limit, and credit would be left.
#[test]
fn a_connection_ends_when_many_kinds_of_memory_together_are_too_much() {
    const LEAST: u64 = 1 << 20;
    let mut options = Options::default();
    options.server.memory_limit = Some(LEAST);
    options.server.initial_receive_window = LEAST / 4;
    let mut attack = Attack::new(options);
    // They are dropped at three quarters of the limit.
    for _ in 0..1000 {
        attack.packet(&[Frame::Datagram(Bytes::from(vec![7; 900]))], 0);
    }
    assert_eq!(attack.net.lost(Side::Server), None);
    let before = attack.used();
    assert!(before.total() < LEAST, "{before:?}");
    // Short pieces behind gaps take several times their own length.
    attack.packed((0..4000).map(|index| piece(uni(0), 40 * index + 1, 20)));
    let fault = attack.net.fault(Side::Server);
    assert_eq!(fault.map(|(fault, _)| fault), Some(Fault::TooMuchMemory));
    let kept = u64::try_from(attack.allocated).expect("more than before");
    assert!(kept < LEAST, "{kept} bytes besides {}", attack.before);
}

/// Unread data stays below the limit, and the transfer goes on after a read.
#[test]
fn windows_leave_room_in_the_limit() {
    const SIZE: usize = 12 << 20;
    let mut options = Options::default();
    options.server.memory_limit = Some(LIMIT);
    let mut net = Net::connected(options);
    let id = net.client().streams().open(Dir::Uni).expect("a stream");
    let (mut written, mut read) = (0, 0);
    let data = vec![7; 1 << 20];
    for round in 0..20_000 {
        let mut stream = net.client().send_stream(id);
        let length = data.len().min(SIZE - written);
        written += stream.write(&data[..length]).unwrap_or(0);
        net.exchange();
        let used = net.server().stats().memory.total();
        assert!(used <= LIMIT, "{used} in round {round}");
        if round > 100 {
            read += net.read(Side::Server, id);
        }
        if read == SIZE {
            return;
        }
    }
    panic!("{read} bytes read");
}

/// Near the limit, with data written by the server itself.
fn near_the_limit() -> Attack {
    let mut options = Options::default();
    options.server.memory_limit = Some(5_640_000);
    options.server.initial_receive_window = 1_410_000;
    options.client.initial_stream_receive_window = 16 << 20;
    options.client.initial_receive_window = 16 << 20;
    let mut attack = Attack::new(options);
    attack.net.write(Side::Server, 4 << 20);
    for offset in (0..700_000).step_by(1000) {
        attack.packet(&[piece(uni(0), offset, 1000), piece(uni(1), offset, 10)], 0);
    }
    attack
}

fn gives_credit(sent: &[Sent]) -> bool {
    let credit = |frame: &Frame| matches!(frame, Frame::MaxData(_) | Frame::MaxStreamData(_));
    sent.iter().any(|sent| sent.has(credit))
}

#[test]
fn there_is_no_credit_near_the_limit_until_all_is_read() {
    let mut attack = near_the_limit();
    assert_eq!(attack.net.read(Side::Server, uni(0)), 700_000);
    let sent = attack.net.take(Side::Server);
    assert!(!sent.is_empty() && !gives_credit(&sent));
    let mut rest = 0;
    while let Ok(Some(chunk)) = (attack.net.server().recv_stream(uni(1))).read_chunk(100, true) {
        rest += chunk.bytes.len();
    }
    assert_eq!(rest, 10, "the others are behind gaps");
    // Nobody is to blame for a stream that goes on with a gap.
    attack
        .net
        .server()
        .recv_stream(uni(1))
        .stop(0u32.into())
        .expect("open");
    // The server may send again.
    attack.net.now += 10 * MS;
    for packet in sent.iter().flat_map(Sent::packets) {
        let acknowledged = path_ack(PathId::ZERO, packet.number..packet.number + 1);
        attack.packet(&[acknowledged], 0);
    }
    assert!(gives_credit(&attack.net.take(Side::Server)));
}

#[test]
fn datagrams_are_dropped_near_the_limit() {
    let mut attack = near_the_limit();
    let datagram = || Frame::Datagram(Bytes::from_static(b"x"));
    attack.packet(&[datagram()], 0);
    assert_eq!(attack.net.server().datagrams().recv(), None);
    attack.net.read(Side::Server, uni(0));
    attack
        .net
        .server()
        .recv_stream(uni(1))
        .stop(0u32.into())
        .expect("open");
    attack.packet(&[Frame::Ping], 0);
    attack.packet(&[datagram()], 0);
    assert!(attack.net.server().datagrams().recv().is_some());
}

/// The memory of an endpoint, and its measures near the limit.
#[test]
fn an_endpoint_in_need_asks_new_clients_for_proof_and_then_refuses_them() {
    let mut options = Options::default();
    options.server_endpoint.memory_limit = 2 << 20;
    let mut attack = Attack::new(options);
    let stats = |attack: &mut Attack| attack.net.node(Side::Server).endpoint.stats();
    let retries = |attack: &mut Attack| {
        let flight = attack.net.other_client();
        let before = stats(attack).retries_on_demand;
        attack.net.give_all(flight);
        stats(attack).retries_on_demand - before
    };
    let fill = |attack: &mut Attack, range: std::ops::Range<u64>| {
        for offset in range.step_by(1000) {
            attack.packet(&[piece(uni(0), offset, 1000)], 0);
            attack.packet(&[piece(uni(1), offset, 1000)], 0);
        }
    };
    assert!((1..100_000).contains(&stats(&mut attack).memory));
    fill(&mut attack, 0..800_000);
    assert!((3 << 19..2 << 20).contains(&stats(&mut attack).memory));
    assert_eq!(retries(&mut attack), 1);
    fill(&mut attack, 800_000..1_040_000);
    assert!(stats(&mut attack).memory > 2 << 20);
    assert_eq!(retries(&mut attack), 0);
    assert_eq!(stats(&mut attack).refused_at_memory_limit, 1);
    // The windows have not grown meanwhile, and all data is read.
    assert!(attack.net.lost(Side::Server).is_none());
    for index in 0..2 {
        attack.net.read(Side::Server, uni(index));
    }
    attack.net.wait(2 * SECOND);
    assert!((1..100_000).contains(&stats(&mut attack).memory));
    attack.net.forget_connection(Side::Server);
    assert_eq!(stats(&mut attack).memory, 0);
}
