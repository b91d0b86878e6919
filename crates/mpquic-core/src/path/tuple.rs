//! [`Tuple`]: a pair of addresses between which a path runs or may run.

use quinn_proto::Side;

use super::amplification::Amplification;
use super::validation::Validation;
use crate::cid::peer::PeerCid;
use crate::ids::FourTuple;

/// A pair of addresses and what is known of it.
#[derive(Debug)]
pub(super) struct Tuple {
    pub(super) four_tuple: FourTuple,
    /// The peer's connection ID for datagrams between these addresses, and for no others (RFC 9000
    /// section 9.5). `None` if the peer had issued too few: then the one of the path's own
    /// addresses is used, and these may have none until the peer issues another.
    pub(super) peer_cid: Option<PeerCid>,
    /// The peer has answered here.
    pub(super) validated: bool,
    /// Nothing can be sent from the local address any more.
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

/// Addresses that are validated before a path moves to them, as is done for a server's preferred
/// address.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) tuple: Tuple,
    /// The path moves as soon as they are validated.
    pub(super) wanted: bool,
}
