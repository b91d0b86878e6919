//! Whether a loss-based flow shares the bottleneck, and how much to have in flight beside one.
//!
//! BBR takes two to four times what NewReno takes where a queue holds about a round trip: each probe
//! overflows the queue, the other flow halves its window, and before it has grown again comes the
//! next probe. Answering losses as NewReno does would give everything away to a BBR flow instead.
//! So the kind of flow has to be known. It shows when we are patient:
//!
//! - Nobody there: when we leave no more in flight than our own rate needs, the queue drains.
//! - No queue at all, but jitter or a longer route: then round trips stay as they are.
//! - A flow that probes, as BBR does, makes the queue jump by a tenth of a round trip within two,
//!   every two to three seconds.
//! - A flow that only answers losses lets the queue grow by about a packet in each round trip.
//!
//! So when a queue stands, we first take from it what is ours. Only if it shortens and does not drain, or
//! drains and is there again although we only cruise, somebody else is there, and a probe waits until
//! one of the latter two has shown itself. Losses alone never tell: our own probes overflow queues as
//! well. Beside a flow that probes, all stays as it is. Beside one that answers losses we do as it does: a window
//! that grows by a part of a datagram per round trip and shrinks when the queue overflows, one for all
//! paths of the bottleneck. Now and then the queue is inspected again; as in Copa (Arun and
//! Balakrishnan, NSDI 2018), one that drains means that there is no such flow any more.
//!
//! All this needs to know which paths share the bottleneck. While a path outside of the group may, it is
//! probed for: two windows of their own would take two shares.
//!
//! In queues of more than one and a half round trips nothing of this is needed: BBR's limit of two
//! bandwidth-delay products leaves a loss-based flow its share.

use std::time::{Duration, Instant};

/// Round trips that are all longer than the shortest by this factor show that a queue stands,
const STANDING: f64 = 1.15;
/// and one that is not longer by this one, that it drained.
const DRAINED: f64 = 1.08;
/// If this part of the queue does not go with what we take from it, it is none, or not ours.
const LEAST_PART: f64 = 0.15;
/// So many round trips in a row without a queue show that nobody fills it.
const EMPTY_ROUNDS: u64 = 16;
/// Beyond this factor, queues are deep.
const DEEP: f64 = 2.6;
/// The queue jumps if round trips grow by this part of the shortest within two of them,
const JUMP: f64 = 0.12;
/// and by more than the time in which so many of our datagrams arrive.
const JUMP_DATAGRAMS: f64 = 2.0;
/// BBR probes after three seconds at most, which a round trip or two may delay,
const PATIENCE: Duration = Duration::from_millis(3800);
/// or after 63 round trips.
const PATIENT_ROUNDS: u64 = 72;
/// How long a flow that probed is taken to be there.
const MEMORY: Duration = Duration::from_secs(10);
/// How long somebody is taken to be there otherwise.
const COMPANY: Duration = Duration::from_secs(60);
/// Round trips after a change of phase that say nothing.
const UNSETTLED_ROUNDS: u64 = 6;
/// Datagrams by which the window grows in a round trip,
const INCREASE: f64 = 0.5;
/// and the factor by which it shrinks when the queue overflows, as CUBIC's.
const DECREASE: f64 = 0.7;
/// What a round trip leaves of the longest queue.
const LONGEST_DECAY: f64 = 0.98;
/// How long a verdict stands before the queue is watched anew,
const TERM: Duration = Duration::from_secs(45);
/// or so many of the shortest round trips: some times what the other flow takes to grow anew.
const TERM_ROUNDS: f64 = 700.0;
/// The longest round trip that counts there, seconds.
const TERM_ROUND_TRIP: f64 = 1.0;
/// With fewer datagrams in a round trip, flows cannot be told apart: each of theirs is a jump.
const LEAST_DATAGRAMS: f64 = 16.0;
/// Round trips after an inspection in which the queue does not return if it was ours.
const RETURNED_ROUNDS: u64 = 3;
/// Round trips of an inspection,
const INSPECTION_ROUNDS: u64 = 4;
/// and datagrams in flight beyond what our rate needs, since acknowledgements come in pairs.
const SPARE_DATAGRAMS: f64 = 2.0;
/// After one that did not change the queue there is none for this long.
const REST: Duration = Duration::from_secs(5);
/// The shortest time between two inspections,
const INSPECTION_INTERVAL: Duration = Duration::from_secs(4);
/// and the longest.
const LONGEST_INTERVAL: Duration = Duration::from_secs(12);
/// How long the shortest round trip is remembered, at least; twice as long at most.
const FLOOR_MEMORY: Duration = Duration::from_secs(30);

/// What other paths of the connection are to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strangers {
    /// There are none.
    None,
    /// They have bottlenecks of their own.
    Separate,
    /// One may share the bottleneck; probes will tell.
    Open,
}

/// A round trip of the path that leads a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Instant,
    /// The path keeps its rate: nothing but other flows changes the queue.
    pub(super) is_cruising: bool,
    /// The application limits the path.
    pub(super) app_limited: bool,
    /// Paths of the connection that are not of the group.
    pub(super) strangers: Strangers,
    /// In flight on all paths of the group, bytes.
    pub(super) in_flight: f64,
    /// The delivery rate of all paths of the group, bytes per second.
    pub(super) rate: f64,
    pub(super) mtu: f64,
    /// Time since the last probe.
    pub(super) since_probe: Duration,
}

/// The shortest round trip of the last half to whole minute, seconds.
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

/// The round trips of the last rounds.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    sum: f64,
    count: f64,
    least: f64,
    /// Means, newest first, seconds.
    means: [f64; 3],
    /// The shortest of the last round, seconds: jitter hardly moves it.
    shortest: f64,
    /// What was in flight at their ends.
    in_flight: [f64; 4],
    /// Round trips since the path began to cruise, or was inspected.
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

    /// Ends a round trip; false if there were no samples.
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

    /// By how much others lengthened the queue in two round trips, seconds.
    fn growth(&self) -> f64 {
        // A round trip shows what was in flight at its beginning.
        let [now, recent, before, earlier] = self.in_flight;
        let own = (now.max(recent) / before.min(earlier).max(1.0) - 1.0).max(0.0);
        self.means[0] - self.means[2] * (1.0 + own)
    }
}

/// A loss-based flow's window, for all paths of a group.
#[derive(Debug, Clone, Copy)]
struct Window {
    bytes: f64,
    /// Where the queue last overflowed.
    peak: f64,
    cut_at: Instant,
    began: Instant,
    /// The longest of the last round trips, seconds.
    longest: f64,
    inspected_at: Instant,
}

/// A few round trips with no more in flight than our own rate needs.
#[derive(Debug, Clone, Copy)]
struct Inspection {
    /// Bytes in flight.
    left: f64,
    /// Round trips that remain.
    rounds: u64,
    /// The mean round trip before, and the shortest mean since, seconds.
    before: f64,
    lowest: f64,
    /// In flight before, bytes.
    in_flight: f64,
}

/// What an inspection found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// The queue was ours alone.
    Drained,
    /// It did not change: it is no queue, or hardly ours.
    Unmoved,
    /// A part of it remained.
    Others,
}

#[derive(Debug, Clone, Copy, Default)]
enum Verdict {
    #[default]
    Unknown,
    /// Nobody else is there; until the next probe, or until this time.
    Alone(Option<Instant>),
    /// Somebody else is there, seen at this time; which kind is not known yet.
    Somebody(Instant),
    /// A flow probed; forgotten then.
    Prober(Instant),
    LossBased(Window),
}

/// What a group of paths knows of the flows beside it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rivals {
    floor: Floor,
    watch: Watch,
    verdict: Verdict,
    inspection: Option<Inspection>,
    /// Round trips in a row without a queue.
    empty_rounds: u64,
    is_patient: bool,
    /// A probe is due now.
    is_probe_due: bool,
    /// When somebody else was seen last.
    seen: Option<Instant>,
}

impl Rivals {
    /// The bytes that all paths of the group may have in flight, beside a loss-based flow or for an
    /// inspection.
    pub(super) fn bound(&self) -> Option<f64> {
        let window = match &self.verdict {
            Verdict::LossBased(window) => Some(window.bytes),
            _ => None,
        };
        self.inspection
            .map_or(window, |inspection| Some(inspection.left))
    }

    /// A queue stands.
    pub(super) fn has_queue(&self) -> bool {
        self.watch.shortest > STANDING * self.floor.get()
    }

    /// A probe should wait.
    pub(super) fn is_patient(&self) -> bool {
        self.is_patient || self.bound().is_some()
    }

    pub(super) fn is_probe_due(&self) -> bool {
        self.is_probe_due
    }

    /// For a while nobody else was seen.
    pub(super) fn is_alone(&self, now: Instant) -> bool {
        self.seen.is_none_or(|seen| now > seen + COMPANY)
    }

    /// The path probes.
    pub(super) fn on_probe(&mut self) {
        if matches!(self.verdict, Verdict::Alone(None) | Verdict::Somebody(_)) {
            self.verdict = Verdict::Unknown;
        }
        self.inspection = None;
        self.is_probe_due = false;
        self.is_patient = false;
    }

    /// The group changed: what is known is of another one.
    pub(super) fn restart(&mut self) {
        self.verdict = Verdict::Unknown;
        self.inspection = None;
        self.is_patient = false;
        self.is_probe_due = false;
    }

    /// Round trips are measured over another way back from now on.
    pub(super) fn forget_round_trips(&mut self) {
        self.floor = Floor::default();
        self.watch = Watch::default();
    }

    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        let rtt = rtt.as_secs_f64();
        self.floor.add(now, rtt);
        self.watch.add(rtt);
    }

    /// Bytes were acknowledged on any path of the group.
    pub(super) fn on_ack(&mut self, bytes: f64, mtu: f64, app_limited: bool) {
        if let Verdict::LossBased(window) = &mut self.verdict
            && self.inspection.is_none()
            && !app_limited
        {
            window.bytes += INCREASE * mtu * bytes / window.bytes;
        }
    }

    /// A packet that left at `sent_at` was lost on any path of the group; true if the window shrinks.
    pub(super) fn on_loss(&mut self, now: Instant, sent_at: Instant) -> bool {
        let (floor, recent) = (self.floor.get(), self.watch.means[0]);
        let Verdict::LossBased(window) = &mut self.verdict else {
            return false;
        };
        // Losses without a queue have other causes.
        let has_queue = recent - floor >= 0.5 * (window.longest - floor);
        if sent_at <= window.cut_at || self.inspection.is_some() || !has_queue {
            return false;
        }
        window.peak = window.bytes;
        window.bytes *= DECREASE;
        window.cut_at = now;
        true
    }

    /// The leading path ended a round trip.
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
            // What drained is there again, though we only cruise: we were not alone in it.
            Verdict::Alone(None) if self.has_returned(round) => {
                self.verdict = Verdict::Somebody(round.now);
                self.is_patient = true;
            }
            Verdict::Alone(_) | Verdict::Prober(_) => {}
            Verdict::Somebody(since) => self.consider(round, since),
            Verdict::LossBased(_) => self.review(round),
        }
    }

    /// The queue that an inspection drained stands again.
    fn has_returned(&self, round: &Round) -> bool {
        self.watch.rounds >= RETURNED_ROUNDS && self.has_queue() && self.may_wait(round)
    }

    /// A jump takes two round trips, both of which have to say something.
    fn has_jumped(&self, round: &Round) -> bool {
        if self.watch.rounds <= UNSETTLED_ROUNDS + 2 {
            return false;
        }
        let least = JUMP_DATAGRAMS * round.mtu / round.rate.max(1.0);
        self.watch.growth() > least.max(JUMP * self.floor.get())
    }

    /// True where patience may tell something.
    fn may_wait(&self, round: &Round) -> bool {
        let is_clear = round.rate * self.floor.get() > LEAST_DATAGRAMS * round.mtu;
        let is_deep = self.watch.means[0] > DEEP * self.floor.get();
        round.is_cruising && is_clear && !is_deep && round.strangers != Strangers::Open
    }

    /// Leaves only what our own rate needs in flight for some round trips. What then is left of the
    /// queue is of others.
    fn inspect(&mut self, round: &Round) {
        // A single rate may be too high: some acknowledgements come in bursts.
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
        // What we send more now is no sign of others.
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
            // Nobody probed between the first inspection and the second.
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

    /// There is no loss-based flow, or none any more.
    fn leave(&mut self, verdict: Verdict) {
        self.is_probe_due = matches!(self.verdict, Verdict::LossBased(_));
        self.is_patient = false;
        self.verdict = verdict;
    }

    /// Waits, and looks once more when nobody probed for long enough.
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

    /// Looks from time to time whether the loss-based flow is still there.
    fn review(&mut self, round: &Round) {
        let floor = self.floor.get();
        let mean = self.watch.means[0];
        let Verdict::LossBased(window) = &mut self.verdict else {
            return;
        };
        let since = round.now.saturating_duration_since(window.inspected_at);
        let is_high = window.bytes > 0.9 * window.peak && since > INSPECTION_INTERVAL;
        // A single long round trip is soon forgotten.
        let decayed = floor + LONGEST_DECAY * (window.longest - floor);
        window.longest = mean.max(decayed);
        let is_doubtful = round.strangers == Strangers::Open;
        let rounds = TERM_ROUNDS * floor.min(TERM_ROUND_TRIP);
        let term = TERM.max(Duration::from_secs_f64(rounds));
        if self.empty_rounds > EMPTY_ROUNDS {
            self.leave(Verdict::Alone(None));
        } else if mean > DEEP * floor || is_doubtful || round.now > window.began + term {
            // Probes also tell whether other paths still have bottlenecks of their own.
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
