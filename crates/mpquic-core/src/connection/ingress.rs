//! Receiving datagrams: from datagrams to packets to frames.

use bytes::{Bytes, BytesMut};

use super::{Connection, State};
use crate::error::TransportError;
use crate::event::Datagram;
use crate::ids::PathId;
use crate::packet::arrival::{Arrival, Opened};
use crate::protect::Opening;
use crate::qlog::DropReason;
use crate::recorder::Dropped;
use crate::wire::frame::{Frame, FrameIter, PacketType};
use crate::wire::header::{self, Header, ProtectedPacket};

impl Connection {
    /// Processes a received datagram.
    pub fn handle_datagram(&mut self, datagram: Datagram) {
        let Datagram {
            now,
            four_tuple,
            ecn,
            path,
            data,
        } = datagram;
        let size = data.len();
        self.outbox.set_time(now);
        self.idle.on_datagram();
        self.outbox.stats.datagrams_received += 1;
        self.outbox.stats.bytes_received += size as u64;
        let arrival = Arrival {
            now,
            four_tuple,
            ecn,
            path,
            size,
        };
        match &mut self.state {
            State::Open => {}
            State::Closing(_) => {
                self.state.on_datagram();
                return self.look_for_close(&arrival, data);
            }
            State::Draining(_) | State::Drained => return,
        }
        // MP-086: a client drops what comes from a server address it did not choose.
        if !self.paths.may_come_from(&arrival) {
            self.outbox
                .drop_packet(arrival.path, Dropped::unknown(size), DropReason::Rejected);
            return;
        }
        self.paths.on_datagram_received(&arrival, &mut self.outbox);
        let result = self.handle_packets(&arrival, data);
        self.close_on_error(now, result);
    }

    fn handle_packets(
        &mut self,
        arrival: &Arrival,
        mut data: BytesMut,
    ) -> Result<(), TransportError> {
        let cid_length = self.endpoint_config.connection_ids.length();
        let mut first = true;
        while !data.is_empty() && self.state.is_open() {
            let rest = Dropped::unknown(data.len());
            let Ok(mut packet) = header::next_packet(&mut data, cid_length) else {
                if first {
                    self.outbox
                        .drop_packet(arrival.path, rest, DropReason::Invalid);
                }
                return Ok(());
            };
            first = false;
            self.handle_packet(arrival, &mut packet)?;
        }
        loop {
            let is_ready = |path| !self.paths.lacks_peer_cid(path);
            let Some((arrival, mut packet)) = self.handshake.take_buffered(is_ready) else {
                return Ok(());
            };
            self.handle_packet(&arrival, &mut packet)?;
        }
    }

    fn handle_packet(
        &mut self,
        arrival: &Arrival,
        packet: &mut ProtectedPacket,
    ) -> Result<(), TransportError> {
        let seen = Dropped::new(&packet.header, packet.data.len());
        let tail = reset_token(&packet.data);
        match self.open_packet(arrival, packet) {
            Opening::Opened(opened, payload) => match opened.packet_type {
                PacketType::OneRtt => self.handle_one_rtt(arrival, &opened, payload),
                PacketType::ZeroRtt => self.process(arrival, &opened, payload).map(|_| ()),
                PacketType::Initial | PacketType::Handshake => {
                    self.process(arrival, &opened, payload)?;
                    self.handshake
                        .on_packet_processed(&packet.header, &mut self.outbox);
                    self.drive_handshake(arrival.now)
                }
            },
            Opening::Fault(error) => Err(error),
            Opening::Buffered | Opening::Unnumbered => Ok(()),
            Opening::Dropped(reason) => {
                self.outbox.drop_packet(arrival.path, seen, reason);
                let may_be_reset = matches!(packet.header, Header::Short { .. })
                    && reason == DropReason::DecryptionFailure;
                if may_be_reset && tail.is_some_and(|token| self.paths.is_reset_token(token)) {
                    self.handle_stateless_reset(arrival.now);
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn open_packet(&mut self, arrival: &Arrival, packet: &mut ProtectedPacket) -> Opening {
        // RFC 9000 section 17.2, unless we announced that it may be greased (RFC 9287).
        if !packet.has_fixed_bit() && !self.endpoint_config.grease_quic_bit {
            return Opening::Dropped(DropReason::Invalid);
        }
        match packet.header {
            Header::Short { .. } => self.open_one_rtt(arrival, packet),
            Header::Initial { .. } | Header::Handshake { .. } | Header::ZeroRtt { .. } => {
                let first = self.paths.any(PathId::ZERO).map(|path| &path.space);
                self.handshake.open_long(arrival, packet, first)
            }
            Header::Retry { .. } | Header::VersionNegotiation { .. } => {
                let acted_on =
                    self.handshake
                        .on_unnumbered(packet, &mut self.random, &mut self.outbox);
                self.follow_handshake_steps(arrival.now);
                match acted_on {
                    Ok(true) => Opening::Unnumbered,
                    Ok(false) => Opening::Dropped(DropReason::Rejected),
                    Err(error) => Opening::Fault(error),
                }
            }
        }
    }

    #[inline]
    fn open_one_rtt(&mut self, arrival: &Arrival, packet: &mut ProtectedPacket) -> Opening {
        let paths = &self.paths;
        let Some(slot) = paths.slot(arrival.path) else {
            return Opening::Dropped(DropReason::ConnectionUnknown);
        };
        let space = slot.any().map(|path| &path.space);
        if space.is_none() && paths.lacks_peer_cid(arrival.path) {
            return self.handshake.buffer(arrival, packet);
        }
        let largest_pto = || paths.largest_pto();
        self.handshake
            .open_one_rtt(arrival, packet, space, largest_pto, &mut self.outbox)
    }

    fn handle_one_rtt(
        &mut self,
        arrival: &Arrival,
        opened: &Opened,
        payload: Bytes,
    ) -> Result<(), TransportError> {
        if !self.paths.admit(arrival, &mut self.outbox) {
            let seen = Dropped::one_rtt(opened.size);
            self.outbox
                .drop_packet(arrival.path, seen, DropReason::Rejected);
            return Ok(());
        }
        let is_newest = self.paths.on_packet_opened(opened);
        let content = self.process(arrival, opened, payload)?;
        let is_newest = is_newest && content.non_probing;
        self.paths
            .on_addresses(arrival, is_newest, &mut self.outbox);
        if self.paths.shared.take_address_validated() {
            let validated = self.paths.validated_addresses();
            self.handshake.offer_token(validated, &mut self.random);
        }
        Ok(())
    }

    /// While closing, a CONNECTION_CLOSE of the peer means that ours need not be repeated.
    fn look_for_close(&mut self, arrival: &Arrival, mut data: BytesMut) {
        let cid_length = self.endpoint_config.connection_ids.length();
        if let Ok(mut packet) = header::next_packet(&mut data, cid_length)
            && matches!(packet.header, Header::Short { .. })
            && let Opening::Opened(_, payload) = self.open_one_rtt(arrival, &mut packet)
            && FrameIter::new(payload, self.paths.ids.is_multipath())
                .any(|frame| matches!(frame, Ok(Frame::ConnectionClose(_))))
        {
            // Draining ends when closing would have ended; `drain` keeps that time.
            self.state.stop_answering();
        }
    }
}

/// The last 16 bytes of a datagram, where a stateless reset has its token.
fn reset_token(data: &[u8]) -> Option<[u8; 16]> {
    data.last_chunk().copied()
}
