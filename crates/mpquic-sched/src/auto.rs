//! `auto`: the earliest arrival in order, whatever the paths are like.

use std::time::{Duration, Instant};

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PathView, Scheduler, SchedulerEvent, View,
};

use crate::choice::batch_bytes;
use crate::plain_cases::PlainCases;

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
    /// none, 0.03 unless set.
    pub extra_bytes: f64,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self { extra_bytes: 0.03 }
    }
}

/// Every path carries the part of the queue that it delivers in time for its turn.
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
        let part = (view.queue.unsent / SMALL_PART) as f64;
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

/// What is at this place of the queue, and how many bytes follow; `None` beyond its end.
fn content_at(view: &View<'_>, position: u64) -> Option<(DataSelection, u64)> {
    let queue = &view.queue;
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
            .with_local_queue()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.rescue.due
    }

    fn name(&self) -> &'static str {
        "auto"
    }
}
