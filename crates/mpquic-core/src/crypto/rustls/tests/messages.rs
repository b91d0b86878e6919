//! RFC 9001's rules for TLS messages, tested by changing messages on the way.

use super::*;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const END_OF_EARLY_DATA: u8 = 5;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const TRANSPORT_PARAMETERS: u16 = 57;

fn client() -> Arc<QuicClientConfig> {
    Arc::new(QuicClientConfig::dangerous_trusting_any_certificate(&[H3]).unwrap())
}

fn long(bytes: &[u8], at: usize) -> usize {
    u16::from_be_bytes([bytes[at], bytes[at + 1]]).into()
}

/// The types of handshake messages, with their places.
fn messages(bytes: &[u8]) -> Vec<(u8, std::ops::Range<usize>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_be_bytes([0, bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
        found.push((bytes[at], at..at + 4 + length));
        at += 4 + length;
    }
    found
}

/// A ClientHello, a ServerHello, EncryptedExtensions or a ticket at the beginning of a flight, by
/// its parts.
struct Parts {
    session_id: std::ops::Range<usize>,
    suites: std::ops::Range<usize>,
    /// Where the length of all extensions stands.
    extensions: usize,
}

fn parts(bytes: &[u8]) -> Parts {
    let none = 0..0;
    let (session_id, suites, extensions) = match bytes[0] {
        ENCRYPTED_EXTENSIONS => (none.clone(), none, 4),
        NEW_SESSION_TICKET => {
            let ticket = 13 + usize::from(bytes[12]);
            (none.clone(), none, ticket + 2 + long(bytes, ticket))
        }
        kind => {
            let id = 39..39 + usize::from(bytes[38]);
            let suites = match kind {
                CLIENT_HELLO => id.end + 2..id.end + 2 + long(bytes, id.end),
                _ => id.end..id.end + 2,
            };
            // Compression methods: a list, or one.
            let end = match kind {
                CLIENT_HELLO => suites.end + 1 + usize::from(bytes[suites.end]),
                _ => suites.end + 1,
            };
            (id, suites, end)
        }
    };
    Parts {
        session_id,
        suites,
        extensions,
    }
}

/// Where an extension stands, with its type and length.
fn extension(bytes: &[u8], wanted: u16) -> Option<std::ops::Range<usize>> {
    let block = parts(bytes).extensions;
    let end = block + 2 + long(bytes, block);
    let mut at = block + 2;
    while at < end {
        let next = at + 4 + long(bytes, at + 2);
        if long(bytes, at) == usize::from(wanted) {
            return Some(at..next);
        }
        at = next;
    }
    None
}

/// The flight without an extension of its first message.
fn without(bytes: &[u8], unwanted: u16) -> Vec<u8> {
    let place = extension(bytes, unwanted).unwrap();
    let block = parts(bytes).extensions;
    let mut changed = bytes.to_vec();
    let fewer = |changed: &mut [u8], at: usize| {
        let length = long(changed, at) - place.len();
        changed[at..at + 2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    };
    fewer(&mut changed, block);
    fewer(&mut changed, 2);
    changed.drain(place);
    changed
}

fn first_flight(pair: &mut Pair) -> Vec<u8> {
    write_all(&mut *pair.client, &mut pair.client_keys).remove(0)
}

/// ServerHello, and what follows at the next level.
fn answer(pair: &mut Pair, hello: &[u8]) -> [Vec<u8>; 2] {
    pair.server.read_handshake(hello).unwrap();
    let levels = write_all(&mut *pair.server, &mut pair.server_keys);
    [levels[0].clone(), levels[1].clone()]
}

fn fault(result: Result<(), TransportError>) -> Fault {
    result.unwrap_err().fault
}

#[test]
fn rfc_9001_8_2_peers_without_transport_parameters_are_refused() {
    let missing_extension = refused(109, TlsFailure::Misbehaved);
    let server = server(&[H3]);
    let mut pair = Pair::new(&client(), &server);
    let hello = first_flight(&mut pair);
    let bare = without(&hello, TRANSPORT_PARAMETERS);
    assert_eq!(fault(pair.server.read_handshake(&bare)), missing_extension);

    let mut pair = Pair::new(&client(), &server);
    let hello = first_flight(&mut pair);
    let [hello, flight] = answer(&mut pair, &hello);
    pair.client.read_handshake(&hello).unwrap();
    assert!(pair.client.write_handshake(&mut Vec::new()).is_some());
    let bare = without(&flight, TRANSPORT_PARAMETERS);
    assert_eq!(fault(pair.client.read_handshake(&bare)), missing_extension);
}

#[test]
fn rfc_9001_4_2_no_tls_before_1_3() {
    let protocol_version = refused(70, TlsFailure::Incompatible);
    let server = server(&[H3]);
    let mut pair = Pair::new(&client(), &server);
    let hello = first_flight(&mut pair);
    let offered = extension(&hello, SUPPORTED_VERSIONS).unwrap();
    assert_eq!(hello[offered][4..], [2, 3, 4]);
    let old = without(&hello, SUPPORTED_VERSIONS);
    assert_eq!(fault(pair.server.read_handshake(&old)), protocol_version);

    let mut pair = Pair::new(&client(), &server);
    let hello = first_flight(&mut pair);
    let [hello, _] = answer(&mut pair, &hello);
    assert_eq!(hello[0], SERVER_HELLO);
    let old = without(&hello, SUPPORTED_VERSIONS);
    assert!(pair.client.read_handshake(&old).is_err());
    assert!(pair.client.is_handshaking());
}

#[test]
fn rfc_9001_5_3_suites_with_header_protection_and_no_others() {
    let server = server(&[H3]);
    let mut pair = Pair::new(&client(), &server);
    let mut hello = first_flight(&mut pair);
    let suites = parts(&hello).suites;
    let offered: Vec<_> = suites
        .clone()
        .step_by(2)
        .map(|at| long(&hello, at))
        .collect();
    let known = [0x1301, 0x1302, 0x1303];
    assert!(!offered.is_empty() && offered.iter().all(|suite| known.contains(suite)));
    // An unknown suite is no reason to refuse the known suites.
    hello[suites.end - 2..suites.end].copy_from_slice(&[0x7a, 0x7a]);
    let [answer, _] = answer(&mut pair, &hello);
    let chosen = long(&answer, parts(&answer).suites.start);
    assert!(known.contains(&chosen) && offered[..offered.len() - 1].contains(&chosen));
}

#[test]
fn rfc_9001_8_3_no_end_of_early_data() {
    let server = server(&[H3]);
    let client = client();
    Pair::new(&client, &server).handshake().unwrap();
    let mut pair = Pair::new(&client, &server);
    let mut written = Vec::new();
    for _ in 0..3 {
        for bytes in write_all(&mut *pair.client, &mut pair.client_keys) {
            written.extend(messages(&bytes).into_iter().map(|(kind, _)| kind));
            pair.server.read_handshake(&bytes).unwrap();
        }
        for bytes in write_all(&mut *pair.server, &mut pair.server_keys) {
            pair.client.read_handshake(&bytes).unwrap();
        }
    }
    assert_eq!(pair.client.zero_rtt_accepted(), Some(true));
    const FINISHED: u8 = 20;
    assert_eq!(written, [CLIENT_HELLO, FINISHED]);

    let mut pair = Pair::new(&client, &server);
    let hello = first_flight(&mut pair);
    answer(&mut pair, &hello);
    let end = [END_OF_EARLY_DATA, 0, 0, 0];
    let unexpected_message = refused(10, TlsFailure::Misbehaved);
    assert_eq!(fault(pair.server.read_handshake(&end)), unexpected_message);
}

#[test]
fn rfc_9001_8_4_no_compatibility_mode() {
    let server = server(&[H3]);
    let client = client();
    for _ in 0..2 {
        // The second one resumes.
        let mut pair = Pair::new(&client, &server);
        let hello = first_flight(&mut pair);
        assert_eq!(hello[0], CLIENT_HELLO);
        assert!(parts(&hello).session_id.is_empty());
        pair.server.read_handshake(&hello).unwrap();
        pair.handshake().unwrap();
    }
}

#[test]
fn rfc_9001_4_4_a_request_for_a_certificate_after_the_handshake() {
    let server = server(&[H3]);
    for split in [1, 100] {
        let mut pair = Pair::new(&client(), &server);
        pair.handshake().unwrap();
        let request = [13, 0, 0, 11, 0, 0, 8, 0, 13, 0, 4, 0, 2, 8, 4];
        let mut read = request
            .chunks(split)
            .map(|piece| pair.client.read_handshake(piece));
        let error = read.find_map(Result::err).unwrap();
        assert_eq!(error.fault, Fault::LateCertificateRequest);
    }
}

/// RFC 9001 section 4.6.1: tickets say 0xffffffff, and others are refused.
#[test]
fn rfc_9001_4_6_1_tickets_limit_no_early_data() {
    let server = server(&[H3]);
    for (limit, split) in [(u32::MAX, 1), (u32::MAX, 1000), (0x4000, 1), (0, 1000)] {
        let mut pair = Pair::new(&client(), &server);
        let hello = first_flight(&mut pair);
        for flight in answer(&mut pair, &hello) {
            pair.client.read_handshake(&flight).unwrap();
            pair.client.write_handshake(&mut Vec::new());
        }
        for bytes in write_all(&mut *pair.client, &mut pair.client_keys) {
            pair.server.read_handshake(&bytes).unwrap();
        }
        let tickets = write_all(&mut *pair.server, &mut pair.server_keys).concat();
        for (kind, place) in messages(&tickets) {
            let mut ticket = tickets[place].to_vec();
            assert_eq!(kind, NEW_SESSION_TICKET);
            let value = extension(&ticket, EARLY_DATA).unwrap();
            let value = &mut ticket[value][4..];
            assert_eq!(*value, [0xff; 4]);
            value.copy_from_slice(&limit.to_be_bytes());
            let mut pieces = ticket.chunks(split);
            let read = pieces.try_for_each(|piece| pair.client.read_handshake(piece));
            match limit {
                u32::MAX => read.unwrap(),
                _ => {
                    assert_eq!(fault(read), Fault::TicketLimitsEarlyData);
                    break;
                }
            }
        }
    }
}
