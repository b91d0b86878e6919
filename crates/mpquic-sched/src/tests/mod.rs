//! What every scheduler must hold to, and what some are for.

mod allocations;
mod decisions;
mod recorded;
mod world;
