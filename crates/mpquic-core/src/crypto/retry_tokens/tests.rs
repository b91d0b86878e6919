use std::time::UNIX_EPOCH;

use super::*;

/// The key of the draft's example.
fn key(sequence: u8) -> RetryTokenKey {
    RetryTokenKey {
        sequence,
        key: *b"0123456789012345",
        iv: *b"123456789012",
    }
}

fn tokens(sequences: &[u8]) -> RetryTokens {
    let keys: Vec<_> = sequences.iter().map(|sequence| key(*sequence)).collect();
    RetryTokens::new(&keys).unwrap()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// The values of the draft's example.
const NUMBER_IN_DRAFT: &str = "59ef316b70575e793e1a8782";
const EXPIRES: u64 = 0x60c7_bf4d;

fn client() -> SocketAddr {
    "127.0.0.1:6666".parse().unwrap()
}

fn original_dcid() -> ConnectionId {
    ConnectionId::new(&bytes("0c3817b544ca1c94313bba41757547eec937"))
}

fn retry_scid() -> ConnectionId {
    ConnectionId::new(&bytes("0301e770d24b3b13070dd5c2a9264307"))
}

fn expires() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(EXPIRES)
}

fn number() -> [u8; NUMBER] {
    bytes(NUMBER_IN_DRAFT).try_into().unwrap()
}

fn sealed() -> Vec<u8> {
    let made = expires() - RetryTokens::LIFETIME;
    let token = tokens(&[0]).seal(number(), client(), &original_dcid(), &retry_scid(), made);
    token.unwrap()
}

/// The draft's example has body and associated data of an earlier revision. Their protection is as
/// in the draft's text: AES-128-GCM, with this nonce.
#[test]
fn the_draft_s_example_opens() {
    let tokens = tokens(&[0]);
    let Sealing { key, aead, .. } = &tokens.keys[0];
    let mut body = bytes(concat!(
        "7d38b274aa4427c7a1557c3fa666945931defc65da387a83855196a7cb73caac1e28e5346fd76868de94f8b62294",
        "f91174fdd711543a32d5e959867f9c22",
    ));
    let bound = bytes("7f00000100000000000000000000000059ef316b70575e793e1a878200");
    let opened = aead.open_in_place(nonce(key, number()), aead::Aad::from(&bound), &mut body);
    let body: &[u8] = opened.unwrap();
    assert_eq!(&body[2..4], &6666u16.to_be_bytes());
    assert_eq!(&body[4..22], &original_dcid()[..]);
    assert_eq!(&body[38..], &EXPIRES.to_be_bytes());
}

/// Body and associated data as in the draft's text, sealed by another implementation of
/// AES-128-GCM.
#[test]
fn a_token_looks_as_the_draft_says() {
    let expected = concat!(
        "0059ef316b70575e793e1a87826f28a87ec6bb8f3ff79358bc2219e404d09a8031527a0cc58ce873f6fa5c5a5ef7",
        "3cedb769510bb2c191b8d087",
    );
    assert_eq!(sealed(), bytes(expected));
}

#[test]
fn a_token_is_good_for_one_client_and_not_for_long() {
    let tokens = tokens(&[0]);
    let open = |token: &[u8], client: &str, dcid: &[u8], late| {
        let now = expires() + Duration::from_secs(late);
        tokens.open(token, client.parse().unwrap(), dcid, now)
    };
    let (token, here) = (sealed(), "127.0.0.1:6666");
    let dcid = retry_scid();
    let good = Some(Opened::Valid(original_dcid()));
    for late in 0..=2 {
        assert_eq!(open(&token, here, &dcid, late), good);
    }
    assert_eq!(open(&token, here, &dcid, 3), Some(Opened::Invalid));
    assert_eq!(
        open(&token, "127.0.0.1:6667", &dcid, 0),
        Some(Opened::Invalid)
    );
    for elsewhere in [
        "127.0.0.2:6666",
        "[7f00:1::]:6667",
        "[::ffff:127.0.0.1]:6666",
    ] {
        assert_ne!(open(&token, elsewhere, &dcid, 0), good, "{elsewhere}");
    }
    assert_eq!(open(&token, here, &original_dcid(), 0), None);
    assert_eq!(open(&token, here, &dcid[1..], 0), None);
    for length in 0..token.len() {
        assert_eq!(open(&token[..length], here, &dcid, 0), None);
    }
    for byte in 0..token.len() {
        let mut changed = token.clone();
        changed[byte] ^= 1;
        assert_eq!(open(&changed, here, &dcid, 0), None, "{byte}");
    }
}

#[test]
fn keys_change() {
    let made = expires() - RetryTokens::LIFETIME;
    let seal = |tokens: &RetryTokens| {
        let token = tokens.seal(number(), client(), &original_dcid(), &retry_scid(), made);
        token.unwrap()
    };
    let is_good = |tokens: &RetryTokens, token: &[u8]| {
        let opened = tokens.open(token, client(), &retry_scid(), made);
        opened == Some(Opened::Valid(original_dcid()))
    };
    let steps = [
        tokens(&[5]),
        tokens(&[5, 127]),
        tokens(&[127, 5]),
        tokens(&[127]),
    ];
    for (step, next) in steps.iter().zip(&steps[1..]) {
        // Holders that are one step of the key change apart open each other's tokens.
        assert!(is_good(next, &seal(step)) && is_good(step, &seal(next)));
    }
    assert!(!is_good(&steps[3], &seal(&steps[0])));
    for (wrong, told) in [
        (&[][..], "keys is 0, but must be at least one"),
        (&[128], "sequence is 128, but must be from 0 to 127"),
        (
            &[3, 3],
            "sequence is 3, but must be another one for each key",
        ),
    ] {
        let keys: Vec<_> = wrong.iter().map(|sequence| key(*sequence)).collect();
        assert_eq!(RetryTokens::new(&keys).unwrap_err().to_string(), told);
    }
}

/// An Initial of 1200 bytes and the packets behind it, with a payload that nobody opens.
fn initial(dcid: &[u8], token: &[u8], more: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc0, 0, 0, 0, 1, dcid.len() as u8];
    packet.extend_from_slice(dcid);
    packet.extend_from_slice(&[1, 9, 0x40, token.len() as u8]);
    packet.extend_from_slice(token);
    packet.extend_from_slice(&[0x44, 0xb0]);
    packet.resize(packet.len() + 1200, 0);
    packet.extend_from_slice(more);
    packet
}

/// Each packet of a flood uses up one token.
#[test]
fn a_key_that_has_sealed_enough_leaves_the_rest_to_the_next() {
    let tokens = tokens(&[3, 5]);
    let seal = || {
        tokens.seal(
            [1; NUMBER],
            client(),
            &original_dcid(),
            &retry_scid(),
            expires(),
        )
    };
    assert_eq!(tokens.tokens_left(), 2 * MOST_TOKENS);
    let first = seal().unwrap();
    assert_eq!((first[0], tokens.tokens_left()), (3, 2 * MOST_TOKENS - 1));
    tokens.keys[0].made.store(MOST_TOKENS, Ordering::Relaxed);
    let next = seal().unwrap();
    assert_eq!((next[0], tokens.tokens_left()), (5, MOST_TOKENS - 1));
    for token in [first, next] {
        let opened = tokens.open(&token, client(), &retry_scid(), expires());
        assert_eq!(opened, Some(Opened::Valid(original_dcid())));
    }
    // Nobody is turned away.
    tokens.keys[1].made.store(MOST_TOKENS, Ordering::Relaxed);
    assert_eq!((seal().unwrap()[0], tokens.tokens_left()), (5, 0));
}

#[test]
fn first_initials_get_a_retry_and_come_with_its_token() {
    let tokens = tokens(&[3]);
    let now = expires();
    let screen = |datagram: &[u8]| match tokens.screen(datagram, client(), now, [6; 20]) {
        ScreenedDatagram::Forward(it) => (Some(it.to_vec()), None),
        ScreenedDatagram::Retry(it) => (None, Some(it)),
        ScreenedDatagram::Drop => (None, None),
    };
    let first = initial(&original_dcid(), &[], &[]);
    let retry = screen(&first).1.expect("a Retry");
    // From a connection ID of eight bytes to the client's, which has one byte.
    let (head, rest) = retry.split_at(16);
    assert_eq!(head[0] & 0xf0, 0xf0);
    assert_eq!(head[1..], [0, 0, 0, 1, 1, 9, 8, 6, 6, 6, 6, 6, 6, 6, 6]);
    let (token, tag) = rest.split_at(rest.len() - 16);
    let without_tag = &retry[..retry.len() - 16];
    assert_eq!(tag, retry_tag(Version::V1, &original_dcid(), without_tag));
    let opened = tokens.open(token, client(), &[6; 8], now);
    assert_eq!(opened, Some(Opened::Valid(original_dcid())));

    let whole = |datagram: Vec<u8>| assert_eq!(screen(&datagram).0, Some(datagram));
    whole(initial(&[6; 8], token, &[]));
    // Packets that are not a client's first, and packets of unknown kinds.
    whole(vec![0x40; 30]);
    whole(vec![0xe0, 0, 0, 0, 1, 1, 2, 1, 3, 0]);
    whole(vec![0xc0, 9, 9, 9, 9, 1, 2, 1, 3, 0]);
    whole(Vec::new());
    // After the server's answer, the packets behind an Initial are forwarded.
    let handshake = [0xe0, 0, 0, 0, 1, 1, 2, 1, 3, 0];
    let behind = screen(&initial(&[7; 8], token, &handshake));
    assert_eq!(behind, (Some(handshake.to_vec()), None));
    // Where the token is another client's, of another kind, or no token.
    assert_eq!(screen(&initial(&[7; 8], token, &[])), (None, None));
    let mut of_a_frame = token.to_vec();
    of_a_frame[0] |= NEW_TOKEN;
    assert!(screen(&initial(&[6; 8], &of_a_frame, &[])).1.is_some());
    assert_eq!(screen(&initial(&[6; 8], &[0; 16], &[])), (None, None));
    // No client's first Initial: too short a connection ID, too short a datagram, or a cut-off
    // packet.
    assert_eq!(screen(&initial(&[1; 7], &[], &[])), (None, None));
    assert_eq!(screen(&first[..1199]), (None, None));
    // A handshake goes on without the Initial, whose sender proves nothing.
    let handshake = [0xe0, 0, 0, 0, 1, 1, 2, 1, 3, 0];
    assert_eq!(
        screen(&initial(&[6; 8], &[], &handshake)).0,
        Some(handshake.to_vec())
    );
    assert!(screen(&initial(&[6; 8], &[], &[0; 10])).1.is_some());
}
