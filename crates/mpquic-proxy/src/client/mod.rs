//! The client's side.

mod association;
mod bound;
mod datagram_flow;
mod datagram_flows;
mod entrances;
mod flows;
mod forward;
mod http_body;
mod http_exchange;
mod http_proxy;
mod knocking;
mod large;
mod reverse;
mod socks;
mod transparent;
#[cfg(all(feature = "tun", target_os = "linux"))]
mod tun;

pub use entrances::{Entrance, Listener};
pub use flows::{Client, ClientOptions, ClientStats, NoFlow, TcpFlow};
pub use reverse::Reverse;
#[cfg(all(feature = "tun", target_os = "linux"))]
pub use tun::{Carrier, Tun};
