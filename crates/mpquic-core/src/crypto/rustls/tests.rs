//! Handshakes of two sessions, without packets.

use std::sync::Arc;

use mpquic_sim::tls::SERVER_NAME;
use quinn_proto::ConnectionId;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, TrustAnchor};

use super::*;
use crate::crypto::{ClientCrypto, ExportError, KeyPair, Keys, PacketKey, ServerCrypto, Session};
use crate::error::{Fault, TlsFailure, TransportError};
use crate::ids::PathId;
use crate::version::Version;
use crate::wire::transport_parameters::{TransportParameters, VersionInformation};

mod key_exchange;
mod messages;

const H3: &[u8] = b"h3";

struct Server {
    config: Arc<QuicServerConfig>,
    certificate: CertificateDer<'static>,
}

fn server(alpn: &[&[u8]]) -> Server {
    let (certificate, key) = mpquic_sim::tls::certificate();
    let config = QuicServerConfig::with_certificate(vec![certificate.clone()], key, alpn);
    Server {
        config: Arc::new(config.unwrap()),
        certificate,
    }
}

fn parameters(credit: u64) -> TransportParameters {
    TransportParameters {
        initial_max_data: credit,
        initial_max_path_id: Some(PathId(3)),
        initial_source_connection_id: Some(ConnectionId::new(&[1; 8])),
        original_destination_connection_id: (credit == 2).then(|| ConnectionId::new(&[2; 8])),
        ..TransportParameters::default()
    }
}

struct Pair {
    client: Box<dyn Session>,
    server: Box<dyn Session>,
    /// The latest keys; at the end, 1-RTT keys.
    client_keys: Option<Keys>,
    server_keys: Option<Keys>,
}

impl Pair {
    fn new(client: &Arc<QuicClientConfig>, server: &Server) -> Self {
        Self::of_versions(client, server, [Version::V1; 2])
    }

    /// The client starts in one version, the server chooses another, or the same.
    fn of_versions(
        client: &Arc<QuicClientConfig>,
        server: &Server,
        [original, chosen]: [Version; 2],
    ) -> Self {
        let mut offer = parameters(1);
        if original != chosen {
            offer.version_information = Some(VersionInformation {
                chosen: original.to_u32(),
                available: vec![original.to_u32(), chosen.to_u32()],
            });
        }
        let client = client.clone().start_session(original, SERVER_NAME, &offer);
        let server = server.config.clone().start_session(chosen, &parameters(2));
        Self {
            client: client.unwrap(),
            server: server.unwrap(),
            client_keys: None,
            server_keys: None,
        }
    }

    /// Moves handshake bytes in both directions until none are left.
    fn handshake(&mut self) -> Result<(), TransportError> {
        for _ in 0..10 {
            for bytes in write_all(&mut *self.client, &mut self.client_keys) {
                self.server.read_handshake(&bytes)?;
            }
            for bytes in write_all(&mut *self.server, &mut self.server_keys) {
                self.client.read_handshake(&bytes)?;
            }
        }
        Ok(())
    }
}

/// The bytes that a session sends, one piece for each level, and its latest keys.
fn write_all(session: &mut dyn Session, keys: &mut Option<Keys>) -> Vec<Vec<u8>> {
    let mut levels = Vec::new();
    loop {
        let mut bytes = Vec::new();
        let next = session.write_handshake(&mut bytes);
        levels.push(bytes);
        match next {
            Some(next) => *keys = Some(next),
            None => return levels,
        }
    }
}

/// Seals with one key and opens with the other.
fn carries(local: &dyn PacketKey, remote: &dyn PacketKey, path: u32) -> bool {
    let mut packet = [5; 50];
    local.encrypt(PathId(path), 77, &mut packet, 10);
    let (header, payload) = packet.split_at_mut(10);
    remote.decrypt(PathId(path), 77, header, payload) == Ok(24) && payload[..24] == [5; 24]
}

fn refused(alert: u8, failure: TlsFailure) -> Fault {
    let alert = Some(alert);
    Fault::Tls { alert, failure }
}

#[test]
fn handshake_gives_matching_keys_and_parameters() {
    let server = server(&[b"other", H3]);
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let client = Arc::new(QuicClientConfig::with_roots(roots, &[H3]).unwrap());
    let mut pair = Pair::new(&client, &server);
    assert!(pair.client.is_handshaking() && pair.client.handshake_data().is_none());
    pair.handshake().unwrap();
    assert!(!pair.client.is_handshaking() && !pair.server.is_handshaking());

    let seen_by_client = pair.client.transport_parameters().unwrap().unwrap();
    assert_eq!(seen_by_client, parameters(2));
    let seen_by_server = pair.server.transport_parameters().unwrap().unwrap();
    assert_eq!(seen_by_server, parameters(1));
    let data = pair.server.handshake_data().unwrap();
    assert_eq!(data.protocol.as_deref(), Some(H3));
    assert_eq!(data.server_name.as_deref(), Some(SERVER_NAME));
    assert_eq!(pair.client.handshake_data().unwrap().server_name, None);
    let chain = pair.client.peer_certificates().unwrap();
    assert_eq!(chain, std::slice::from_ref(&server.certificate));

    let (client_keys, server_keys) = (pair.client_keys.unwrap(), pair.server_keys.unwrap());
    let update = (
        pair.client.next_one_rtt_keys().unwrap(),
        pair.server.next_one_rtt_keys().unwrap(),
    );
    for path in [0, 1, u32::MAX] {
        assert!(carries(
            &*client_keys.packet.local,
            &*server_keys.packet.remote,
            path
        ));
        assert!(carries(
            &*server_keys.packet.local,
            &*client_keys.packet.remote,
            path
        ));
        assert!(carries(&*update.0.local, &*update.1.remote, path));
        assert!(!carries(
            &*update.0.local,
            &*server_keys.packet.remote,
            path
        ));
    }

    let mut exported = [[0; 40]; 2];
    for (session, output) in [&pair.client, &pair.server].into_iter().zip(&mut exported) {
        session
            .export_keying_material(output, b"label", b"context")
            .unwrap();
    }
    assert_eq!(exported[0], exported[1]);
}

#[test]
fn a_server_remembers_the_handshake_and_goes_on_with_keys() {
    let server = server(&[H3]);
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]);
    let mut pair = Pair::new(&Arc::new(client.unwrap()), &server);
    assert!(
        pair.server.finish_handshake().is_none(),
        "during the handshake"
    );
    pair.handshake().unwrap();
    let known = pair.server.handshake_data();
    let finished = pair.server.finish_handshake().unwrap();
    pair.server = finished;
    assert_eq!(pair.server.handshake_data(), known);
    assert!(!pair.server.is_handshaking());
    for _ in 0..3 {
        let client = pair.client.next_one_rtt_keys().unwrap();
        let server = pair.server.next_one_rtt_keys().unwrap();
        assert!(carries(&*client.local, &*server.remote, 1));
        assert!(carries(&*server.local, &*client.remote, 1));
    }
    let error = pair.server.read_handshake(&[24, 0, 0, 1, 0]).unwrap_err();
    assert_eq!(error.fault, Fault::TlsAfterHandshake);
    // A client keeps its rustls session, as tickets are still to come.
    assert!(pair.client.finish_handshake().is_none());
}

#[test]
fn both_sides_export_the_same_keying_material_after_the_handshake() {
    let server = server(&[H3]);
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]);
    let mut pair = Pair::new(&Arc::new(client.unwrap()), &server);
    pair.handshake().unwrap();
    let export = |session: &dyn Session, length, label: &[u8], context: &[u8]| {
        let mut output = vec![0; length];
        let result = session.export_keying_material(&mut output, label, context);
        result.map(|()| output)
    };
    let before = export(&*pair.server, 40, b"label", b"context").unwrap();
    pair.server = pair.server.finish_handshake().unwrap();
    assert_eq!(export(&*pair.server, 40, b"label", b"context"), Ok(before));

    let long = [b'a'; 250];
    for (length, label, context) in [
        (1, &b"EXPORTER-a"[..], &b""[..]),
        (32, b"EXPORTER-a", b"a"),
        (32, b"EXPORTER-b", b"a"),
        (8160, &long[..249], &long),
        (0, b"EXPORTER-a", b""),
        (8161, b"EXPORTER-a", b""),
        (32, b"", b""),
        (32, &long, b""),
    ] {
        let client = export(&*pair.client, length, label, context);
        assert_eq!(export(&*pair.server, length, label, context), client);
        let wrong = match (length, label.len()) {
            (0 | 8161, _) => Some(ExportError::OutputLength),
            (_, 0 | 250) => Some(ExportError::LabelLength),
            _ => None,
        };
        assert_eq!(client.err(), wrong, "{length} {}", label.len());
    }
    let distinct = [
        export(&*pair.server, 32, b"EXPORTER-a", b"a"),
        export(&*pair.server, 32, b"EXPORTER-a", b"b"),
        export(&*pair.server, 32, b"EXPORTER-b", b"a"),
    ];
    for (index, one) in distinct.iter().enumerate() {
        assert!(!distinct[..index].contains(one), "{index}");
    }
}

#[test]
fn nothing_is_exported_during_the_handshake() {
    let server = server(&[H3]);
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]);
    let mut pair = Pair::new(&Arc::new(client.unwrap()), &server);
    let incomplete = Err(ExportError::HandshakeIncomplete);
    let export = |session: &dyn Session| session.export_keying_material(&mut [0; 32], b"a", b"");
    assert_eq!(export(&*pair.client), incomplete);
    assert_eq!(export(&*pair.server), incomplete);
    // The server sends its Finished; the client's does not arrive.
    for bytes in write_all(&mut *pair.client, &mut pair.client_keys) {
        pair.server.read_handshake(&bytes).unwrap();
    }
    for bytes in write_all(&mut *pair.server, &mut pair.server_keys) {
        pair.client.read_handshake(&bytes).unwrap();
        write_all(&mut *pair.client, &mut pair.client_keys);
    }
    assert_eq!(export(&*pair.client), Ok(()));
    assert_eq!(export(&*pair.server), incomplete);
}

#[test]
fn second_connection_has_early_data() {
    let server = server(&[H3]);
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]);
    let client = Arc::new(client.unwrap());
    let mut first = Pair::new(&client, &server);
    assert!(first.client.zero_rtt_keys().is_none());
    first.handshake().unwrap();
    assert_eq!(first.client.zero_rtt_accepted(), Some(false));

    let mut second = Pair::new(&client, &server);
    let (_, sealing) = second.client.zero_rtt_keys().unwrap();
    // The remembered parameters bound the early data.
    let remembered = second.client.transport_parameters().unwrap().unwrap();
    assert_eq!(remembered.initial_max_data, 2);
    assert_eq!(second.client.zero_rtt_accepted(), None);
    let mut hello = Vec::new();
    assert!(second.client.write_handshake(&mut hello).is_none());
    second.server.read_handshake(&hello).unwrap();
    let (_, opening) = second.server.zero_rtt_keys().unwrap();
    assert!(carries(&*sealing, &*opening, 0));
    second.handshake().unwrap();
    assert_eq!(second.client.zero_rtt_accepted(), Some(true));
}

#[test]
fn pin_decides() {
    let server = server(&[H3]);
    let pin = certificate_fingerprint(&server.certificate);
    let client = Arc::new(QuicClientConfig::with_pin(pin, &[H3]).unwrap());
    Pair::new(&client, &server).handshake().unwrap();

    let client = Arc::new(QuicClientConfig::with_pin([0; 32], &[H3]).unwrap());
    let error = Pair::new(&client, &server).handshake().unwrap_err();
    assert_eq!(error.fault, refused(49, TlsFailure::NotPinned));
}

#[test]
fn rfc_9001_4_8_tls_failures_carry_the_alert() {
    let server = server(&[H3]);
    assert!(QuicClientConfig::with_roots(RootCertStore::empty(), &[H3]).is_err());
    let mut others = RootCertStore::empty();
    others.roots.push(TrustAnchor {
        subject: b"another".as_slice().into(),
        subject_public_key_info: b"another".as_slice().into(),
        name_constraints: None,
    });
    let client = QuicClientConfig::with_roots(others, &[H3]).unwrap();
    let error = Pair::new(&Arc::new(client), &server)
        .handshake()
        .unwrap_err();
    assert_eq!(error.fault, refused(48, TlsFailure::UnknownIssuer));

    // RFC 9001 section 8.1: no_application_protocol
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[b"hq"]).unwrap();
    let error = Pair::new(&Arc::new(client), &server)
        .handshake()
        .unwrap_err();
    assert_eq!(error.fault, refused(120, TlsFailure::NoApplicationProtocol));

    let mut pair = Pair::new(
        &Arc::new(QuicClientConfig::dangerous_trusting_any_certificate(&[H3]).unwrap()),
        &server,
    );
    assert!(pair.server.read_handshake(&[0xff; 100]).is_err());
}

#[test]
fn names_are_checked() {
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]);
    let client = Arc::new(client.unwrap());
    for (name, is_valid) in [
        ("example.com", true),
        ("192.0.2.1", true),
        ("2001:db8::1", true),
        ("not a name", false),
        ("", false),
    ] {
        let session = client
            .clone()
            .start_session(Version::V1, name, &parameters(1));
        assert_eq!(session.is_ok(), is_valid, "{name}");
    }
}

#[test]
fn headers_too_short_for_a_sample_stay_masked() {
    let keys = super::super::tests::initial_keys(rustls::Side::Client, &ConnectionId::new(&[1; 8]));
    for length in 0..40 {
        for offset in 0..40 {
            let mut packet = vec![0xc3; length];
            let done = keys.header.remote.decrypt(offset, &mut packet);
            assert_eq!(
                done,
                offset >= 1 && offset + 20 <= length,
                "{offset} {length}"
            );
        }
    }
    assert!(!keys.header.remote.decrypt(usize::MAX, &mut [0; 40]));
}

/// Delivers all of the client's bytes, then switches the client to the server's version.
fn switch(pair: &mut Pair, chosen: Version) {
    for bytes in write_all(&mut *pair.client, &mut pair.client_keys) {
        pair.server.read_handshake(&bytes).unwrap();
    }
    pair.client.set_version(chosen);
}

fn assert_matching(local: &KeyPair<Box<dyn PacketKey>>, remote: &KeyPair<Box<dyn PacketKey>>) {
    assert!(carries(&*local.local, &*remote.remote, 1));
    assert!(carries(&*remote.local, &*local.remote, 1));
    assert!(!carries(&*local.local, &*remote.local, 1));
}

/// RFC 9369 sections 3.3.2 and 4.1: keys of all levels and generations are those of the version
/// chosen, whatever the client began with.
#[test]
fn rfc_9369_4_1_a_client_follows_its_server_to_another_version() {
    let server = server(&[H3]);
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]).unwrap();
    let client = Arc::new(client);
    for [original, chosen] in [[Version::V1, Version::V2], [Version::V2, Version::V1]] {
        let mut pair = Pair::of_versions(&client, &server, [original, chosen]);
        switch(&mut pair, chosen);
        // The server's first flight brings the client's Handshake keys.
        let mut flight = Vec::new();
        let handshake = pair.server.write_handshake(&mut flight).unwrap();
        pair.client.read_handshake(&flight).unwrap();
        let keys = pair.client.write_handshake(&mut Vec::new()).unwrap();
        assert_matching(&keys.packet, &handshake.packet);
        let mut sealed = [7; 60];
        keys.header.local.encrypt(20, &mut sealed);
        assert!(handshake.header.remote.decrypt(20, &mut sealed));
        assert_eq!(sealed, [7; 60]);

        pair.handshake().unwrap();
        let (client_keys, server_keys) = (pair.client_keys.unwrap(), pair.server_keys.unwrap());
        assert_matching(&client_keys.packet, &server_keys.packet);
        for _ in 0..3 {
            let client = pair.client.next_one_rtt_keys().unwrap();
            let server = pair.server.next_one_rtt_keys().unwrap();
            assert_matching(&client, &server);
        }
    }
}

/// RFC 9369 section 5: client and server use a ticket only in the version chosen by its connection.
#[test]
fn rfc_9369_5_tickets_are_good_in_one_version() {
    use Version::{V1, V2};
    let server = server(&[H3]);
    let client = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]).unwrap();
    let client = Arc::new(client);
    let resumes = |versions| {
        let pair = Pair::of_versions(&client, &server, versions);
        pair.client.zero_rtt_keys().is_some()
    };
    let mut pair = Pair::of_versions(&client, &server, [V1, V2]);
    switch(&mut pair, V2);
    pair.handshake().unwrap();
    assert!(!resumes([V1, V1]) && !resumes([V1, V2]));
    assert!(resumes([V2, V2]));

    // A server refuses tickets of a version other than its choice.
    let mut pair = Pair::of_versions(&client, &server, [V2, V1]);
    assert!(pair.client.zero_rtt_keys().is_some());
    switch(&mut pair, V1);
    assert!(pair.server.zero_rtt_keys().is_none());
    pair.handshake().unwrap();
    assert_eq!(pair.client.zero_rtt_accepted(), Some(false));
}

/// A ticket store from the application only gets tickets of version 1.
#[test]
fn a_store_of_its_own_gets_no_tickets_of_other_versions() {
    use Version::{V1, V2};
    let server = server(&[H3]);
    let inner = QuicClientConfig::dangerous_trusting_any_certificate(&[H3]).unwrap();
    let client = Arc::new(QuicClientConfig::new(inner.v1).unwrap());
    let mut pair = Pair::of_versions(&client, &server, [V1, V2]);
    switch(&mut pair, V2);
    pair.handshake().unwrap();
    let mut pair = Pair::of_versions(&client, &server, [V1, V1]);
    assert!(pair.client.zero_rtt_keys().is_none());
    pair.handshake().unwrap();
    let pair = Pair::of_versions(&client, &server, [V1, V1]);
    assert!(pair.client.zero_rtt_keys().is_some());
    let pair = Pair::of_versions(&client, &server, [V2, V2]);
    assert!(pair.client.zero_rtt_keys().is_none());
}
