//! The names and signatures of the crate `quinn` 0.11 over multipath QUIC (RFC 10069).
//!
//! A program that depends on `quinn` changes one line of its manifest:
//!
//! ```toml
//! [dependencies]
//! quinn = { package = "mpquic-quinn", version = "0.1" }
//! ```
//!
//! With `MPQUIC_INTERFACES=all` in the environment, or after a call of [`use_interfaces`], its
//! client endpoints have a socket for each network interface, and their connections use all of
//! them. Peers without multipath get one path.
//!
//! `docs/quinn.md` in the repository lists the names of quinn that differ here, and why.
//! [`Endpoint::as_mpquic`], [`Connection::as_mpquic`], [`SendStream::as_mpquic`] and
//! [`TransportConfig::mpquic_options`] lead to the interface of `mpquic-tokio` with everything
//! beyond quinn.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mpquic_quinn as quinn;
//!
//! quinn::use_interfaces(quinn::Interfaces::All);
//! let mut endpoint = quinn::Endpoint::client("0.0.0.0:0".parse()?)?;
//! endpoint.set_default_client_config(quinn::ClientConfig::with_platform_verifier());
//! let connection = endpoint.connect("192.0.2.1:4433".parse()?, "example.com")?.await?;
//! let (mut send, mut recv) = connection.open_bi().await?;
//! send.write_all(b"hello").await?;
//! send.finish()?;
//! println!("{} bytes", recv.read_to_end(1024).await?.len());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! The features have the names and the defaults of quinn's.
//!
//! | Feature | What it brings |
//! |---|---|
//! | `rustls-ring` (default), `rustls-aws-lc-rs` | the library that encrypts. With both, aws-lc-rs is used |
//! | `runtime-tokio` (default) | [`TokioRuntime`], which [`default_runtime`] finds |
//! | `platform-verifier` (default) | [`ClientConfig::with_platform_verifier`] |
//! | `bloom` (default) | `BloomTokenLog` |
//! | `futures-io` | `AsyncRead` and `AsyncWrite` of the crate `futures-io` for streams |
//! | `qlog` | `QlogConfig` |
//! | `log` (default), `rustls-log` | messages for the crate `log` |
//! | `lock_tracking` | nothing: locks are not tracked |

mod config;
mod connecting;
mod connection;
mod convert;
mod drivers;
mod endpoint;
mod errors;
mod futures;
mod incoming;
mod interfaces;
#[cfg(feature = "qlog")]
mod qlog;
mod runtime;
mod sockets;
mod stats;
mod stopped;
mod streams;
mod tokens;
mod transport;

pub mod congestion;
pub mod crypto;

pub use config::{ClientConfig, EndpointConfig, ServerConfig, ValidationTokenConfig};
pub use connecting::{Connecting, ZeroRttAccepted};
pub use connection::Connection;
#[cfg(feature = "runtime-tokio")]
pub use drivers::TokioRuntime;
pub use drivers::default_runtime;
pub use endpoint::Endpoint;
pub use errors::{
    ReadError, ReadExactError, ReadToEndError, ResetError, SendDatagramError, StoppedError,
    WriteError,
};
pub use futures::{AcceptBi, AcceptUni, OpenBi, OpenUni, ReadDatagram, SendDatagram};
pub use incoming::{Accept, Incoming, IncomingFuture, RetryError};
pub use interfaces::{INTERFACES_VARIABLE, Interfaces, use_interfaces};
#[cfg(feature = "qlog")]
pub use qlog::{QlogConfig, QlogStream};
pub use runtime::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
pub use stats::EndpointStats;
pub use streams::{RecvStream, SendStream};
pub use transport::{AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig};

/// The TLS library.
#[doc(no_inline)]
pub use ::rustls;
#[cfg(feature = "bloom")]
pub use quinn_proto::BloomTokenLog;
/// Types of the crate `quinn-proto`, which quinn re-exports too.
pub use quinn_proto::{
    ApplicationClose, Chunk, ClosedStream, ConfigError, ConnectError, ConnectionClose,
    ConnectionError, ConnectionId, ConnectionIdGenerator, ConnectionStats, Dir, EcnCodepoint,
    FrameStats, FrameType, NoneTokenLog, NoneTokenStore, PathStats, Side, StdSystemTime, StreamId,
    TimeSource, TokenLog, TokenMemoryCache, TokenReuseError, TokenStore, Transmit,
    TransportErrorCode, UdpStats, VarInt, VarIntBoundsExceeded, Written,
};
/// The crate of UDP sockets, whose types [`AsyncUdpSocket`] names.
#[doc(no_inline)]
pub use quinn_udp as udp;

/// The example of the documentation, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/quinn.md")]
struct Page;

/// The interface of mpquic, for everything beyond quinn.
#[doc(no_inline)]
pub use mpquic_tokio;
