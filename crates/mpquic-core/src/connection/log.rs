//! Events for qlog: made only while a sink is set.

use super::Connection;
use crate::ids::PathId;

impl Connection {
    /// Logs where a path runs.
    pub(super) fn log_tuple(&mut self, path: PathId) {
        if let Some(path) = self.paths.any(path) {
            path.report_tuple(&mut self.outbox);
        }
    }

    /// Logs what MTU discovery knows of an open path.
    pub(super) fn log_mtu(&mut self, id: PathId) {
        if let Some(path) = self.paths.open(id) {
            path.report_mtu(&mut self.outbox);
        }
    }

    /// Logs the measurements of an open path.
    #[inline]
    pub(super) fn log_metrics(&mut self, id: PathId) {
        if self.outbox.log.is_on()
            && let Some(path) = self.paths.open(id)
        {
            path.report_metrics(&mut self.outbox);
        }
    }
}
