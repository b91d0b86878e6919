//! `poll_transmit`: the next datagrams, in this order:
//!
//! 1. CONNECTION_CLOSE
//! 2. Initial and Handshake packets
//! 3. packets bound to a path: validation, probes, PING
//! 4. data for any path, on the path of the scheduler's choice
//! 5. probes of suspect paths, without data
//! 6. acknowledgements left over by other packets

use std::time::Instant;

use super::{Connection, State};
use crate::event::Event;
use crate::handshake::Handshake;
use crate::ids::{FourTuple, SpaceId};
use crate::packet::Transmit;
use crate::packet::builder::{PacketBuilder, PacketStart};
use crate::packet::delivery::Delivery;
use crate::packet::plan::{Begun, Plan};
use crate::packet::writer::FrameWriter;
use crate::path::planning::PlanContext;
use crate::path::set::Paths;
use crate::path::view::Allowance;
use crate::sched::DataSelection;
use crate::scheduling::assignment::Assignment;
use crate::scheduling::host::Demand;
use crate::scheduling::parts::Parts;
use crate::space::SentPacket;
use crate::wire::frame::Frame;
use crate::wire::header::PacketHeader;

/// Packets are padded by up to this many bytes to keep a GSO train going.
const MAX_ALIGNMENT: usize = 64;

/// A packet that was built.
#[derive(Debug, Clone, Copy)]
struct Built {
    size: usize,
    ack_eliciting: bool,
}

/// Asks the path at an index for a packet that is bound to it.
type Planner = fn(&mut Paths, usize, &PlanContext<'_>) -> Option<(Plan, FourTuple)>;

impl Connection {
    /// Fills `buf` (cleared by the caller) with datagrams for one four-tuple: up to `max_datagrams`
    /// of the same size, the last one possibly smaller. Call until it returns `None`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.outbox.set_time(now);
        let transmit = match self.state {
            State::Open => self.transmit_open(now, max_datagrams, buf),
            State::Closing(_) => {
                let begun = self.begin_with_close(now, buf)?;
                self.complete(now, &begun, buf)
            }
            State::Concealed(_) | State::Draining(_) | State::Drained => None,
        }?;
        let datagrams = transmit
            .segment_size
            .map_or(1, |segment| transmit.size.div_ceil(segment.max(1)));
        self.outbox.stats.datagrams_sent += datagrams as u64;
        self.outbox.stats.bytes_sent += transmit.size as u64;
        Some(transmit)
    }

    fn transmit_open(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let max_datagrams = max_datagrams.clamp(1, self.config.max_transmit_segments);
        if self.handshake.has_levels()
            && let Some(begun) = self.begin_with_handshake(now, self.has_demand(), buf)
            && let Some(transmit) = self.complete(now, &begun, buf)
        {
            return Some(transmit);
        }
        // RFC 9001 section 5.7: a server may send 1-RTT before the handshake is complete.
        if !self.handshake.has_one_rtt_keys() {
            // 0-RTT, with its keys
            self.handshake.sealer()?;
            return self.transmit_scheduled(now, max_datagrams, buf);
        }
        if self.handshake.wants_key_update() {
            self.handshake.initiate_key_update(now, &mut self.outbox);
        }
        self.transmit_planned(now, Paths::own_plan, buf)
            .or_else(|| self.transmit_scheduled(now, max_datagrams, buf))
            // After the data, because both may share a queue with little room, and data is more
            // important.
            .or_else(|| self.transmit_planned(now, Paths::suspect_plan, buf))
            .or_else(|| self.transmit_planned(now, Paths::ack_plan, buf))
    }

    /// Adds the 1-RTT packet that is to follow others in a datagram.
    fn complete(&mut self, now: Instant, begun: &Begun, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(plan) = &begun.follow {
            let _no_room_is_fine = self.build_packet(now, plan, buf);
        }
        if buf.is_empty() {
            return None;
        }
        let Begun {
            path, four_tuple, ..
        } = *begun;
        self.paths.on_datagrams_sent(path, four_tuple, buf.len());
        Some(Transmit::single(path, four_tuple, buf))
    }

    /// Sends one datagram for the first path with a packet of this kind.
    fn transmit_planned(
        &mut self,
        now: Instant,
        planner: Planner,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mut next = 0;
        while let Some(index) = self.paths.next_path(next) {
            next = index + 1;
            let cx = PlanContext {
                now,
                controller: &self.outbox.controller,
                size_matters: self.datagrams.size_matters(),
                #[cfg(feature = "testing")]
                injects: self.injected.wanted_path(),
                #[cfg(not(feature = "testing"))]
                injects: None,
            };
            if let Some((plan, four_tuple)) = planner(&mut self.paths, index, &cx)
                && let Some(built) = self.build_packet(now, &plan, buf)
            {
                self.paths
                    .on_datagrams_sent(plan.path, four_tuple, built.size);
                return Some(Transmit::single(plan.path, four_tuple, buf));
            }
        }
        None
    }

    /// Sends what the scheduler decides.
    fn transmit_scheduled(
        &mut self,
        now: Instant,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let frames = self.has_control_frames();
        let control = frames || self.datagrams.wants_to_send();
        let mut demand = Demand {
            any: control || self.streams.can_send_data(),
            control,
            frames,
            again: false,
        };
        loop {
            let mut parts = Parts {
                paths: &mut self.paths,
                streams: &mut self.streams,
                datagrams: &mut self.datagrams,
                outbox: &mut self.outbox,
            };
            let (assignment, allowance) = self.scheduling.assign(now, demand, &mut parts)?;
            let transmit = self.transmit_train(now, &assignment, &allowance, max_datagrams, buf);
            if transmit.is_some() {
                return transmit;
            }
            demand.again = true;
        }
    }

    /// Fills a train of datagrams on the path of an assignment, within the limits of the path and
    /// the scheduler's budget.
    fn transmit_train(
        &mut self,
        now: Instant,
        assignment: &Assignment,
        allowance: &Allowance,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let (id, size, ecn) = (assignment.path, allowance.size, allowance.ecn);
        let (unsent, sent) = (self.streams.unsent(), self.datagrams.sent_bytes());
        let budget = allowance.bytes.min(assignment.max_bytes.max(size as u64));
        let datagrams = usize::try_from(budget / size as u64).unwrap_or(max_datagrams);
        let mut plan = assignment.plan(allowance);
        let count = self.build_train(now, &mut plan, datagrams.clamp(1, max_datagrams), buf);
        if count == 0 {
            return None;
        }
        self.paths
            .on_datagrams_sent(id, allowance.four_tuple, buf.len());
        self.outbox.train.bytes = buf.len() as u64;
        let new_datagrams = self.datagrams.sent_bytes() - sent;
        self.outbox.train.new = unsent.saturating_sub(self.streams.unsent()) + new_datagrams;
        Some(Transmit {
            path: Some(id),
            four_tuple: allowance.four_tuple,
            ecn,
            size: buf.len(),
            segment_size: (count > 1).then_some(plan.size),
        })
    }

    /// Appends equal packets until no data is left; returns their number.
    fn build_train(
        &mut self,
        now: Instant,
        plan: &mut Plan,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> usize {
        let (full_size, mut filled, mut count) = (plan.size, false, 0);
        plan.management = self.wants_management();
        while count < max_datagrams {
            let Some(built) = self.build_packet(now, plan, buf) else {
                break;
            };
            count += 1;
            filled |= built.size >= full_size;
            plan.management = plan.management && self.wants_management();
            if count == 1 && self.datagrams.waits_for(plan.bound.then_some(plan.path)) {
                // The next DATAGRAM did not fit: packets of this size follow in the same train.
                plan.size = built.size;
                plan.align = true;
            }
            let goes_on = match &plan.data {
                Some(DataSelection::Next) => self.has_demand(),
                Some(DataSelection::Datagram) => self.datagrams.wants_to_send() && !plan.copied,
                Some(DataSelection::DatagramsBehind(bytes)) => self.datagrams.unsent() > *bytes,
                Some(_) => false,
                None => self.datagrams.has_bound(plan.path) || self.streams.has_bound(plan.path),
            };
            if built.size != plan.size || !built.ack_eliciting || !goes_on {
                break;
            }
        }
        if filled && let Some(path) = self.paths.any_mut(plan.path) {
            path.on_filled_packet();
        }
        count
    }

    /// Appends one 1-RTT packet to `buf` and records the packet as sent.
    fn build_packet(&mut self, now: Instant, plan: &Plan, buf: &mut Vec<u8>) -> Option<Built> {
        let start = buf.len();
        let builder = self.start_packet(plan, start + plan.size, buf)?;
        let mut counts = std::mem::take(&mut self.outbox.stats.frames_sent);
        let mut writer = builder.writer(buf, &mut counts);
        self.write_frames(&mut writer, now, plan);
        let ack_eliciting = writer.is_ack_eliciting();
        let deliveries = writer.into_deliveries();
        self.outbox.stats.frames_sent = counts;
        if builder.is_empty(buf) {
            builder.abandon(buf);
            return None;
        }
        let align = plan.align
            && ack_eliciting
            && self.datagrams.waits_for(plan.bound.then_some(plan.path))
            && builder.sealed_size(buf) + MAX_ALIGNMENT >= plan.size;
        let pad_to = (plan.pad || align).then_some(start + plan.size);
        if self.outbox.log.is_on()
            && let Some(header) = packet_header(&self.paths, &mut self.handshake, plan)
        {
            let (log, multipath) = (&mut self.outbox.log, self.paths.ids.is_multipath());
            log.packet_sent(&header, &builder, buf, pad_to, multipath);
        }
        let (size, generation) = self.handshake.sealer()?.seal(builder, buf, pad_to);
        let mut packet = SentPacket::new(now, u16::try_from(size).unwrap_or(u16::MAX));
        packet.ack_eliciting = ack_eliciting;
        packet.in_flight = ack_eliciting || plan.pad;
        packet.ecn_marked = plan.ecn.is_some();
        packet.mtu_probe = plan.mtu_probe;
        packet.key_phase_generation = generation;
        packet.tag = plan.tag;
        if plan.copied || plan.is_repeat {
            self.outbox.train.content.clear();
            self.outbox.train.content.extend(&deliveries);
        }
        if self.streams.has_redundant() && !plan.is_repeat {
            let redundant = self.streams.redundant_of(&deliveries);
            let wanted = redundant.map(|delivery| (plan.path, delivery));
            self.outbox.train.wanted.extend(wanted);
        }
        packet.deliveries = deliveries;
        if ack_eliciting {
            self.idle.on_ack_eliciting_sent(now);
        }
        if let Some(path) = self.paths.any_mut(plan.path) {
            path.on_packet_sent(packet, &mut self.outbox);
        }
        Some(Built {
            size,
            ack_eliciting,
        })
    }

    /// Starts a packet of a path, up to the position `limit` in `buf`, unless its packet numbers
    /// are used up.
    fn start_packet(
        &mut self,
        plan: &Plan,
        limit: usize,
        buf: &mut Vec<u8>,
    ) -> Option<PacketBuilder> {
        let path = self.paths.any(plan.path)?;
        let dcid = *path.destination(plan.validation)?;
        if !path.space.has_numbers() {
            return None;
        }
        let sealer = self.handshake.sealer()?;
        let start = PacketStart {
            header: &sealer.header(dcid, path.spin()),
            space: SpaceId::Data(plan.path),
            packet_number: path.space.next_packet_number(),
            largest_acked: path.space.largest_acked(),
            tag_length: sealer.tag_length(),
            limit,
            // RFC 9287 section 3
            clear_quic_bit: self.paths.shared.may_clear_quic_bit() && self.scheduling.toss(),
        };
        PacketBuilder::start(buf, start)
    }

    /// Writes frames in order of urgency.
    fn write_frames(&mut self, writer: &mut FrameWriter<'_>, now: Instant, plan: &Plan) {
        let id = plan.path;
        let acked = !plan.mtu_probe
            && !plan.probing
            && self.paths.write_acks(writer, now, id, plan.orphan_acks);
        if let Some(to) = plan.validation {
            self.paths.write_validation(writer, now, id, to, plan.pad);
        }
        self.state.write_close(writer);
        #[cfg(feature = "testing")]
        self.injected.write(writer, SpaceId::Data(id));
        if plan.management && self.handshake.may_send_one_rtt() {
            self.handshake.write_frames(writer);
            self.paths.write_frames(writer, id, &mut self.outbox);
        }
        match &plan.data {
            // What any path may carry, the most urgent first.
            Some(DataSelection::Next) => {
                self.handshake.write_crypto(writer);
                self.streams.write_control(writer);
                self.datagrams
                    .write_beside(&mut self.streams, writer, (now, id), plan.max_data);
            }
            Some(DataSelection::Datagram) => {
                self.datagrams.write_frames(writer, now, id, plan.copied);
            }
            Some(DataSelection::DatagramsBehind(bytes)) => {
                self.datagrams.write_behind(writer, now, id, *bytes);
            }
            Some(selection) => {
                self.streams.write_data(writer, selection, plan.max_data);
            }
            None if plan.bound => {
                self.handshake.write_crypto(writer);
                self.streams.write_control(writer);
                self.datagrams.write_bound(writer, now, id);
                self.streams.write_bound(writer, id);
            }
            None => {}
        }
        if self.datagrams.take_unblocked() {
            self.outbox.event(Event::DatagramsUnblocked);
        }
        if plan.immediate_ack && self.paths.shared.ack_frequencies.peer_answers_at_once() {
            let _no_room_is_fine = writer.try_write(&Frame::ImmediateAck, Delivery::Nothing);
        }
        if plan.ping && !writer.is_ack_eliciting() {
            let _no_room_is_fine = writer.try_write(&Frame::Ping, Delivery::Nothing);
        }
        if acked && writer.is_ack_eliciting() {
            self.paths.on_confirmation_requested(id, plan.orphan_acks);
        }
    }

    /// True if data for any path waits. Every packet asks, so the likeliest kind is checked first.
    fn has_demand(&self) -> bool {
        self.streams.can_send_data() || self.datagrams.wants_to_send() || self.has_control_frames()
    }

    /// True if frames that may travel on any path wait, besides STREAM and DATAGRAM frames.
    fn has_control_frames(&self) -> bool {
        self.streams.wants_control()
            || self.handshake.wants_to_send_crypto()
            || self.wants_management()
    }

    /// True if control frames wait to be sent.
    fn wants_management(&self) -> bool {
        self.handshake.wants_to_send_frames() || self.paths.wants_to_send()
    }
}

/// The header of a packet, unless its path has no connection ID for its addresses.
fn packet_header(paths: &Paths, handshake: &mut Handshake, plan: &Plan) -> Option<PacketHeader> {
    let path = paths.any(plan.path)?;
    let dcid = *path.destination(plan.validation)?;
    Some(handshake.sealer()?.header(dcid, path.spin()))
}
