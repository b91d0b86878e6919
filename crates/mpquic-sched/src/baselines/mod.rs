//! Baselines as publications ran them, kept beside the schedulers that are meant to be used: a
//! published gain can only be judged against what it was measured against.
//!
//! Their rules follow published code, which was read and not copied. They are slow on purpose.

mod ns3;
mod sockets;

pub use ns3::{Ns3, Ns3Rule};
pub use sockets::{SocketRule, Sockets};
