//! The client's side.

mod association;
mod entrances;
mod flows;
mod forward;
mod http_proxy;
mod socks;
mod udp_flows;

pub use entrances::{Entrance, Listener};
pub use flows::{Client, ClientOptions, ClientStats, NoFlow, TcpFlow};
