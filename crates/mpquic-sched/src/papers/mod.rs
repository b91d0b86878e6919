//! Schedulers of publications, to compare other schedulers with them (feature `papers`).
//!
//! Each stands for a rule that was published for Multipath TCP or for multipath QUIC, in a form for
//! general use. Programs that only want fast transfers take [`Auto`](crate::Auto), which uses the
//! ideas of many of them.
//!
//! | name | type | rule |
//! |---|---|---|
//! | `etc`, `etc-greedy` | [`Etc`] | shares of a block that finish together, by simulated windows |
//! | `jdl` | [`Jdl`] | a set of paths with low delay and loss |
//! | `blest`, `blest-paper` | [`Blest`] | no slow path that could block the fast one |
//! | `ecf`, `ecf-kernel` | [`Ecf`] | waits for the fast path if it delivers the backlog earlier |
//! | `qaware`, `qaware-paper` | [`QAware`] | the shortest time through local queue and network |
//! | `sa-ecf` | [`SaEcf`] | earliest completion per stream, streams by weight |
//! | `pstream`, `pstream-windowed` | [`PStream`] | parts of every stream that finish together |
//! | `fstream` | [`FStream`] | a path for every whole stream |
//! | `priority-bucket` | [`PriorityBucket`] | streams by class, on the fastest path with room |
//! | `daps` | [`Daps`] | paths by a schedule of their delays |
//! | `otias` | [`Otias`] | the path of earliest arrival, even if it is full now |
//! | `sttf` | [`Sttf`] | like `otias`, with growing windows |
//! | `dems` | [`Dems`] | both ends of a chunk on different paths |
//! | `stms` | [`Stms`] | data further ahead on slower paths |
//! | `msab`, `msab-split` | [`Msab`] | paths that an adversarial bandit learned from RTT and loss |
//! | `peekaboo` | [`Peekaboo`] | the fast path or a slow one; learns when to wait |
//! | `nine-tails` | [`NineTails`] | lowest RTT first, and the end of a transfer on all paths |
//!
//! Baselines exactly as publications ran them. They serve to check published gains, not for use
//! ([`published`](crate::published)):
//!
//! | name | type | follows |
//! |---|---|---|
//! | `round-robin-packet` | [`RoundRobin`](crate::RoundRobin) | PQUIC: one datagram per turn |
//! | `lrf-ns3`, `round-robin-ns3`, `blest-ns3`, `ecf-ns3`, `peekaboo-ns3` | [`Ns3`] | the ns-3 module: one path per acknowledgement |
//! | `msab-ns3` | [`MsabNs3`] | the ns-3 module: all paths per acknowledgement |
//! | `etc-weighted` | [`Etc`] | section 4 of ETC's paper: shares as weights of a round robin |
//! | `lrf-sockets`, `ecf-sockets`, `qaware-sockets` | [`Sockets`] | QAware's simulation: independent TCP connections |

mod baselines;
mod blest;
pub(crate) mod catalog;
mod choice;
mod daps;
mod dems;
mod ecf;
mod etc;
mod fstream;
mod jdl;
mod msab;
mod nine_tails;
mod otias;
mod peekaboo;
mod priority_bucket;
mod pstream;
mod qaware;
mod reservations;
mod sa_ecf;
mod stms;
mod sttf;

pub use baselines::{MsabNs3, Ns3, Ns3Rule, SocketRule, Sockets};
pub use blest::{Blest, BlestForm};
pub use daps::Daps;
pub use dems::Dems;
pub use ecf::{Ecf, EcfForm};
pub use etc::{Etc, EtcConfig};
pub use fstream::FStream;
pub use jdl::{Demand, Jdl, JdlConfig};
pub use msab::{Msab, MsabMode};
pub use nine_tails::NineTails;
pub use otias::Otias;
pub use peekaboo::Peekaboo;
pub use priority_bucket::PriorityBucket;
pub use pstream::PStream;
pub use qaware::{QAware, QAwareForm};
pub use sa_ecf::SaEcf;
pub use stms::Stms;
pub use sttf::Sttf;
