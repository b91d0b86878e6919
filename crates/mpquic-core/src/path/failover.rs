//! Failover: after a probe timeout a path is suspect. Its content is sent on the other paths at
//! once, and the path is used again with its next answer.

use std::time::Instant;

use super::Path;
use super::set::Paths;
use super::slot::PathSlot;
use crate::event::ClosedPath;
use crate::ids::{FourTuple, PathId, PathStatus};
use crate::outbox::Outbox;
use crate::packet::delivery::{Delivery, StreamDelivery};

/// Number of packets whose content a probe of the only path repeats.
const PROBE_PACKETS: usize = 2;

impl Path {
    /// Queues the content of unacknowledged packets for other paths, once for each packet. The
    /// packets stay in flight: their own acknowledgement counts like an acknowledgement of the
    /// copy.
    pub(super) fn reinject(&mut self, outbox: &mut Outbox) {
        for (_, packet) in self.space.sent.iter_mut() {
            if packet.reinjected || packet.mtu_probe {
                continue;
            }
            packet.reinjected = true;
            outbox.stats.bytes_reinjected += u64::from(packet.bytes);
            outbox.repeat(packet.deliveries.iter().copied());
        }
    }

    /// Bounds the memory for packets of a path that never answers.
    fn forget_unanswered(&mut self, outbox: &mut Outbox) {
        for packet in self.recovery.forget_unanswered(&mut self.space) {
            if !packet.reinjected {
                outbox.repeat(packet.deliveries);
            }
        }
    }

    /// The only path is silent: its probes repeat the oldest content (RFC 9002 section 6.2.4) and
    /// the current state of every control frame in flight. The peer may hear us although we do not
    /// hear it, and may be waiting for one of them, for example for the PATH_ABANDON of another
    /// path. The data of so many packets is repeated.
    fn repeat_content(&self, with_data: usize, outbox: &mut Outbox) {
        let packets = self.space.sent.iter();
        let eliciting = packets.filter(|(_, packet)| packet.ack_eliciting);
        for (age, (_, packet)) in eliciting.enumerate() {
            let is_data = |delivery: &Delivery| {
                matches!(delivery, Delivery::Stream(StreamDelivery::Data { .. }))
            };
            let of_packet = packet.deliveries.iter().copied();
            outbox.repeat(of_packet.filter(|of| age < with_data || !is_data(of)));
        }
    }
}

impl Paths {
    /// A probe timeout passed on an open path.
    pub(crate) fn on_silent(&mut self, id: PathId, outbox: &mut Outbox) {
        let is_alone = self.alternative(id).is_none();
        let [stretch] = self.shared.random.bytes();
        let Some(path) = self.open_mut(id) else {
            return;
        };
        path.forget_unanswered(outbox);
        if is_alone {
            path.repeat_content(PROBE_PACKETS, outbox);
            return;
        }
        path.probe_stretch = stretch;
        path.liveness.on_silent(id, outbox);
        path.reinject(outbox);
        self.review_backups();
    }

    /// A probe timeout passed in a packet number space of the handshake. Once a client has 1-RTT
    /// keys, a 1-RTT packet goes along: a server for which the handshake is over has discarded the
    /// keys of all others, and might not learn otherwise that the client has another address by
    /// now.
    ///
    /// The link of path 0 may be dead. Without the client's last message the server can open no
    /// packet of the other paths, which the client has opened since, so each of them repeats the
    /// message from its addresses. Path 0 stays where it is (RFC 9000 section 9).
    pub(crate) fn on_handshake_probe(&mut self, id: PathId) {
        if !self.shared.handshake_complete {
            return;
        }
        for path in self.iter_mut() {
            path.repeats_handshake = path.id != id;
        }
        if let Some(path) = self.open_mut(id) {
            path.request_ping();
        }
    }

    /// Server: a Handshake packet of the client proves the client's address (RFC 9000 section 8.1).
    /// For another address than path 0's, the link of path 0 may be dead: path 0 must prove its own
    /// address.
    pub(crate) fn on_handshake_packet(&mut self, from: FourTuple, now: Instant) {
        let initial_pto = self.shared.config.initial_pto();
        let pto = self.shared.peer_max_ack_delay();
        let Some(path) = self.any_mut(PathId::ZERO) else {
            return;
        };
        if path.tuple.four_tuple.matches(&from) {
            path.set_validated();
        } else if !path.tuple.validated {
            let pto = path.recovery.pto(pto);
            path.tuple.validation.start(now, pto, initial_pto);
        }
    }

    /// The path between whose addresses Handshake packets leave now.
    pub(crate) fn handshake_path(&self) -> Option<&Path> {
        let chosen = self.open(self.shared.handshake_path);
        chosen.or_else(|| self.open(PathId::ZERO))
    }

    /// All Handshake packets that were due have left. True if another path is to repeat them. A
    /// 1-RTT packet with the control frames follows that nobody has acknowledged: without a
    /// connection ID of the client the server can open no path.
    pub(crate) fn take_next_handshake_path(&mut self, outbox: &mut Outbox) -> bool {
        if self.iter().any(|path| path.carries_control) {
            return false; // It leaves first.
        }
        let next = self.iter_mut().find(|path| path.repeats_handshake);
        let Some(path) = next else {
            self.shared.handshake_path = PathId::ZERO;
            return false;
        };
        path.repeats_handshake = false;
        path.carries_control = true;
        self.shared.handshake_path = path.id;
        if let Some(first) = self.open(PathId::ZERO) {
            first.repeat_content(0, outbox);
        }
        true
    }

    /// An acknowledgement of an open path's packets arrived, perhaps of bare acknowledgements
    /// alone.
    #[inline]
    pub(crate) fn on_answered(&mut self, id: PathId, outbox: &mut Outbox) {
        if let Some(path) = self.open_mut(id)
            && !path.recovery.is_silent()
            && path.liveness.on_answered(id, outbox)
        {
            self.review_backups();
        }
    }

    /// The driver reports the loss or the return of a path's interface. A path without interface is
    /// suspect at once.
    pub(crate) fn set_interface_up(
        &mut self,
        id: PathId,
        up: bool,
        outbox: &mut Outbox,
    ) -> Result<(), ClosedPath> {
        let path = self.open_mut(id).ok_or(ClosedPath)?;
        path.liveness.set_interface_up(up, id, outbox);
        if up {
            path.request_ping();
        } else {
            path.reinject(outbox);
            self.review_backups();
        }
        Ok(())
    }

    /// While no available path answers, backup paths stand in: the peer is told that backup paths
    /// are available (MP-115).
    pub(super) fn review_backups(&mut self) {
        let mut available = self
            .slots()
            .iter()
            .filter(|slot| slot.statuses().wish() == PathStatus::Available)
            .filter_map(PathSlot::open)
            .filter(|path| path.is_usable())
            .peekable();
        let stand_in = available.peek().is_some() && available.all(Path::is_suspect);
        for slot in self.slots_mut() {
            let works = |path: &Path| path.is_usable() && !path.is_suspect();
            let stands_in = stand_in && slot.open().is_some_and(works);
            slot.statuses_mut().stand_in(stands_in);
        }
    }
}
