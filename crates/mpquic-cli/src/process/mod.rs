//! The process: its clock, terminal, signals, files and end.

pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod failure;
pub(crate) mod screen;
pub(crate) mod service_manager;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod umask;
