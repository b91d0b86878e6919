use std::net::Ipv4Addr;

use RouteChange::{ResetTokenAdded as Added, ResetTokenRemoved as Removed};
use quinn_proto::ConnectionId;

use super::*;
use crate::config::TransportConfig;
use crate::event::RouteChange;
use crate::packet::writer::written;
use crate::recovery::testing::start;
use crate::wire::frame::{Frame, NewConnectionId, PathRetireConnectionId};

const PATH: PathId = PathId(2);

fn cid(n: u8) -> ConnectionId {
    ConnectionId::new(&[n; 8])
}

fn addresses(port: u16) -> FourTuple {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    FourTuple::new(address(443), address(port))
}

fn retire(sequence_number: u64) -> Frame {
    Frame::PathRetireConnectionId(PathRetireConnectionId {
        path_id: PATH,
        sequence_number,
    })
}

/// A server's path that began between the addresses of port 1.
struct Rig {
    slot: PathSlot,
    shared: Shared,
    outbox: Outbox,
}

impl Rig {
    /// With `count` connection IDs, numbered from 0, the first one in use.
    fn new(count: u8) -> Self {
        let mut rig = Self {
            slot: PathSlot::new(PATH, 9),
            shared: Shared::for_tests(Side::Server, 3, 9),
            outbox: Outbox::for_tests(),
        };
        for n in 0..count {
            rig.issue(n, 0);
        }
        let config = TransportConfig::without_policies();
        let mut path = Path::new(PATH, addresses(1), Side::Server, start(), &config);
        path.tuple.peer_cid = rig.slot.peer_cids.take(&mut rig.outbox);
        path.tuple.set_validated();
        path.established = true;
        rig.slot.path = Some(Box::new(path));
        assert_eq!(rig.told(), [Added([0; 16])]);
        rig
    }

    fn issue(&mut self, n: u8, retire_prior_to: u64) {
        let new = NewConnectionId {
            sequence_number: n.into(),
            retire_prior_to,
            connection_id: cid(n),
            stateless_reset_token: [n; 16],
        };
        self.slot
            .on_new_connection_id(&new, &mut self.outbox)
            .unwrap();
    }

    fn path(&mut self) -> &mut Path {
        self.slot.path.as_mut().unwrap()
    }

    fn told(&mut self) -> Vec<RouteChange> {
        self.outbox.take_route_changes()
    }

    fn frames(&mut self) -> Vec<Frame> {
        written(1200, |w| self.slot.peer_cids.write_frames(w, true)).0
    }

    /// The client sends from this port.
    fn moves_to(&mut self, port: u16) {
        let arrival = Arrival {
            now: start(),
            four_tuple: addresses(port),
            ecn: None,
            path: PATH,
            size: 100,
        };
        let (four_tuple, size) = (arrival.four_tuple, arrival.size);
        self.slot
            .on_datagram_received(four_tuple, size, Side::Server, &mut self.outbox);
        self.slot
            .on_addresses(&arrival, true, &self.shared, &mut self.outbox);
        assert_eq!(self.path().tuple.four_tuple, addresses(port));
    }

    /// The connection ID of datagrams to this port.
    fn destination(&mut self, port: u16) -> Option<ConnectionId> {
        self.path().destination(Some(addresses(port))).copied()
    }
}

#[test]
fn rfc_9000_9_5_new_addresses_have_another_connection_id_and_the_old_ones_keep_theirs() {
    let mut rig = Rig::new(2);
    rig.moves_to(2);
    assert_eq!(rig.told(), [Added([1; 16])]);
    assert_eq!(rig.path().destination(None), Some(&cid(1)));
    assert_eq!(rig.destination(2), Some(cid(1)));
    assert_eq!(rig.destination(1), Some(cid(0)));
    assert_eq!(rig.frames(), []);
    // MP-108: while a path changes its addresses, two tokens count.
    assert!(rig.slot.is_reset_token([0; 16]) && rig.slot.is_reset_token([1; 16]));
}

#[test]
fn a_path_that_returns_to_its_old_addresses_drops_the_connection_id_of_the_new_ones() {
    let mut rig = Rig::new(2);
    rig.moves_to(2);
    rig.told();
    rig.moves_to(1);
    assert_eq!(rig.told(), [Removed([1; 16])]);
    assert_eq!(rig.path().destination(None), Some(&cid(0)));
    assert_eq!(rig.frames(), [retire(1)]);
}

#[test]
fn only_the_addresses_to_fall_back_to_keep_their_connection_id() {
    let mut rig = Rig::new(3);
    rig.moves_to(2);
    rig.told();
    rig.moves_to(3);
    let told = rig.told();
    assert!(told.contains(&Removed([1; 16])) && told.contains(&Added([2; 16])));
    assert_eq!(rig.destination(3), Some(cid(2)));
    assert_eq!(rig.destination(1), Some(cid(0)));
    assert_eq!(rig.frames(), [retire(1)]);
}

#[test]
fn without_another_connection_id_the_one_in_use_goes_along() {
    let mut rig = Rig::new(1);
    rig.moves_to(2);
    assert_eq!(rig.told(), []);
    assert_eq!(rig.destination(2), Some(cid(0)));
    assert_eq!(rig.destination(1), Some(cid(0)), "there is no other");
    rig.moves_to(1);
    assert_eq!(rig.destination(1), Some(cid(0)));
    assert_eq!(rig.frames(), []);
}

#[test]
fn addresses_that_turn_out_to_be_wrong_lose_their_connection_id() {
    let mut rig = Rig::new(2);
    rig.moves_to(2);
    rig.told();
    assert!(rig.slot.fall_back(start(), &rig.shared, &mut rig.outbox));
    assert_eq!(rig.told(), [Removed([1; 16])]);
    assert_eq!(rig.path().tuple.four_tuple, addresses(1));
    assert_eq!(rig.path().destination(None), Some(&cid(0)));
    assert_eq!(rig.frames(), [retire(1)]);
    assert!(!rig.slot.fall_back(start(), &rig.shared, &mut rig.outbox));
}

#[test]
fn mp_103_every_pair_of_addresses_gives_back_requested_ids() {
    let mut rig = Rig::new(3);
    rig.moves_to(2);
    rig.told();
    rig.issue(3, 2);
    let told = rig.told();
    assert_eq!(
        told,
        [Removed([1; 16]), Removed([0; 16]), Added([2; 16])],
        "the path's own addresses first"
    );
    assert_eq!(rig.destination(2), Some(cid(2)));
    assert_eq!(rig.destination(1), Some(cid(2)), "there is no other");
    assert_eq!(rig.frames().len(), 2);
}

#[test]
fn ids_of_unknown_addresses_are_retired_with_their_addresses() {
    let mut rig = Rig::new(2);
    let arrival = |port| Arrival {
        now: start(),
        four_tuple: addresses(port),
        ecn: None,
        path: PATH,
        size: 100,
    };
    let probe = |rig: &mut Rig, port| {
        let side = Side::Server;
        let Rig {
            slot,
            shared,
            outbox,
        } = rig;
        slot.on_datagram_received(addresses(port), 100, side, outbox);
        slot.on_path_challenge(&arrival(port), [1; 8], shared, outbox);
    };
    probe(&mut rig, 2);
    assert_eq!(rig.told(), [Added([1; 16])]);
    assert_eq!(rig.destination(2), Some(cid(1)));
    assert_eq!(
        rig.path().destination(None),
        Some(&cid(0)),
        "it has not moved"
    );
    probe(&mut rig, 3);
    assert_eq!(rig.told(), [Removed([1; 16])]);
    assert_eq!(rig.frames(), [retire(1)]);
    assert_eq!(rig.destination(3), Some(cid(0)), "there is no other");
}
