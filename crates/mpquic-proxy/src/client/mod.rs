//! The client's side.

mod association;
mod entrances;
mod flows;
mod forward;
mod http_proxy;
mod socks;
#[cfg(all(feature = "tun", target_os = "linux"))]
mod tun;
mod udp_flows;

pub use entrances::{Entrance, Listener};
pub use flows::{Client, ClientOptions, ClientStats, NoFlow, TcpFlow};
#[cfg(all(feature = "tun", target_os = "linux"))]
pub use tun::{Carrier, Tun};
