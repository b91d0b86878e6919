//! Both ends of one path's connection IDs over a network that loses, reorders and repeats packets.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use quinn_proto::ConnectionId;

use super::local::LocalCids;
use super::testing::User;
use crate::event::RouteChange;
use crate::ids::PathId;
use crate::packet::delivery::{Delivery, Fate};
use crate::packet::writer::written;
use crate::wire::frame::{Frame, NewConnectionId, PathNewConnectionId, PathRetireConnectionId};

const PATH: PathId = PathId(1);
const LIMIT: u64 = 3;

fn cid(n: u64) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes())
}

fn token(n: u64) -> [u8; 16] {
    u128::from(n).to_be_bytes()
}

#[derive(Debug, Clone)]
enum Op {
    Issue,
    IssuerSends {
        room: usize,
    },
    UserSends {
        room: usize,
    },
    Rotate,
    /// Deliver one of the packets sent so far, perhaps again.
    Deliver {
        packet: prop::sample::Index,
    },
    /// The frame's sender hears of its arrival, only after a true arrival.
    Ack {
        packet: prop::sample::Index,
    },
    /// Its sender gives it up, rightly or not.
    Lose {
        packet: prop::sample::Index,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let room = prop_oneof![Just(1200usize), 0..90usize];
    let packet = any::<prop::sample::Index>;
    prop_oneof![
        2 => Just(Op::Issue),
        2 => room.clone().prop_map(|room| Op::IssuerSends { room }),
        2 => room.prop_map(|room| Op::UserSends { room }),
        1 => Just(Op::Rotate),
        4 => packet().prop_map(|packet| Op::Deliver { packet }),
        2 => packet().prop_map(|packet| Op::Ack { packet }),
        2 => packet().prop_map(|packet| Op::Lose { packet }),
    ]
}

#[derive(Debug)]
struct Packet {
    from_issuer: bool,
    destination: ConnectionId,
    frames: Vec<Frame>,
    deliveries: Vec<Delivery>,
    arrived: bool,
}

struct Pair {
    issuer: LocalCids,
    user: User,
    packets: Vec<Packet>,
    issued: u64,
    /// Connection IDs that the endpoint routes to the issuer, with their sequence numbers.
    routed: BTreeMap<ConnectionId, u64>,
    tokens: BTreeSet<[u8; 16]>,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            issuer: LocalCids::new(PATH),
            user: User::new(PATH, LIMIT),
            packets: Vec::new(),
            issued: 0,
            routed: BTreeMap::new(),
            tokens: BTreeSet::new(),
        };
        pair.issue();
        pair
    }

    fn issue(&mut self) {
        if self.issuer.wanted(LIMIT) > 0 {
            let next = self.issued;
            self.issued += 1;
            assert_eq!(self.issuer.issue(cid(next), token(next)), next);
            self.routed.insert(cid(next), next);
        }
        assert!(self.issuer.active().len() as u64 <= LIMIT);
    }

    fn send(&mut self, from_issuer: bool, room: usize) {
        let (frames, deliveries) = if from_issuer {
            written(room, |w| self.issuer.write_frames(w, true))
        } else {
            written(room, |w| self.user.cids.write_frames(w, true))
        };
        if !frames.is_empty() {
            self.packets.push(Packet {
                from_issuer,
                destination: self.user.current().unwrap_or(cid(u64::MAX)),
                frames,
                deliveries: deliveries.to_vec(),
                arrived: false,
            });
        }
    }

    fn deliver(&mut self, index: usize) {
        self.packets[index].arrived = true;
        let Packet {
            frames,
            destination,
            ..
        } = &self.packets[index];
        for frame in frames {
            match frame {
                Frame::PathNewConnectionId(PathNewConnectionId {
                    path_id: PATH,
                    new_connection_id: body,
                }) => {
                    let changes = self.user.receive(body).unwrap();
                    for change in changes {
                        apply(&mut self.tokens, change);
                    }
                }
                Frame::PathRetireConnectionId(PathRetireConnectionId {
                    path_id: PATH,
                    sequence_number: sequence,
                }) => {
                    let retired = self.issuer.on_retire(*sequence, destination).unwrap();
                    if let Some(retired) = retired {
                        assert!(self.routed.remove(&retired) == Some(*sequence));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn report(&mut self, index: usize, fate: Fate) {
        let packet = &self.packets[index];
        for &delivery in &packet.deliveries {
            if packet.from_issuer {
                self.issuer.on_delivery(delivery.of_path(), fate);
            } else {
                self.user.cids.on_delivery(delivery.of_path(), fate);
            }
        }
    }

    fn rotate(&mut self) {
        for change in self.user.rotate().into_iter().flatten() {
            apply(&mut self.tokens, change);
        }
    }

    fn apply(&mut self, op: &Op) {
        let length = self.packets.len();
        match op {
            Op::Issue => self.issue(),
            Op::IssuerSends { room } => self.send(true, *room),
            Op::UserSends { room } => self.send(false, *room),
            Op::Rotate => self.rotate(),
            Op::Deliver { packet } if length > 0 => self.deliver(packet.index(length)),
            Op::Ack { packet } if length > 0 => {
                let index = packet.index(length);
                if self.packets[index].arrived {
                    self.report(index, Fate::Acked);
                }
            }
            Op::Lose { packet } if length > 0 => self.report(packet.index(length), Fate::Lost),
            Op::Deliver { .. } | Op::Ack { .. } | Op::Lose { .. } => {}
        }
        // What the user sends to is always routed.
        if let Some(current) = self.user.current() {
            assert!(self.routed.contains_key(&current));
            assert_eq!(self.tokens.len(), 1);
        }
    }

    /// Everything under way is lost for good, what is sent from now on arrives.
    fn settle(&mut self) {
        for index in 0..self.packets.len() {
            let fate = if self.packets[index].arrived {
                Fate::Acked
            } else {
                Fate::Lost
            };
            self.report(index, fate);
        }
        for _ in 0..20 {
            self.issue();
            let start = self.packets.len();
            self.send(true, 1200);
            self.send(false, 1200);
            for index in start..self.packets.len() {
                self.deliver(index);
                self.report(index, Fate::Acked);
            }
        }
        assert!(!self.issuer.wants_to_send() && !self.user.cids.wants_to_send());
    }
}

fn apply(tokens: &mut BTreeSet<[u8; 16]>, change: RouteChange) {
    match change {
        RouteChange::ResetTokenAdded(token) => assert!(tokens.insert(token)),
        RouteChange::ResetTokenRemoved(token) => assert!(tokens.remove(&token)),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn both_ends_agree_in_the_end(ops in prop::collection::vec(op(), 1..120)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
        }
        pair.settle();
        let active: Vec<_> = pair.issuer.active().copied().collect();
        prop_assert_eq!(active.len() as u64, LIMIT);
        prop_assert!(active.iter().all(|cid| pair.user.knows(cid)));
        prop_assert!(active.iter().all(|cid| pair.routed.contains_key(cid)));
        prop_assert_eq!(pair.routed.len(), active.len());
        prop_assert_eq!(pair.tokens.len(), usize::from(pair.user.current().is_some()));
    }
}

/// A naive issuer that raises Retire Prior To, and what a user should make of what arrived.
#[derive(Debug, Default)]
struct Model {
    arrived: BTreeSet<u64>,
    bound: u64,
    rotated_away: BTreeSet<u64>,
    current: Option<u64>,
}

impl Model {
    fn active(&self) -> BTreeSet<u64> {
        let live = |s: &u64| *s >= self.bound && !self.rotated_away.contains(s);
        self.arrived.iter().copied().filter(live).collect()
    }

    fn settle_current(&mut self) {
        if self.current.is_none_or(|current| current < self.bound) {
            self.current = self.active().first().copied();
        }
    }

    fn rotate(&mut self) {
        let next = self.active().into_iter().find(|s| Some(*s) != self.current);
        if let Some(next) = next {
            self.rotated_away.extend(self.current);
            self.current = Some(next);
        }
    }
}

proptest! {
    /// Frames of an honest issuer in any order, some twice, some never.
    #[test]
    fn retire_prior_to_and_rotation_follow_the_model(
        raises in prop::collection::vec(0..=LIMIT, 1..20),
        order in prop::collection::vec(any::<(prop::sample::Index, bool)>(), 1..60),
    ) {
        // Honest: at most LIMIT sequence numbers at or above the bound a frame carries.
        let mut issued = Vec::new();
        let (mut next, mut bound) = (0, 0);
        for raise in raises {
            bound = (bound + raise).min(next);
            if next - bound < LIMIT {
                issued.push(NewConnectionId {
                    sequence_number: next,
                    retire_prior_to: bound,
                    connection_id: cid(next),
                    stateless_reset_token: token(next),
                });
                next += 1;
            }
        }
        let mut user = User::new(PATH, LIMIT);
        let mut model = Model::default();
        let mut retired = BTreeSet::new();
        for (index, rotate) in order {
            let frame = *index.get(&issued);
            if user.receive(&frame).is_err() {
                // Only a rotation unknown to the issuer could make room, never the reverse.
                return Err(TestCaseError::fail("an honest frame was refused"));
            }
            model.arrived.insert(frame.sequence_number);
            model.bound = model.bound.max(frame.retire_prior_to);
            if model.current.is_some() {
                model.settle_current();
            }
            if rotate {
                let _ = user.rotate();
                model.rotate();
            }
            let (frames, _) = written(1200, |w| user.cids.write_frames(w, true));
            for frame in frames {
                match frame {
                    Frame::PathRetireConnectionId(PathRetireConnectionId {
                        path_id: PATH,
                        sequence_number,
                    }) => retired.insert(sequence_number),
                    other => return Err(TestCaseError::fail(format!("{other:?}"))),
                };
            }
            let active = model.active();
            prop_assert_eq!(user.current(), model.current.map(cid));
            for sequence in 0..next {
                prop_assert_eq!(user.knows(&cid(sequence)), active.contains(&sequence));
            }
            let expected: BTreeSet<_> = model.arrived.difference(&active).copied().collect();
            prop_assert_eq!(&retired, &expected);
        }
    }
}
