//! Errors of streams and datagrams.

use std::io;

use mpquic_tokio as mp;
use quinn_proto::{ClosedStream, ConnectionError, ReadableError, VarInt};
use thiserror::Error;

use crate::convert::connection_error;

/// The reason why a DATAGRAM could not be sent.
#[derive(Debug, Error, Clone, Eq, PartialEq)]
pub enum SendDatagramError {
    /// The peer accepts no DATAGRAM frames.
    #[error("the peer does not accept datagrams")]
    UnsupportedByPeer,
    /// The configuration of this side turns DATAGRAM frames off.
    #[error("datagrams are turned off")]
    Disabled,
    /// The DATAGRAM fits no packet.
    #[error("the datagram is larger than a packet")]
    TooLarge,
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
}

/// The reason why data could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The peer reset the stream with this code.
    #[error("the peer reset the stream with the code {0}")]
    Reset(VarInt),
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The application has stopped the stream.
    #[error("the stream is closed")]
    ClosedStream,
    /// Data was read out of order before.
    #[error("read in order after reads out of order")]
    IllegalOrderedRead,
    /// The server rejected 0-RTT, and the stream with the early data is gone.
    #[error("the server rejected 0-RTT")]
    ZeroRttRejected,
}

/// The reason why an exact number of bytes could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ReadExactError {
    /// The stream ended after this number of bytes.
    #[error("the stream ended after {0} bytes")]
    FinishedEarly(usize),
    /// The stream could not be read.
    #[error(transparent)]
    ReadError(#[from] ReadError),
}

/// The reason why a whole stream could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ReadToEndError {
    /// The stream could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The stream is longer than the limit.
    #[error("the stream is longer than the limit")]
    TooLong,
}

/// The reason why no reset can be awaited.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ResetError {
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The server rejected 0-RTT, and the stream with the early data is gone.
    #[error("the server rejected 0-RTT")]
    ZeroRttRejected,
}

/// The reason why data could not be written.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// The peer wants no more data, for the reason of this code.
    #[error("the peer stopped the stream with the code {0}")]
    Stopped(VarInt),
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The application has finished or reset the stream.
    #[error("the stream is closed")]
    ClosedStream,
    /// The server rejected 0-RTT, and the stream with the early data is gone.
    #[error("the server rejected 0-RTT")]
    ZeroRttRejected,
}

/// The reason why the end of a stream cannot be awaited.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum StoppedError {
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
    /// The server rejected 0-RTT, and the stream with the early data is gone.
    #[error("the server rejected 0-RTT")]
    ZeroRttRejected,
}

impl From<ResetError> for ReadError {
    fn from(error: ResetError) -> Self {
        match error {
            ResetError::ConnectionLost(error) => Self::ConnectionLost(error),
            ResetError::ZeroRttRejected => Self::ZeroRttRejected,
        }
    }
}

impl From<ReadableError> for ReadError {
    fn from(error: ReadableError) -> Self {
        match error {
            ReadableError::ClosedStream => Self::ClosedStream,
            ReadableError::IllegalOrderedRead => Self::IllegalOrderedRead,
        }
    }
}

impl From<StoppedError> for WriteError {
    fn from(error: StoppedError) -> Self {
        match error {
            StoppedError::ConnectionLost(error) => Self::ConnectionLost(error),
            StoppedError::ZeroRttRejected => Self::ZeroRttRejected,
        }
    }
}

impl From<ClosedStream> for WriteError {
    fn from(_: ClosedStream) -> Self {
        Self::ClosedStream
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) | ReadError::ZeroRttRejected => io::ErrorKind::ConnectionReset,
            ReadError::ConnectionLost(_) | ReadError::ClosedStream => io::ErrorKind::NotConnected,
            ReadError::IllegalOrderedRead => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

impl From<ResetError> for io::Error {
    fn from(error: ResetError) -> Self {
        let kind = match &error {
            ResetError::ZeroRttRejected => io::ErrorKind::ConnectionReset,
            ResetError::ConnectionLost(_) => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) | WriteError::ZeroRttRejected => io::ErrorKind::ConnectionReset,
            WriteError::ConnectionLost(_) | WriteError::ClosedStream => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

impl From<StoppedError> for io::Error {
    fn from(error: StoppedError) -> Self {
        let kind = match &error {
            StoppedError::ZeroRttRejected => io::ErrorKind::ConnectionReset,
            StoppedError::ConnectionLost(_) => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

pub(crate) fn read(error: mp::ReadError) -> ReadError {
    match error {
        mp::ReadError::Reset(code) => ReadError::Reset(code),
        mp::ReadError::ConnectionLost(error) => ReadError::ConnectionLost(connection_error(error)),
        mp::ReadError::IllegalOrderedRead => ReadError::IllegalOrderedRead,
        mp::ReadError::ZeroRttRejected => ReadError::ZeroRttRejected,
        _ => ReadError::ClosedStream,
    }
}

pub(crate) fn read_exact(error: mp::ReadExactError) -> ReadExactError {
    match error {
        mp::ReadExactError::FinishedEarly(count) => ReadExactError::FinishedEarly(count),
        mp::ReadExactError::ReadError(error) => ReadExactError::ReadError(read(error)),
    }
}

pub(crate) fn read_to_end(error: mp::ReadToEndError) -> ReadToEndError {
    match error {
        mp::ReadToEndError::Read(error) => ReadToEndError::Read(read(error)),
        mp::ReadToEndError::TooLong => ReadToEndError::TooLong,
    }
}

pub(crate) fn reset(error: mp::ResetError) -> ResetError {
    match error {
        mp::ResetError::ConnectionLost(error) => {
            ResetError::ConnectionLost(connection_error(error))
        }
        mp::ResetError::ZeroRttRejected => ResetError::ZeroRttRejected,
    }
}

pub(crate) fn write(error: mp::WriteError) -> WriteError {
    match error {
        mp::WriteError::Stopped(code) => WriteError::Stopped(code),
        mp::WriteError::ConnectionLost(error) => {
            WriteError::ConnectionLost(connection_error(error))
        }
        mp::WriteError::ZeroRttRejected => WriteError::ZeroRttRejected,
        _ => WriteError::ClosedStream,
    }
}

/// The answer of `stopped`. A stream past its deadline was reset by this side, which is no code of
/// the peer.
pub(crate) fn stopped(
    result: Result<Option<VarInt>, mp::StoppedError>,
) -> Result<Option<VarInt>, StoppedError> {
    match result {
        Ok(code) => Ok(code),
        Err(mp::StoppedError::ConnectionLost(error)) => {
            Err(StoppedError::ConnectionLost(connection_error(error)))
        }
        Err(mp::StoppedError::ZeroRttRejected) => Err(StoppedError::ZeroRttRejected),
        Err(_) => Ok(None),
    }
}

/// `None` if a full buffer dropped the DATAGRAM, which quinn does not report.
pub(crate) fn send_datagram(error: mp::SendDatagramError) -> Option<SendDatagramError> {
    Some(match error {
        mp::SendDatagramError::UnsupportedByPeer => SendDatagramError::UnsupportedByPeer,
        mp::SendDatagramError::TooLarge => SendDatagramError::TooLarge,
        mp::SendDatagramError::ConnectionLost(error) => {
            SendDatagramError::ConnectionLost(connection_error(error))
        }
        _ => return None,
    })
}
