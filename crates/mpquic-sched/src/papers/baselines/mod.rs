//! Baselines as publications ran them, beside the schedulers for general use. A published gain can
//! only be compared with the baseline that it was measured against.
//!
//! The rules follow published code, which was read and not copied. These schedulers are
//! deliberately slow.

mod msab_ns3;
mod ns3;
mod sockets;

pub use msab_ns3::MsabNs3;
pub use ns3::{Ns3, Ns3Rule};
pub use sockets::{SocketRule, Sockets};
