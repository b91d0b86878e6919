//! A congestion controller that limits the rate of each path, as if loopback were a link of this
//! rate.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::congestion::{
    Acked, CongestionEvent, Controller, ControllerFactory, ResumePhase, SavedCapacity, Sent,
    factory, scalable,
};
use mpquic_core::{EcnCodepoint, PathId};

/// Controllers of `inner`, limited to `bytes_per_second` on each path.
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

    fn resume(&mut self, path: PathId, now: Instant, saved: SavedCapacity) {
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

    fn burst(&self, path: PathId) -> Option<u64> {
        self.inner.burst(path)
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        self.inner.window_after_round(path, windows)
    }

    fn memory(&self) -> u64 {
        self.inner.memory()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::Duration;

    use mpquic_core::congestion::{CongestionKind, RttSnapshot};

    #[test]
    fn rate_limit_keeps_the_inner_ecn_choice() {
        for (name, codepoint) in [("olia", EcnCodepoint::Ect0), ("prague", EcnCodepoint::Ect1)] {
            let held = limited(mpquic_cc::by_name(name).unwrap(), 1000);
            assert_eq!(held.ecn_codepoint(), codepoint);
        }
    }

    /// A controller that records its calls.
    #[derive(Debug, Default)]
    struct Asked(Arc<Mutex<Vec<String>>>);

    impl Asked {
        fn note(&self, what: impl std::fmt::Display) {
            self.0.lock().unwrap().push(what.to_string());
        }
    }

    impl Controller for Asked {
        fn on_path_opened(&mut self, path: PathId, _: Instant, mtu: u16) {
            self.note(format_args!("opened {path} {mtu}"));
        }

        fn on_path_closed(&mut self, path: PathId) {
            self.note(format_args!("closed {path}"));
        }

        fn resume(&mut self, path: PathId, _: Instant, saved: SavedCapacity) {
            self.note(format_args!("resume {path} {}", saved.window));
        }

        fn resume_phase(&self, _: PathId) -> ResumePhase {
            ResumePhase::SafeRetreat
        }

        fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
            self.note(format_args!("mtu {path} {mtu}"));
        }

        fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
            self.note(format_args!("sent {path} {}", sent.bytes));
        }

        fn on_ack(&mut self, path: PathId, ack: &Acked) {
            self.note(format_args!("acknowledged {path} {}", ack.bytes));
        }

        fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
            self.note(format_args!("congestion {path} {:?}", event.kind));
        }

        fn window(&self, path: PathId) -> u64 {
            1000 + u64::from(path.0)
        }

        fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
            Some(2000 + u64::from(path.0))
        }

        fn in_recovery(&self, path: PathId) -> bool {
            path == PathId(1)
        }

        fn pacing_rate(&self, path: PathId) -> Option<u64> {
            [None, Some(400), Some(600)][path.0 as usize]
        }

        fn window_after_round(&self, _: PathId, windows: &[(PathId, u64)]) -> u64 {
            windows.iter().map(|(_, window)| window).sum()
        }

        fn memory(&self) -> u64 {
            77
        }

        fn name(&self) -> &'static str {
            "asked"
        }
    }

    #[test]
    fn rate_limit_forwards_everything_but_the_rate() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let asked = heard.clone();
        let inner = factory("asked", move || Box::new(Asked(asked.clone())));
        let mut held = limited(inner, 500).build();
        let (now, path) = (crate::process::clock::now(), PathId(1));
        let rtt = Duration::from_millis(20);
        held.on_path_opened(path, now, 1200);
        let saved = SavedCapacity { window: 9, rtt };
        held.resume(path, now, saved);
        held.on_mtu_update(path, 1400);
        held.on_packet_sent(path, &Sent::new(now, 0, 1300, 1300));
        held.on_ack(path, &Acked::new(now, now, 1299, RttSnapshot::new(rtt)));
        let event = CongestionEvent::new(CongestionKind::Loss, now, now);
        held.on_congestion_event(path, &event);
        held.on_path_closed(path);
        let expected = [
            "opened 1 1200",
            "resume 1 9",
            "mtu 1 1400",
            "sent 1 1300",
            "acknowledged 1 1299",
            "congestion 1 Loss",
            "closed 1",
        ];
        assert_eq!(*heard.lock().unwrap(), expected);
        assert_eq!(held.resume_phase(path), ResumePhase::SafeRetreat);
        assert_eq!(
            (held.window(path), held.slow_start_threshold(path)),
            (1001, Some(2001))
        );
        assert_eq!(
            [0, 1].map(|path| held.in_recovery(PathId(path))),
            [false, true]
        );
        let windows = [(path, 30), (PathId(0), 12)];
        assert_eq!(held.window_after_round(path, &windows), 42);
        assert_eq!((held.name(), held.memory()), ("asked", 77));
        let rates = [0, 1, 2].map(|path| held.pacing_rate(PathId(path)));
        assert_eq!(rates, [500, 400, 500].map(Some));
    }
}
