//! `poll_transmit`: what is sent next, in this order:
//!
//! 1. CONNECTION_CLOSE
//! 2. Initial and Handshake packets
//! 3. packets bound to a path: validation, probes, PING
//! 4. what any path may carry, on the path that the scheduler chooses
//! 5. probes of suspect paths, which carry no data
//! 6. acknowledgements that no other packet has carried

use std::time::Instant;

use super::scheduling::{Assignment, Demand};
use super::{Connection, State};
use crate::congestion::Controller as _;
use crate::ids::FourTuple;
use crate::packet::Transmit;
use crate::packet::plan::Plan;
use crate::path::Path;
use crate::path::sending::PlanContext;
use crate::path::set::Paths;
use crate::sched::DataSelection;

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
            State::Closing(_) => self.transmit_close(now, buf),
            State::Draining(_) | State::Drained => None,
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
            && let Some(transmit) = self.transmit_handshake(now, buf)
        {
            return Some(transmit);
        }
        // RFC 9001 section 5.7: a server may send 1-RTT before the handshake is complete.
        if !self.handshake.has_one_rtt_keys() {
            // 0-RTT, if there are keys
            self.handshake.sealing()?;
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

    /// Sends one datagram for the first path that has a packet of this kind.
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
        let control = self.has_control();
        let demand = Demand {
            any: control || self.streams.can_send_data(),
            control,
        };
        let (paths, streams, outbox) = (&mut self.paths, &mut self.streams, &mut self.outbox);
        if !self.scheduling.begin(now, demand, paths, streams, outbox) {
            return None;
        }
        let mut transmit = None;
        while transmit.is_none()
            && let Some(copy) = self.scheduling.next_copy(&self.streams)
        {
            transmit = self.transmit_train(now, &copy, 1, buf);
        }
        if transmit.is_none()
            && let Some(assignment) =
                self.scheduling
                    .decide(now, demand, &self.streams, &mut self.outbox)
        {
            transmit = self
                .transmit_train(now, &assignment, max_datagrams, buf)
                .or_else(|| self.transmit_train(now, &assignment.instead()?, 1, buf));
        }
        self.scheduling.end(transmit.is_some());
        transmit
    }

    /// Fills a train of datagrams on the path of an assignment: as many as window, pacer and the
    /// scheduler's budget allow.
    fn transmit_train(
        &mut self,
        now: Instant,
        assignment: &Assignment,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let id = assignment.path;
        let unsent = self.streams.unsent();
        let path = self.paths.open_mut(id)?;
        let four_tuple = path.four_tuple();
        let ecn = path.recovery.ecn.codepoint();
        let size = path.datagram_size();
        let window = self.outbox.controller.window(id);
        let room = window.saturating_sub(path.recovery.bytes_in_flight());
        let rate = self.outbox.controller.pacing_rate(id);
        let paced = path.pacing_budget(now, window, rate, self.config.pacing);
        let budget = room.min(paced.ok()?);
        let budget = budget.min(assignment.max_bytes.max(size as u64));
        if room < size as u64 {
            return None;
        }
        let datagrams = usize::try_from(budget / size as u64).unwrap_or(max_datagrams);
        let mut plan = Plan::new(id, size);
        plan.ecn = ecn;
        plan.data = Some(assignment.data.clone());
        plan.max_data = assignment.bytes_per_packet();
        plan.tag = assignment.tag;
        let count = self.build_train(now, &mut plan, datagrams.clamp(1, max_datagrams), buf);
        if count == 0 {
            return None;
        }
        self.paths.on_datagrams_sent(id, four_tuple, buf.len());
        let new = unsent.saturating_sub(self.streams.unsent());
        let last = self.paths.open(id).and_then(Path::last_sent);
        let content = last.into_iter().flat_map(|packet| &packet.deliveries);
        self.scheduling
            .on_sent(assignment, buf.len() as u64, new, content);
        Some(Transmit {
            path: Some(id),
            four_tuple,
            ecn,
            size: buf.len(),
            segment_size: (count > 1).then_some(plan.size),
        })
    }

    /// Appends equal packets as long as there is something to send; returns how many.
    fn build_train(
        &mut self,
        now: Instant,
        plan: &mut Plan,
        max_datagrams: usize,
        buf: &mut Vec<u8>,
    ) -> usize {
        let full_size = plan.size;
        let mut filled = false;
        let mut count = 0;
        plan.management = self.wants_management();
        while count < max_datagrams {
            let Some(built) = self.build_packet(now, plan, buf) else {
                break;
            };
            count += 1;
            filled |= built.size >= full_size;
            plan.management = plan.management && self.wants_management();
            if count == 1 && self.datagrams.wants_to_send() {
                // The next DATAGRAM did not fit: further packets of this size follow in the same
                // train.
                plan.size = built.size;
                plan.align = true;
            }
            let full = built.size == plan.size && built.ack_eliciting;
            if !full || plan.data != Some(DataSelection::Next) || !self.has_demand() {
                break;
            }
        }
        if filled && let Some(path) = self.paths.any_mut(plan.path) {
            path.on_filled_packet();
        }
        count
    }
}
