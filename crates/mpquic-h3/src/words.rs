//! Errors of `h3` in words for people: of its own texts some name types and fields of its source.

use h3::error::{Code, ConnectionError, LocalError, StreamError};
use h3::quic::ConnectionErrorIncoming;

use crate::error::MalformedMessage;

/// Why a request or a response came to nothing, in words for people.
///
/// ```
/// use mpquic_h3::describe_stream_error;
/// # async fn ask(mut stream: mpquic_h3::h3::client::RequestStream<mpquic_h3::BidiStream<bytes::Bytes>, bytes::Bytes>) {
/// if let Err(error) = stream.recv_response().await {
///     // Such as: the message is malformed: two lengths
///     eprintln!("https://localhost/hello: {}", describe_stream_error(&error));
/// }
/// # }
/// ```
pub fn describe_stream_error(error: &StreamError) -> String {
    match error {
        StreamError::StreamError { code, .. } => of_code(*code),
        StreamError::RemoteTerminate { code, .. } => {
            format!("the peer ended the stream: {}", of_code(*code))
        }
        StreamError::ConnectionError(error) => describe_connection_error(error),
        StreamError::HeaderTooBig {
            actual_size,
            max_size,
            ..
        } => format!("the fields take {actual_size} bytes, and at most {max_size} are allowed"),
        StreamError::RemoteClosing => "the peer takes no more requests".to_owned(),
        StreamError::Undefined(error) => match error.downcast_ref::<MalformedMessage>() {
            Some(malformed) => malformed.to_string(),
            None => format!("the stream failed: {error}"),
        },
        _ => "the stream failed".to_owned(),
    }
}

/// Why a connection ended for HTTP/3, in words for people.
pub fn describe_connection_error(error: &ConnectionError) -> String {
    match error {
        ConnectionError::Local {
            error: LocalError::Application { code, .. },
            ..
        } => of_code(*code),
        ConnectionError::Local { .. } => "the connection is being closed".to_owned(),
        ConnectionError::Remote(ConnectionErrorIncoming::ApplicationClose { error_code }) => {
            let code = of_code(Code::from(*error_code));
            format!("the peer closed the connection: {code}")
        }
        ConnectionError::Remote(ConnectionErrorIncoming::Undefined(error)) => {
            format!("the connection is lost: {error}")
        }
        ConnectionError::Timeout | ConnectionError::Remote(ConnectionErrorIncoming::Timeout) => {
            "nothing was heard from the peer".to_owned()
        }
        _ => "the connection is lost".to_owned(),
    }
}

/// The meaning of an error code (RFC 9114 section 8.1, RFC 9204 section 6, RFC 9297 section 5.2),
/// with its name.
fn of_code(code: Code) -> String {
    let said = match code {
        Code::H3_DATAGRAM_ERROR => "a datagram or a capsule cannot be read",
        Code::H3_NO_ERROR => "nothing is wrong",
        Code::H3_GENERAL_PROTOCOL_ERROR => "a rule of HTTP/3 was broken",
        Code::H3_INTERNAL_ERROR => "HTTP/3 failed inside",
        Code::H3_STREAM_CREATION_ERROR => "a stream was opened that nobody takes",
        Code::H3_CLOSED_CRITICAL_STREAM => "a stream that HTTP/3 cannot do without was closed",
        Code::H3_FRAME_UNEXPECTED => "a frame came where it must not",
        Code::H3_FRAME_ERROR => "a frame cannot be read",
        Code::H3_EXCESSIVE_LOAD => "it was too much",
        Code::H3_ID_ERROR => "the ID of a stream or a push is wrong",
        Code::H3_SETTINGS_ERROR => "the settings are wrong",
        Code::H3_MISSING_SETTINGS => "the settings are missing",
        Code::H3_REQUEST_REJECTED => "the request was rejected, and nothing was done for it",
        Code::H3_REQUEST_CANCELLED => "the request was cancelled",
        Code::H3_REQUEST_INCOMPLETE => "the request has no end",
        Code::H3_MESSAGE_ERROR => "the message is malformed",
        Code::H3_CONNECT_ERROR => "the connection to the target was reset",
        Code::H3_VERSION_FALLBACK => "the request is not served over HTTP/3",
        Code::QPACK_DECOMPRESSION_FAILED => "the fields cannot be decoded",
        Code::QPACK_ENCODER_STREAM_ERROR => "the stream of the peer's encoder cannot be read",
        Code::QPACK_DECODER_STREAM_ERROR => "the stream of the peer's decoder cannot be read",
        other => return format!("code {:#x}", other.value()),
    };
    format!("{said} ({code})")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Users see our words, not the names of `h3`'s variants.
    #[test]
    fn errors_are_told_in_our_own_words() {
        let undefined = |error: Box<dyn std::error::Error + Send + Sync>| {
            describe_stream_error(&StreamError::Undefined(error))
        };
        let malformed = Box::new(MalformedMessage::new("two lengths"));
        assert_eq!(
            undefined(malformed),
            "the message is malformed: two lengths"
        );
        let other = Box::new(std::io::Error::other("x"));
        assert_eq!(undefined(other), "the stream failed: x");
        let closing = describe_stream_error(&StreamError::RemoteClosing);
        assert_eq!(closing, "the peer takes no more requests");
        let remote = |incoming| describe_connection_error(&ConnectionError::Remote(incoming));
        let close = |error_code| remote(ConnectionErrorIncoming::ApplicationClose { error_code });
        assert_eq!(
            close(0x106),
            "the peer closed the connection: a frame cannot be read (H3_FRAME_ERROR)"
        );
        assert_eq!(close(0x77), "the peer closed the connection: code 0x77");
        assert_eq!(
            remote(ConnectionErrorIncoming::Undefined(Arc::new(
                mpquic_tokio::ConnectionError::Reset
            ))),
            format!(
                "the connection is lost: {}",
                mpquic_tokio::ConnectionError::Reset
            )
        );
        let timeout = remote(ConnectionErrorIncoming::Timeout);
        assert_eq!(timeout, "nothing was heard from the peer");
        let inside = remote(ConnectionErrorIncoming::InternalError(
            "Internal Error".into(),
        ));
        assert_eq!(inside, "the connection is lost");
        assert_eq!(
            describe_connection_error(&ConnectionError::Timeout),
            timeout
        );
    }

    /// All codes named by `h3` have words.
    #[test]
    fn every_code_has_words() {
        let named = |code: u64| !Code::from(code).to_string().starts_with("0x");
        let codes: Vec<_> = (0..0x1000).filter(|code| named(*code)).collect();
        assert_eq!(codes.len(), 21);
        for code in codes {
            let code = Code::from(code);
            assert!(of_code(code).ends_with(&format!(" ({code})")), "{code}");
        }
    }
}
