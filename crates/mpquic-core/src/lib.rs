//! Sans-IO protocol core of mpquic: QUIC versions 1 and 2 with the multipath extension of RFC
//! 10069.
//!
//! Nothing here opens a socket, reads a clock or draws randomness: datagrams, `now` and a seed are
//! arguments, so the same inputs give the same packets. `mpquic-tokio` drives it over real sockets,
//! `mpquic-sim` in virtual time.
//!
//! # Endpoint and connection
//!
//! An [`Endpoint`] routes datagrams by connection ID and starts connections. A [`Connection`] has
//! any number of paths. Endpoint and connections are separate state machines that exchange values,
//! so a driver may run them under separate locks. After any call on a connection, a driver
//!
//! 1. gives [`Connection::poll_endpoint_event`] to [`Endpoint::handle_event`] until it is empty,
//! 2. sends what [`Connection::poll_transmit`] writes, until it is `None`,
//! 3. acts on [`Connection::poll`], until it is `None`,
//! 4. sets a timer for [`Connection::poll_timeout`], and calls [`Connection::handle_timeout`] then.
//!
//! A server's connection starts with TLS's first flight, which takes long: [`Endpoint::accept`]
//! says how other datagrams are routed meanwhile.
//!
//! # Policies
//!
//! A [`sched::Scheduler`] chooses the path of each packet, and a [`congestion::Controller`] limits
//! the bytes in flight on each path. The core has no default for either:
//! [`config::TransportOptions::new`] takes both. It checks their answers, so a wrong policy costs
//! speed, never correctness.
//!
//! # Paths
//!
//! A path is what a path ID names: a packet number space with its own RTT, congestion window and
//! connection IDs, between two addresses that may change. The client opens paths with
//! [`Connection::open_path`]; either side abandons them. Path 0 carries the handshake; apart from
//! this, all paths are alike. Lost data may be sent again on any path.
//!
//! # Deviations
//!
//! `docs/conformance.md` in the repository lists all deviations; peers notice this one most.
//!
//! | From | What we do | Why |
//! | --- | --- | --- |
//! | RFC 9002 section 6.2.1 | probe timeouts back off to 60 s at most; to 0.5 to 1.5 s, at random, on a silent path while another one works | a path that returns is noticed soon, and a probe is one packet |

// A wildcard arm would silently ignore a new frame, event or state. Tests may use one.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod account;
mod cid;
pub mod config;
pub mod congestion;
mod connection;
mod connection_state;
pub mod crypto;
mod endpoint;
mod error;
mod event;
mod guarded;
mod handshake;
mod ids;
mod key_exchange;
pub mod knowledge;
mod memory;
mod named;
mod outbox;
mod packet;
mod path;
mod path_map;
mod peer_text;
mod protect;
pub mod qlog;
mod random;
mod range_set;
mod rate;
mod recorder;
mod recovery;
pub mod sched;
mod scheduling;
mod server_address;
mod space;
mod stream;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod unacked;
#[doc(hidden)]
pub mod unstable_wire;
mod version;
mod wire;

pub use connection::{Connection, Datagrams};
pub use endpoint::{
    AcceptError, Accepted, Accepting, ConnectError, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointStats, Incoming, RouteCounts,
};
pub use error::{
    ConnectionClose, ConnectionError, Fault, TlsFailure, TransportError, TransportErrorCode,
};
pub use event::{
    ClosePathError, ClosedPath, ConnectionStats, Datagram, EndpointEvent, Event, MigrateError,
    OpenPathError, PathEvent, PathState, PathStats, Resumption, SendDatagramError, TimeoutReason,
    ZeroRtt,
};
pub use ids::{FourTuple, PathId, PathStatus, SpaceId};
pub use key_exchange::KeyExchangeGroup;
pub use memory::MemoryUse;
pub use packet::Transmit;
pub use path::handle::PathMut;
pub use path_map::PathMap;
pub use peer_text::PeerText;
pub use quinn_proto::{
    ApplicationClose, Chunk, ClosedStream, ConnectionId, ConnectionIdGenerator, Dir, EcnCodepoint,
    FinishError, Side, StdSystemTime, StreamId, TimeSource, VarInt, WriteError,
};
pub use scheduling::policies::Policies;
pub use server_address::{AnnounceError, ServerAddress};
pub use stream::{
    DatagramOptions, ReadStreamError, RecvStream, ResetAtError, SendStream, StreamEvent, Streams,
    WrittenChunks,
};
pub use version::{UnknownVersion, Version};
pub use wire::frame::{FrameCounts, FrameKind};
pub use wire::transport_parameters::{
    PreferredAddress, ReservedParameter, TransportParameters, VersionInformation,
};
