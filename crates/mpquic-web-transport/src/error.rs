//! [`Error`].

use mpquic_tokio::{
    ClosedStream, ConnectionError, ReadError, ResetError, SendDatagramError, StoppedError, VarInt,
    WriteError,
};

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The peer has reset the stream, or wants no more of it, and says why with this code.
    #[error("the peer has ended the stream with code {0}")]
    Stream(VarInt),
    /// The stream was finished, reset or stopped before, or its deadline has passed.
    #[error("closed stream")]
    ClosedStream,
    /// The datagram was not sent.
    #[error(transparent)]
    Datagram(SendDatagramError),
}

impl web_transport_trait::Error for Error {
    fn session_error(&self) -> Option<(u32, String)> {
        let Self::Connection(ConnectionError::ApplicationClosed(close)) = self else {
            return None;
        };
        let code = u32::try_from(close.error_code.into_inner()).ok()?;
        Some((code, String::from_utf8_lossy(&close.reason).into_owned()))
    }

    fn stream_error(&self) -> Option<u32> {
        match self {
            Self::Stream(code) => u32::try_from(code.into_inner()).ok(),
            _ => None,
        }
    }
}

impl From<ClosedStream> for Error {
    fn from(_: ClosedStream) -> Self {
        Self::ClosedStream
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Stream(code),
            WriteError::ConnectionLost(error) => error.into(),
            _ => Self::ClosedStream,
        }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Stream(code),
            ReadError::ConnectionLost(error) => error.into(),
            _ => Self::ClosedStream,
        }
    }
}

impl From<StoppedError> for Error {
    fn from(error: StoppedError) -> Self {
        match error {
            StoppedError::ConnectionLost(error) => error.into(),
            _ => Self::ClosedStream,
        }
    }
}

impl From<ResetError> for Error {
    fn from(error: ResetError) -> Self {
        match error {
            ResetError::ConnectionLost(error) => error.into(),
            ResetError::ZeroRttRejected => Self::ClosedStream,
        }
    }
}

impl From<SendDatagramError> for Error {
    fn from(error: SendDatagramError) -> Self {
        match error {
            SendDatagramError::ConnectionLost(error) => error.into(),
            other => Self::Datagram(other),
        }
    }
}
