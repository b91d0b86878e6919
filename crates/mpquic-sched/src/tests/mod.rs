//! Rules that every scheduler must keep, and the purpose of some schedulers.

mod allocations;
mod decisions;
mod recorded;
mod world;
