//! [`Tuple`]: a pair of addresses that a path runs between, or may.

use quinn_proto::Side;

use super::amplification::Amplification;
use super::validation::Validation;
use crate::cid::peer::PeerCid;
use crate::ids::FourTuple;

/// A pair of addresses and what is known of it.
#[derive(Debug)]
pub(super) struct Tuple {
    pub(super) four_tuple: FourTuple,
    /// The peer's connection ID that datagrams between these addresses carry, which no others do (RFC
    /// 9000 section 9.5). `None` if there was none to spare: then that of the path's own addresses
    /// serves, and these may lack one until the peer issues it.
    pub(super) peer_cid: Option<PeerCid>,
    /// The peer has answered here.
    pub(super) validated: bool,
    pub(super) amplification: Amplification,
    pub(super) validation: Validation,
}

impl Tuple {
    /// A tuple not validated yet. Only servers are held by the 3x limit: a client's peer is where
    /// the client chose to go.
    pub(super) fn new(four_tuple: FourTuple, side: Side) -> Self {
        let amplification = match side {
            Side::Client => Amplification::validated(),
            Side::Server => Amplification::unvalidated(),
        };
        Self {
            four_tuple,
            peer_cid: None,
            validated: false,
            amplification,
            validation: Validation::new(),
        }
    }

    pub(super) fn set_validated(&mut self) {
        self.validated = true;
        self.amplification.validate();
    }
}

/// Addresses that are proven before a path moves to them: those of a server's preferred address.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) tuple: Tuple,
    /// The path moves as soon as they are proven.
    pub(super) wanted: bool,
}
