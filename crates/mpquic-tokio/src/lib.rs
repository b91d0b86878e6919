//! Multipath QUIC (RFC 10069) for tokio.
//!
//! A connection uses several network paths at once: a phone's Wi-Fi and mobile network, a server's
//! two uplinks. Data flows over all of them, and continues when a path dies. The names are those of
//! `quinn`; [`Connection::paths`], [`Connection::open_path`] and [`Connection::path_events`] are
//! additions.
//!
//! ```no_run
//! use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, certificate_fingerprint};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // A server that echoes every stream.
//! let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"echo"])?;
//! let server = Endpoint::server(config, "127.0.0.1:4433".parse()?)?;
//! tokio::spawn(async move {
//!     while let Some(incoming) = server.accept().await {
//!         tokio::spawn(async move {
//!             let connection = incoming.await?;
//!             loop {
//!                 let (mut send, mut recv) = connection.accept_bi().await?;
//!                 while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
//!                     send.write_chunk(chunk.bytes).await?;
//!                 }
//!                 send.finish()?;
//!             }
//!             # #[allow(unreachable_code, reason = "gives the task its type")]
//!             # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!         });
//!     }
//! });
//!
//! // A client with two local addresses: it opens a path from each. (macOS has the second after
//! // `sudo ifconfig lo0 alias 127.0.0.2`.)
//! let pin = certificate_fingerprint(&certificate);
//! let client = Endpoint::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .bind("127.0.0.2:0".parse()?)
//!     .client(ClientConfig::with_pin(pin, &[b"echo"])?)
//!     .build()?;
//! let connection = client.connect("127.0.0.1:4433".parse()?, "localhost")?.await?;
//! let (mut send, mut recv) = connection.open_bi().await?;
//! send.write_all(b"hello").await?;
//! send.finish()?;
//! assert_eq!(recv.read_to_end(1024).await?, b"hello");
//! for path in connection.path_stats() {
//!     println!("path {}: {} -> {}", path.id, path.four_tuple.local, path.four_tuple.remote);
//! }
//! connection.close(0u32.into(), b"done");
//! client.wait_idle().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`EndpointBuilder::all_interfaces`] uses every network interface and follows them as they come
//! and go; [`EndpointBuilder::bind_interface`] uses some. Servers may listen on several addresses,
//! which clients reach as [`ClientConfig::server_addresses`]. [`EndpointBuilder::socket`] takes a
//! socket that is bound already, [`EndpointBuilder::abstract_socket`] whatever carries datagrams.
//! [`EndpointBuilder::runtime`] takes another [`Runtime`] than tokio.
//!
//! # Features
//!
//! | Feature | What it brings |
//! |---|---|
//! | `aws-lc-rs` (default), `ring` | the library that encrypts: choose one of the two. With both, aws-lc-rs is used, which is faster, and has the key exchange X25519MLKEM768 |
//! | `futures-io` | `AsyncRead` and `AsyncWrite` of the crate `futures-io` for streams |
//! | `interfaces` (default) | [`EndpointBuilder::all_interfaces`], [`EndpointBuilder::bind_interface`], [`usable_addresses`], [`interface_addresses`] |
//! | `memory-network` | `MemoryNetwork`: sockets in memory, for tests |
//! | `metrics` | `Endpoint::report_metrics` |
//! | `native-roots` (default) | [`ClientConfig::with_native_roots`] |
//! | `papers` | schedulers of publications: `schedulers::papers` |
//! | `self-signed` | `ServerConfig::self_signed` |
//! | `qlog` | the crate `mpquic-qlog` as `mpquic_tokio::qlog`: logs of connections |
//!
//! # How it runs
//!
//! Each socket has a task. The task takes a batch of datagrams from the kernel (`recvmmsg` and
//! GRO), routes each to its connection, and runs the connection under one short lock: packets are
//! opened in place, the application is woken, and due packets leave in trains of up to 64 datagrams
//! per call (GSO). A call of the application that writes much data sends in the same way; the
//! connection's task collects small writes and sends them together. No datagram passes through a
//! channel between tasks.

#[cfg(feature = "interfaces")]
mod address_flags;
mod addresses;
mod automatic_paths;
#[cfg(feature = "interfaces")]
mod awaited_addresses;
mod backups;
mod builder;
mod closed_ports;
mod config;
mod connecting;
mod connection;
mod connection_properties;
mod connection_ref;
mod connection_state;
mod connection_task;
mod datagram_socket;
mod departures;
mod device;
mod ended_paths;
mod endpoint;
mod endpoint_state;
mod error_queue;
mod file_store;
#[cfg(feature = "futures-io")]
mod futures_io;
mod handover;
mod icmp;
mod icmp_listeners;
mod incoming;
#[cfg(feature = "interfaces")]
mod interface;
#[cfg(feature = "interfaces")]
mod interface_changes;
mod kernel_socket;
mod local_addresses;
#[cfg(any(test, feature = "memory-network"))]
mod memory_link;
#[cfg(any(test, feature = "memory-network"))]
mod memory_network;
#[cfg(feature = "metrics")]
mod metrics;
mod notifications;
#[cfg(feature = "interfaces")]
mod own_network;
mod path;
mod path_events;
mod path_spans;
mod polling;
mod port_watch;
mod receive_buffers;
mod recv_stream;
mod registered_socket;
mod runtime;
mod send_queues;
mod send_stream;
mod sending;
mod socket;
mod socket_io;
mod socket_task;
mod sockets;
mod start;
mod stream_watch;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod traffic;
mod worker_socket;
mod workers;

pub use builder::EndpointBuilder;
pub use config::{
    ClientConfig, ConfigError, ServerConfig, certificate_fingerprint, default_transport,
};
pub use connecting::{Connecting, ZeroRttAccepted};
pub use connection::{Connection, OpenPathError};
pub use datagram_socket::{DatagramSocket, ReceivedBatch, SentBatch};
pub use endpoint::{ConnectToError, DriverStats, Endpoint};
pub use file_store::FileStore;
pub use incoming::{AcceptWithError, Incoming, IncomingFuture, RetryError};
#[cfg(feature = "interfaces")]
pub use interface::{InterfaceAddress, LeftOutReason, interface_addresses, usable_addresses};
#[cfg(any(test, feature = "memory-network"))]
pub use memory_link::MemoryLink;
#[cfg(any(test, feature = "memory-network"))]
pub use memory_network::{MemoryNetwork, MemorySocket};
pub use path::Path;
pub use path_events::PathEvents;
pub use port_watch::PortWatch;
pub use recv_stream::{ReadError, ReadExactError, ReadToEndError, RecvStream, ResetError};
pub use runtime::{Runtime, RuntimeSocket, Timer, TokioRuntime};
pub use send_stream::{BindStreamError, SendStream, StoppedError, WriteError};
pub use start::ConnectError;
pub use stream_watch::StreamWatch;
pub use traffic::{Traffic, TrafficMeter};
pub use workers::Worker;

/// The congestion controllers that are built in, also by their names:
/// `mpquic_tokio::controllers::by_name("olia")`.
#[doc(no_inline)]
pub use mpquic_cc as controllers;
pub use mpquic_core::config::{
    AckFrequencyOptions, ConnectionIds, EndpointConfig, EndpointOptions, InvalidOption,
    TransportConfig, TransportOptions,
};
pub use mpquic_core::crypto::rustls::KeyExchange;
pub use mpquic_core::crypto::{ExportError, HandshakeData, RetryTokenKey, RetryTokens};
pub use mpquic_core::{
    AnnounceError, ApplicationClose, Chunk, ClosePathError, ClosedPath, ClosedStream,
    ConnectError as InvalidConnect, ConnectionClose, ConnectionError, ConnectionId,
    ConnectionIdGenerator, ConnectionStats, DatagramOptions, Dir, EcnCodepoint, EndpointStats,
    Fault, FourTuple, FrameCounts, FrameKind, KeyExchangeGroup, MemoryUse, PathEvent, PathId,
    PathMap, PathState, PathStats, PathStatus, ResetAtError, Resumption, SendDatagramError,
    ServerAddress, Side, StdSystemTime, StreamId, TimeSource, TlsFailure, TransportError,
    TransportErrorCode, VarInt, Version, WrittenChunks, ZeroRtt,
};
/// The traits of schedulers, congestion controllers and stores of knowledge, for writing your own.
#[doc(no_inline)]
pub use mpquic_core::{congestion, knowledge, sched};
/// Path managers, those that are built in and the trait for writing your own.
#[doc(no_inline)]
pub use mpquic_paths as path_managers;
#[cfg(feature = "qlog")]
pub use mpquic_qlog as qlog;
/// The built-in schedulers, also by name: `mpquic_tokio::schedulers::by_name("lrf")`.
#[doc(no_inline)]
pub use mpquic_sched as schedulers;

/// The TLS library, for configurations of your own: certificates by server name and protocol, those
/// of clients, key logs, session stores. [`crypto::rustls`] makes them fit.
#[doc(no_inline)]
pub use rustls;

/// For TLS configurations of your own, which [`ClientConfig::new`] and [`ServerConfig::new`] take.
pub mod crypto {
    pub use mpquic_core::crypto::{ClientCrypto, ServerCrypto};

    /// TLS by rustls.
    pub mod rustls {
        pub use mpquic_core::crypto::rustls::{
            ClientAuthorities, QuicClientConfig, QuicServerConfig, RawKeyVerifier,
            ServerAuthorities, SharedTickets, TlsConfigError, provider, roots_in_pem,
        };
    }
}

/// The example of the documentation, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

/// The example of the documentation, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/own-path-manager.md")]
struct OwnPathManager;

/// The example of the documentation, compiled as a test.
#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../../../docs/observability.md")]
struct Observability;
