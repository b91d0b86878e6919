//! [`Transmit`]: datagrams that are ready to be sent.

use quinn_proto::EcnCodepoint;

use crate::ids::{FourTuple, PathId};

/// Datagrams for one four-tuple, concatenated in the buffer given to `poll_transmit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The path, or `None` for datagrams an endpoint sends without a connection.
    pub path: Option<PathId>,
    /// The addresses to send between.
    pub four_tuple: FourTuple,
    /// ECN codepoint of all of them.
    pub ecn: Option<EcnCodepoint>,
    /// Bytes in the buffer.
    pub size: usize,
    /// Size of every datagram but the last, which may be smaller; `None` for a single datagram.
    pub segment_size: Option<usize>,
}

impl Transmit {
    /// A datagram of a path, without an ECN mark: all of `buf`.
    pub(crate) fn single(path: PathId, four_tuple: FourTuple, buf: &[u8]) -> Self {
        Self {
            path: Some(path),
            ..Self::without_connection(four_tuple, buf)
        }
    }

    /// A datagram that belongs to no connection: all of `buf`.
    pub(crate) fn without_connection(four_tuple: FourTuple, buf: &[u8]) -> Self {
        Self {
            path: None,
            four_tuple,
            ecn: None,
            size: buf.len(),
            segment_size: None,
        }
    }
}
