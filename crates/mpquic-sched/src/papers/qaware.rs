//! QAware: takes local queues into account.

use std::time::{Duration, Instant};

use mpquic_core::PathMap;
use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{is_measured, rate, seconds, send_batch};
use crate::plain_cases::PlainCases;

/// Weight of the old value in the average queueing time.
const KEEP: f64 = 0.8;
/// Time between two samples of a queue.
const INTERVAL: Duration = Duration::from_millis(10);

/// How [`QAware`] combines the delays of queue and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QAwareForm {
    /// As published: each packet in the queue, and the packet to send, takes a whole service time.
    Paper,
    /// The time in which the queue drains, plus one service time.
    Additive,
}

/// Sends on the path where a packet would arrive first, counting the bytes that wait in the local
/// socket or interface queue. The RTT shows that queue only a round trip later.
///
/// Source: Shreedhar, Mohan, Kaul and Kangasharju, "QAware: A Cross-Layer Approach to MPTCP
/// Scheduling", IFIP Networking 2018. Inputs: bytes in the local queue and its drain rate, smoothed
/// and minimum RTT. Constants: a weight of 0.8 for the old queueing time, a sample every 10 ms (the
/// paper gives no interval).
///
/// Differences from the paper: in the paper's own form, the queue is counted in packets; the
/// average is kept per path and per interval, not per decision; integers cannot overflow. A path
/// whose queue is unknown counts as a path without a queue. Without any queue, QAware is lowest RTT
/// first. The additive form is the default, because the published product assumes that a path
/// serves one packet per round trip.
#[derive(Debug)]
pub struct QAware {
    form: QAwareForm,
    cases: PlainCases,
    queues: PathMap<Queue>,
    warned: bool,
}

/// Average time that packets spend in the local queue of a path, seconds.
#[derive(Debug, Clone, Copy)]
struct Queue {
    wait: f64,
    looked_at: Instant,
}

impl QAware {
    /// A scheduler with this formula.
    pub fn new(form: QAwareForm) -> Self {
        Self {
            form,
            cases: PlainCases::default(),
            queues: PathMap::default(),
            warned: false,
        }
    }

    /// Samples the time that packets wait in the queues, once per interval.
    pub(crate) fn look_at_queues(&mut self, view: &View<'_>) {
        let known = view.paths.iter().any(|path| path.local_queue.is_some());
        for path in view.paths {
            if known && path.local_queue.is_none() && !self.warned {
                self.warned = true;
                tracing::debug!(path = %path.id, "the local queue of this path is unknown");
            }
            let queue = self.queues.get_or_insert_with(path.id, || Queue {
                wait: 0.0,
                looked_at: view.now,
            });
            if view.now.saturating_duration_since(queue.looked_at) >= INTERVAL {
                queue.looked_at = view.now;
                queue.wait = KEEP * queue.wait + (1.0 - KEEP) * drain_time(path, 0);
            }
        }
    }

    /// The path on which a packet sent now would be acknowledged first.
    pub(crate) fn first<'a>(
        &self,
        paths: impl Iterator<Item = &'a PathView>,
    ) -> Option<&'a PathView> {
        let times = paths.map(|path| (self.time(path), path));
        let first = times.min_by(|(time_a, a), (time_b, b)| {
            let order = time_a.total_cmp(time_b);
            order.then_with(|| (a.rtt.smoothed, a.id).cmp(&(b.rtt.smoothed, b.id)))
        });
        first.map(|(_, path)| path)
    }

    /// Seconds until a packet sent now would be acknowledged.
    fn time(&self, path: &PathView) -> f64 {
        let waited = self.queues.get(path.id).map_or(0.0, |queue| queue.wait);
        let service = (seconds(path.rtt.smoothed) - waited).max(seconds(path.rtt.min) / 8.0);
        let mtu = u64::from(path.mtu.max(1));
        match self.form {
            QAwareForm::Paper => {
                let packets = path.local_queue.unwrap_or(0).div_ceil(mtu);
                (packets + 1) as f64 * service
            }
            QAwareForm::Additive if path.local_queue.is_none() => service,
            QAwareForm::Additive => drain_time(path, mtu) + service,
        }
    }
}

/// Seconds until the local queue and `behind` bytes after it have left.
fn drain_time(path: &PathView, behind: u64) -> f64 {
    let bytes = path.local_queue.unwrap_or(0) + behind;
    let drain = path.local_drain_rate.filter(|rate| *rate > 0);
    bytes as f64 / drain.map_or_else(|| rate(path), |rate| rate as f64)
}

impl Default for QAware {
    fn default() -> Self {
        Self::new(QAwareForm::Additive)
    }
}

impl Scheduler for QAware {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        self.look_at_queues(view);
        let measured = view.sendable().filter(|path| is_measured(path));
        match self.first(measured) {
            None => Decision::Blocked,
            // If the queue is known, only one packet, because every packet makes the queue longer.
            Some(path) if path.local_queue.is_some() => Decision::send(path.id),
            Some(path) => send_batch(path),
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        if let SchedulerEvent::PathRemoved(path) = event {
            self.queues.remove(*path);
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_local_queue()
    }

    fn name(&self) -> &'static str {
        match self.form {
            QAwareForm::Paper => "qaware-paper",
            QAwareForm::Additive => "qaware",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, chosen, path};

    fn scene() -> Scene {
        let mut scene = Scene::new(vec![path(0, 80), path(1, 40)]);
        for path in &mut scene.paths {
            path.local_drain_rate = Some(12_500_000);
            path.local_queue = Some(0);
        }
        scene.paths[1].local_queue = Some(1200);
        scene
    }

    #[test]
    fn t10_one_queued_packet_doubles_the_published_estimate() {
        let scene = scene();
        let mut qaware = QAware::new(QAwareForm::Paper);
        let times: Vec<_> = scene.paths.iter().map(|path| qaware.time(path)).collect();
        assert_eq!(times, [0.080, 0.080]);
        // A tie goes to the path with the lower RTT.
        assert_eq!(chosen(&qaware.select(&scene.view())), Some(1));
    }

    #[test]
    fn t10_queued_bytes_take_their_drain_time() {
        let mut scene = scene();
        let mut qaware = QAware::default();
        assert!((qaware.time(&scene.paths[1]) - 0.040_192).abs() < 1e-9);
        assert_eq!(chosen(&qaware.select(&scene.view())), Some(1));
        scene.paths[1].local_queue = Some(600_000);
        assert_eq!(chosen(&qaware.select(&scene.view())), Some(0));
    }

    #[test]
    fn the_rtt_minus_the_time_in_the_queue_is_the_service_time() {
        let mut scene = scene();
        scene.paths[1].local_queue = Some(125_000);
        let mut qaware = QAware::new(QAwareForm::Paper);
        for _ in 0..100 {
            qaware.select(&scene.view());
            scene.now += INTERVAL;
        }
        scene.paths[1].local_queue = Some(0);
        assert!((qaware.time(&scene.paths[1]) - 0.030).abs() < 1e-6);
    }

    #[test]
    fn without_local_queues_the_path_with_the_lowest_rtt_is_chosen() {
        let scene = Scene::new(vec![path(0, 40), path(1, 39)]);
        for form in [QAwareForm::Paper, QAwareForm::Additive] {
            assert_eq!(chosen(&QAware::new(form).select(&scene.view())), Some(1));
        }
    }
}
