//! The [`Controller`] trait: how much each path may have in flight. Algorithms live in `mpquic-cc`.
//!
//! One controller object serves a whole connection, and its methods take a
//! [`PathId`](crate::PathId): coupled algorithms (OLIA, LIA, BALIA) see all paths, and no state is
//! shared behind locks.

mod controller;
mod wrapper;

pub use controller::{
    Acked, CongestionEvent, CongestionKind, Controller, ControllerFactory, DeliveryRate,
    MAX_WINDOW, ResumePhase, RttSnapshot, SavedCapacity, Sent, factory, scalable,
};
pub use wrapper::ControllerWrapper;
