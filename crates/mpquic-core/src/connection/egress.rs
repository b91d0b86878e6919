//! `poll_transmit`: what leaves next and in which order.
//!
//! 1. CONNECTION_CLOSE
//! 2. Initial and Handshake packets
//! 3. what is bound to a path: validation, probes, PING
//! 4. movable data, where the scheduler says
//! 5. probes of suspect paths, which carry nothing
//! 6. acknowledgements that found nothing to ride on

use std::time::Instant;

use quinn_proto::{EcnCodepoint, Side};

use super::movable::Order;
use super::packet::Plan;
use super::{Closing, Connection};
use crate::congestion::Controller as _;
use crate::ids::{FourTuple, PathId};
use crate::packet::Transmit;
use crate::path::{MIN_DATAGRAM, Path};
use crate::sched::DataSelection;
use crate::space::AckState;

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
        let transmit = match self.closing {
            Closing::Open => self.transmit_open(now, max_datagrams, buf),
            Closing::Announced(_) => self.transmit_close(now, buf),
            Closing::Draining(_) | Closing::Drained => None,
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
        let max_datagrams = max_datagrams.clamp(1, self.config.max_transmit_segments.max(1));
        if let Some(transmit) = self.transmit_handshake(now, buf) {
            return Some(transmit);
        }
        // RFC 9001 section 5.7: a server may send 1-RTT before the handshake is complete.
        if self.handshake.one_rtt.is_none() {
            // 0-RTT, if there are keys
            self.handshake.sealing()?;
            return self.transmit_movable(now, max_datagrams, buf);
        }
        self.update_keys_if_needed(now);
        self.transmit_bound(now, Self::bound_plan, buf)
            .or_else(|| self.transmit_movable(now, max_datagrams, buf))
            // After the data: where both share a queue with little room, the data gets it.
            .or_else(|| self.transmit_bound(now, Self::suspect_plan, buf))
            .or_else(|| self.transmit_acks(now, buf))
    }

    fn update_keys_if_needed(&mut self, now: Instant) {
        if self
            .handshake
            .one_rtt
            .as_ref()
            .is_some_and(|keys| keys.wants_update())
        {
            self.initiate_key_update(now);
        }
    }

    /// What paths have to send themselves, which is not the scheduler's business: the first of them for
    /// which `plan_of` knows something.
    fn transmit_bound(
        &mut self,
        now: Instant,
        plan_of: impl Fn(&mut Self, Instant, PathId) -> Option<(Plan, FourTuple)>,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        for index in 0..self.paths.slots().len() {
            let Some(id) = self.paths.slots().get(index).map(|slot| slot.id) else {
                break;
            };
            if let Some((plan, four_tuple)) = plan_of(self, now, id)
                && let Some(transmit) = self.transmit_one(now, &plan, four_tuple, buf)
            {
                return Some(transmit);
            }
        }
        None
    }

    /// Where the data of a suspect path is on its way instead (decision D12), if there is another path.
    fn relief_of(&self, id: PathId) -> Option<&Path> {
        let suspect = self.paths.open(id)?.is_suspect();
        let relief = suspect.then(|| self.paths.alternative(id)).flatten()?;
        self.paths.open(relief)
    }

    /// The probe of a suspect path that carries nothing, but what has to be said if no path answers.
    fn suspect_plan(&mut self, _now: Instant, id: PathId) -> Option<(Plan, FourTuple)> {
        let nobody_answers = self.relief_of(id)?.is_suspect();
        let path = self.paths.open(id)?;
        (path.space.probes > 0).then(|| {
            let mut plan = path.probe_plan();
            // RFC 9000 section 14.2: a path that carries less than this is of no use.
            plan.pad = true;
            plan.management = nobody_answers;
            (plan, path.tuple.four_tuple)
        })
    }

    /// Validation, probes that carry data, PINGs and MTU probes.
    fn bound_plan(&mut self, now: Instant, id: PathId) -> Option<(Plan, FourTuple)> {
        let side = self.side;
        let window = self.controller_window(id);
        let relieved = self.relief_of(id).is_some();
        let size_matters = self.datagrams.size_matters();
        let path = self.paths.open_mut(id)?;
        if let Some((four_tuple, full)) = path.challenge_target() {
            let size = path.budget_for(four_tuple).min(MIN_DATAGRAM);
            let mut plan = Plan::new(id, size);
            plan.validation = Some(four_tuple);
            plan.probing = path.is_elsewhere(four_tuple);
            plan.pad = full;
            return Some((plan, four_tuple));
        }
        let four_tuple = path.tuple.four_tuple;
        if path.space.probes > 0 && !relieved {
            let mut plan = path.probe_plan();
            plan.data = Some(DataSelection::Next);
            plan.management = true;
            return Some((plan, four_tuple));
        }
        let mut plan = path.ping_plan();
        #[cfg(feature = "testing")]
        if self.injected.is_wanted(crate::ids::SpaceId::Data(id)) {
            return Some((plan, four_tuple));
        }
        if path.ping {
            path.ping = false;
            return Some((plan, four_tuple));
        }
        let established =
            path.tuple.validated && (side == Side::Client || self.handshake.confirmed);
        // Most connections are short: a probe is worth its bytes once larger packets would be used.
        if established && !path.is_suspect() && (path.filled_packet || size_matters) {
            let probe = path.mtu.probe_size(now)?;
            if path.recovery.bytes_in_flight() + u64::from(probe) <= window {
                plan.size = usize::from(probe);
                plan.pad = true;
                plan.mtu_probe = true;
                plan.immediate_ack = true;
                return Some((plan, four_tuple));
            }
        }
        None
    }

    fn controller_window(&self, id: PathId) -> u64 {
        if self.paths.open(id).is_some() {
            self.outbox.controller.window(id)
        } else {
            0
        }
    }

    /// Sends one datagram according to a plan.
    fn transmit_one(
        &mut self,
        now: Instant,
        plan: &Plan,
        four_tuple: FourTuple,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let built = self.build_packet(now, plan, buf)?;
        if let Some(path) = self.paths.any_mut(plan.path) {
            path.on_datagram_sent(four_tuple, built.size);
        }
        Some(self.transmit_of(plan.path, four_tuple, plan.ecn, buf.len(), None))
    }

    fn transmit_of(
        &self,
        path: PathId,
        four_tuple: FourTuple,
        ecn: Option<EcnCodepoint>,
        size: usize,
        segment_size: Option<usize>,
    ) -> Transmit {
        Transmit {
            path: Some(path),
            four_tuple,
            ecn,
            size,
            segment_size,
        }
    }

    /// Fills a train of datagrams on the path of an order: as many as window, pacer and the
    /// scheduler's budget allow.
    pub(super) fn transmit_batch(
        &mut self,
        now: Instant,
        order: &Order,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let id = order.path;
        let pacing = self.config.pacing;
        let window = self.controller_window(id);
        let rate = self.outbox.controller.pacing_rate(id);
        let path = self.paths.open_mut(id)?;
        let size = path.datagram_size();
        let four_tuple = path.tuple.four_tuple;
        let room = window.saturating_sub(path.recovery.bytes_in_flight());
        let paced = path.pacing_budget(now, window, rate, pacing).ok()?;
        let budget = room.min(paced).min(order.max_bytes.max(size as u64));
        let datagrams = usize::try_from(budget / size as u64).unwrap_or(max_datagrams);
        if room < size as u64 {
            return None;
        }
        let mut plan = Plan::new(id, size);
        plan.ecn = path.recovery.ecn.codepoint();
        plan.data = Some(order.data.clone());
        plan.max_data = order_limit(order);
        plan.tag = order.tag;
        plan.management = self.wants_management();
        let mut filled = false;
        let mut count = 0;
        while count < datagrams.clamp(1, max_datagrams) {
            let Some(built) = self.build_packet(now, &plan, buf) else {
                break;
            };
            count += 1;
            filled |= built.size >= size;
            plan.management = plan.management && self.wants_management();
            if count == 1 && self.datagrams.wants_to_send() {
                // The next payload found no room: others of this size follow in the same train.
                plan.size = built.size;
                plan.align = true;
            }
            let full = built.size == plan.size && built.ack_eliciting;
            if !full || plan.data != Some(DataSelection::Next) || !self.has_movable() {
                break;
            }
        }
        if count == 0 {
            return None;
        }
        if let Some(path) = self.paths.any_mut(id) {
            path.filled_packet |= filled;
            path.on_datagram_sent(four_tuple, buf.len());
        }
        Some(self.transmit_of(
            id,
            four_tuple,
            plan.ecn,
            buf.len(),
            (count > 1).then_some(plan.size),
        ))
    }

    /// Acknowledgements that are due and found no other packet.
    fn transmit_acks(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        for index in 0..self.paths.slots().len() {
            let Some(slot) = self.paths.slots().get(index) else {
                break;
            };
            let Some(path) = slot.path.as_deref() else {
                continue;
            };
            if path.space.received.ack_state(now) != AckState::Due {
                continue;
            }
            // The path itself keeps RTT samples of one path apart (MP-153); one that is abandoned
            // or silent lets another speak for it (MP-064).
            let able = slot.abandon.is_none() && !path.is_suspect();
            let carrier = if able {
                Some(slot.id)
            } else {
                self.paths.alternative(slot.id)
            };
            let Some(carrier) = carrier.or(slot.abandon.is_none().then_some(slot.id)) else {
                continue;
            };
            let window = self.controller_window(carrier);
            let Some(path) = self.paths.open(carrier) else {
                continue;
            };
            let four_tuple = path.tuple.four_tuple;
            let size = path.datagram_size();
            let mut plan = Plan::new(carrier, size.min(path.budget_for(four_tuple)));
            plan.orphan_acks = true;
            plan.ping = path.space.received.wants_confirmation()
                && path.recovery.bytes_in_flight() + size as u64 <= window;
            if let Some(transmit) = self.transmit_one(now, &plan, four_tuple, buf) {
                return Some(transmit);
            }
        }
        None
    }
}

/// Stream bytes one packet of an order may carry.
fn order_limit(order: &Order) -> usize {
    match &order.data {
        DataSelection::Next => usize::MAX,
        DataSelection::Stream(_) | DataSelection::StreamAt { .. } if order.max_bytes == 0 => {
            usize::MAX
        }
        DataSelection::Stream(_) | DataSelection::StreamAt { .. } | DataSelection::Range { .. } => {
            usize::try_from(order.max_bytes)
                .ok()
                .filter(|max| *max > 0)
                .unwrap_or(usize::MAX)
        }
    }
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

    /// Where a challenge or a response is to go, and whether it fills a whole datagram.
    fn challenge_target(&self) -> Option<(FourTuple, bool)> {
        let target = self.responses.next_four_tuple();
        let target = target.or_else(|| self.challenged())?;
        let budget = self.budget_for(target);
        // RFC 9000 section 8.2.1: whole datagrams, unless the 3x limit forbids.
        (budget >= MIN_CHALLENGE).then_some((target, budget >= MIN_DATAGRAM))
    }
}

/// A datagram with a challenge or a response and little else.
const MIN_CHALLENGE: usize = 64;
