//! Links of a scenario: the fields of a `[[path]]` or `[[link]]`.

mod words;

use std::time::Duration;

use super::number::{Limits, Number};
use super::reader::{Item, Result, Table};
use crate::link::{Backlog, Change, Discipline, Jitter, LinkConfig, Loss, RateTrace, Variation};

const RATE: Limits = Limits::new(0.001, 1e6, "Mbit/s").or_infinite();
const TIME: Limits = Limits::new(0.0, 1e5, "ms");
const SHARE: Limits = Limits::new(0.0, 100.0, "%");
const BACKLOG: Limits = Limits::new(1.0, 1e9, "an empty queue cannot send");
const SECONDS: Limits = Limits::new(0.0, 1e5, "s");
/// Names of queue disciplines.
const AQM: [(&str, Discipline); 5] = [
    ("none", Discipline::Fifo),
    ("codel", Discipline::CoDel),
    ("fq-codel", Discipline::FqCoDel),
    ("pie", Discipline::Pie),
    ("dualpi2", Discipline::DualPi2),
];
/// Smallest queue that is given in bandwidth-delay products, bytes.
const MIN_QUEUE_BYTES: f64 = 20.0 * 1500.0;

/// Both directions of a link or path.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkPair {
    /// The link from the client to the server.
    pub up: LinkSpec,
    /// The link from the server to the client.
    pub down: LinkSpec,
}

/// A single direction of a link, with numbers that may differ between runs.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    fields: Fields,
    changes: Vec<(Duration, Fields)>,
    outages: Vec<(Duration, Option<Duration>)>,
    trace: Option<RateTrace>,
    vary: Option<Vary>,
}

/// An RTT or a one-way delay.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Delay {
    OneWay(Number),
    RoundTrip(Number),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum QueueSpec {
    Auto,
    Unlimited,
    /// In bandwidth-delay products.
    Products(Number),
    Limited([Option<Number>; 3]),
}

/// Fields that a file may give for both directions, for one direction, and for a later time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Fields {
    rate: Option<Number>,
    delay: Option<Delay>,
    jitter: Option<Number>,
    jitter_normal: Option<bool>,
    allow_reorder: Option<bool>,
    loss: Option<Number>,
    gilbert: Option<(f64, f64)>,
    duplicate: Option<Number>,
    reorder: Option<Number>,
    reorder_extra: Option<Number>,
    queue: Option<QueueSpec>,
    ecn: Option<[Option<Number>; 3]>,
    /// An index into [`AQM`].
    aqm: Option<Number>,
    /// Half the widths of the ranges of rate and delay, as shares, if their values are drawn
    /// repeatedly.
    redraw: (f64, f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Vary {
    every: Duration,
    rate: f64,
    delay: f64,
    loss: f64,
    shared: bool,
}

impl Fields {
    fn read(table: &Table<'_>, name: &str, redraw: bool) -> Result<Self> {
        let number = |key: &'static str, limits: Limits| {
            let item = table.optional(key);
            item.map(|item| item.number(limits, &format!("{name}.{key}")))
                .transpose()
        };
        let flag = |key| table.optional(key).map(|item| item.boolean()).transpose();
        let mut fields = Self {
            jitter: number("jitter_ms", TIME)?,
            allow_reorder: flag("allow_reorder")?,
            loss: number("loss_pct", SHARE)?,
            duplicate: number("duplicate_pct", SHARE)?,
            reorder: number("reorder_pct", SHARE)?,
            reorder_extra: number("reorder_extra_ms", TIME)?,
            ..Self::default()
        };
        let drawn = |item: &Item<'_>, key: &str, limits| -> Result<(Number, f64)> {
            if redraw && let Some((low, high)) = item.range(limits)? {
                let share = (high - low) / (high + low).max(f64::MIN_POSITIVE);
                return Ok((Number::Fixed(f64::midpoint(low, high)), share));
            }
            Ok((item.number(limits, &format!("{name}.{key}"))?, 0.0))
        };
        if let Some(item) = table.optional("rate_mbit") {
            let (rate, share) = drawn(&item, "rate_mbit", RATE)?;
            fields.rate = Some(rate);
            fields.redraw.0 = share;
        }
        let keys = ["owd_ms", "rtt_ms"];
        if let Some((index, item)) = table.one_of(&keys)? {
            let (delay, share) = drawn(&item, keys[index], TIME)?;
            fields.delay = Some([Delay::OneWay, Delay::RoundTrip][index](delay));
            fields.redraw.1 = share;
        }
        if let Some(item) = table.optional("jitter_dist") {
            fields.jitter_normal = Some(item.choice(&[("uniform", false), ("normal", true)])?);
        }
        if let Some(item) = table.optional("gilbert") {
            fields.gilbert = Some(read_gilbert(&item)?);
        }
        let backlog = |keys: [&'static str; 3]| -> Result<Option<[Option<Number>; 3]>> {
            let [bytes, packets, time] = keys;
            let least = [number(bytes, BACKLOG)?, number(packets, BACKLOG)?];
            let time = number(time, Limits::new(0.1, 1e5, "ms"))?;
            let limits = [least[0], least[1], time];
            Ok(limits.iter().any(Option::is_some).then_some(limits))
        };
        let limited = backlog(["queue_bytes", "queue_packets", "queue_ms"])?;
        fields.queue = limited.map(QueueSpec::Limited);
        if let Some(products) = number("queue_bdp", Limits::new(0.01, 1000.0, ""))? {
            fields.queue = Some(QueueSpec::Products(products));
        }
        if let Some(item) = table.optional("queue") {
            let choices = [("auto", QueueSpec::Auto), ("none", QueueSpec::Unlimited)];
            fields.queue = Some(item.choice(&choices)?);
        }
        fields.ecn = backlog(["ecn_bytes", "ecn_packets", "ecn_ms"])?;
        if let Some(item) = table.optional("aqm") {
            let names = AQM.map(|(name, _)| name.to_owned());
            fields.aqm = Some(item.swept_choice(&names, &format!("{name}.aqm"))?);
        }
        Ok(fields)
    }

    /// The fields of `self`; missing fields have the values of `below`.
    fn over(self, below: Self) -> Self {
        Self {
            rate: self.rate.or(below.rate),
            delay: self.delay.or(below.delay),
            jitter: self.jitter.or(below.jitter),
            jitter_normal: self.jitter_normal.or(below.jitter_normal),
            allow_reorder: self.allow_reorder.or(below.allow_reorder),
            loss: self.loss.or(below.loss),
            gilbert: self
                .gilbert
                .or(below.gilbert.filter(|_| self.loss.is_none())),
            duplicate: self.duplicate.or(below.duplicate),
            reorder: self.reorder.or(below.reorder),
            reorder_extra: self.reorder_extra.or(below.reorder_extra),
            queue: self.queue.or(below.queue),
            ecn: self.ecn.or(below.ecn),
            aqm: self.aqm.or(below.aqm),
            redraw: (
                if self.rate.is_some() {
                    self.redraw.0
                } else {
                    below.redraw.0
                },
                if self.delay.is_some() {
                    self.redraw.1
                } else {
                    below.redraw.1
                },
            ),
        }
    }

    fn one_way_ms(&self, values: &[f64]) -> f64 {
        match self.delay {
            Some(Delay::OneWay(delay)) => delay.at(values),
            Some(Delay::RoundTrip(delay)) => delay.at(values) / 2.0,
            None => 0.0,
        }
    }

    /// The changes by the given fields, for a link whose path has this RTT.
    fn changes(&self, values: &[f64], rtt: Duration) -> Vec<Change> {
        let at = |number: Option<Number>| number.map(|number| number.at(values));
        let milliseconds = |value: f64| Duration::from_secs_f64(value / 1e3);
        let mut changes = Vec::new();
        changes.extend(at(self.rate).map(Change::Rate));
        if self.delay.is_some() {
            changes.push(Change::Delay(milliseconds(self.one_way_ms(values))));
        }
        if let Some(jitter) = at(self.jitter) {
            let normal = self.jitter_normal.unwrap_or(false);
            let jitter = match milliseconds(jitter) {
                Duration::ZERO => Jitter::None,
                jitter if normal => Jitter::Normal(jitter),
                jitter => Jitter::Uniform(jitter),
            };
            changes.push(Change::Jitter(jitter));
        }
        if let Some(loss) = at(self.loss) {
            changes.push(Change::Loss(Loss::bernoulli(loss / 100.0)));
        }
        if let Some((mean, burst)) = self.gilbert {
            changes.push(Change::Loss(Loss::gilbert(mean, burst)));
        }
        changes.extend(at(self.duplicate).map(|share| Change::Duplicate(share / 100.0)));
        if let Some(share) = at(self.reorder) {
            let extra = at(self.reorder_extra).unwrap_or(5.0);
            changes.push(Change::Reorder(share / 100.0, milliseconds(extra)));
        }
        let backlog = |[bytes, packets, time]: [Option<Number>; 3]| Backlog {
            bytes: at(bytes).map(|bytes| bytes as u64),
            packets: at(packets).map(|packets| packets as usize),
            time: at(time).map(milliseconds),
        };
        let queue = self.queue.and_then(|queue| match queue {
            QueueSpec::Auto => None,
            QueueSpec::Unlimited => Some(Backlog::UNLIMITED),
            QueueSpec::Limited(limits) => Some(backlog(limits)),
            QueueSpec::Products(products) => {
                let bytes_per_second = at(self.rate).unwrap_or(f64::INFINITY) * 1e6 / 8.0;
                let bytes = products.at(values) * bytes_per_second * rtt.as_secs_f64();
                let limited = bytes
                    .is_finite()
                    .then_some(bytes.max(MIN_QUEUE_BYTES) as u64);
                Some(limited.map_or(Backlog::UNLIMITED, Backlog::bytes))
            }
        });
        changes.extend(queue.map(Change::Queue));
        changes.extend(self.ecn.map(|limits| Change::Ecn(Some(backlog(limits)))));
        changes
    }
}

fn read_gilbert(item: &Item<'_>) -> Result<(f64, f64)> {
    let table = item.table()?;
    let mean = table.required("mean_loss_pct")?;
    let mean = mean.fixed(Limits::new(0.0, 99.0, "%"))? / 100.0;
    let burst = table.required("mean_burst")?;
    let burst = burst.fixed(Limits::new(1.0, 1e6, "packets"))?;
    table.finish()?;
    Ok((mean, burst))
}

/// Reads the directions of a change: from the client, and to the client.
fn read_direction(table: &Table<'_>) -> Result<(bool, bool)> {
    let Some(item) = table.optional("dir") else {
        return Ok((true, true));
    };
    item.choice(&[
        ("both", (true, true)),
        ("c2s", (true, false)),
        ("s2c", (false, true)),
    ])
}

impl LinkPair {
    /// Reads the link fields of a `[[path]]` or `[[link]]` with the name `name`.
    pub(super) fn read(table: &Table<'_>, name: &str) -> Result<Self> {
        let redraw = table.optional("redraw_ms");
        let redraw_every = redraw
            .as_ref()
            .map(|item| item.duration(Limits::new(0.1, 1e6, "ms"), 1e-3))
            .transpose()?;
        let both = Fields::read(table, name, redraw.is_some())?;
        let mut directions = Vec::new();
        for direction in ["c2s", "s2c"] {
            let Some(item) = table.optional(direction) else {
                directions.push(both);
                continue;
            };
            let over = item
                .table()?
                .named(&format!("{}{direction}", table.place()));
            let name = format!("{name}.{direction}");
            directions.push(Fields::read(&over, &name, redraw.is_some())?.over(both));
            over.finish()?;
        }
        for fields in &directions {
            let complete = fields.rate.is_some() && fields.delay.is_some();
            if !complete {
                return Err(table.error("`rate_mbit` and `owd_ms` (or `rtt_ms`) are needed"));
            }
        }
        let spec = |fields: Fields| LinkSpec {
            fields,
            changes: Vec::new(),
            outages: Vec::new(),
            trace: None,
            vary: redraw_every.map(|every| Vary {
                every,
                rate: fields.redraw.0,
                delay: fields.redraw.1,
                loss: 0.0,
                shared: true,
            }),
        };
        let mut pair = Self {
            up: spec(directions[0]),
            down: spec(directions[1]),
        };
        pair.read_trace(table)?;
        pair.read_vary(table)?;
        pair.read_changes(table, name)?;
        pair.read_outages(table)?;
        Ok(pair)
    }

    fn read_trace(&mut self, table: &Table<'_>) -> Result<()> {
        let Some(item) = table.optional("trace") else {
            return Ok(());
        };
        for trace in item.tables()? {
            let trace = trace.named(&format!("{}trace", table.place()));
            let every = trace.required("every_ms")?;
            let every = every.duration(Limits::new(1.0, 1e6, "ms"), 1e-3)?;
            let rates = trace.required("rate_mbit")?;
            let rates = rates.items()?.into_iter().map(|item| item.fixed(RATE));
            let (up, down) = read_direction(&trace)?;
            trace.finish()?;
            let read = RateTrace {
                every,
                mbit: rates.collect::<Result<_>>()?,
            };
            for (spec, concerned) in [(&mut self.up, up), (&mut self.down, down)] {
                if concerned {
                    spec.trace = Some(read.clone());
                }
            }
        }
        Ok(())
    }

    fn read_vary(&mut self, table: &Table<'_>) -> Result<()> {
        let Some(item) = table.optional("vary") else {
            return Ok(());
        };
        if self.up.vary.is_some() {
            return Err(item.error("cannot be given together with `redraw_ms`"));
        }
        let vary = item.table()?.named(&format!("{}vary", table.place()));
        let number = |key, limits: Limits| {
            let item = vary.optional(key);
            item.map_or(Ok(0.0), |item| item.fixed(limits))
        };
        let every = vary
            .optional("every_ms")
            .map(|item| item.duration(Limits::new(0.1, 1e6, "ms"), 1e-3));
        let read = Vary {
            every: every.transpose()?.unwrap_or(Duration::from_millis(100)),
            rate: number("rate_pct", SHARE)? / 100.0,
            delay: number("owd_pct", SHARE)? / 100.0,
            loss: number("loss_points", SHARE)? / 100.0,
            shared: vary
                .optional("shared")
                .map_or(Ok(true), |item| item.boolean())?,
        };
        vary.finish()?;
        (self.up.vary, self.down.vary) = (Some(read), Some(read));
        Ok(())
    }

    fn read_changes(&mut self, table: &Table<'_>, name: &str) -> Result<()> {
        let Some(item) = table.optional("at") else {
            return Ok(());
        };
        for change in item.tables()? {
            let change = change.named(&format!("{}at", table.place()));
            let time = change.required("t")?.duration(SECONDS, 1.0)?;
            let (up, down) = read_direction(&change)?;
            let name = format!("{name}.at_{}s", time.as_secs_f64());
            let fields = Fields::read(&change, &name, false)?;
            if fields.aqm.is_some() {
                return Err(change.error("`aqm` cannot change: give it to the path or link"));
            }
            change.finish()?;
            for (spec, concerned) in [(&mut self.up, up), (&mut self.down, down)] {
                if concerned {
                    spec.changes.push((time, fields));
                }
            }
        }
        Ok(())
    }

    fn read_outages(&mut self, table: &Table<'_>) -> Result<()> {
        let Some(item) = table.optional("blackhole") else {
            return Ok(());
        };
        for outage in item.tables()? {
            let outage = outage.named(&format!("{}blackhole", table.place()));
            let (from, to) = read_span(&outage)?;
            let (up, down) = read_direction(&outage)?;
            outage.finish()?;
            for (spec, concerned) in [(&mut self.up, up), (&mut self.down, down)] {
                if concerned {
                    spec.outages.push((from, to));
                }
            }
        }
        Ok(())
    }

    /// The links for these values of the parameters: from the client, and to the client. `seed` is
    /// the seed of regular variation.
    pub fn links(&self, values: &[f64], seed: u64) -> [LinkConfig; 2] {
        let rtt = self.one_way(values).iter().sum();
        let seed_down = seed ^ u64::from(!self.down.vary.is_some_and(|vary| vary.shared));
        [
            self.up.config(values, rtt, seed),
            self.down.config(values, rtt, seed_down),
        ]
    }

    /// Propagation delays: from the client, and to the client.
    pub fn one_way(&self, values: &[f64]) -> [Duration; 2] {
        [&self.up, &self.down]
            .map(|spec| Duration::from_secs_f64(spec.fields.one_way_ms(values) / 1e3))
    }
}

impl LinkSpec {
    fn config(&self, values: &[f64], rtt: Duration, seed: u64) -> LinkConfig {
        let rate = self
            .fields
            .rate
            .map_or(f64::INFINITY, |rate| rate.at(values));
        let mut config = LinkConfig::new(rate, Duration::ZERO);
        for change in self.fields.changes(values, rtt) {
            config.apply(&change);
        }
        config.jitter_reorders = self.fields.allow_reorder.unwrap_or(false);
        if let Some((_, discipline)) = self
            .fields
            .aqm
            .and_then(|aqm| AQM.get(aqm.at(values) as usize))
        {
            config.discipline = *discipline;
        }
        for (time, fields) in &self.changes {
            // A queue that is given in bandwidth-delay products follows the new values.
            let mut fields = *fields;
            if let Some(QueueSpec::Products(_)) = self.fields.queue {
                fields.queue = fields.queue.or(self.fields.queue);
                fields.rate = fields.rate.or(self.fields.rate);
            }
            let rtt = fields.delay.map_or(rtt, |_| {
                Duration::from_secs_f64(fields.one_way_ms(values) * 2.0 / 1e3)
            });
            let changes = fields.changes(values, rtt);
            config
                .schedule
                .extend(changes.into_iter().map(|change| (*time, change)));
        }
        for (from, to) in &self.outages {
            config.schedule.push((*from, Change::Outage(true)));
            config
                .schedule
                .extend(to.map(|to| (to, Change::Outage(false))));
        }
        config.trace.clone_from(&self.trace);
        config.variation = self.vary.map(|vary| Variation {
            every: vary.every,
            rate: vary.rate,
            delay: vary.delay,
            loss: vary.loss,
            seed,
        });
        config
    }
}

/// Makes a link take over rate, delay, loss and queue of another link at this time.
pub(crate) fn take_over(config: &mut LinkConfig, other: &LinkConfig, time: Duration) {
    let rate = other.rate.map_or(f64::INFINITY, |rate| rate / 1e6);
    let queue = other.queue.map(Change::Queue);
    let changes = [
        Change::Rate(rate),
        Change::Delay(other.delay),
        Change::Loss(other.loss),
    ];
    let changes = changes.into_iter().chain(queue);
    config.schedule.extend(changes.map(|change| (time, change)));
}

/// The fields `from` and `to` of a table; `to` is optional.
fn read_span(table: &Table<'_>) -> Result<(Duration, Option<Duration>)> {
    let from = table.required("from")?.duration(SECONDS, 1.0)?;
    let to = table.optional("to").map(|item| {
        let to = item.duration(SECONDS, 1.0)?;
        let late = to > from;
        late.then_some(to)
            .ok_or_else(|| item.error("must be later than `from`"))
    });
    Ok((from, to.transpose()?))
}

/// When the client has no address on a path.
pub(super) fn read_absences(table: &Table<'_>) -> Result<Vec<(Duration, Option<Duration>)>> {
    let Some(item) = table.optional("absent") else {
        return Ok(Vec::new());
    };
    let mut absences = Vec::new();
    for absence in item.tables()? {
        let absence = absence.named(&format!("{}absent", table.place()));
        absences.push(read_span(&absence)?);
        absence.finish()?;
    }
    Ok(absences)
}
