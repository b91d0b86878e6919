//! Careful Resume (RFC 9959): a path's capacity is remembered from one connection to the next. The
//! controller decides how the path starts.

use std::time::Instant;

use super::Path;
use super::capacity::Capacity;
use crate::congestion::{Acked, Controller as _, ResumePhase};
use crate::outbox::Outbox;
use crate::qlog::Event;

impl Path {
    /// Tells the controller what is remembered of the path.
    pub(super) fn resume(&mut self, now: Instant, outbox: &mut Outbox) {
        self.capacity = Capacity::new(self.capacity.knowledge.take());
        let knowledge = self.capacity.knowledge.as_ref();
        let Some(saved) = knowledge.and_then(|known| known.capacity(self.tuple.four_tuple)) else {
            return;
        };
        self.capacity.remembered = saved.window;
        outbox.controller.resume(self.id, now, saved);
        self.follow_resumption(outbox);
    }

    /// An acknowledgement was taken in, by the controller as well.
    pub(crate) fn observe(&mut self, ack: &Acked, outbox: &mut Outbox) {
        let is_own = self.recovery.ack_carrier().is_none();
        let rate = self.recovery.delivery_rate();
        if self.capacity.knowledge.is_none() {
            return;
        }
        if let Some(saved) = self.capacity.on_ack(ack, is_own, rate)
            && let Some(knowledge) = &self.capacity.knowledge
        {
            knowledge.save_capacity(self.tuple.four_tuple, saved);
        }
        self.follow_resumption(outbox);
    }

    /// Notes where the controller is.
    pub(super) fn follow_resumption(&mut self, outbox: &mut Outbox) {
        let phase = outbox.controller.resume_phase(self.id);
        let resumption = &mut self.capacity.resumption;
        let old = std::mem::replace(&mut resumption.phase, phase);
        if old == phase {
            return;
        }
        resumption.used |= phase == ResumePhase::Unvalidated;
        resumption.retreated |= phase == ResumePhase::SafeRetreat;
        if phase == ResumePhase::SafeRetreat {
            self.capacity.remembered = 0;
            if let Some(knowledge) = &self.capacity.knowledge {
                knowledge.forget_capacity(self.tuple.four_tuple);
            }
        }
        let path = self.id;
        outbox.log.event(|| Event::ResumePhaseChanged {
            path,
            old,
            new: phase,
        });
    }
}
