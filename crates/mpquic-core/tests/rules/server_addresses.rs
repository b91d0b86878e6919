//! draft-munizaga-quic-alternative-server-address-01: further addresses of a server.

use mpquic_core::unstable_wire::frame::{AddressEntry, AlternativeAddress, Frame};
use mpquic_core::{
    AnnounceError, Event, Fault, FrameKind, OpenPathError, PathEvent, PathId, PathState,
    PathStatus, ServerAddress, Side,
};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent, address};

const ZERO: PathId = PathId::ZERO;
const TYPE: u64 = 0x1d58_45e2;

/// A client that asks for addresses, if it `asks`.
fn options(asks: bool) -> Options {
    Options {
        use_alternative: asks,
        ..Options::default()
    }
}

fn server(index: u8) -> ServerAddress {
    ServerAddress::new(address(Side::Server, index))
}

/// What the client was told, oldest first.
fn told(net: &mut Net) -> Vec<Vec<ServerAddress>> {
    let events = net.events(Side::Client).iter();
    let told = events.filter_map(|event| match event {
        Event::Path(PathEvent::ServerAddresses(all)) => Some(all.to_vec()),
        _ => None,
    });
    told.collect()
}

fn frames(log: &[Sent]) -> Vec<AlternativeAddress> {
    let frames = log.iter().flat_map(Sent::frames);
    let frames = frames.filter_map(|frame| match frame {
        Frame::AlternativeAddress(frame) => Some(frame),
        _ => None,
    });
    frames.collect()
}

fn set(sequence_number: u64, indices: &[u8]) -> Frame {
    let entries = indices.iter().map(|index| AddressEntry {
        priority_hint: 0,
        address: address(Side::Server, *index),
    });
    Frame::AlternativeAddress(AlternativeAddress {
        sequence_number,
        preferred: entries.collect(),
        backup: Vec::new(),
    })
}

fn give(net: &mut Net, to: Side, number: u64, frame: Frame) {
    let forged = net.forge(&Forgery::new(!to, Kind::OneRtt(ZERO), number, &[frame]));
    net.give(forged);
}

#[test]
fn section_5_the_client_learns_of_addresses_and_of_their_end() {
    let mut net = Net::connected(options(true));
    let sets = [
        vec![server(1), server(2).backup()],
        vec![server(2).backup()],
        vec![],
    ];
    let mut log = Vec::new();
    for set in &sets {
        assert_eq!(net.server().announce_addresses(set), Ok(()));
        log.extend(net.wait(200 * MS));
    }
    assert_eq!(told(&mut net), sets);
    let sent = frames(&log);
    let numbers: Vec<_> = sent.iter().map(|frame| frame.sequence_number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(sent[0].preferred[0].address, address(Side::Server, 1));
    assert_eq!(sent[0].backup[0].address, address(Side::Server, 2));
    let received = net.client().stats().frames_received;
    assert_eq!(received[FrameKind::AlternativeAddress], 3);
}

#[test]
fn section_3_a_client_without_the_parameter_is_not_told() {
    let mut net = Net::connecting(options(false));
    let mut log = net.exchange();
    assert_eq!(net.server().announce_addresses(&[server(1)]), Ok(()));
    log.extend(net.wait(SECOND));
    assert!(frames(&log).is_empty());
    assert!(told(&mut net).is_empty());
    // No frame is left to send.
    assert!(net.take(Side::Server).is_empty());
}

/// The server knows what the client announces before the handshake is complete.
#[test]
fn section_3_the_frame_waits_for_the_end_of_the_handshake() {
    let mut net = Net::with_flights(options(true), &[Side::Client]);
    assert_eq!(net.server().announce_addresses(&[server(1)]), Ok(()));
    let flight = net.take(Side::Server);
    assert!(!flight.is_empty());
    assert!(frames(&flight).is_empty());
    net.give_all(flight);
    let log = net.wait(SECOND);
    assert_eq!(frames(&log).len(), 1);
    assert_eq!(told(&mut net), [vec![server(1)]]);
}

#[test]
fn section_3_the_frame_is_unknown_without_the_parameter() {
    for (side, asks) in [
        (Side::Client, false),
        (Side::Server, false),
        (Side::Server, true),
    ] {
        let mut net = Net::connected(options(asks));
        give(&mut net, side, 3000, set(0, &[1]));
        let expected = (Fault::AlternativeAddressNotAnnounced, TYPE);
        assert_eq!(net.fault(side), Some(expected));
    }
}

#[test]
fn section_5_frames_out_of_order_leave_the_newest_set() {
    let mut net = Net::connected(options(true));
    for (number, (sequence, indices)) in [(5, [1].as_slice()), (7, &[2]), (6, &[1, 2]), (7, &[])]
        .into_iter()
        .enumerate()
    {
        give(
            &mut net,
            Side::Client,
            3000 + number as u64,
            set(sequence, indices),
        );
    }
    assert_eq!(told(&mut net), [vec![server(1)], vec![server(2)]]);
    assert_eq!(net.fault(Side::Client), None);
}

#[test]
fn section_5_a_lost_frame_is_repeated() {
    let mut net = Net::connected(options(true));
    net.delivers = |sent| !sent.has(|frame| matches!(frame, Frame::AlternativeAddress(_)));
    for set in [[server(1)], [server(2)]] {
        assert_eq!(net.server().announce_addresses(&set), Ok(()));
        net.exchange();
    }
    assert!(told(&mut net).is_empty());
    net.delivers = |_| true;
    let log = net.wait(SECOND);
    assert_eq!(told(&mut net), [vec![server(2)]], "the newest set only");
    assert!(frames(&log).iter().all(|frame| frame.sequence_number == 1));
}

#[test]
fn section_5_1_an_announced_address_is_proven_before_it_carries_data() {
    let mut net = Net::connected(options(true));
    assert_eq!(net.server().announce_addresses(&[server(1)]), Ok(()));
    net.exchange();
    assert_eq!(told(&mut net), [vec![server(1)]]);
    assert_eq!(net.open_path(1), Ok(PathId(1)));
    let id = net.write(Side::Client, 30_000);
    let there = address(Side::Server, 1);
    let first = net.take(Side::Client);
    let to_new: Vec<_> = first
        .iter()
        .filter(|sent| sent.destination == there)
        .collect();
    assert!(!to_new.is_empty());
    for sent in to_new {
        assert!(
            sent.frames().iter().all(Frame::is_probing),
            "{:?}",
            sent.frames()
        );
    }
    net.give_all(first);
    net.wait(SECOND);
    assert_eq!(net.read(Side::Server, id), 30_000);
    let path = net.client().path_stats(PathId(1)).unwrap();
    assert_eq!(
        (path.four_tuple.remote, path.state),
        (there, PathState::Active)
    );
    // The server uses the new address like any other.
    assert!(net.server().path_stats(PathId(1)).unwrap().four_tuple.local == there);
    let now = net.now;
    let forbidden = net.client().announce_addresses(&[]);
    assert_eq!(forbidden, Err(AnnounceError::ClientSide));
    let four_tuple = mpquic_core::FourTuple::new(there, there);
    let opened = net
        .server()
        .open_path(now, four_tuple, PathStatus::Available);
    assert_eq!(opened, Err(OpenPathError::ServerSide));
}

#[test]
fn a_flood_of_addresses_closes_the_connection() {
    let mut net = Net::connected(options(true));
    let number = (0..2000).find(|number| {
        // The same set: it is the frames that count.
        give(&mut net, Side::Client, 3000 + number, set(*number, &[1]));
        net.lost(Side::Client).is_some()
    });
    assert_eq!(number, Some(1000));
    assert_eq!(net.fault(Side::Client), Some((Fault::TooMuchAdvice, TYPE)));
    assert_eq!(told(&mut net).len(), 1);
}

#[test]
fn a_closed_connection_announces_nothing() {
    let mut net = Net::connected(options(true));
    for side in SIDES {
        let now = net.now;
        net.connection(side).close(now, 0u32.into(), "".into());
    }
    let refused = net.server().announce_addresses(&[server(1)]);
    assert_eq!(refused, Err(AnnounceError::Closed));
}
