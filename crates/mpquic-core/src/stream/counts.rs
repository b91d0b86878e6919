//! [`StreamCounts`]: the limits on the number of streams, for either side.

use std::time::{Duration, Instant};

use quinn_proto::Dir;

use super::flow::{ReceiveCredit, SendCredit};
use crate::config::{MAX_CONCURRENT_STREAMS, TransportConfig};
use crate::error::{Fault, TransportError};
use crate::packet::delivery::StreamDelivery;
use crate::packet::writer::FrameWriter;
use crate::rate::TokenBucket;
use crate::wire::frame::{Frame, MAX_STREAM_COUNT, MaxStreams, StreamsBlocked};

/// How many streams the peer may reset in a burst. A reset right after a request costs the peer
/// next to nothing, and an answering application much; an application which drops late data resets
/// some hundred streams a second.
const MAX_RESETS: u32 = 10_000;
/// Time until the peer may reset another stream beyond [`MAX_RESETS`].
const RESET_INTERVAL: Duration = Duration::from_millis(1);

/// True if MAX_STREAMS is due. A peer without credit learns of each stream that ends, because the
/// other streams may stay open for hours.
#[inline]
fn is_due(credit: &ReceiveCredit) -> bool {
    credit.wants_update() || credit.is_exhausted()
}

/// A direction's place in arrays.
pub(super) fn slot(dir: Dir) -> usize {
    dir as usize
}

/// Limits on the number of streams, by direction.
#[derive(Debug)]
pub(super) struct StreamCounts {
    /// The peer's MAX_STREAMS.
    open: [SendCredit; 2],
    /// Our MAX_STREAMS.
    accept: [ReceiveCredit; 2],
    /// Index of the next stream of the peer to give to the application.
    next_accept: [u64; 2],
    /// The peer opened streams that the application was not told of yet.
    is_news: [bool; 2],
    /// Streams that the peer may still reset.
    resets: TokenBucket,
}

impl StreamCounts {
    /// The configured limits of the peer, and no credit from it yet.
    pub(super) fn new(config: &TransportConfig) -> Self {
        Self {
            open: Default::default(),
            accept: [
                ReceiveCredit::new(config.max_concurrent_bidi_streams),
                ReceiveCredit::new(config.max_concurrent_uni_streams),
            ],
            next_accept: [0; 2],
            is_news: [false; 2],
            resets: TokenBucket::new(MAX_RESETS, RESET_INTERVAL),
        }
    }

    /// 0-RTT was rejected: none of our streams was opened, and the remembered limits do not hold.
    pub(super) fn on_zero_rtt_rejected(&mut self) {
        self.open = Default::default();
    }

    /// Changes how many streams of the peer may be open at a time.
    pub(super) fn set_max_concurrent(&mut self, dir: Dir, count: u64) {
        self.accept[slot(dir)].set_window(count.min(MAX_CONCURRENT_STREAMS));
    }

    /// How many streams of the peer may be open at a time, in both directions.
    pub(super) fn max_concurrent(&self) -> u64 {
        let [bidi, uni] = &self.accept;
        bidi.window().saturating_add(uni.window())
    }

    /// We open a stream; false if the peer's limit does not allow it.
    pub(super) fn take_open(&mut self, dir: Dir) -> bool {
        let credit = &mut self.open[slot(dir)];
        if credit.available() == 0 {
            credit.on_blocked();
            return false;
        }
        credit.take(1);
        true
    }

    /// Sets the peer's limit. True if we may now open a stream after an earlier refusal.
    pub(super) fn raise(&mut self, dir: Dir, maximum: u64) -> bool {
        let credit = &mut self.open[slot(dir)];
        let was_blocked = credit.is_blocked();
        credit.raise(maximum) && was_blocked
    }

    /// A frame of the peer names its stream `index`, which is not open yet; returns how many
    /// streams that opens.
    pub(super) fn on_opened(&mut self, dir: Dir, index: u64) -> Result<u64, TransportError> {
        // RFC 9000 section 4.6
        let credit = &mut self.accept[slot(dir)];
        let streams = (index + 1).saturating_sub(credit.received());
        if !credit.on_received(streams) {
            return Err(Fault::StreamsBeyondLimit.into());
        }
        Ok(streams)
    }

    /// Remembers to tell the application that the peer opened streams.
    pub(super) fn set_news(&mut self, dir: Dir) {
        self.is_news[slot(dir)] = true;
    }

    /// A direction in which the peer opened streams, if the application was not told of them yet.
    #[inline]
    pub(super) fn take_news(&mut self) -> Option<Dir> {
        let is_news = |dir: &Dir| std::mem::take(&mut self.is_news[slot(*dir)]);
        [Dir::Bi, Dir::Uni].into_iter().find(is_news)
    }

    /// The index of the next stream to give to the application, of `opened` streams of the peer.
    pub(super) fn accept(&mut self, dir: Dir, opened: u64) -> Option<u64> {
        let next = &mut self.next_accept[slot(dir)];
        let index = *next;
        (index < opened).then(|| {
            *next += 1;
            index
        })
    }

    /// A stream of the peer is closed.
    pub(super) fn on_closed(&mut self, dir: Dir) {
        self.accept[slot(dir)].on_consumed(1);
    }

    /// The peer reset a stream.
    pub(super) fn on_reset(&mut self, now: Instant) -> Result<(), TransportError> {
        // RFC 9000 section 21.9
        if self.resets.take(now) {
            Ok(())
        } else {
            Err(Fault::TooManyResets.into())
        }
    }

    /// STREAMS_BLOCKED.
    pub(super) fn on_peer_blocked(&mut self, frame: &StreamsBlocked) -> Result<(), TransportError> {
        // RFC 9000 section 19.14
        if frame.maximum_streams > MAX_STREAM_COUNT {
            return Err(Fault::StreamCountTooLarge.into());
        }
        self.accept[slot(frame.dir)].on_peer_blocked();
        Ok(())
    }

    /// True if MAX_STREAMS is due.
    #[inline]
    pub(super) fn is_limit_due(&self) -> bool {
        self.accept.iter().any(is_due)
    }

    /// True if STREAMS_BLOCKED is due.
    #[inline]
    pub(super) fn is_report_due(&self) -> bool {
        self.open.iter().any(|credit| credit.report().is_some())
    }

    /// Writes MAX_STREAMS frames that are due; false if one does not fit.
    pub(super) fn write_limits(&mut self, writer: &mut FrameWriter<'_>) -> bool {
        for dir in [Dir::Bi, Dir::Uni] {
            let credit = &mut self.accept[slot(dir)];
            if is_due(credit) {
                let frame = Frame::MaxStreams(MaxStreams {
                    dir,
                    maximum_streams: credit.limit(),
                });
                if !writer.try_write(&frame, StreamDelivery::MaxStreams(dir)) {
                    return false;
                }
                credit.on_announced();
            }
        }
        true
    }

    /// Writes STREAMS_BLOCKED frames that are due; false if one does not fit.
    pub(super) fn write_reports(&mut self, writer: &mut FrameWriter<'_>) -> bool {
        for dir in [Dir::Bi, Dir::Uni] {
            let credit = &mut self.open[slot(dir)];
            if let Some(limit) = credit.report() {
                let frame = Frame::StreamsBlocked(StreamsBlocked {
                    dir,
                    maximum_streams: limit,
                });
                if !writer.try_write(&frame, StreamDelivery::StreamsBlocked(dir)) {
                    return false;
                }
                credit.on_reported();
            }
        }
        true
    }

    /// A MAX_STREAMS frame was lost.
    pub(super) fn on_limit_lost(&mut self, dir: Dir) {
        self.accept[slot(dir)].on_lost();
    }

    /// A STREAMS_BLOCKED frame was lost.
    pub(super) fn on_report_lost(&mut self, dir: Dir) {
        self.open[slot(dir)].on_report_lost();
    }
}
