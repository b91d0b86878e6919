//! Bound UDP (draft-ietf-masque-connect-udp-listen-13): one CONNECT-UDP request for payloads to and
//! from many peers, by one UDP port of the proxy.
//!
//! An HTTP datagram names its peer in one of two ways. In the uncompressed context, the peer's
//! address stands before the payload. In a compressed context, a capsule has named the peer
//! earlier.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;

use crate::capsule::{put_varint, take_varint};
use crate::target::percent_decode;

/// The field with which both sides agree on the extension (section 6 of the draft).
pub(crate) const BIND: HeaderName = HeaderName::from_static("connect-udp-bind");
/// The proxy's addresses of a binding (section 7 of the draft).
pub(crate) const PUBLIC_ADDRESS: HeaderName = HeaderName::from_static("proxy-public-address");
/// The field with which a client asks the proxy for address-dependent filtering, and the proxy
/// agrees.
const FILTERING: HeaderName = HeaderName::from_static("mpquic-udp-filtering");
/// A structured field that says yes.
const TRUE: HeaderValue = HeaderValue::from_static("?1");
/// The path of a request without a target of its own.
pub(crate) const PATH: &str = "/.well-known/masque/udp/%2A/%2A/";

/// Capsule types (section 11.2 of the draft).
pub(crate) const ASSIGN: u64 = 0x11;
pub(crate) const ACK: u64 = 0x12;
pub(crate) const CLOSE: u64 = 0x13;

/// The uncompressed context of our clients. Clients have even numbers, and [`crate::copies`] uses 2
/// and 4.
pub(crate) const UNCOMPRESSED: u64 = 6;
/// Most bytes before the payload of a datagram: the number of the context, and the peer.
pub(crate) const MOST_HEADER: usize = 8 + 1 + 16 + 2;
/// Which peers may send to a binding (RFC 4787 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtering {
    /// Peers at addresses to which the binding has sent, from any port.
    AddressDependent,
    /// Everybody.
    EndpointIndependent,
}

/// A name of no [`Filtering`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected address-dependent or endpoint-independent")]
pub struct InvalidFiltering;

impl FromStr for Filtering {
    type Err = InvalidFiltering;

    fn from_str(text: &str) -> Result<Self, InvalidFiltering> {
        match text {
            "address-dependent" => Ok(Self::AddressDependent),
            "endpoint-independent" => Ok(Self::EndpointIndependent),
            _ => Err(InvalidFiltering),
        }
    }
}

impl fmt::Display for Filtering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddressDependent => "address-dependent",
            Self::EndpointIndependent => "endpoint-independent",
        })
    }
}

impl Filtering {
    /// Asks for this filtering, or agrees to it.
    pub(crate) fn offer(self, fields: &mut HeaderMap) {
        if self == Self::AddressDependent {
            fields.insert(FILTERING, HeaderValue::from_static("address-dependent"));
        }
    }

    /// The filtering that the other side asks for, or agrees to.
    pub(crate) fn offered(fields: &HeaderMap) -> Self {
        let told = fields.get(FILTERING);
        if told.is_some_and(|told| told == "address-dependent") {
            Self::AddressDependent
        } else {
            Self::EndpointIndependent
        }
    }
}

/// Asks for the extension, or agrees to the extension.
pub(crate) fn offer(fields: &mut HeaderMap) {
    fields.insert(BIND, TRUE);
}

/// True if the other side asks for the extension, or agrees.
pub(crate) fn is_offered(fields: &HeaderMap) -> bool {
    let mut all = fields.get_all(BIND).iter();
    // Unknown parameters of the field change nothing, and a second field makes both invalid.
    let is_true = |value: &HeaderValue| {
        let text = value.as_bytes();
        text == b"?1" || text.starts_with(b"?1;")
    };
    all.next().is_some_and(is_true) && all.next().is_none()
}

/// True for the path of a request without a target of its own.
pub(crate) fn is_without_target(path: &str) -> bool {
    let decoded = percent_decode(path);
    decoded.is_some_and(|path| path == "/.well-known/masque/udp/*/*/")
}

/// A capsule of the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// A new context. `None` for the uncompressed context.
    Assign(u64, Option<SocketAddr>),
    /// The other side knows the context now.
    Ack(u64),
    /// The context is over, or was refused.
    Close(u64),
}

/// A capsule that breaks the rules of the draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a malformed capsule of bound UDP")]
pub(crate) struct Malformed;

impl Told {
    pub(crate) fn to_capsule(self) -> Bytes {
        let mut value = BytesMut::with_capacity(MOST_HEADER);
        let kind = match self {
            Self::Assign(context, peer) => {
                put_varint(&mut value, context);
                match peer {
                    Some(peer) => put_peer(&mut value, peer),
                    None => value.put_u8(0),
                }
                ASSIGN
            }
            Self::Ack(context) => {
                put_varint(&mut value, context);
                ACK
            }
            Self::Close(context) => {
                put_varint(&mut value, context);
                CLOSE
            }
        };
        let mut capsule = BytesMut::with_capacity(value.len() + 2);
        put_varint(&mut capsule, kind);
        put_varint(&mut capsule, value.len() as u64);
        capsule.extend_from_slice(&value);
        capsule.freeze()
    }
}

/// Reads a capsule of this type; `None` for other types.
pub(crate) fn parse(kind: u64, value: &[u8]) -> Result<Option<Told>, Malformed> {
    if ![ASSIGN, ACK, CLOSE].contains(&kind) {
        return Ok(None);
    }
    let mut rest = value;
    let context = take_varint(&mut rest).ok_or(Malformed)?;
    let told = match kind {
        ASSIGN if rest == [0] => {
            rest = &[];
            Told::Assign(context, None)
        }
        ASSIGN => Told::Assign(context, Some(take_peer(&mut rest).ok_or(Malformed)?)),
        ACK => Told::Ack(context),
        _ => Told::Close(context),
    };
    if context > 0 && rest.is_empty() {
        Ok(Some(told))
    } else {
        Err(Malformed)
    }
}

/// Takes the version of IP, an address and a port from the front. `None` if they are cut, or for
/// another version.
pub(crate) fn take_peer(rest: &mut &[u8]) -> Option<SocketAddr> {
    let (version, left) = rest.split_first()?;
    let (ip, left): (IpAddr, _) = match version {
        4 => {
            let (octets, left) = left.split_first_chunk::<4>()?;
            (Ipv4Addr::from(*octets).into(), left)
        }
        6 => {
            let (octets, left) = left.split_first_chunk::<16>()?;
            (Ipv6Addr::from(*octets).into(), left)
        }
        _ => return None,
    };
    let (port, left) = left.split_first_chunk::<2>()?;
    *rest = left;
    Some(canonical(SocketAddr::new(ip, u16::from_be_bytes(*port))))
}

/// Appends the version of IP, the address and the port.
pub(crate) fn put_peer(buffer: &mut impl BufMut, peer: SocketAddr) {
    match peer.ip() {
        IpAddr::V4(ip) => {
            buffer.put_u8(4);
            buffer.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            buffer.put_u8(6);
            buffer.put_slice(&ip.octets());
        }
    }
    buffer.put_u16(peer.port());
}

/// An IPv4 address within an IPv6 address (`::ffff:192.0.2.1`) becomes an IPv4 address: rules,
/// contexts and peers know one form only.
pub(crate) fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Writes a datagram of the uncompressed context of our clients.
pub(crate) fn put_datagram(datagram: &mut Vec<u8>, peer: SocketAddr, payload: &[u8]) {
    datagram.clear();
    datagram.put_u8(UNCOMPRESSED as u8);
    put_peer(datagram, peer);
    datagram.extend_from_slice(payload);
}

/// The open contexts of a binding.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    uncompressed: Option<u64>,
    peers: BTreeMap<u64, SocketAddr>,
    contexts: BTreeMap<SocketAddr, u64>,
}

impl Contexts {
    /// Adds a context, `None` for the uncompressed one.
    ///
    /// # Errors
    ///
    /// If the context is open already, or the peer has one, or another uncompressed context is
    /// open.
    pub(crate) fn insert(
        &mut self,
        context: u64,
        peer: Option<SocketAddr>,
    ) -> Result<(), Malformed> {
        if self.has(context) {
            return Err(Malformed);
        }
        match peer {
            None if self.uncompressed.is_some() => return Err(Malformed),
            None => self.uncompressed = Some(context),
            Some(peer) if self.contexts.contains_key(&peer) => return Err(Malformed),
            Some(peer) => {
                self.peers.insert(context, peer);
                self.contexts.insert(peer, context);
            }
        }
        Ok(())
    }

    /// True for an open context.
    pub(crate) fn has(&self, context: u64) -> bool {
        self.uncompressed == Some(context) || self.peers.contains_key(&context)
    }

    pub(crate) fn remove(&mut self, context: u64) {
        if self.uncompressed == Some(context) {
            self.uncompressed = None;
        }
        if let Some(peer) = self.peers.remove(&context) {
            self.contexts.remove(&peer);
        }
    }

    /// The number of compressed contexts.
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn has_uncompressed(&self) -> bool {
        self.uncompressed.is_some()
    }

    /// The compressed context of a peer.
    pub(crate) fn of_peer(&self, peer: &SocketAddr) -> Option<u64> {
        self.contexts.get(peer).copied()
    }

    /// Peer and payload of a datagram; `None` for a context that is not open, and for a datagram
    /// that is cut.
    pub(crate) fn read<'a>(&self, datagram: &'a [u8]) -> Option<(SocketAddr, &'a [u8])> {
        let mut rest = datagram;
        let context = take_varint(&mut rest)?;
        let peer = if self.uncompressed == Some(context) {
            take_peer(&mut rest)?
        } else {
            *self.peers.get(&context)?
        };
        Some((peer, rest))
    }

    /// Writes what stands before a payload from this peer. False if no open context has the peer.
    pub(crate) fn put_header(&self, header: &mut impl BufMut, peer: SocketAddr) -> bool {
        if let Some(context) = self.of_peer(&peer) {
            put_varint(header, context);
            return true;
        }
        let Some(context) = self.uncompressed else {
            return false;
        };
        put_varint(header, context);
        put_peer(header, peer);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The capsules of appendix A of the draft, and others.
    #[test]
    fn capsules_are_read_as_they_are_written() {
        let of_v4 = Told::Assign(4, Some(peer("203.0.113.11:60000")));
        assert_eq!(
            of_v4.to_capsule(),
            &b"\x11\x08\x04\x04\xcb\x00\x71\x0b\xea\x60"[..]
        );
        assert_eq!(Told::Assign(2, None).to_capsule(), &b"\x11\x02\x02\x00"[..]);
        assert_eq!(Told::Ack(2).to_capsule(), &b"\x12\x01\x02"[..]);
        assert_eq!(Told::Close(64).to_capsule(), &b"\x13\x02\x40\x40"[..]);
        let of_v6 = Told::Assign((1 << 62) - 2, Some(peer("[2001:db8::1]:1")));
        for told in [
            of_v4,
            of_v6,
            Told::Assign(2, None),
            Told::Ack(2),
            Told::Close(3),
        ] {
            let capsule = told.to_capsule();
            let kind = u64::from(capsule[0]);
            assert_eq!(parse(kind, &capsule[2..]), Ok(Some(told)));
            for end in 2..capsule.len() {
                assert_eq!(parse(kind, &capsule[2..end]), Err(Malformed), "{told:?}");
            }
        }
        for (kind, value) in [
            (ASSIGN, &b"\x00\x00"[..]),
            (ASSIGN, b"\x02\x05abcd12"),
            (ASSIGN, b"\x02\x04abcd123"),
            (ASSIGN, b"\x02\x00\x00"),
            (ACK, b"\x00"),
            (ACK, b"\x02\x02"),
            (CLOSE, b"\x00"),
        ] {
            assert_eq!(parse(kind, value), Err(Malformed), "{value:?}");
        }
        assert_eq!(parse(0x14, b""), Ok(None));
    }

    #[test]
    fn datagrams_name_their_peers() {
        let (one, two) = (peer("192.0.2.1:7"), peer("[2001:db8::1]:8"));
        let mut contexts = Contexts::default();
        let mut datagram = Vec::new();
        put_datagram(&mut datagram, two, b"payload");
        assert_eq!(contexts.read(&datagram), None);
        contexts.insert(UNCOMPRESSED, None).unwrap();
        contexts.insert(8, Some(one)).unwrap();
        assert_eq!(contexts.read(&datagram), Some((two, &b"payload"[..])));
        assert_eq!(contexts.read(b"\x08abc"), Some((one, &b"abc"[..])));
        let mut header = Vec::new();
        assert!(contexts.put_header(&mut header, two));
        assert_eq!(header, datagram[..datagram.len() - 7]);
        header.clear();
        assert!(contexts.put_header(&mut header, one));
        assert_eq!(header, [8]);
        // Another form of the same address.
        let mapped = b"\x06\x06\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\0\x07x";
        assert_eq!(contexts.read(mapped), Some((one, &b"x"[..])));
        for taken in [
            (UNCOMPRESSED, Some(two)),
            (8, None),
            (10, None),
            (10, Some(one)),
        ] {
            assert_eq!(
                contexts.insert(taken.0, taken.1),
                Err(Malformed),
                "{taken:?}"
            );
        }
        contexts.remove(8);
        contexts.remove(UNCOMPRESSED);
        assert_eq!(contexts.read(b"\x08abc"), None);
        assert!(!contexts.put_header(&mut header, one));
        for wrong in [&b""[..], b"\x06", b"\x06\x04abcd1", b"\x06\x05abcd12"] {
            assert_eq!(contexts.read(wrong), None);
        }
    }

    #[test]
    fn filtering_is_told_as_it_is_read() {
        for filtering in [Filtering::AddressDependent, Filtering::EndpointIndependent] {
            assert_eq!(filtering.to_string().parse(), Ok(filtering));
            let mut fields = HeaderMap::new();
            filtering.offer(&mut fields);
            assert_eq!(Filtering::offered(&fields), filtering);
        }
        assert_eq!("none".parse::<Filtering>(), Err(InvalidFiltering));
    }

    #[test]
    fn the_field_is_a_single_boolean() {
        let offered = |values: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(BIND, HeaderValue::from_static(value));
            }
            is_offered(&fields)
        };
        assert!(offered(&["?1"]) && offered(&["?1;a=b"]));
        assert!(!offered(&[]) && !offered(&["?0"]) && !offered(&["?1", "?1"]) && !offered(&["1"]));
    }
}
