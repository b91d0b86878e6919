//! Transport parameters (RFC 9000 section 18, RFC 9221, RFC 9287, RFC 9368, RFC 10069 section
//! 2.1, and the drafts named at the parameters).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

use quinn_proto::{ConnectionId, Side};

use super::buf::{
    Counter, MIN_DATAGRAM, Sink, VARINT_MAX, cid, take_array, take_short_bytes, take_varint,
};
use super::frame::MAX_STREAM_COUNT;
use crate::error::{Fault, TransportError};
use crate::ids::PathId;

/// Parameter IDs as they travel.
mod id {
    pub(super) const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub(super) const INITIAL_MAX_DATA: u64 = 0x04;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub(super) const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
    pub(super) const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
    pub(super) const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
    pub(super) const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
    /// RFC 9368.
    pub(super) const VERSION_INFORMATION: u64 = 0x11;
    /// draft-ietf-quic-reliable-stream-reset-11.
    pub(super) const RESET_STREAM_AT: u64 = 0x1d;
    /// RFC 9221.
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
    /// RFC 10069.
    pub(super) const INITIAL_MAX_PATH_ID: u64 = 0x3e;
    /// RFC 9287.
    pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
    /// draft-ietf-quic-ack-frequency-14.
    pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;
    /// draft-munizaga-quic-alternative-server-address-01.
    pub(super) const ALTERNATIVE_ADDRESS: u64 = 0xff_0969_d85c;

    /// The bit that stands for a parameter in a set of them; 0 for those nobody assigned.
    pub(super) const fn bit(id: u64) -> u128 {
        match id {
            0..=INITIAL_MAX_PATH_ID => 1 << id,
            GREASE_QUIC_BIT => 1 << 64,
            MIN_ACK_DELAY => 1 << 65,
            ALTERNATIVE_ADDRESS => 1 << 66,
            _ => 0,
        }
    }
}

/// Parameters a client must not send (RFC 9000 section 18.2).
const SERVER_ONLY: u128 = id::bit(id::ORIGINAL_DESTINATION_CONNECTION_ID)
    | id::bit(id::STATELESS_RESET_TOKEN)
    | id::bit(id::PREFERRED_ADDRESS)
    | id::bit(id::RETRY_SOURCE_CONNECTION_ID);

/// Parameters a server must not send (draft-munizaga-quic-alternative-server-address-01 section 3).
const CLIENT_ONLY: u128 = id::bit(id::ALTERNATIVE_ADDRESS);

const MIN_UDP_PAYLOAD_SIZE: u64 = MIN_DATAGRAM as u64;
const MAX_ACK_DELAY_EXPONENT: u64 = 20;
/// 2^14 ms and above are not valid.
const MAX_ACK_DELAY_BOUND: u64 = 1 << 14;
const MIN_ACTIVE_CONNECTION_ID_LIMIT: u64 = 2;

/// How many limits 0-RTT data relies on.
pub(crate) const ZERO_RTT_LIMITS: usize = 9;

/// The values one side announces. `Default` gives what an absent parameter means.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportParameters {
    /// Server: DCID of the client's first Initial.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// Idle timeout; zero means none.
    pub max_idle_timeout: Duration,
    /// Server: reset token of the handshake connection ID.
    pub stateless_reset_token: Option<[u8; 16]>,
    /// Largest UDP payload the side takes; at least 1200.
    pub max_udp_payload_size: u64,
    /// Connection flow control credit.
    pub initial_max_data: u64,
    /// Credit on bidirectional streams opened by the announcing side.
    pub initial_max_stream_data_bidi_local: u64,
    /// Credit on bidirectional streams opened by the other side.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Credit on unidirectional streams opened by the other side.
    pub initial_max_stream_data_uni: u64,
    /// Bidirectional streams the other side may open.
    pub initial_max_streams_bidi: u64,
    /// Unidirectional streams the other side may open.
    pub initial_max_streams_uni: u64,
    /// Exponent of the ACK Delay field; at most 20.
    pub ack_delay_exponent: u8,
    /// Longest acknowledgement delay; below 2^14 ms.
    pub max_ack_delay: Duration,
    /// The side does not take migration to its handshake address.
    pub disable_active_migration: bool,
    /// Server: where to migrate to.
    pub preferred_address: Option<PreferredAddress>,
    /// Connection IDs the side stores, per path ID; at least 2.
    pub active_connection_id_limit: u64,
    /// SCID of the side's first Initial.
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Server: SCID of its Retry.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// Largest DATAGRAM frame the side takes; 0 means none (RFC 9221).
    pub max_datagram_frame_size: u64,
    /// The QUIC bit may be greased (RFC 9287).
    pub grease_quic_bit: bool,
    /// Highest path ID the side maintains; absent means no multipath (RFC 10069).
    pub initial_max_path_id: Option<PathId>,
    /// Shortest delay of an acknowledgement that the side can be asked for, at most its
    /// `max_ack_delay`; whole microseconds. Absent means that it takes no ACK_FREQUENCY
    /// (draft-ietf-quic-ack-frequency-14).
    pub min_ack_delay: Option<Duration>,
    /// The side takes RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-11).
    pub reset_stream_at: bool,
    /// Client: it takes ALTERNATIVE_ADDRESS (draft-munizaga-quic-alternative-server-address-01).
    pub alternative_address: bool,
    /// A parameter that means nothing, for peers to ignore; never set by [`Self::decode`].
    pub reserved: Option<ReservedParameter>,
    /// The chosen and the available versions of the side (RFC 9368).
    pub version_information: Option<VersionInformation>,
}

/// version_information (RFC 9368 section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInformation {
    /// The version in use, as far as the sender knows.
    pub chosen: u32,
    /// Of a client: versions its first flight may turn into, the preferred version first. Of a
    /// server: all its versions.
    pub available: Vec<u32>,
}

/// A parameter whose number is reserved for having no meaning (RFC 9000 section 18.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedParameter {
    number: u64,
    value: [u8; 8],
    length: usize,
}

impl ReservedParameter {
    /// A parameter chosen by these random bits.
    pub fn new(number: u32, value: [u8; 8]) -> Self {
        Self {
            number: 27 + 31 * u64::from(number),
            value,
            length: usize::from(value[0]) % 9,
        }
    }
}

/// preferred_address (RFC 9000 section 18.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreferredAddress {
    /// IPv4 address and port.
    pub ipv4: Option<SocketAddrV4>,
    /// IPv6 address and port.
    pub ipv6: Option<SocketAddrV6>,
    /// The connection ID to use there; sequence number 1 of path 0.
    pub connection_id: ConnectionId,
    /// Its reset token.
    pub stateless_reset_token: [u8; 16],
}

impl PreferredAddress {
    /// The preferred address of the same family as `other`.
    pub(crate) fn of_family(&self, other: SocketAddr) -> Option<SocketAddr> {
        match other {
            SocketAddr::V4(_) => self.ipv4.map(SocketAddr::V4),
            SocketAddr::V6(_) => self.ipv6.map(SocketAddr::V6),
        }
    }
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_destination_connection_id: None,
            max_idle_timeout: Duration::ZERO,
            stateless_reset_token: None,
            max_udp_payload_size: 65527,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay: Duration::from_millis(25),
            disable_active_migration: false,
            preferred_address: None,
            active_connection_id_limit: 2,
            initial_source_connection_id: None,
            retry_source_connection_id: None,
            max_datagram_frame_size: 0,
            grease_quic_bit: false,
            initial_max_path_id: None,
            min_ack_delay: None,
            reset_stream_at: false,
            alternative_address: false,
            reserved: None,
            version_information: None,
        }
    }
}

impl TransportParameters {
    /// The limits that a server must not lower if it accepts a client's 0-RTT data (RFC 9000
    /// section 7.4.1, RFC 9221 section 3).
    pub(crate) fn zero_rtt_limits(&self) -> [u64; ZERO_RTT_LIMITS] {
        [
            self.active_connection_id_limit,
            self.initial_max_data,
            self.initial_max_stream_data_bidi_local,
            self.initial_max_stream_data_bidi_remote,
            self.initial_max_stream_data_uni,
            self.initial_max_streams_bidi,
            self.initial_max_streams_uni,
            self.max_datagram_frame_size,
            // draft-ietf-quic-reliable-stream-reset-11 section 3
            self.reset_stream_at.into(),
        ]
    }

    /// Appends the parameters of `side`, without default values and without parameters that only
    /// the other side may send.
    pub fn encode(&self, side: Side, out: &mut Vec<u8>) {
        let default = Self::default();
        let mut integer = |id, value: u64, default: u64| {
            if value != default {
                put(out, id, |out| out.varint(value.min(VARINT_MAX)));
            }
        };
        for (id, value) in self.initial_credits() {
            integer(id, value, 0);
        }
        integer(id::MAX_IDLE_TIMEOUT, milliseconds(self.max_idle_timeout), 0);
        integer(
            id::MAX_UDP_PAYLOAD_SIZE,
            self.max_udp_payload_size,
            default.max_udp_payload_size,
        );
        integer(
            id::ACK_DELAY_EXPONENT,
            self.ack_delay_exponent.into(),
            default.ack_delay_exponent.into(),
        );
        integer(
            id::MAX_ACK_DELAY,
            milliseconds(self.max_ack_delay),
            milliseconds(default.max_ack_delay),
        );
        integer(
            id::ACTIVE_CONNECTION_ID_LIMIT,
            self.active_connection_id_limit,
            default.active_connection_id_limit,
        );
        integer(id::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, 0);
        if self.disable_active_migration {
            put(out, id::DISABLE_ACTIVE_MIGRATION, |_| {});
        }
        if self.reset_stream_at {
            put(out, id::RESET_STREAM_AT, |_| {});
        }
        // draft-munizaga-quic-alternative-server-address-01 section 3
        if self.alternative_address && side.is_client() {
            put(out, id::ALTERNATIVE_ADDRESS, |_| {});
        }
        if self.grease_quic_bit {
            put(out, id::GREASE_QUIC_BIT, |_| {});
        }
        if let Some(cid) = &self.initial_source_connection_id {
            put(out, id::INITIAL_SOURCE_CONNECTION_ID, |out| out.bytes(cid));
        }
        if let Some(path) = self.initial_max_path_id {
            put(out, id::INITIAL_MAX_PATH_ID, |out| out.varint(path.into()));
        }
        if let Some(delay) = self.min_ack_delay {
            let microseconds = u64::try_from(delay.as_micros()).unwrap_or(VARINT_MAX);
            put(out, id::MIN_ACK_DELAY, |out| {
                out.varint(microseconds.min(VARINT_MAX));
            });
        }
        if let Some(reserved) = &self.reserved {
            let value = reserved.value.get(..reserved.length).unwrap_or_default();
            put(out, reserved.number, |out| out.bytes(value));
        }
        if let Some(versions) = &self.version_information {
            put(out, id::VERSION_INFORMATION, |out| versions.write(out));
        }
        if side.is_server() {
            self.encode_server_only(out);
        }
    }

    fn initial_credits(&self) -> [(u64, u64); 6] {
        [
            (id::INITIAL_MAX_DATA, self.initial_max_data),
            (
                id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
                self.initial_max_stream_data_bidi_local,
            ),
            (
                id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
                self.initial_max_stream_data_bidi_remote,
            ),
            (
                id::INITIAL_MAX_STREAM_DATA_UNI,
                self.initial_max_stream_data_uni,
            ),
            (
                id::INITIAL_MAX_STREAMS_BIDI,
                self.initial_max_streams_bidi.min(MAX_STREAM_COUNT),
            ),
            (
                id::INITIAL_MAX_STREAMS_UNI,
                self.initial_max_streams_uni.min(MAX_STREAM_COUNT),
            ),
        ]
    }

    fn encode_server_only(&self, out: &mut Vec<u8>) {
        if let Some(cid) = &self.original_destination_connection_id {
            put(out, id::ORIGINAL_DESTINATION_CONNECTION_ID, |out| {
                out.bytes(cid);
            });
        }
        if let Some(token) = &self.stateless_reset_token {
            put(out, id::STATELESS_RESET_TOKEN, |out| out.bytes(token));
        }
        if let Some(address) = &self.preferred_address {
            put(out, id::PREFERRED_ADDRESS, |out| address.write(out));
        }
        if let Some(cid) = &self.retry_source_connection_id {
            put(out, id::RETRY_SOURCE_CONNECTION_ID, |out| out.bytes(cid));
        }
    }

    /// Decodes the parameters of `sender`. The presence and the values of connection IDs are for
    /// the connection to check (RFC 9000 section 7.3).
    ///
    /// # Errors
    ///
    /// The fault of the first wrong parameter, with the code TRANSPORT_PARAMETER_ERROR.
    pub fn decode(sender: Side, mut bytes: &[u8]) -> Result<Self, TransportError> {
        let mut parameters = Self::default();
        let mut seen = 0;
        while !bytes.is_empty() {
            let id = take_varint(&mut bytes).ok_or_else(truncated)?;
            let length = take_varint(&mut bytes).ok_or_else(truncated)?;
            let (value, rest) = usize::try_from(length)
                .ok()
                .and_then(|length| bytes.split_at_checked(length))
                .ok_or_else(truncated)?;
            bytes = rest;
            let bit = id::bit(id);
            // RFC 9000 section 7.4, MP-007
            if seen & bit != 0 {
                return Err(Fault::DuplicateParameter.into());
            }
            seen |= bit;
            // RFC 9000 section 18.2
            if sender.is_client() && bit & SERVER_ONLY != 0 {
                return Err(Fault::ServerOnlyParameter.into());
            }
            // draft-munizaga-quic-alternative-server-address-01 section 3
            if sender.is_server() && bit & CLIENT_ONLY != 0 {
                return Err(Fault::ClientOnlyParameter.into());
            }
            parameters.set(id, value)?;
        }
        // draft-ietf-quic-ack-frequency-14 section 3
        if parameters.min_ack_delay > Some(parameters.max_ack_delay) {
            return Err(Fault::MinAckDelayTooLarge.into());
        }
        // RFC 9368 section 4
        if sender.is_client()
            && let Some(versions) = &parameters.version_information
            && !versions.available.contains(&versions.chosen)
        {
            return Err(Fault::ChosenVersionNotAvailable.into());
        }
        Ok(parameters)
    }

    /// Takes one parameter; unknown ones are ignored (RFC 9000 section 7.4.2).
    fn set(&mut self, id: u64, value: &[u8]) -> Result<(), TransportError> {
        match id {
            id::ORIGINAL_DESTINATION_CONNECTION_ID => {
                self.original_destination_connection_id = Some(connection_id(value)?);
            }
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout = Duration::from_millis(integer(value)?),
            id::STATELESS_RESET_TOKEN => {
                let token = value.try_into().map_err(|_| malformed())?;
                self.stateless_reset_token = Some(token);
            }
            id::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size =
                    at_least(MIN_UDP_PAYLOAD_SIZE, value, Fault::UdpPayloadSizeTooSmall)?;
            }
            id::INITIAL_MAX_DATA => self.initial_max_data = integer(value)?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = integer(value)?;
            }
            id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = integer(value)?;
            }
            id::INITIAL_MAX_STREAM_DATA_UNI => {
                self.initial_max_stream_data_uni = integer(value)?;
            }
            id::INITIAL_MAX_STREAMS_BIDI => {
                self.initial_max_streams_bidi =
                    at_most(MAX_STREAM_COUNT, value, Fault::InitialStreamsTooLarge)?;
            }
            id::INITIAL_MAX_STREAMS_UNI => {
                self.initial_max_streams_uni =
                    at_most(MAX_STREAM_COUNT, value, Fault::InitialStreamsTooLarge)?;
            }
            id::ACK_DELAY_EXPONENT => {
                self.ack_delay_exponent = at_most(
                    MAX_ACK_DELAY_EXPONENT,
                    value,
                    Fault::AckDelayExponentTooLarge,
                )? as u8;
            }
            id::MAX_ACK_DELAY => {
                let delay = at_most(MAX_ACK_DELAY_BOUND - 1, value, Fault::MaxAckDelayTooLarge)?;
                self.max_ack_delay = Duration::from_millis(delay);
            }
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = flag(value)?,
            id::PREFERRED_ADDRESS => {
                self.preferred_address = Some(PreferredAddress::decode(value)?);
            }
            id::ACTIVE_CONNECTION_ID_LIMIT => {
                self.active_connection_id_limit = at_least(
                    MIN_ACTIVE_CONNECTION_ID_LIMIT,
                    value,
                    Fault::ConnectionIdLimitTooSmall,
                )?;
            }
            id::INITIAL_SOURCE_CONNECTION_ID => {
                self.initial_source_connection_id = Some(connection_id(value)?);
            }
            id::RETRY_SOURCE_CONNECTION_ID => {
                self.retry_source_connection_id = Some(connection_id(value)?);
            }
            id::MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame_size = integer(value)?,
            id::RESET_STREAM_AT => self.reset_stream_at = flag(value)?,
            id::ALTERNATIVE_ADDRESS => self.alternative_address = flag(value)?,
            id::GREASE_QUIC_BIT => self.grease_quic_bit = flag(value)?,
            id::INITIAL_MAX_PATH_ID => {
                // MP-006
                let path = at_most(u32::MAX.into(), value, Fault::InitialPathIdTooLarge)?;
                self.initial_max_path_id = Some(PathId(path as u32));
            }
            id::MIN_ACK_DELAY => {
                self.min_ack_delay = Some(Duration::from_micros(integer(value)?));
            }
            id::VERSION_INFORMATION => {
                self.version_information = Some(VersionInformation::decode(value)?);
            }
            _ => {}
        }
        Ok(())
    }
}

impl VersionInformation {
    fn write(&self, out: &mut dyn Sink) {
        for version in std::iter::once(&self.chosen).chain(&self.available) {
            out.bytes(&version.to_be_bytes());
        }
    }

    fn decode(value: &[u8]) -> Result<Self, TransportError> {
        let (versions, uneven) = value.as_chunks::<4>();
        let mut versions = versions.iter().map(|bytes| u32::from_be_bytes(*bytes));
        // RFC 9368 section 4
        let chosen = versions.next().filter(|_| uneven.is_empty());
        let information = Self {
            chosen: chosen.ok_or_else(malformed)?,
            available: versions.collect(),
        };
        if information.chosen == 0 || information.available.contains(&0) {
            return Err(Fault::VersionZero.into());
        }
        Ok(information)
    }
}

impl PreferredAddress {
    fn write(&self, out: &mut dyn Sink) {
        let ipv4 = self.ipv4.unwrap_or(NO_IPV4);
        out.bytes(&ipv4.ip().octets());
        out.bytes(&ipv4.port().to_be_bytes());
        let ipv6 = self.ipv6.unwrap_or(NO_IPV6);
        out.bytes(&ipv6.ip().octets());
        out.bytes(&ipv6.port().to_be_bytes());
        out.short_bytes(&self.connection_id);
        out.bytes(&self.stateless_reset_token);
    }

    fn decode(mut value: &[u8]) -> Result<Self, TransportError> {
        let value = &mut value;
        let ipv4 = SocketAddrV4::new(array::<4>(value)?.into(), port(value)?);
        let ipv6 = SocketAddrV6::new(array::<16>(value)?.into(), port(value)?, 0, 0);
        let connection_id = connection_id(take_short_bytes(value).ok_or_else(malformed)?)?;
        let stateless_reset_token = array(value)?;
        // RFC 9000 section 18.2
        if connection_id.is_empty() {
            return Err(Fault::PreferredAddressWithoutId.into());
        }
        if !value.is_empty() {
            return Err(malformed());
        }
        // An unspecified address or port 0 stands for a missing address of that family.
        let is_usable = |unspecified: bool, port: u16| !unspecified && port != 0;
        Ok(Self {
            ipv4: Some(ipv4).filter(|a| is_usable(a.ip().is_unspecified(), a.port())),
            ipv6: Some(ipv6).filter(|a| is_usable(a.ip().is_unspecified(), a.port())),
            connection_id,
            stateless_reset_token,
        })
    }
}

const NO_IPV4: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
const NO_IPV6: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);

/// Appends one parameter; `write` is called twice, to measure and to encode.
fn put(out: &mut Vec<u8>, id: u64, write: impl Fn(&mut dyn Sink)) {
    let mut length = Counter::default();
    write(&mut length);
    out.varint(id);
    out.varint(length.0 as u64);
    write(out);
}

/// Whole milliseconds, rounded up: a short timeout must not become zero, which means none.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn truncated() -> TransportError {
    Fault::TruncatedParameter.into()
}

fn malformed() -> TransportError {
    Fault::MalformedParameter.into()
}

/// Exactly one variable-length integer (MP-007).
fn integer(mut value: &[u8]) -> Result<u64, TransportError> {
    take_varint(&mut value)
        .filter(|_| value.is_empty())
        .ok_or_else(malformed)
}

fn at_least(minimum: u64, value: &[u8], fault: Fault) -> Result<u64, TransportError> {
    let value = integer(value)?;
    if value < minimum {
        return Err(fault.into());
    }
    Ok(value)
}

fn at_most(maximum: u64, value: &[u8], fault: Fault) -> Result<u64, TransportError> {
    let value = integer(value)?;
    if value > maximum {
        return Err(fault.into());
    }
    Ok(value)
}

/// A parameter without a value.
fn flag(value: &[u8]) -> Result<bool, TransportError> {
    value.is_empty().then_some(true).ok_or_else(malformed)
}

fn connection_id(value: &[u8]) -> Result<ConnectionId, TransportError> {
    cid(value).ok_or_else(malformed)
}

fn array<const N: usize>(value: &mut &[u8]) -> Result<[u8; N], TransportError> {
    take_array(value).ok_or_else(malformed)
}

fn port(value: &mut &[u8]) -> Result<u16, TransportError> {
    Ok(u16::from_be_bytes(array(value)?))
}
