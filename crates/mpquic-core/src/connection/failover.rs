//! Failover: a path is suspect after a probe timeout; what it carries leaves on the
//! other paths at once, and the path is used again when it answers.

use super::Connection;
use crate::ids::{PathId, PathStatus, SpaceId};
use crate::packet::delivery::{Delivery, Fate, StreamDelivery};
use crate::path::Path;
use crate::path::set::Slot;

/// Packets whose content a probe of the only path repeats.
const PROBE_PACKETS: usize = 2;

impl Connection {
    /// A probe timeout passed on an open path.
    pub(super) fn on_path_silent(&mut self, id: PathId) {
        self.forget_unanswered(id);
        if self.paths.alternative(id).is_some() {
            self.suspect(id);
        } else {
            self.repeat_content(id);
        }
    }

    /// Bounds what is kept of a path that never answers.
    fn forget_unanswered(&mut self, id: PathId) {
        let mut deliveries = std::mem::take(&mut self.requeued);
        if let Some(path) = self.paths.open_mut(id) {
            for packet in path.recovery.forget_unanswered(&mut path.space) {
                if !packet.reinjected {
                    deliveries.extend(packet.deliveries);
                }
            }
        }
        self.requeue(deliveries);
    }

    /// Marks a path suspect and moves its data.
    fn suspect(&mut self, id: PathId) {
        let Some(path) = self.paths.open_mut(id) else {
            return;
        };
        path.on_silent(&mut self.outbox);
        self.review_backups();
        self.reinject(id);
    }

    /// An acknowledgement proves that the path works again.
    pub(super) fn recover(&mut self, id: PathId) {
        if let Some(path) = self.paths.open_mut(id)
            && path.on_answered(&mut self.outbox)
        {
            self.review_backups();
        }
    }

    /// While none of the available paths answers, the backup paths that stand in for them are
    /// available to the peer as well (MP-115).
    pub(super) fn review_backups(&mut self) {
        let mut available = self
            .paths
            .slots()
            .iter()
            .filter(|slot| slot.statuses().wish() == PathStatus::Available)
            .filter_map(Slot::open)
            .filter(|path| path.is_usable())
            .peekable();
        let stand_in = available.peek().is_some() && available.all(Path::is_suspect);
        for slot in self.paths.slots_mut() {
            let works = |path: &Path| path.is_usable() && !path.is_suspect();
            let stands_in = stand_in && slot.open().is_some_and(works);
            slot.statuses_mut().stand_in(stands_in);
        }
    }

    /// Queues what is unacknowledged on a path for other paths; each packet once. The packets stay
    /// in flight: an acknowledgement that comes after all is as good as one of the copy.
    pub(super) fn reinject(&mut self, id: PathId) {
        let mut deliveries = std::mem::take(&mut self.requeued);
        let mut bytes = 0;
        if let Some(path) = self.paths.any_mut(id) {
            for (_, packet) in path.space.sent.iter_mut() {
                if packet.reinjected || packet.mtu_probe {
                    continue;
                }
                packet.reinjected = true;
                bytes += u64::from(packet.bytes);
                deliveries.extend(packet.deliveries.iter().copied());
            }
        }
        self.outbox.stats.bytes_reinjected += bytes;
        self.requeue(deliveries);
    }

    /// The only path is silent: its probes repeat the oldest content (RFC 9002 section 6.2.4), and
    /// every statement under way, as it is now. The peer may hear us although we do not hear it, and
    /// wait for one of them: that its only path is abandoned, for example.
    fn repeat_content(&mut self, id: PathId) {
        let mut deliveries = std::mem::take(&mut self.requeued);
        if let Some(path) = self.paths.any(id) {
            let packets = path.space.sent.iter();
            let eliciting = packets.filter(|(_, packet)| packet.ack_eliciting);
            for (age, (_, packet)) in eliciting.enumerate() {
                let is_data = |delivery: &Delivery| {
                    matches!(delivery, Delivery::Stream(StreamDelivery::Data { .. }))
                };
                let of_packet = packet.deliveries.iter();
                deliveries.extend(of_packet.filter(|of| age < PROBE_PACKETS || !is_data(of)));
            }
        }
        self.requeue(deliveries);
    }

    fn requeue(&mut self, mut deliveries: Vec<Delivery>) {
        for delivery in deliveries.drain(..) {
            self.on_delivery(SpaceId::Data(PathId::ZERO), delivery, Fate::Lost);
        }
        self.requeued = deliveries;
    }
}
