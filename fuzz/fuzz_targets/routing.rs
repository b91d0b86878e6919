//! Datagrams that are cut, joined, changed, repeated and forged on their way between endpoints with
//! several connections: datagrams reach their connection, other connections are not harmed, answers
//! are smaller than the received datagrams, and data of unchanged datagrams arrives.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::header::{
    PacketHeader, encode_retry, encode_version_negotiation, next_packet, peek,
};
use mpquic_core::{ConnectionId, Dir, Side, Version};
use mpquic_fuzz::number::Cid;
use mpquic_fuzz::table::{Datagram, Options, SIDES, Table, address};

#[derive(Debug, Arbitrary)]
enum Tamper {
    Drop,
    Double,
    Cut(u16),
    Flip {
        at: u16,
        bit: u8,
    },
    Append(Vec<u8>),
    /// The packets of another datagram in flight follow.
    Join(u8),
    /// The packets of the datagram arrive in datagrams of their own.
    Split,
    /// The datagram gets another source or destination address.
    Address {
        source: bool,
        index: u8,
    },
    Late,
}

#[derive(Debug, Arbitrary)]
enum Forged {
    Bytes(Vec<u8>),
    Long {
        kind: u8,
        version: Option<u32>,
        dcid: Target,
        scid: Cid,
        token: Vec<u8>,
        payload: u16,
    },
    Short {
        dcid: Target,
        payload: u16,
        fill: u8,
    },
    Retry {
        dcid: Target,
        scid: Cid,
        token: Vec<u8>,
    },
    Negotiation {
        dcid: Target,
        scid: Cid,
        versions: Vec<u32>,
    },
}

/// A destination connection ID: from the wire, or of any bytes.
#[derive(Debug, Arbitrary)]
enum Target {
    Seen(u8),
    Any(Cid),
}

#[derive(Debug, Arbitrary)]
enum Step {
    Connect(u8),
    Tamper {
        which: u8,
        how: Tamper,
    },
    Forge {
        to_server: bool,
        index: u8,
        what: Forged,
    },
    Deliver(u8),
    Write {
        side: bool,
        which: u8,
        length: u16,
    },
    OpenPath(u8),
    Wait(u16),
}

#[derive(Debug, Arbitrary)]
struct Input {
    retry: bool,
    steps: Vec<Step>,
}

struct Wire {
    table: Table,
    /// Connection IDs from the wire.
    seen: Vec<ConnectionId>,
    late: Vec<Datagram>,
    connections: usize,
}

fuzz_target!(|input: Input| {
    let mut options = Options {
        retry: input.retry,
        ..Options::default()
    };
    for transport in [&mut options.client, &mut options.server] {
        transport.max_idle_timeout = Some(Duration::from_secs(30));
        transport.max_handshake_duration = Duration::from_secs(20);
    }
    let mut wire = Wire {
        table: Table::new(options),
        seen: Vec::new(),
        late: Vec::new(),
        connections: 0,
    };
    for step in input.steps.into_iter().take(60) {
        wire.step(step);
    }
    let late = std::mem::take(&mut wire.late);
    wire.table.in_flight.extend(late);
    wire.table.exchange();
    wire.check_honest();
    wire.table.finish();
});

impl Wire {
    fn step(&mut self, step: Step) {
        match step {
            Step::Connect(index) if self.connections < 4 => {
                self.connections += 1;
                self.table.connect(index % 4);
            }
            Step::Connect(_) => {}
            Step::Tamper { which, how } => self.tamper(which, how),
            Step::Forge {
                to_server,
                index,
                what,
            } => {
                let data = self.forge(what);
                let from = if to_server {
                    Side::Client
                } else {
                    Side::Server
                };
                self.table.give(Datagram {
                    from,
                    source: address(from, index % 4),
                    destination: address(!from, 0),
                    ecn: None,
                    data: BytesMut::from(&data[..]),
                });
            }
            Step::Deliver(count) => {
                let all = self.table.in_flight.len();
                let count = usize::from(count).min(all);
                let rest = self.table.in_flight.split_off(count);
                for datagram in std::mem::replace(&mut self.table.in_flight, rest) {
                    self.table.give(datagram);
                }
            }
            Step::Write {
                side,
                which,
                length,
            } => {
                let side = if side { Side::Client } else { Side::Server };
                let mut all = self.table.node(side).connections.values_mut();
                if let Some(hosted) = all.nth(usize::from(which % 4))
                    && let Some(id) = hosted.connection.streams().open(Dir::Uni)
                {
                    let data = vec![which; length.into()];
                    let _may_be_blocked = hosted.connection.send_stream(id).write(&data);
                }
            }
            Step::OpenPath(index) => drop(self.table.open_path(index % 4)),
            Step::Wait(milliseconds) => {
                self.table.wait(Duration::from_millis(milliseconds.into()));
            }
        }
        SIDES.into_iter().for_each(|side| self.table.take(side));
        self.note();
        // A flood of datagrams is cut, so that the input ends.
        self.table.in_flight.truncate(500);
    }

    /// Remembers the connection IDs on the wire.
    fn note(&mut self) {
        for datagram in &self.table.in_flight {
            if let Some(start) = peek(&datagram.data, 8) {
                // Packets of unknown versions may have longer connection IDs.
                let short = |id: &&[u8]| id.len() <= 20;
                for id in [start.dcid, start.scid].into_iter().filter(short) {
                    let id = ConnectionId::new(id);
                    if !self.seen.contains(&id) && self.seen.len() < 64 {
                        self.seen.push(id);
                    }
                }
            }
        }
    }

    fn tamper(&mut self, which: u8, how: Tamper) {
        let all = &mut self.table.in_flight;
        if all.is_empty() {
            return;
        }
        let index = usize::from(which) % all.len();
        let count = all.len();
        match how {
            Tamper::Drop => drop(all.swap_remove(index)),
            Tamper::Double => all.push(all[index].clone()),
            Tamper::Cut(at) => {
                let length = usize::from(at) % (all[index].data.len() + 1);
                all[index].data.truncate(length);
            }
            Tamper::Flip { at, bit } => {
                let data = &mut all[index].data;
                let at = usize::from(at) % data.len().max(1);
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Tamper::Append(bytes) => all[index].data.extend_from_slice(&bytes),
            Tamper::Join(other) => {
                let other = all[usize::from(other) % count].clone();
                if other.from == all[index].from {
                    all[index].data.extend_from_slice(&other.data);
                }
            }
            Tamper::Split => {
                let whole = all.swap_remove(index);
                let mut rest = whole.data.clone();
                while let (false, Ok(packet)) = (rest.is_empty(), next_packet(&mut rest, 8)) {
                    all.push(Datagram {
                        data: packet.data,
                        ..whole.clone()
                    });
                }
            }
            Tamper::Address {
                source: true,
                index: to,
            } => {
                all[index].source = address(all[index].from, to % 4);
            }
            Tamper::Address {
                source: false,
                index: to,
            } => {
                all[index].destination = address(!all[index].from, to % 4);
            }
            Tamper::Late => {
                let late = all.swap_remove(index);
                self.late.push(late);
            }
        }
    }

    fn target(&self, target: &Target) -> ConnectionId {
        match target {
            Target::Seen(index) if !self.seen.is_empty() => {
                self.seen[usize::from(*index) % self.seen.len()]
            }
            Target::Seen(_) => ConnectionId::new(&[]),
            Target::Any(cid) => cid.0,
        }
    }

    fn forge(&self, what: Forged) -> Vec<u8> {
        let mut out = Vec::new();
        match what {
            Forged::Bytes(bytes) => return bytes,
            Forged::Long {
                kind,
                version,
                dcid,
                scid,
                token,
                payload,
            } => {
                let (dcid, scid) = (self.target(&dcid), scid.0);
                let second = kind & 4 != 0;
                let known = if second { Version::V2 } else { Version::V1 };
                let header = match kind % 3 {
                    0 => PacketHeader::Initial {
                        version: known,
                        dcid,
                        scid,
                        token: token.into(),
                    },
                    1 => PacketHeader::Handshake {
                        version: known,
                        dcid,
                        scid,
                    },
                    _ => PacketHeader::ZeroRtt {
                        version: known,
                        dcid,
                        scid,
                    },
                };
                let encoded = header.encode(&mut out, 0, 1);
                out.resize(out.len() + usize::from(payload % 1500), 0);
                let end = out.len();
                encoded.set_length(&mut out, end);
                if let Some(version) = version {
                    out[1..5].copy_from_slice(&version.to_be_bytes());
                }
            }
            Forged::Short {
                dcid,
                payload,
                fill,
            } => {
                let dcid = self.target(&dcid);
                let header = PacketHeader::Short {
                    dcid,
                    spin: false,
                    key_phase: false,
                };
                header.encode(&mut out, 0, 1);
                out.resize(out.len() + usize::from(payload % 1500), fill);
            }
            Forged::Retry { dcid, scid, token } => {
                encode_retry(&mut out, Version::V1, &self.target(&dcid), &scid.0, &token);
                out.extend_from_slice(&[0; 16]);
            }
            Forged::Negotiation {
                dcid,
                scid,
                versions,
            } => {
                encode_version_negotiation(&mut out, &self.target(&dcid), &scid.0, &versions);
            }
        }
        out
    }

    /// After the attack, a new client can connect, and its data arrives.
    fn check_honest(&mut self) {
        let before: Vec<_> = self.table.server.connections.keys().copied().collect();
        let handle = self.table.connect(3);
        self.table.wait(Duration::from_secs(2));
        let Some(hosted) = self.table.client.connections.get_mut(&handle) else {
            panic!("the honest client is lost");
        };
        assert_eq!(hosted.lost(), None);
        assert!(
            !hosted.connection.is_handshaking(),
            "an honest client waits"
        );
        let id = hosted
            .connection
            .streams()
            .open(Dir::Uni)
            .expect("a stream");
        let data = vec![0xab; 3000];
        assert_eq!(
            hosted.connection.send_stream(id).write(&data).ok(),
            Some(3000)
        );
        self.table.wait(Duration::from_secs(1));
        let mut servers = self.table.server.connections.iter();
        let served = servers.find(|(handle, hosted)| {
            !before.contains(handle) && hosted.read.get(&id) == Some(&data)
        });
        assert!(served.is_some(), "the honest client's data is lost");
    }
}
