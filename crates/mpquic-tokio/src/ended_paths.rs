//! [`EndedPaths`]: the last counters of discarded paths.

use std::collections::VecDeque;

use mpquic_core::{PathEvent, PathStats};

/// Paths that a connection remembers: fewer than 16 KiB, however many paths a peer opens and
/// abandons.
const CAPACITY: usize = 32;

/// The last counters of the paths that were discarded last.
#[derive(Debug, Default)]
pub(crate) struct EndedPaths(VecDeque<PathStats>);

impl EndedPaths {
    /// Keeps the counters of a path that is discarded.
    pub(crate) fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Discarded(last) = event {
            if self.0.len() == CAPACITY {
                self.0.pop_front();
            }
            self.0.push_back(last.as_ref().clone());
        }
    }

    /// The counters, the path that was discarded first at the front.
    pub(crate) fn stats(&self) -> Vec<PathStats> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::{FourTuple, PathId};

    use super::*;

    #[test]
    fn the_last_ended_paths_are_kept() {
        let mut ended = EndedPaths::default();
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 4433));
        for id in 0..40 {
            let stats = PathStats::new(PathId(id), FourTuple::new(address, address));
            ended.on_event(&PathEvent::Suspect(PathId(id)));
            ended.on_event(&PathEvent::Discarded(Box::new(stats)));
        }
        let ids: Vec<_> = ended.stats().iter().map(|path| path.id.0).collect();
        assert_eq!(ids, (8..40).collect::<Vec<_>>());
        let held = CAPACITY * size_of::<PathStats>();
        assert!(held <= 16 << 10, "{held} bytes");
    }
}
