//! A path for tests: its recovery state and one packet number space.

use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::PacketNumberSpace;
use super::{AckContext, AckOutcome, Recovery, TimeoutContext};
use crate::config::TransportConfig;
use crate::congestion::CongestionKind;
use crate::error::TransportError;
use crate::ids::{PathId, SpaceId};
use crate::range_set::RangeSet;
use crate::space::SentPacket;
use crate::wire::frame::{Ack, EcnCounts};

pub(crate) const BYTES: u16 = 1000;

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Some point in time, always the same one: a slow machine is no part of what a test measures.
pub(crate) fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a test needs some point in time")]
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

pub(crate) struct TestPath {
    pub(crate) config: TransportConfig,
    pub(crate) recovery: Recovery,
    pub(crate) space: PacketNumberSpace,
    pub(crate) start: Instant,
    pub(crate) out: AckOutcome,
    pub(crate) cx: AckContext,
}

impl TestPath {
    pub(crate) fn new() -> Self {
        Self::with(
            TransportConfig::without_policies(),
            SpaceId::Data(PathId::ZERO),
        )
    }

    pub(crate) fn with(config: TransportConfig, space: SpaceId) -> Self {
        let start = start();
        Self {
            recovery: Recovery::new(&config, start),
            config,
            space: PacketNumberSpace::new(space),
            start,
            out: AckOutcome::default(),
            cx: AckContext {
                now: start,
                peer_ack_delay_exponent: 3,
                peer_max_ack_delay: Duration::ZERO,
                handshake_confirmed: true,
                peer_validated_address: true,
            },
        }
    }

    /// Sets the time, counted from the start.
    pub(crate) fn at(&mut self, time: Duration) -> &mut Self {
        self.cx.now = self.start + time;
        self
    }

    /// The time counted from the start.
    pub(crate) fn since_start(&self, time: Instant) -> Duration {
        time - self.start
    }

    /// Sends an ack-eliciting packet.
    pub(crate) fn send(&mut self) -> u64 {
        self.send_with(|_| {})
    }

    pub(crate) fn send_with(&mut self, change: impl FnOnce(&mut SentPacket)) -> u64 {
        let number = self.space.take_packet_number();
        let mut packet = SentPacket {
            ack_eliciting: true,
            in_flight: true,
            ..SentPacket::new(self.cx.now, BYTES)
        };
        change(&mut packet);
        self.recovery
            .on_packet_sent(&mut self.space, number, packet);
        number
    }

    pub(crate) fn send_many(&mut self, count: u64) {
        for _ in 0..count {
            self.send();
        }
    }

    /// The peer acknowledges these packets without delay.
    pub(crate) fn ack(&mut self, ranges: &[Range<u64>]) -> &AckOutcome {
        self.ack_with(ranges, 0, None)
            .expect("the acknowledgement is valid")
    }

    pub(crate) fn ack_with(
        &mut self,
        ranges: &[Range<u64>],
        delay: u64,
        ecn: Option<EcnCounts>,
    ) -> Result<&AckOutcome, TransportError> {
        let received: RangeSet = ranges.iter().cloned().collect();
        let ack = Ack::new(&received, delay, ecn).expect("some number is acknowledged");
        self.recovery
            .on_ack(&mut self.space, &ack, &self.cx, &mut self.out)?;
        Ok(&self.out)
    }

    /// Fires the loss timer.
    pub(crate) fn detect_lost(&mut self) -> &AckOutcome {
        self.recovery
            .detect_lost(&mut self.space, &self.cx, &mut self.out);
        &self.out
    }

    /// Makes the smoothed RTT this and the variation next to nothing.
    pub(crate) fn settle_rtt(&mut self, rtt: Duration) {
        for _ in 0..100 {
            let number = self.send();
            self.cx.now += rtt;
            self.ack(std::slice::from_ref(&(number..number + 1)));
        }
        self.start = self.cx.now;
    }

    pub(crate) fn timeout_context(&self) -> TimeoutContext {
        TimeoutContext {
            max_backoff: super::pto::MAX_BACKOFF,
            has_alternative: false,
            peer_max_ack_delay: self.cx.peer_max_ack_delay,
            handshake_confirmed: self.cx.handshake_confirmed,
            peer_validated_address: self.cx.peer_validated_address,
            amplification_limited: false,
            has_handshake_keys: false,
        }
    }
}

impl AckOutcome {
    pub(crate) fn acked_numbers(&self) -> Vec<u64> {
        self.acked.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn lost_numbers(&self) -> Vec<u64> {
        self.lost.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn late_numbers(&self) -> Vec<u64> {
        self.late.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<CongestionKind> {
        self.congestion.iter().map(|event| event.kind).collect()
    }
}
