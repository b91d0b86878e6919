//! What paths have to send themselves, which is not the scheduler's business: validation, probes,
//! PINGs, acknowledgements. Packets are planned here and built by the connection.

use std::time::Instant;

use quinn_proto::Side;

use super::Path;
use super::set::Paths;
use super::slot::PathSlot;
use crate::congestion::{Controller, Sent};
use crate::ids::{FourTuple, PathId};
use crate::outbox::{Outbox, packet_info};
use crate::packet::plan::Plan;
use crate::packet::writer::FrameWriter;
use crate::recovery::PacketNumberSpace;
use crate::sched::{DataSelection, PathView, SchedulerEvent};
use crate::space::{AckState, SentPacket};
use crate::wire::buf::MIN_DATAGRAM;

/// A datagram with a challenge or a response and little else.
const MIN_CHALLENGE: usize = 64;
/// Our `ack_delay_exponent`: the default.
const ACK_DELAY_EXPONENT: u8 = 3;

/// What paths are told when they are asked for packets of their own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanContext<'a> {
    pub(crate) now: Instant,
    pub(crate) controller: &'a dyn Controller,
    /// Larger packets would be of use even if none was full so far.
    pub(crate) size_matters: bool,
    /// A test wants to send frames of its own on this path.
    pub(crate) injects: Option<PathId>,
}

impl Path {
    /// A packet that must be acknowledged, as large as the path carries.
    fn ping_plan(&self) -> Plan {
        let budget = self.budget_for(self.tuple.four_tuple);
        let mut plan = Plan::new(self.id, self.datagram_size().min(budget));
        plan.ping = true;
        plan
    }

    /// A probe (RFC 9002 section 6.2.4), small enough to tell a dead path from one whose MTU fell (RFC
    /// 8899 section 4.3).
    fn probe_plan(&self) -> Plan {
        let mut plan = self.ping_plan();
        plan.size = plan.size.min(MIN_DATAGRAM);
        plan.immediate_ack = true;
        plan
    }

    /// A challenge or a response that is due.
    fn validation_plan(&self) -> Option<(Plan, FourTuple)> {
        // An address whose budget is used up holds up no other.
        let targets = self.responses.four_tuples().chain(self.challenged());
        let mut targets = targets.map(|target| (target, self.budget_for(target)));
        let (target, budget) = targets.find(|(_, budget)| *budget >= MIN_CHALLENGE)?;
        let mut plan = Plan::new(self.id, budget.min(MIN_DATAGRAM));
        plan.validation = Some(target);
        plan.probing = self.is_elsewhere(target);
        // RFC 9000 section 8.2.1: whole datagrams, unless the 3x limit forbids.
        plan.pad = budget >= MIN_DATAGRAM;
        Some((plan, target))
    }

    /// A PING that is due, or a probe for larger packets.
    fn ping_or_mtu_plan(&mut self, cx: &PlanContext<'_>, established: bool) -> Option<Plan> {
        let mut plan = self.ping_plan();
        if cx.injects == Some(self.id) || std::mem::take(&mut self.ping) {
            return Some(plan);
        }
        // Most connections are short: a probe is worth its bytes once larger packets would be used.
        let wanted = self.filled_packet || cx.size_matters;
        if !established || !self.tuple.validated || self.is_suspect() || !wanted {
            return None;
        }
        let probe = self.mtu.probe_size(cx.now)?;
        let in_flight = self.recovery.bytes_in_flight() + u64::from(probe);
        (in_flight <= cx.controller.window(self.id)).then(|| {
            plan.size = usize::from(probe);
            plan.pad = true;
            plan.mtu_probe = true;
            plan.immediate_ack = true;
            plan
        })
    }

    /// The packet of 1-RTT or 0-RTT sent last.
    pub(crate) fn last_sent(&self) -> Option<&SentPacket> {
        let (_, packet) = self.space.sent.iter().next_back()?;
        Some(packet)
    }

    /// Records an Initial or Handshake packet that was sent on path 0.
    pub(crate) fn on_handshake_packet_sent(
        &mut self,
        space: &mut PacketNumberSpace,
        packet: SentPacket,
        outbox: &mut Outbox,
    ) {
        let mut sent = Sent {
            now: packet.time_sent,
            packet_number: space.take_packet_number(),
            bytes: packet.bytes.into(),
            in_flight: 0,
        };
        let in_flight = packet.in_flight;
        self.recovery
            .on_packet_sent(space, sent.packet_number, packet);
        self.counters.packets_sent += 1;
        if in_flight {
            sent.in_flight = self.recovery.bytes_in_flight();
            outbox.controller.on_packet_sent(self.id, &sent);
        }
    }

    /// Records a 1-RTT or 0-RTT packet that was sent.
    pub(crate) fn on_packet_sent(&mut self, packet: SentPacket, outbox: &mut Outbox) {
        let (now, bytes) = (packet.time_sent, packet.bytes);
        let (in_flight, ack_eliciting) = (packet.in_flight, packet.ack_eliciting);
        let packet_number = self.space.take_packet_number();
        outbox.packet_event(|| SchedulerEvent::Sent(packet_info(self.id, packet_number, &packet)));
        if packet.mtu_probe {
            self.mtu.on_probe_sent(bytes);
        }
        self.recovery
            .on_packet_sent(&mut self.space, packet_number, packet);
        self.counters.packets_sent += 1;
        if ack_eliciting {
            self.last_activity = now;
        }
        if in_flight {
            self.recovery.pacer.on_sent(bytes.into());
            let sent = Sent {
                now,
                packet_number,
                bytes: bytes.into(),
                in_flight: self.recovery.bytes_in_flight(),
            };
            outbox.controller.on_packet_sent(self.id, &sent);
        }
    }
}

impl Paths {
    /// The next packet that the path in this place has to send itself: validation, probes that
    /// carry data, PINGs, MTU probes. Nothing waits for the congestion window but the last.
    pub(crate) fn own_plan(
        &mut self,
        index: usize,
        cx: &PlanContext<'_>,
    ) -> Option<(Plan, FourTuple)> {
        let id = self.slots().get(index)?.id;
        let relieved = self.relief_of(id).is_some();
        let established = self.shared.side == Side::Client || self.shared.handshake_confirmed;
        let path = self.open_mut(id)?;
        if let Some(validation) = path.validation_plan() {
            return Some(validation);
        }
        let four_tuple = path.tuple.four_tuple;
        if path.space.wants_probe() && !relieved {
            let mut plan = path.probe_plan();
            plan.data = Some(DataSelection::Next);
            plan.management = true;
            return Some((plan, four_tuple));
        }
        let plan = path.ping_or_mtu_plan(cx, established)?;
        Some((plan, four_tuple))
    }

    /// The probe of a suspect path that carries nothing, but what has to be said if no path answers.
    pub(crate) fn suspect_plan(
        &mut self,
        index: usize,
        _cx: &PlanContext<'_>,
    ) -> Option<(Plan, FourTuple)> {
        let id = self.slots().get(index)?.id;
        let nobody_answers = self.relief_of(id)?.is_suspect();
        let path = self.open(id)?;
        (path.space.wants_probe()).then(|| {
            let mut plan = path.probe_plan();
            // RFC 9000 section 14.2: a path that carries less than this is of no use.
            plan.pad = true;
            plan.management = nobody_answers;
            (plan, path.tuple.four_tuple)
        })
    }

    /// An acknowledgement that is due on the path in this place and found no other packet.
    pub(crate) fn ack_plan(
        &mut self,
        index: usize,
        cx: &PlanContext<'_>,
    ) -> Option<(Plan, FourTuple)> {
        let slot = self.slots().get(index)?;
        let path = slot.path.as_deref()?;
        if path.space.received.ack_state(cx.now) != AckState::Due {
            return None;
        }
        // The path itself keeps RTT samples of one path apart (MP-153); one that is abandoned
        // or silent lets another speak for it (MP-064).
        let able = slot.abandon.is_none() && !path.is_suspect();
        let carrier = if able {
            Some(slot.id)
        } else {
            self.alternative(slot.id)
        };
        let carrier = carrier.or(slot.abandon.is_none().then_some(slot.id))?;
        let path = self.open(carrier)?;
        let four_tuple = path.tuple.four_tuple;
        let size = path.datagram_size();
        let mut plan = Plan::new(carrier, size.min(path.budget_for(four_tuple)));
        plan.orphan_acks = true;
        let in_flight = path.recovery.bytes_in_flight() + size as u64;
        plan.ping =
            path.space.received.wants_confirmation() && in_flight <= cx.controller.window(carrier);
        Some((plan, four_tuple))
    }

    /// The path that carries a suspect path's data meanwhile, if any.
    fn relief_of(&self, id: PathId) -> Option<&Path> {
        let suspect = self.open(id)?.is_suspect();
        let relief = suspect.then(|| self.alternative(id)).flatten()?;
        self.open(relief)
    }

    /// Acknowledges what came in on a path; with `orphans` also for paths that cannot speak for
    /// themselves. True if the path's own acknowledgement is among what was written.
    pub(crate) fn write_acks(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        id: PathId,
        orphans: bool,
    ) -> bool {
        // MP-003, MP-061: PATH_ACK once multipath is in effect.
        let named = self.ids.is_multipath() && self.shared.handshake_complete;
        if !orphans {
            let path = self.any_mut(id);
            return path.is_some_and(|path| path.write_ack(writer, now, named));
        }
        let mut acked = false;
        for slot in self.slots_mut() {
            let is_abandoned = slot.abandon.is_some();
            if let PathSlot {
                path: Some(path), ..
            } = slot
                && (path.id == id || is_abandoned || path.is_suspect())
            {
                acked |= path.write_ack(writer, now, named) && path.id == id;
            }
        }
        acked
    }

    /// Challenges and responses for these addresses.
    pub(crate) fn write_validation(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        id: PathId,
        to: FourTuple,
        full_size: bool,
    ) {
        let data = self.shared.random.bytes();
        if let Some(path) = self.open_mut(id) {
            path.responses.write_frames(writer, &to);
            let tuples = path.tuples_mut();
            for tuple in tuples.filter(|tuple| tuple.four_tuple == to) {
                tuple.validation.write_frames(writer, now, data, full_size);
            }
        }
    }

    /// Datagrams of a path left for these addresses.
    pub(crate) fn on_datagrams_sent(&mut self, id: PathId, to: FourTuple, bytes: usize) {
        if let Some(path) = self.any_mut(id) {
            path.on_datagram_sent(to, bytes);
        }
    }

    /// What a scheduler sees of each usable path.
    pub(crate) fn fill_views(
        &mut self,
        now: Instant,
        controller: &dyn Controller,
        views: &mut Vec<PathView>,
    ) {
        let pacing = self.shared.config.pacing;
        for slot in self.slots_mut() {
            let status = slot.statuses().effective();
            if let Some(path) = slot.open_mut().filter(|path| path.is_usable()) {
                views.push(path.view(status, now, controller, pacing));
            }
        }
    }

    /// The windows had room and nothing used it (RFC 9002 section 7.8).
    pub(crate) fn note_app_limited(&mut self, controller: &dyn Controller) {
        for path in self.iter_mut() {
            let used = path.recovery.bytes_in_flight() + u64::from(path.mtu.mtu());
            if used <= controller.window(path.id) {
                path.recovery.set_app_limited();
            }
        }
    }
}

impl Path {
    /// Acknowledges what came in, if anything waits for that.
    fn write_ack(&mut self, writer: &mut FrameWriter<'_>, now: Instant, named: bool) -> bool {
        let named = named.then_some(self.id);
        let received = &mut self.space.received;
        received.ack_state(now) != AckState::None
            && received.write_ack(writer, now, named, ACK_DELAY_EXPONENT)
    }
}
