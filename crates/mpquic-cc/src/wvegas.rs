//! wVegas, weighted Vegas (Cao et al., "Delay-based congestion control for multipath TCP", ICNP
//! 2012), as implemented in Linux's multipath TCP.

use std::time::{Duration, Instant};

use mpquic_core::congestion::Acked;

use crate::coupled::{Coupled, Coupling, Member, Members};
use crate::window::{Reaction, Window};

/// Number of packets that all paths together keep in queues.
const TOTAL_ALPHA: f64 = 10.0;
/// The fewest packets that a path keeps in its queue.
const MIN_ALPHA: f64 = 2.0;
/// Slow start ends when this many packets are in the queue.
const GAMMA: f64 = 1.0;
/// A queue is drained when its length exceeds the shortest length since the last draining by this
/// factor.
const DRAIN_THRESHOLD: u32 = 2;
/// The mean RTT of a round counts only with at least this many samples.
const SAMPLES_PER_ROUND: u32 = 3;

/// Congestion control by delay: each path keeps a few packets in the queue of its bottleneck. A
/// faster path keeps more packets; all paths together keep ten. Traffic moves to paths with short
/// queues before packets are lost. Loss-based flows, which fill the queues, take bandwidth from
/// wVegas.
pub type Wvegas = Coupled<WeightedVegas>;

/// The rules of [`Wvegas`].
#[derive(Debug)]
pub enum WeightedVegas {}

/// The delays of a path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delays {
    /// Minimum RTT.
    base: Option<Duration>,
    round_start: Option<Instant>,
    sum: Duration,
    samples: u32,
    /// `RttSnapshot::samples` at the last RTT sample that was used.
    samples_seen: u64,
    /// True if, since the last draining, the queue once held as many packets as the path should
    /// keep in it.
    is_settled: bool,
    /// Shortest queueing delay of a round since the queue was last drained.
    shortest_queue: Option<Duration>,
    /// Mean RTT of the last round, seconds; 0 before the first round ends.
    mean: f64,
    verdict: Verdict,
}

/// The result of the current acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Verdict {
    /// The round goes on.
    #[default]
    None,
    /// A round ended: adjust the window.
    Adjust,
    /// A round ended and the queue has grown long: adjust the window and drain the queue.
    Drain,
}

impl Delays {
    fn take_sample(&mut self, ack: &Acked) {
        if ack.rtt.samples == self.samples_seen {
            return;
        }
        self.samples_seen = ack.rtt.samples;
        let latest = ack.rtt.latest;
        if ack.rtt_restarted {
            self.base = None;
            (self.sum, self.samples) = (Duration::ZERO, 0);
            self.unsettle();
        }
        self.base = Some(self.base.map_or(latest, |base| base.min(latest)));
        self.sum += latest;
        self.samples += 1;
    }

    /// Mean RTT of a round, if this acknowledgement ends a round with enough samples.
    fn end_round(&mut self, ack: &Acked) -> Option<Duration> {
        if self.round_start.is_some_and(|start| ack.sent_at < start) {
            return None;
        }
        let mean = self.sum.checked_div(self.samples)?;
        let enough = self.samples >= SAMPLES_PER_ROUND;
        self.round_start = Some(ack.now);
        (self.sum, self.samples) = (Duration::ZERO, 0);
        enough.then_some(mean)
    }

    /// True if the queue grew to a multiple of its shortest length, as it does when other flows
    /// fill it. Linux compares from the first queued packet on, and so drains paths that have not
    /// settled yet.
    fn is_queue_long(&mut self, mean: Duration) -> bool {
        if !self.is_settled {
            return false;
        }
        let queue = mean.saturating_sub(self.base.unwrap_or_default());
        let shortest = self.shortest_queue.map_or(queue, |least| least.min(queue));
        self.shortest_queue = Some(shortest);
        queue >= shortest * DRAIN_THRESHOLD && queue > shortest
    }

    fn unsettle(&mut self) {
        self.is_settled = false;
        self.shortest_queue = None;
    }

    fn base(&self) -> f64 {
        self.base.unwrap_or_default().as_secs_f64()
    }

    /// Packets in the queue while `window` bytes are in flight.
    fn queued(&self, window: f64, mtu: f64) -> f64 {
        window / mtu * (self.mean - self.base()) / self.mean
    }
}

fn rate(member: &Member<'_, Delays>) -> f64 {
    member.effective_window / member.state.mean
}

/// Packets that this path should keep in its queue: a share of the total that grows with its rate.
/// Linux updates a path's rate only when the queue is long enough; here the rate is always that of
/// the last round.
fn alpha(path: &Member<'_, Delays>, members: Members<'_, WeightedVegas>) -> f64 {
    let known = members.iter().filter(|member| member.state.mean > 0.0);
    let total: f64 = known.map(|member| rate(&member)).sum();
    (TOTAL_ALPHA * rate(path) / total).max(MIN_ALPHA)
}

impl Coupling for WeightedVegas {
    const NAME: &'static str = "wvegas";
    type State = Delays;

    fn on_ack(state: &mut Delays, window: &mut Window, ack: &Acked) {
        state.take_sample(ack);
        state.verdict = Verdict::None;
        let Some(mean) = state.end_round(ack) else {
            return;
        };
        state.mean = mean.as_secs_f64();
        let base = state.base();
        if window.in_slow_start() {
            if state.queued(window.bytes, window.mtu()) > GAMMA {
                let target = window.bytes * base / state.mean + window.mtu();
                window.set(window.bytes.min(target));
                window.slow_start_threshold = window.slow_start_threshold.min(window.bytes);
            }
            return;
        }
        state.verdict = if state.is_queue_long(mean) {
            Verdict::Drain
        } else {
            Verdict::Adjust
        };
    }

    fn growth(path: &Member<'_, Delays>, _: f64, members: Members<'_, Self>) -> f64 {
        if path.state.verdict == Verdict::None {
            return 0.0;
        }
        let adjusted = Self::growth_per_round(path, members);
        if path.state.verdict == Verdict::Adjust {
            return adjusted;
        }
        let window = path.window + adjusted;
        window * path.state.base() / (2.0 * path.state.mean) - path.window
    }

    fn growth_per_round(path: &Member<'_, Delays>, members: Members<'_, Self>) -> f64 {
        if path.state.mean <= 0.0 {
            return 0.0;
        }
        let queued = path.state.queued(path.window, path.mtu);
        let alpha = alpha(path, members);
        if queued > alpha {
            -path.mtu
        } else if queued < alpha {
            path.mtu
        } else {
            0.0
        }
    }

    fn on_grown(state: &mut Delays, growth: f64) {
        match state.verdict {
            Verdict::None => {}
            Verdict::Adjust => state.is_settled |= growth < 0.0,
            Verdict::Drain => state.unsettle(),
        }
    }

    fn on_reaction(state: &mut Delays, reaction: Reaction) {
        if reaction != Reaction::None {
            state.unsettle();
        }
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;
    use mpquic_core::congestion::{CongestionKind, Controller};

    use super::*;
    use crate::coupled::testing::{assert_close, coupled, growths};
    use crate::testing::{acked, congestion, start};

    const MS: Duration = Duration::from_millis(1);

    /// A path with this base RTT and this mean RTT of the last round, both in ms.
    fn delays(base: u64, mean: u64) -> Delays {
        Delays {
            base: Some(Duration::from_millis(base)),
            mean: Duration::from_millis(mean).as_secs_f64(),
            verdict: Verdict::Adjust,
            ..Delays::default()
        }
    }

    /// A round of ten acknowledgements with this RTT.
    fn round(wvegas: &mut Wvegas, now: &mut Instant, rtt: Duration) {
        for _ in 0..10 {
            let samples = wvegas.paths.get(PathId(0)).unwrap().state.samples_seen + 1;
            let mut ack = acked(*now + rtt, *now, 1200);
            ack.rtt = crate::testing::rtt(rtt);
            ack.rtt.samples = samples;
            wvegas.on_ack(PathId(0), &ack);
        }
        *now += rtt;
    }

    #[test]
    fn paths_keep_packets_in_their_queues_by_weight() {
        // 20 packets at 25 ms and 80 at 100 ms: equal rates, so 5 packets each.
        let wvegas = coupled::<WeightedVegas>(&[
            (24_000, 25_000, delays(20, 25)),
            (96_000, 100_000, delays(90, 100)),
        ]);
        let members = wvegas.members();
        let alphas: Vec<_> = members.iter().map(|path| alpha(&path, members)).collect();
        assert_close(&alphas, &[5.0, 5.0]);
        let queued = |path: Member<'_, Delays>| path.state.queued(path.window, path.mtu);
        let queued: Vec<_> = members.iter().map(queued).collect();
        assert_close(&queued, &[4.0, 8.0]);
        assert_close(&growths(&wvegas, 1200.0), &[1200.0, -1200.0]);
    }

    #[test]
    fn slow_path_keeps_at_least_two_packets_queued() {
        let wvegas = coupled::<WeightedVegas>(&[
            (240_000, 20_000, delays(20, 20)),
            (12_000, 20_000, delays(10, 20)),
        ]);
        let members = wvegas.members();
        let slow = members.get(PathId(1)).unwrap();
        assert_close(&[alpha(&slow, members)], &[2.0]);
        assert_close(&growths(&wvegas, 1200.0), &[1200.0, -1200.0]);
    }

    #[test]
    fn one_path_settles_at_ten_packets() {
        let mut wvegas = coupled::<WeightedVegas>(&[(120_000, 20_000, delays(20, 20))]);
        let mut now = start();
        // A link of 100 packets per 20 ms.
        for _ in 0..60 {
            let packets = wvegas.window(PathId(0)) / 1200;
            let queue = Duration::from_micros(200) * packets.saturating_sub(100) as u32;
            round(&mut wvegas, &mut now, 20 * MS + queue);
        }
        let packets = wvegas.window(PathId(0)) / 1200;
        assert!((109..=112).contains(&packets), "{packets}");
    }

    #[test]
    fn slow_start_ends_with_a_packet_in_the_queue() {
        let mut wvegas = Wvegas::default();
        let mut now = start();
        wvegas.on_path_opened(PathId(0), now, 1200);
        round(&mut wvegas, &mut now, 20 * MS);
        assert_eq!(wvegas.slow_start_threshold(PathId(0)), None);
        let before = wvegas.window(PathId(0));
        round(&mut wvegas, &mut now, 25 * MS);
        round(&mut wvegas, &mut now, 25 * MS);
        assert!(wvegas.slow_start_threshold(PathId(0)).is_some());
        assert!(wvegas.window(PathId(0)) < before * 2);
    }

    #[test]
    fn queue_is_long_from_twice_its_shortest_length_on() {
        let mut state = delays(20, 20);
        assert!(!state.is_queue_long(90 * MS), "it has not settled");
        state.is_settled = true;
        for (mean, is_long) in [
            (24, false),
            (27, false),
            (28, true),
            (22, false),
            (24, true),
        ] {
            assert_eq!(state.is_queue_long(mean * MS), is_long, "{mean}");
        }
        let mut empty = delays(20, 20);
        empty.is_settled = true;
        assert!(!empty.is_queue_long(20 * MS));
        assert!(empty.is_queue_long(21 * MS));
    }

    #[test]
    fn a_queue_grown_to_twice_its_shortest_is_drained() {
        let mut wvegas = coupled::<WeightedVegas>(&[(120_000, 20_000, delays(20, 21))]);
        let mut now = start();
        round(&mut wvegas, &mut now, 24 * MS);
        round(&mut wvegas, &mut now, 24 * MS);
        assert!(wvegas.window(PathId(0)) > 100_000);
        round(&mut wvegas, &mut now, 40 * MS);
        round(&mut wvegas, &mut now, 40 * MS);
        // A quarter remains: the RTT is twice the base RTT, and half of the rest is taken.
        let window = wvegas.window(PathId(0));
        assert!(window < 40_000, "{window}");
    }

    #[test]
    fn a_loss_halves_the_window() {
        let now = start();
        let mut wvegas = coupled::<WeightedVegas>(&[(24_000, 20_000, delays(20, 21))]);
        wvegas.on_congestion_event(PathId(0), &congestion(CongestionKind::Loss, now, now));
        assert_eq!(wvegas.slow_start_threshold(PathId(0)), Some(12_000));
    }
}
