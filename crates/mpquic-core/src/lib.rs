//! Sans-IO protocol core of mpquic.
#![allow(
    dead_code,
    reason = "components land before the connection that joins them"
)]

mod cid;
pub mod config;
pub mod congestion;
mod connection;
pub mod crypto;
mod endpoint;
mod error;
mod ids;
mod packet;
mod path;
pub mod range_set;
mod recovery;
pub mod sched;
mod space;
mod stream;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod wire;

pub use connection::{
    ClosedPath, Connection, ConnectionStats, Datagram, EarlyData, EndpointEvent, Event,
    OpenPathError, PathEvent, PathState, PathStats, SendDatagramError, TimeoutReason,
};
pub use endpoint::{
    AcceptError, ConnectError, ConnectionHandle, DatagramEvent, Endpoint, Incoming,
};
pub use error::{ConnectionClose, ConnectionError, TransportError, TransportErrorCode};
pub use ids::{FourTuple, PathId, PathStatus, SpaceId};
pub use packet::Transmit;
pub use quinn_proto::{
    ApplicationClose, Chunk, ClosedStream, ConnectionId, Dir, EcnCodepoint, FinishError, Side,
    StdSystemTime, StreamId, TimeSource, TokenStore, VarInt, WriteError,
};
pub use stream::{ReadStreamError, RecvStream, SendStream, StreamEvent, Written};
