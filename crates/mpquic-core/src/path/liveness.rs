//! [`Liveness`]: whether a path answers, and who is told when that changes.

use super::Path;
use crate::event::PathEvent;
use crate::outbox::Outbox;
use crate::sched::SchedulerEvent;

/// Whether a path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    /// As far as is known.
    Live,
    /// A probe timeout passed and nothing was acknowledged since.
    Suspect,
    /// The driver says that the interface is gone.
    Down,
}

impl Path {
    /// True while a datagram that carries nothing urgent should stay away from the path.
    pub(crate) fn is_suspect(&self) -> bool {
        self.liveness != Liveness::Live
    }

    /// A probe timeout passed with nothing acknowledged.
    pub(crate) fn on_silent(&mut self, outbox: &mut Outbox) {
        if self.liveness == Liveness::Live {
            self.set_liveness(Liveness::Suspect, outbox);
        }
    }

    /// An acknowledgement shows that the path works, unless the interface is gone by now. True if the
    /// path was suspect.
    pub(crate) fn on_answered(&mut self, outbox: &mut Outbox) -> bool {
        let was_suspect = self.liveness == Liveness::Suspect;
        if was_suspect {
            self.set_liveness(Liveness::Live, outbox);
        }
        was_suspect
    }

    /// The driver says that the interface is there or gone. One that is back has yet to answer.
    pub(crate) fn set_interface_up(&mut self, up: bool, outbox: &mut Outbox) {
        match (up, self.liveness) {
            (false, _) => self.set_liveness(Liveness::Down, outbox),
            (true, Liveness::Down) => self.set_liveness(Liveness::Suspect, outbox),
            (true, Liveness::Live | Liveness::Suspect) => {}
        }
    }

    /// The path has other addresses now, of which nothing bad is known; through the same interface
    /// or another one.
    pub(crate) fn on_moved(&mut self, same_interface: bool, outbox: &mut Outbox) {
        if self.liveness != Liveness::Down || !same_interface {
            self.set_liveness(Liveness::Live, outbox);
        }
    }

    /// The one place that changes it: application and scheduler hear whether the path is suspect.
    fn set_liveness(&mut self, liveness: Liveness, outbox: &mut Outbox) {
        let (id, was_suspect) = (self.id, self.is_suspect());
        self.liveness = liveness;
        if self.is_suspect() == was_suspect {
            return;
        }
        if was_suspect {
            tracing::debug!(path = %id, "path works again");
            outbox.scheduler_event(SchedulerEvent::PathRecovered(id));
            outbox.path_event(PathEvent::Recovered(id));
        } else {
            tracing::debug!(path = %id, "path is suspect");
            outbox.scheduler_event(SchedulerEvent::PathSuspect(id));
            outbox.path_event(PathEvent::Suspect(id));
        }
    }
}
