//! Packets without data, and their content.

use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::{PathId, Side, SpaceId};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, Sent};

const ZERO: PathId = PathId::ZERO;

fn pings(sent: &[Sent]) -> usize {
    let pings = |sent: &&Sent| sent.has(|frame| *frame == Frame::Ping);
    sent.iter().filter(pings).count()
}

fn of_client(log: Vec<Sent>) -> Vec<Sent> {
    log.into_iter()
        .filter(|sent| sent.from.is_client())
        .collect()
}

/// RFC 9000 section 13.2.4: a side that only acknowledges asks now and then for an acknowledgement,
/// to know which of its ranges need not be repeated. It does so rarely.
#[test]
fn rfc_9000_13_2_4_a_side_that_only_acknowledges_asks_now_and_then() {
    let mut net = Net::connected(Options::default());
    let mut log = Vec::new();
    for _ in 0..600 {
        net.server().inject(SpaceId::Data(ZERO), &[1]);
        log.extend(of_client(net.wait(30 * MS)));
    }
    assert!(log.len() >= 600, "every one is acknowledged");
    let asked = pings(&log);
    assert!((1..=10).contains(&asked), "{asked}");
}

/// RFC 9000 section 10.1.2: an arriving packet keeps a path alive as well as a PING does.
#[test]
fn a_path_that_hears_something_needs_no_keep_alive() {
    let mut options = Options::default();
    options.client.keep_alive_interval = Some(SECOND);
    let mut net = Net::connected(options);
    let mut log = Vec::new();
    for _ in 0..20 {
        net.server().inject(SpaceId::Data(ZERO), &[1]);
        log.extend(of_client(net.wait(500 * MS)));
    }
    assert_eq!(pings(&log), 0);
    let silence = of_client(net.wait(10 * SECOND));
    assert!((8..=10).contains(&pings(&silence)), "{}", pings(&silence));
}

/// RFC 9000 section 17.4: the spin bit follows the packet with the largest number, so a late packet
/// does not change it.
#[test]
fn rfc_9000_17_4_a_late_packet_does_not_spin() {
    let options = Options::default().transport(|transport| transport.spin_bit = true);
    let mut net = Net::new(options);
    let answer = |net: &mut Net, number, spin: u8| {
        let forgery = Forgery::new(Side::Client, Kind::OneRtt(ZERO), number, &[Frame::Ping]);
        let mut forged = net.forge(&forgery);
        forged.data[0] |= spin << 5;
        net.give(forged);
        net.server().inject(SpaceId::Data(ZERO), &[1]);
        let sent = net.take(Side::Server);
        let last = sent.last().expect("a PING").packets();
        last[0].first & 0x20 != 0
    };
    // One path in sixteen does not spin.
    let spins = (0..10).any(|_| {
        net.connect();
        net.exchange();
        answer(&mut net, 5002, 1)
    });
    assert!(spins, "the server reflects it");
    assert!(answer(&mut net, 5001, 0), "it is late");
    assert!(!answer(&mut net, 5003, 0));
    assert!(!answer(&mut net, 5000, 1), "it is late");
}
