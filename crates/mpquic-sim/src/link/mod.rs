//! [`Link`]: one direction of a path, in virtual time and without I/O.
//!
//! ```text
//! send -> queue -> serialisation at the rate -> outage, loss -> delay -> receive
//! ```
//!
//! Each call first computes the exact times of all departures since the last call. So a link costs
//! one event per packet, however long its queue is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

mod config;
mod counters;
mod mahimahi;
mod queue;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

pub use config::{Backlog, Change, Discipline, Jitter, LinkConfig, Loss, RateTrace, Variation};
pub use counters::LinkCounters;
pub use mahimahi::MahimahiError;

use crate::packet::Packet;
use queue::{Queue, Queued};

struct Flying {
    due: Instant,
    packet: Packet,
}

/// One direction of a path: takes packets, and delivers them when they are due.
pub struct Link {
    start: Instant,
    /// Parameters as scheduled, before variation.
    base: LinkConfig,
    /// Parameters in force.
    current: LinkConfig,
    next_change: usize,
    /// When the rate of the trace changes next, and the index of the new rate.
    next_step: Option<(Instant, usize)>,
    next_variation: Option<Instant>,
    random: Xoshiro256PlusPlus,
    variation_random: Xoshiro256PlusPlus,
    bad_state: bool,
    /// The packet that is being sent.
    head: Option<Queued>,
    /// Packets that wait behind `head`.
    queue: Box<dyn Queue>,
    head_started: Instant,
    head_finishes: Instant,
    /// Sorted by due time.
    flying: VecDeque<Flying>,
    last_due: Instant,
    counters: LinkCounters,
}

impl Link {
    /// An idle link; its schedule starts at `now`.
    pub fn new(mut config: LinkConfig, seed: u64, now: Instant) -> Self {
        config.schedule.sort_by_key(|(time, _)| *time);
        let variation = config.variation;
        // The queue has a generator of its own, so that random losses repeat with any queue.
        let queue = queue::new(config.discipline, !seed);
        Self {
            start: now,
            current: LinkConfig {
                schedule: Vec::new(),
                ..config.clone()
            },
            next_step: config.trace.as_ref().map(|_| (now, 0)),
            base: config,
            next_change: 0,
            next_variation: variation.map(|_| now),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            variation_random: Xoshiro256PlusPlus::seed_from_u64(variation.map_or(0, |v| v.seed)),
            bad_state: false,
            head: None,
            queue,
            head_started: now,
            head_finishes: now,
            flying: VecDeque::new(),
            last_due: now,
            counters: LinkCounters::new(now),
        }
    }

    /// Takes a packet, which may be dropped at once.
    pub fn send(&mut self, now: Instant, mut packet: Packet) {
        self.advance(now);
        let size = packet.wire_size();
        self.counters.packets_in += 1;
        self.counters.bytes_in += size as u64;
        if self.current.outage {
            self.counters.dropped_outage += 1;
            return;
        }
        if size > self.current.mtu {
            self.counters.dropped_mtu += 1;
            return;
        }
        while self.is_exceeded_by(size) {
            self.counters.dropped_queue += 1;
            if !self.queue.make_room() {
                return;
            }
        }
        let (bytes, packets) = self.backlog_with(size);
        let rate = self.current.rate;
        let congested = |threshold: Backlog| threshold.is_exceeded(bytes, packets, rate);
        if self.current.ecn.is_some_and(congested) && packet.mark_ce() {
            self.counters.ce_marked += 1;
        }
        self.counters.max_queue_bytes = self.counters.max_queue_bytes.max(bytes);
        let queued = Queued {
            arrived: now,
            packet,
        };
        match self.head {
            Some(_) => self.queue.push(queued, &mut self.counters),
            None => self.start(now, queued),
        }
    }

    /// Bytes and packets, including a further packet of `size` bytes and the packet on the wire.
    fn backlog_with(&self, size: usize) -> (u64, usize) {
        let head = self.head.as_ref();
        let head_bytes = head.map_or(0, |head| head.packet.wire_size() as u64);
        (
            head_bytes + self.queue.bytes() + size as u64,
            self.packets_queued() + 1,
        )
    }

    fn packets_queued(&self) -> usize {
        usize::from(self.head.is_some()) + self.queue.packets()
    }

    /// True if the queue has no room for `size` bytes. A packet always fits into an empty queue.
    fn is_exceeded_by(&self, size: usize) -> bool {
        let (bytes, packets) = self.backlog_with(size);
        let limit = self.current.queue_limit();
        packets > 1 && limit.is_exceeded(bytes, packets, self.current.rate)
    }

    /// Begins to send a packet.
    fn start(&mut self, now: Instant, queued: Queued) {
        let size = queued.packet.wire_size();
        self.head_started = now;
        self.head_finishes = now + self.current.serialisation(size);
        self.head = Some(queued);
    }

    /// When to call [`Self::receive`] next. No packet is due earlier, but `receive` may return
    /// `None` then.
    pub fn next_arrival(&self) -> Option<Instant> {
        let flying = self.flying.front().map(|packet| packet.due);
        if self.head.is_none() {
            return flying;
        }
        let mut queued = self.head_finishes + self.current.min_delay();
        if !self.current.jitter_reorders {
            queued = queued.max(self.last_due);
        }
        // A change may shorten the delay of queued packets.
        if let Some(change) = self.next_scheduled() {
            queued = queued.min(change.max(self.head_finishes));
        }
        Some(flying.map_or(queued, |flying| flying.min(queued)))
    }

    /// The next packet due at or before `now`.
    pub fn receive(&mut self, now: Instant) -> Option<Packet> {
        self.advance(now);
        if self.flying.front()?.due > now {
            return None;
        }
        let Flying { due, packet } = self.flying.pop_front()?;
        self.counters.on_delivered(due, packet.wire_size());
        Some(packet)
    }

    /// Changes a parameter now.
    pub fn change(&mut self, now: Instant, change: &Change) {
        self.advance(now);
        self.base.apply(change);
        let mut config = self.current.clone();
        config.apply(change);
        self.set(now, config);
    }

    /// Counters of all packets so far.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Starts to count delivered bytes per interval.
    pub fn trace(&mut self, interval: Duration) {
        self.counters.trace(interval);
    }

    /// The parameters in force.
    pub fn config(&self) -> &LinkConfig {
        &self.current
    }

    /// Number of packets in the queue or in flight.
    pub fn packets(&self) -> usize {
        self.packets_queued() + self.flying.len()
    }

    /// Bytes in the queue at `now`, including the packet being sent.
    pub fn queue_bytes(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.backlog_with(0).0
    }

    /// Applies the schedule and serialises packets up to `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(time) = self.next_scheduled().filter(|time| *time <= now) {
            self.depart_until(time);
            self.run_schedule(time);
        }
        self.depart_until(now);
    }

    fn next_scheduled(&self) -> Option<Instant> {
        let change = self.base.schedule.get(self.next_change);
        let change = change.map(|(time, _)| self.start + *time);
        let step = self.next_step.map(|(time, _)| time);
        let all = [change, step, self.next_variation];
        all.into_iter().flatten().min()
    }

    fn run_schedule(&mut self, time: Instant) {
        while let Some((at, change)) = self.base.schedule.get(self.next_change).copied() {
            if self.start + at > time {
                break;
            }
            self.next_change += 1;
            self.base.apply(&change);
            let mut config = self.current.clone();
            config.apply(&change);
            self.set(time, config);
        }
        if let Some((at, step)) = self.next_step.filter(|(at, _)| *at <= time)
            && let Some(trace) = self.base.trace.clone()
        {
            let rate = trace.mbit.get(step).copied();
            let after = (step + 1) % trace.mbit.len().max(1);
            self.next_step = Some((at + trace.every.max(Duration::from_millis(1)), after));
            if let Some(rate) = rate {
                let change = Change::Rate(rate);
                self.base.apply(&change);
                let mut config = self.current.clone();
                config.apply(&change);
                self.set(time, config);
            }
        }
        if let Some(variation) = self.base.variation
            && self.next_variation.is_some_and(|next| next <= time)
        {
            self.next_variation = Some(time + variation.every.max(Duration::from_micros(1)));
            self.vary(time, &variation);
        }
    }

    fn vary(&mut self, time: Instant, variation: &Variation) {
        let mut draw = || self.variation_random.random_range(-1.0..1.0);
        let (rate, delay, loss): (f64, f64, f64) = (draw(), draw(), draw());
        let mut config = self.current.clone();
        let factor = (1.0 + variation.rate * rate).max(0.01);
        config.rate = self.base.rate.map(|base| base * factor);
        config.delay = self
            .base
            .delay
            .mul_f64((1.0 + variation.delay * delay).max(0.0));
        config.loss = match self.base.loss {
            Loss::None => Loss::bernoulli((variation.loss * loss).clamp(0.0, 1.0)),
            Loss::Bernoulli(base) => {
                Loss::bernoulli((base + variation.loss * loss).clamp(0.0, 1.0))
            }
            other @ Loss::GilbertElliott { .. } => other,
        };
        self.set(time, config);
    }

    fn set(&mut self, time: Instant, config: LinkConfig) {
        if self.head.is_some() && config.rate != self.current.rate {
            // The rest of the packet being sent continues at the new rate.
            let rest = self.head_finishes.saturating_duration_since(time);
            let bits = rest.as_secs_f64() * self.current.rate.unwrap_or(0.0);
            let rest = config.rate.map_or(0.0, |rate| bits / rate);
            self.head_finishes = time + Duration::from_secs_f64(rest);
        }
        self.current = config;
    }

    fn depart_until(&mut self, time: Instant) {
        while self.head_finishes <= time {
            let Some(Queued { arrived, packet }) = self.head.take() else {
                return;
            };
            let (started, finished) = (self.head_started, self.head_finishes);
            if let Some(next) = self.queue.pop(finished, &mut self.counters) {
                self.start(finished, next);
            }
            self.counters.on_departed(started - arrived);
            self.depart(finished, packet);
        }
    }

    fn depart(&mut self, time: Instant, mut packet: Packet) {
        if self.current.outage {
            self.counters.dropped_outage += 1;
            return;
        }
        let lost = self.is_lost();
        self.counters.on_chance(lost);
        if lost {
            return;
        }
        if self.chance(self.current.corrupt) && !packet.data.is_empty() {
            self.counters.corrupted += 1;
            let bit = self.random.random_range(0..packet.data.len() * 8);
            packet.data[bit / 8] ^= 1 << (bit % 8);
        }
        let due = time + self.draw_delay();
        if self.chance(self.current.duplicate) {
            self.counters.duplicated += 1;
            self.fly(due, packet.clone(), false);
        }
        if self.chance(self.current.reorder) {
            self.counters.reordered += 1;
            self.fly(due + self.current.reorder_delay, packet, true);
        } else {
            self.fly(due, packet, self.current.jitter_reorders);
        }
    }

    fn is_lost(&mut self) -> bool {
        match self.current.loss {
            Loss::None => false,
            Loss::Bernoulli(probability) => self.chance(probability),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                self.bad_state ^= self.chance(if self.bad_state { to_good } else { to_bad });
                self.chance(if self.bad_state { loss_bad } else { loss_good })
            }
        }
    }

    fn draw_delay(&mut self) -> Duration {
        let delay = self.current.delay;
        let (scale, draw) = match self.current.jitter {
            Jitter::None => return delay,
            Jitter::Uniform(jitter) => (jitter, self.random.random_range(-1.0..1.0)),
            Jitter::Normal(deviation) => (deviation, self.draw_normal()),
        };
        let seconds = delay.as_secs_f64() + scale.as_secs_f64() * draw;
        Duration::from_secs_f64(seconds.max(0.0))
    }

    /// A standard normal value (Box and Muller).
    fn draw_normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.random.random::<f64>()).cos()
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random::<f64>() < probability
    }

    fn fly(&mut self, mut due: Instant, packet: Packet, may_reorder: bool) {
        if !may_reorder {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        let behind = self.flying.iter().rev().take_while(|other| other.due > due);
        let index = self.flying.len() - behind.count();
        self.flying.insert(index, Flying { due, packet });
    }
}
