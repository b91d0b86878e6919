//! Events that a scheduler receives.

use std::time::{Duration, Instant};

use quinn_proto::StreamId;

use crate::congestion::CongestionKind;
use crate::ids::{PathId, PathStatus};

/// A packet, as told to schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketInfo {
    /// The path that carried it.
    pub path: PathId,
    /// Its number on that path.
    pub packet_number: u64,
    /// Its size, bytes.
    pub bytes: u64,
    /// The tag of the decision that sent it; 0 for packets no decision asked for.
    pub tag: u64,
    /// When it was sent.
    pub sent_at: Instant,
}

impl PacketInfo {
    /// A packet with the tag 0.
    pub fn new(path: PathId, packet_number: u64, bytes: u64, sent_at: Instant) -> Self {
        Self {
            path,
            packet_number,
            bytes,
            tag: 0,
            sent_at,
        }
    }
}

/// An event since the last call of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchedulerEvent {
    /// A path was validated and can carry data.
    PathAdded(PathId),
    /// A path was abandoned.
    PathRemoved(PathId),
    /// A path's status changed.
    PathStatus(PathId, PathStatus),
    /// A probe timeout passed on the path with nothing heard since.
    PathSuspect(PathId),
    /// A suspect path answers again, or has moved to other addresses.
    PathRecovered(PathId),
    /// A new RTT sample on the path.
    RttUpdated(PathId),
    /// The path's window was cut.
    Congestion(PathId, CongestionKind),
    /// A stream on which we may send was opened, by us or by the peer. A stream of the peer is
    /// reported after the application has accepted the stream or begun to send, or after frames of
    /// the peer about its sending half.
    StreamOpened(StreamId),
    /// The size of a stream is known: the application finished the stream, reset it with a reliable
    /// size, or announced its size. An announced size may be wrong.
    StreamSizeKnown(StreamId, u64),
    /// A stream is over: all bytes and the end were acknowledged, the stream was reset, or 0-RTT
    /// was rejected.
    StreamFinished(StreamId),
    /// Connection flow control blocks sending.
    FlowControlBlocked,
    /// A packet was sent.
    Sent(PacketInfo),
    /// A packet was acknowledged. The sample is the one of the newest packet of the same frame.
    Acked(PacketInfo, Option<Duration>),
    /// A packet was declared lost.
    Lost(PacketInfo),
    /// The time of [`Scheduler::next_timeout`](super::Scheduler::next_timeout) has come.
    Timer,
}
