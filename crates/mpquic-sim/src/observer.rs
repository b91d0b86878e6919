//! Rules that an observer of the wire can check without the state of the connection.

use std::collections::{BTreeMap, HashSet};

use mpquic_core::{Connection, FourTuple, PathId, PathStats, Transmit};

/// Length of the end of a datagram that must be unique within the connection, bytes. The end is the
/// AEAD's tag, or the tag's replacement in null crypto.
const TAG_LENGTH: usize = 16;
/// Most bytes that may leave, beyond three times the received bytes, towards an address with an
/// answer on an earlier connection: the largest initial window.
const MOST_VOUCHED: u64 = 32 * 1500;

/// Traffic between two addresses, from a server's view.
#[derive(Debug, Default)]
struct Exchange {
    received: u64,
    sent: u64,
    /// A datagram arrived after a sent datagram, so the client may have proven its address. The
    /// proof counts even if the client's NAT has changed the address since (RFC 9000 section
    /// 8.2.3).
    answered: bool,
}

/// Watches the datagrams of one connection and panics when the connection breaks a rule.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// True for servers; clients are not bound to the 3x limit.
    limited: bool,
    exchanges: BTreeMap<FourTuple, Exchange>,
    /// Addresses from which the client answered on earlier connections.
    earlier: HashSet<FourTuple>,
    tags: HashSet<[u8; TAG_LENGTH]>,
    /// The addresses to which each datagram with a long header went.
    long_headers: BTreeMap<Vec<u8>, Vec<FourTuple>>,
    /// Bytes in flight and probe timeouts before the connection was asked to send.
    before: BTreeMap<PathId, PathStats>,
}

impl Observer {
    /// An observer of a server's connection. A token proves the client's address.
    pub(crate) fn of_server(four_tuple: FourTuple, first_datagram: usize, proven: bool) -> Self {
        let exchange = Exchange {
            received: first_datagram as u64,
            sent: 0,
            answered: proven,
        };
        Self {
            limited: true,
            exchanges: BTreeMap::from([(four_tuple, exchange)]),
            ..Self::default()
        }
    }

    /// Adds the addresses from which clients answered on other connections of the server.
    pub(crate) fn after<'a>(mut self, others: impl Iterator<Item = &'a Self>) -> Self {
        for (four_tuple, exchange) in others.flat_map(|other| &other.exchanges) {
            if exchange.answered {
                self.earlier.insert(*four_tuple);
            }
        }
        self
    }

    /// The connection gets a datagram.
    pub(crate) fn on_received(&mut self, four_tuple: FourTuple, size: usize) {
        let exchange = self.exchanges.entry(four_tuple).or_default();
        exchange.received += size as u64;
        for (of, exchange) in &mut self.exchanges {
            exchange.answered |= exchange.sent > 0 && of.local == four_tuple.local;
        }
    }

    /// The connection is about to be asked for datagrams to send.
    pub(crate) fn before_transmit(&mut self, connection: &Connection) {
        self.before.clear();
        let stats = |path| Some((path, connection.path_stats(path)?));
        self.before.extend(connection.paths().filter_map(stats));
    }

    /// The connection sends a batch.
    pub(crate) fn on_transmit(
        &mut self,
        transmit: &Transmit,
        buffer: &[u8],
        connection: &Connection,
    ) {
        for datagram in buffer.chunks(transmit.segment_size.unwrap_or(buffer.len())) {
            if !self.is_copy(datagram, transmit.four_tuple) {
                self.check_nonce(datagram);
            }
        }
        self.check_amplification(transmit);
        if let Some(path) = transmit.path {
            self.check_window(path, connection);
        }
    }

    /// True for a copy of the first flight: the bytes of an earlier datagram with a long header, to
    /// other addresses.
    fn is_copy(&mut self, datagram: &[u8], four_tuple: FourTuple) -> bool {
        if datagram.first().is_none_or(|first| first & 0x80 == 0) {
            return false;
        }
        let places = self.long_headers.entry(datagram.to_vec()).or_default();
        let is_new = !places.contains(&four_tuple);
        places.push(four_tuple);
        is_new && places.len() > 1
    }

    /// RFC 9001 section 5.3, MP-030: a key never meets a nonce twice, so no tag comes twice.
    fn check_nonce(&mut self, datagram: &[u8]) {
        let tag = datagram.last_chunk().copied();
        let tag = tag.unwrap_or_else(|| panic!("a datagram of {} bytes", datagram.len()));
        assert!(self.tags.insert(tag), "a nonce or a path ID was used twice");
    }

    /// RFC 9000 sections 8 and 9.3: before a possible proof of the client's address, a server sends
    /// at most three times the received bytes. An address proven on an earlier connection may get
    /// an initial window more.
    fn check_amplification(&mut self, transmit: &Transmit) {
        let exchange = self.exchanges.entry(transmit.four_tuple).or_default();
        exchange.sent += transmit.size as u64;
        let is_known = self.earlier.contains(&transmit.four_tuple);
        let beyond = if is_known { MOST_VOUCHED } else { 0 };
        assert!(
            !self.limited || exchange.answered || exchange.sent <= 3 * exchange.received + beyond,
            "{:?}: {exchange:?}",
            transmit.four_tuple
        );
    }

    /// RFC 9002 section 7: only probes leave when the window is full.
    fn check_window(&self, path: PathId, connection: &Connection) {
        let (Some(before), Some(after)) = (self.before.get(&path), connection.path_stats(path))
        else {
            return;
        };
        let added = after.in_flight.saturating_sub(before.in_flight);
        let probes = if before.probe_timeouts > 0 { 3 } else { 1 } * u64::from(after.mtu);
        assert!(
            after.in_flight <= after.window || added <= probes,
            "path {path} sends {added} bytes beyond its window: {after:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four_tuple() -> FourTuple {
        FourTuple::new(([10, 0, 0, 1], 443).into(), ([10, 0, 0, 2], 5000).into())
    }

    fn transmit(size: usize) -> Transmit {
        Transmit {
            path: None,
            four_tuple: four_tuple(),
            ecn: None,
            size,
            segment_size: None,
        }
    }

    #[test]
    #[should_panic(expected = "used twice")]
    fn repeated_tag_is_noticed() {
        let mut observer = Observer::default();
        observer.check_nonce(&[1; 40]);
        observer.check_nonce(&[2; 40]);
        observer.check_nonce(&[1; 80]);
    }

    #[test]
    #[should_panic(expected = "Exchange")]
    fn more_than_three_times_the_received_bytes_is_noticed() {
        let mut observer = Observer::of_server(four_tuple(), 1200, false);
        observer.check_amplification(&transmit(3600));
        observer.check_amplification(&transmit(1));
    }

    #[test]
    fn an_answer_lifts_the_limit() {
        let mut observer = Observer::of_server(four_tuple(), 1200, false);
        observer.check_amplification(&transmit(3600));
        observer.on_received(four_tuple(), 50);
        observer.check_amplification(&transmit(10_000));
        let mut proven = Observer::of_server(four_tuple(), 1200, true);
        proven.check_amplification(&transmit(10_000));
    }

    #[test]
    #[should_panic(expected = "Exchange")]
    fn address_that_answered_earlier_gets_at_most_a_window_more() {
        let earlier = Observer::of_server(four_tuple(), 1200, true);
        let observer = Observer::of_server(four_tuple(), 1200, false);
        let mut observer = observer.after([earlier].iter());
        observer.check_amplification(&transmit(3600 + 48_000));
        observer.check_amplification(&transmit(1));
    }

    #[test]
    fn datagram_is_an_answer_only_if_one_was_sent_before() {
        let other = FourTuple::new(([10, 0, 0, 9], 443).into(), ([10, 0, 0, 2], 5000).into());
        let mut observer = Observer::of_server(four_tuple(), 1200, false);
        // The server has sent no datagram yet, so the received datagram cannot be an answer.
        observer.on_received(four_tuple(), 100);
        assert!(!observer.exchanges[&four_tuple()].answered);
        observer.check_amplification(&transmit(100));
        observer.on_received(other, 50);
        assert!(!observer.exchanges[&four_tuple()].answered);
        assert!(!observer.exchanges[&other].answered);
        observer.on_received(four_tuple(), 50);
        let exchange = &observer.exchanges[&four_tuple()];
        assert!(exchange.answered);
        assert_eq!((exchange.received, exchange.sent), (1350, 100));
        assert_eq!(observer.exchanges[&other].received, 50);
    }

    #[test]
    fn client_is_not_bound_to_the_3x_limit() {
        let mut observer = Observer::default();
        observer.check_amplification(&transmit(100_000));
        assert_eq!(observer.exchanges[&four_tuple()].sent, 100_000);
    }

    #[test]
    #[should_panic(expected = "used twice")]
    fn tag_of_each_datagram_in_a_batch_is_checked() {
        let link = crate::LinkConfig::new(8.0, std::time::Duration::from_millis(10));
        let topology = crate::Topology::new().path("a", link);
        let mut pair = crate::Pair::connected(&topology, crate::Setup::new());
        let batch = Transmit {
            segment_size: Some(40),
            ..transmit(80)
        };
        let mut observer = Observer::default();
        observer.before_transmit(pair.client());
        assert_eq!(observer.before.len(), 1);
        observer.on_transmit(&batch, &[1; 80], pair.client());
    }

    #[test]
    fn only_probes_may_exceed_the_window() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        use std::time::Duration;
        let link = crate::LinkConfig::new(8.0, Duration::from_millis(10)).loss(0.02);
        let topology = crate::Topology::new().path("a", link);
        let mut pair = crate::Pair::connected(&topology, crate::Setup::new());
        pair.send(crate::Side::Client, 10_000_000);
        // After a loss, the window is smaller than the bytes in flight.
        let stats = |pair: &mut crate::Pair| pair.client().path_stats(PathId::ZERO).unwrap();
        let second = Duration::from_secs(10);
        pair.run_until(second, |pair| {
            let after = stats(pair);
            after.in_flight > after.window && after.in_flight > 4 * u64::from(after.mtu)
        })
        .unwrap();
        let after = stats(&mut pair);
        let mut passes = |added: u64, probe_timeouts| {
            let mut before = after.clone();
            before.in_flight -= added;
            before.probe_timeouts = probe_timeouts;
            let mut observer = Observer::default();
            observer.before.insert(PathId::ZERO, before);
            let check = AssertUnwindSafe(|| observer.check_window(PathId::ZERO, pair.client()));
            catch_unwind(check).is_ok()
        };
        let mtu = u64::from(after.mtu);
        assert!(passes(mtu, 0) && !passes(mtu + 1, 0));
        assert!(passes(3 * mtu, 1) && !passes(3 * mtu + 1, 1));
    }
}
