//! UDP through a tunnel, more than one path carries (`benches/bond udp` in virtual time).

use std::time::Duration;

use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a UDP payload, and with what CONNECT-UDP puts in front.
const PAYLOAD: f64 = 1300.0;
const FRAMED: usize = 1302;
/// `DATAGRAM` payloads that may wait, bytes.
const BUFFER: usize = 1 << 20;

struct Flood {
    pair: Pair,
    sent: usize,
    /// Payloads for which there was no room.
    refused: usize,
}

impl Flood {
    /// A link of 75 Mbit/s and one of 20 Mbit/s, with a queue of a bandwidth-delay product, or 50
    /// ms.
    fn new() -> Self {
        let setup = Setup::new().transport(|transport| {
            transport.datagram_send_buffer = BUFFER;
            transport.datagram_receive_buffer = Some(BUFFER);
        });
        let topology = Topology::new()
            .path("large", LinkConfig::new(75.0, 10 * MS))
            .path("small", LinkConfig::new(20.0, 30 * MS));
        let mut pair = Pair::connected(&topology, setup);
        // So that the size of packets is looked for.
        pair.client().datagrams().max_size();
        pair.open_all_paths();
        pair.drive(2 * SECOND);
        Self {
            pair,
            sent: 0,
            refused: 0,
        }
    }

    /// Sends so many Mbit/s, each millisecond what is due, and lets all of it arrive.
    fn send(&mut self, mbit: f64, duration: Duration) {
        let mut due = 0.0;
        for _ in 0..duration.as_millis() {
            due += mbit * 1e6 / 8.0 / PAYLOAD / 1000.0;
            while due >= 1.0 {
                due -= 1.0;
                let hosted = self.pair.hosted_mut(Side::Client);
                let sent = (hosted.application).send_datagram(&mut hosted.connection, FRAMED);
                match sent {
                    Ok(()) => self.sent += 1,
                    Err(_) => self.refused += 1,
                }
            }
            self.pair.drive(MS);
        }
        self.pair.drive(SECOND);
    }

    fn arrived(&self) -> usize {
        let server = self.pair.hosted(Side::Server);
        server.map_or(0, |server| server.application.datagrams().len())
    }

    fn dropped(&self, name: &str) -> u64 {
        self.pair.counters(name)[0].dropped_queue
    }
}

/// What comes when the first path is known as far as the application used it, and the second one
/// was never used: neither queue overflows, here or in the network.
#[test]
fn datagrams_that_need_a_second_path_are_not_lost_while_it_starts() {
    let mut flood = Flood::new();
    flood.send(60.0, 2 * SECOND);
    assert_eq!(flood.arrived(), flood.sent);
    flood.send(87.5, 3 * SECOND);
    let found = (
        flood.refused,
        flood.dropped("large"),
        flood.dropped("small"),
    );
    assert_eq!(found, (0, 0, 0), "refused, dropped by the links");
    assert_eq!(flood.arrived(), flood.sent);
}

/// The links keep short queues, so that there is room for what others send: what waits does that
/// here.
#[test]
fn datagrams_leave_room_in_the_queues_of_links() {
    let mut flood = Flood::new();
    flood.send(87.5, 3 * SECOND);
    assert_eq!(flood.refused, 0);
    assert_eq!(flood.arrived(), flood.sent);
    let delay = |name: &str| flood.pair.counters(name)[0].mean_queue_delay();
    assert!(delay("large") < 22 * MS, "{:?}", delay("large"));
    assert!(delay("small") < 12 * MS, "{:?}", delay("small"));
}
