//! Frames about paths: received ones go to their owners, and owners write theirs into packets.

use std::time::Instant;

use quinn_proto::Side;

use super::Path;
use super::life::Abandonment;
use super::set::Paths;
use crate::error::{Fault, TransportError};
use crate::event::{PathEvent, RouteChange};
use crate::ids::{FourTuple, PathId};
use crate::outbox::Outbox;
use crate::packet::arrival::{Arrival, Opened};
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::sched::SchedulerEvent;
use crate::server_address::{AnnounceError, ServerAddress};
use crate::space::AckState;
use crate::wire::frame::{
    AlternativeAddress, Frame, NewConnectionId, PathAbandon, PathCidsBlocked, PathNewConnectionId,
    PathRetireConnectionId, PathStatus,
};

/// Our `ack_delay_exponent`: the default.
const ACK_DELAY_EXPONENT: u8 = 3;

impl Paths {
    /// PATH_CHALLENGE, for the path it came on.
    pub(crate) fn on_path_challenge(
        &mut self,
        arrival: &Arrival,
        data: [u8; 8],
        outbox: &mut Outbox,
    ) {
        if let Some((slot, shared)) = self.slot_and_shared(arrival.path) {
            slot.on_path_challenge(arrival, data, shared, outbox);
        }
    }

    /// PATH_RESPONSE, for the path it came on.
    pub(crate) fn on_path_response(
        &mut self,
        arrival: &Arrival,
        data: [u8; 8],
        outbox: &mut Outbox,
    ) {
        if let Some((slot, shared)) = self.slot_and_shared(arrival.path)
            && slot.on_path_response(arrival.now, data, shared, outbox)
        {
            self.review_backups();
        }
    }

    /// NEW_CONNECTION_ID, for path 0.
    pub(crate) fn on_new_connection_id(
        &mut self,
        new: &NewConnectionId,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        self.on_new_connection_id_of(PathId::ZERO, new, outbox)
    }

    /// PATH_NEW_CONNECTION_ID.
    pub(crate) fn on_path_new_connection_id(
        &mut self,
        frame: &PathNewConnectionId,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        self.ids.check(frame.path_id)?;
        self.on_new_connection_id_of(frame.path_id, &frame.new_connection_id, outbox)
    }

    fn on_new_connection_id_of(
        &mut self,
        id: PathId,
        new: &NewConnectionId,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        // MP-051: frames about abandoned or forgotten paths are ignored.
        if self.is_past(id) {
            return Ok(());
        }
        // MP-095: the same bytes on a second path ID.
        let cid = &new.connection_id;
        let mut others = self.slots().iter().filter(|slot| slot.id != id);
        if others.any(|slot| slot.knows_peer_cid(cid)) {
            return Err(Fault::ConnectionIdOnTwoPaths.into());
        }
        let slot = self.slot_or_new(id);
        if slot.abandon.is_some() {
            return Ok(());
        }
        slot.on_new_connection_id(new, outbox)?;
        if self.shared.side == Side::Client
            && self.ids.is_multipath()
            && self.openable() == Some(id)
        {
            outbox.path_event(PathEvent::Available);
        }
        Ok(())
    }

    /// True for a path that was open and is abandoned or forgotten by now.
    fn is_past(&self, id: PathId) -> bool {
        self.ids.is_used(id) && self.open(id).is_none()
    }

    /// RETIRE_CONNECTION_ID, for path 0.
    pub(crate) fn on_retire_connection_id(
        &mut self,
        sequence_number: u64,
        opened: &Opened,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        let frame = PathRetireConnectionId {
            path_id: PathId::ZERO,
            sequence_number,
        };
        self.on_path_retire_connection_id(&frame, opened, outbox)
    }

    /// PATH_RETIRE_CONNECTION_ID.
    pub(crate) fn on_path_retire_connection_id(
        &mut self,
        frame: &PathRetireConnectionId,
        opened: &Opened,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        self.ids.check(frame.path_id)?;
        if self.ids.is_closed(frame.path_id) {
            return Ok(());
        }
        // MP-106: a path without a slot was never given a connection ID.
        let slot = self.slot_or_new(frame.path_id);
        let retired = slot
            .local_cids
            .on_retire(frame.sequence_number, &opened.destination)?;
        if let Some(cid) = retired {
            outbox.endpoint_event(RouteChange::ConnectionIdRetired(cid));
            // MP-100
            self.issue_cids(outbox);
        }
        Ok(())
    }

    /// PATH_ABANDON.
    pub(crate) fn on_path_abandon(
        &mut self,
        now: Instant,
        frame: &PathAbandon,
        outbox: &mut Outbox,
    ) -> Result<Abandonment, TransportError> {
        let id = frame.path_id;
        self.ids.check(id)?;
        self.advisory_frames.on_frame(now)?;
        if self.ids.is_closed(id) {
            return Ok(Abandonment::Done);
        }
        // MP-125: also valid for a path never used.
        self.slot_or_new(id);
        // MP-123
        let abandonment = self.abandon(id, frame.error_code, true, outbox);
        let deadline = now + self.drain_period();
        if let Some(slot) = self.slot_mut(id) {
            slot.on_peer_abandon(deadline);
        }
        Ok(abandonment)
    }

    /// PATH_STATUS_AVAILABLE or PATH_STATUS_BACKUP.
    pub(crate) fn on_path_status(
        &mut self,
        now: Instant,
        frame: &PathStatus,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        let (id, status) = (frame.path_id, frame.status);
        self.ids.check(id)?;
        self.advisory_frames.on_frame(now)?;
        if self.is_past(id) {
            return Ok(());
        }
        let statuses = self.slot_or_new(id).statuses_mut();
        if statuses.on_path_status(status, frame.sequence_number) {
            outbox.scheduler_event(SchedulerEvent::PathStatus(id, status));
            outbox.path_event(PathEvent::RemoteStatus(id, status));
        }
        Ok(())
    }

    /// MAX_PATH_ID.
    pub(crate) fn on_max_path_id(
        &mut self,
        now: Instant,
        maximum: PathId,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        self.advisory_frames.on_frame(now)?;
        let raised = self.ids.on_max_path_id(maximum)?;
        self.issue_cids(outbox);
        if raised {
            outbox.path_event(PathEvent::Available);
        }
        Ok(())
    }

    /// PATHS_BLOCKED is only checked: our limit rises by itself as paths close.
    pub(crate) fn on_paths_blocked(
        &mut self,
        now: Instant,
        maximum: PathId,
    ) -> Result<(), TransportError> {
        self.ids.check(maximum)?;
        self.advisory_frames.on_frame(now)
    }

    /// PATH_CIDS_BLOCKED.
    pub(crate) fn on_path_cids_blocked(
        &mut self,
        now: Instant,
        frame: &PathCidsBlocked,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        let id = frame.path_id;
        self.ids.check(id)?;
        self.advisory_frames.on_frame(now)?;
        if self.ids.is_closed(id) {
            return Ok(());
        }
        // MP-143
        let local_cids = &mut self.slot_or_new(id).local_cids;
        local_cids.on_cids_blocked(frame.next_sequence_number)?;
        self.issue_cids(outbox);
        Ok(())
    }

    /// Server: announces all of its further addresses.
    pub(crate) fn announce_addresses(
        &mut self,
        addresses: &[ServerAddress],
    ) -> Result<(), AnnounceError> {
        let shared = &mut self.shared;
        if shared.side == Side::Client {
            return Err(AnnounceError::ClientSide);
        }
        let is_ready = shared.handshake_complete && shared.peer.alternative_address;
        shared.server_addresses.announce(addresses, is_ready)
    }

    /// ALTERNATIVE_ADDRESS.
    pub(crate) fn on_alternative_address(
        &mut self,
        now: Instant,
        frame: &AlternativeAddress,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        let shared = &mut self.shared;
        let known = shared.handshake_address;
        let addresses = &mut shared.server_addresses;
        if let Some(addresses) = addresses.on_alternative_address(now, frame, known)? {
            outbox.path_event(PathEvent::ServerAddresses(addresses.into()));
        }
        self.advisory_frames.on_frame(now)
    }

    /// True if a frame about paths waits to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.shared.ack_frequencies.wants_to_send()
            || self.ids.wants_to_send()
            || self.shared.server_addresses.wants_to_send()
            || self.slots().iter().any(|slot| match &slot.abandon {
                Some(abandon) => abandon.progress.is_queued(),
                None => {
                    slot.local_cids.wants_to_send()
                        || slot.peer_cids.wants_to_send()
                        || self.ids.is_multipath() && slot.statuses().wants_to_send()
                }
            })
    }

    /// Writes the frames about paths that wait to be sent.
    pub(crate) fn write_frames(
        &mut self,
        writer: &mut FrameWriter<'_>,
        carrier: PathId,
        outbox: &mut Outbox,
    ) {
        self.shared.ack_frequencies.write_frames(writer);
        self.shared.server_addresses.write_frames(writer);
        self.write_slots(writer, carrier);
        let limit = self.ids.limit();
        self.ids.write_frames(writer);
        if self.shared.side == Side::Client && self.ids.limit() > limit {
            // MAX_PATH_ID is sent: our own limit no longer keeps paths from being opened.
            outbox.path_event(PathEvent::Available);
        }
    }

    /// Writes the frames about each path; MP-091 decides which types are used.
    fn write_slots(&mut self, writer: &mut FrameWriter<'_>, carrier: PathId) {
        let multipath = self.ids.is_multipath();
        for slot in self.slots_mut() {
            match &mut slot.abandon {
                // Written on another path, because the abandoned one sends no more (MP-121,
                // MP-122).
                Some(abandon) if abandon.progress.is_queued() && slot.id != carrier => {
                    let frame = Frame::PathAbandon(PathAbandon {
                        path_id: slot.id,
                        error_code: abandon.error_code,
                    });
                    if writer.try_write(&frame, PathDelivery::Abandon(slot.id)) {
                        abandon.progress = Progress::Sent;
                    }
                }
                Some(_) => {}
                None => {
                    slot.peer_cids.write_frames(writer, multipath);
                    slot.local_cids.write_frames(writer, multipath);
                    // A peer without multipath does not know the frame.
                    if multipath {
                        slot.write_status(writer);
                    }
                }
            }
        }
    }

    /// Tells the owner of a frame about one path what became of it.
    pub(crate) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        if let Some(slot) = self.slot_mut(delivery.path()) {
            slot.on_delivery(delivery, fate);
        }
    }

    /// Writes acknowledgements for a path; with `orphans`, also acknowledgements for paths that
    /// cannot carry their own. True after any frame.
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
            let path = self.any_mut(id).filter(|path| path.acknowledges_itself());
            return path.is_some_and(|path| path.write_ack(writer, now, named));
        }
        let mut acked = false;
        for path in self.spoken_for(id) {
            acked |= path.write_ack(writer, now, named);
        }
        acked
    }

    /// The paths with acknowledgements on `carrier`, including itself.
    fn spoken_for(&mut self, carrier: PathId) -> impl Iterator<Item = &mut Path> {
        self.slots_mut().iter_mut().filter_map(move |slot| {
            let is_abandoned = slot.abandon.is_some();
            let path = slot.path.as_deref_mut()?;
            let speaks = if path.id == carrier {
                path.acknowledges_itself()
            } else {
                is_abandoned || path.is_spoken_for_by(carrier)
            };
            speaks.then_some(path)
        })
    }

    /// An ack-eliciting packet carries the acknowledgements of [`Self::write_acks`].
    pub(crate) fn on_confirmation_requested(&mut self, carrier: PathId, orphans: bool) {
        if orphans {
            for path in self.spoken_for(carrier) {
                path.space.received.on_confirmation_requested();
            }
        } else if let Some(path) = self.any_mut(carrier) {
            path.space.received.on_confirmation_requested();
        }
    }

    /// Writes the challenges and responses for these addresses.
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
}

impl Path {
    /// True if `carrier` carries this path's acknowledgements: by choice, or because this path is
    /// suspect.
    fn is_spoken_for_by(&self, carrier: PathId) -> bool {
        self.ack_carrier.path() == Some(carrier) || self.is_suspect()
    }

    /// True if the path's own packets carry its acknowledgements. With two carriers at once, the
    /// peer would measure two kinds of round trips.
    fn acknowledges_itself(&self) -> bool {
        self.ack_carrier.path().is_none() || self.is_suspect()
    }

    /// Writes an acknowledgement if one is wanted.
    fn write_ack(&mut self, writer: &mut FrameWriter<'_>, now: Instant, named: bool) -> bool {
        let named = named.then_some(self.id);
        let received = &mut self.space.received;
        received.ack_state(now) != AckState::None
            && received.write_ack(writer, now, named, ACK_DELAY_EXPONENT)
    }
}
