//! Lowest RTT first.

use mpquic_core::sched::{Decision, Scheduler, SchedulerEvent, View};

use crate::choice::{carriers, fastest_sendable, lowest_rtt, send_batch, wait_for};
use crate::plain_cases::PlainCases;

/// What to do with a path that has no RTT sample yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmeasured {
    /// Use it only when no measured path can send, and send a copy of what it carries on another
    /// path, for at most an initial window per path.
    #[default]
    Duplicate,
    /// Assume the initial RTT, 333 ms if nothing else was configured.
    Assume,
    /// Send no data on it while a measured path can carry data, now or later: path validation will
    /// soon provide a sample.
    ProbeOnly,
}

/// Sends on the path with the lowest smoothed RTT that has room in its window. It is
/// work-conserving, that is, it never waits while a path has room, except with
/// [`Unmeasured::ProbeOnly`].
///
/// Source: De Coninck and Bonaventure, "Multipath QUIC: Design and Evaluation", CoNEXT 2017;
/// `minRTT` in Multipath TCP (Paasch et al., CSWS 2014). Inputs: smoothed RTT, window, status.
/// Constants: ten datagrams of copies. Data sent again may take the same path as before: a
/// scheduler is not told which path lost it.
#[derive(Debug, Default)]
pub struct LowestRttFirst {
    unmeasured: Unmeasured,
    cases: PlainCases,
}

impl LowestRttFirst {
    /// A scheduler that treats unmeasured paths like this.
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
