//! Paths: validation, connection IDs, MTU, status, and the IDs themselves.
//!
//! "Path" has two meanings in the RFCs and two types here: a [`Path`] is what a path ID names, with
//! its packet number space and recovery; a [`Tuple`] is a pair of addresses such a path runs
//! between, with its validation and its 3x budget. NAT rebinding and migration replace the tuple
//! and keep the path.

use std::net::SocketAddr;
use std::time::Instant;

use quinn_proto::Side;

use crate::config::TransportConfig;
use crate::ids::{FourTuple, PathId, SpaceId};
use crate::recovery::PacketNumberSpace;
use crate::recovery::Recovery;
use crate::sched::LocalQueue;

mod ack_frequency;
pub(crate) mod amplification;
pub(crate) mod ids;
mod liveness;
pub(crate) mod mtu;
mod outcome;
mod parameters;
mod receiving;
mod report;
pub(crate) mod sending;
pub(crate) mod set;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod validation;
pub(crate) mod view;

use amplification::Amplification;
use liveness::Liveness;
use mtu::MtuDiscovery;
use validation::{Responses, Validation};

/// The smallest datagram every path must carry (RFC 9000 section 14.1).
pub(crate) const MIN_DATAGRAM: usize = 1200;

/// A pair of addresses and what is known of it.
#[derive(Debug)]
pub(crate) struct Tuple {
    pub(crate) four_tuple: FourTuple,
    /// The peer has answered here.
    pub(crate) validated: bool,
    pub(crate) amplification: Amplification,
    pub(crate) validation: Validation,
}

impl Tuple {
    /// A tuple not validated yet. Only servers are held by the 3x limit: a client's peer is where
    /// the client chose to go.
    pub(crate) fn new(four_tuple: FourTuple, side: Side) -> Self {
        let amplification = match side {
            Side::Client => Amplification::validated(),
            Side::Server => Amplification::unvalidated(),
        };
        Self {
            four_tuple,
            validated: false,
            amplification,
            validation: Validation::new(),
        }
    }

    pub(crate) fn set_validated(&mut self) {
        self.validated = true;
        self.amplification.validate();
    }
}

/// Addresses that are proven before a path moves to them: those of a server's preferred address.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) tuple: Tuple,
    /// The path moves as soon as they are proven.
    pub(crate) wanted: bool,
}

/// Addresses that sent something on a path without having become its tuple.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) tuple: Tuple,
    /// One of the peer's connection IDs is set aside for them.
    pub(crate) has_cid: bool,
}

/// Counters of one path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_lost: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) packets_lost: u64,
    pub(crate) congestion_events: u64,
    pub(crate) probe_timeouts: u64,
}

/// What a path ID names: one packet number space and the state of sending in it.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) tuple: Tuple,
    /// While a new tuple is validated: the one to fall back to.
    pub(crate) previous: Option<Box<Tuple>>,
    pub(crate) candidate: Option<Box<Candidate>>,
    pub(crate) stranger: Option<Box<Stranger>>,
    /// PATH_RESPONSEs owed.
    pub(crate) responses: Responses,
    pub(crate) space: PacketNumberSpace,
    pub(crate) recovery: Recovery,
    pub(crate) mtu: MtuDiscovery,
    /// The application was told that the path is established.
    pub(crate) established: bool,
    liveness: Liveness,
    /// What the driver said of the queue it sends into, and the bytes sent by then.
    pub(crate) local_queue: Option<(LocalQueue, u64)>,
    /// A packet was as large as the MTU allows: larger ones would be of use.
    pub(crate) filled_packet: bool,
    /// A PING is to be sent.
    pub(crate) ping: bool,
    /// The latency spin bit, and whether it is used: not on one path in sixteen, so that those who
    /// turn it off do not stand out (RFC 9000 section 17.4).
    pub(crate) spin: bool,
    pub(crate) spins: bool,
    /// When a packet was last received or an ack-eliciting one sent.
    pub(crate) last_activity: Instant,
    pub(crate) counters: Counters,
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
            stranger: None,
            responses: Responses::new(),
            space: PacketNumberSpace::new(SpaceId::Data(id)),
            recovery: Recovery::new(config, now),
            mtu: MtuDiscovery::new(config.initial_mtu, config.max_mtu),
            established: false,
            liveness: Liveness::Live,
            local_queue: None,
            filled_packet: false,
            ping: false,
            spin: false,
            spins: false,
            last_activity: now,
            counters: Counters::default(),
        }
    }

    /// The path was validated and may carry data.
    pub(crate) fn is_usable(&self) -> bool {
        self.tuple.validated && self.established
    }

    /// Every address the path knows.
    fn tuples(&self) -> impl Iterator<Item = &Tuple> {
        self.proven_tuples()
            .chain(self.stranger.as_ref().map(|stranger| &stranger.tuple))
    }

    /// Addresses that are or may be in validation.
    fn proven_tuples(&self) -> impl Iterator<Item = &Tuple> {
        std::iter::once(&self.tuple)
            .chain(self.previous.as_deref())
            .chain(self.candidate.as_ref().map(|candidate| &candidate.tuple))
    }

    /// Every address the path knows.
    pub(crate) fn tuples_mut(&mut self) -> impl Iterator<Item = &mut Tuple> {
        let candidate = self.candidate.as_mut();
        let stranger = self.stranger.as_mut();
        std::iter::once(&mut self.tuple)
            .chain(self.previous.as_deref_mut())
            .chain(candidate.map(|candidate| &mut candidate.tuple))
            .chain(stranger.map(|stranger| &mut stranger.tuple))
    }

    /// True if the peer may be at this address.
    pub(crate) fn knows_remote(&self, remote: SocketAddr) -> bool {
        self.proven_tuples()
            .any(|tuple| tuple.four_tuple.remote == remote)
    }

    /// True if packets between these addresses are to be probes only.
    pub(crate) fn is_elsewhere(&self, four_tuple: FourTuple) -> bool {
        let mut used = std::iter::once(&self.tuple).chain(self.previous.as_deref());
        !used.any(|tuple| tuple.four_tuple == four_tuple)
    }

    /// True if the candidate of the peer's connection IDs is the one for these addresses.
    pub(crate) fn is_candidate(&self, four_tuple: FourTuple) -> bool {
        match (&self.candidate, &self.stranger) {
            (Some(candidate), _) => candidate.tuple.four_tuple == four_tuple,
            (None, Some(stranger)) => stranger.has_cid && stranger.tuple.four_tuple == four_tuple,
            (None, None) => false,
        }
    }

    /// The next addresses that a challenge is due for.
    pub(crate) fn challenged(&self) -> Option<FourTuple> {
        let mut tuples = self.proven_tuples();
        let tuple = tuples.find(|tuple| tuple.validation.wants_to_send())?;
        Some(tuple.four_tuple)
    }

    /// Bytes that may be sent to an address now (RFC 9000 section 8).
    pub(crate) fn budget_for(&self, four_tuple: FourTuple) -> usize {
        self.tuples()
            .find(|tuple| tuple.four_tuple == four_tuple)
            .map_or(0, |tuple| {
                usize::try_from(tuple.amplification.budget()).unwrap_or(usize::MAX)
            })
    }

    /// A datagram for the path arrived from these addresses.
    pub(crate) fn on_datagram_received(&mut self, four_tuple: FourTuple, size: usize, side: Side) {
        self.counters.bytes_received += size as u64;
        if self.tuple.four_tuple.matches(&four_tuple) {
            self.tuple.amplification.on_received(size);
            return;
        }
        if !self
            .tuples_mut()
            .any(|tuple| tuple.four_tuple == four_tuple)
        {
            let tuple = Tuple::new(four_tuple, side);
            self.stranger = Some(Box::new(Stranger {
                tuple,
                has_cid: false,
            }));
        }
        for tuple in self
            .tuples_mut()
            .filter(|tuple| tuple.four_tuple == four_tuple)
        {
            tuple.amplification.on_received(size);
        }
    }

    /// Datagrams left for an address.
    pub(crate) fn on_datagram_sent(&mut self, four_tuple: FourTuple, size: usize) {
        self.counters.bytes_sent += size as u64;
        for tuple in self
            .tuples_mut()
            .filter(|tuple| tuple.four_tuple == four_tuple)
        {
            tuple.amplification.on_sent(size);
        }
    }

    /// The earliest time validation wants attention.
    pub(crate) fn validation_timeout(&self) -> Option<Instant> {
        self.proven_tuples()
            .filter_map(|tuple| tuple.validation.next_timeout())
            .min()
    }

    /// Largest datagram, bytes.
    pub(crate) fn datagram_size(&self) -> usize {
        usize::from(self.mtu.mtu())
    }

    /// Updates the spin bit for a packet with the largest number so far (RFC 9000 section 17.4).
    pub(crate) fn on_spin(&mut self, side: Side, spin: bool) {
        self.spin = match side {
            Side::Client => !spin,
            Side::Server => spin,
        };
    }
}

#[cfg(test)]
mod tests;
