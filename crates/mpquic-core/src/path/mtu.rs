//! [`MtuDiscovery`]: the largest datagram a path carries (RFC 8899, RFC 9000 section 14.3).

use std::time::{Duration, Instant};

use crate::wire::buf::MIN_DATAGRAM;

/// Datagram size that every QUIC path must support, bytes (RFC 9000 section 14; BASE_PLPMTU of RFC
/// 8899).
pub(crate) const BASE_MTU: u16 = MIN_DATAGRAM as u16;

/// A size is excluded after this many lost probes (MAX_PROBES of RFC 8899 section 5.1.2).
const MAX_PROBES: u8 = 3;

/// A search ends once the possible gain is below this size, in bytes.
const STEP: u16 = 16;

/// Time from the end of a search to the next one (PMTU_RAISE_TIMER of RFC 8899 section 5.1.1).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// A black hole is assumed after this many losses of large packets alone, unless a large packet
/// passed in between.
const BLACK_HOLE_LOSSES: u8 = 3;

/// The MTU of one path: the largest UDP payload known to pass, bytes (MP-157).
///
/// A search tries the ceiling once and then halves the interval between the largest size that
/// passed and the smallest that was lost three times. Loss of a probe is no sign of congestion (RFC
/// 9000 section 14.4). Probes are sent only on validated paths.
#[derive(Debug)]
pub(crate) struct MtuDiscovery {
    initial: u16,
    ceiling: u16,
    current: u16,
    state: State,
    black_hole: BlackHoleDetector,
}

#[derive(Debug)]
enum State {
    Searching(Search),
    /// The search is over: nothing larger passes for now.
    Complete {
        next_search: Instant,
    },
}

#[derive(Debug)]
struct Search {
    /// Largest size that is not excluded.
    upper: u16,
    /// Size of the probe in flight.
    in_flight: Option<u16>,
    /// How often a probe of the current size was lost.
    lost: u8,
    /// True until the fate of the first probe is known. It tries the ceiling, which may well pass;
    /// its loss excludes nothing.
    optimistic: bool,
}

impl Search {
    fn new(upper: u16, optimistic: bool) -> Self {
        Self {
            upper,
            in_flight: None,
            lost: 0,
            optimistic,
        }
    }

    /// The size to probe, `None` at the end of the search.
    fn size(&self, current: u16, ceiling: u16) -> Option<u16> {
        let gap = self.upper.saturating_sub(current);
        if gap > 0 && (self.optimistic || (gap < STEP && self.upper == ceiling)) {
            Some(self.upper)
        } else if gap >= STEP {
            Some(current + gap / 2)
        } else {
            None
        }
    }
}

impl MtuDiscovery {
    /// Assumes that `initial` bytes pass, at least 1200, and searches up to `max`, which is not
    /// below.
    pub(crate) fn new(initial: u16, max: u16) -> Self {
        Self {
            initial,
            ceiling: max,
            current: initial,
            state: State::Searching(Search::new(max, true)),
            black_hole: BlackHoleDetector::default(),
        }
    }

    /// Takes the peer's `max_udp_payload_size` into account (RFC 9000 section 18.2).
    pub(crate) fn limit_to(&mut self, max_udp_payload_size: u64) {
        let limit = u16::try_from(max_udp_payload_size).unwrap_or(u16::MAX);
        self.ceiling = self.ceiling.min(limit).max(BASE_MTU);
        self.initial = self.initial.min(self.ceiling);
        self.current = self.current.min(self.ceiling);
        if let State::Searching(search) = &mut self.state {
            search.upper = search.upper.min(self.ceiling);
        }
    }

    /// The four-tuple changed: nothing is known about it.
    pub(crate) fn reset(&mut self) {
        self.current = self.initial;
        self.state = State::Searching(Search::new(self.ceiling, true));
        self.black_hole = BlackHoleDetector::default();
    }

    /// Bytes of the largest datagram to send.
    pub(crate) fn mtu(&self) -> u16 {
        self.current
    }

    /// True while no larger datagrams are tried.
    pub(crate) fn is_done(&self) -> bool {
        self.current >= self.ceiling || matches!(self.state, State::Complete { .. })
    }

    /// Size of a due probe: a datagram of this size with PING and PADDING.
    pub(crate) fn probe_size(&mut self, now: Instant) -> Option<u16> {
        if self.current >= self.ceiling {
            return None;
        }
        if let State::Complete { next_search } = self.state
            && now >= next_search
        {
            self.state = State::Searching(Search::new(self.ceiling, true));
        }
        match &self.state {
            State::Searching(search) if search.in_flight.is_none() => {
                search.size(self.current, self.ceiling)
            }
            State::Searching(_) | State::Complete { .. } => None,
        }
    }

    /// The probe that [`Self::probe_size`] asked for was sent.
    pub(crate) fn on_probe_sent(&mut self, size: u16) {
        if let State::Searching(search) = &mut self.state {
            search.in_flight = Some(size);
        }
    }

    /// A probe was acknowledged. True if the MTU grew.
    pub(crate) fn on_probe_acked(&mut self, now: Instant, size: u16) -> bool {
        let State::Searching(search) = &mut self.state else {
            return false;
        };
        if search.in_flight != Some(size) {
            return false;
        }
        *search = Search::new(search.upper, false);
        let grew = size > self.current;
        self.current = self.current.max(size).min(self.ceiling);
        self.black_hole = BlackHoleDetector::default();
        self.end_search(now);
        grew
    }

    /// A probe was lost.
    pub(crate) fn on_probe_lost(&mut self, now: Instant, size: u16) {
        let State::Searching(search) = &mut self.state else {
            return;
        };
        if search.in_flight != Some(size) {
            return;
        }
        search.in_flight = None;
        if search.optimistic {
            search.optimistic = false;
        } else {
            search.lost += 1;
            if search.lost == MAX_PROBES {
                search.lost = 0;
                search.upper = size - 1;
            }
        }
        self.end_search(now);
    }

    fn end_search(&mut self, now: Instant) {
        if let State::Searching(search) = &self.state
            && search.size(self.current, self.ceiling).is_none()
        {
            self.state = State::Complete {
                next_search: now + RAISE_INTERVAL,
            };
        }
    }

    /// A packet that was not a probe was acknowledged; `size` is that of its datagram in bytes.
    pub(crate) fn on_acked(&mut self, packet_number: u64, size: u16) {
        if size > BASE_MTU {
            self.black_hole.on_large_acked(packet_number, size);
        }
    }

    /// Packets that were not probes were declared lost together: number and datagram size of each.
    /// True if the MTU fell back to 1200 because a black hole was detected (RFC 8899 section 4.3);
    /// the losses were then no sign of congestion.
    ///
    /// Only small packets that pass can tell a black hole from a dead path. Therefore a probe after
    /// a timeout must not be larger than 1200 bytes.
    pub(crate) fn on_lost(&mut self, lost: impl IntoIterator<Item = (u64, u16)>) -> bool {
        if self.current <= BASE_MTU || !self.black_hole.on_lost(lost) {
            return false;
        }
        self.current = BASE_MTU;
        self.state = State::Searching(Search::new(self.ceiling, false));
        self.black_hole = BlackHoleDetector::default();
        true
    }
}

/// Detects that only packets above 1200 bytes are lost.
#[derive(Debug, Default)]
struct BlackHoleDetector {
    /// Losses of large packets since one last passed.
    losses: u8,
    /// Largest packet number among these.
    last_lost: u64,
    /// Smallest size among these.
    smallest_lost: Option<u16>,
    /// The latest packet above 1200 bytes that passed: number and size.
    passed: Option<(u64, u16)>,
}

impl BlackHoleDetector {
    fn on_large_acked(&mut self, packet_number: u64, size: u16) {
        if self.passed.is_none_or(|(latest, _)| packet_number > latest) {
            self.passed = Some((packet_number, size));
        }
        if packet_number > self.last_lost && self.smallest_lost.is_some_and(|lost| size >= lost) {
            self.losses = 0;
            self.smallest_lost = None;
        }
    }

    fn on_lost(&mut self, lost: impl IntoIterator<Item = (u64, u16)>) -> bool {
        let extremes = lost.into_iter().fold(None, |extremes, (number, size)| {
            let (last, smallest) = extremes.unwrap_or((number, size));
            Some((number.max(last), size.min(smallest)))
        });
        let Some((last, smallest)) = extremes else {
            return false;
        };
        let passes = self
            .passed
            .is_some_and(|(number, size)| number > last && size >= smallest);
        if smallest <= BASE_MTU || passes {
            return false;
        }
        self.losses += 1;
        self.last_lost = self.last_lost.max(last);
        self.smallest_lost = Some(self.smallest_lost.map_or(smallest, |s| s.min(smallest)));
        self.losses >= BLACK_HOLE_LOSSES
    }
}

#[cfg(test)]
mod tests;
