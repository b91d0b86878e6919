//! What network, client and server may do.

use std::fmt;

use mpquic_core::PathStatus;
use mpquic_sim::Side;
use proptest::prelude::*;

/// Both sides of a connection.
pub(super) const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// A share of a list, to pick an item from a list of any length. It prints as Rust source, to turn
/// a found sequence into a test.
#[derive(Clone, Copy)]
pub(super) struct Share(pub(super) u64);

impl Share {
    /// The one of `count`.
    pub(super) fn of(self, count: usize) -> usize {
        ((self.0 as u128 * count as u128) >> 64) as usize
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({})", self.0)
    }
}

/// What may happen to a link.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    Outage(bool),
    Rate(f64),
    Delay(u32),
    Loss(f64),
    /// Only real cryptography notices; without it the MTU changes instead.
    Corrupt(f64),
    Mtu(usize),
    Rebind {
        other_ip: bool,
    },
}

/// What a side may do to a stream.
#[derive(Debug, Clone)]
pub(super) enum OnStream {
    Reset(u32),
    /// Only if the peer takes such resets.
    ResetAtHalf(u32),
    Stop(u32),
    Priority(i32),
    Incremental(bool),
    Redundant(bool),
    /// To one of the paths; to none without paths.
    Bind(Share),
    Unbind,
    /// The announced number of bytes, perhaps a false one.
    Expect(u64),
}

/// What may change of a side's limits.
#[derive(Debug, Clone)]
pub(super) enum Limit {
    /// These are about 2 to this power bytes.
    SendWindow(u32),
    ReceiveWindow(u32),
    UniStreams(u64),
    BidiStreams(u64),
}

/// What a side may do to a path.
#[derive(Debug, Clone)]
pub(super) enum OnPath {
    Status(PathStatus),
    Ping,
    DownAndUp,
    /// Only one side closes. If each side closed the path the other one keeps, and a NAT box forgot
    /// its bindings at that moment, neither could reach the other again.
    Close,
    /// The client moves to another port, and to another address if the server has one for all.
    Move(Share),
}

#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// A unidirectional stream of about 2 to this power bytes; none at all for 0.
    Send(Side, u32),
    /// A bidirectional stream, and the answer.
    Ask(Side, u32, u32),
    Datagram(Side, usize),
    Stream(Side, Share, OnStream),
    Pause(Side),
    Resume(Side),
    ReadUnordered(Side),
    UpdateKeys(Side),
    ReplaceConnectionIds(Side),
    Limit(Side, Limit),
    OpenPath(Share, PathStatus),
    Network(Share, Trouble),
    Path(Side, Share, OnPath),
    Close(Side, u32),
}

/// How many bytes a power stands for.
pub(super) fn size(log: u32) -> u64 {
    match log {
        0 => 0,
        log => (1 << log) + u64::from(log),
    }
}

fn share() -> impl Strategy<Value = Share> {
    any::<u64>().prop_map(Share)
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        2 => Just(Trouble::Outage(true)),
        6 => Just(Trouble::Outage(false)),
        1 => (0.5..100.0).prop_map(Trouble::Rate),
        1 => (1..200u32).prop_map(Trouble::Delay),
        1 => (0.0..0.1).prop_map(Trouble::Loss),
        1 => (0.0..0.05).prop_map(Trouble::Corrupt),
        1 => (1250..1500usize).prop_map(Trouble::Mtu),
        2 => any::<bool>().prop_map(|other_ip| Trouble::Rebind { other_ip }),
    ]
}

fn on_stream() -> impl Strategy<Value = OnStream> {
    prop_oneof![
        2 => (0..100u32).prop_map(OnStream::Reset),
        1 => (0..100u32).prop_map(OnStream::ResetAtHalf),
        2 => (0..100u32).prop_map(OnStream::Stop),
        1 => (-2..3i32).prop_map(OnStream::Priority),
        1 => any::<bool>().prop_map(OnStream::Incremental),
        2 => any::<bool>().prop_map(OnStream::Redundant),
        1 => share().prop_map(OnStream::Bind),
        1 => Just(OnStream::Unbind),
        1 => (0..1_000_000u64).prop_map(OnStream::Expect),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (12..24u32).prop_map(Limit::SendWindow),
        (12..24u32).prop_map(Limit::ReceiveWindow),
        (1..100u64).prop_map(Limit::UniStreams),
        (1..100u64).prop_map(Limit::BidiStreams),
    ]
}

fn on_path(status: impl Strategy<Value = PathStatus>) -> impl Strategy<Value = OnPath> {
    prop_oneof![
        status.prop_map(OnPath::Status),
        Just(OnPath::Ping),
        Just(OnPath::DownAndUp),
        Just(OnPath::Close),
        share().prop_map(OnPath::Move),
    ]
}

pub(super) fn operation() -> impl Strategy<Value = Operation> {
    let side = || proptest::sample::select(&SIDES[..]);
    let status = || proptest::sample::select(&[PathStatus::Available, PathStatus::Backup][..]);
    prop_oneof![
        8 => (side(), 0..22u32).prop_map(|(side, log)| Operation::Send(side, log)),
        3 => (side(), 0..20u32, 0..20u32)
            .prop_map(|(side, log, answer)| Operation::Ask(side, log, answer)),
        3 => (side(), 8..1300usize).prop_map(|(side, size)| Operation::Datagram(side, size)),
        5 => (side(), share(), on_stream())
            .prop_map(|(side, share, what)| Operation::Stream(side, share, what)),
        2 => side().prop_map(Operation::Pause),
        2 => side().prop_map(Operation::Resume),
        1 => side().prop_map(Operation::ReadUnordered),
        2 => side().prop_map(Operation::UpdateKeys),
        1 => side().prop_map(Operation::ReplaceConnectionIds),
        2 => (side(), limit()).prop_map(|(side, limit)| Operation::Limit(side, limit)),
        6 => (share(), status()).prop_map(|(share, status)| Operation::OpenPath(share, status)),
        10 => (share(), trouble())
            .prop_map(|(share, trouble)| Operation::Network(share, trouble)),
        12 => (side(), share(), on_path(status()))
            .prop_map(|(side, share, what)| Operation::Path(side, share, what)),
        1 => (side(), 0..100u32).prop_map(|(side, code)| Operation::Close(side, code)),
    ]
}
