//! [`LinkConfig`]: the effect of a link on packets, now and later.

use std::sync::Arc;
use std::time::Duration;

/// Parameters of one direction of a path. Probabilities are shares from 0 to 1.
///
/// ```
/// use mpquic_sim::LinkConfig;
/// use std::time::Duration;
/// let lte = LinkConfig::new(20.0, Duration::from_millis(30)).loss(0.001);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Rate in bit/s of IP packets; with `None`, serialisation takes no time.
    pub rate: Option<f64>,
    /// Propagation delay.
    pub delay: Duration,
    /// Random part of the delay.
    pub jitter: Jitter,
    /// Whether jitter and shrinking delays may change the order of packets.
    pub jitter_reorders: bool,
    /// Random loss. The loss comes after serialisation, so a lost packet has used its share of the
    /// rate.
    pub loss: Loss,
    /// Share of packets that are delivered twice.
    pub duplicate: f64,
    /// Share of packets that arrive `reorder_delay` late, behind packets sent later.
    pub reorder: f64,
    /// Additional delay of reordered packets.
    pub reorder_delay: Duration,
    /// Share of packets in which one bit of the payload is flipped. In the real world, UDP's
    /// checksum drops nearly all such packets; an endpoint must survive the rest.
    pub corrupt: f64,
    /// Limit of the queue. Defaults with `None`:
    ///
    /// - without active management, one round trip (twice the delay) or 50 ms of the rate,
    ///   whichever is larger
    /// - with active management, 1000 packets
    /// - with [`Discipline::FqCoDel`], 10240 packets for all flows together
    /// - with [`Discipline::DualPi2`], 250 ms of the rate
    pub queue: Option<Backlog>,
    /// The order in which packets leave the queue, and which packets are dropped before the queue
    /// is full.
    pub discipline: Discipline,
    /// Backlog above which ECN-capable packets are marked CE; `None` never marks.
    pub ecn: Option<Backlog>,
    /// Larger IP packets are dropped.
    pub mtu: usize,
    /// True if the link drops every packet.
    pub outage: bool,
    /// Later changes, by time since the link was made.
    pub schedule: Vec<(Duration, Change)>,
    /// Recorded rates, which replace `rate`.
    pub trace: Option<RateTrace>,
    /// Regular random variation around the values in force.
    pub variation: Option<Variation>,
}

impl LinkConfig {
    /// A loss-free link with a rate in Mbit/s (infinite for no limit) and a delay.
    pub fn new(rate_mbit: f64, delay: Duration) -> Self {
        Self {
            rate: rate_mbit.is_finite().then_some(rate_mbit * 1e6),
            delay,
            jitter: Jitter::None,
            jitter_reorders: false,
            loss: Loss::None,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(5),
            corrupt: 0.0,
            queue: None,
            discipline: Discipline::default(),
            ecn: None,
            mtu: 1500,
            outage: false,
            schedule: Vec::new(),
            trace: None,
            variation: None,
        }
    }

    /// Loses each packet with this probability, independently.
    #[must_use]
    pub fn loss(mut self, probability: f64) -> Self {
        self.loss = Loss::bernoulli(probability);
        self
    }

    /// Loses packets in bursts: `mean` is the share of lost packets, `burst` the mean length of a
    /// burst.
    #[must_use]
    pub fn burst_loss(mut self, mean: f64, burst: f64) -> Self {
        self.loss = Loss::gilbert(mean, burst);
        self
    }

    /// Adds a uniform jitter of plus or minus `jitter`, keeping order.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = Jitter::Uniform(jitter);
        self
    }

    /// Adds a normally distributed jitter of this standard deviation, keeping order.
    #[must_use]
    pub fn normal_jitter(mut self, deviation: Duration) -> Self {
        self.jitter = Jitter::Normal(deviation);
        self
    }

    /// Delivers this share of packets twice.
    #[must_use]
    pub fn duplicate(mut self, probability: f64) -> Self {
        self.duplicate = probability;
        self
    }

    /// Delays this share of packets by `delay`, so that later packets overtake the delayed packets.
    #[must_use]
    pub fn reorder(mut self, probability: f64, delay: Duration) -> Self {
        self.reorder = probability;
        self.reorder_delay = delay;
        self
    }

    /// Flips a bit in this share of packets.
    #[must_use]
    pub fn corrupt(mut self, probability: f64) -> Self {
        self.corrupt = probability;
        self
    }

    /// Sets the queue limit.
    #[must_use]
    pub fn queue(mut self, limit: Backlog) -> Self {
        self.queue = Some(limit);
        self
    }

    /// Sets the discipline of the queue.
    #[must_use]
    pub fn discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }

    /// Marks packets CE above this backlog.
    #[must_use]
    pub fn ecn(mut self, threshold: Backlog) -> Self {
        self.ecn = Some(threshold);
        self
    }

    /// Drops IP packets larger than `mtu` bytes.
    #[must_use]
    pub fn mtu(mut self, mtu: usize) -> Self {
        self.mtu = mtu;
        self
    }

    /// Adds a change at a time since the link was made.
    #[must_use]
    pub fn at(mut self, time: Duration, change: Change) -> Self {
        self.schedule.push((time, change));
        self
    }

    /// Makes the link a black hole between two times.
    #[must_use]
    pub fn outage(self, from: Duration, to: Duration) -> Self {
        self.at(from, Change::Outage(true))
            .at(to, Change::Outage(false))
    }

    /// Uses the rates of a trace, one after the other, instead of a constant rate.
    #[must_use]
    pub fn trace(mut self, trace: RateTrace) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Varies rate, delay and loss regularly.
    #[must_use]
    pub fn vary(mut self, variation: Variation) -> Self {
        self.variation = Some(variation);
        self
    }

    /// The queue limit in force.
    pub(super) fn queue_limit(&self) -> Backlog {
        self.queue.unwrap_or_else(|| match self.discipline {
            Discipline::Fifo => Backlog::time((self.delay * 2).max(Duration::from_millis(50))),
            // The default of Linux.
            Discipline::CoDel | Discipline::Pie => Backlog::packets(1000),
            Discipline::FqCoDel => Backlog::packets(10_240),
            // RFC 9332 appendix A.1.
            Discipline::DualPi2 => Backlog::time(Duration::from_millis(250)),
        })
    }

    /// The shortest time from serialisation to delivery.
    pub(super) fn min_delay(&self) -> Duration {
        match self.jitter {
            Jitter::None => self.delay,
            Jitter::Uniform(jitter) => self.delay.saturating_sub(jitter),
            Jitter::Normal(_) => Duration::ZERO,
        }
    }

    /// Serialisation time of a packet.
    pub(super) fn serialisation(&self, bytes: usize) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| {
            Duration::from_nanos((bytes as f64 * 8e9 / rate) as u64)
        })
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        match *change {
            Change::Rate(mbit) => self.rate = mbit.is_finite().then_some(mbit * 1e6),
            Change::Delay(delay) => self.delay = delay,
            Change::Jitter(jitter) => self.jitter = jitter,
            Change::Loss(loss) => self.loss = loss,
            Change::Duplicate(share) => self.duplicate = share,
            Change::Reorder(share, delay) => {
                self.reorder = share;
                self.reorder_delay = delay;
            }
            Change::Corrupt(share) => self.corrupt = share,
            Change::Queue(limit) => self.queue = Some(limit),
            Change::Ecn(threshold) => self.ecn = threshold,
            Change::Mtu(mtu) => self.mtu = mtu,
            Change::Outage(outage) => self.outage = outage,
        }
    }
}

/// The order in which packets leave a queue, and which packets are dropped before the queue is
/// full. ECN-capable packets are marked instead of dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Discipline {
    /// In order of arrival; a full queue drops arriving packets.
    #[default]
    Fifo,
    /// In order of arrival with controlled delay: drops packets after 100 ms in which all packets
    /// waited more than 5 ms (RFC 8289).
    CoDel,
    /// Each flow in turn and with controlled delay, new flows first. A full queue drops packets of
    /// the flow with most bytes in it (RFC 8290).
    FqCoDel,
    /// In order of arrival. Drops arriving packets with a probability that follows the delay, and
    /// so keeps the delay at about 15 ms (RFC 8033).
    Pie,
    /// Two queues (RFC 9332). Packets with ECT(1) or CE leave first, with a mark after a wait of
    /// about 1 ms. All other packets get at least a tenth of the rate, and drops keep their wait at
    /// about 15 ms. Marks of the first queue follow drops of the second. mpquic's own packets are
    /// ECT(0).
    DualPi2,
}

/// The random part of a delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// None.
    None,
    /// Uniform within plus or minus this value.
    Uniform(Duration),
    /// Normal with this standard deviation; the delay never becomes negative.
    Normal(Duration),
}

/// Random loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// None.
    None,
    /// Each packet independently.
    Bernoulli(f64),
    /// The Gilbert-Elliott model: a good and a bad state, one step per packet.
    GilbertElliott {
        /// Probability of changing to the bad state.
        to_bad: f64,
        /// Probability of changing to the good state.
        to_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Independent loss with this probability.
    pub fn bernoulli(probability: f64) -> Self {
        if probability > 0.0 {
            Self::Bernoulli(probability)
        } else {
            Self::None
        }
    }

    /// All packets are lost in the bad state, none in the good state. `burst` is the mean length of
    /// a burst in packets (at least 1), `mean` the share of lost packets (below 1).
    pub fn gilbert(mean: f64, burst: f64) -> Self {
        let to_good = 1.0 / burst.max(1.0);
        Self::GilbertElliott {
            to_bad: (to_good * mean / (1.0 - mean)).min(1.0),
            to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

/// A limit of a queue, including the packet on the wire. A packet beyond any of the three limits is
/// over the limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backlog {
    /// Bytes of IP packets.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<usize>,
    /// Serialisation time of all bytes at the rate in force.
    pub time: Option<Duration>,
}

impl Backlog {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        bytes: None,
        packets: None,
        time: None,
    };

    /// Limits the bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self {
            bytes: Some(bytes),
            ..Self::UNLIMITED
        }
    }

    /// Limits the packets.
    pub const fn packets(packets: usize) -> Self {
        Self {
            packets: Some(packets),
            ..Self::UNLIMITED
        }
    }

    /// Limits the queueing time.
    pub const fn time(time: Duration) -> Self {
        Self {
            time: Some(time),
            ..Self::UNLIMITED
        }
    }

    pub(super) fn is_exceeded(&self, bytes: u64, packets: usize, rate: Option<f64>) -> bool {
        let too_long = |limit: Duration| {
            rate.is_some_and(|rate| bytes as f64 * 8.0 > limit.as_secs_f64() * rate)
        };
        self.bytes.is_some_and(|limit| bytes > limit)
            || self.packets.is_some_and(|limit| packets > limit)
            || self.time.is_some_and(too_long)
    }
}

/// A change of a link's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The rate in Mbit/s; infinite for no limit. The packet being sent continues at the new rate.
    Rate(f64),
    /// The propagation delay, for packets before their serialisation.
    Delay(Duration),
    /// The jitter.
    Jitter(Jitter),
    /// The loss.
    Loss(Loss),
    /// The share of duplicates.
    Duplicate(f64),
    /// The share of reordered packets, and their additional delay.
    Reorder(f64, Duration),
    /// The share of corrupted packets.
    Corrupt(f64),
    /// The queue limit.
    Queue(Backlog),
    /// The CE threshold.
    Ecn(Option<Backlog>),
    /// The MTU, in bytes of IP packets.
    Mtu(usize),
    /// Whether the link drops every packet.
    Outage(bool),
}

/// Rates at equal intervals. After the last rate, the first one follows again.
#[derive(Debug, Clone, PartialEq)]
pub struct RateTrace {
    /// How long each rate is in force.
    pub every: Duration,
    /// The rates in Mbit/s, above zero.
    pub mbit: Arc<[f64]>,
}

/// Regular variation, uniform around the values in force (as in the ns-3 experiments).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variation {
    /// How often new values are drawn.
    pub every: Duration,
    /// Range of the rate: plus or minus this share.
    pub rate: f64,
    /// Range of the delay: plus or minus this share.
    pub delay: f64,
    /// Range of the probability of an additional, independent loss: plus or minus this value, drawn
    /// around zero. Without a Bernoulli loss that could be lowered, negative draws count as zero.
    pub loss: f64,
    /// Seed of the draws: links with equal seeds vary alike.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_discipline_has_a_default_limit() {
        let limit = |discipline, delay| {
            let config = LinkConfig::new(8.0, delay).discipline(discipline);
            config.queue_limit()
        };
        for (discipline, expected) in [
            (Discipline::Fifo, Backlog::time(50 * MS)),
            (Discipline::CoDel, Backlog::packets(1000)),
            (Discipline::Pie, Backlog::packets(1000)),
            (Discipline::FqCoDel, Backlog::packets(10_240)),
            (Discipline::DualPi2, Backlog::time(250 * MS)),
        ] {
            assert_eq!(limit(discipline, 25 * MS), expected);
        }
        assert_eq!(limit(Discipline::Fifo, 26 * MS), Backlog::time(52 * MS));
        let own = LinkConfig::new(8.0, MS).queue(Backlog::packets(3));
        assert_eq!(own.queue_limit(), Backlog::packets(3));
    }

    #[test]
    fn backlog_at_its_limit_is_not_exceeded() {
        let exceeded =
            |limit: Backlog, bytes, packets| limit.is_exceeded(bytes, packets, Some(8e6));
        let limits = [
            Backlog::bytes(1000),
            Backlog::packets(4),
            // At 8 Mbit/s.
            Backlog::time(MS),
        ];
        for limit in limits {
            assert!(!exceeded(limit, 1000, 4), "{limit:?}");
            assert!(exceeded(limit, 1001, 5), "{limit:?}");
        }
        assert!(!exceeded(Backlog::UNLIMITED, u64::MAX, usize::MAX));
        assert!(
            !Backlog::time(MS).is_exceeded(u64::MAX, 9, None),
            "no time at all"
        );
    }

    #[test]
    fn losses_have_their_probabilities() {
        assert_eq!(Loss::bernoulli(0.0), Loss::None);
        assert_eq!(Loss::bernoulli(0.1), Loss::Bernoulli(0.1));
        let of = |mean, burst| match Loss::gilbert(mean, burst) {
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => (to_bad, to_good, loss_good, loss_bad),
            other => panic!("{other:?}"),
        };
        // A fifth of the time in the bad state, which lasts for four packets.
        assert_eq!(of(0.2, 4.0), (0.0625, 0.25, 0.0, 1.0));
        assert_eq!(of(0.2, 0.5), (0.25, 1.0, 0.0, 1.0), "one at least");
        assert_eq!(of(0.9, 1.0), (1.0, 1.0, 0.0, 1.0), "never above one");
    }

    #[test]
    fn the_shortest_delay_and_the_time_of_a_packet() {
        let plain = LinkConfig::new(8.0, 10 * MS);
        assert_eq!(plain.min_delay(), 10 * MS);
        assert_eq!(plain.clone().jitter(4 * MS).min_delay(), 6 * MS);
        assert_eq!(plain.clone().jitter(11 * MS).min_delay(), Duration::ZERO);
        assert_eq!(plain.clone().normal_jitter(MS).min_delay(), Duration::ZERO);
        assert_eq!(plain.serialisation(1500), MS * 3 / 2);
        let endless = LinkConfig::new(f64::INFINITY, MS);
        assert_eq!(
            (endless.rate, endless.serialisation(1500)),
            (None, Duration::ZERO)
        );
        assert_eq!((plain.mtu, plain.reorder_delay), (1500, 5 * MS));
    }

    #[test]
    fn an_outage_begins_and_ends() {
        let config = LinkConfig::new(8.0, MS).outage(MS, 3 * MS);
        let expected = [(MS, Change::Outage(true)), (3 * MS, Change::Outage(false))];
        assert_eq!(config.schedule, expected);
    }
}
