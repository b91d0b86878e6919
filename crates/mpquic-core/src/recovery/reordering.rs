//! The path's tolerance for reordering, and the grouping of losses into events.

use std::time::Instant;

use crate::config::TransportConfig;

/// How much reordering is tolerated. It grows when losses turn out spurious, as RFC 9002 sections
/// 6.1.1 and 6.1.2 permit, and shrinks back when they are real (compare RFC 8985 section 3.3.2).
#[derive(Debug, Clone)]
pub(super) struct Thresholds {
    configured: Tolerance,
    pub(super) current: Tolerance,
    /// Loss events since the tolerance was last raised.
    events_since_raised: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    /// In packet numbers.
    pub(super) packets: u64,
    /// In sixty-fourths of the RTT.
    pub(super) time: u32,
}

impl Thresholds {
    /// The largest tolerance. With more packets, processing an acknowledgement would take longer.
    const LIMIT: Tolerance = Tolerance {
        packets: 128,
        time: 128,
    };
    /// Real loss events after which the tolerance falls back.
    const CALM_EVENTS: u32 = 16;

    pub(super) fn new(config: &TransportConfig) -> Self {
        let configured = Tolerance {
            packets: config.packet_threshold,
            time: (config.time_threshold * 64.0).round() as u32,
        };
        Self {
            configured,
            current: configured,
            events_since_raised: 0,
        }
    }

    pub(super) fn raise(&mut self) {
        let Tolerance { packets, time } = self.current;
        let configured = self.configured;
        self.current = Tolerance {
            packets: (packets.saturating_mul(2)).min(Self::LIMIT.packets.max(configured.packets)),
            time: (time + 8).min(Self::LIMIT.time.max(configured.time)),
        };
        self.events_since_raised = 0;
    }

    pub(super) fn on_loss_event(&mut self) {
        self.events_since_raised += 1;
        if self.events_since_raised >= Self::CALM_EVENTS {
            self.current = self.configured;
            self.events_since_raised = 0;
        }
    }
}

/// Losses for which a controller reduces its window only once: losses of packets sent before the
/// first loss was detected.
#[derive(Debug, Clone)]
pub(super) struct LossEvent {
    /// When the first loss was detected.
    pub(super) started: Instant,
    /// When the newest lost packet was sent.
    pub(super) sent_at: Instant,
    pub(super) largest_lost: u64,
    pub(super) bytes: u64,
    /// Lost packets not acknowledged since.
    pub(super) missing: u32,
    /// The tolerance was raised after an acknowledgement of some of the packets.
    pub(super) raised: bool,
}
