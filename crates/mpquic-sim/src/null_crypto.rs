//! A replacement for TLS without cryptography, with the messages and levels of a handshake, but
//! without secrets.
//!
//! Packets are not encrypted. The tag holds the inputs of nonce and key (level, direction,
//! generation, path, packet number). So a packet that is opened with the wrong key or on the wrong
//! path fails, as with real keys. Never use it outside of the lab.

use std::collections::VecDeque;
use std::sync::Arc;

use mpquic_core::config::TransportConfig;
use mpquic_core::crypto::{
    ClientCrypto, CryptoError, ExportError, FirstFlight, HandshakeData, HeaderKey, InitialCrypto,
    InvalidServerName, KeyPair, Keys, PacketKey, ServerCrypto, Session,
};
use mpquic_core::{
    ConnectionId, Fault, PathId, Side, TlsFailure, TransportError, TransportParameters, Version,
};

/// Length of a tag, bytes, as in AES-GCM and ChaCha20-Poly1305.
const TAG_LENGTH: usize = 16;
/// Length of a header protection sample, bytes.
const SAMPLE_LENGTH: usize = 16;
/// Length of the client's first message, bytes, as in a typical handshake.
const CLIENT_HELLO_LENGTH: usize = 280;
/// Length of the server's first message, bytes.
const SERVER_HELLO_LENGTH: usize = 90;
/// Length of the certificate message, bytes: a small certificate, so that the server's flight fits
/// the anti-amplification limit.
const CERTIFICATE_LENGTH: usize = 700;
/// Length of a finished message, bytes.
const FINISHED_LENGTH: usize = 36;
/// TLS alert for an unexpected message (RFC 8446 section 6).
const UNEXPECTED_MESSAGE: u8 = 10;
/// TLS alert for a malformed message (RFC 8446 section 6).
const DECODE_ERROR: u8 = 50;

/// Crypto configuration of both sides.
#[derive(Debug, Clone, Default)]
pub struct NullCrypto {
    alpn: Vec<u8>,
    more_parameters: Vec<u8>,
}

impl NullCrypto {
    /// A configuration that negotiates this application protocol.
    pub fn new(alpn: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            alpn: alpn.to_vec(),
            more_parameters: Vec::new(),
        })
    }

    /// Also announces these encoded transport parameters, for tests of a peer with parameters that
    /// we do not know.
    pub fn announcing(self: Arc<Self>, parameters: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            alpn: self.alpn.clone(),
            more_parameters: parameters.to_vec(),
        })
    }

    /// A core client configuration with this crypto configuration.
    pub fn client(
        self: Arc<Self>,
        transport: Arc<TransportConfig>,
    ) -> mpquic_core::config::ClientConfig {
        mpquic_core::config::ClientConfig::new(self, transport)
    }

    /// A core server configuration with this crypto configuration.
    pub fn server(
        self: Arc<Self>,
        transport: Arc<TransportConfig>,
    ) -> mpquic_core::config::ServerConfig {
        mpquic_core::config::ServerConfig::new(self, transport, [7; 32])
    }
}

/// The inputs of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NullKey {
    /// 0 for Initial, 1 for Handshake, 2 and above for the generations of 1-RTT.
    generation: u32,
    sender: Side,
    /// Keys depend on the version, Initial keys also on the connection ID.
    salt: u32,
}

impl NullKey {
    fn pair(generation: u32, side: Side, salt: u32) -> KeyPair<Self> {
        let key = |sender| Self {
            generation,
            sender,
            salt,
        };
        KeyPair {
            local: key(side),
            remote: key(!side),
        }
    }

    fn keys(generation: u32, side: Side, salt: u32) -> Keys {
        let packet = Self::pair(generation, side, salt);
        Keys {
            header: KeyPair {
                local: Box::new(NullHeaderKey),
                remote: Box::new(NullHeaderKey),
            },
            packet: KeyPair {
                local: Box::new(packet.local),
                remote: Box::new(packet.remote),
            },
        }
    }

    fn tag(&self, path: PathId, packet_number: u64) -> [u8; TAG_LENGTH] {
        let sender = u32::from(self.sender.is_server());
        let key = (self.generation << 1 | sender) ^ self.salt;
        let mut tag = [0; TAG_LENGTH];
        tag[..4].copy_from_slice(&key.to_be_bytes());
        tag[4..8].copy_from_slice(&path.0.to_be_bytes());
        tag[8..].copy_from_slice(&packet_number.to_be_bytes());
        tag
    }
}

impl PacketKey for NullKey {
    fn encrypt(&self, path: PathId, packet_number: u64, packet: &mut [u8], _header_length: usize) {
        if let Some(tag) = packet.last_chunk_mut() {
            *tag = self.tag(path, packet_number);
        }
    }

    fn decrypt(
        &self,
        path: PathId,
        packet_number: u64,
        _header: &[u8],
        payload: &mut [u8],
    ) -> Result<usize, CryptoError> {
        if payload.last_chunk() == Some(&self.tag(path, packet_number)) {
            Ok(payload.len() - TAG_LENGTH)
        } else {
            Err(CryptoError)
        }
    }

    fn tag_length(&self) -> usize {
        TAG_LENGTH
    }

    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

/// Leaves headers unchanged.
struct NullHeaderKey;

impl HeaderKey for NullHeaderKey {
    fn decrypt(&self, offset: usize, packet: &mut [u8]) -> bool {
        packet.len() >= offset + 4 + SAMPLE_LENGTH
    }

    fn encrypt(&self, _offset: usize, _packet: &mut [u8]) {}
}

/// A number that separates the keys of QUIC versions.
fn salt(version: Version) -> u32 {
    match version {
        Version::V1 => 0,
        _ => version.to_u32(),
    }
}

/// A hash (FNV-1a) without any security.
fn digest(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

impl InitialCrypto for NullCrypto {
    fn initial_keys(&self, version: Version, side: Side, destination: &ConnectionId) -> Keys {
        NullKey::keys(0, side, digest(destination) ^ salt(version))
    }

    fn retry_tag(
        &self,
        version: Version,
        original_destination: &ConnectionId,
        packet: &[u8],
    ) -> [u8; 16] {
        let mut tag = [0; 16];
        let digest_of_destination = digest(original_destination) ^ salt(version);
        tag[..4].copy_from_slice(&digest_of_destination.to_be_bytes());
        tag[4..8].copy_from_slice(&digest(packet).to_be_bytes());
        tag
    }
}

impl ClientCrypto for NullCrypto {
    fn start_session(
        self: Arc<Self>,
        version: Version,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, InvalidServerName> {
        let mut encoded = Vec::new();
        parameters.encode(Side::Client, &mut encoded);
        encoded.extend_from_slice(&self.more_parameters);
        let mut session = NullSession::new(Side::Client, version, self);
        let name = server_name.as_bytes();
        let fields = [&session.config.alpn[..], name, &encoded];
        let hello = message(Message::ClientHello, &fields, CLIENT_HELLO_LENGTH);
        session.output.push_back((hello, None));
        Ok(Box::new(session))
    }
}

impl ServerCrypto for NullCrypto {
    fn read_first_flight(&self, crypto: &[u8]) -> FirstFlight {
        let Some((header, rest)) = crypto.split_first_chunk() else {
            return FirstFlight::Incomplete;
        };
        let length = u32::from_be_bytes(*header) & 0xff_ffff;
        let Some(mut body) = rest.get(..length as usize) else {
            return FirstFlight::Incomplete;
        };
        let mut field = || take_field(&mut body).ok();
        let parameters = field().and_then(|_alpn| field()).and_then(|_name| field());
        let decoded =
            parameters.and_then(|encoded| TransportParameters::decode(Side::Client, encoded).ok());
        FirstFlight::Complete(decoded.map(Box::new))
    }

    fn start_session(
        self: Arc<Self>,
        version: Version,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, TransportError> {
        let mut session = NullSession::new(Side::Server, version, self);
        parameters.encode(Side::Server, &mut session.local_parameters);
        let more = session.config.more_parameters.clone();
        session.local_parameters.extend_from_slice(&more);
        Ok(Box::new(session))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    ClientHello = 1,
    ServerHello = 2,
    Certificate = 11,
    Finished = 20,
}

/// A message in the form of TLS: type, 24-bit length, fields with 16-bit lengths, padding.
fn message(kind: Message, fields: &[&[u8]], padded_length: usize) -> Vec<u8> {
    let mut body = Vec::new();
    for field in fields {
        let length = u16::try_from(field.len()).unwrap_or(u16::MAX);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&field[..length.into()]);
    }
    let length: usize = fields.iter().map(|field| field.len()).sum();
    body.resize(body.len().max(length + padded_length - 4), 0);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut message = ((kind as u32) << 24 | length).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

/// Takes one field off the front of a message's body.
fn take_field<'a>(body: &mut &'a [u8]) -> Result<&'a [u8], TransportError> {
    let malformed = || alert(DECODE_ERROR, TlsFailure::Misbehaved);
    let (length, rest) = body.split_first_chunk().ok_or_else(malformed)?;
    let length = u16::from_be_bytes(*length).into();
    let (field, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
    *body = rest;
    Ok(field)
}

fn alert(alert: u8, failure: TlsFailure) -> TransportError {
    let alert = Some(alert);
    Fault::Tls { alert, failure }.into()
}

/// The handshake of one connection.
struct NullSession {
    side: Side,
    version: Version,
    config: Arc<NullCrypto>,
    /// The server's own parameters, to be sent with its certificate.
    local_parameters: Vec<u8>,
    peer_parameters: Option<Vec<u8>>,
    server_name: Option<String>,
    input: Vec<u8>,
    expected: Option<Message>,
    /// Messages to send, each with the generation of the keys that follow it.
    output: VecDeque<(Vec<u8>, Option<u32>)>,
    next_generation: u32,
}

impl NullSession {
    fn new(side: Side, version: Version, config: Arc<NullCrypto>) -> Self {
        let expected = match side {
            Side::Client => Message::ServerHello,
            Side::Server => Message::ClientHello,
        };
        Self {
            side,
            version,
            config,
            local_parameters: Vec::new(),
            peer_parameters: None,
            server_name: None,
            input: Vec::new(),
            expected: Some(expected),
            output: VecDeque::new(),
            next_generation: 3,
        }
    }

    fn on_message(&mut self, kind: Message, mut body: &[u8]) -> Result<(), TransportError> {
        self.expected = match kind {
            Message::ClientHello => {
                let alpn = take_field(&mut body)?;
                if alpn != self.config.alpn {
                    return Err(alert(120, TlsFailure::NoApplicationProtocol));
                }
                let name = String::from_utf8_lossy(take_field(&mut body)?);
                self.server_name = Some(name.into_owned());
                self.peer_parameters = Some(take_field(&mut body)?.to_vec());
                let hello = message(Message::ServerHello, &[], SERVER_HELLO_LENGTH);
                let parameters = [&self.local_parameters[..]];
                let certificate = message(Message::Certificate, &parameters, CERTIFICATE_LENGTH);
                self.output.push_back((hello, Some(1)));
                self.output.push_back((certificate, Some(2)));
                Some(Message::Finished)
            }
            Message::ServerHello => {
                self.output.push_back((Vec::new(), Some(1)));
                Some(Message::Certificate)
            }
            Message::Certificate => {
                self.peer_parameters = Some(take_field(&mut body)?.to_vec());
                let finished = message(Message::Finished, &[], FINISHED_LENGTH);
                self.output.push_back((finished, Some(2)));
                None
            }
            Message::Finished => None,
        };
        Ok(())
    }
}

impl Session for NullSession {
    fn handshake_data(&self) -> Option<HandshakeData> {
        self.peer_parameters.as_ref().map(|_| HandshakeData {
            protocol: Some(self.config.alpn.clone()),
            server_name: self.server_name.clone(),
            key_exchange: None,
        })
    }

    fn is_handshaking(&self) -> bool {
        self.expected.is_some()
    }

    fn read_handshake(&mut self, data: &[u8]) -> Result<(), TransportError> {
        self.input.extend_from_slice(data);
        while let Some(header) = self.input.first_chunk() {
            let header = u32::from_be_bytes(*header);
            let end = 4 + (header & 0xff_ffff) as usize;
            if self.input.len() < end {
                break;
            }
            let kind = self.expected.filter(|kind| *kind as u32 == header >> 24);
            let kind = kind.ok_or_else(|| alert(UNEXPECTED_MESSAGE, TlsFailure::Misbehaved))?;
            let rest = self.input.split_off(end);
            let message = std::mem::replace(&mut self.input, rest);
            self.on_message(kind, &message[4..])?;
        }
        Ok(())
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let parameters = self.peer_parameters.as_deref();
        parameters
            .map(|encoded| TransportParameters::decode(!self.side, encoded))
            .transpose()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let (message, keys) = self.output.pop_front()?;
        buf.extend_from_slice(&message);
        keys.map(|generation| NullKey::keys(generation, self.side, salt(self.version)))
    }

    fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let pair = NullKey::pair(self.next_generation, self.side, salt(self.version));
        self.next_generation += 1;
        Some(KeyPair {
            local: Box::new(pair.local),
            remote: Box::new(pair.remote),
        })
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        if self.is_handshaking() {
            return Err(ExportError::HandshakeIncomplete);
        }
        let seed = digest(label) ^ digest(context).rotate_left(16);
        for (index, byte) in output.iter_mut().enumerate() {
            *byte = (seed >> (8 * (index % 4))) as u8;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes until no message is left. Returns messages and keys in order.
    fn flush(session: &mut dyn Session) -> Vec<(Vec<u8>, Option<Keys>)> {
        let mut out = Vec::new();
        loop {
            let mut message = Vec::new();
            let keys = session.write_handshake(&mut message);
            if message.is_empty() && keys.is_none() {
                return out;
            }
            out.push((message, keys));
        }
    }

    fn assert_matching(sealing: &Keys, opening: &Keys) {
        let mut packet = [1; 40];
        sealing.packet.local.encrypt(PathId(3), 9, &mut packet, 8);
        let (header, payload) = packet.split_at_mut(8);
        let open = |key: &dyn PacketKey, path, number, payload: &mut [u8]| {
            key.decrypt(path, number, header, payload)
        };
        let key = &*opening.packet.remote;
        assert_eq!(open(key, PathId(3), 9, payload), Ok(16));
        assert_eq!(open(key, PathId(2), 9, payload), Err(CryptoError));
        assert_eq!(open(key, PathId(3), 8, payload), Err(CryptoError));
        let wrong = &*opening.packet.local;
        assert_eq!(open(wrong, PathId(3), 9, payload), Err(CryptoError));
    }

    #[test]
    fn the_handshake_carries_parameters_and_yields_matching_keys() {
        let config = NullCrypto::new(b"test");
        let parameters = |limit| {
            let mut parameters = TransportParameters::default();
            parameters.initial_max_data = limit;
            parameters
        };
        let mut client =
            ClientCrypto::start_session(config.clone(), Version::V1, "server", &parameters(1))
                .unwrap();
        let mut server = ServerCrypto::start_session(config, Version::V1, &parameters(2)).unwrap();

        let hello = flush(&mut *client);
        assert_eq!(hello.len(), 1);
        // In pieces, as CRYPTO frames may deliver it.
        for piece in hello[0].0.chunks(100) {
            assert!(flush(&mut *server).is_empty());
            server.read_handshake(piece).unwrap();
        }
        let data = server.handshake_data().unwrap();
        assert_eq!(data.server_name.as_deref(), Some("server"));
        let flight = flush(&mut *server);
        assert_eq!(flight.len(), 2);
        assert!(server.is_handshaking());

        client.read_handshake(&flight[0].0).unwrap();
        let handshake = flush(&mut *client);
        assert!(handshake[0].0.is_empty());
        client.read_handshake(&flight[1].0).unwrap();
        assert!(!client.is_handshaking());
        let finished = flush(&mut *client);
        server.read_handshake(&finished[0].0).unwrap();
        assert!(!server.is_handshaking());

        for (client, server) in [(&handshake[0], &flight[0]), (&finished[0], &flight[1])] {
            let (client, server) = (client.1.as_ref().unwrap(), server.1.as_ref().unwrap());
            assert_matching(client, server);
            assert_matching(server, client);
        }
        let limit = |session: &dyn Session| {
            let parameters = session.transport_parameters().unwrap();
            parameters.map(|parameters| parameters.initial_max_data)
        };
        assert_eq!(limit(&*client), Some(2));
        assert_eq!(limit(&*server), Some(1));
    }

    #[test]
    fn unexpected_and_malformed_messages_are_errors() {
        let start = || {
            let parameters = TransportParameters::default();
            ServerCrypto::start_session(NullCrypto::new(b"a"), Version::V1, &parameters).unwrap()
        };
        let error = start().read_handshake(&message(Message::Finished, &[], 36));
        assert_eq!(
            error.unwrap_err(),
            alert(UNEXPECTED_MESSAGE, TlsFailure::Misbehaved)
        );
        let error = start().read_handshake(&[1, 0, 0, 1, 0]);
        assert_eq!(
            error.unwrap_err(),
            alert(DECODE_ERROR, TlsFailure::Misbehaved)
        );
        let other_protocol = message(Message::ClientHello, &[b"b", b"", b""], 100);
        let error = start().read_handshake(&other_protocol);
        assert_eq!(
            error.unwrap_err(),
            alert(120, TlsFailure::NoApplicationProtocol)
        );
    }

    #[test]
    fn messages_have_the_sizes_of_a_handshake_with_a_small_certificate() {
        let parameters = TransportParameters::default();
        let more = [0x40, 0x99, 2, 7, 7];
        let config = NullCrypto::new(b"test").announcing(&more);
        let mut client =
            ClientCrypto::start_session(config.clone(), Version::V1, "server", &parameters)
                .unwrap();
        let mut server = ServerCrypto::start_session(config, Version::V1, &parameters).unwrap();
        let encoded = |side| {
            let mut encoded = Vec::new();
            parameters.encode(side, &mut encoded);
            [&encoded[..], &more].concat()
        };
        let (of_client, of_server) = (encoded(Side::Client), encoded(Side::Server));
        let hello = flush(&mut *client).remove(0).0;
        // The fields are added to the fixed length: protocol, name and parameters.
        assert_eq!(hello.len(), 280 + 4 + 6 + of_client.len());
        let ends = |of: &[u8]| of.windows(more.len()).any(|part| part == more);
        assert!(ends(&hello), "what is announced beside what is known");
        server.read_handshake(&hello).unwrap();
        assert_eq!(
            server.handshake_data().unwrap().protocol.as_deref(),
            Some(&b"test"[..])
        );
        let flight = flush(&mut *server);
        let lengths: Vec<_> = flight.iter().map(|(message, _)| message.len()).collect();
        assert_eq!(lengths, [90, 700 + of_server.len()]);
        assert!(ends(&flight[1].0));
        client.read_handshake(&flight[0].0).unwrap();
        client.read_handshake(&flight[1].0).unwrap();
        let finished = flush(&mut *client).pop().unwrap().0;
        assert_eq!(finished.len(), 36);
        // Type and length as in TLS.
        assert_eq!(finished[..4], [20, 0, 0, 32]);
    }

    #[test]
    fn tags_hold_the_inputs_of_keys_and_nonces() {
        let key = |generation, sender, salt| NullKey {
            generation,
            sender,
            salt,
        };
        let tag = key(3, Side::Server, 0x0500_0000).tag(PathId(0x0a0b_0c0d), 0x0102_0304_0506_0708);
        assert_eq!(tag, [5, 0, 0, 7, 10, 11, 12, 13, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(key(3, Side::Client, 0).tag(PathId(0), 0)[..4], [0, 0, 0, 6]);
        let pair = NullKey::pair(2, Side::Server, 9);
        assert_eq!(pair.local, key(2, Side::Server, 9));
        assert_eq!(pair.remote, key(2, Side::Client, 9));
        assert_eq!(pair.local.tag_length(), 16);
        assert_eq!(pair.local.confidentiality_limit(), 1 << 23);
        assert_eq!(pair.local.integrity_limit(), 1 << 52);
        // The sample of header protection needs 4 bytes of packet number and 16 more.
        let header = NullHeaderKey;
        let lengths = [27, 28].map(|length| header.decrypt(8, &mut vec![0; length]));
        assert_eq!(lengths, [false, true]);
    }

    #[test]
    fn versions_and_connection_ids_have_keys_of_their_own() {
        // Known values of FNV-1a.
        assert_eq!(digest(b""), 0x811c_9dc5);
        assert_eq!(digest(b"foobar"), 0xbf9c_f968);
        assert_eq!(salt(Version::V1), 0);
        assert_eq!(salt(Version::V2), Version::V2.to_u32());
        let config = NullCrypto::default();
        let id = |bytes: &[u8]| ConnectionId::new(bytes);
        let sealed = |version, destination: &[u8]| {
            let keys = config.initial_keys(version, Side::Client, &id(destination));
            let mut packet = [0; 16];
            keys.packet.local.encrypt(PathId::ZERO, 0, &mut packet, 0);
            u32::from_be_bytes(*packet.first_chunk().unwrap())
        };
        assert_eq!(sealed(Version::V1, b"foobar"), 0xbf9c_f968);
        let second = 0xbf9c_f968 ^ Version::V2.to_u32();
        assert_eq!(sealed(Version::V2, b"foobar"), second);
        let tag = config.retry_tag(Version::V2, &id(b"foobar"), b"");
        assert_eq!(tag[..4], second.to_be_bytes());
        assert_eq!(tag[4..8], 0x811c_9dc5_u32.to_be_bytes());
        assert_eq!(tag[8..], [0; 8]);
    }

    #[test]
    fn each_update_of_keys_is_another_generation() {
        let start = |side| {
            let mut session = NullSession::new(side, Version::V1, NullCrypto::new(b"a"));
            session.set_version(Version::V2);
            session
        };
        let (mut client, mut server) = (start(Side::Client), start(Side::Server));
        let seal = |keys: &KeyPair<Box<dyn PacketKey>>| {
            let mut packet = [0; 16];
            keys.local.encrypt(PathId::ZERO, 0, &mut packet, 0);
            packet
        };
        let mut seen = Vec::new();
        for generation in 3..6 {
            let (of_client, of_server) = (
                client.next_one_rtt_keys().unwrap(),
                server.next_one_rtt_keys().unwrap(),
            );
            let expected = NullKey {
                generation,
                sender: Side::Client,
                salt: Version::V2.to_u32(),
            };
            let mut packet = seal(&of_client);
            assert_eq!(packet, expected.tag(PathId::ZERO, 0));
            let opened = of_server.remote.decrypt(PathId::ZERO, 0, &[], &mut packet);
            assert_eq!(opened, Ok(0));
            seen.push(packet);
        }
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
    }

    #[test]
    fn exported_secrets_follow_from_label_and_context() {
        let mut session = NullSession::new(Side::Client, Version::V1, NullCrypto::new(b"a"));
        let mut output = [0; 6];
        let early = session.export_keying_material(&mut output, b"", b"");
        assert_eq!(early, Err(ExportError::HandshakeIncomplete));
        session.expected = None;
        session
            .export_keying_material(&mut output, b"foobar", b"")
            .unwrap();
        // 0xbf9cf968 and 0x811c9dc5 rotated by 16 bits, the lowest byte first.
        let seed = 0xbf9c_f968_u32 ^ 0x9dc5_811c;
        let bytes = seed.to_le_bytes();
        assert_eq!(output[..4], bytes);
        assert_eq!(output[4..], bytes[..2]);
    }

    #[test]
    fn first_flight_is_read_once_it_is_complete() {
        let config = NullCrypto::new(b"a");
        let parameters = TransportParameters::default();
        let mut client =
            ClientCrypto::start_session(config.clone(), Version::V1, "server", &parameters)
                .unwrap();
        let hello = flush(&mut *client).remove(0).0;
        for length in [0, 3, 4, hello.len() - 1] {
            let flight = config.read_first_flight(&hello[..length]);
            assert!(matches!(flight, FirstFlight::Incomplete), "{length}");
        }
        let whole = config.read_first_flight(&hello);
        assert!(matches!(whole, FirstFlight::Complete(Some(_))));
        let nonsense = message(Message::ClientHello, &[b"a", b"b"], 12);
        let read = config.read_first_flight(&nonsense);
        assert!(matches!(read, FirstFlight::Complete(_)));
    }
}
