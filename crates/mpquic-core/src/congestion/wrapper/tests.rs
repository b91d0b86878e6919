use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::congestion::{CongestionKind, RttSnapshot};

/// A controller that records its calls, and answers each question with a value of its own.
#[derive(Debug, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    fn note(&self, what: impl fmt::Display) {
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

    fn burst(&self, path: PathId) -> Option<u64> {
        Some(3000 + u64::from(path.0))
    }

    fn send_quantum(&self, path: PathId) -> Option<u64> {
        Some(4000 + u64::from(path.0))
    }

    fn acks_per_window(&self) -> u64 {
        5
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

/// A wrapper that implements no method of its own.
#[derive(Debug)]
struct Plain(Asked);

impl ControllerWrapper for Plain {
    fn inner(&self) -> &dyn Controller {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut dyn Controller {
        &mut self.0
    }
}

/// A wrapper that answers one question itself.
#[derive(Debug)]
struct Paced(Asked);

impl ControllerWrapper for Paced {
    fn inner(&self) -> &dyn Controller {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut dyn Controller {
        &mut self.0
    }

    fn pacing_rate(&self, _: PathId) -> Option<u64> {
        Some(7)
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the controllers need some instant"
)]
fn wrapper_passes_each_call_on() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut wrapper: Box<dyn Controller> = Box::new(Plain(Asked(heard.clone())));
    let (now, path) = (Instant::now(), PathId(1));
    let rtt = Duration::from_millis(20);
    wrapper.on_path_opened(path, now, 1200);
    wrapper.resume(path, now, SavedCapacity { window: 9, rtt });
    wrapper.on_mtu_update(path, 1400);
    wrapper.on_packet_sent(path, &Sent::new(now, 0, 1300, 1300));
    wrapper.on_ack(path, &Acked::new(now, now, 1299, RttSnapshot::new(rtt)));
    let event = CongestionEvent::new(CongestionKind::Loss, now, now);
    wrapper.on_congestion_event(path, &event);
    wrapper.on_path_closed(path);
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
    assert_eq!(wrapper.resume_phase(path), ResumePhase::SafeRetreat);
    assert_eq!(wrapper.window(path), 1001);
    assert_eq!(wrapper.slow_start_threshold(path), Some(2001));
    assert_eq!(wrapper.burst(path), Some(3001));
    assert_eq!(wrapper.send_quantum(path), Some(4001));
    assert_eq!(wrapper.acks_per_window(), 5);
    assert!(wrapper.in_recovery(path) && !wrapper.in_recovery(PathId(0)));
    assert_eq!(wrapper.pacing_rate(path), Some(400));
    assert_eq!(
        wrapper.window_after_round(path, &[(path, 30), (PathId(0), 12)]),
        42
    );
    assert_eq!((wrapper.name(), wrapper.memory()), ("asked", 77));
}

#[test]
fn wrapper_answers_what_it_implements() {
    let wrapper: Box<dyn Controller> = Box::new(Paced(Asked::default()));
    assert_eq!(wrapper.pacing_rate(PathId(1)), Some(7));
    assert_eq!(wrapper.window(PathId(1)), 1001);
}
