//! Connection IDs: how long they are, and who makes them.

use std::collections::BTreeSet;
use std::time::Duration;

use mpquic_core::config::ConnectionIds;
use mpquic_core::unstable_wire::frame::{Frame, NewConnectionId, PathRetireConnectionId};
use mpquic_core::unstable_wire::header::Header;
use mpquic_core::{ConnectionId, ConnectionIdGenerator, PathEvent, PathId, Side};

use super::harness::{Forgery, Kind, MS, Net, Options, Packet, SIDES, Sent, address};

/// MP-008, MP-010: no endpoint can be made to issue empty connection IDs.
#[test]
fn mp_008_connection_ids_are_never_empty() {
    assert!(ConnectionIds::random(0).is_err());
    let mut options = Options::default();
    options.client_endpoint.connection_ids = ConnectionIds::random(4).unwrap();
    let mut net = Net::connecting(options);
    let sent = net.take(Side::Client);
    let Header::Initial { scid, dcid, .. } = &sent[0].packets()[0].header else {
        panic!("no Initial");
    };
    assert_eq!(scid.len(), 4);
    assert!(!dcid.is_empty());
}

/// MP-102: who retires all connection IDs of a path gets others, and the path goes on with them.
#[test]
fn mp_102_a_path_goes_on_after_all_its_connection_ids_are_retired() {
    let one = PathId(1);
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        let before = net.issued(side, one);
        let retire = |new: &NewConnectionId| {
            Frame::PathRetireConnectionId(PathRetireConnectionId {
                path_id: one,
                sequence_number: new.sequence_number,
            })
        };
        let frames: Vec<_> = before.iter().map(retire).collect();
        let forged = net.forge(&Forgery::new(
            !side,
            Kind::OneRtt(PathId::ZERO),
            3000,
            &frames,
        ));
        net.give(forged);
        net.take(side);
        let issued = net.issued(side, one);
        assert_eq!(issued.len(), 2 * before.len(), "{side:?}");

        let received = |net: &mut Net| {
            net.connection(side)
                .path_stats(one)
                .unwrap()
                .packets_received
        };
        let count = received(&mut net);
        let mut forgery = Forgery::new(!side, Kind::OneRtt(one), 3000, &[Frame::Ping]);
        forgery.dcid = Some(issued[before.len()].connection_id);
        let forged = net.forge(&forgery);
        net.give(forged);
        assert_eq!(received(&mut net), count + 1, "{side:?}");
        assert_eq!(net.lost(side), None);
    }
}

/// The server ID in the first bytes of connection IDs, by which a load balancer would route.
const SERVER_ID: [u8; 3] = [0xc0, 0xff, 0xee];

/// Connection IDs with a server ID, and then a number that no other generator begins at.
struct Routable {
    next: u64,
    length: usize,
}

impl Routable {
    fn ids(length: usize) -> ConnectionIds {
        let generator = move |seed: [u8; 32]| Self {
            next: u64::from_be_bytes(*seed.first_chunk().unwrap()),
            length,
        };
        ConnectionIds::new(generator).unwrap()
    }
}

impl ConnectionIdGenerator for Routable {
    fn generate_cid(&mut self) -> ConnectionId {
        self.next = self.next.wrapping_add(1);
        let mut bytes = [0; 20];
        bytes[..3].copy_from_slice(&SERVER_ID);
        bytes[3..11].copy_from_slice(&self.next.to_be_bytes());
        ConnectionId::new(&bytes[..self.length])
    }

    fn cid_len(&self) -> usize {
        self.length
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn packets(log: &[Sent], from: Side) -> impl Iterator<Item = Packet> + '_ {
    let sent = log.iter().filter(move |sent| sent.from == from);
    sent.flat_map(Sent::packets)
}

/// The connection IDs of the server that a connection with two paths shows, after a Retry.
fn shown(length: usize, preferred: bool) -> Vec<ConnectionId> {
    let mut options = Options::default();
    options.server_endpoint.connection_ids = Routable::ids(length);
    options.preferred = preferred.then(|| address(Side::Server, 9));
    let mut net = Net::connecting(options);
    net.retry = true;
    let first = net.take(Side::Client).remove(0);
    let retry = net.give(first.clone()).unwrap();
    let Header::Retry { scid, .. } = first.answered(retry.clone()).packets().remove(0).header
    else {
        panic!("no Retry");
    };
    net.give(first.answered(retry));

    let mut log = net.exchange();
    log.extend(net.wait(200 * MS));
    assert_eq!(net.open_path(1), Ok(PathId(1)));
    log.extend(net.wait(200 * MS));
    for side in [Side::Client, Side::Server] {
        let established = PathEvent::Established(PathId(1));
        assert!(net.has_path_event(side, &established));
        net.write(side, 30_000);
        log.extend(net.wait(200 * MS));
    }
    if preferred {
        let path = net.client().path_stats(PathId::ZERO).unwrap();
        assert_eq!(path.four_tuple.remote, address(Side::Server, 9));
    }

    let mut shown = vec![scid];
    for packet in packets(&log, Side::Server) {
        if let Header::Initial { scid, .. } | Header::Handshake { scid, .. } = packet.header {
            shown.push(scid);
        }
    }
    let one_rtt = packets(&log, Side::Client).filter(Packet::is_one_rtt);
    shown.extend(one_rtt.map(|packet| *packet.header.dcid()));
    for path in 0..8 {
        let issued = net.issued(Side::Server, PathId(path)).into_iter();
        shown.extend(issued.map(|new| new.connection_id));
    }
    shown
}

/// The first connection ID of a connection, that of a Retry and of a preferred address, and those
/// of all paths: whatever reads them finds the server.
#[test]
fn every_connection_id_is_made_by_the_configured_generator() {
    for (length, preferred) in [(11, false), (11, true), (20, false)] {
        let shown = shown(length, preferred);
        for cid in &shown {
            assert_eq!(cid.len(), length);
            assert!(cid.starts_with(&SERVER_ID), "{cid}");
        }
        let distinct: BTreeSet<_> = shown.iter().collect();
        assert!(distinct.len() >= 5, "{distinct:?}");
    }
}

/// Equal seeds give equal connection IDs, different seeds different IDs.
#[test]
fn connection_ids_of_a_seed_are_repeatable() {
    assert_eq!(shown(11, false), shown(11, false));
}

/// RFC 9000 section 5.1.2: all connection IDs are replaced, on each path, and no side uses the old
/// IDs any more; waiting data arrives.
#[test]
fn connection_ids_are_replaced_when_asked() {
    let mut net = Net::with_two_paths(Options::default());
    let paths = [PathId::ZERO, PathId(1)];
    for side in [Side::Client, Side::Server] {
        let peer = !side;
        let before = paths.map(|path| net.dcid(peer, path));
        for path in paths {
            // An unused ID beside the one in use.
            assert_eq!(
                net.issued(side, path).len(),
                if path == PathId::ZERO { 1 } else { 2 }
            );
        }
        net.connection(side).replace_connection_ids();
        net.wait(200 * MS);
        for path in paths {
            let issued = net.issued(side, path);
            let newest = &issued[issued.len() - 2..];
            for new in newest {
                assert_eq!(
                    new.retire_prior_to, newest[0].sequence_number,
                    "{side:?} {path}"
                );
            }
        }
        let id = net.write(peer, 30_000);
        let log = net.wait(400 * MS);
        assert_eq!(net.read(side, id), 30_000);
        let sent = packets(&log, peer).filter(Packet::is_one_rtt);
        let used: BTreeSet<_> = sent.map(|packet| *packet.header.dcid()).collect();
        assert!(!used.is_empty() && before.iter().all(|old| !used.contains(old)));
        assert!(net.lost(side).is_none() && net.lost(peer).is_none());
    }
}
