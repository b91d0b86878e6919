//! Packet protection against the samples of RFC 9001 appendix A and the multipath nonce (MP-030).

use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionId, Side};
use rustls::CipherSuite;
use rustls::crypto::tls13::OkmBlock;
use rustls::quic::Version as TlsVersion;

use super::rustls::key_derivation::{Derivation, TrafficSecrets};
use super::rustls::keys::{TlsPacketKey, convert_keys};
use super::rustls::{QuicClientConfig, QuicServerConfig, provider};
use super::{HeaderKey, InitialCrypto, Keys, PacketKey};
use crate::ids::{PathId, SpaceId};
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::opener::{self, OpenError};
use crate::version::Version;
use crate::wire::frame::FrameCounts;
use crate::wire::header::{Header, PacketHeader, next_packet};

mod rfc_9369;

const AES: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;
const CHACHA: CipherSuite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;

/// The CRYPTO frame of the client's Initial, section A.2.
const CLIENT_CRYPTO: &str = "\
    060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868\
    04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578\
    616d706c652e636f6dff01000100000a00080006001d00170018001000070005\
    04616c706e000500050100000000003300260024001d00209370b2c9caa47fba\
    baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400\
    0d0010000e0403050306030203080408050806002d00020101001c0002400100\
    3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000\
    75300901100f088394c8f03e51570806048000ffff";

/// The client's Initial, section A.2.
const CLIENT_INITIAL: &str = "\
    c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11\
    d242b123dc9bd8bab936b47d92ec356c0bab7df5976d27cd449f63300099f399\
    1c260ec4c60d17b31f8429157bb35a1282a643a8d2262cad67500cadb8e7378c\
    8eb7539ec4d4905fed1bee1fc8aafba17c750e2c7ace01e6005f80fcb7df6212\
    30c83711b39343fa028cea7f7fb5ff89eac2308249a02252155e2347b63d58c5\
    457afd84d05dfffdb20392844ae812154682e9cf012f9021a6f0be17ddd0c208\
    4dce25ff9b06cde535d0f920a2db1bf362c23e596d11a4f5a6cf3948838a3aec\
    4e15daf8500a6ef69ec4e3feb6b1d98e610ac8b7ec3faf6ad760b7bad1db4ba3\
    485e8a94dc250ae3fdb41ed15fb6a8e5eba0fc3dd60bc8e30c5c4287e53805db\
    059ae0648db2f64264ed5e39be2e20d82df566da8dd5998ccabdae053060ae6c\
    7b4378e846d29f37ed7b4ea9ec5d82e7961b7f25a9323851f681d582363aa5f8\
    9937f5a67258bf63ad6f1a0b1d96dbd4faddfcefc5266ba6611722395c906556\
    be52afe3f565636ad1b17d508b73d8743eeb524be22b3dcbc2c7468d54119c74\
    68449a13d8e3b95811a198f3491de3e7fe942b330407abf82a4ed7c1b311663a\
    c69890f4157015853d91e923037c227a33cdd5ec281ca3f79c44546b9d90ca00\
    f064c99e3dd97911d39fe9c5d0b23a229a234cb36186c4819e8b9c5927726632\
    291d6a418211cc2962e20fe47feb3edf330f2c603a9d48c0fcb5699dbfe58964\
    25c5bac4aee82e57a85aaf4e2513e4f05796b07ba2ee47d80506f8d2c25e50fd\
    14de71e6c418559302f939b0e1abd576f279c4b2e0feb85c1f28ff18f58891ff\
    ef132eef2fa09346aee33c28eb130ff28f5b766953334113211996d20011a198\
    e3fc433f9f2541010ae17c1bf202580f6047472fb36857fe843b19f5984009dd\
    c324044e847a4f4a0ab34f719595de37252d6235365e9b84392b061085349d73\
    203a4a13e96f5432ec0fd4a1ee65accdd5e3904df54c1da510b0ff20dcc0c77f\
    cb2c0e0eb605cb0504db87632cf3d8b4dae6e705769d1de354270123cb11450e\
    fc60ac47683d7b8d0f811365565fd98c4c8eb936bcab8d069fc33bd801b03ade\
    a2e1fbc5aa463d08ca19896d2bf59a071b851e6c239052172f296bfb5e724047\
    90a2181014f3b94a4e97d117b438130368cc39dbb2d198065ae3986547926cd2\
    162f40a29f0c3c8745c0f50fba3852e566d44575c29d39a03f0cda721984b6f4\
    40591f355e12d439ff150aab7613499dbd49adabc8676eef023b15b65bfc5ca0\
    6948109f23f350db82123535eb8a7433bdabcb909271a6ecbcb58b936a88cd4e\
    8f2e6ff5800175f113253d8fa9ca8885c2f552e657dc603f252e1a8e308f76f0\
    be79e2fb8f5d5fbbe2e30ecadd220723c8c0aea8078cdfcb3868263ff8f09400\
    54da48781893a7e49ad5aff4af300cd804a6b6279ab3ff3afb64491c85194aab\
    760d58a606654f9f4400e8b38591356fbf6425aca26dc85244259ff2b19c41b9\
    f96f3ca9ec1dde434da7d2d392b905ddf3d1f9af93d1af5950bd493f5aa731b4\
    056df31bd267b6b90a079831aaf579be0a39013137aac6d404f518cfd4684064\
    7e78bfe706ca4cf5e9c5453e9f7cfd2b8b4c8d169a44e55c88d4a9a7f9474241\
    e221af44860018ab0856972e194cd934";

/// The frames of the server's Initial, section A.3.
const SERVER_FRAMES: &str = "\
    02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf739\
    88cfc79825df566dc5430b9a045a1200130100002e00330024001d00209d3c94\
    0d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00\
    020304";

/// The server's Initial, section A.3.
const SERVER_INITIAL: &str = "\
    cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a\
    5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3\
    dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84\
    022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4\
    2158407dd074ee";

/// The Retry, section A.4.
const RETRY: &str = "\
    ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f\
    0f2496ba";

/// A server with the laboratory's certificate.
pub(crate) fn server_config() -> QuicServerConfig {
    let (certificate, key) = mpquic_sim::tls::certificate();
    QuicServerConfig::with_certificate(vec![certificate], key, &[b"h3"]).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn client_dcid() -> ConnectionId {
    ConnectionId::new(&hex("8394c8f03e515708"))
}

fn server_scid() -> ConnectionId {
    ConnectionId::new(&hex("f067a5502a4262b5"))
}

/// Initial keys of one side.
pub(crate) fn initial_keys(side: rustls::Side, dcid: &ConnectionId) -> Keys {
    initial_keys_of(TlsVersion::V1, side, dcid)
}

fn initial_keys_of(version: TlsVersion, side: rustls::Side, dcid: &ConnectionId) -> Keys {
    let suites = provider().cipher_suites;
    let suite = suites.iter().find(|known| known.suite() == AES).unwrap();
    let suite = suite.tls13().unwrap().quic_suite().unwrap();
    convert_keys(suite.keys(dcid, side, version))
}

/// Seals a packet with a packet number of a given length, which no builder would choose.
fn seal(
    header: &PacketHeader,
    number: u64,
    number_length: usize,
    frames: &[u8],
    keys: &Keys,
) -> Vec<u8> {
    let mut packet = Vec::new();
    let encoded = header.encode(&mut packet, number, number_length);
    let header_length = packet.len();
    packet.extend_from_slice(frames);
    packet.resize(packet.len() + keys.packet.local.tag_length(), 0);
    let end = packet.len();
    encoded.set_length(&mut packet, end);
    keys.packet
        .local
        .encrypt(PathId::ZERO, number, &mut packet, header_length);
    keys.header
        .local
        .encrypt(encoded.packet_number_offset, &mut packet);
    packet
}

/// Removes protection from the first packet of a datagram.
fn open(
    datagram: &[u8],
    cid_length: usize,
    (header_key, packet_key): (&dyn HeaderKey, &dyn PacketKey),
    expected_next: u64,
    path: PathId,
) -> (u64, Result<Bytes, OpenError>) {
    let mut packet = next_packet(&mut BytesMut::from(datagram), cid_length).unwrap();
    let unprotected = opener::unprotect(&mut packet, header_key, expected_next).unwrap();
    let payload = opener::open(&mut packet, &unprotected, packet_key, path);
    (unprotected.packet_number, payload)
}

#[test]
fn rfc_9001_a2_client_initial() {
    let config = QuicClientConfig::dangerous_trusting_any_certificate(&[b"h3"]).unwrap();
    let keys = config.initial_keys(Version::V1, Side::Client, &client_dcid());
    let mut frames = hex(CLIENT_CRYPTO);
    frames.resize(1162, 0);
    let header = PacketHeader::Initial {
        version: Version::V1,
        dcid: client_dcid(),
        scid: ConnectionId::new(&[]),
        token: Bytes::new(),
    };
    let packet = seal(&header, 2, 4, &frames, &keys);
    assert_eq!(packet, hex(CLIENT_INITIAL));

    let server = server_config().initial_keys(Version::V1, Side::Server, &client_dcid());
    let remote = (&*server.header.remote, &*server.packet.remote);
    let (number, payload) = open(&packet, 0, remote, 0, PathId::ZERO);
    assert_eq!((number, payload.unwrap()), (2, frames.into()));
}

#[test]
fn rfc_9001_a3_server_initial() {
    let header = PacketHeader::Initial {
        version: Version::V1,
        dcid: ConnectionId::new(&[]),
        scid: server_scid(),
        token: Bytes::new(),
    };
    let frames = hex(SERVER_FRAMES);
    let server = initial_keys(rustls::Side::Server, &client_dcid());
    let packet = seal(&header, 1, 2, &frames, &server);
    assert_eq!(packet, hex(SERVER_INITIAL));

    let keys = initial_keys(rustls::Side::Client, &client_dcid());
    let remote = (&*keys.header.remote, &*keys.packet.remote);
    let (number, payload) = open(&packet, 0, remote, 0, PathId::ZERO);
    assert_eq!((number, payload.unwrap()), (1, frames.into()));
}

#[test]
fn rfc_9001_a4_retry() {
    let packet = hex(RETRY);
    let (unsealed, tag) = packet.split_last_chunk::<16>().unwrap();
    let retry_tag = |dcid: &_| super::tokens::retry_tag(Version::V1, dcid, unsealed);
    assert_eq!(retry_tag(&client_dcid()), *tag);
    let other = ConnectionId::new(&hex("8394c8f03e515709"));
    assert_ne!(retry_tag(&other), *tag);
    let parsed = next_packet(&mut BytesMut::from(&packet[..]), 0).unwrap();
    assert!(matches!(parsed.header, Header::Retry { token, .. } if token == b"token"[..]));
}

/// Both directions' keys from one traffic secret.
fn keys_from_secret(version: TlsVersion, suite: CipherSuite, secret: &str) -> Keys {
    let suites = provider().cipher_suites;
    let known = suites.iter().find(|known| known.suite() == suite).unwrap();
    let suite = known.tls13().unwrap();
    let derivation = Derivation::new(suite, rustls::Side::Client, version).unwrap();
    let secret = OkmBlock::new(&hex(secret));
    convert_keys(derivation.keys(&TrafficSecrets {
        client: OkmBlock::new(secret.as_ref()),
        server: secret,
    }))
}

/// Packets of one key phase show either value of its bit, to hide from observers which paths belong
/// to one connection.
#[test]
fn mp_173_the_key_phase_is_hidden() {
    let secret = "9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b";
    let keys = keys_from_secret(TlsVersion::V1, CHACHA, secret);
    for key_phase in [false, true] {
        let header = PacketHeader::Short {
            dcid: ConnectionId::new(&[]),
            spin: false,
            key_phase,
        };
        let shown = |packet_number| {
            let mut buf = Vec::new();
            let start = PacketStart {
                header: &header,
                space: SpaceId::Data(PathId::ZERO),
                packet_number,
                largest_acked: None,
                tag_length: keys.packet.local.tag_length(),
                limit: 100,
                clear_quic_bit: false,
            };
            let packet = PacketBuilder::start(&mut buf, start).unwrap();
            let mut counts = FrameCounts::default();
            packet.writer(&mut buf, &mut counts).buffer().extend([1; 4]);
            packet.finish(&mut buf, &*keys.header.local, &*keys.packet.local, None);
            buf[0] & 0x04 != 0
        };
        let ones = (0..100).filter(|number| shown(*number)).count();
        assert!((25..=75).contains(&ones), "{ones} of 100");
    }
}

#[test]
fn rfc_9001_a5_chacha20_short_header() {
    let keys = keys_from_secret(
        TlsVersion::V1,
        CHACHA,
        "9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b",
    );
    let header = PacketHeader::Short {
        dcid: ConnectionId::new(&[]),
        spin: false,
        key_phase: false,
    };
    let mut buf = vec![0xee; 3];
    let start = PacketStart {
        header: &header,
        space: SpaceId::Data(PathId::ZERO),
        packet_number: 654_360_564,
        // 49140 distinguishes it from everything 2^15 or fewer packets away: three bytes
        largest_acked: Some(654_360_564 - 40_000),
        tag_length: keys.packet.local.tag_length(),
        limit: 3 + 21,
        clear_quic_bit: false,
    };
    let packet = PacketBuilder::start(&mut buf, start).unwrap();
    packet
        .writer(&mut buf, &mut FrameCounts::default())
        .buffer()
        .push(0x01);
    packet.finish(&mut buf, &*keys.header.local, &*keys.packet.local, None);
    assert_eq!(buf[3..], hex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb"));

    let local = (&*keys.header.local, &*keys.packet.local);
    let (number, payload) = open(&buf[3..], 0, local, 654_360_000, PathId::ZERO);
    assert_eq!(
        (number, payload.unwrap()),
        (654_360_564, Bytes::from_static(&[1]))
    );
}

/// Seals with a path ID, checks that only that path ID opens it, and returns the result.
fn seal_on_path(keys: &Keys, path: u32, number: u64, header: &[u8], text: &[u8]) -> Vec<u8> {
    let key = &keys.packet.local;
    let mut packet = [header, text, &[0; 16]].concat();
    key.encrypt(PathId(path), number, &mut packet, header.len());
    let sealed = packet.split_off(header.len());
    for other in [0, 1, 2, 3, u32::MAX] {
        let mut opened = sealed.clone();
        let result = key.decrypt(PathId(other), number, header, &mut opened);
        assert_eq!(result.is_ok(), other == path, "{other}");
        if let Ok(length) = result {
            assert_eq!(&opened[..length], text);
        }
    }
    sealed
}

/// A ChaCha20-Poly1305 packet key with a given IV.
fn key_with_iv(iv: &str) -> TlsPacketKey {
    let suites = provider().cipher_suites;
    let suite = suites.iter().find(|known| known.suite() == CHACHA).unwrap();
    let algorithm = suite.tls13().unwrap().quic.unwrap();
    let iv: [u8; 12] = hex(iv).try_into().unwrap();
    TlsPacketKey(algorithm.packet_key([7; 32].into(), iv.into()))
}

#[test]
fn mp_032_nonce() {
    let iv = "6b26114b9cba2b63a9e8dd4f";
    for (path, number, nonce) in [
        (3, 54321, "6b2611489cba2b63a9e8097e"),
        (0, 54321, "6b26114b9cba2b63a9e8097e"),
        (1, 0, "6b26114a9cba2b63a9e8dd4f"),
        (u32::MAX, (1 << 62) - 1, "94d9eeb4a345d49c561722b0"),
    ] {
        let mut packet = [0x5a; 40];
        key_with_iv(iv).encrypt(PathId(path), number, &mut packet, 4);
        // The same with the nonce as IV, where path and number add nothing.
        let mut expected = [0x5a; 40];
        key_with_iv(nonce).encrypt(PathId::ZERO, 0, &mut expected, 4);
        assert_eq!(packet, expected, "path {path}, number {number}");
    }
}

#[test]
fn mp_030_path_id_is_in_the_nonce() {
    let keys = keys_from_secret(
        TlsVersion::V1,
        AES,
        "000102030405060708090a0b0c0d0e0f101112131415161718231a1b1c1d1e1f",
    );
    let sealed = seal_on_path(
        &keys,
        2,
        12345,
        b"This is a test",
        b"The quick brown fox jumps over the lazy dog",
    );
    assert_eq!(
        sealed,
        hex(
            "7b8be8348819c98ffa595727253f00d2dce3ba8cb7fb0dcb0674cc64a6402bb9\
             ae55d4a3f28d18a63ee4bb89f81f987ef0974f33fd822b72adeafe"
        )
    );

    let secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let aes = keys_from_secret(TlsVersion::V1, AES, secret);
    let chacha = keys_from_secret(TlsVersion::V1, CHACHA, secret);
    for (keys, path, expected) in [
        (&aes, 0, "e7f9c2005ddf757e27282515dccd661b434684c0b168"),
        (&aes, 1, "26e306fa26de113c28d16a517ce28b9a5959fa72d58f"),
        (&aes, 3, "f2fd818e4c4d997f3acb7c000ed0526d870e5a700ddd"),
        (&chacha, 3, "2cdbcdbe1a8f5f5539f22de999e845efd69156860d70"),
    ] {
        let sealed = seal_on_path(keys, path, 0, b"hdr", b"mpquic");
        assert_eq!(sealed, hex(expected), "path {path}");
    }
}
