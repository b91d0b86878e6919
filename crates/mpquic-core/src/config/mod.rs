//! Configuration of endpoints and connections.
//!
//! Most options come in two types: a plain struct with public fields, and the configuration that
//! `build` returns after a check of all fields. An [`InvalidOption`] names the option, its value
//! and the right values; no value is ever silently corrected.
//!
//! ```
//! use mpquic_core::config::TransportOptions;
//!
//! # fn example(
//! #     scheduler: std::sync::Arc<dyn mpquic_core::sched::SchedulerFactory>,
//! #     controller: std::sync::Arc<dyn mpquic_core::congestion::ControllerFactory>,
//! # ) {
//! let mut options = TransportOptions::new(scheduler, controller);
//! options.initial_mtu = 900;
//! let refused = options.build().unwrap_err();
//! assert_eq!(refused.option(), "initial_mtu");
//! assert_eq!(refused.to_string(), "initial_mtu is 900, but must be from 1200 to 65527");
//! # }
//! ```

mod client;
mod endpoint;
mod server;
mod transport;
mod transport_options;

pub use crate::cid::generator::ConnectionIds;
pub use crate::error::InvalidOption;
pub use client::ClientConfig;
pub use endpoint::{EndpointConfig, EndpointOptions};
pub use server::{ServerConfig, ServerOptions};
pub use transport::TransportConfig;
pub(crate) use transport::{MAX_ACK_DELAY, MAX_CONCURRENT_STREAMS};
pub use transport_options::{AckFrequencyOptions, TransportOptions};
