//! [`Case`]: one run of an experiment.

use crate::scenario::Position;

/// A run of an experiment, still to be done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    /// Index into the scenario's contenders.
    pub(super) contender: usize,
    /// The position that determines the values of the parameters.
    pub(super) position: Position,
}
