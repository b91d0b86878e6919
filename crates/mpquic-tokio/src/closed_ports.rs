//! [`ClosedPorts`]: reports that no program listens at the addresses of a peer.

use std::time::{Duration, Instant};

use mpquic_core::PathId;
use smallvec::SmallVec;

/// Shortest interval between probes of paths after ICMP messages. The host of a vanished peer
/// answers each probe with a further message.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The last report of each path, and the last probes because of reports.
#[derive(Debug, Default)]
pub(crate) struct ClosedPorts {
    probed: Option<Instant>,
    reports: SmallVec<[(PathId, Instant); 2]>,
}

impl ClosedPorts {
    /// True if the paths may be probed again. Then the probe counts as sent.
    pub(crate) fn may_probe(&mut self, now: Instant) -> bool {
        if self.probed.is_some_and(|last| now < last + ASK_AGAIN) {
            return false;
        }
        self.probed = Some(now);
        true
    }

    /// The system at the remote address of a path has reported that the port is closed. `is_open`
    /// tells whether a path of an earlier report still exists.
    pub(crate) fn on_report(
        &mut self,
        path: PathId,
        now: Instant,
        is_open: impl Fn(PathId) -> bool,
    ) {
        self.reports.retain(|(id, _)| *id != path && is_open(*id));
        self.reports.push((path, now));
    }

    /// True if a path has a report that came after `since`.
    pub(crate) fn has_report(&self, path: PathId, since: Instant) -> bool {
        let mut reports = self.reports.iter();
        reports.any(|(id, at)| *id == path && *at > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Runtime, TokioRuntime};

    #[test]
    fn only_the_last_report_of_an_open_path_counts() {
        let mut ports = ClosedPorts::default();
        let began = TokioRuntime.now();
        let at = |seconds| began + Duration::from_secs(seconds);
        ports.on_report(PathId(0), at(1), |_| true);
        ports.on_report(PathId(1), at(2), |_| true);
        assert!(ports.has_report(PathId(0), at(0)) && ports.has_report(PathId(1), at(1)));
        assert!(!ports.has_report(PathId(0), at(1)) && !ports.has_report(PathId(2), at(0)));
        ports.on_report(PathId(0), at(3), |path| path != PathId(1));
        assert!(ports.has_report(PathId(0), at(2)));
        assert_eq!(ports.reports.len(), 1);
    }

    #[test]
    fn paths_are_probed_once_a_second() {
        let mut ports = ClosedPorts::default();
        let began = TokioRuntime.now();
        let at = |millis| began + Duration::from_millis(millis);
        let probes = [0, 10, 999, 1000, 1500, 2000].map(|millis| ports.may_probe(at(millis)));
        assert_eq!(probes, [true, false, false, true, false, true]);
    }
}
