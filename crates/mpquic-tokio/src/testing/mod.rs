//! A network in memory for this crate's own tests: with the runtime's clock paused, tests take no
//! time, and each run repeats the run before.

mod errors;
mod network;
mod pair;
#[cfg(target_os = "linux")]
mod runtime;

pub(crate) use errors::{Errors, Random};
pub(crate) use network::{Call, DELAY, Network, Port};
pub(crate) use pair::{ALPN, Error, Host, Pair, TestResult, client, pattern, server, transfer};
#[cfg(target_os = "linux")]
pub(crate) use runtime::Hooked;
