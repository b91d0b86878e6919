//! Packets: building and sealing, opening, and what becomes of the frames in them.

pub(crate) mod arrival;
pub(crate) mod builder;
pub(crate) mod delivery;
#[cfg(feature = "testing")]
pub(crate) mod injected;
pub(crate) mod opener;
pub(crate) mod plan;
mod transmit;
pub(crate) mod writer;

pub use transmit::Transmit;
