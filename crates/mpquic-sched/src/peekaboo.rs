//! Peekaboo: learning when to wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PacketInfo, PathView, Scheduler, SchedulerEvent, View,
};

use crate::choice::{
    carriers, fast_and_chosen, lowest_rtt, seconds, send_batch, uniform, wait_for,
};
use crate::plain_cases::PlainCases;

/// Dimensions of a context.
const DIMENSIONS: usize = 6;
/// Weight of the uncertainty of a model.
const CURIOSITY: f64 = 0.75;
/// Probability of following a decision to wait.
const KEEP_WAITING: f64 = 0.7;
/// Probability of following a decision to send.
const KEEP_SENDING: f64 = 0.9;
/// How many decisions without a reward are remembered.
const MAX_PENDING: usize = 256;

type Context = [f64; DIMENSIONS];

/// Lowest RTT first while the fastest path has room. When that path is full, a contextual bandit
/// (LinUCB) decides from the state of both paths whether to use the slower one or to wait. Its
/// answer is followed most of the time, and reversed at random otherwise.
///
/// Source: Wu, Alay, Brunstrom, Ferlin and Caso, "Peekaboo: Learning-Based Multipath Scheduling for
/// Dynamic Heterogeneous Environments", IEEE JSAC 38(10), 2020, after published ports. Inputs:
/// latest RTT, window, in flight, flow control credit; acknowledgements. Constants: 0.75 on the
/// uncertainty; decisions kept with probability 0.7 (wait) and 0.9 (send), which the paper derives
/// from its environments.
///
/// Differences from the ports: the model is solved with the inverse (one port multiplies instead);
/// contexts and rewards are scaled to about 1, where a port mixes bytes and nanoseconds. The reward
/// of a decision is the fast path's RTT divided by the time until the packet it led to was
/// acknowledged, at most 1; nothing for a lost packet. Once waiting, it waits until the fast path
/// opens. Costs O(d^2) per decision and reward, d = 6.
#[derive(Debug)]
pub struct Peekaboo {
    cases: PlainCases,
    wait: Arm,
    send: Arm,
    /// A decision to wait whose reward the next packet on the fast path will show.
    waiting: Option<(Context, Instant)>,
    /// By tag.
    pending: VecDeque<Pending>,
    last_tag: u64,
}

/// A linear model of the reward of one answer.
#[derive(Debug, Clone, Copy)]
struct Arm {
    inverse: [Context; DIMENSIONS],
    rewards: Context,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    tag: u64,
    waited: bool,
    context: Context,
    decided_at: Instant,
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

    /// The expected reward plus what might be learned.
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

/// What both paths look like, scaled by what they deliver together.
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
    /// Sends one packet on `path` and remembers for which decision it will show the reward.
    fn send_for(
        &mut self,
        path: &PathView,
        waited: bool,
        context: Context,
        decided_at: Instant,
    ) -> Decision {
        self.last_tag += 1;
        if self.pending.len() >= MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            tag: self.last_tag,
            waited,
            context,
            decided_at,
        });
        Decision::Send {
            path: path.id,
            data: DataSelection::Next,
            max_bytes: 0,
            tag: self.last_tag,
        }
    }

    fn on_fate(&mut self, packet: &PacketInfo, view: &View<'_>, acked: bool) {
        let position = self.pending.binary_search_by_key(&packet.tag, |p| p.tag);
        let Some(pending) = position.ok().and_then(|index| self.pending.remove(index)) else {
            return;
        };
        let fastest = lowest_rtt(carriers(view)).map(|path| path.rtt.smoothed);
        let took = view.now.saturating_duration_since(pending.decided_at);
        let reward = match fastest.filter(|_| acked) {
            Some(rtt) => (seconds(rtt) / seconds(took.max(Duration::from_micros(1)))).min(1.0),
            None => 0.0,
        };
        let arm = if pending.waited {
            &mut self.wait
        } else {
            &mut self.send
        };
        arm.learn(&pending.context, reward);
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
            waiting: None,
            pending: VecDeque::with_capacity(MAX_PENDING),
            last_tag: 0,
        }
    }
}

impl Scheduler for Peekaboo {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        let Some((fast, chosen)) = fast_and_chosen(view) else {
            return Decision::Blocked;
        };
        if fast.id == chosen.id {
            return match self.waiting.take() {
                Some((context, decided_at)) => self.send_for(fast, true, context, decided_at),
                None => send_batch(fast),
            };
        }
        let Some(wait) = wait_for(fast) else {
            return Decision::send(chosen.id);
        };
        if self.waiting.is_some() {
            return wait;
        }
        let context = context(view, fast, chosen);
        if self.decides_to_wait(&context, view.random) {
            self.waiting = Some((context, view.now));
            return wait;
        }
        self.send_for(chosen, false, context, view.now)
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::Acked(packet, _) => self.on_fate(packet, view, true),
            SchedulerEvent::Lost(packet) => self.on_fate(packet, view, false),
            // Another path may be the fast one after these events.
            SchedulerEvent::PathRemoved(_) | SchedulerEvent::PathSuspect(_) => {
                self.waiting = None;
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

    /// Lets the slow path be this good a choice and returns how often it is then used.
    fn learn(acked_after: Duration) -> usize {
        let mut peekaboo = Peekaboo::default();
        let mut used = 0;
        for count in 0..400 {
            let mut scene = scene();
            scene.random = u64::wrapping_mul(count, 0x9e37_79b9_7f4a_7c15);
            let mut decision = peekaboo.select(&scene.view());
            let slow = chosen(&decision) == Some(1);
            used += usize::from(slow && count >= 200);
            let mut after = acked_after;
            if !slow {
                // The fast path opens and its packet is acknowledged a little later.
                scene.paths[0] = path(0, 10);
                decision = peekaboo.select(&scene.view());
                after = Duration::from_millis(20);
            }
            let Decision::Send { path, tag, .. } = decision else {
                panic!("{decision:?}");
            };
            scene.now += after;
            let acked = SchedulerEvent::Acked(packet(path, tag), None);
            peekaboo.on_event(&acked, &scene.view());
        }
        used
    }

    #[test]
    fn it_learns_whether_to_wait() {
        assert!(learn(Duration::from_millis(12)) > 150);
        assert!(learn(Duration::from_millis(200)) < 90);
    }

    #[test]
    fn waiting_lasts_until_the_fast_path_opens() {
        let mut scene = scene();
        let mut peekaboo = Peekaboo::default();
        // Nothing is known, so both answers are worth the same and sending is turned around.
        scene.random = u64::MAX;
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(peekaboo.select(&scene.view()), wait);
        scene.random = 0;
        assert_eq!(peekaboo.select(&scene.view()), wait);
        scene.paths[0] = path(0, 10);
        assert!(matches!(
            peekaboo.select(&scene.view()),
            Decision::Send {
                path: PathId(0),
                tag: 1,
                ..
            }
        ));
        assert_eq!(peekaboo.select(&scene.view()), send_batch(&scene.paths[0]));
    }
}
