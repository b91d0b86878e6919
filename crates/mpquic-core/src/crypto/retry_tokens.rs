//! [`RetryTokens`]: tokens of Retry packets that a service in front of servers makes for them
//! (draft-ietf-quic-retry-offload-00 section 5, "shared state").

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use quinn_proto::ConnectionId;

use super::tokens::{put_cid, put_time, retry_tag, take, take_cid, take_time};
use crate::error::InvalidOption;
use crate::version::Version;
use crate::wire::buf::MIN_DATAGRAM;
use crate::wire::header::{self, PacketKind};

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::aead;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use ring::aead;

/// Length of a token's random number, bytes.
const NUMBER: usize = 12;
/// Length of a token's clear part, bytes: one for its kind and the key's sequence number, the rest
/// for its random number.
const CLEAR: usize = 1 + NUMBER;
/// Length of the source connection ID of Retry packets, bytes.
const RETRY_SCID: usize = 8;
/// Minimum length of a client's first destination connection ID, bytes (RFC 9000 section 7.2).
const MIN_ORIGINAL_DCID: usize = 8;
/// Bit of the first byte that marks tokens of NEW_TOKEN frames.
const NEW_TOKEN: u8 = 0x80;
/// Tokens that one key may seal. After this many random numbers, the probability of two equal
/// numbers is 2^-33 (NIST SP 800-38D section 8.3).
const MOST_TOKENS: u64 = 1 << 32;
/// Tokens are accepted for this time after their expiry, because the clocks of service and server
/// may differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(2);

/// A key of [`RetryTokens`].
#[derive(Clone, PartialEq, Eq)]
pub struct RetryTokenKey {
    /// Number of the key, from 0 to 127, as part of each token.
    pub sequence: u8,
    /// The key of AES-128-GCM.
    pub key: [u8; 16],
    /// Random bytes that become part of each nonce.
    pub iv: [u8; NUMBER],
}

impl fmt::Debug for RetryTokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, .. } = self;
        write!(f, "RetryTokenKey({sequence})")
    }
}

/// Makes and checks tokens of Retry packets. Servers share the keys with a service in front of
/// them, so that the service can send Retry packets in place of the servers
/// (draft-ietf-quic-retry-offload-00, "shared state").
///
/// A token is valid in both QUIC versions, for [`Self::LIFETIME`], from one client address and
/// port, with the connection ID of its Retry. All holders of a key together should make at most
/// 2^32 tokens: a flood of 100,000 first packets per second uses up a key in twelve hours. A holder
/// that has made 2^32 tokens itself goes on with the next key ([`Self::tokens_left`]).
///
/// # Examples
///
/// ```
/// use std::time::SystemTime;
///
/// use mpquic_core::crypto::{RetryTokenKey, RetryTokens, ScreenedDatagram};
///
/// let key = RetryTokenKey { sequence: 0, key: [7; 16], iv: [8; 12] };
/// let tokens = RetryTokens::new(&[key])?;
/// // A packet that is not an Initial goes to the server.
/// let client = ([192, 0, 2, 1], 4433).into();
/// let screened = tokens.screen(&[0x40; 30], client, SystemTime::now(), [0; 20]);
/// assert_eq!(screened, ScreenedDatagram::Forward(&[0x40; 30]));
/// # Ok::<_, mpquic_core::config::InvalidOption>(())
/// ```
pub struct RetryTokens {
    keys: Vec<Sealing>,
}

/// A key that is ready for use.
struct Sealing {
    key: RetryTokenKey,
    aead: aead::LessSafeKey,
    /// Tokens sealed with the key by this process.
    made: AtomicU64,
}

impl Sealing {
    fn tokens_left(&self) -> u64 {
        MOST_TOKENS.saturating_sub(self.made.load(Ordering::Relaxed))
    }
}

/// The decision on a client's datagram: see [`RetryTokens::screen`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenedDatagram<'a> {
    /// Send these bytes to the server: the whole datagram, or the part behind Initials without a
    /// valid token.
    Forward(&'a [u8]),
    /// Send this Retry packet to the client, and nothing to the server.
    Retry(Vec<u8>),
    /// Drop the datagram.
    Drop,
}

/// The result of opening a token of a known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The client has received the Retry at its address. Its very first Initial had this connection
    /// ID.
    Valid(ConnectionId),
    /// The token has expired, or was made for another port.
    Invalid,
}

impl RetryTokens {
    /// Validity of a token.
    pub const LIFETIME: Duration = Duration::from_secs(15);

    /// Makes tokens with the first key that has tokens left, and opens tokens of all keys. To
    /// change keys, append the new key to the list of every server and service, then move the new
    /// key to the front of every list, and remove the old key after [`Self::LIFETIME`].
    ///
    /// # Errors
    ///
    /// Without keys, for two keys with the same sequence number, and for a sequence number above
    /// 127.
    pub fn new(keys: &[RetryTokenKey]) -> Result<Self, InvalidOption> {
        if keys.is_empty() {
            return Err(InvalidOption::new("keys", 0, "at least one"));
        }
        let mut made: Vec<Sealing> = Vec::with_capacity(keys.len());
        for key in keys {
            InvalidOption::unless_within("sequence", key.sequence, 0..=!NEW_TOKEN)?;
            if made.iter().any(|other| other.key.sequence == key.sequence) {
                let expected = "another one for each key";
                return Err(InvalidOption::new("sequence", key.sequence, expected));
            }
            let aead = aead::UnboundKey::new(&aead::AES_128_GCM, &key.key);
            let aead = aead.map_err(|_| InvalidOption::new("key", "unusable", "16 bytes"))?;
            made.push(Sealing {
                key: key.clone(),
                aead: aead::LessSafeKey::new(aead),
                made: AtomicU64::new(0),
            });
        }
        Ok(Self { keys: made })
    }

    /// Tokens that this process may still seal with all keys together. At 0, new keys are overdue:
    /// the last key seals further tokens, because clients would be turned away otherwise. Tokens of
    /// other holders, and from before a restart, are not counted.
    pub fn tokens_left(&self) -> u64 {
        let left = self.keys.iter().map(Sealing::tokens_left);
        left.fold(0, u64::saturating_add)
    }

    /// Decides on a client's datagram in front of its server: a first Initial must bring a token,
    /// and gets a Retry otherwise. `client` is the client's address, the same as the server will
    /// see; `random` must be random bytes for each call.
    ///
    /// The method keeps no state. After the server's first answer, a client's Initials carry the
    /// server's connection ID, for which no token exists: they are dropped, and packets behind them
    /// in the datagram are forwarded. A handshake may then fail if its ClientHello was partly lost,
    /// or if it began before this service demanded tokens. A service that recognises connection IDs
    /// of servers should forward dropped datagrams with such an ID.
    pub fn screen<'a>(
        &self,
        datagram: &'a [u8],
        client: SocketAddr,
        now: SystemTime,
        random: [u8; NUMBER + RETRY_SCID],
    ) -> ScreenedDatagram<'a> {
        let mut rest = datagram;
        let mut is_refused = false;
        loop {
            match header::peek(rest, 0) {
                Some(peek) if peek.kind == PacketKind::Initial => match peek.initial() {
                    None => return ScreenedDatagram::Drop,
                    Some((token, after)) if is_of_retry(token) => {
                        if let Some(Opened::Valid(_)) = self.open(token, client, peek.dcid, now) {
                            return ScreenedDatagram::Forward(datagram);
                        }
                        // The Initial may carry the server's connection ID after the server's
                        // answer; the token was made for another ID.
                        (is_refused, rest) = (true, after);
                    }
                    Some((token, _)) if !token.is_empty() => break,
                    // The packets behind it may continue a handshake whose address is validated
                    // already.
                    Some((_, [])) => break,
                    Some((_, after)) => rest = after,
                },
                Some(peek) if peek.kind == PacketKind::Handshake => {
                    return ScreenedDatagram::Forward(rest);
                }
                // The rest of the datagram is padding, or 0-RTT data.
                _ if rest.len() < datagram.len() => break,
                _ => return ScreenedDatagram::Forward(datagram),
            }
        }
        if is_refused {
            return ScreenedDatagram::Drop;
        }
        let retry = self.retry(datagram, client, now, random);
        retry.map_or(ScreenedDatagram::Drop, ScreenedDatagram::Retry)
    }

    /// The Retry that answers the Initial at the start of a datagram; `None` if it cannot be a
    /// client's first Initial.
    fn retry(
        &self,
        datagram: &[u8],
        client: SocketAddr,
        now: SystemTime,
        random: [u8; NUMBER + RETRY_SCID],
    ) -> Option<Vec<u8>> {
        let peek = header::peek(datagram, 0)?;
        let version = Version::from_u32(peek.version)?;
        if datagram.len() < MIN_DATAGRAM || peek.dcid.len() < MIN_ORIGINAL_DCID {
            return None;
        }
        let (number, scid) = random.split_first_chunk()?;
        let (original_dcid, scid) = (ConnectionId::new(peek.dcid), ConnectionId::new(scid));
        let token = self.seal(*number, client, &original_dcid, &scid, now)?;
        let mut packet = Vec::new();
        header::encode_retry(
            &mut packet,
            version,
            &ConnectionId::new(peek.scid),
            &scid,
            &token,
        );
        let tag = retry_tag(version, &original_dcid, &packet);
        packet.extend_from_slice(&tag);
        Some(packet)
    }

    /// Seals a token for a client whose first Initial had the connection ID `original_dcid`. The
    /// Retry's source connection ID is `retry_scid`. `number` must be random.
    pub(crate) fn seal(
        &self,
        number: [u8; NUMBER],
        client: SocketAddr,
        original_dcid: &ConnectionId,
        retry_scid: &ConnectionId,
        now: SystemTime,
    ) -> Option<Vec<u8>> {
        let fresh = self.keys.iter().find(|key| key.tokens_left() > 0);
        let Sealing { key, aead, made } = fresh.or(self.keys.last())?;
        made.fetch_add(1, Ordering::Relaxed);
        let mut token = vec![key.sequence];
        token.extend_from_slice(&number);
        let bound = bound_to(client.ip(), &token, retry_scid);
        let mut body = Vec::new();
        put_time(&mut body, now + Self::LIFETIME);
        put_cid(&mut body, original_dcid);
        body.extend_from_slice(&client.port().to_be_bytes());
        let sealed = aead.seal_in_place_append_tag(
            nonce(key, number),
            aead::Aad::from(bound.as_slice()),
            &mut body,
        );
        sealed.ok()?;
        token.extend_from_slice(&body);
        Some(token)
    }

    /// The proof in a token from this client, whose Initial has the connection ID `dcid`; `None`
    /// for a token of no known key, or for another address or connection ID.
    pub(crate) fn open(
        &self,
        token: &[u8],
        client: SocketAddr,
        dcid: &[u8],
        now: SystemTime,
    ) -> Option<Opened> {
        let (clear, sealed) = token.split_first_chunk::<CLEAR>()?;
        let [sequence, number @ ..] = *clear;
        let mut keys = self.keys.iter();
        let Sealing { key, aead, .. } = keys.find(|it| it.key.sequence == sequence)?;
        let bound = bound_to(client.ip(), clear, dcid);
        let mut body = sealed.to_vec();
        let nonce = nonce(key, number);
        let bound = aead::Aad::from(bound.as_slice());
        let body = aead.open_in_place(nonce, bound, &mut body).ok()?;
        let original_dcid = proven(body, client.port(), now);
        Some(original_dcid.map_or(Opened::Invalid, Opened::Valid))
    }
}

/// The connection ID of the client's first Initial, if the token has not expired and was made for
/// this port.
fn proven(mut body: &[u8], port: u16, now: SystemTime) -> Option<ConnectionId> {
    let expires = take_time(&mut body)?;
    let original_dcid = take_cid(&mut body)?;
    // Further fields of other implementations may follow.
    let is_good = now <= expires.checked_add(CLOCK_DIFFERENCE)?
        && u16::from_be_bytes(take(&mut body)?) == port
        && original_dcid.len() >= MIN_ORIGINAL_DCID;
    is_good.then_some(original_dcid)
}

impl fmt::Debug for RetryTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.keys.iter().map(|sealing| &sealing.key))
            .finish()
    }
}

/// Whether a token claims to be from a Retry.
pub(crate) fn is_of_retry(token: &[u8]) -> bool {
    token.first().is_some_and(|kind| kind & NEW_TOKEN == 0)
}

fn nonce(key: &RetryTokenKey, number: [u8; NUMBER]) -> aead::Nonce {
    let mut nonce = key.iv;
    for (byte, other) in nonce.iter_mut().zip(number) {
        *byte ^= other;
    }
    aead::Nonce::assume_unique_for_key(nonce)
}

/// Associated data of a token: binds it to one IP address and one connection ID.
fn bound_to(ip: IpAddr, clear: &[u8], retry_scid: &[u8]) -> Vec<u8> {
    let mut bound = match ip {
        // Zeros follow, unlike in addresses that are mapped to IPv6.
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    bound.resize(16, 0);
    bound.extend_from_slice(clear);
    bound.push(retry_scid.len() as u8);
    bound.extend_from_slice(retry_scid);
    bound
}

#[cfg(test)]
mod tests;
