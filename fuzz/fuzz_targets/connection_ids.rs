//! Connection IDs of a path: any NEW_CONNECTION_ID frames against a naive version of the rules of
//! RFC 9000, and two honest sides over a bad network.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::testing::{LocalConnectionIds, PeerConnectionIds};
use mpquic_core::unstable_wire::frame::{Frame, FrameIter, NewConnectionId};
use mpquic_core::{ConnectionId, Fault, PathId};

const PATH: PathId = PathId(3);

#[derive(Debug, Arbitrary)]
enum Operation {
    /// A new frame. The sequence number is near the highest one, or far from it; the other fields
    /// have one of few values.
    New {
        sequence: i8,
        far: u32,
        retire: u8,
        id: u8,
        token: u8,
        length: u8,
    },
    /// An earlier frame, repeated.
    Again(u8),
    Rotate,
    Request,
    Write,
    Delivered {
        which: u8,
        acknowledged: bool,
    },
    Abandon,
}

#[derive(Debug, Arbitrary)]
enum Input {
    Hostile {
        limit: u8,
        operations: Vec<Operation>,
    },
    Honest {
        limit: u8,
        steps: Vec<Step>,
    },
}

fuzz_target!(|input: Input| {
    match input {
        Input::Hostile { limit, operations } => hostile(u64::from(limit % 7) + 2, operations),
        Input::Honest { limit, steps } => honest(u64::from(limit % 7) + 2, steps),
    }
});

/// The rules of RFC 9000 sections 5.1 and 19.15 and RFC 10069 section 4.4 for the side that uses
/// the connection IDs.
struct Model {
    limit: u64,
    seen: BTreeSet<u64>,
    /// Connection IDs that were not retired.
    active: BTreeMap<u64, NewConnectionId>,
    in_use: Option<u64>,
    is_open: bool,
    retire_prior_to: u64,
    /// The number of connection IDs since the last rise of `retire_prior_to` that arrived after
    /// they had to be retired.
    late: u64,
    /// Retirements that the peer has not acknowledged; true if the frame is due.
    retirements: Vec<(u64, bool)>,
    abandoned: bool,
}

impl Model {
    fn retire(&mut self, sequence: u64) {
        if self.retirements.iter().all(|(known, _)| *known != sequence) {
            self.retirements.push((sequence, true));
        }
    }

    /// The fault of the frame, regardless of earlier frames.
    fn fault(&self, frame: &NewConnectionId) -> Option<Fault> {
        if frame.retire_prior_to > frame.sequence_number {
            return Some(Fault::RetirePriorToTooLarge);
        }
        if frame.connection_id.is_empty() {
            return Some(Fault::ConnectionIdLength);
        }
        let conflicts = |(sequence, known): (&u64, &NewConnectionId)| {
            let same_cid = known.connection_id == frame.connection_id;
            let same_sequence = *sequence == frame.sequence_number;
            let same_token = known.stateless_reset_token == frame.stateless_reset_token;
            (same_cid || same_sequence) && !(same_cid && same_sequence && same_token)
        };
        self.active
            .iter()
            .any(conflicts)
            .then_some(Fault::ConnectionIdConflict)
    }

    fn receive(&mut self, frame: &NewConnectionId) -> Result<(), Fault> {
        if self.abandoned {
            return Ok(());
        }
        if let Some(fault) = self.fault(frame) {
            return Err(fault);
        }
        let sequence = frame.sequence_number;
        if sequence < self.retire_prior_to {
            self.late += 1;
            self.retire(sequence);
        } else if self.seen.insert(sequence) {
            self.active.insert(sequence, *frame);
        }
        if frame.retire_prior_to > self.retire_prior_to {
            self.retire_prior_to = frame.retire_prior_to;
            self.late = 0;
            let kept = self.active.split_off(&self.retire_prior_to);
            for sequence in std::mem::replace(&mut self.active, kept).into_keys() {
                self.retire(sequence);
            }
        }
        self.in_use = self
            .in_use
            .filter(|sequence| self.active.contains_key(sequence));
        if self.is_open && self.in_use.is_none() {
            self.in_use = self.active.keys().next().copied();
        }
        if self.active.len() as u64 > self.limit {
            Err(Fault::ConnectionIdsBeyondLimit)
        } else if self.gaps() as u64 >= self.limit + 16 {
            Err(Fault::SequenceGaps)
        } else if self.retirements.len() as u64 > self.most_retirements()
            || self.late > (4 * self.limit).max(128)
        {
            Err(Fault::TooManyRetirements)
        } else {
            Ok(())
        }
    }

    fn most_retirements(&self) -> u64 {
        (2 * self.limit).max(32)
    }

    /// The number of runs of missing sequence numbers below the highest received one.
    fn gaps(&self) -> usize {
        let mut expected = self.retire_prior_to;
        let mut gaps = 0;
        for sequence in self.seen.range(self.retire_prior_to..) {
            gaps += usize::from(*sequence > expected);
            expected = sequence + 1;
        }
        gaps
    }

    fn rotate(&mut self) -> bool {
        let mut unused = self.active.keys().filter(|key| Some(**key) != self.in_use);
        let Some(next) = unused.next().copied() else {
            return false;
        };
        if self.retirements.len() as u64 >= self.most_retirements() {
            return false;
        }
        if let Some(old) = self.in_use.replace(next) {
            self.active.remove(&old);
            self.retire(old);
        }
        self.is_open = true;
        true
    }

    fn check(&self, cids: &PeerConnectionIds) {
        let used = self.in_use.and_then(|sequence| self.active.get(&sequence));
        assert_eq!(cids.in_use(), used.map(|frame| frame.connection_id));
        // MP-108: only the reset token of the connection ID in use counts.
        let token = used.map(|frame| frame.stateless_reset_token);
        assert!(cids.reset_tokens().iter().eq(token.iter()));
        for (sequence, frame) in &self.active {
            let is_unused = Some(*sequence) != self.in_use;
            assert_eq!(cids.is_unused(&frame.connection_id), is_unused);
        }
    }
}

fn hostile(limit: u64, operations: Vec<Operation>) {
    let mut cids = PeerConnectionIds::new(PATH, limit);
    let mut model = Model {
        limit,
        seen: BTreeSet::new(),
        active: BTreeMap::new(),
        in_use: None,
        is_open: false,
        retire_prior_to: 0,
        late: 0,
        retirements: Vec::new(),
        abandoned: false,
    };
    let mut frames: Vec<NewConnectionId> = Vec::new();
    for operation in operations.into_iter().take(150) {
        match operation {
            Operation::New { .. } | Operation::Again(_) => {
                let Some(frame) = frame(&operation, &frames, &model) else {
                    continue;
                };
                frames.push(frame);
                let expected = model.receive(&frame);
                let result = cids.on_new_connection_id(&frame);
                assert_eq!(result.map_err(|error| error.fault), expected, "{frame:?}");
                if expected.is_err() {
                    return;
                }
            }
            Operation::Rotate if !model.abandoned => assert_eq!(cids.rotate(), model.rotate()),
            Operation::Rotate => {}
            Operation::Request => cids.request(),
            Operation::Write => check_frames(&mut cids, &mut model),
            Operation::Delivered {
                which,
                acknowledged,
            } => {
                deliver(&mut cids, &mut model, which, acknowledged);
            }
            Operation::Abandon => {
                cids.abandon();
                model.abandoned = true;
                model.active.clear();
                model.in_use = None;
                model.retirements.clear();
            }
        }
        model.check(&cids);
    }
    check_frames(&mut cids, &mut model);
    assert!(!cids.wants_to_send());
}

fn frame(
    operation: &Operation,
    before: &[NewConnectionId],
    model: &Model,
) -> Option<NewConnectionId> {
    match *operation {
        Operation::New {
            sequence,
            far,
            retire,
            id,
            token,
            length,
        } => {
            let highest = model.seen.last().copied().unwrap_or(0);
            let sequence_number = match far {
                0..0xf000_0000 => highest.saturating_add_signed((sequence % 24).into()),
                far => far.into(),
            };
            let length = if length < 200 {
                4
            } else {
                usize::from(length - 200) % 21
            };
            Some(NewConnectionId {
                sequence_number,
                retire_prior_to: (sequence_number + 3).saturating_sub(u64::from(retire % 32)),
                // Mostly one connection ID for each sequence number.
                connection_id: match id {
                    0..200 => ConnectionId::new(&(sequence_number as u32).to_be_bytes()),
                    id => ConnectionId::new(&vec![id % 4; length]),
                },
                stateless_reset_token: match token {
                    0..200 => [sequence_number as u8; 16],
                    token => [token; 16],
                },
            })
        }
        Operation::Again(which) => {
            let index = before.len().checked_sub(1 + usize::from(which))?;
            before.get(index).copied()
        }
        _ => None,
    }
}

/// Checks the frames to send: all due retirements, and at most one request for connection IDs.
fn check_frames(cids: &mut PeerConnectionIds, model: &mut Model) {
    let mut bytes = Vec::new();
    cids.write_frames(&mut bytes, 1 << 16);
    let mut retired = BTreeSet::new();
    for frame in decode(bytes) {
        match frame {
            Frame::PathRetireConnectionId(frame) => {
                assert_eq!(frame.path_id, PATH);
                assert!(retired.insert(frame.sequence_number), "twice");
            }
            Frame::PathCidsBlocked(frame) => {
                assert_eq!(frame.path_id, PATH);
                let next = model.seen.last().map_or(0, |last| last + 1);
                assert_eq!(frame.next_sequence_number, next);
            }
            other => panic!("{other:?}"),
        }
    }
    let due = model.retirements.iter().filter(|(_, due)| *due);
    assert_eq!(retired, due.map(|(sequence, _)| *sequence).collect());
    for (_, due) in &mut model.retirements {
        *due = false;
    }
}

fn deliver(cids: &mut PeerConnectionIds, model: &mut Model, which: u8, acknowledged: bool) {
    let mut sent = model.retirements.iter_mut().filter(|(_, due)| !due);
    let Some((sequence, due)) = sent.nth(which.into()) else {
        return;
    };
    let sequence = *sequence;
    *due = true;
    cids.on_retirement_delivery(sequence, acknowledged);
    if acknowledged {
        model.retirements.retain(|(known, _)| *known != sequence);
    }
}

fn decode(bytes: Vec<u8>) -> Vec<Frame> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let frames: Result<_, _> = FrameIter::new(Bytes::from(bytes), true).collect();
    frames.expect("our own frames")
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// The issuer fills up its connection IDs and sends frames.
    Issue {
        target: u8,
    },
    /// The user changes to the next connection ID and sends frames.
    Rotate,
    Request,
    /// Delivers a frame, maybe twice, or loses it.
    Frame {
        which: u8,
        from_issuer: bool,
        fate: u8,
    },
}

/// Two sides that keep the rules never see a fault, and agree once all frames have arrived.
struct Honest {
    limit: u64,
    issuer: LocalConnectionIds,
    user: PeerConnectionIds,
    issued: u32,
    to_user: Vec<Frame>,
    to_issuer: Vec<Frame>,
}

impl Honest {
    fn issue(&mut self, target: u64) {
        for _ in 0..self.issuer.wanted(target.min(self.limit)) {
            let id = self.issued;
            self.issued += 1;
            let cid = ConnectionId::new(&id.to_be_bytes());
            assert_eq!(self.issuer.issue(cid, [id as u8; 16]), u64::from(id));
        }
    }

    fn send(&mut self) {
        let mut bytes = Vec::new();
        self.issuer.write_frames(&mut bytes, 1 << 16);
        self.to_user.extend(decode(bytes));
        let mut bytes = Vec::new();
        self.user.write_frames(&mut bytes, 1 << 16);
        self.to_issuer.extend(decode(bytes));
    }

    fn deliver_to_user(&mut self, frame: &Frame, fate: u8) {
        let Frame::PathNewConnectionId(frame) = frame else {
            panic!("{frame:?}");
        };
        let new = &frame.new_connection_id;
        if fate % 4 == 0 {
            return self.issuer.on_delivery(new.sequence_number, false);
        }
        for _ in 0..=u8::from(fate % 4 == 1) {
            self.user.on_new_connection_id(new).expect("an honest peer");
        }
        self.issuer.on_delivery(new.sequence_number, true);
    }

    fn deliver_to_issuer(&mut self, frame: &Frame, fate: u8) {
        match frame {
            Frame::PathRetireConnectionId(frame) => {
                let sequence = frame.sequence_number;
                if fate % 4 == 0 {
                    return self.user.on_retirement_delivery(sequence, false);
                }
                // In a packet to a connection ID of another path.
                let destination = ConnectionId::new(&[0xff; 8]);
                for _ in 0..=u8::from(fate % 4 == 1) {
                    let retired = self.issuer.on_retire(sequence, &destination);
                    retired.expect("an honest peer");
                }
                self.user.on_retirement_delivery(sequence, true);
            }
            Frame::PathCidsBlocked(frame) => {
                let blocked = self.issuer.on_cids_blocked(frame.next_sequence_number);
                blocked.expect("an honest peer");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Packets must reach their path: the issuer still routes the connection IDs in use.
    fn check(&self) {
        if let Some(used) = self.user.in_use() {
            assert!(self.issuer.active().any(|active| *active == used));
        }
        assert!(self.issuer.active().count() as u64 <= self.limit);
    }
}

fn honest(limit: u64, steps: Vec<Step>) {
    let mut pair = Honest {
        limit,
        issuer: LocalConnectionIds::new(PATH),
        user: PeerConnectionIds::new(PATH, limit),
        issued: 0,
        to_user: Vec::new(),
        to_issuer: Vec::new(),
    };
    for step in steps.into_iter().take(200) {
        match step {
            Step::Issue { target } => pair.issue(target.into()),
            Step::Rotate => drop(pair.user.rotate()),
            Step::Request => pair.user.request(),
            Step::Frame {
                which,
                from_issuer: true,
                fate,
            } if !pair.to_user.is_empty() => {
                let index = usize::from(which) % pair.to_user.len();
                let frame = pair.to_user.swap_remove(index);
                pair.deliver_to_user(&frame, fate);
            }
            Step::Frame {
                which,
                from_issuer: false,
                fate,
            } if !pair.to_issuer.is_empty() => {
                let index = usize::from(which) % pair.to_issuer.len();
                let frame = pair.to_issuer.swap_remove(index);
                pair.deliver_to_issuer(&frame, fate);
            }
            Step::Frame { .. } => {}
        }
        pair.send();
        pair.check();
    }
    pair.issue(limit);
    for _ in 0..100 {
        pair.send();
        for frame in std::mem::take(&mut pair.to_user) {
            pair.deliver_to_user(&frame, 3);
        }
        for frame in std::mem::take(&mut pair.to_issuer) {
            pair.deliver_to_issuer(&frame, 3);
        }
    }
    let active: Vec<_> = pair.issuer.active().copied().collect();
    for cid in active {
        assert!(pair.user.is_unused(&cid) || pair.user.in_use() == Some(cid));
    }
}
