//! The common part of the window-based coupled controllers: a [`Window`] per path, and a
//! [`Coupling`] that moves the windows in congestion avoidance.

use std::fmt;
use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent, Controller, Sent};
use mpquic_core::{PathId, PathMap};

use crate::careful_resume::{Found, Resumable};
use crate::window::{Reaction, Window};

/// Factor that a loss leaves of the window, unless the algorithm has a factor of its own.
const LOSS_FACTOR: f64 = 0.5;
/// Shortest RTT in calculations, seconds; avoids divisions by zero.
const MIN_RTT: f64 = 1e-6;

/// A coupled algorithm: congestion avoidance and the reaction to losses. Slow start, recovery
/// periods and limits are those of [`Window`] on each path.
pub trait Coupling: fmt::Debug + Send + Sized + 'static {
    /// The algorithm's name.
    const NAME: &'static str;
    /// Initial window, datagrams; `None` for that of RFC 9002.
    const INITIAL_DATAGRAMS: Option<f64> = None;
    /// Largest window, datagrams.
    const MAX_DATAGRAMS: f64 = f64::INFINITY;
    /// The state of the algorithm for each path.
    type State: fmt::Debug + Default + Copy + Send;

    /// Handles an acknowledgement on a path, before its window moves.
    fn on_ack(state: &mut Self::State, window: &mut Window, ack: &Acked) {
        let _ = (state, window, ack);
    }

    /// Growth of the window of `path` when `acked` bytes count for congestion avoidance, bytes. It
    /// may be negative.
    fn growth(path: &Member<'_, Self::State>, acked: f64, members: Members<'_, Self>) -> f64;

    /// The window of the path grew by this many bytes.
    fn on_grown(state: &mut Self::State, growth: f64) {
        let _ = (state, growth);
    }

    /// Growth of the window of `path` in a loss-free round trip, bytes. Changes no state.
    fn growth_per_round(path: &Member<'_, Self::State>, members: Members<'_, Self>) -> f64 {
        Self::growth(path, path.window, members)
    }

    /// Factor that a loss on `path` leaves of its window. `path` is not among the members before
    /// its first RTT sample.
    fn loss_factor(path: PathId, members: Members<'_, Self>) -> f64 {
        let _ = (path, members);
        LOSS_FACTOR
    }

    /// The window reacted to a congestion event.
    fn on_reaction(state: &mut Self::State, reaction: Reaction) {
        let _ = (state, reaction);
    }
}

/// A path of a coupled controller.
#[derive(Debug)]
pub(crate) struct CoupledPath<S> {
    pub(crate) window: Window,
    pub(crate) state: S,
    /// Smoothed RTT, seconds; `None` before the first sample.
    pub(crate) rtt: Option<f64>,
    pub(crate) in_flight: u64,
    pub(crate) app_limited: bool,
}

impl<S: Default> CoupledPath<S> {
    pub(crate) fn new(mtu: u16) -> Self {
        Self {
            window: Window::new(mtu),
            state: S::default(),
            rtt: None,
            in_flight: 0,
            app_limited: false,
        }
    }

    /// The part of the window that is in use, bytes. An idle path must not count with its whole
    /// window (for this case RFC 6356 section 3.1 asks for the flight size).
    fn effective_window(&self) -> f64 {
        let bytes = self.window.bytes;
        if self.app_limited || self.in_flight == 0 {
            bytes.min((self.in_flight as f64).max(self.window.minimum()))
        } else {
            bytes
        }
    }
}

/// A coupled path, with the numbers that algorithms need.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a, S> {
    /// The ID of the path.
    pub id: PathId,
    /// Smoothed RTT, seconds; above 0.
    pub rtt: f64,
    /// The window, bytes; above 0.
    pub window: f64,
    /// The part of the window in use, bytes; above 0.
    pub effective_window: f64,
    /// Largest datagram, bytes.
    pub mtu: f64,
    /// The state of the algorithm for this path.
    pub state: &'a S,
}

/// The coupled paths: all paths with an RTT sample.
pub struct Members<'a, C: Coupling> {
    paths: &'a PathMap<CoupledPath<C::State>>,
    /// Windows to assume instead of the present windows, sorted by path ID.
    assumed: &'a [(PathId, u64)],
}

impl<C: Coupling> Clone for Members<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Coupling> Copy for Members<'_, C> {}

impl<'a, C: Coupling> Members<'a, C> {
    fn assumed(&self, path: PathId) -> Option<f64> {
        let index = self.assumed.binary_search_by_key(&path, |(id, _)| *id);
        let (_, bytes) = self.assumed.get(index.ok()?)?;
        Some((*bytes as f64).max(1.0))
    }

    fn member(&self, id: PathId, path: &'a CoupledPath<C::State>) -> Option<Member<'a, C::State>> {
        let assumed = self.assumed(id);
        Some(Member {
            id,
            rtt: path.rtt?,
            window: assumed.unwrap_or(path.window.bytes),
            effective_window: assumed.unwrap_or_else(|| path.effective_window()),
            mtu: path.window.mtu(),
            state: &path.state,
        })
    }

    /// All members, in the order of path IDs.
    pub fn iter(self) -> impl Iterator<Item = Member<'a, C::State>> + Clone {
        self.paths
            .iter()
            .filter_map(move |(id, path)| self.member(id, path))
    }

    /// The member with this path ID.
    pub fn get(self, path: PathId) -> Option<Member<'a, C::State>> {
        self.member(path, self.paths.get(path)?)
    }
}

/// Runs the coupled algorithm `C` on all paths of a connection.
#[derive(Debug)]
pub struct Coupled<C: Coupling> {
    pub(crate) paths: PathMap<CoupledPath<C::State>>,
}

impl<C: Coupling> Default for Coupled<C> {
    fn default() -> Self {
        Self {
            paths: PathMap::default(),
        }
    }
}

impl<C: Coupling> Coupled<C> {
    pub(crate) fn members(&self) -> Members<'_, C> {
        Members {
            paths: &self.paths,
            assumed: &[],
        }
    }
}

impl<C: Coupling> Resumable for Coupled<C> {
    const TOLERATED_LOSS: f64 = 0.0;

    fn adopt(&mut self, path: PathId, found: Found) {
        if let Some(path) = self.paths.get_mut(path) {
            path.window.adopt(found);
        }
    }
}

impl<C: Coupling> Controller for Coupled<C> {
    fn on_path_opened(&mut self, path: PathId, _: Instant, mtu: u16) {
        let mut opened = CoupledPath::new(mtu);
        if let Some(datagrams) = C::INITIAL_DATAGRAMS {
            opened.window.set(datagrams * f64::from(mtu));
        }
        self.paths.insert(path, opened);
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.paths.remove(path);
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        if let Some(path) = self.paths.get_mut(path) {
            path.window.on_mtu_update(mtu);
        }
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        if let Some(path) = self.paths.get_mut(path) {
            path.in_flight = sent.in_flight;
            path.window.on_packet_sent(sent);
        }
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        let Some(state) = self.paths.get_mut(path) else {
            return;
        };
        if ack.rtt.samples > 0 {
            state.rtt = Some(ack.rtt.smoothed.as_secs_f64().max(MIN_RTT));
        }
        state.in_flight = ack.in_flight;
        state.app_limited = ack.app_limited;
        C::on_ack(&mut state.state, &mut state.window, ack);
        let acked = state.window.on_ack(ack);
        state.window.cap(C::MAX_DATAGRAMS);
        let Some(acked) = acked else {
            return;
        };
        let members = self.members();
        let Some(member) = members.get(path) else {
            return;
        };
        let growth = C::growth(&member, acked, members);
        if let Some(state) = self.paths.get_mut(path) {
            state.window.grow(growth);
            state.window.cap(C::MAX_DATAGRAMS);
            C::on_grown(&mut state.state, growth);
        }
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        let factor = C::loss_factor(path, self.members());
        if let Some(path) = self.paths.get_mut(path) {
            let reaction = path.window.on_congestion_event(event, factor);
            C::on_reaction(&mut path.state, reaction);
        }
    }

    fn window(&self, path: PathId) -> u64 {
        self.paths.get(path).map_or(0, |path| path.window.limit())
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.paths
            .get(path)
            .and_then(|path| path.window.threshold())
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.paths
            .get(path)
            .is_some_and(|path| path.window.in_recovery())
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        let members = Members {
            assumed: windows,
            ..self.members()
        };
        let Some(bytes) = members.assumed(path) else {
            return 0;
        };
        let Some(state) = self.paths.get(path) else {
            return bytes as u64;
        };
        if let Some(next) = state.window.slow_start_round(bytes) {
            return next as u64;
        }
        let growth = members
            .get(path)
            .map_or(0.0, |member| C::growth_per_round(&member, members));
        (bytes + growth).max(state.window.minimum()) as u64
    }

    fn name(&self) -> &'static str {
        C::NAME
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Coupled controllers in a given state.

    use std::time::Duration;

    use super::*;

    /// Paths in congestion avoidance, numbered from 0. Each has a window in bytes that is fully
    /// used, an RTT in µs and a state.
    pub(crate) fn coupled<C: Coupling>(paths: &[(u32, u64, C::State)]) -> Coupled<C> {
        let mut controller = Coupled::default();
        for ((window, rtt, state), id) in paths.iter().zip(0..) {
            let mut path = CoupledPath::new(1200);
            path.window.set(f64::from(*window));
            path.window.slow_start_threshold = path.window.bytes;
            path.state = *state;
            path.rtt = Some(Duration::from_micros(*rtt).as_secs_f64());
            path.in_flight = u64::MAX / 2;
            controller.paths.insert(PathId(id), path);
        }
        controller
    }

    /// The growth of each path when `acked` bytes are acknowledged on it.
    pub(crate) fn growths<C: Coupling>(controller: &Coupled<C>, acked: f64) -> Vec<f64> {
        let members = controller.members();
        members
            .iter()
            .map(|member| C::growth(&member, acked, members))
            .collect()
    }

    pub(crate) fn assert_close(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (actual, expected) in actual.iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-3, "{actual} {expected}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::congestion::CongestionKind;

    use super::testing::coupled;
    use super::*;
    use crate::testing::{acked, congestion, rtt, sent, start};
    use crate::{Lia, NewReno, Olia, Uncoupled};

    const PATH: PathId = PathId(0);

    #[test]
    fn assumed_window_has_at_least_a_byte() {
        let mut olia = Olia::default();
        olia.on_path_opened(PATH, start(), 1200);
        let after = |olia: &Olia, windows: &[_]| olia.window_after_round(PATH, windows);
        assert_eq!(after(&olia, &[(PATH, 0)]), 2, "in slow start it doubles");
        assert_eq!(after(&olia, &[(PATH, 2)]), 4);
        assert_eq!(after(&olia, &[]), 0, "there is none");
        let loss = congestion(CongestionKind::Loss, start(), start());
        olia.on_congestion_event(PATH, &loss);
        // Without an RTT sample no window grows.
        assert_eq!(after(&olia, &[(PATH, 8_000)]), 8_000);
        olia.on_path_closed(PATH);
        assert_eq!(after(&olia, &[(PATH, 8_000)]), 8_000);
    }

    /// RFC 6356 section 3.1
    #[test]
    fn effective_window_of_an_unused_path_is_its_flight_size() {
        let mut lia = coupled::<crate::lia::LinkedIncreases>(&[(48_000, 20_000, ())]);
        let path = lia.paths.get_mut(PATH).unwrap();
        let mut effective = |in_flight, app_limited| {
            (path.in_flight, path.app_limited) = (in_flight, app_limited);
            path.effective_window()
        };
        assert_eq!(effective(1, false), 48_000.0);
        assert_eq!(effective(0, false), 2_400.0, "two datagrams");
        assert_eq!(effective(10_000, true), 10_000.0);
        assert_eq!(effective(1_000, true), 2_400.0);
        assert_eq!(effective(50_000, true), 48_000.0);
    }

    #[test]
    fn in_flight_comes_from_the_last_packet_or_acknowledgement() {
        let mut lia = Lia::default();
        lia.on_path_opened(PATH, start(), 1200);
        lia.on_packet_sent(PATH, &sent(start(), 1200, 3_600));
        assert_eq!(lia.paths.get(PATH).unwrap().in_flight, 3_600);
        let mut ack = acked(start(), start(), 1200);
        (ack.in_flight, ack.app_limited) = (2_400, true);
        lia.on_ack(PATH, &ack);
        let path = lia.paths.get(PATH).unwrap();
        assert_eq!((path.in_flight, path.app_limited), (2_400, true));
        assert_eq!(path.rtt, Some(0.02));
    }

    #[test]
    fn rtt_is_none_before_a_sample_and_never_zero() {
        let mut lia = Lia::default();
        lia.on_path_opened(PATH, start(), 1200);
        let mut ack = acked(start(), start(), 1200);
        ack.rtt.samples = 0;
        lia.on_ack(PATH, &ack);
        assert_eq!(lia.paths.get(PATH).unwrap().rtt, None);
        ack.rtt = rtt(Duration::ZERO);
        lia.on_ack(PATH, &ack);
        assert_eq!(lia.paths.get(PATH).unwrap().rtt, Some(1e-6));
    }

    /// Covers slow start, a recovery period and the time after it.
    #[test]
    fn lia_on_one_path_answers_like_new_reno() {
        let mut lia = Lia::default();
        let mut reno = Uncoupled::<NewReno>::default();
        let ms = |ms| start() + Duration::from_millis(ms);
        let both: [&mut dyn Controller; 2] = [&mut lia, &mut reno];
        let answers = both.map(|controller| {
            controller.on_path_opened(PATH, start(), 1200);
            let mut answers = Vec::new();
            for turn in 0..30 {
                let now = ms(10 * turn);
                if turn % 7 == 5 {
                    let loss = congestion(CongestionKind::Loss, now, ms(10 * turn - 15));
                    controller.on_congestion_event(PATH, &loss);
                }
                controller.on_packet_sent(PATH, &sent(now, 1200, 12_000));
                controller.on_ack(PATH, &acked(now, now - Duration::from_millis(20), 2400));
                answers.push((
                    controller.window(PATH),
                    controller.slow_start_threshold(PATH),
                    controller.in_recovery(PATH),
                    controller.window_after_round(PATH, &[(PATH, 20_000)]),
                ));
            }
            answers
        });
        for (lia, reno) in answers[0].iter().zip(&answers[1]) {
            assert!(lia.0.abs_diff(reno.0) <= 1 && lia.3.abs_diff(reno.3) <= 1);
            assert_eq!((lia.1, lia.2), (reno.1, reno.2));
        }
    }
}
