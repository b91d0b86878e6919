//! Packets bound to a path, without a question to the scheduler: validation, probes, PINGs,
//! acknowledgements. They are planned here and built by the connection.

use std::time::{Duration, Instant};

use quinn_proto::Side;

use super::Path;
use super::set::Paths;
use crate::congestion::Controller;
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::packet::plan::Plan;
use crate::sched::DataSelection;
use crate::space::AckState;
use crate::wire::buf::MIN_DATAGRAM;

/// Size of a datagram with a PATH_CHALLENGE or PATH_RESPONSE and little else, bytes.
const MIN_CHALLENGE: usize = 64;

/// The state of the connection on which planned packets depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanContext<'a> {
    pub(crate) now: Instant,
    pub(crate) controller: &'a dyn Controller,
    /// Larger packets would be useful, even before the first full packet.
    pub(crate) size_matters: bool,
    /// A path on which a test wants to send frames of its own.
    pub(crate) injects: Option<PathId>,
}

impl Path {
    /// True for a path that answers, as far as we know, and has a measured round trip.
    fn can_speak_for_others(&self) -> bool {
        self.is_usable()
            && !self.is_suspect()
            && self.recovery.pto_count() == 0
            && self.recovery.rtt.first_sample().is_some()
    }

    /// A PING, with room for as much data as the path carries.
    fn ping_plan(&self) -> Plan {
        let budget = self.budget_for(self.tuple.four_tuple);
        let mut plan = Plan::new(self.id, self.datagram_size().min(budget));
        plan.ping = true;
        plan
    }

    /// A probe (RFC 9002 section 6.2.4), small enough to pass after a drop of the path's MTU (RFC
    /// 8899 section 4.3).
    fn probe_plan(&mut self) -> Plan {
        self.space.received.repeat_unconfirmed();
        let mut plan = self.ping_plan();
        plan.size = plan.size.min(MIN_DATAGRAM);
        plan.immediate_ack = true;
        plan
    }

    /// A PATH_CHALLENGE or PATH_RESPONSE that is due.
    fn validation_plan(&mut self, cx: &PlanContext<'_>) -> Option<(Plan, FourTuple)> {
        let in_flight = self.recovery.bytes_in_flight() + MIN_DATAGRAM as u64;
        let answered = {
            let mut owed = self.responses.four_tuples();
            owed.find_map(|target| self.affordable(target))
        };
        let (target, budget) = match answered {
            // RFC 9000 section 8.2.2: only congestion control may delay a response.
            Some(answered)
                if in_flight <= cx.controller.window(self.id)
                    || self.responses.may_exceed_window(cx.now) =>
            {
                answered
            }
            _ => self
                .challenged()
                .find_map(|target| self.affordable(target))?,
        };
        let mut plan = Plan::new(self.id, budget.min(MIN_DATAGRAM));
        plan.validation = Some(target);
        plan.probing = self.is_elsewhere(target);
        // RFC 9000 section 8.2.1: at least 1200 bytes, unless the anti-amplification limit forbids
        // it.
        plan.pad = budget >= MIN_DATAGRAM;
        Some((plan, target))
    }

    /// The target and its budget, large enough for a datagram. An address with an exhausted
    /// anti-amplification limit must not hold up others.
    fn affordable(&self, target: FourTuple) -> Option<(FourTuple, usize)> {
        let budget = self.budget_for(target);
        (budget >= MIN_CHALLENGE).then_some((target, budget))
    }

    /// A PING that is due, or an MTU probe.
    fn ping_or_mtu_plan(&mut self, cx: &PlanContext<'_>, established: bool) -> Option<Plan> {
        if cx.injects == Some(self.id) || std::mem::take(&mut self.ping) {
            self.space.received.repeat_unconfirmed();
            return Some(self.ping_plan());
        }
        // Most connections are short, so MTU probes are sent only with a use for larger packets.
        let wanted = self.filled_packet || cx.size_matters;
        if !established || !self.tuple.validated || self.is_suspect() || !wanted {
            return None;
        }
        let probe = self.mtu.probe_size(cx.now)?;
        let in_flight = self.recovery.bytes_in_flight() + u64::from(probe);
        (in_flight <= cx.controller.window(self.id)).then(|| {
            let mut plan = self.ping_plan();
            plan.size = usize::from(probe);
            plan.pad = true;
            plan.mtu_probe = true;
            plan.immediate_ack = true;
            plan
        })
    }
}

impl Paths {
    /// The next packet bound to the path at this index: validation, probes that carry data, PINGs,
    /// MTU probes. Of these, only MTU probes wait for the congestion window.
    pub(crate) fn own_plan(
        &mut self,
        index: usize,
        cx: &PlanContext<'_>,
    ) -> Option<(Plan, FourTuple)> {
        let path = self.slots().get(index)?.open()?;
        let probes = path.space.wants_probe() && self.relief_of(path).is_none();
        let established = self.shared.side == Side::Client || self.shared.handshake_confirmed;
        let path = self.slots_mut().get_mut(index)?.open_mut()?;
        if let Some(validation) = path.validation_plan(cx) {
            return Some(validation);
        }
        let four_tuple = path.tuple.four_tuple;
        if probes {
            let mut plan = path.probe_plan();
            plan.data = Some(DataSelection::Next);
            plan.management = true;
            return Some((plan, four_tuple));
        }
        if std::mem::take(&mut path.carries_control) {
            let mut plan = path.probe_plan();
            plan.management = true;
            return Some((plan, four_tuple));
        }
        let plan = path.ping_or_mtu_plan(cx, established)?;
        Some((plan, four_tuple))
    }

    /// A probe of a suspect path whose data another path carries. It has no data; only if no path
    /// answers, it carries control frames.
    pub(crate) fn suspect_plan(
        &mut self,
        index: usize,
        _cx: &PlanContext<'_>,
    ) -> Option<(Plan, FourTuple)> {
        let path = self.slots().get(index)?.open()?;
        let nobody_answers = self.relief_of(path)?.is_suspect();
        let path = self.slots_mut().get_mut(index)?.open_mut()?;
        (path.space.wants_probe()).then(|| {
            let mut plan = path.probe_plan();
            // RFC 9000 section 14.2: without room for a datagram of this size, a path cannot be
            // used.
            plan.pad = true;
            plan.management = nobody_answers;
            (plan, path.tuple.four_tuple)
        })
    }

    /// A due acknowledgement for the path at this index that found no other packet.
    pub(crate) fn ack_plan(
        &mut self,
        index: usize,
        cx: &PlanContext<'_>,
    ) -> Option<(Plan, FourTuple)> {
        let path = self.slots().get(index)?.path.as_deref()?;
        if path.space.received.ack_state(cx.now) != AckState::Due {
            return None;
        }
        let faster = self.review_ack_carrier(index, cx.now);
        let slot = self.slots().get(index)?;
        let path = slot.path.as_deref()?;
        let unconfirmed = path.space.received.wants_confirmation();
        // Acknowledgements keep to one path, their own or a much faster one (MP-153). From an
        // abandoned or suspect path, they move to another path (MP-064).
        let able = slot.abandon.is_none() && !path.is_suspect();
        let carrier = if able {
            faster.or(Some(slot.id))
        } else {
            self.alternative(slot.id)
        };
        let carrier = carrier.or(slot.abandon.is_none().then_some(slot.id))?;
        if able && faster.is_some() {
            let round_trip = self.open(carrier)?.recovery.rtt.smoothed();
            let path = self.slots_mut().get_mut(index)?.open_mut()?;
            if let Some(until) = path.ack_carrier.leave(cx.now, round_trip) {
                path.space.received.postpone(until);
                return None;
            }
        }
        let path = self.open(carrier)?;
        let four_tuple = path.tuple.four_tuple;
        let size = path.datagram_size();
        let mut plan = Plan::new(carrier, size.min(path.budget_for(four_tuple)));
        plan.orphan_acks = true;
        let in_flight = path.recovery.bytes_in_flight() + size as u64;
        // A carrier of another path's acknowledgements must answer all the time: after its silence,
        // the acknowledgements must soon find another path.
        let unheard = able && faster.is_some() && path.space.sent.ack_eliciting() == 0;
        let own = path.space.received.wants_confirmation();
        plan.ping = (unconfirmed || own || unheard) && in_flight <= cx.controller.window(carrier);
        Some((plan, four_tuple))
    }

    /// Chooses where the acknowledgements of the path at this index travel; `None` if on itself.
    fn review_ack_carrier(&mut self, index: usize, now: Instant) -> Option<PathId> {
        let path = self.slots().get(index)?.open()?;
        let id = path.id;
        let own = path.recovery.rtt.smoothed();
        let may_leave = self.ids.is_multipath()
            && self.shared.handshake_complete
            && self.shared.config.ack_on_fastest_path
            && path.recovery.rtt.first_sample().is_some();
        let mut others = smallvec::SmallVec::<[(PathId, Duration); 4]>::new();
        for slot in self.slots() {
            // Backup paths are for emergencies, so they do not carry other paths' acknowledgements.
            if let Some(path) = slot.open()
                && may_leave
                && path.id != id
                && path.can_speak_for_others()
                && slot.statuses().effective() == PathStatus::Available
            {
                others.push((path.id, path.recovery.rtt.smoothed()));
            }
        }
        let path = self.slots_mut().get_mut(index)?.open_mut()?;
        path.ack_carrier.review(now, own, &others);
        path.ack_carrier.path()
    }

    /// The path that carries the data of a suspect path meanwhile, if any.
    fn relief_of(&self, path: &Path) -> Option<&Path> {
        if !path.is_suspect() {
            return None;
        }
        self.open(self.alternative(path.id)?)
    }
}
