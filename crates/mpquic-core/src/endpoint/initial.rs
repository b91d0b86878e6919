//! A client's first Initial, and the Initial that turns it down.

use bytes::{Bytes, BytesMut};
use quinn_proto::ConnectionId;

use super::response;
use crate::crypto::{Keys, ServerConfig};
use crate::error::{ConnectionClose, TransportErrorCode};
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::packet::Transmit;
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::Delivery;
use crate::protect::{self, FixedKeys};
use crate::version::Version;
use crate::wire::frame::{Close, Frame};
use crate::wire::header::{self, Header, PacketHeader};

/// An authentic first Initial.
pub(super) struct Opened {
    pub(super) version: Version,
    pub(super) scid: ConnectionId,
    pub(super) token: Bytes,
    pub(super) keys: Keys,
}

/// Opens the Initial at the start of a datagram, so that noise never becomes an attempt.
pub(super) fn open(mut datagram: BytesMut, crypto: &dyn ServerConfig) -> Option<Opened> {
    let mut packet = header::next_packet(&mut datagram, 0).ok()?;
    let Header::Initial {
        version,
        dcid,
        scid,
        token,
    } = packet.header.clone()
    else {
        return None;
    };
    let keys = crypto.initial_keys(version, &dcid);
    let mut opening = FixedKeys {
        header: &*keys.header.remote,
        packet: &*keys.packet.remote,
    };
    protect::open(&mut packet, &mut opening, None, PathId::ZERO).ok()?;
    Some(Opened {
        version,
        scid,
        token,
        keys,
    })
}

/// Whom to turn down.
pub(super) struct Refused {
    pub(super) version: Version,
    pub(super) four_tuple: FourTuple,
    pub(super) client_cid: ConnectionId,
    pub(super) server_cid: ConnectionId,
}

impl Refused {
    /// Appends an Initial that closes the connection before it began.
    pub(super) fn close(
        &self,
        keys: &Keys,
        code: TransportErrorCode,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let header = PacketHeader::Initial {
            version: self.version,
            dcid: self.client_cid,
            scid: self.server_cid,
            token: Bytes::new(),
        };
        let start = PacketStart {
            header: &header,
            space: SpaceId::Initial,
            packet_number: 0,
            largest_acked: None,
            tag_length: keys.packet.local.tag_length(),
            limit: super::MIN_INITIAL_DATAGRAM,
            clear_quic_bit: false,
        };
        let packet = PacketBuilder::start(buf, start)?;
        let close = Frame::ConnectionClose(Close::Connection(ConnectionClose {
            code,
            frame_type: 0,
            reason: Bytes::new(),
        }));
        if !packet.writer(buf).try_write(&close, Delivery::Nothing) {
            packet.abandon(buf);
            return None;
        }
        packet.finish(buf, &*keys.header.local, &*keys.packet.local, None);
        Some(response(self.four_tuple, buf))
    }
}
