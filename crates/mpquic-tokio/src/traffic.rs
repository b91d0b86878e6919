//! [`TrafficMeter`]: bytes on the wire, counted for each interface.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mpquic_paths::Origin;

/// Bytes of the headers of IPv4 and UDP.
const HEADERS_V4: u64 = 20 + 8;
/// Bytes of the headers of IPv6 and UDP.
const HEADERS_V6: u64 = 40 + 8;

/// The traffic of one interface, or of one address without a named interface.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// The interface to which the sockets are bound, or else the address.
    pub at: Origin,
    /// Bytes of sent IP packets.
    pub sent: u64,
    /// Bytes of received IP packets.
    pub received: u64,
}

impl Traffic {
    /// So many bytes at a place.
    pub fn new(at: Origin, sent: u64, received: u64) -> Self {
        Self { at, sent, received }
    }
}

/// Counts the bytes that the sockets of endpoints send and receive: UDP payloads with their headers
/// of UDP and IP, of all packets, whatever connection they belong to. Headers of links (Ethernet,
/// PPP) do not count.
///
/// Clones count together, and one meter may count for several endpoints, one after the other or at
/// once ([`EndpointBuilder::traffic_meter`](crate::EndpointBuilder::traffic_meter)).
#[derive(Debug, Clone, Default)]
pub struct TrafficMeter(Arc<Mutex<Counters>>);

/// A counter for each place.
type Counters = Vec<(Origin, Arc<Counter>)>;

impl TrafficMeter {
    /// The traffic so far, in the order of the first socket at each place.
    pub fn traffic(&self) -> Vec<Traffic> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let traffic = counters.iter().map(|(at, counter)| Traffic {
            at: at.clone(),
            sent: counter.sent.load(Ordering::Relaxed),
            received: counter.received.load(Ordering::Relaxed),
        });
        traffic.collect()
    }

    /// The counter of a place.
    pub(crate) fn counter(&self, at: &Origin) -> Arc<Counter> {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counter)) = counters.iter().find(|(place, _)| place == at) {
            return counter.clone();
        }
        let counter = Arc::new(Counter::default());
        counters.push((at.clone(), counter.clone()));
        counter
    }
}

/// The bytes of sockets at one place.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counter {
    /// Counts datagrams of `segment` bytes, of which the last may be shorter.
    pub(crate) fn on_sent(&self, remote: SocketAddr, bytes: usize, segment: usize) {
        let bytes = on_the_wire(remote, bytes, segment);
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The same for received datagrams.
    pub(crate) fn on_received(&self, remote: SocketAddr, bytes: usize, segment: usize) {
        let bytes = on_the_wire(remote, bytes, segment);
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn on_the_wire(remote: SocketAddr, bytes: usize, segment: usize) -> u64 {
    let headers = if remote.ip().to_canonical().is_ipv4() {
        HEADERS_V4
    } else {
        HEADERS_V6
    };
    // An empty datagram is a packet as well.
    let packets = bytes.div_ceil(segment.max(1)).max(1);
    bytes as u64 + packets as u64 * headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("it is one")
    }

    #[test]
    fn each_datagram_has_headers() {
        let v4 = address("192.0.2.1:5");
        let mapped = address("[::ffff:192.0.2.1]:5");
        let v6 = address("[2001:db8::1]:5");
        for (remote, bytes, segment, expected) in [
            (v4, 1200, 1200, 1228),
            (mapped, 1200, 1500, 1228),
            (v6, 1200, 1200, 1248),
            (v4, 3000, 1200, 3084),
            (v6, 2400, 1200, 2496),
            (v4, 0, 1200, 28),
            (v4, 5, 0, 5 + 5 * 28),
        ] {
            let counted = on_the_wire(remote, bytes, segment);
            assert_eq!(counted, expected, "{remote} {bytes} {segment}");
        }
    }

    #[test]
    fn places_are_counted_apart_and_sockets_of_a_place_together() {
        let meter = TrafficMeter::default();
        let modem = Origin::Interface("wwan0".to_owned());
        let other = Origin::Address([192, 0, 2, 1].into());
        let remote = address("192.0.2.9:5");
        meter.counter(&modem).on_sent(remote, 72, 100);
        meter.clone().counter(&modem).on_received(remote, 172, 200);
        meter.counter(&other).on_sent(remote, 2, 100);
        let traffic = meter.traffic();
        let expected = [(modem, 100, 200), (other, 30, 0)];
        let expected = expected.map(|(at, sent, received)| Traffic { at, sent, received });
        assert_eq!(traffic, expected);
    }
}
