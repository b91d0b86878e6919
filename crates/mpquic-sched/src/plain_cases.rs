//! Common decisions of all schedulers when there is no choice.

use mpquic_core::sched::{DataSelection, Decision, PathSet, PathView, SchedulerEvent, View};
use mpquic_core::{PathId, PathMap};

use crate::choice::{is_measured, send_batch};

/// Most datagrams (an initial window) that are copied for a path without an RTT sample.
const MAX_COPIES: u64 = 10;

/// The cases that need no algorithm: no path can send, only one path is usable, or no path that can
/// send has an RTT sample yet.
///
/// Data on a path without an RTT sample is copied to the least used other path that can send, for
/// at most an initial window per path. So the data does not depend on a path that may be slow or
/// broken (De Coninck and Bonaventure, "Multipath QUIC: Design and Evaluation", CoNEXT 2017).
#[derive(Debug, Default)]
pub(crate) struct PlainCases {
    /// Datagrams copied onto each path.
    copies: PathMap<u64>,
    /// Paths without an RTT sample carry no copies.
    without_copies: bool,
}

impl PlainCases {
    /// For publications whose paths carry no copies: data on a path without an RTT sample is not
    /// copied.
    #[cfg(feature = "papers")]
    pub(crate) fn without_copies() -> Self {
        Self {
            without_copies: true,
            ..Self::default()
        }
    }

    /// The decision, or `None` if a measured path can send and another path is usable too.
    pub(crate) fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let (mut usable, mut measured, mut first) = (0, false, None);
        for path in view.usable() {
            usable += 1;
            if path.can_send() {
                measured |= is_measured(path);
                first = first.or(Some(path));
            }
        }
        match first {
            None => Some(Decision::Blocked),
            Some(path) if usable == 1 => Some(send_batch(path)),
            Some(_) if measured => None,
            Some(path) => Some(self.send_unmeasured(view, path)),
        }
    }

    /// Sends on the least used path, with a copy if a path for it exists.
    fn send_unmeasured(&mut self, view: &View<'_>, first: &PathView) -> Decision {
        let path = least_used(view).unwrap_or(first);
        match self.copy_path(view, path) {
            None => send_batch(path),
            Some(copy) => Decision::Duplicate {
                path: path.id,
                copies: PathSet::from_slice(&[copy]),
                data: DataSelection::Next,
                tag: 0,
            },
        }
    }

    /// The path for a copy of data on `original`, if any.
    fn copy_path(&mut self, view: &View<'_>, original: &PathView) -> Option<PathId> {
        if self.without_copies {
            return None;
        }
        let path = view
            .sendable()
            .filter(|path| path.id != original.id && path.packets_sent <= original.packets_sent)
            .min_by_key(|path| (path.packets_sent, path.id))?
            .id;
        let count = self.copies.get_or_insert_with(path, || 0);
        if *count >= MAX_COPIES {
            return None;
        }
        *count += 1;
        Some(path)
    }

    /// Forgets removed paths.
    pub(crate) fn on_event(&mut self, event: &SchedulerEvent) {
        if let SchedulerEvent::PathRemoved(path) = event {
            self.copies.remove(*path);
        }
    }
}

/// The path that can send and has sent the fewest packets.
pub(crate) fn least_used<'a>(view: &View<'a>) -> Option<&'a PathView> {
    view.sendable()
        .min_by_key(|path| (path.packets_sent, path.id))
}
