//! Lowest RTT first.

use mpquic_core::sched::{Decision, Scheduler, SchedulerEvent, View};

use crate::choice::{carriers, fastest_sendable, lowest_rtt, send_batch, wait_for};
use crate::plain_cases::PlainCases;

/// The use of a path that has no RTT sample yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmeasured {
    /// Use the path only when no measured path can send, and copy its data to another path, for at
    /// most an initial window per path.
    #[default]
    Duplicate,
    /// Assume the initial RTT, by default 333 ms.
    Assume,
    /// Send no data on the path while a measured path can carry data, now or later. Path validation
    /// will provide a sample soon.
    ProbeOnly,
}

/// Sends on the path with the lowest smoothed RTT among the paths with room in their windows. The
/// scheduler is work-conserving: the scheduler never waits while a path has room, except with
/// [`Unmeasured::ProbeOnly`].
///
/// Source: De Coninck and Bonaventure, "Multipath QUIC: Design and Evaluation", CoNEXT 2017;
/// `minRTT` in Multipath TCP (Paasch et al., CSWS 2014). Inputs: smoothed RTT, window, status.
/// Constants: ten datagrams of copies. Repeated data may take the same path as before, because a
/// scheduler does not learn which path lost the data.
#[derive(Debug, Default)]
pub struct LowestRttFirst {
    unmeasured: Unmeasured,
    cases: PlainCases,
}

impl LowestRttFirst {
    /// A scheduler with this use of unmeasured paths.
    pub fn new(unmeasured: Unmeasured) -> Self {
        Self {
            unmeasured,
            cases: PlainCases::default(),
        }
    }
}

impl Scheduler for LowestRttFirst {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(path) = fastest_sendable(view).filter(|_| self.unmeasured != Unmeasured::Assume)
        {
            return send_batch(path);
        }
        let special = match self.unmeasured {
            Unmeasured::Duplicate => None,
            Unmeasured::Assume => lowest_rtt(view.sendable()).map(send_batch),
            Unmeasured::ProbeOnly => view
                .sendable()
                .next()
                .and_then(|_| lowest_rtt(carriers(view)))
                .and_then(wait_for),
        };
        special
            .or_else(|| self.cases.decide(view))
            .unwrap_or(Decision::Blocked)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
    }

    fn name(&self) -> &'static str {
        match self.unmeasured {
            Unmeasured::Duplicate => "lrf",
            Unmeasured::Assume => "lrf-assume",
            Unmeasured::ProbeOnly => "lrf-probe",
        }
    }
}
