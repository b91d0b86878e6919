//! [`Case`]: one run of an experiment.

use crate::scenario::Position;

/// A run of an experiment that is still to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Index into the scenario's contenders.
    pub(super) contender: usize,
    /// Where the values of its parameters come from.
    pub(super) position: Position,
}
