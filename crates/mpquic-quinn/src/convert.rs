//! Errors and codes of mpquic as the same types that quinn re-exports.

use bytes::Buf;
use quinn_proto::coding::Codec;
use quinn_proto::{
    ConnectionClose, ConnectionError, FrameType, TransportError, TransportErrorCode,
};

use mpquic_tokio::VarInt;

/// A code of CONNECTION_CLOSE.
pub(crate) fn code(code: mpquic_tokio::TransportErrorCode) -> TransportErrorCode {
    through_wire(code.to_u64()).unwrap_or(TransportErrorCode::INTERNAL_ERROR)
}

/// The type of the frame that broke a rule; 0 stands for no frame.
pub(crate) fn frame_type(number: u64) -> Option<FrameType> {
    (number != 0).then(|| through_wire(number)).flatten()
}

/// Makes a value from its bytes in a packet: quinn-proto's types have no other constructor.
fn through_wire<T: Codec>(number: u64) -> Option<T> {
    let mut bytes = Vec::new();
    VarInt::from_u64(number).ok()?.encode(&mut bytes);
    T::decode(&mut bytes.as_slice().take(bytes.len())).ok()
}

/// An error without a variant of its own in quinn.
fn local(reason: &str) -> ConnectionError {
    ConnectionError::TransportError(TransportError {
        code: TransportErrorCode::INTERNAL_ERROR,
        frame: None,
        reason: reason.to_owned(),
    })
}

/// The end of a connection.
pub(crate) fn connection_error(error: mpquic_tokio::ConnectionError) -> ConnectionError {
    use mpquic_tokio::ConnectionError as From;
    match error {
        From::VersionMismatch => ConnectionError::VersionMismatch,
        From::TransportError(error) => ConnectionError::TransportError(TransportError {
            code: code(error.code()),
            frame: frame_type(error.frame_type),
            reason: error.reason().to_owned(),
        }),
        From::ConnectionClosed(close) => ConnectionError::ConnectionClosed(ConnectionClose {
            error_code: code(close.code),
            frame_type: frame_type(close.frame_type),
            reason: close.reason,
        }),
        From::ApplicationClosed(close) => ConnectionError::ApplicationClosed(close),
        From::Reset => ConnectionError::Reset,
        // quinn does not hear of closed ports: its attempts end with this error.
        From::TimedOut | From::HandshakeTimedOut | From::PortUnreachable => {
            ConnectionError::TimedOut
        }
        From::LocallyClosed => ConnectionError::LocallyClosed,
        From::CidsExhausted => ConnectionError::CidsExhausted,
        other => local(&other.to_string()),
    }
}

/// The reason why an attempt could not start.
pub(crate) fn connect_error(error: mpquic_tokio::ConnectError) -> quinn_proto::ConnectError {
    use mpquic_tokio::{ConnectError as From, InvalidConnect};
    use quinn_proto::ConnectError;
    match error {
        From::NoDefaultClientConfig => ConnectError::NoDefaultClientConfig,
        From::NoSocket(address) => ConnectError::InvalidRemoteAddress(address),
        From::Invalid(InvalidConnect::InvalidServerName(name)) => {
            ConnectError::InvalidServerName(name.0)
        }
        From::Invalid(InvalidConnect::InvalidRemoteAddress(address)) => {
            ConnectError::InvalidRemoteAddress(address)
        }
        From::Invalid(InvalidConnect::CidsExhausted) => ConnectError::CidsExhausted,
        From::Invalid(InvalidConnect::UnsupportedVersion(_)) => ConnectError::UnsupportedVersion,
        _ => ConnectError::EndpointStopping,
    }
}

#[cfg(test)]
mod tests {
    use mpquic_tokio::{ApplicationClose, Fault, TlsFailure};
    use mpquic_tokio::{ConnectError as MpConnect, ConnectionError as Mp, InvalidConnect};
    use quinn_proto::ConnectError;

    use super::*;

    fn transport(error: Mp) -> TransportError {
        match connection_error(error) {
            ConnectionError::TransportError(error) => error,
            other => panic!("a transport error, not {other:?}"),
        }
    }

    #[test]
    fn each_end_has_its_variant() {
        let application = ApplicationClose {
            error_code: VarInt::from_u32(9),
            reason: "bye".into(),
        };
        for (from, expected) in [
            (Mp::VersionMismatch, ConnectionError::VersionMismatch),
            (
                Mp::ApplicationClosed(application.clone()),
                ConnectionError::ApplicationClosed(application),
            ),
            (Mp::Reset, ConnectionError::Reset),
            (Mp::TimedOut, ConnectionError::TimedOut),
            (Mp::HandshakeTimedOut, ConnectionError::TimedOut),
            (Mp::PortUnreachable, ConnectionError::TimedOut),
            (Mp::LocallyClosed, ConnectionError::LocallyClosed),
            (Mp::CidsExhausted, ConnectionError::CidsExhausted),
        ] {
            assert_eq!(connection_error(from), expected);
        }
        let panicked = transport(Mp::Panicked);
        assert_eq!(panicked.code, TransportErrorCode::INTERNAL_ERROR);
        assert!(!panicked.reason.is_empty());
    }

    #[test]
    fn codes_and_frames_stay_the_same() {
        let stream = mpquic_tokio::TransportError::new(Fault::StreamDataBeyondLimit).in_frame(0x0f);
        let error = transport(Mp::TransportError(stream));
        assert_eq!(error.code, TransportErrorCode::FLOW_CONTROL_ERROR);
        assert_eq!(
            error.frame.map(|frame| frame.to_string()).as_deref(),
            Some("STREAM")
        );
        assert_eq!(error.reason, stream.reason());
        let failure = TlsFailure::UnknownIssuer;
        let tls = Fault::Tls {
            alert: Some(48),
            failure,
        };
        let error = transport(Mp::TransportError(tls.into()));
        assert_eq!(
            (error.code, error.frame),
            (TransportErrorCode::crypto(48), None)
        );

        let refused = mpquic_tokio::ConnectionClose {
            code: mpquic_tokio::TransportErrorCode::CONNECTION_REFUSED,
            frame_type: 0,
            reason: "no".into(),
        };
        let expected = ConnectionClose {
            error_code: TransportErrorCode::CONNECTION_REFUSED,
            frame_type: None,
            reason: "no".into(),
        };
        let close = connection_error(Mp::ConnectionClosed(refused));
        assert_eq!(close, ConnectionError::ConnectionClosed(expected));
        for number in [0, 0x3e76, VarInt::MAX.into_inner()] {
            let code = code(mpquic_tokio::TransportErrorCode::from_u64(number));
            assert_eq!(u64::from(code), number);
        }
    }

    #[test]
    fn each_failed_start_has_its_variant() {
        let address = ([192, 0, 2, 1], 1).into();
        for (from, expected) in [
            (MpConnect::EndpointStopping, ConnectError::EndpointStopping),
            (
                MpConnect::NoDefaultClientConfig,
                ConnectError::NoDefaultClientConfig,
            ),
            (
                MpConnect::NoSocket(address),
                ConnectError::InvalidRemoteAddress(address),
            ),
            (
                InvalidConnect::InvalidRemoteAddress(address).into(),
                ConnectError::InvalidRemoteAddress(address),
            ),
            (
                InvalidConnect::CidsExhausted.into(),
                ConnectError::CidsExhausted,
            ),
            (
                InvalidConnect::UnsupportedVersion(mpquic_tokio::Version::V2).into(),
                ConnectError::UnsupportedVersion,
            ),
        ] {
            assert_eq!(connect_error(from), expected);
        }
    }
}
