//! A client's first Initial, and the Initial that refuses it.

use bytes::{Bytes, BytesMut};
use quinn_proto::{ConnectionId, Side};

use crate::crypto::{Keys, ServerCrypto};
use crate::error::{ConnectionClose, TransportErrorCode};
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::packet::Transmit;
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::Delivery;
use crate::protect::{self, FixedKeys};
use crate::version::Version;
use crate::wire::buf::MIN_DATAGRAM;
use crate::wire::frame::{Close, Frame, FrameCounts};
use crate::wire::header::{self, Header, PacketHeader};

/// An authentic first Initial.
pub(super) struct FirstInitial {
    pub(super) version: Version,
    /// The destination connection ID that the client chose, or that of our Retry.
    pub(super) dcid: ConnectionId,
    /// The client's source connection ID.
    pub(super) scid: ConnectionId,
    pub(super) keys: Keys,
}

impl FirstInitial {
    /// Opens the Initial at the start of a datagram, so that random bytes never become an attempt.
    /// Returns its token as well.
    pub(super) fn open(datagram: BytesMut, crypto: &dyn ServerCrypto) -> Option<(Self, Bytes)> {
        let mut datagram = datagram;
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
        let keys = crypto.initial_keys(version, Side::Server, &dcid);
        let mut opening = FixedKeys {
            header: &*keys.header.remote,
            packet: &*keys.packet.remote,
        };
        protect::open(&mut packet, &mut opening, None, PathId::ZERO).ok()?;
        let initial = Self {
            version,
            dcid,
            scid,
            keys,
        };
        Some((initial, token))
    }

    /// Appends an Initial with CONNECTION_CLOSE, without a connection.
    pub(super) fn close(
        &self,
        four_tuple: FourTuple,
        server_cid: ConnectionId,
        code: TransportErrorCode,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let keys = &self.keys;
        let header = PacketHeader::Initial {
            version: self.version,
            dcid: self.scid,
            scid: server_cid,
            token: Bytes::new(),
        };
        let start = PacketStart {
            header: &header,
            space: SpaceId::Initial,
            packet_number: 0,
            largest_acked: None,
            tag_length: keys.packet.local.tag_length(),
            limit: MIN_DATAGRAM,
            clear_quic_bit: false,
        };
        let packet = PacketBuilder::start(buf, start)?;
        let close = Frame::ConnectionClose(Close::Connection(ConnectionClose {
            code,
            frame_type: 0,
            reason: Bytes::new(),
        }));
        if !packet
            .writer(buf, &mut FrameCounts::default())
            .try_write(&close, Delivery::Nothing)
        {
            packet.abandon(buf);
            return None;
        }
        packet.finish(buf, &*keys.header.local, &*keys.packet.local, None);
        Some(Transmit::without_connection(four_tuple, buf))
    }
}
