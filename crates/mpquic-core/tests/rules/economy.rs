//! What short connections do without: datagrams that would carry little, and probes of no use.

use mpquic_core::{PathId, Side};

use super::harness::{Net, Options, Packet, SECOND, SIDES, Sent};

/// What a client sends once the server's flight has arrived and `size` bytes were written.
fn finish_with(size: usize) -> Vec<Sent> {
    let mut net = Net::with_flights(Options::default(), &SIDES);
    let id = net.write(Side::Client, size);
    let sent = net.take(Side::Client);
    net.give_all(sent.clone());
    assert_eq!(net.read(Side::Server, id), size);
    sent
}

/// RFC 9000 section 12.2: packets of different levels share a datagram, and section 14.1: one with
/// an Initial packet is full.
#[test]
fn a_clients_first_data_shares_the_datagram_that_ends_its_handshake() {
    for (size, datagrams) in [(100, 1), (5000, 5)] {
        let sent = finish_with(size);
        // Later packets are full, so a probe for larger ones is among them.
        let small = sent.iter().filter(|sent| sent.data.len() <= 1200);
        assert_eq!(small.count(), datagrams);
        let packets = sent[0].packets();
        let [initial, handshake, one_rtt] = &packets[..] else {
            panic!("{packets:?}");
        };
        assert!(initial.is_initial() && handshake.is_handshake() && one_rtt.is_one_rtt());
        assert_eq!(sent[0].data.len(), 1200);
    }
}

/// Without anything to say, the handshake ends as before.
#[test]
fn the_handshake_ends_without_data_as_well() {
    let options = Options::default().transport(|transport| transport.max_concurrent_paths = 0);
    let mut net = Net::with_flights(options, &SIDES);
    let last = net.take(Side::Client);
    assert!(last[0].packets().iter().any(Packet::is_handshake));
    assert_eq!(last[0].data.len(), 1200);
    net.give_all(last);
    assert!(!net.server().is_handshaking());
}

fn has_probe(sent: &[Sent]) -> bool {
    sent.iter().any(|sent| sent.data.len() > 1200)
}

/// MP-157, RFC 9000 section 14.3: who never fills a packet looks for no larger one; one full
/// packet, or a question for the room of a DATAGRAM, changes that.
#[test]
fn larger_packets_are_looked_for_once_they_are_of_use() {
    for (side, ask) in SIDES
        .into_iter()
        .flat_map(|side| [(side, false), (side, true)])
    {
        let mut net = Net::connected(Options::default());
        net.write(side, 1000);
        assert!(!has_probe(&net.wait(SECOND)));
        if ask {
            assert!(net.connection(side).datagrams().max_size().unwrap() < 1200);
            net.write(side, 100);
        } else {
            net.write(side, 3000);
        }
        let sent = net.wait(SECOND);
        assert!(has_probe(&sent));
        assert!(
            sent.iter()
                .all(|sent| sent.from == side || sent.data.len() <= 1200)
        );
        assert_eq!(
            net.connection(side).path_stats(PathId::ZERO).unwrap().mtu,
            1452
        );
    }
}
