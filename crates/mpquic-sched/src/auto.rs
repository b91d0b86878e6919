//! `auto`: on paths of any kind, data arrives in order and as early as possible.

use std::time::{Duration, Instant};

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PathView, Scheduler, SchedulerEvent, View,
};

use crate::choice::{batch_bytes, send_batch};
use crate::plain_cases::PlainCases;

mod bottleneck;
mod forecast;
mod rescue;

use forecast::Forecasts;
use rescue::Rescue;

/// The part of the queue by which a decision may deviate from the best order, as a divisor.
const SMALL_PART: u64 = 64;
/// Shortest wait for a path.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Settings of [`Auto`]; the defaults suit all uses.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct AutoConfig {
    /// Repeat budget: bytes of copies of data that is not lost, per byte sent. 0 means no copies,
    /// the default is 0.03. On a path that loses more than a fifth of its packets, a copy costs
    /// only the share of packets that still arrive.
    pub extra_bytes: f64,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self { extra_bytes: 0.03 }
    }
}

/// Every path carries the part of the queue that the path delivers in time for its turn. No byte
/// takes a path on which the byte would arrive later than on another, now busy path. The scheduler
/// needs no setting.
///
/// For each path, the scheduler forecasts the arrival of the next datagram, and the number of bytes
/// that the path delivers from then on. The path with the earliest arrival carries the head of the
/// queue. Any other path that can send carries data from further back: the path skips as many bytes
/// as the earlier paths deliver before its own data arrives. If the position lies beyond the end of
/// the queue, or beyond the limit of flow control, the path stays idle. The effect:
///
/// - Bulk data uses every path.
/// - The end of a transfer, small objects and small windows use only paths that help.
/// - Urgent streams are at the head of the queue. They wait for the path that delivers them sooner,
///   while other paths carry the rest.
///
/// If flow control is the limit, a loss stops all paths for a round trip; forecasts count the delay
/// with its probability. Before a path stays idle, the path repeats bytes in flight of another
/// path, if the copy should gain more time than the copy takes, and the repeat budget allows the
/// copy.
///
/// Ideas of other schedulers:
///
/// - the position in the queue: OTIAS (Yang et al., WAINA 2014) and STMS (Shi et al., ATC 2018),
///   but with rates instead of windows, and without lists of assignments
/// - growing windows: STTF (Hurtig et al., ToN 2019)
/// - no slow path at the end: ECF (Lim et al., CoNEXT 2017)
/// - the limit of flow control: BLEST (Ferlin et al., IFIP Networking 2016)
/// - copies at the end: Nine Tails (Vu and Walker, WiMob 2020), but within a budget
///
/// Inputs: RTT with minimum and variation, window, bytes in flight, pacing and delivery rate, loss
/// rate, growth of the controller, unsent bytes of the streams in order of urgency, flow control
/// credit, unacknowledged ranges.
///
/// Constants:
///
/// - A window in slow start grows for at most four round trips.
/// - A path counts as queued above 1.5 times its minimum RTT. The drain rate of the queue is the
///   larger of the last two measurements, each over one minimum RTT or at least 10 ms.
/// - 32 datagrams, as many as leave a starting path at once, may be repeated before any budget is
///   earned.
/// - A decision may be wrong by a 64th of the queue.
/// - While only DATAGRAMs wait, and less than 150 ms of them, the queue of a path gets at most half
///   of its minimum RTT, or 20 ms.
///
/// The scheduler remembers only the last bytes of each path, so a change in the middle of a
/// transfer counts with the next decision. A wait lasts no longer than the time of its gain: the
/// scheduler expects a late path to stay late for as long again.
#[derive(Debug)]
pub struct Auto {
    cases: PlainCases,
    forecasts: Forecasts,
    rescue: Rescue,
}

impl Auto {
    /// A scheduler with these settings.
    pub fn new(config: AutoConfig) -> Self {
        Self {
            cases: PlainCases::default(),
            forecasts: Forecasts::default(),
            rescue: Rescue::new(config.extra_bytes),
        }
    }

    /// Sends on the first path with data to carry that no earlier path would deliver sooner.
    fn send(&self, view: &View<'_>) -> Option<Decision> {
        let sendable = self.forecasts.paths().iter().enumerate();
        for (index, forecast) in sendable.filter(|(_, forecast)| forecast.can_send) {
            let path = view.path(forecast.path)?;
            if index == 0 {
                return Some(self.send_first(view, path));
            }
            let position = self.forecasts.position(index) as u64;
            if let Some((data, bytes)) = content_at(view, position) {
                return Some(send(path, data, bytes));
            }
        }
        None
    }

    /// Sends on the path with the earliest arrival, until another path would deliver sooner. A
    /// small part of the queue may be out of order.
    fn send_first(&self, view: &View<'_>, path: &PathView) -> Decision {
        let queue = &view.queue;
        if queue.unsent == 0 && queue.retransmit == 0 {
            // Only DATAGRAMs and control frames wait, and their total size is unknown here.
            return send_batch(path);
        }
        let part = (queue.unsent / SMALL_PART) as f64;
        let bytes = self.forecasts.lead().max(part);
        send(path, DataSelection::Next, bytes as u64)
    }

    /// Waits for the path with the earliest arrival.
    fn wait(&self, view: &View<'_>) -> Decision {
        let Some(first) = self.forecasts.paths().first() else {
            return Decision::Blocked;
        };
        let wait = Duration::from_secs_f64(first.departure.min(1.0)).max(SHORTEST_WAIT);
        Decision::Wait {
            on: first.path,
            until: Some(view.now + wait),
        }
    }
}

/// The data at this position of the queue, and the number of bytes that follow; `None` beyond the
/// end of the queue. DATAGRAMs are at the head of the queue.
fn content_at(view: &View<'_>, position: u64) -> Option<(DataSelection, u64)> {
    let queue = &view.queue;
    let Some(position) = position.checked_sub(queue.datagrams) else {
        let data = DataSelection::DatagramsBehind(position);
        return Some((data, queue.datagrams - position));
    };
    let sendable = queue.unsent.min(queue.flow_credit);
    let rest = (queue.retransmit + sendable).checked_sub(position)?;
    if rest == 0 {
        return None;
    }
    let Some(mut position) = position.checked_sub(queue.retransmit) else {
        return Some((DataSelection::Next, rest));
    };
    for (index, stream) in view.streams.iter().enumerate() {
        if position < stream.unsent {
            let is_next = index == 0 && !queue.control && queue.retransmit == 0;
            let data = if is_next {
                DataSelection::Next
            } else {
                DataSelection::Stream(stream.id)
            };
            return Some((data, rest.min(stream.unsent - position)));
        }
        position -= stream.unsent;
    }
    Some((DataSelection::Next, rest))
}

fn send(path: &PathView, data: DataSelection, bytes: u64) -> Decision {
    let max_bytes = batch_bytes(path).min(bytes.max(u64::from(path.mtu)));
    Decision::Send {
        path: path.id,
        data,
        max_bytes,
        tag: 0,
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self::new(AutoConfig::default())
    }
}

impl Scheduler for Auto {
    fn select(&mut self, view: &View<'_>) -> Decision {
        self.rescue.due = None;
        if !view.queue.idle
            && let Some(decision) = self.cases.decide(view)
        {
            return decision;
        }
        self.forecasts.update(view);
        if !view.queue.idle
            && let Some(decision) = self.send(view)
        {
            return decision;
        }
        if let Some(copy) = self.rescue.copy(view, &self.forecasts) {
            return copy;
        }
        if view.queue.idle {
            return Decision::Blocked;
        }
        self.wait(view)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::PathRemoved(path) => {
                self.rescue.remove(*path);
                self.forecasts.remove(*path);
            }
            SchedulerEvent::Timer => self.rescue.due = None,
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default()
            .with_streams()
            .with_unacked()
            .with_choices_only()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.rescue.due
    }

    fn name(&self) -> &'static str {
        "auto"
    }
}

#[cfg(test)]
mod tests;
