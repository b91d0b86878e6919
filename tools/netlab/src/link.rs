//! The model of one direction of one path, in virtual time and without I/O.
//!
//! A packet arrives, waits in a drop-tail queue, and is sent at the rate. Then outages and losses
//! drop packets, so a lost packet has used its share of the rate. The others fly for the delay of
//! the link (with jitter, reordering and duplicates) until they are due. The owner of a link calls
//! `advance_with` as often as it likes: departures have exact virtual times, so a late call only
//! delays the delivery of packets.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::rng::Rng;

/// Nanoseconds of a second.
const NS: f64 = 1e9;

/// What the model needs to know of a packet.
pub(crate) trait Packet {
    /// The length of the IP packet in bytes.
    fn len(&self) -> usize;
    /// Sets CE if the packet is ECN-capable, and returns whether the packet is.
    fn mark_ce(&mut self) -> bool;
    /// A copy of the packet.
    fn duplicate(&self) -> Self;
}

/// Losses in bursts: a good and a bad state with probabilities of loss, and of the change of state
/// with each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gilbert {
    pub(crate) p_good_bad: f64,
    pub(crate) p_bad_good: f64,
    pub(crate) loss_good: f64,
    pub(crate) loss_bad: f64,
}

/// A limit on the queue, the packet that is being sent included. A packet that would exceed any of
/// the three figures exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backlog {
    pub(crate) bytes: f64,
    pub(crate) packets: f64,
    /// Nanoseconds of the rate in force.
    pub(crate) time: f64,
}

impl Backlog {
    /// No limit.
    pub(crate) const NONE: Backlog = Backlog {
        bytes: f64::INFINITY,
        packets: f64::INFINITY,
        time: f64::INFINITY,
    };

    fn exceeded(&self, bytes: u64, packets: usize, rate: f64) -> bool {
        bytes as f64 > self.bytes
            || packets as f64 > self.packets
            || bytes as f64 * 8.0 * NS > self.time * rate
    }
}

/// The parameters of a link at one time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Params {
    /// Bits per second. With an infinite rate a packet is sent at once.
    pub(crate) rate: f64,
    /// The delay of one way in nanoseconds, as all times here.
    pub(crate) owd: f64,
    /// The largest deviation from the delay, or the standard deviation of a normal distribution.
    pub(crate) jitter: f64,
    pub(crate) jitter_normal: bool,
    pub(crate) allow_reorder: bool,
    /// Probabilities, from 0 to 1.
    pub(crate) loss: f64,
    pub(crate) gilbert: Option<Gilbert>,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    /// The additional delay of a reordered packet.
    pub(crate) reorder_extra: f64,
    /// A packet that exceeds this limit is dropped.
    pub(crate) queue: Backlog,
    /// A packet that exceeds this limit is marked.
    pub(crate) ecn: Backlog,
}

/// Random variation around the scheduled parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Vary {
    pub(crate) every: u64,
    /// Fractions of the scheduled value, as `owd`.
    pub(crate) rate: f64,
    pub(crate) owd: f64,
    /// The largest probability that is added to the scheduled loss or taken from it.
    pub(crate) loss: f64,
}

/// A scheduled change of a link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// New parameters.
    Set(Params),
    /// An outage begins or ends.
    Blackhole(bool),
}

/// The plan of one direction of a path. Times count from the start of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) base: Params,
    /// Sorted by time.
    pub(crate) changes: Vec<(u64, Change)>,
    pub(crate) vary: Option<Vary>,
    pub(crate) seed: u64,
    /// The random stream of this direction's packets.
    pub(crate) stream: u64,
    /// The random stream of the variation. Directions of a path that vary alike have one stream.
    pub(crate) vary_stream: u64,
    /// The interval of the statistics.
    pub(crate) interval: u64,
}

/// Counters of an interval, or of the whole run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interval {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    pub(crate) delivered_packets: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) dropped_queue: u64,
    pub(crate) dropped_loss: u64,
    pub(crate) dropped_blackhole: u64,
    pub(crate) ce_marked: u64,
    /// Packets that were sent, lost packets included.
    pub(crate) departed: u64,
    pub(crate) queue_delay_sum: f64,
    pub(crate) queue_delay_max: f64,
}

/// Counters of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) total: Interval,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    pub(crate) queue_bytes_max: u64,
    pub(crate) intervals: Vec<Interval>,
}

struct Queued<P> {
    arrival: u64,
    pkt: P,
}

struct Flying<P> {
    at: u64,
    pkt: P,
}

/// One direction of one path.
pub(crate) struct Link<P> {
    plan: Plan,
    /// Parameters as scheduled, before variation.
    base: Params,
    /// Parameters in force.
    cur: Params,
    blackhole: bool,
    start: Option<u64>,
    next_change: usize,
    next_vary: u64,
    rng: Rng,
    vary_rng: Rng,
    gilbert_bad: bool,
    queue: VecDeque<Queued<P>>,
    queue_bytes: u64,
    /// When the first packet of the queue began to be sent, and when it will be sent.
    head_start: f64,
    head_finish: f64,
    /// Sorted by due time.
    flight: VecDeque<Flying<P>>,
    /// The latest due time of a packet that keeps the order.
    last_at: u64,
    /// Counters so far.
    pub(crate) stats: Stats,
}

impl<P: Packet> Link<P> {
    /// A link without packets, whose schedule did not start.
    pub(crate) fn new(plan: Plan) -> Self {
        Link {
            base: plan.base.clone(),
            cur: plan.base.clone(),
            blackhole: false,
            start: None,
            next_change: 0,
            next_vary: 0,
            rng: Rng::new(plan.seed, plan.stream),
            vary_rng: Rng::new(plan.seed, plan.vary_stream),
            gilbert_bad: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            head_start: 0.0,
            head_finish: 0.0,
            flight: VecDeque::new(),
            last_at: 0,
            stats: Stats::default(),
            plan,
        }
    }

    /// Starts the schedule and the interval statistics at `t0`.
    pub(crate) fn start(&mut self, t0: u64) {
        if self.start.is_none() {
            self.start = Some(t0);
        }
    }

    fn count(&mut self, t: u64, f: impl Fn(&mut Interval)) {
        f(&mut self.stats.total);
        if let Some(t0) = self.start
            && t >= t0
        {
            let i = ((t - t0) / self.plan.interval) as usize;
            if self.stats.intervals.len() <= i {
                self.stats.intervals.resize(i + 1, Interval::default());
            }
            f(&mut self.stats.intervals[i]);
        }
    }

    /// A packet arrives. The caller gets a dropped packet back, for its buffer.
    pub(crate) fn enqueue(&mut self, now: u64, mut pkt: P) -> Option<P> {
        self.advance(now);
        let len = pkt.len() as u64;
        self.count(now, |c| {
            c.in_packets += 1;
            c.in_bytes += len;
        });
        if self.blackhole {
            self.count(now, |c| c.dropped_blackhole += 1);
            return Some(pkt);
        }
        let bytes = self.queue_bytes + len;
        let packets = self.queue.len() + 1;
        if !self.queue.is_empty() && self.cur.queue.exceeded(bytes, packets, self.cur.rate) {
            self.count(now, |c| c.dropped_queue += 1);
            return Some(pkt);
        }
        if self.cur.ecn.exceeded(bytes, packets, self.cur.rate) && pkt.mark_ce() {
            self.count(now, |c| c.ce_marked += 1);
        }
        if self.queue.is_empty() {
            self.head_start = now as f64;
            self.head_finish = self.head_start + self.serial(len);
        }
        self.queue_bytes = bytes;
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(bytes);
        self.queue.push_back(Queued { arrival: now, pkt });
        None
    }

    fn serial(&self, len: u64) -> f64 {
        len as f64 * 8.0 * NS / self.cur.rate
    }

    /// Brings the queue and the schedule to `now`. Dropped packets go to `free`.
    pub(crate) fn advance_with(&mut self, now: u64, free: &mut impl FnMut(P)) {
        loop {
            let te = self.next_schedule();
            self.transmit(now.min(te), free);
            if te > now {
                break;
            }
            self.change(te);
        }
    }

    fn advance(&mut self, now: u64) {
        self.advance_with(now, &mut |_| ());
    }

    fn next_schedule(&self) -> u64 {
        let Some(t0) = self.start else {
            return u64::MAX;
        };
        let mut t = u64::MAX;
        if let Some((at, _)) = self.plan.changes.get(self.next_change) {
            t = t0 + at;
        }
        if let Some(v) = self.plan.vary {
            t = t.min(t0 + self.next_vary * v.every);
        }
        t
    }

    fn change(&mut self, t: u64) {
        let t0 = self.start.unwrap_or(0);
        let mut owed = None;
        if let Some(v) = self.plan.vary
            && t0 + self.next_vary * v.every == t
        {
            self.next_vary += 1;
            let d = [
                self.vary_rng.sym(),
                self.vary_rng.sym(),
                self.vary_rng.sym(),
            ];
            owed = Some((v, d));
        }
        while let Some((at, c)) = self.plan.changes.get(self.next_change) {
            if t0 + at > t {
                break;
            }
            match c {
                Change::Set(p) => {
                    self.base = p.clone();
                    let p = p.clone();
                    self.set(t, p);
                }
                Change::Blackhole(b) => self.blackhole = *b,
            }
            self.next_change += 1;
        }
        if let Some((v, d)) = owed {
            let mut p = self.base.clone();
            p.rate *= 1.0 + v.rate * d[0];
            p.owd *= 1.0 + v.owd * d[1];
            p.loss = (p.loss + v.loss * d[2]).clamp(0.0, 1.0);
            self.set(t, p);
        }
    }

    fn set(&mut self, t: u64, p: Params) {
        if !self.queue.is_empty() && p.rate != self.cur.rate {
            // The rest of the packet being sent continues at the new rate.
            let t = t as f64;
            let bits = (self.head_finish - t).max(0.0) * self.cur.rate / NS;
            let bits = if bits.is_finite() { bits } else { 0.0 };
            self.head_finish = t + bits * NS / p.rate;
        }
        self.cur = p;
    }

    fn transmit(&mut self, until: u64, free: &mut impl FnMut(P)) {
        while !self.queue.is_empty() && self.head_finish <= until as f64 {
            let Some(q) = self.queue.pop_front() else {
                break;
            };
            let (started, finish) = (self.head_start, self.head_finish);
            self.queue_bytes -= q.pkt.len() as u64;
            if let Some(next) = self.queue.front() {
                let len = next.pkt.len() as u64;
                self.head_start = finish;
                self.head_finish = finish + self.serial(len);
            }
            let wait = started - q.arrival as f64;
            self.count(finish as u64, |c| {
                c.departed += 1;
                c.queue_delay_sum += wait;
                c.queue_delay_max = c.queue_delay_max.max(wait);
            });
            self.depart(finish, q.pkt, free);
        }
    }

    fn depart(&mut self, t: f64, pkt: P, free: &mut impl FnMut(P)) {
        if self.blackhole {
            self.count(t as u64, |c| c.dropped_blackhole += 1);
            return free(pkt);
        }
        let mut lost = self.rng.chance(self.cur.loss);
        if let Some(g) = self.cur.gilbert {
            let flip = if self.gilbert_bad {
                g.p_bad_good
            } else {
                g.p_good_bad
            };
            self.gilbert_bad ^= self.rng.chance(flip);
            lost |= self.rng.chance(if self.gilbert_bad {
                g.loss_bad
            } else {
                g.loss_good
            });
        }
        if lost {
            self.count(t as u64, |c| c.dropped_loss += 1);
            return free(pkt);
        }
        let mut delay = self.cur.owd;
        if self.cur.jitter > 0.0 {
            let x = if self.cur.jitter_normal {
                self.rng.normal()
            } else {
                self.rng.sym()
            };
            delay = (delay + x * self.cur.jitter).max(0.0);
        }
        if self.rng.chance(self.cur.duplicate) {
            self.stats.duplicated += 1;
            let copy = pkt.duplicate();
            self.fly((t + delay) as u64, copy, false);
        }
        if self.rng.chance(self.cur.reorder) {
            self.stats.reordered += 1;
            self.fly((t + delay + self.cur.reorder_extra) as u64, pkt, true);
        } else {
            let free_order = self.cur.allow_reorder;
            self.fly((t + delay) as u64, pkt, free_order);
        }
    }

    fn fly(&mut self, mut at: u64, pkt: P, out_of_order: bool) {
        if !out_of_order {
            at = at.max(self.last_at);
            self.last_at = at;
        }
        let mut i = self.flight.len();
        while i > 0 && self.flight[i - 1].at > at {
            i -= 1;
        }
        if i == self.flight.len() {
            self.flight.push_back(Flying { at, pkt });
        } else {
            self.flight.insert(i, Flying { at, pkt });
        }
    }

    /// The next packet that is due at `now` or was due before, with its due time. To be called
    /// after `advance_with(now)`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<(u64, P)> {
        if self.flight.front()?.at > now {
            return None;
        }
        let f = self.flight.pop_front()?;
        Some((f.at, f.pkt))
    }

    /// Counts a packet that was delivered at `at`.
    pub(crate) fn delivered(&mut self, at: u64, len: usize) {
        self.count(at, |c| {
            c.delivered_packets += 1;
            c.delivered_bytes += len as u64;
        });
    }

    /// The earliest time at which a packet may be due or the schedule has a change; the largest
    /// number if neither will happen.
    pub(crate) fn next_wake(&self) -> u64 {
        let mut t = self.flight.front().map_or(u64::MAX, |f| f.at);
        if !self.queue.is_empty() {
            let jitter = if self.cur.jitter_normal {
                self.cur.owd
            } else {
                self.cur.jitter
            };
            let lower = self.head_finish + (self.cur.owd - jitter).max(0.0);
            let mut lower = lower.min(u64::MAX as f64) as u64;
            if !self.cur.allow_reorder {
                lower = lower.max(self.last_at);
            }
            t = t.min(lower);
        }
        t.min(self.next_schedule())
    }

    /// Packets in the queue, and packets in flight.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        (self.queue.len(), self.flight.len())
    }
}
