//! One resource of a server, divided among its clients: permits, bytes of memory, descriptors,
//! flows, lookups, connections.
//!
//! A [`Pool`] has a number of units. A [`Taker`] is a user, or the network of a client without a
//! name. A [`Holding`] has units of a taker. Six rules divide every resource:
//!
//! 1. A taker leaves at least its own number of units for new takers. A floor is always allowed.
//! 2. A taker has at most its own limit.
//! 3. Free units go to the waiting taker with least units.
//! 4. While others wait, a holding ends after a whole window below the least rate. No taker loses a
//!    holding to a larger taker.
//! 5. When no unit is left, and a taker has waited for the grace time, the largest taker gives way:
//!    its slowest holding ends, or its newest holding if all holdings are fast.
//! 6. At the limit of a taker, its unused holding makes room for its new one.
//!
//! The rules take time as an argument and do no I/O. A pool adds a lock and wakers.

mod activity;
mod pool;
mod rules;
mod taker;
#[cfg(test)]
mod tests;
mod tries;

pub(crate) use self::activity::Measure;
pub use self::activity::{Activity, InUse, Suspended};
pub use self::pool::{Holding, Pool};
pub use self::rules::Rules;
pub use self::taker::{Network, Taker};
pub(crate) use self::tries::Tries;
