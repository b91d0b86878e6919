//! Which pair of addresses a client tries first: the pair over which the server answered soonest.

use std::time::{Duration, Instant};

use mpquic_core::knowledge::Knowledge;
use mpquic_core::{Connection, FourTuple};

/// Round-trip times are compared in steps of this length, so that small differences do not count.
const STEP: Duration = Duration::from_millis(100);

/// Saves the round-trip time of each path of a client's connection, which began at `since` and ends
/// now. A path without an answer for 0.1 s is saved as silent.
pub fn learn(knowledge: &Knowledge, connection: &Connection, since: Instant, now: Instant) {
    let paths = connection.paths();
    for path in paths.filter_map(|path| connection.path_stats(path)) {
        if path.packets_received > 0 {
            knowledge.save_round_trip(path.four_tuple, path.min_rtt);
        } else if now.saturating_duration_since(since) >= STEP {
            knowledge.save_round_trip(path.four_tuple, Duration::MAX);
        }
    }
}

/// Moves four-tuples with long round-trip times behind the others, and silent ones to the end.
/// Four-tuples without a known round-trip time stay among the first. Round-trip times are compared
/// in steps of 0.1 s; four-tuples of the same step stay in order.
pub fn sort(knowledge: &Knowledge, four_tuples: &mut [FourTuple]) {
    four_tuples.sort_by_cached_key(|four_tuple| {
        let rtt = knowledge.round_trip(*four_tuple).unwrap_or_default();
        rtt.as_nanos() / STEP.as_nanos()
    });
}

/// True if a packet came back from this address of a server to this local address in the last hour.
pub fn has_answered(knowledge: &Knowledge, four_tuple: FourTuple) -> bool {
    let rtt = knowledge.round_trip(four_tuple);
    rtt.is_some_and(|rtt| rtt < Duration::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;

    fn way(local: u8) -> FourTuple {
        let address = |ip: [u8; 4], port| SocketAddr::from((ip, port));
        FourTuple::new(address([10, 0, local, 1], 1), address([10, 0, 0, 1], 443))
    }

    fn sorted(knowledge: &Knowledge) -> Vec<u8> {
        let mut all = [1, 2, 3].map(way);
        sort(knowledge, &mut all);
        let third = |tuple: &FourTuple| match tuple.local.ip() {
            IpAddr::V4(ip) => ip.octets()[2],
            IpAddr::V6(_) => 0,
        };
        all.iter().map(third).collect()
    }

    #[test]
    fn slow_and_silent_addresses_come_last() {
        let knowledge = Knowledge::default();
        assert_eq!(sorted(&knowledge), [1, 2, 3]);
        let ms = Duration::from_millis;
        knowledge.save_round_trip(way(1), ms(600));
        assert_eq!(sorted(&knowledge), [2, 3, 1]);
        knowledge.save_round_trip(way(2), Duration::MAX);
        assert_eq!(sorted(&knowledge), [3, 1, 2]);
        // The last round-trip time counts.
        knowledge.save_round_trip(way(1), ms(99));
        knowledge.save_round_trip(way(3), ms(100));
        assert_eq!(sorted(&knowledge), [1, 3, 2]);
        knowledge.save_round_trip(way(2), ms(1));
        assert_eq!(sorted(&knowledge), [1, 2, 3]);
    }

    #[test]
    fn silence_is_no_answer() {
        let knowledge = Knowledge::default();
        knowledge.save_round_trip(way(1), Duration::MAX);
        knowledge.save_round_trip(way(2), Duration::ZERO);
        let answered = [1, 2, 3].map(|local| has_answered(&knowledge, way(local)));
        assert_eq!(answered, [false, true, false]);
    }
}
