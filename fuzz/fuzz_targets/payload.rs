//! A whole connection whose peer, the attacker, sends any frames in authentic packets. The
//! connection of the victim goes on, or ends and tells the attacker its fault. Memory stays within
//! its limit, sent data arrives unchanged, and no state is left at the end.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::frame::{Close, Frame, FrameIter};
use mpquic_core::{ConnectionError, Dir, PathId, Side, SpaceId, StreamId, VarInt};
use mpquic_fuzz::frames::AnyFrame;
use mpquic_fuzz::table::{Options, SIDES, Table};

/// The limit of a connection's memory, bytes.
const MEMORY: u64 = 8 << 20;
/// Most bytes that one packet may add to the memory before the check.
const NOTICED: u64 = 256 << 10;
/// The longest time of all waits together: longer than the idle timeout, and short enough that an
/// input whose connection is never idle does not slow the fuzzer down.
const WAITS: Duration = Duration::from_secs(90);
/// The most bytes of frames in a packet that fits on any path.
const MOST: usize = 1000;

#[derive(Debug, Arbitrary)]
enum Step {
    /// Frames of the attacker, on one of its paths.
    Frames {
        path: u8,
        frames: Vec<AnyFrame>,
    },
    /// Frames of the attacker in a packet of the handshake.
    Early {
        handshake: bool,
        frames: Vec<AnyFrame>,
    },
    /// Any bytes in place of frames.
    Raw {
        path: u8,
        bytes: Vec<u8>,
    },
    Write {
        by_victim: bool,
        length: u16,
        finish: bool,
        bidirectional: bool,
    },
    Reset {
        by_victim: bool,
        which: u8,
    },
    Stop {
        by_victim: bool,
        which: u8,
    },
    Datagram {
        by_victim: bool,
        length: u8,
    },
    OpenPath(u8),
    ClosePath {
        by_victim: bool,
        path: u8,
    },
    UpdateKeys {
        by_victim: bool,
    },
    Wait(u16),
}

#[derive(Debug, Arbitrary)]
struct Input {
    attacker_is_server: bool,
    /// Flights of the handshake before the attack starts; a larger number means all flights.
    flights: u8,
    paths: u8,
    steps: Vec<Step>,
}

struct Attack {
    table: Table,
    attacker: Side,
    /// True if a frame of the attack may have ended the connection without a fault.
    may_close: bool,
    /// The victim's streams, with the number of sent bytes.
    sent: Vec<(StreamId, u64)>,
    /// The rest of [`WAITS`].
    waits: Duration,
}

fuzz_target!(|input: Input| {
    let mut options = Options::default();
    for transport in [&mut options.client, &mut options.server] {
        transport.memory_limit = Some(MEMORY);
        transport.max_idle_timeout = Some(Duration::from_secs(30));
    }
    let mut table = Table::new(options);
    table.connect(0);
    let attacker = if input.attacker_is_server {
        Side::Server
    } else {
        Side::Client
    };
    let mut attack = Attack {
        table,
        attacker,
        may_close: false,
        sent: Vec::new(),
        waits: WAITS,
    };
    attack.start(&input);
    for step in input.steps.iter().take(40) {
        attack.step(step);
        attack.check();
    }
    attack.table.wait(Duration::from_secs(2));
    attack.check();
    attack.table.finish();
});

impl Attack {
    fn start(&mut self, input: &Input) {
        if input.flights % 8 < 4 {
            for _ in 0..input.flights % 8 {
                SIDES.into_iter().for_each(|side| self.table.take(side));
                self.table.now += Duration::from_millis(1);
                for datagram in std::mem::take(&mut self.table.in_flight) {
                    self.table.give(datagram);
                }
            }
            return;
        }
        self.table.exchange();
        for index in 0..input.paths % 3 {
            self.table.wait(Duration::from_millis(50));
            self.table.open_path(1 + index);
        }
        self.table.wait(Duration::from_millis(50));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Frames { path, frames } => self.inject(Some(*path), false, &self.encode(frames)),
            Step::Early { handshake, frames } => {
                self.inject(None, *handshake, &self.encode(frames));
            }
            Step::Raw { path, bytes } => {
                self.inject(Some(*path), false, &bytes[..bytes.len().min(MOST)]);
            }
            Step::Wait(milliseconds) => {
                let wait = Duration::from_millis(u64::from(*milliseconds)).min(self.waits);
                self.waits -= wait;
                self.table.wait(wait);
            }
            Step::OpenPath(index) => drop(self.table.open_path(index % 4)),
            Step::Write {
                by_victim,
                length,
                finish,
                bidirectional,
            } => {
                let dir = if *bidirectional { Dir::Bi } else { Dir::Uni };
                self.write(*by_victim, dir, *length, *finish);
            }
            other => self.operate(other),
        }
        self.table.exchange();
    }

    fn side(&self, by_victim: bool) -> Side {
        if by_victim {
            !self.attacker
        } else {
            self.attacker
        }
    }

    fn encode(&self, frames: &[AnyFrame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for AnyFrame(frame) in frames.iter().take(12) {
            if bytes.len() + frame.size() <= MOST {
                frame.encode(&mut bytes);
            }
        }
        bytes
    }

    fn inject(&mut self, path: Option<u8>, handshake: bool, bytes: &[u8]) {
        let mut read = FrameIter::new(bytes.to_vec().into(), true);
        let closes = |frame: &Frame| match frame {
            Frame::ConnectionClose(Close::Connection(_) | Close::Application(_)) => true,
            // Without paths there is no connection.
            Frame::PathAbandon(_) => true,
            _ => false,
        };
        // The bytes behind the attack in the packet complete a cut frame.
        self.may_close |= read.any(|frame| frame.map_or(true, |frame| closes(&frame)));
        let attacker = self.attacker;
        let Some(hosted) = self.table.hosted(attacker) else {
            return;
        };
        let paths: Vec<PathId> = hosted.connection.paths().collect();
        let space = match path {
            None if handshake => SpaceId::Handshake,
            None => SpaceId::Initial,
            Some(_) if paths.is_empty() => return,
            Some(path) => SpaceId::Data(paths[usize::from(path) % paths.len()]),
        };
        if !bytes.is_empty() {
            hosted.connection.inject(space, bytes);
        }
    }

    fn write(&mut self, by_victim: bool, dir: Dir, length: u16, finish: bool) {
        let side = self.side(by_victim);
        let Some(hosted) = self.table.hosted(side) else {
            return;
        };
        let connection = &mut hosted.connection;
        let Some(id) = connection.streams().open(dir) else {
            return;
        };
        let data: Vec<u8> = (0..u64::from(length)).map(|at| byte_of(id, at)).collect();
        let written = connection.send_stream(id).write(&data).unwrap_or(0);
        if finish {
            let _may_be_stopped = connection.send_stream(id).finish();
        }
        if by_victim {
            self.sent.push((id, written as u64));
        }
    }

    fn operate(&mut self, step: &Step) {
        let (by_victim, which) = match step {
            Step::Reset { by_victim, which } | Step::Stop { by_victim, which } => {
                (*by_victim, *which)
            }
            Step::ClosePath { by_victim, path } => (*by_victim, *path),
            Step::Datagram { by_victim, length } => (*by_victim, *length),
            Step::UpdateKeys { by_victim } => (*by_victim, 0),
            _ => return,
        };
        self.may_close |= matches!(step, Step::ClosePath { .. });
        let now = self.table.now;
        let side = self.side(by_victim);
        let Some(hosted) = self.table.hosted(side) else {
            return;
        };
        let connection = &mut hosted.connection;
        let id = |side| {
            let dir = if which % 2 == 0 { Dir::Bi } else { Dir::Uni };
            StreamId::new(side, dir, u64::from(which / 2 % 8))
        };
        let code = VarInt::from_u32(7);
        match step {
            Step::Reset { .. } => drop(connection.send_stream(id(side)).reset(code)),
            Step::Stop { .. } => drop(connection.recv_stream(id(!side)).stop(code)),
            Step::Datagram { .. } => {
                let data = vec![which; usize::from(which)];
                let _may_be_refused = connection.datagrams().send(data.into());
            }
            Step::ClosePath { .. } => {
                let paths: Vec<PathId> = connection.paths().collect();
                if let Some(path) = paths.get(usize::from(which)) {
                    let code = mpquic_core::TransportErrorCode::NO_ERROR;
                    let _may_be_the_last = connection.close_path(now, *path, code);
                }
            }
            _ => drop(connection.initiate_key_update(now)),
        }
    }

    fn check(&mut self) {
        let may_close = self.may_close;
        let attacker = self.attacker;
        let hosted = self.table.hosted(attacker);
        let attacker_is_gone = hosted.is_none_or(|hosted| hosted.connection.is_closed());
        if let Some(victim) = self.table.hosted(!attacker) {
            let memory = victim.connection.stats().memory;
            let is_over = victim.connection.is_closed();
            let kept = memory.total() - memory.to_send;
            assert!(is_over || kept <= MEMORY + NOTICED, "{memory:?}");
            match victim.lost() {
                None | Some(ConnectionError::TransportError(_)) => {}
                // The attacker's connection found a fault in an answer that the attack caused.
                Some(ConnectionError::ConnectionClosed(_)) => {}
                Some(ConnectionError::ApplicationClosed(_)) if may_close => {}
                // The attacker named foreign connection IDs, lost its connection, and answers with
                // a stateless reset.
                Some(ConnectionError::Reset) if attacker_is_gone => {}
                Some(ConnectionError::TimedOut | ConnectionError::HandshakeTimedOut) => {}
                Some(other) => panic!("{other}"),
            }
        }
        // The received bytes of the victim's streams equal the sent bytes.
        let sent = std::mem::take(&mut self.sent);
        if let Some(hosted) = self.table.hosted(attacker) {
            for (id, length) in &sent {
                let Some(read) = hosted.read.get(id) else {
                    continue;
                };
                assert!(read.len() as u64 <= *length, "more than was sent");
                let expected = (0..).map(|at| byte_of(*id, at));
                assert!(
                    read.iter()
                        .copied()
                        .zip(expected)
                        .all(|(byte, at)| byte == at)
                );
            }
        }
        self.sent = sent;
    }
}

fn byte_of(id: StreamId, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(id))
        >> 50) as u8
}
