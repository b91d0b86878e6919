//! [`Liveness`]: whether a path answers; application and scheduler are told when that changes.

use crate::event::PathEvent;
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::sched::SchedulerEvent;

/// Whether a path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    /// The path answers, as far as is known.
    Live,
    /// A probe timeout passed and nothing was acknowledged since.
    Suspect,
    /// The driver says that the interface is gone.
    Down,
}

impl Liveness {
    /// True if data should leave on other paths instead.
    pub(super) fn is_suspect(self) -> bool {
        self != Self::Live
    }

    /// A probe timeout passed with nothing acknowledged.
    pub(super) fn on_silent(&mut self, path: PathId, outbox: &mut Outbox) {
        if *self == Self::Live {
            self.set(Self::Suspect, path, outbox);
        }
    }

    /// An acknowledgement shows that the path works, unless its interface is gone by now. True if
    /// the path was suspect.
    pub(super) fn on_answered(&mut self, path: PathId, outbox: &mut Outbox) -> bool {
        let was_suspect = *self == Self::Suspect;
        if was_suspect {
            self.set(Self::Live, path, outbox);
        }
        was_suspect
    }

    /// The driver reports the loss or the return of the path's interface. After the return, the
    /// path stays suspect until its next answer.
    pub(super) fn set_interface_up(&mut self, up: bool, path: PathId, outbox: &mut Outbox) {
        match (up, *self) {
            (false, _) => self.set(Self::Down, path, outbox),
            (true, Self::Down) => self.set(Self::Suspect, path, outbox),
            (true, Self::Live | Self::Suspect) => {}
        }
    }

    /// The path has moved to other addresses without any bad news. On the same interface, a down
    /// path stays down.
    pub(super) fn on_moved(&mut self, same_interface: bool, path: PathId, outbox: &mut Outbox) {
        if *self != Self::Down || !same_interface {
            self.set(Self::Live, path, outbox);
        }
    }

    /// All changes of the state pass here, to tell application and scheduler every time.
    fn set(&mut self, liveness: Self, path: PathId, outbox: &mut Outbox) {
        let was_suspect = self.is_suspect();
        *self = liveness;
        if self.is_suspect() == was_suspect {
            return;
        }
        if was_suspect {
            tracing::debug!(%path, "path works again");
            outbox.scheduler_event(SchedulerEvent::PathRecovered(path));
            outbox.path_event(PathEvent::Recovered(path));
        } else {
            tracing::debug!(%path, "path is suspect");
            outbox.scheduler_event(SchedulerEvent::PathSuspect(path));
            outbox.path_event(PathEvent::Suspect(path));
        }
    }
}
