//! Secrets that outlive connections: stateless reset tokens and address validation tokens.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quinn_proto::{ConnectionId, TimeSource};

use crate::version::Version;
use crate::wire::buf::MAX_CID_LENGTH;

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::{aead, hmac};
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use ring::{aead, hmac};

/// Bytes of the random part of a token.
const NONCE_LENGTH: usize = 16;
/// The most addresses in a NEW_TOKEN token.
const MAX_ADDRESSES: usize = 8;
/// Starts the text of a NEW_TOKEN token.
const VALIDATION: u8 = 3;
/// How far the clocks of servers that share a key may be apart.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

/// Derives stateless reset tokens from connection IDs (RFC 9000 section 10.3.2).
pub(crate) struct ResetKey(hmac::Key);

impl ResetKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The token of a connection ID; the same in every process that knows the secret.
    pub(crate) fn token(&self, cid: &ConnectionId) -> [u8; 16] {
        let mut token = [0; 16];
        token.copy_from_slice(&hmac::sign(&self.0, cid).as_ref()[..16]);
        token
    }
}

impl fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetKey")
    }
}

/// Seals and opens tokens. Each token has its own AEAD key, derived from its 16 random bytes, so
/// the number of sealed tokens has no limit.
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The key for another purpose; the purpose's name must not have [`NONCE_LENGTH`] bytes.
    pub(crate) fn derived(secret: &[u8; 32], purpose: &[u8]) -> Self {
        let Self(key) = Self::new(secret);
        Self(hmac::Key::new(
            hmac::HMAC_SHA256,
            hmac::sign(&key, purpose).as_ref(),
        ))
    }

    fn aead(&self, nonce: &[u8]) -> Option<aead::LessSafeKey> {
        let secret = hmac::sign(&self.0, nonce);
        let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, secret.as_ref()).ok()?;
        Some(aead::LessSafeKey::new(key))
    }

    /// The nonce, then the sealed `plaintext`, then the tag. Empty after an error of sealing,
    /// impossible for texts as short as ours.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LENGTH], plaintext: &[u8]) -> Vec<u8> {
        let mut sealed = plaintext.to_vec();
        let done = self.aead(&nonce).is_some_and(|key| {
            key.seal_in_place_append_tag(zero_nonce(), aead::Aad::empty(), &mut sealed)
                .is_ok()
        });
        if !done {
            return Vec::new();
        }
        let mut token = Vec::with_capacity(NONCE_LENGTH + sealed.len());
        token.extend_from_slice(&nonce);
        token.extend_from_slice(&sealed);
        token
    }

    /// The nonce and the plaintext, if this key sealed the token.
    pub(crate) fn open(&self, token: &[u8]) -> Option<(u128, Vec<u8>)> {
        let (nonce, sealed) = token.split_first_chunk::<NONCE_LENGTH>()?;
        let mut sealed = sealed.to_vec();
        let key = self.aead(nonce)?;
        let length = key
            .open_in_place(zero_nonce(), aead::Aad::empty(), &mut sealed)
            .ok()?
            .len();
        sealed.truncate(length);
        Some((u128::from_be_bytes(*nonce), sealed))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey")
    }
}

/// Every token has its own key, so the AEAD's nonce may be constant.
fn zero_nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; 12])
}

/// The content of an address validation token (RFC 9000 section 8.1). A token is valid in one QUIC
/// version (RFC 9369 section 5). Times have a resolution of one second.
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "tests make and read tokens")
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// From a Retry packet.
    Retry {
        /// The version it is good in.
        version: Version,
        /// The client's address.
        address: SocketAddr,
        /// Destination connection ID of the client's very first Initial.
        original_dcid: ConnectionId,
        /// Source connection ID of the Retry.
        retry_scid: ConnectionId,
        /// When it was made.
        issued: SystemTime,
    },
    /// From a NEW_TOKEN frame: good from any of the addresses, whatever the port (RFC 9000 section
    /// 8.1.3).
    Validation {
        /// The version it is good in.
        version: Version,
        /// A random number, the same in all tokens of a connection.
        connection: u64,
        /// The client's addresses, at most eight.
        addresses: Vec<ProvenAddress>,
        /// When it was made.
        issued: SystemTime,
    },
}

/// An address at which a client has received, and when it proved that, to the microsecond.
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "tests make and read tokens")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvenAddress {
    /// The address and port.
    pub address: SocketAddr,
    /// When the address was validated on the connection that the token is from.
    pub proven: SystemTime,
}

impl Token {
    /// Seals the token; `nonce` must be random.
    pub(crate) fn seal(&self, key: &TokenKey, nonce: [u8; NONCE_LENGTH]) -> Vec<u8> {
        let mut out = Vec::with_capacity(80);
        match self {
            Self::Retry {
                version,
                address,
                original_dcid,
                retry_scid,
                issued,
            } => {
                put_start(&mut out, 0, *version, *issued);
                put_address(&mut out, *address);
                put_cid(&mut out, original_dcid);
                put_cid(&mut out, retry_scid);
            }
            Self::Validation {
                version,
                connection,
                addresses,
                issued,
            } => {
                put_start(&mut out, VALIDATION, *version, *issued);
                out.extend_from_slice(&connection.to_be_bytes());
                for ProvenAddress { address, proven } in addresses.iter().take(MAX_ADDRESSES) {
                    put_address(&mut out, *address);
                    put_microseconds(&mut out, *proven);
                }
            }
        }
        key.seal(nonce, &out)
    }

    /// Opens a token and says which random bytes it was sealed with.
    pub(crate) fn open(key: &TokenKey, token: &[u8]) -> Option<(u128, Self)> {
        let (nonce, plaintext) = key.open(token)?;
        let mut rest = plaintext.as_slice();
        let kind = take::<1>(&mut rest)?[0];
        let version = Version::from_u32(u32::from_be_bytes(take(&mut rest)?))?;
        let issued = take_time(&mut rest)?;
        let token = match kind {
            0 => Self::Retry {
                version,
                issued,
                address: take_address(&mut rest)?,
                original_dcid: take_cid(&mut rest)?,
                retry_scid: take_cid(&mut rest)?,
            },
            VALIDATION => {
                let connection = u64::from_be_bytes(take(&mut rest)?);
                let mut addresses = Vec::with_capacity(MAX_ADDRESSES);
                while !rest.is_empty() {
                    addresses.push(ProvenAddress {
                        address: take_address(&mut rest)?,
                        proven: take_microseconds(&mut rest)?,
                    });
                }
                Self::Validation {
                    version,
                    connection,
                    addresses,
                    issued,
                }
            }
            _ => return None,
        };
        rest.is_empty().then_some((nonce, token))
    }
}

/// Makes the tokens that a server sends in the NEW_TOKEN frames of one connection.
pub(crate) struct TokenIssuer {
    key: Arc<TokenKey>,
    time_source: Arc<dyn TimeSource>,
    /// The connection's random number, once there is a token.
    connection: Option<u64>,
    /// The addresses in the last token.
    addresses: Vec<ProvenAddress>,
}

impl TokenIssuer {
    pub(crate) fn new(key: Arc<TokenKey>, time_source: Arc<dyn TimeSource>) -> Self {
        Self {
            key,
            time_source,
            connection: None,
            addresses: Vec::new(),
        }
    }

    /// A token for later connections in this version from any of `addresses`, all of them validated
    /// on this connection (MP-087). Only the first eight count; `nonce` must be random.
    ///
    /// An address of the previous token keeps the time of its proof: no packet may have come from
    /// there since.
    pub(crate) fn token(
        &mut self,
        version: Version,
        addresses: impl Iterator<Item = SocketAddr>,
        mut nonce: [u8; NONCE_LENGTH],
    ) -> Vec<u8> {
        let now = self.time_source.now();
        // The nonce is random, and later tokens do not show it.
        let [.., a, b, c, d, e, f, g, h] = nonce;
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let connection = *self.connection.get_or_insert(number);
        let before = std::mem::take(&mut self.addresses);
        let proven = |address| {
            let known = before.iter().find(|it| it.address == address);
            known.copied().unwrap_or(ProvenAddress {
                address,
                proven: now,
            })
        };
        self.addresses.extend(addresses.map(proven));
        // The bit lets a service in front of the server distinguish NEW_TOKEN tokens from Retry
        // tokens (draft-ietf-quic-retry-offload-00).
        nonce[0] |= 0x80;
        let token = Token::Validation {
            version,
            connection,
            addresses: self.addresses.clone(),
            issued: now,
        };
        token.seal(&self.key, nonce)
    }
}

/// True for an age up to `lifetime`. A time in the near future counts as now, because the clocks of
/// servers with the same key differ a little. A later time does not count: after a clock was set
/// back, the token would be good for too long.
pub(crate) fn is_fresh(issued: SystemTime, lifetime: Duration, now: SystemTime) -> bool {
    match now.duration_since(issued) {
        Ok(age) => age <= lifetime,
        Err(future) => future.duration() <= MAX_CLOCK_DIFFERENCE,
    }
}

/// Key and nonce of the Retry integrity tag (RFC 9001 section 5.8, RFC 9369 section 3.3.3).
fn retry_key(version: Version) -> ([u8; 16], [u8; 12]) {
    let (key, nonce): (u128, u128) = match version {
        Version::V1 => (
            0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e,
            0x4615_99d3_5d63_2bf2_2398_25bb,
        ),
        Version::V2 => (
            0x8fb4_b01b_56ac_48e2_60fb_cbce_ad7c_cc92,
            0xd869_69bc_2d7c_6d99_90ef_b04a,
        ),
    };
    let [_, _, _, _, nonce @ ..] = nonce.to_be_bytes();
    (key.to_be_bytes(), nonce)
}

/// Retry integrity tag over a Retry packet without its tag (RFC 9001 section 5.8).
pub(crate) fn retry_tag(version: Version, original_dcid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
    let (key, nonce) = retry_key(version);
    let mut pseudo_packet = Vec::with_capacity(1 + original_dcid.len() + packet.len());
    put_cid(&mut pseudo_packet, original_dcid);
    pseudo_packet.extend_from_slice(packet);
    let mut tag = [0; 16];
    let sealed = aead::UnboundKey::new(&aead::AES_128_GCM, &key).and_then(|key| {
        aead::LessSafeKey::new(key).seal_in_place_separate_tag(
            aead::Nonce::assume_unique_for_key(nonce),
            aead::Aad::from(&pseudo_packet),
            &mut [],
        )
    });
    if let Ok(sealed) = sealed {
        tag.copy_from_slice(sealed.as_ref());
    }
    tag
}

/// The fields at the start of all tokens.
fn put_start(out: &mut Vec<u8>, kind: u8, version: Version, issued: SystemTime) {
    out.push(kind);
    out.extend_from_slice(&version.to_u32().to_be_bytes());
    put_time(out, issued);
}

pub(crate) fn put_cid(out: &mut Vec<u8>, cid: &ConnectionId) {
    out.push(cid.len() as u8);
    out.extend_from_slice(cid);
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

pub(crate) fn put_time(out: &mut Vec<u8>, time: SystemTime) {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    out.extend_from_slice(&seconds.to_be_bytes());
}

fn put_microseconds(out: &mut Vec<u8>, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let microseconds = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
    out.extend_from_slice(&microseconds.to_be_bytes());
}

fn take_microseconds(rest: &mut &[u8]) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(u64::from_be_bytes(take(rest)?)))
}

pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

pub(crate) fn take_cid(rest: &mut &[u8]) -> Option<ConnectionId> {
    let length = take::<1>(rest)?[0] as usize;
    let (cid, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    (length <= MAX_CID_LENGTH).then(|| ConnectionId::new(cid))
}

fn take_address(rest: &mut &[u8]) -> Option<SocketAddr> {
    let ip = match take::<1>(rest)?[0] {
        4 => IpAddr::from(take::<4>(rest)?),
        6 => IpAddr::from(take::<16>(rest)?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(take(rest)?)))
}

pub(crate) fn take_time(rest: &mut &[u8]) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_be_bytes(take(rest)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Vec<Token> {
        let issued = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let retry = |address: &str, cid: &[u8]| Token::Retry {
            version: Version::V2,
            address: address.parse().unwrap(),
            original_dcid: ConnectionId::new(cid),
            retry_scid: ConnectionId::new(&[3; 8]),
            issued,
        };
        let addresses = ["192.0.2.1:4433", "[2001:db8::1]:1", "198.51.100.7:65535"];
        let proven = |address: &str| ProvenAddress {
            address: address.parse().unwrap(),
            proven: issued - Duration::from_micros(1),
        };
        vec![
            retry("192.0.2.1:443", &[1; 20]),
            retry("[2001:db8::1]:65535", &[]),
            Token::Validation {
                version: Version::V1,
                connection: 0,
                addresses: Vec::new(),
                issued,
            },
            Token::Validation {
                version: Version::V1,
                connection: u64::MAX,
                addresses: addresses.map(proven).to_vec(),
                issued,
            },
        ]
    }

    #[test]
    fn tokens_survive_sealing() {
        let key = TokenKey::new(&[1; 32]);
        for (index, token) in (0..).zip(tokens()) {
            let nonce = [index; 16];
            let sealed = token.seal(&key, nonce);
            let opened = Token::open(&key, &sealed);
            assert_eq!(opened, Some((u128::from_be_bytes(nonce), token)));
        }
    }

    #[test]
    fn tokens_of_others_or_changed_do_not_open() {
        let key = TokenKey::new(&[1; 32]);
        for token in tokens() {
            let sealed = token.seal(&key, [9; 16]);
            assert_eq!(Token::open(&TokenKey::new(&[2; 32]), &sealed), None);
            for length in 0..sealed.len() {
                assert_eq!(Token::open(&key, &sealed[..length]), None);
            }
            for byte in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[byte] ^= 1;
                assert_eq!(Token::open(&key, &changed), None);
            }
        }
    }

    /// An observer of two tokens cannot tell a common connection.
    #[test]
    fn rfc_9000_8_1_3_tokens_hide_their_content() {
        let key = Arc::new(TokenKey::new(&[1; 32]));
        let mut issuer = TokenIssuer::new(key, Arc::new(quinn_proto::StdSystemTime));
        let address = SocketAddr::from(([198, 51, 100, 7], 0xabcd));
        let mut token = |nonce| issuer.token(Version::V1, std::iter::once(address), [nonce; 16]);
        let (one, other) = (token(1), token(2));
        let has = |token: &[u8], text: &[u8]| token.windows(text.len()).any(|it| it == text);
        // Four bytes are alike by chance once in a million tokens.
        for token in [&one, &other] {
            assert!(!has(token, &[198, 51, 100, 7]) && !has(token, &[0xab, 0xcd, 0]));
        }
        let clear = &one[..NONCE_LENGTH];
        assert_eq!(clear[1..], [1; 15]);
        let sealed = one[NONCE_LENGTH..].windows(4);
        assert!(sealed.into_iter().all(|part| !has(&other, part)));
    }

    #[test]
    fn authentic_nonsense_does_not_open() {
        let key = TokenKey::new(&[1; 32]);
        for text in [
            &[][..],
            &[0],
            &[7; 40],
            &[1; 11],
            &[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9],
            &[1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Token::open(&key, &key.seal([0; 16], text)), None);
        }
        let mut long = tokens()[0].clone();
        if let Token::Retry { issued, .. } = &mut long {
            *issued = UNIX_EPOCH;
        }
        let (_, mut text) = key.open(&long.seal(&key, [0; 16])).unwrap();
        text.push(0);
        assert_eq!(Token::open(&key, &key.seal([0; 16], &text)), None);
    }

    #[test]
    fn reset_tokens_depend_on_secret_and_connection_id() {
        let key = ResetKey::new(&[1; 32]);
        let cid = ConnectionId::new(&[1, 2, 3, 4]);
        assert_eq!(key.token(&cid), ResetKey::new(&[1; 32]).token(&cid));
        assert_ne!(key.token(&cid), ResetKey::new(&[2; 32]).token(&cid));
        assert_ne!(key.token(&cid), key.token(&ConnectionId::new(&[1, 2, 3])));
    }
}
