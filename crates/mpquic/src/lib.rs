//! Multipath QUIC (RFC 10069) in Rust: one connection over every network a machine has.
//!
//! Programs depend on this crate. It holds no code of its own: every item is one of
//! [`mpquic_tokio`], which runs connections on tokio, or stands in one of four modules.
//!
//! | Module | Content |
//! |---|---|
//! | [`schedulers`] | Which path carries which packet. [`schedulers::by_name`] finds a built-in scheduler |
//! | [`controllers`] | How much each path carries. [`controllers::by_name`] finds a built-in congestion controller |
//! | [`path_managers`] | Which paths a client has. [`ClientConfig::path_manager`] takes one |
//! | `http3` (feature `http3`) | HTTP/3 servers and clients of the crate `h3` over several paths |
//!
//! The features `aws-lc-rs`, `ring`, `interfaces`, `memory-network`, `metrics`, `native-roots`,
//! `papers`, `qlog` and `self-signed` are those of [`mpquic_tokio`](mpquic_tokio#features).
//!
//! This client sends its data by the scheduler `lrf` (lowest round trip first), and controls
//! congestion by OLIA:
//!
//! ```
//! use mpquic::{ClientConfig, controllers, default_transport, schedulers};
//!
//! # fn example() -> Result<ClientConfig, Box<dyn std::error::Error>> {
//! let mut transport = default_transport();
//! transport.scheduler = schedulers::by_name("lrf")?;
//! transport.controller = controllers::by_name("olia")?;
//! # let pin = [0; 32];
//! let mut config = ClientConfig::with_pin(pin, &[b"hello"])?;
//! config = config.transport_config(transport.build()?);
//! # Ok(config)
//! # }
//! # example().unwrap();
//! ```

pub use mpquic_cc as controllers;
#[cfg(feature = "http3")]
pub use mpquic_h3 as http3;
pub use mpquic_paths as path_managers;
pub use mpquic_sched as schedulers;
pub use mpquic_tokio::*;

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
