//! Finds out whether a loss-based flow shares the bottleneck, and how much to have in flight beside
//! one.
//!
//! BBR takes two to four times the bandwidth of NewReno where the queue holds about one round trip:
//! each BBR probe overflows the queue, the NewReno flow halves its window, and the next probe comes
//! before that window has grown again. If we always answered losses as NewReno does, a BBR flow
//! would take nearly everything instead. So the reaction depends on the kind of flow. The queue
//! shows the kind while we hold back our own probes:
//!
//! - No other flow: once we have no more in flight than our own rate needs, the queue drains.
//! - No queue at all, but jitter or a longer route: the RTT does not change.
//! - A flow that probes, such as BBR, lengthens the queue by a tenth of a round trip within two
//!   round trips, every two to three seconds.
//! - A flow that only answers losses lengthens the queue by about one packet per round trip.
//!
//! When a queue stands, an inspection first removes our own packets from it. Another flow is there
//! if the queue then shortens without draining, or if it drains and comes back while we only
//! cruise. In both cases our next probe waits until the queue has shown the kind of the other flow.
//! Losses alone prove nothing, because our own probes overflow queues as well.
//!
//! Beside a flow that probes, we go on as usual. Beside a flow that only answers losses we imitate
//! it: one window for all paths of the bottleneck grows by a part of a datagram per round trip and
//! shrinks when the queue overflows. The queue is inspected again from time to time. As in Copa
//! (Arun and Balakrishnan, NSDI 2018), a queue that drains shows that the loss-based flow has gone.
//!
//! All of this requires that the paths of the bottleneck are known. While a path outside the group
//! may share the bottleneck, probes go on to find that out: two separate windows would take two
//! shares.
//!
//! Queues longer than one and a half round trips need none of this: BBR's limit of two
//! bandwidth-delay products leaves a loss-based flow its share.

use std::time::{Duration, Instant};

/// If every RTT of a round trip exceeds the minimum RTT by this factor, a queue is standing.
const STANDING: f64 = 1.15;
/// The queue has drained if the smallest RTT of a round trip is below the minimum RTT times this
/// factor.
const DRAINED: f64 = 1.08;
/// An inspection that shortens the queue by less than this part left it unmoved: the delay is not a
/// queue, or the queue holds hardly any of our packets.
const LEAST_PART: f64 = 0.15;
/// After this many consecutive round trips without a queue, no other flow fills the queue.
const EMPTY_ROUNDS: u64 = 16;
/// If the mean RTT exceeds the minimum RTT by this factor, the queue is deep.
const DEEP: f64 = 2.6;
/// The queue jumps if the mean RTT grows by more than this part of the minimum RTT within two round
/// trips.
const JUMP: f64 = 0.12;
/// A jump also has to exceed the time in which this many of our datagrams are delivered.
const JUMP_DATAGRAMS: f64 = 2.0;
/// How long to hold back a probe while waiting for a jump of the queue. BBR probes every three
/// seconds at most, and the round trips of the other flow may delay a probe a little.
const PATIENCE: Duration = Duration::from_millis(3800);
/// Round trips to hold back a probe while waiting for a jump of the queue. BBR probes after 63
/// round trips at most.
const PATIENT_ROUNDS: u64 = 72;
/// After a probe of another flow, the flow counts as present for this long.
const MEMORY: Duration = Duration::from_secs(10);
/// After this long without a sign of another flow, the group counts as alone
/// ([`Rivals::is_alone`]).
const COMPANY: Duration = Duration::from_secs(60);
/// Round trips after a change of phase whose RTTs prove nothing, because the queue still settles.
const UNSETTLED_ROUNDS: u64 = 6;
/// Growth of the window beside a loss-based flow, in datagrams per round trip.
const INCREASE: f64 = 0.5;
/// Factor by which the window shrinks when the queue overflows; the factor of CUBIC.
const DECREASE: f64 = 0.7;
/// Factor by which [`Window::longest`], as an excess over the minimum RTT, decays in each round
/// trip.
const LONGEST_DECAY: f64 = 0.98;
/// How long a loss-based flow is imitated, at least, before the queue is examined anew.
const TERM: Duration = Duration::from_secs(45);
/// How long a loss-based flow is imitated, at least, in minimum RTTs: several times as long as the
/// window of the other flow takes to grow again.
const TERM_ROUNDS: f64 = 700.0;
/// Minimum RTTs above this limit count as this limit in [`TERM_ROUNDS`], seconds.
const TERM_ROUND_TRIP: f64 = 1.0;
/// With fewer datagrams than this per round trip, the kinds of flows cannot be told apart: every
/// single datagram of another flow makes the queue jump.
const LEAST_DATAGRAMS: f64 = 16.0;
/// Cruising round trips after an inspection from which on a standing queue is due to another flow.
const RETURNED_ROUNDS: u64 = 3;
/// Duration of an inspection, round trips.
const INSPECTION_ROUNDS: u64 = 4;
/// Datagrams that an inspection leaves in flight beyond the need of our own rate, because one
/// acknowledgement covers two packets.
const SPARE_DATAGRAMS: f64 = 2.0;
/// Time without inspections after an inspection that left the queue unmoved.
const REST: Duration = Duration::from_secs(5);
/// Shortest time between two inspections beside a loss-based flow.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(4);
/// Longest time between two inspections beside a loss-based flow.
const LONGEST_INTERVAL: Duration = Duration::from_secs(12);
/// The minimum RTT covers the RTT samples of at least this time, and of at most twice this time.
const FLOOR_MEMORY: Duration = Duration::from_secs(30);

/// Whether active paths outside a group may share the bottleneck of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strangers {
    /// No other path is active.
    None,
    /// The other paths have bottlenecks of their own.
    Separate,
    /// At least one other path may share the bottleneck; probes will show it.
    Open,
}

/// A finished round trip of the path that leads a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Instant,
    /// The path neither probes nor drains, so that only other flows change the queue.
    pub(super) is_cruising: bool,
    /// The application limits the rate of the path.
    pub(super) app_limited: bool,
    /// The active paths of the connection outside the group.
    pub(super) strangers: Strangers,
    /// Bytes in flight on all paths of the group.
    pub(super) in_flight: f64,
    /// Delivery rate of all paths of the group together, bytes per second.
    pub(super) rate: f64,
    pub(super) mtu: f64,
    /// Time since the last probe of the path.
    pub(super) since_probe: Duration,
}

/// The minimum RTT of the last 30 to 60 seconds, in seconds.
#[derive(Debug, Clone, Copy)]
struct Floor {
    shortest: [f64; 2],
    since: Option<Instant>,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            shortest: [f64::INFINITY; 2],
            since: None,
        }
    }
}

impl Floor {
    fn get(&self) -> f64 {
        self.shortest[0].min(self.shortest[1])
    }

    fn add(&mut self, now: Instant, rtt: f64) {
        if now > *self.since.get_or_insert(now) + FLOOR_MEMORY {
            self.shortest = [f64::INFINITY, self.shortest[0]];
            self.since = Some(now);
        }
        self.shortest[0] = self.shortest[0].min(rtt);
    }
}

/// RTTs of the last round trips.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    sum: f64,
    count: f64,
    least: f64,
    /// Mean RTT of the last three round trips, newest first, seconds.
    means: [f64; 3],
    /// Minimum RTT of the last round trip, seconds. Jitter hardly changes it.
    shortest: f64,
    /// Bytes in flight at the end of the last four round trips, newest first.
    in_flight: [f64; 4],
    /// Round trips since the path began to cruise, or since the last inspection.
    rounds: u64,
}

impl Watch {
    fn add(&mut self, rtt: f64) {
        self.least = if self.count == 0.0 {
            rtt
        } else {
            self.least.min(rtt)
        };
        self.sum += rtt;
        self.count += 1.0;
    }

    /// Ends a round trip; false if it had no RTT samples.
    fn end_round(&mut self, round: &Round) -> bool {
        if self.count == 0.0 {
            return false;
        }
        let mean = self.sum / self.count;
        (self.sum, self.count) = (0.0, 0.0);
        self.shortest = self.least;
        self.means = [mean, self.means[0], self.means[1]];
        self.in_flight.rotate_right(1);
        self.in_flight[0] = round.in_flight;
        self.rounds = if round.is_cruising {
            self.rounds + 1
        } else {
            0
        };
        true
    }

    /// Growth of the mean RTT in two round trips for which our own packets are not responsible,
    /// seconds.
    fn growth(&self) -> f64 {
        // The RTT reflects the bytes in flight at the beginning of a round trip.
        let [now, recent, before, earlier] = self.in_flight;
        let own = (now.max(recent) / before.min(earlier).max(1.0) - 1.0).max(0.0);
        self.means[0] - self.means[2] * (1.0 + own)
    }
}

/// A window such as a loss-based flow has, shared by all paths of a group.
#[derive(Debug, Clone, Copy)]
struct Window {
    bytes: f64,
    /// Size of the window when the queue last overflowed, bytes.
    peak: f64,
    cut_at: Instant,
    began: Instant,
    /// Longest recent mean RTT, seconds. It decays towards the minimum RTT.
    longest: f64,
    inspected_at: Instant,
}

/// A few round trips in which the group has no more in flight than its own rate needs.
#[derive(Debug, Clone, Copy)]
struct Inspection {
    /// Bytes that the group may have in flight.
    left: f64,
    /// Round trips that remain.
    rounds: u64,
    /// Mean RTT before the inspection, seconds.
    before: f64,
    /// Smallest mean RTT of a round trip since the inspection began, seconds.
    lowest: f64,
    /// Bytes in flight before the inspection.
    in_flight: f64,
}

/// The result of an inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// The queue drained: it held only our packets.
    Drained,
    /// The queue did not change: the delay is not a queue, or the queue holds hardly any of our
    /// packets.
    Unmoved,
    /// A part of the queue remained: it holds packets of other flows.
    Others,
}

#[derive(Debug, Clone, Copy, Default)]
enum Verdict {
    /// The group knows nothing about other flows.
    #[default]
    Unknown,
    /// There is no other flow. Valid until our next probe, or until the given time.
    Alone(Option<Instant>),
    /// Another flow of unknown kind was seen at this time.
    Somebody(Instant),
    /// Another flow probed. The verdict expires at this time.
    Prober(Instant),
    /// A loss-based flow is there; the group shares a window like that of such a flow.
    LossBased(Window),
}

/// The flows beside a group of paths, as far as the group knows them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rivals {
    floor: Floor,
    watch: Watch,
    verdict: Verdict,
    inspection: Option<Inspection>,
    /// Consecutive round trips without a queue.
    empty_rounds: u64,
    is_patient: bool,
    /// A probe should start now.
    is_probe_due: bool,
    /// When another flow was last seen.
    seen: Option<Instant>,
}

impl Rivals {
    /// Bytes that all paths of the group together may have in flight, beside a loss-based flow or
    /// during an inspection; `None` at other times.
    pub(super) fn bound(&self) -> Option<f64> {
        let window = match &self.verdict {
            Verdict::LossBased(window) => Some(window.bytes),
            _ => None,
        };
        self.inspection
            .map_or(window, |inspection| Some(inspection.left))
    }

    /// True if a queue is standing.
    pub(super) fn has_queue(&self) -> bool {
        self.watch.shortest > STANDING * self.floor.get()
    }

    /// True if the next probe should wait.
    pub(super) fn is_patient(&self) -> bool {
        self.is_patient || self.bound().is_some()
    }

    pub(super) fn is_probe_due(&self) -> bool {
        self.is_probe_due
    }

    /// True if no other flow was seen for [`COMPANY`].
    pub(super) fn is_alone(&self, now: Instant) -> bool {
        self.seen.is_none_or(|seen| now > seen + COMPANY)
    }

    /// The leading path starts a probe.
    pub(super) fn on_probe(&mut self) {
        if matches!(self.verdict, Verdict::Alone(None) | Verdict::Somebody(_)) {
            self.verdict = Verdict::Unknown;
        }
        self.inspection = None;
        self.is_probe_due = false;
        self.is_patient = false;
    }

    /// The members of the group changed: findings about the former group no longer hold.
    pub(super) fn restart(&mut self) {
        self.verdict = Verdict::Unknown;
        self.inspection = None;
        self.is_patient = false;
        self.is_probe_due = false;
    }

    /// Acknowledgements take another return path from now on, so that older RTTs cannot be compared
    /// with new ones.
    pub(super) fn forget_round_trips(&mut self) {
        self.floor = Floor::default();
        self.watch = Watch::default();
    }

    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        let rtt = rtt.as_secs_f64();
        self.floor.add(now, rtt);
        self.watch.add(rtt);
    }

    /// Bytes were acknowledged on a path of the group.
    pub(super) fn on_ack(&mut self, bytes: f64, mtu: f64, app_limited: bool) {
        if let Verdict::LossBased(window) = &mut self.verdict
            && self.inspection.is_none()
            && !app_limited
        {
            window.bytes += INCREASE * mtu * bytes / window.bytes;
        }
    }

    /// A packet that left at `sent_at` was lost on a path of the group. Returns true if the window
    /// shrinks.
    pub(super) fn on_loss(&mut self, now: Instant, sent_at: Instant) -> bool {
        let (floor, recent) = (self.floor.get(), self.watch.means[0]);
        let Verdict::LossBased(window) = &mut self.verdict else {
            return false;
        };
        // A loss while the queue is short has another cause than an overflow.
        let has_queue = recent - floor >= 0.5 * (window.longest - floor);
        if sent_at <= window.cut_at || self.inspection.is_some() || !has_queue {
            return false;
        }
        window.peak = window.bytes;
        window.bytes *= DECREASE;
        window.cut_at = now;
        true
    }

    /// The leading path finished a round trip.
    pub(super) fn on_round(&mut self, round: &Round) {
        if !self.watch.end_round(round) {
            return;
        }
        if round.app_limited {
            self.inspection = None;
            return;
        }
        let is_empty = self.watch.shortest < DRAINED * self.floor.get();
        self.empty_rounds = if is_empty { self.empty_rounds + 1 } else { 0 };
        if let Verdict::Prober(until) | Verdict::Alone(Some(until)) = self.verdict
            && round.now > until
        {
            self.verdict = Verdict::Unknown;
        }
        if self.inspection.is_some() {
            self.continue_inspection(round);
            return;
        }
        let is_settled = round.is_cruising && self.watch.rounds > UNSETTLED_ROUNDS;
        if round.is_cruising && self.has_jumped(round) {
            self.is_probe_due = self.is_patient();
            self.is_patient = false;
            self.seen = Some(round.now);
            self.verdict = Verdict::Prober(round.now + MEMORY);
            return;
        }
        match self.verdict {
            Verdict::Unknown => {
                if is_settled && self.has_queue() && self.may_wait(round) {
                    self.inspect(round);
                }
            }
            // The drained queue came back although we only cruise, so another flow fills it.
            Verdict::Alone(None) if self.has_returned(round) => {
                self.verdict = Verdict::Somebody(round.now);
                self.is_patient = true;
            }
            Verdict::Alone(_) | Verdict::Prober(_) => {}
            Verdict::Somebody(since) => self.consider(round, since),
            Verdict::LossBased(_) => self.review(round),
        }
    }

    /// True if the queue that an inspection drained is standing again.
    fn has_returned(&self, round: &Round) -> bool {
        self.watch.rounds >= RETURNED_ROUNDS && self.has_queue() && self.may_wait(round)
    }

    /// True if the queue jumped in the last two round trips, both of which are settled.
    fn has_jumped(&self, round: &Round) -> bool {
        if self.watch.rounds <= UNSETTLED_ROUNDS + 2 {
            return false;
        }
        let least = JUMP_DATAGRAMS * round.mtu / round.rate.max(1.0);
        self.watch.growth() > least.max(JUMP * self.floor.get())
    }

    /// True if holding back a probe can show the kind of another flow.
    fn may_wait(&self, round: &Round) -> bool {
        let is_clear = round.rate * self.floor.get() > LEAST_DATAGRAMS * round.mtu;
        let is_deep = self.watch.means[0] > DEEP * self.floor.get();
        round.is_cruising && is_clear && !is_deep && round.strangers != Strangers::Open
    }

    /// Starts an inspection: for some round trips the group has only the bytes in flight that its
    /// own rate needs. The rest of the queue then belongs to other flows.
    fn inspect(&mut self, round: &Round) {
        // A single rate sample may be too high, because some acknowledgements come in bursts.
        let mean = self.watch.means[0];
        let rate = round.rate.min(round.in_flight / mean);
        self.inspection = Some(Inspection {
            left: rate * self.floor.get() + SPARE_DATAGRAMS * round.mtu,
            rounds: INSPECTION_ROUNDS,
            before: mean,
            lowest: f64::INFINITY,
            in_flight: round.in_flight,
        });
    }

    fn continue_inspection(&mut self, round: &Round) {
        let Some(inspection) = &mut self.inspection else {
            return;
        };
        inspection.lowest = inspection.lowest.min(self.watch.means[0]);
        inspection.rounds -= 1;
        if inspection.rounds > 0 && round.is_cruising {
            return;
        }
        let queue = inspection.before - self.floor.get();
        let finding = if self.empty_rounds > 0 {
            Finding::Drained
        } else if inspection.before - inspection.lowest < LEAST_PART * queue {
            Finding::Unmoved
        } else {
            Finding::Others
        };
        let inspection = *inspection;
        self.inspection = None;
        // A queue that now grows because we send more again is not due to another flow.
        self.watch.rounds = 0;
        if inspection.rounds == 0 {
            self.conclude(finding, round.now, &inspection);
        }
    }

    fn conclude(&mut self, finding: Finding, now: Instant, inspection: &Inspection) {
        if finding == Finding::Others {
            self.seen = Some(now);
        }
        match (finding, &mut self.verdict) {
            (Finding::Others, Verdict::LossBased(window)) => window.inspected_at = now,
            // No flow probed between the first inspection and the second, so the other flow is
            // loss-based.
            (Finding::Others, Verdict::Somebody(_)) => {
                self.is_patient = false;
                self.verdict = Verdict::LossBased(Window {
                    bytes: inspection.in_flight * DECREASE,
                    peak: inspection.in_flight,
                    cut_at: now,
                    began: now,
                    longest: inspection.before,
                    inspected_at: now,
                });
            }
            (Finding::Others, _) => self.verdict = Verdict::Somebody(now),
            (Finding::Drained, _) => self.leave(Verdict::Alone(None)),
            (Finding::Unmoved, _) => self.leave(Verdict::Alone(Some(now + REST))),
        }
    }

    /// Sets a verdict without a loss-based flow. A probe is due if the group imitated one until
    /// now.
    fn leave(&mut self, verdict: Verdict) {
        self.is_probe_due = matches!(self.verdict, Verdict::LossBased(_));
        self.is_patient = false;
        self.verdict = verdict;
    }

    /// Holds back our probe. After a long enough wait without a probe of the other flow, inspects
    /// the queue again.
    fn consider(&mut self, round: &Round, since: Instant) {
        if self.empty_rounds > EMPTY_ROUNDS {
            self.leave(Verdict::Alone(None));
            return;
        }
        self.is_patient = self.may_wait(round);
        let waited = round
            .since_probe
            .min(round.now.saturating_duration_since(since));
        let is_over = waited > PATIENCE || self.watch.rounds > PATIENT_ROUNDS;
        if self.is_patient && is_over {
            self.inspect(round);
        }
    }

    /// Checks from time to time whether the loss-based flow is still there.
    fn review(&mut self, round: &Round) {
        let floor = self.floor.get();
        let mean = self.watch.means[0];
        let Verdict::LossBased(window) = &mut self.verdict else {
            return;
        };
        let since = round.now.saturating_duration_since(window.inspected_at);
        let is_high = window.bytes > 0.9 * window.peak && since > INSPECTION_INTERVAL;
        // A single long round trip is forgotten soon.
        let decayed = floor + LONGEST_DECAY * (window.longest - floor);
        window.longest = mean.max(decayed);
        let is_doubtful = round.strangers == Strangers::Open;
        let rounds = TERM_ROUNDS * floor.min(TERM_ROUND_TRIP);
        let term = TERM.max(Duration::from_secs_f64(rounds));
        if self.empty_rounds > EMPTY_ROUNDS {
            self.leave(Verdict::Alone(None));
        } else if mean > DEEP * floor || is_doubtful || round.now > window.began + term {
            // Probes also show whether other paths still have bottlenecks of their own.
            self.verdict = match round.strangers {
                Strangers::None => Verdict::Unknown,
                Strangers::Separate | Strangers::Open => Verdict::Prober(round.now + MEMORY),
            };
        } else if round.is_cruising && (is_high || since > LONGEST_INTERVAL) {
            self.inspect(round);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
