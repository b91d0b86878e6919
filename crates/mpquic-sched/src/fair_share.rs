//! Shares of the traffic in proportion to weights.

use mpquic_core::PathMap;
use mpquic_core::sched::{PathView, SchedulerEvent, View};

/// Picks paths so that the bytes of the paths follow weights. Each path has a clock, slower with a
/// larger weight. The path with the clock furthest behind is next.
///
/// The clocks count the core's report of sent bytes, not the bytes of decisions. So a path pays
/// only for sent bytes.
#[derive(Debug, Default)]
pub(crate) struct FairShare {
    clocks: PathMap<Clock>,
}

/// The sent bytes of a path, divided by the path's weight.
#[derive(Debug, Clone, Copy)]
struct Clock {
    time: f64,
    bytes_sent: u64,
}

impl FairShare {
    /// The path to send on. A path of weight 0 is never next.
    pub(crate) fn next<'a>(
        &mut self,
        view: &View<'a>,
        weight: impl Fn(&PathView) -> f64,
    ) -> Option<&'a PathView> {
        let earliest = self.clocks.values().map(|clock| clock.time);
        // A new path does not catch up with earlier bytes of other paths.
        let joins_at = earliest.min_by(f64::total_cmp).unwrap_or(0.0);
        let mut next: Option<(&PathView, f64)> = None;
        for path in view.paths {
            let clock = self.clocks.get_or_insert_with(path.id, || Clock {
                time: joins_at,
                bytes_sent: path.bytes_sent,
            });
            let weight = weight(path);
            let bytes = path.bytes_sent.saturating_sub(clock.bytes_sent);
            clock.bytes_sent = path.bytes_sent;
            if weight <= 0.0 {
                continue;
            }
            clock.time += bytes as f64 / weight;
            if path.can_send() && next.is_none_or(|(_, time)| clock.time < time) {
                next = Some((path, clock.time));
            }
        }
        let (path, time) = next?;
        // A path that could not send may make up for its window at most.
        for other in view.paths {
            let weight = weight(other);
            if let Some(clock) = self.clocks.get_mut(other.id).filter(|_| weight > 0.0) {
                clock.time = clock.time.max(time - other.window as f64 / weight);
            }
        }
        Some(path)
    }

    pub(crate) fn on_event(&mut self, event: &SchedulerEvent) {
        if let SchedulerEvent::PathRemoved(path) = event {
            self.clocks.remove(*path);
        }
    }
}
