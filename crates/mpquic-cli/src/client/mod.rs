//! The client's side of connections and requests.

pub(crate) mod backup;
pub(crate) mod content;
pub(crate) mod hq;
pub(crate) mod http3;
mod interfaces;
pub(crate) mod knock;
pub(crate) mod known_hosts;
pub(crate) mod live;
pub(crate) mod protocol;
pub(crate) mod reached;
pub(crate) mod redirect;
pub(crate) mod requests;
pub(crate) mod retry;
pub(crate) mod secrets;
pub(crate) mod session;
pub(crate) mod weight;
