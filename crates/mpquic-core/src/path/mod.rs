//! Paths: validation, connection IDs, MTU, status, and the IDs themselves.
//!
//! "Path" has two meanings in the RFCs and two types here: a [`Path`] is what a path ID names, with
//! its packet number space and recovery; a [`Tuple`] is the pair of addresses between which such a
//! path runs, with its validation and its anti-amplification limit. NAT rebinding and migration
//! replace the tuple and keep the path.

use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::{ConnectionId, Side};

use crate::cid::peer::PeerCid;
use crate::config::TransportConfig;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::recovery::PacketNumberSpace;
use crate::recovery::Recovery;
use crate::sched::LocalQueue;
use crate::wire::buf::MAX_CID_LENGTH;

mod ack_carrier;
mod ack_frequency;
pub(crate) mod admission;
mod advisory_frame_limit;
mod amplification;
mod capacity;
mod failover;
pub(crate) mod first_flight;
mod frames;
pub(crate) mod handle;
pub(crate) mod ids;
pub(crate) mod life;
mod liveness;
mod migration;
mod mtu;
mod outcome;
mod parameters;
pub(crate) mod planning;
mod preferred_address;
mod receiving;
mod report;
mod resumption;
mod sending;
pub(crate) mod server_addresses;
pub(crate) mod set;
pub(crate) mod shared;
pub(crate) mod slot;
mod status;
mod timers;
mod tuple;
mod validation;
pub(crate) mod view;

use ack_carrier::AckCarrier;
use capacity::Capacity;
use liveness::Liveness;
use mtu::MtuDiscovery;
use tuple::{Candidate, Tuple};
use validation::Responses;

/// The most bytes of a 1-RTT packet besides its frames: first byte, connection ID, packet number,
/// tag.
const PACKET_OVERHEAD: usize = 1 + MAX_CID_LENGTH + 4 + 16;

/// Counters of one path.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    bytes_sent: u64,
    bytes_received: u64,
    bytes_acked: u64,
    bytes_lost: u64,
    packets_sent: u64,
    packets_received: u64,
    packets_lost: u64,
    congestion_events: u64,
    probe_timeouts: u64,
}

/// A path: the packet number space of a path ID, and the state of sending in this space.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    tuple: Tuple,
    /// The tuple to fall back to while a new one is being validated.
    previous: Option<Box<Tuple>>,
    candidate: Option<Box<Candidate>>,
    /// Senders of packets for this path other than the path's own addresses.
    unknown: Option<Box<Tuple>>,
    /// PATH_RESPONSEs to be sent.
    responses: Responses,
    pub(crate) space: PacketNumberSpace,
    pub(crate) recovery: Recovery,
    mtu: MtuDiscovery,
    /// The application was told that the path is established.
    established: bool,
    liveness: Liveness,
    ack_carrier: AckCarrier,
    capacity: Capacity,
    /// The length of the local queue that the driver last reported, and the path's sent bytes at
    /// that time.
    local_queue: Option<(LocalQueue, u64)>,
    /// A packet has filled the MTU, so a larger MTU would help.
    filled_packet: bool,
    /// A PING is to be sent.
    ping: bool,
    /// The client's last message of the handshake is to be repeated from here.
    repeats_handshake: bool,
    /// A packet with control frames is to follow that.
    carries_control: bool,
    /// The latency spin bit, and whether the path uses it. One path in sixteen does not, to hide
    /// connections which turn the bit off (RFC 9000 section 17.4).
    spin: bool,
    spins: bool,
    /// When a packet was last received or an ack-eliciting one sent.
    last_activity: Instant,
    /// Stretches the time between probes while the path is suspect: none at 0, most at 255.
    probe_stretch: u8,
    counters: Counters,
}

impl Path {
    pub(crate) fn new(
        id: PathId,
        four_tuple: FourTuple,
        side: Side,
        now: Instant,
        config: &TransportConfig,
    ) -> Self {
        Self {
            id,
            tuple: Tuple::new(four_tuple, side),
            previous: None,
            candidate: None,
            unknown: None,
            responses: Responses::new(),
            space: PacketNumberSpace::new(SpaceId::Data(id)),
            recovery: Recovery::new(config, now),
            mtu: MtuDiscovery::new(config.initial_mtu, config.max_mtu),
            established: false,
            liveness: Liveness::Live,
            ack_carrier: AckCarrier::default(),
            capacity: Capacity::new(config.knowledge.clone().filter(|_| config.careful_resume)),
            local_queue: None,
            filled_packet: false,
            ping: false,
            repeats_handshake: false,
            carries_control: false,
            spin: false,
            spins: false,
            last_activity: now,
            probe_stretch: u8::MAX / 2,
            counters: Counters::default(),
        }
    }

    /// Bytes of memory.
    fn memory(&self) -> usize {
        let others = self.tuples().count() - 1;
        size_of::<Self>()
            + others * size_of::<Candidate>()
            + self.space.memory()
            + self.responses.memory()
    }

    /// The addresses between which the path runs.
    pub(crate) fn four_tuple(&self) -> FourTuple {
        self.tuple.four_tuple
    }

    /// True if the current addresses are validated.
    pub(crate) fn is_validated(&self) -> bool {
        self.tuple.validated
    }

    /// Other means than path validation prove the peer's address.
    pub(crate) fn set_validated(&mut self) {
        self.tuple.set_validated();
    }

    /// True if the anti-amplification limit forbids sending until more is received (RFC 9000
    /// section 8).
    pub(crate) fn is_amplification_limited(&self) -> bool {
        self.tuple.amplification.is_blocked(1)
    }

    /// True if the path may carry data.
    pub(crate) fn is_usable(&self) -> bool {
        self.tuple.may_carry_data() && self.established
    }

    /// The current addresses first, then former and future ones.
    fn tuples(&self) -> impl Iterator<Item = &Tuple> {
        self.proven_tuples().chain(self.unknown.as_deref())
    }

    /// The tuples that are or may be in validation.
    fn proven_tuples(&self) -> impl Iterator<Item = &Tuple> {
        std::iter::once(&self.tuple)
            .chain(self.previous.as_deref())
            .chain(self.candidate.as_ref().map(|candidate| &candidate.tuple))
    }

    /// The current addresses first, then former and future ones.
    fn tuples_mut(&mut self) -> impl Iterator<Item = &mut Tuple> {
        let candidate = self.candidate.as_mut();
        std::iter::once(&mut self.tuple)
            .chain(self.previous.as_deref_mut())
            .chain(candidate.map(|candidate| &mut candidate.tuple))
            .chain(self.unknown.as_deref_mut())
    }

    /// True for an address that the peer uses or may use.
    fn knows_remote(&self, remote: SocketAddr) -> bool {
        self.proven_tuples()
            .any(|tuple| tuple.four_tuple.remote == remote)
    }

    /// True for addresses that may carry only probes.
    fn is_elsewhere(&self, four_tuple: FourTuple) -> bool {
        let mut used = std::iter::once(&self.tuple).chain(self.previous.as_deref());
        !used.any(|tuple| tuple.four_tuple == four_tuple)
    }

    /// The peer's connection ID for a datagram to the path's own addresses, or to others.
    #[inline]
    pub(crate) fn destination(&self, to: Option<FourTuple>) -> Option<&ConnectionId> {
        let other = to.and_then(|to| self.destination_elsewhere(to));
        // MP-073: a connection ID of the same path ID.
        let cid = other.or(self.tuple.peer_cid.as_ref())?;
        Some(cid.cid())
    }

    /// The peer's connection ID for other addresses than the path's own.
    fn destination_elsewhere(&self, to: FourTuple) -> Option<&PeerCid> {
        if to == self.tuple.four_tuple {
            return None;
        }
        let mut others = self.tuples().skip(1);
        let other = others.find(|other| other.four_tuple == to)?;
        other.peer_cid.as_ref()
    }

    /// The addresses to which a PATH_CHALLENGE is due.
    fn challenged(&self) -> impl Iterator<Item = FourTuple> {
        self.proven_tuples()
            .filter(|tuple| tuple.validation.wants_to_send())
            .map(|tuple| tuple.four_tuple)
    }

    /// Bytes allowed to an address now (RFC 9000 section 8).
    pub(crate) fn budget_for(&self, four_tuple: FourTuple) -> usize {
        self.tuples()
            .find(|tuple| tuple.four_tuple == four_tuple)
            .map_or(0, |tuple| {
                usize::try_from(tuple.amplification.budget()).unwrap_or(usize::MAX)
            })
    }

    /// A datagram for the path arrived from these addresses. Returns the tuple which makes room for
    /// them.
    #[inline]
    fn on_datagram_received(
        &mut self,
        four_tuple: FourTuple,
        size: usize,
        side: Side,
    ) -> Option<Tuple> {
        self.counters.bytes_received += size as u64;
        if self.tuple.four_tuple.matches(&four_tuple) {
            self.tuple.amplification.on_received(size);
            self.tuple.validation.on_datagram();
            return None;
        }
        let mut forgotten = None;
        if self.tuples().all(|tuple| tuple.four_tuple != four_tuple) {
            let tuple = Tuple::new(four_tuple, side);
            forgotten = self.unknown.replace(Box::new(tuple)).map(|old| *old);
        }
        for tuple in self
            .tuples_mut()
            .filter(|tuple| tuple.four_tuple == four_tuple)
        {
            tuple.amplification.on_received(size);
        }
        forgotten
    }

    /// Datagrams were sent to an address.
    pub(crate) fn on_datagram_sent(&mut self, four_tuple: FourTuple, size: usize) {
        self.counters.bytes_sent += size as u64;
        for tuple in self
            .tuples_mut()
            .filter(|tuple| tuple.four_tuple == four_tuple)
        {
            tuple.amplification.on_sent(size);
        }
    }

    /// Largest datagram, bytes.
    pub(crate) fn datagram_size(&self) -> usize {
        usize::from(self.mtu.mtu())
    }

    /// Bytes for frames in its largest packet.
    pub(crate) fn frame_room(&self) -> usize {
        self.datagram_size().saturating_sub(PACKET_OVERHEAD)
    }

    /// True while a datagram that carries nothing urgent should stay away from the path.
    pub(crate) fn is_suspect(&self) -> bool {
        self.liveness.is_suspect()
    }

    /// A PING is to be sent.
    pub(crate) fn request_ping(&mut self) {
        self.ping = true;
    }

    /// A packet was as large as the MTU allows.
    pub(crate) fn on_filled_packet(&mut self) {
        self.filled_packet = true;
    }

    /// The driver reports the length of the local queue that the path sends into.
    pub(crate) fn set_local_queue(&mut self, queue: Option<LocalQueue>) {
        self.local_queue = queue.map(|queue| (queue, self.counters.bytes_sent));
    }

    /// The latency spin bit of the next packet.
    pub(crate) fn spin(&self) -> bool {
        self.spins && self.spin
    }

    /// Updates the spin bit for a packet with the largest number so far (RFC 9000 section 17.4).
    fn on_spin(&mut self, side: Side, spin: bool) {
        self.spin = match side {
            Side::Client => !spin,
            Side::Server => spin,
        };
    }
}

#[cfg(test)]
mod tests;
