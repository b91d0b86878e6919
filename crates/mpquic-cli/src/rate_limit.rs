//! A congestion controller that sends no faster than a given rate on each path, as if loopback were
//! a link of that rate.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::congestion::{
    Acked, CongestionEvent, Controller, ControllerFactory, ResumePhase, SavedPath, Sent, factory,
    scalable,
};
use mpquic_core::{EcnCodepoint, PathId};

/// Makes controllers like those of `inner` that send at most `bytes_per_second` on each path.
pub(crate) fn limited(
    inner: Arc<dyn ControllerFactory>,
    bytes_per_second: u64,
) -> Arc<dyn ControllerFactory> {
    let codepoint = inner.ecn_codepoint();
    let make = move || -> Box<dyn Controller> {
        Box::new(Limited {
            inner: inner.build(),
            bytes_per_second,
        })
    };
    match codepoint {
        EcnCodepoint::Ect1 => scalable("limited", make),
        _ => factory("limited", make),
    }
}

#[derive(Debug)]
struct Limited {
    inner: Box<dyn Controller>,
    bytes_per_second: u64,
}

impl Controller for Limited {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.inner.on_path_opened(path, now, mtu);
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.inner.on_path_closed(path);
    }

    fn resume(&mut self, path: PathId, now: Instant, saved: SavedPath) {
        self.inner.resume(path, now, saved);
    }

    fn resume_phase(&self, path: PathId) -> ResumePhase {
        self.inner.resume_phase(path)
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        self.inner.on_mtu_update(path, mtu);
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        self.inner.on_packet_sent(path, sent);
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        self.inner.on_ack(path, ack);
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        self.inner.on_congestion_event(path, event);
    }

    fn window(&self, path: PathId) -> u64 {
        self.inner.window(path)
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.inner.slow_start_threshold(path)
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.inner.in_recovery(path)
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        let rate = self.inner.pacing_rate(path).unwrap_or(u64::MAX);
        Some(rate.min(self.bytes_per_second))
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        self.inner.window_after_round(path, windows)
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_marked_as_what_it_holds_back_wants() {
        for (name, codepoint) in [("olia", EcnCodepoint::Ect0), ("prague", EcnCodepoint::Ect1)] {
            let held = limited(mpquic_cc::by_name(name).unwrap(), 1000);
            assert_eq!(held.ecn_codepoint(), codepoint);
        }
    }
}
