//! [`Tuple`]: a pair of addresses between which a path runs or may run.

use quinn_proto::Side;

use super::amplification::Amplification;
use super::validation::Validation;
use crate::cid::peer::PeerCid;
use crate::ids::FourTuple;

/// A pair of addresses with all knowledge of it.
#[derive(Debug)]
pub(super) struct Tuple {
    pub(super) four_tuple: FourTuple,
    /// The peer's connection ID for datagrams between these addresses only (RFC 9000 section 9.5).
    /// `None` if the peer had issued too few: then datagrams use the ID of the path's own
    /// addresses, and these may lack an ID until the peer issues another.
    pub(super) peer_cid: Option<PeerCid>,
    /// The peer has answered here.
    pub(super) validated: bool,
    /// The local address can no longer send.
    pub(super) is_gone: bool,
    pub(super) amplification: Amplification,
    pub(super) validation: Validation,
}

impl Tuple {
    /// A tuple not validated yet. The anti-amplification limit applies only to servers, because a
    /// client has chosen its peer's address.
    pub(super) fn new(four_tuple: FourTuple, side: Side) -> Self {
        let amplification = match side {
            Side::Client => Amplification::validated(),
            Side::Server => Amplification::unvalidated(),
        };
        Self {
            four_tuple,
            peer_cid: None,
            validated: false,
            is_gone: false,
            amplification,
            validation: Validation::new(),
        }
    }

    /// Data may be sent: the peer has answered here, now or on an earlier connection (MP-075).
    pub(super) fn may_carry_data(&self) -> bool {
        self.validated || self.amplification.is_vouched_for()
    }

    pub(super) fn set_validated(&mut self) {
        self.validated = true;
        self.amplification.validate();
    }
}

/// Addresses to validate before a path moves to them, such as a server's preferred address.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) tuple: Tuple,
    /// The path moves as soon as they are validated.
    pub(super) wanted: bool,
}
