//! Connection IDs and tokens of paths that move, beyond what the probes of a move bring about.

use std::net::SocketAddr;

use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::{ConnectionId, PathEvent, PathId, PathState, Side, SpaceId};

use super::harness::{Forgery, Kind, Net, Options, SECOND, Sent, address};

const ZERO: PathId = PathId::ZERO;

fn elsewhere() -> SocketAddr {
    ([203, 0, 113, 7], 6000).into()
}

fn destination(sent: &Sent) -> ConnectionId {
    *sent.packets()[0].header.dcid()
}

/// RFC 9000 section 9.5: one connection ID is not sent from two addresses, so after a failed move a
/// client returns with the ID of the old address.
#[test]
fn rfc_9000_9_5_a_returning_client_uses_the_old_connection_id() {
    let mut net = Net::with_two_paths(Options::default());
    net.client().inject(SpaceId::Data(ZERO), &[1]);
    net.wait(SECOND);
    let first = net.dcid(Side::Client, ZERO);
    net.delivers = |sent| sent.source != address(Side::Client, 3);
    let (now, local) = (net.now, address(Side::Client, 3));
    let mut path = net.client().path_mut(ZERO).unwrap();
    path.set_local_address(now, local).unwrap();
    let log = net.wait(20 * SECOND);
    let moved: Vec<_> = log.iter().filter(|sent| sent.source == local).collect();
    assert!(!moved.is_empty());
    let second = destination(moved[0]);
    assert_ne!(first, second);
    let back = net.client().path_stats(ZERO).unwrap().four_tuple;
    assert_eq!(back.local, address(Side::Client, 0));
    net.client().inject(SpaceId::Data(ZERO), &[1]);
    let sent = net.take(Side::Client);
    let home: Vec<_> = sent
        .iter()
        .filter(|sent| sent.source == back.local)
        .collect();
    assert!(!home.is_empty());
    for sent in home {
        assert_eq!(destination(sent), first);
    }
}

/// RFC 9000 section 9.5: a server that follows a client's move without probes changes its
/// connection ID as well, and keeps the other ID for the client's old address.
#[test]
fn rfc_9000_9_5_a_server_that_follows_uses_another_connection_id() {
    let mut net = Net::connected(Options::default());
    net.server().inject(SpaceId::Data(ZERO), &[1]);
    net.exchange();
    net.wait(SECOND);
    let before = net.dcid(Side::Server, ZERO);
    let ping = Forgery::new(Side::Client, Kind::OneRtt(ZERO), 5000, &[Frame::Ping]);
    let mut ping = net.forge(&ping);
    ping.source = elsewhere();
    net.give(ping);
    let sent = net.take(Side::Server);
    let (new, old): (Vec<_>, Vec<_>) = sent
        .iter()
        .partition(|sent| sent.destination == elsewhere());
    assert!(!new.is_empty() && !old.is_empty());
    assert!(new.iter().all(|sent| destination(sent) != before));
    assert!(old.iter().all(|sent| destination(sent) == before));
}

/// RFC 9000 section 8.1.3: a client may return from any proven address, so it gets a token for
/// each.
#[test]
fn rfc_9000_8_1_3_a_proven_move_brings_a_token() {
    let mut net = Net::connected(Options::default());
    let brings_token = |sent: &Sent| sent.has(|frame| matches!(frame, Frame::NewToken(_)));
    assert!(!net.wait(SECOND).iter().any(brings_token));
    let (now, local) = (net.now, address(Side::Client, 3));
    let mut path = net.client().path_mut(ZERO).unwrap();
    path.set_local_address(now, local).unwrap();
    let log = net.wait(SECOND);
    let tokens = log.iter().filter(|sent| brings_token(sent));
    assert_eq!(tokens.count(), 1);
}

/// Nothing bad is known of the addresses that a suspect path moves to.
#[test]
fn a_suspect_path_that_moves_is_used_again() {
    let one = PathId(1);
    let mut net = Net::with_two_paths(Options::default());
    net.delivers = |sent| sent.path() != Some(PathId(1));
    net.client().path_mut(one).unwrap().ping();
    net.wait(2 * SECOND);
    let state = |net: &mut Net| net.client().path_stats(one).unwrap().state;
    assert_eq!(state(&mut net), PathState::Suspect);
    let (now, local) = (net.now, address(Side::Client, 3));
    let mut path = net.client().path_mut(one).unwrap();
    path.set_local_address(now, local).unwrap();
    assert_ne!(state(&mut net), PathState::Suspect);
    assert!(net.has_path_event(Side::Client, &PathEvent::Recovered(one)));
}
