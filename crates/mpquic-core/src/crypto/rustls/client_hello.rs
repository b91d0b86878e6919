//! Reads the transport parameters of a ClientHello, which a server needs before TLS starts: they
//! name the client's QUIC versions.

use quinn_proto::Side;

use crate::crypto::FirstFlight;
use crate::wire::transport_parameters::TransportParameters;

/// Handshake message type.
const CLIENT_HELLO: u8 = 1;
/// Extension quic_transport_parameters (RFC 9001 section 8.2).
const TRANSPORT_PARAMETERS: u16 = 0x39;
/// Longest ClientHello that is waited for, bytes; TLS rejects longer ones.
const MAX_LENGTH: usize = 1 << 16;

/// Reads the transport parameters of a ClientHello, which may not have arrived in full yet. Faults
/// are not reported here: TLS gets the same bytes later and reports them.
pub(super) fn read(crypto: &[u8]) -> FirstFlight {
    let Some((header, body)) = crypto.split_first_chunk::<4>() else {
        return FirstFlight::Incomplete;
    };
    let [kind, length @ ..] = *header;
    let [high, middle, low] = length;
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    if kind != CLIENT_HELLO || length > MAX_LENGTH {
        return FirstFlight::Complete(None);
    }
    match body.get(..length) {
        Some(body) => FirstFlight::Complete(parameters(body).map(Box::new)),
        None => FirstFlight::Incomplete,
    }
}

fn parameters(mut body: &[u8]) -> Option<TransportParameters> {
    let rest = &mut body;
    // legacy_version, random
    take(rest, 2 + 32)?;
    let session_id = u8::from_be_bytes(take_array(rest)?);
    take(rest, session_id.into())?;
    let cipher_suites = u16::from_be_bytes(take_array(rest)?);
    take(rest, cipher_suites.into())?;
    let compression_methods = u8::from_be_bytes(take_array(rest)?);
    take(rest, compression_methods.into())?;
    let length = u16::from_be_bytes(take_array(rest)?);
    let mut extensions = take(rest, length.into())?;
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(take_array(&mut extensions)?);
        let length = u16::from_be_bytes(take_array(&mut extensions)?);
        let value = take(&mut extensions, length.into())?;
        if kind == TRANSPORT_PARAMETERS {
            return TransportParameters::decode(Side::Client, value).ok();
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (bytes, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(bytes)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::crypto::rustls::QuicClientConfig;
    use crate::crypto::{ClientCrypto, Session};
    use crate::version::Version;

    fn hello(parameters: &TransportParameters) -> Vec<u8> {
        let config = QuicClientConfig::dangerous_trusting_any_certificate(&[b"h3"]).unwrap();
        let session = Arc::new(config).start_session(Version::V1, "localhost", parameters);
        let mut hello = Vec::new();
        let mut session: Box<dyn Session> = session.unwrap();
        assert!(session.write_handshake(&mut hello).is_none());
        hello
    }

    #[test]
    fn parameters_are_found_once_the_message_is_whole() {
        let parameters = TransportParameters {
            initial_max_data: 12_345,
            ..TransportParameters::default()
        };
        let hello = hello(&parameters);
        for length in 0..hello.len() {
            assert_eq!(read(&hello[..length]), FirstFlight::Incomplete);
        }
        let found = FirstFlight::Complete(Some(Box::new(parameters)));
        assert_eq!(read(&hello), found);
        // With a session ID, which QUIC does not use (RFC 9001 section 8.4); TLS decides whether to
        // refuse it.
        let length_at = 4 + 2 + 32;
        assert_eq!(hello[length_at], 0);
        let mut with_session = hello.clone();
        with_session.splice(length_at..=length_at, [5, 1, 2, 3, 4, 5]);
        let length = u32::try_from(with_session.len() - 4).unwrap();
        with_session[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
        assert_eq!(read(&with_session), found);
    }

    #[test]
    fn bytes_other_than_a_client_hello_are_left_to_tls() {
        let nothing = FirstFlight::Complete(None);
        assert_eq!(read(&[2, 0, 0, 0]), nothing);
        assert_eq!(read(&[1, 0xff, 0, 0]), nothing);
        assert_eq!(read(&[1, 0, 0, 3, 3, 3, 3]), nothing);
        let mut hello = hello(&TransportParameters::default());
        for at in 4..hello.len() {
            hello[at] ^= 0xff;
            assert_ne!(read(&hello), FirstFlight::Incomplete);
            hello[at] ^= 0xff;
        }
    }
}
