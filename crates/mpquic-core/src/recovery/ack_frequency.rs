//! How often acknowledgements are sent: the peer's requests to us, and our requests to the peer
//! (draft-ietf-quic-ack-frequency-14). The frames name no path, so each side has one setting for
//! all paths.

use std::time::{Duration, Instant};

use crate::config::{MAX_ACK_DELAY, TransportConfig};
use crate::error::{Fault, TransportError};
use crate::packet::delivery::{Delivery, Fate, Progress};
use crate::packet::writer::FrameWriter;
use crate::space::AckPolicy;
use crate::wire::frame::{AckFrequency, Frame};
use crate::wire::transport_parameters::TransportParameters;

/// The first request asks for at least this threshold, and waits for a path with as many datagrams
/// in flight as the threshold needs: a side that sends little needs no request.
const FIRST_THRESHOLD: u64 = 4;

/// The first request waits for this many round trips in which no window grew by a quarter. At the
/// start of a path, frequent acknowledgements show sooner that its queue fills.
const STEADY: u32 = 8;

/// Both directions of the extension.
#[derive(Debug)]
pub(crate) struct AckFrequencies {
    /// How we acknowledge.
    policy: AckPolicy,
    /// How late our timers may fire.
    timer_lateness: Duration,
    /// Our `min_ack_delay`, if we announced one.
    min_delay: Option<Duration>,
    /// The largest sequence number the peer used.
    largest_sequence: Option<u64>,
    /// The peer's `min_ack_delay`, if it accepts requests.
    peer_min_delay: Option<Duration>,
    /// The peer's `max_ack_delay`.
    announced_delay: Duration,
    /// The delay of the peer that we can rely on: announced, or requested and acknowledged.
    peer_delay: Duration,
    /// The last request. Its acknowledgement comes before another request.
    request: Option<(AckFrequency, Progress)>,
    /// When the request is reviewed.
    review_at: Option<Instant>,
    /// The smallest window at the last review, datagrams.
    last_window: u64,
    /// Reviews without a growing window, one after the other.
    steady: u32,
}

/// The measurements on which a request depends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions {
    /// The smallest smoothed round-trip time of the usable paths.
    pub(crate) round_trip: Duration,
    /// The smallest window of the usable paths, datagrams.
    pub(crate) window: u64,
    /// The fewest acknowledgements in each window, see
    /// [`Controller::acks_per_window`](crate::congestion::Controller::acks_per_window).
    pub(crate) acks_per_window: u64,
    /// Datagrams in flight on the acknowledged path before the acknowledgement.
    pub(crate) in_flight: u64,
}

impl AckFrequencies {
    pub(crate) fn new(config: &TransportConfig, announced: &TransportParameters) -> Self {
        Self {
            policy: AckPolicy::from_config(config),
            timer_lateness: config.timer_lateness,
            min_delay: announced.min_ack_delay,
            largest_sequence: None,
            peer_min_delay: None,
            announced_delay: TransportParameters::default().max_ack_delay,
            peer_delay: TransportParameters::default().max_ack_delay,
            request: None,
            review_at: None,
            last_window: 0,
            steady: 0,
        }
    }

    /// The peer's parameters arrived.
    pub(crate) fn set_peer_parameters(&mut self, peer: &TransportParameters) {
        self.peer_min_delay = peer.min_ack_delay;
        self.announced_delay = peer.max_ack_delay;
        self.peer_delay = peer.max_ack_delay;
    }

    /// How 1-RTT packets are acknowledged, on all paths.
    pub(crate) fn policy(&self) -> &AckPolicy {
        &self.policy
    }

    /// True if the peer supports IMMEDIATE_ACK.
    pub(crate) fn peer_answers_at_once(&self) -> bool {
        self.peer_min_delay.is_some()
    }

    /// The longest time the peer may delay acknowledgements. Until it has acknowledged a request,
    /// the longer of the delays before and after the request counts (section 7).
    pub(crate) fn peer_max_ack_delay(&self) -> Duration {
        match &self.request {
            Some((request, Progress::Queued | Progress::Sent)) => {
                self.peer_delay.max(delay(request))
            }
            Some((_, Progress::Delivered)) | None => self.peer_delay,
        }
    }

    /// IMMEDIATE_ACK arrived.
    pub(crate) fn on_immediate_ack(&self) -> Result<(), TransportError> {
        self.announced().map(|_| ())
    }

    /// ACK_FREQUENCY arrived.
    pub(crate) fn on_ack_frequency(&mut self, asked: &AckFrequency) -> Result<(), TransportError> {
        let min_delay = self.announced()?;
        // Section 4: a delay above the limit of any max_ack_delay, or below our announced minimum
        if delay(asked) > MAX_ACK_DELAY || delay(asked) < min_delay {
            return Err(Fault::AckDelayNotValid.into());
        }
        if Some(asked.sequence_number) <= self.largest_sequence {
            return Ok(());
        }
        self.largest_sequence = Some(asked.sequence_number);
        self.policy = AckPolicy {
            ack_eliciting_threshold: asked.ack_eliciting_threshold.saturating_add(1),
            max_ack_delay: delay(asked).saturating_sub(self.timer_lateness),
            reordering_threshold: asked.reordering_threshold,
            // Section 6.3
            every_ce: asked.ack_eliciting_threshold <= 1,
        };
        Ok(())
    }

    /// Our `min_ack_delay`. Without one, the frame types are unknown (RFC 9000 section 12.4).
    pub(crate) fn announced(&self) -> Result<Duration, TransportError> {
        self.min_delay.ok_or(Fault::AckFrequencyNotAnnounced.into())
    }

    /// True if it is time to review the request to the peer.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let settled = self
            .request
            .is_none_or(|(_, progress)| progress == Progress::Delivered);
        settled && self.peer_min_delay.is_some() && self.review_at.is_none_or(|at| at <= now)
    }

    /// Asks for what suits the paths now, if that differs from the last request. The next review is
    /// at `next`.
    pub(crate) fn review(&mut self, config: &TransportConfig, paths: Conditions, next: Instant) {
        self.review_at = Some(next);
        let is_growing = paths.window > self.last_window + self.last_window / 4;
        self.steady = if is_growing { 0 } else { self.steady + 1 };
        self.last_window = paths.window;
        let (Some(wanted), Some(min_delay)) = (&config.ack_frequency, self.peer_min_delay) else {
            return;
        };
        // Section 8.1: once in each round trip, and often enough for the window to grow
        let delay = wanted.max_ack_delay.unwrap_or(self.announced_delay);
        let delay = delay
            .min(paths.round_trip)
            .max(min_delay)
            .min(MAX_ACK_DELAY);
        let threshold = wanted.ack_eliciting_threshold;
        let threshold = threshold.min(paths.window / paths.acks_per_window).max(1);
        let before = self.request.map(|(request, _)| request);
        let least = wanted.ack_eliciting_threshold.min(FIRST_THRESHOLD);
        let is_small = threshold < least || paths.in_flight < least * paths.acks_per_window;
        if before.is_none() && (is_small || self.steady < STEADY) {
            return;
        }
        let next = AckFrequency {
            sequence_number: before.map_or(0, |before| before.sequence_number + 1),
            ack_eliciting_threshold: threshold,
            requested_max_ack_delay: u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
            reordering_threshold: wanted
                .reordering_threshold
                .unwrap_or(config.packet_threshold),
        };
        if before.is_none_or(|before| differs(&before, &next)) {
            self.request = Some((next, Progress::Queued));
        }
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        self.request
            .is_some_and(|(_, progress)| progress.is_queued())
    }

    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        if let Some((request, progress)) = &mut self.request
            && progress.is_queued()
        {
            let delivery = Delivery::AckFrequency(request.sequence_number);
            if writer.try_write(&Frame::AckFrequency(*request), delivery) {
                *progress = Progress::Sent;
            }
        }
    }

    /// A request was acknowledged or lost.
    pub(crate) fn on_delivery(&mut self, sequence: u64, fate: Fate) {
        if let Some((request, progress)) = &mut self.request
            && request.sequence_number == sequence
        {
            progress.on_fate(fate);
            if *progress == Progress::Delivered {
                self.peer_delay = delay(request);
            }
        }
    }
}

fn delay(frame: &AckFrequency) -> Duration {
    Duration::from_micros(frame.requested_max_ack_delay)
}

/// True if a change is large enough for a frame; windows and round-trip times change a little all
/// the time.
fn differs(before: &AckFrequency, after: &AckFrequency) -> bool {
    let moved = |before: u64, after: u64| before.abs_diff(after) > before / 4;
    moved(
        before.ack_eliciting_threshold,
        after.ack_eliciting_threshold,
    ) || moved(
        before.requested_max_ack_delay,
        after.requested_max_ack_delay,
    ) || before.reordering_threshold != after.reordering_threshold
}
