//! The data of the live view: a row for each path, with its recent rates.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mpquic_core::{PathId, PathState, PathStats};

/// Interval of the samples of the paths.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// Rates that the view keeps for each path: half a minute.
const MEMORY: usize = 120;
/// Weight of the newest sample in the displayed rate.
const NEW_SAMPLE_WEIGHT: f64 = 0.3;

/// A path in its current state.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Identifies the connection on a server.
    pub(crate) connection: u64,
    pub(crate) stats: PathStats,
    /// True for a path that this side keeps until no other path works.
    pub(crate) is_backup: bool,
}

/// The useful numbers of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Receiving: losses and the window are unknown.
    Receiving,
    Sending,
    Both,
}

impl Direction {
    fn bytes(self, path: &PathStats) -> u64 {
        match self {
            Self::Receiving => path.bytes_received,
            Self::Sending => path.bytes_sent,
            Self::Both => path.bytes_received + path.bytes_sent,
        }
    }

    /// True if this side knows losses and the window.
    pub(crate) fn sends(self) -> bool {
        self != Self::Receiving
    }
}

/// A path, since its first sample.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) seen: Seen,
    /// Bytes per second, the newest last.
    pub(crate) rates: VecDeque<f64>,
    pub(crate) rate: f64,
    /// Bytes since the path was first seen.
    pub(crate) carried: u64,
    first: u64,
    last: u64,
}

impl Row {
    fn key(&self) -> (u64, PathId) {
        (self.seen.connection, self.seen.stats.id)
    }

    /// Lost packets relative to sent ones.
    pub(crate) fn loss(&self) -> f64 {
        let stats = &self.seen.stats;
        stats.packets_lost as f64 / stats.packets_sent.max(1) as f64
    }
}

/// All paths.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) title: String,
    pub(crate) direction: Direction,
    /// Rows are named after peers: a server's paths.
    pub(crate) by_peer: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) started: Instant,
    pub(crate) now: Instant,
    /// Bytes of all paths, including vanished ones.
    pub(crate) carried: u64,
    selected: Option<(u64, PathId)>,
    /// The last action and its result.
    pub(crate) told: String,
}

impl Live {
    pub(crate) fn new(title: String, direction: Direction, now: Instant) -> Self {
        Self {
            title,
            direction,
            by_peer: false,
            rows: Vec::new(),
            started: now,
            now,
            carried: 0,
            selected: None,
            told: String::new(),
        }
    }

    /// With the paths named after their peers, as a server knows them.
    pub(crate) fn by_peer(self) -> Self {
        Self {
            by_peer: true,
            ..self
        }
    }

    /// Updates the rows with the current paths.
    pub(crate) fn look(&mut self, now: Instant, seen: Vec<Seen>) {
        let since = now.saturating_duration_since(self.now).as_secs_f64();
        self.now = now;
        let mut before = std::mem::take(&mut self.rows);
        for seen in seen {
            if seen.stats.state == PathState::Abandoned {
                continue;
            }
            let bytes = self.direction.bytes(&seen.stats);
            let key = (seen.connection, seen.stats.id);
            let known = before.iter().position(|row| row.key() == key);
            let mut row = match known {
                Some(index) => before.swap_remove(index),
                None => Row {
                    seen: seen.clone(),
                    rates: VecDeque::new(),
                    rate: 0.0,
                    carried: 0,
                    first: bytes,
                    last: bytes,
                },
            };
            let more = bytes.saturating_sub(row.last);
            if since > 0.0 {
                let sample = more as f64 / since;
                row.rate += NEW_SAMPLE_WEIGHT * (sample - row.rate);
                if row.rates.len() == MEMORY {
                    row.rates.pop_front();
                }
                row.rates.push_back(sample);
            }
            self.carried += more;
            row.last = bytes;
            row.carried = bytes.saturating_sub(row.first);
            row.seen = seen;
            self.rows.push(row);
        }
        if self.selected().is_none() {
            self.selected = self.rows.first().map(Row::key);
        }
    }

    /// The selected row.
    pub(crate) fn selected(&self) -> Option<usize> {
        let selected = self.selected?;
        self.rows.iter().position(|row| row.key() == selected)
    }

    /// Selects the row at this distance below, or above.
    pub(crate) fn select(&mut self, down: isize) {
        let at = self.selected().unwrap_or(0);
        let last = self.rows.len().saturating_sub(1);
        let to = at.saturating_add_signed(down).min(last);
        self.selected = self.rows.get(to).map(Row::key);
    }

    /// Bytes per second, of all paths.
    pub(crate) fn rate(&self) -> f64 {
        self.rows.iter().map(|row| row.rate).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;

    use mpquic_core::FourTuple;

    use super::*;
    use crate::process::clock;

    pub(crate) fn seen(connection: u64, id: u32, received: u64) -> Seen {
        let address = |last, port| SocketAddr::from(([192, 0, 2, last], port));
        let four_tuple = FourTuple::new(address(10 + id as u8, 5000), address(1, 443));
        let mut stats = PathStats::new(PathId(id), four_tuple);
        stats.rtt = Duration::from_millis(20);
        stats.window = 120 << 10;
        stats.bytes_received = received;
        stats.packets_sent = 1000;
        stats.packets_lost = 5;
        Seen {
            connection,
            is_backup: false,
            stats,
        }
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Receiving, start);
        // Bytes from before the first sample do not count.
        live.look(start, vec![seen(0, 0, 7000), seen(0, 1, 0)]);
        assert_eq!((live.rate(), live.carried), (0.0, 0));
        for step in 1..=200 {
            let paths = vec![seen(0, 0, 7000 + step * 1000), seen(0, 1, step * 3000)];
            live.look(start + step as u32 * LOOK, paths);
        }
        assert_eq!(live.rows[0].rates.len(), MEMORY);
        assert_eq!(live.rows[0].rates[0], 4000.0);
        assert!((live.rate() - 16_000.0).abs() < 1.0);
        assert_eq!((live.rows[1].carried, live.carried), (600_000, 800_000));
        assert_eq!(live.rows[0].loss(), 0.005);
    }

    #[test]
    fn a_path_stays_selected_until_it_is_gone() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Both, start);
        live.select(1);
        assert_eq!(live.selected(), None);
        live.look(start, vec![seen(0, 0, 0), seen(0, 1, 0), seen(1, 0, 0)]);
        assert_eq!(live.selected(), Some(0));
        live.select(5);
        assert_eq!(live.selected(), Some(2));
        live.look(start, vec![seen(1, 0, 0), seen(0, 0, 0)]);
        assert_eq!(live.selected(), Some(0), "it stands elsewhere");
        live.look(start, vec![seen(0, 0, 0)]);
        assert_eq!(live.selected(), Some(0), "another one");
        live.look(start, Vec::new());
        assert_eq!(live.selected(), None);
    }

    /// The bytes received, sent, or both, of the active paths.
    #[test]
    fn bytes_are_those_of_a_direction() {
        let start = clock::now();
        for (direction, carried, sends) in [
            (Direction::Receiving, 5000, false),
            (Direction::Sending, 100, true),
            (Direction::Both, 5100, true),
        ] {
            let mut live = Live::new("x".to_owned(), direction, start);
            live.look(start, vec![seen(0, 0, 1000), seen(0, 1, 0)]);
            let (mut first, mut second) = (seen(0, 0, 6000), seen(0, 1, 9000));
            first.stats.bytes_sent = 100;
            second.stats.state = PathState::Abandoned;
            live.look(start + Duration::from_secs(1), vec![first, second]);
            assert_eq!((live.rows.len(), live.carried), (1, carried));
            assert_eq!(live.rows[0].carried, carried);
            assert_eq!(live.rows[0].rates, [carried as f64]);
            // A third of a new rate counts at once.
            assert!((live.rate() - 0.3 * carried as f64).abs() < 1e-6);
            assert_eq!(direction.sends(), sends);
        }
    }

    /// Two samples at the same moment give no rate, and a path without packets has no losses.
    #[test]
    fn without_time_or_packets_there_is_no_rate() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Receiving, start);
        assert!(live.told.is_empty() && !live.by_peer && live.carried == 0);
        live.look(start, vec![seen(0, 0, 0)]);
        live.look(start, vec![seen(0, 0, 4000)]);
        assert!(live.rows[0].rates.is_empty() && live.rate() == 0.0);
        assert_eq!(live.carried, 4000);
        let mut idle = seen(0, 0, 4000);
        idle.stats.packets_sent = 0;
        idle.stats.packets_lost = 0;
        let millisecond = Duration::from_millis(1);
        live.look(start + millisecond, vec![idle]);
        assert_eq!((live.rows[0].loss(), live.rows[0].rates.len()), (0.0, 1));
        let mut one = seen(0, 0, 4000);
        (one.stats.packets_sent, one.stats.packets_lost) = (1, 1);
        live.look(start + 2 * millisecond, vec![one]);
        assert_eq!(live.rows[0].loss(), 1.0);
        assert!(live.by_peer().by_peer);
    }

    #[test]
    fn the_selection_moves_by_a_row_and_stays_within() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Both, start);
        live.look(start, (0..3).map(|id| seen(0, id, 0)).collect());
        let mut moves = |down| {
            live.select(down);
            live.selected()
        };
        let rows = [1, 1, 1, -1, -1, -1].map(&mut moves);
        assert_eq!(rows, [1, 2, 2, 1, 0, 0].map(Some));
        // The selected path has gone, so the selection moves to the first row.
        live.look(start, vec![seen(0, 1, 0), seen(0, 2, 0)]);
        assert_eq!(live.selected(), Some(0));
        live.look(start, (1..5).map(|id| seen(0, id, 0)).collect());
        live.select(3);
        live.rows.remove(3);
        live.select(1);
        assert_eq!(live.selected(), Some(1), "from the first on");
    }
}
