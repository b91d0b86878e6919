//! `auto`: the earliest arrival in order, whatever the paths are like.

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

/// A decision need not be better than this part of the queue.
const SMALL_PART: u64 = 64;
/// Shortest wait for a path.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// What may be set of [`Auto`]; nothing has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AutoConfig {
    /// The most bytes that are sent again although they are not lost, for each byte sent: 0 for
    /// none, 0.03 unless set. Copies of what is on a path that loses more than a
    /// fifth count by the share that arrives.
    pub extra_bytes: f64,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self { extra_bytes: 0.03 }
    }
}

/// Every path carries the part of the queue that it delivers in time for its turn: no byte goes where
/// it would arrive later than on another path that is busy now. There is no knob that has to be set.
///
/// For each path it forecasts when a datagram would arrive, and how many bytes it delivers from then
/// on. The path that is first to deliver carries the head of the queue. Any other one that could
/// send carries what lies as far behind as the paths before it get by the time it delivers; if
/// that is beyond the end of the queue, or beyond what flow control allows, it stays idle. So bulk
/// data uses every path, the end of a transfer, small objects and small windows only those that help,
/// and urgent streams, which are in front, wait for the path that brings them sooner while others
/// carry the rest. Where flow control is the limit, a loss stops all paths for a round trip, which is
/// counted with its probability. Before a path stays idle, it repeats what is under way on another one, if the copy is
/// expected to gain more time than it takes, and the budget allows it.
///
/// What it takes from others: the place in the queue from OTIAS (Yang et al., WAINA 2014) and STMS
/// (Shi et al., ATC 2018), by rates instead of windows and without lists of assignments; growing
/// windows from STTF (Hurtig et al., ToN 2019); not using a slow path at the end from ECF (Lim et
/// al., CoNEXT 2017); the limit of flow control from BLEST (Ferlin et al., IFIP Networking 2016); copies
/// at the end from Nine Tails (Vu and Walker, WiMob 2020), bounded. Inputs: RTT, its minimum and
/// variation, window, in flight, pacing and delivery rate, loss, the controller's growth, unsent bytes
/// of the streams in order of urgency, flow control credit, unacknowledged ranges. Constants: a window
/// in slow start grows for four round trips at most; a path has a queue if its round trip is 1.5 times
/// the smallest, and drains as fast as it did for the last two times 10 ms, or round trips; ten datagrams of copies before any are earned; a decision may be wrong by a 64th of
/// the queue; while only DATAGRAMs wait, less than 150 ms of them, the queue of a path gets no more than half of its
/// smallest round trip, or 20 ms.
///
/// Nothing is remembered but what the paths carried last: whatever changes in the middle of a transfer
/// counts with the next decision. Waits grow no longer than what they gain: a path that is late is expected to
/// stay late for as long again.
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

    /// The first path that has something to carry which no earlier path would deliver sooner.
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

    /// Sends on the path that is first to deliver, until another one is; but a small part of the
    /// queue may be out of order.
    fn send_first(&self, view: &View<'_>, path: &PathView) -> Decision {
        let queue = &view.queue;
        if queue.unsent == 0 && queue.retransmit == 0 {
            // DATAGRAMs and control frames, of which it is not known how many there are.
            return send_batch(path);
        }
        let part = (queue.unsent / SMALL_PART) as f64;
        let bytes = self.forecasts.lead().max(part);
        send(path, DataSelection::Next, bytes as u64)
    }

    /// Waits for the path that is first to deliver.
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

/// What is at this place of the queue, and how many bytes follow; `None` beyond its end. DATAGRAMs are in front.
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
