//! Which path carries what: the scheduler is asked and held to the rules, and what the application
//! has bound to a path, or wants twice, has its turn.

pub(crate) mod assignment;
mod copies;
pub(crate) mod host;
pub(crate) mod parts;
pub(crate) mod policies;
mod turns;
mod views;
