//! Peekaboo: learns when to wait.

use std::time::{Duration, Instant};

use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{seconds, send_batch, wait_for};
use crate::papers::choice::uniform;
use crate::plain_cases::PlainCases;

/// Dimensions of a context.
const DIMENSIONS: usize = 6;
/// Weight of the uncertainty of a model.
const CURIOSITY: f64 = 0.75;
/// Probability of following a decision to wait.
const KEEP_WAITING: f64 = 0.7;
/// Probability of following a decision to send.
const KEEP_SENDING: f64 = 0.9;
/// Most decisions that are watched at a time; further decisions teach nothing.
const MAX_WATCHED: usize = 32;
/// Weights of bytes that are acknowledged in the first, second and third period after a decision.
const DISCOUNTS: [f64; 3] = [0.9, 0.7, 0.5];

type Context = [f64; DIMENSIONS];

/// Lowest RTT first while the fastest path has room. When that path is full, a contextual bandit
/// (LinUCB) decides from the state of both paths whether to use the slower path or to wait. Its
/// answer is followed most of the time, and reversed at random otherwise.
///
/// Source: Wu, Alay, Brunstrom, Ferlin and Caso, "Peekaboo: Learning-Based Multipath Scheduling for
/// Dynamic Heterogeneous Environments", IEEE JSAC 38(10), 2020, after published ports. Inputs:
/// latest RTT, window, bytes in flight, flow control credit; acknowledgements. Constants: 0.75 on
/// the uncertainty; decisions are followed with probability 0.7 (wait) and 0.9 (send), which the
/// paper derives from its environments.
///
/// The reward of a decision is the goodput that follows it: bytes acknowledged on all paths,
/// divided by the bytes that both windows could deliver in the same time. Later bytes have less
/// weight. A period is the longer of two fast and one slow round trip. This follows the port in the
/// ns-3 module of Shu et al. The definition of reward and discount in the paper was not available
/// to us.
///
/// Differences from the ports:
///
/// - The model is solved with the inverse; one port multiplies instead.
/// - Contexts and rewards are scaled to about 1, where a port mixes bytes and nanoseconds.
/// - Discounts count by period, not by acknowledgement.
/// - A wait lasts until the fast path opens.
///
/// A decision and a reward each cost O(d²), d = 6.
#[derive(Debug)]
pub struct Peekaboo {
    cases: PlainCases,
    wait: Arm,
    send: Arm,
    /// The scheduler waits for the fast path.
    waiting: bool,
    /// Watched decisions, the oldest first.
    watched: Vec<Watched>,
}

/// A linear model of the reward of one answer.
#[derive(Debug, Clone, Copy)]
struct Arm {
    inverse: [Context; DIMENSIONS],
    rewards: Context,
}

/// A decision whose reward is not known yet.
#[derive(Debug, Clone, Copy)]
struct Watched {
    waited: bool,
    context: Context,
    decided_at: Instant,
    period: Duration,
    /// Bytes acknowledged since the decision, discounted.
    acked: f64,
    /// Largest possible value of `acked`.
    possible: f64,
}

impl Watched {
    fn new(waited: bool, context: Context, now: Instant, fast: &PathView, slow: &PathView) -> Self {
        let period = (2 * fast.rtt.smoothed).max(slow.rtt.smoothed);
        let rate = |path: &PathView| path.window as f64 / seconds(path.rtt.smoothed);
        let per_period = (rate(fast) + rate(slow)) * seconds(period);
        Self {
            waited,
            context,
            decided_at: now,
            period,
            acked: 0.0,
            possible: (per_period * DISCOUNTS.iter().sum::<f64>()).max(1.0),
        }
    }

    /// The number of the current period, from 0.
    fn current(&self, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.decided_at);
        (elapsed.as_nanos() / self.period.as_nanos().max(1)) as usize
    }
}

fn dot(a: &Context, b: &Context) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Arm {
    fn new() -> Self {
        let mut inverse = [[0.0; DIMENSIONS]; DIMENSIONS];
        for (index, row) in inverse.iter_mut().enumerate() {
            row[index] = 1.0;
        }
        Self {
            inverse,
            rewards: [0.0; DIMENSIONS],
        }
    }

    fn times(&self, x: &Context) -> Context {
        std::array::from_fn(|row| dot(&self.inverse[row], x))
    }

    /// The expected reward plus the weighted uncertainty.
    fn score(&self, x: &Context) -> f64 {
        // The inverse is symmetric.
        let v = self.times(x);
        dot(&v, &self.rewards) + CURIOSITY * dot(x, &v).max(0.0).sqrt()
    }

    /// Learns a reward (Sherman and Morrison: the inverse of a sum with a product).
    fn learn(&mut self, x: &Context, reward: f64) {
        let v = self.times(x);
        let scale = 1.0 / (1.0 + dot(x, &v));
        for row in 0..DIMENSIONS {
            for column in 0..DIMENSIONS {
                self.inverse[row][column] -= scale * v[row] * v[column];
            }
            self.rewards[row] += reward * x[row];
        }
    }
}

/// The state of both paths, scaled by their joint rate.
fn context(view: &View<'_>, fast: &PathView, slow: &PathView) -> Context {
    let (fast_rtt, slow_rtt) = (seconds(fast.rtt.latest), seconds(slow.rtt.latest));
    let scale = fast.window.max(1) as f64 / fast_rtt + slow.window.max(1) as f64 / slow_rtt;
    let credit = view.queue.flow_credit.min(fast.window + slow.window);
    [
        fast.window as f64 / fast_rtt,
        slow.in_flight as f64 / slow_rtt,
        credit as f64 / fast_rtt,
        credit as f64 / slow_rtt,
        fast.in_flight as f64 / fast_rtt,
        slow.window as f64 / slow_rtt,
    ]
    .map(|rate| (rate / scale).min(10.0))
}

impl Peekaboo {
    /// Learns from the decisions whose last period is over.
    fn settle(&mut self, now: Instant) {
        let (wait, send) = (&mut self.wait, &mut self.send);
        self.watched.retain(|watched| {
            let is_over = watched.current(now) >= DISCOUNTS.len();
            if is_over {
                let arm = if watched.waited {
                    &mut *wait
                } else {
                    &mut *send
                };
                arm.learn(
                    &watched.context,
                    (watched.acked / watched.possible).min(1.0),
                );
            }
            !is_over
        });
    }

    fn on_acked(&mut self, bytes: u64, now: Instant) {
        self.settle(now);
        for watched in &mut self.watched {
            let discount = DISCOUNTS.get(watched.current(now));
            watched.acked += discount.copied().unwrap_or(0.0) * bytes as f64;
        }
    }

    /// True if the answer is to wait.
    fn decides_to_wait(&self, context: &Context, random: u64) -> bool {
        let wait = self.wait.score(context) > self.send.score(context);
        let keep = if wait { KEEP_WAITING } else { KEEP_SENDING };
        wait == (uniform(random) < keep)
    }
}

impl Default for Peekaboo {
    fn default() -> Self {
        Self {
            cases: PlainCases::default(),
            wait: Arm::new(),
            send: Arm::new(),
            waiting: false,
            watched: Vec::with_capacity(MAX_WATCHED),
        }
    }
}

impl Scheduler for Peekaboo {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let (fast, chosen) = match self.cases.fast_and_chosen(view) {
            Ok(paths) => paths,
            Err(decision) => return decision,
        };
        if fast.id == chosen.id {
            self.waiting = false;
            return send_batch(fast);
        }
        let Some(wait) = wait_for(fast) else {
            return Decision::send(chosen.id);
        };
        if self.waiting {
            return wait;
        }
        self.settle(view.now);
        let context = context(view, fast, chosen);
        self.waiting = self.decides_to_wait(&context, view.random);
        if self.watched.len() < MAX_WATCHED {
            let watched = Watched::new(self.waiting, context, view.now, fast, chosen);
            self.watched.push(watched);
        }
        if self.waiting {
            wait
        } else {
            Decision::send(chosen.id)
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::Acked(packet, _) => self.on_acked(packet.bytes, view.now),
            // After these events, another path may be the fast path.
            SchedulerEvent::PathRemoved(_) | SchedulerEvent::PathSuspect(_) => {
                self.waiting = false;
            }
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_packet_events()
    }

    fn name(&self) -> &'static str {
        "peekaboo"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;

    use super::*;
    use crate::testing::{Scene, chosen, full, packet, path};

    #[test]
    fn the_rank_one_update_inverts() {
        // The inverse of I + x x^T + y y^T times that matrix is I.
        let x = [1.0, 2.0, 0.0, 0.5, 0.0, 1.0];
        let y = [0.0, 1.0, 1.0, 0.0, 3.0, 0.2];
        let mut arm = Arm::new();
        arm.learn(&x, 1.0);
        arm.learn(&y, 0.5);
        for row in 0..DIMENSIONS {
            let column = std::array::from_fn(|i| {
                f64::from(u8::from(i == row)) + x[i] * x[row] + y[i] * y[row]
            });
            for (index, value) in arm.times(&column).into_iter().enumerate() {
                let expected = f64::from(u8::from(index == row));
                assert!((value - expected).abs() < 1e-9);
            }
        }
        assert_eq!(arm.rewards[1], 2.5);
    }

    fn scene() -> Scene {
        Scene::new(vec![full(path(0, 10)), path(1, 100)])
    }

    /// After each decision, `after_sending` or `after_waiting` bytes are acknowledged. Returns how
    /// often the slow path is used in the second half of the decisions.
    fn learn(after_sending: u64, after_waiting: u64) -> usize {
        let (mut peekaboo, mut used) = (Peekaboo::default(), 0);
        let mut now = scene().now;
        for count in 0..400 {
            let mut scene = scene();
            scene.now = now;
            scene.random = u64::wrapping_mul(count, 0x9e37_79b9_7f4a_7c15);
            let slow = chosen(&peekaboo.select(&scene.view())) == Some(1);
            used += usize::from(slow && count >= 200);
            scene.now += Duration::from_millis(50);
            let mut acked = packet(PathId(0), 0);
            acked.bytes = if slow { after_sending } else { after_waiting };
            peekaboo.on_event(&SchedulerEvent::Acked(acked, None), &scene.view());
            // The fast path opens, and the next decision comes when the last period of this one is
            // over.
            scene.paths[0] = path(0, 10);
            peekaboo.select(&scene.view());
            now = scene.now + Duration::from_millis(300);
        }
        used
    }

    #[test]
    fn slow_path_is_used_often_only_if_sending_pays_more() {
        assert!(learn(60_000, 30_000) > 150);
        assert!(learn(30_000, 60_000) < 90);
    }

    #[test]
    fn the_reward_is_the_discounted_goodput_of_all_paths() {
        // Two fast round trips are 20 ms, one slow round trip is 100 ms: periods of 100 ms.
        let scene = scene();
        let [fast, slow] = [&scene.paths[0], &scene.paths[1]];
        let mut peekaboo = Peekaboo::default();
        let context = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let watched = Watched::new(true, context, scene.now, fast, slow);
        // 12,000 bytes every 10 ms and 12,000 every 100 ms, over periods that count 0.9, 0.7, 0.5.
        assert!((watched.possible - 132_000.0 * 2.1).abs() < 1e-6);
        peekaboo.watched.push(watched);
        for (after, bytes) in [(0, 10_000), (99, 20_000), (100, 40_000), (299, 2_000)] {
            peekaboo.on_acked(bytes, scene.now + Duration::from_millis(after));
        }
        assert_eq!(peekaboo.wait.rewards[5], 0.0);
        peekaboo.on_acked(5_000, scene.now + Duration::from_millis(300));
        let expected = (0.9 * 30_000.0 + 0.7 * 40_000.0 + 0.5 * 2_000.0) / (132_000.0 * 2.1);
        assert!((peekaboo.wait.rewards[5] - expected).abs() < 1e-9);
        assert_eq!(
            (peekaboo.send.rewards, peekaboo.watched.len()),
            ([0.0; 6], 0)
        );
    }

    #[test]
    fn waiting_lasts_until_the_fast_path_opens() {
        let mut scene = scene();
        let mut peekaboo = Peekaboo::default();
        // The scheduler has learned nothing yet: both answers score the same, and the answer to
        // send is reversed.
        scene.random = u64::MAX;
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(peekaboo.select(&scene.view()), wait);
        scene.random = 0;
        assert_eq!(peekaboo.select(&scene.view()), wait);
        scene.paths[0] = path(0, 10);
        assert_eq!(peekaboo.select(&scene.view()), send_batch(&scene.paths[0]));
    }
}
