//! Links in words.

use std::fmt::Write as _;

use super::super::number::{Number, Parameter};
use super::{AQM, Delay, LinkPair, LinkSpec, QueueSpec};
use crate::link::Discipline;

impl LinkPair {
    /// What the link is like, as "10 Mbit/s, 20 ms one way, loses 1 %".
    pub(in super::super) fn words(&self, parameters: &[Parameter]) -> String {
        let [up, down] = [&self.up, &self.down].map(|link| link.words(parameters));
        match up == down {
            true => down,
            false => format!("{down}; from the client: {up}"),
        }
    }
}

impl LinkSpec {
    fn words(&self, parameters: &[Parameter]) -> String {
        let fields = &self.fields;
        let rate = match &self.trace {
            Some(trace) => {
                let mean = trace.mbit.iter().sum::<f64>() / trace.mbit.len() as f64;
                Some(Number::Fixed(mean))
            }
            None => fields.rate,
        };
        let rate = rate.map(|rate| rate.words(parameters, 1.0));
        let mut words = match rate.as_deref() {
            None | Some("inf") => "no limit of the rate".to_owned(),
            Some(rate) => format!("{rate} Mbit/s"),
        };
        if self.trace.is_some() {
            words += " in the mean, as recorded";
        }
        let delay = match fields.delay {
            Some(Delay::OneWay(delay)) => Some(delay.words(parameters, 1.0)),
            Some(Delay::RoundTrip(delay)) => Some(delay.words(parameters, 0.5)),
            None => None,
        };
        if let Some(delay) = delay {
            let _ = write!(words, ", {delay} ms one way");
        }
        if let Some(jitter) = fields.jitter {
            let _ = write!(words, " ± {}", jitter.words(parameters, 1.0));
        }
        let loss = fields.loss.map(|loss| loss.words(parameters, 1.0));
        if let Some(loss) = loss.filter(|loss| loss != "0") {
            let _ = write!(words, ", loses {loss} %");
        }
        if let Some((mean, burst)) = fields.gilbert {
            let _ = write!(words, ", loses {} % in bursts of {burst}", 100.0 * mean);
        }
        words += &self.queue_words(parameters);
        match self.fields.aqm {
            None => {}
            Some(Number::Fixed(index)) => match AQM.get(index as usize) {
                Some((_, Discipline::CoDel)) => words += ", managed by CoDel",
                Some((_, Discipline::FqCoDel)) => words += ", managed by FQ-CoDel",
                Some((_, Discipline::Pie)) => words += ", managed by PIE",
                Some((_, Discipline::DualPi2)) => words += ", managed by DualPI2",
                Some((_, Discipline::Fifo)) | None => {}
            },
            Some(Number::Varied(_)) => words += ", its queue managed in several ways",
        }
        if let Some(vary) = self.vary {
            let every = vary.every.as_secs_f64();
            let _ = write!(words, ", changes every {every} s");
            if vary.rate > 0.0 {
                let percent = (1e4 * vary.rate).round() / 1e2;
                let _ = write!(words, " (rate ± {percent} %)");
            }
        }
        for (time, _) in &self.changes {
            let _ = write!(words, ", changes at {} s", time.as_secs_f64());
        }
        for (from, to) in &self.outages {
            let _ = write!(words, ", cut at {} s", from.as_secs_f64());
            if let Some(to) = to {
                let _ = write!(words, " until {} s", to.as_secs_f64());
            }
        }
        words
    }

    fn queue_words(&self, parameters: &[Parameter]) -> String {
        let number = |number: Number| number.words(parameters, 1.0);
        match self.fields.queue {
            None | Some(QueueSpec::Auto) => String::new(),
            Some(QueueSpec::Unlimited) => ", queue without limit".to_owned(),
            Some(QueueSpec::Products(products)) => {
                format!(", queue of {} bandwidth-delay products", number(products))
            }
            Some(QueueSpec::Limited([bytes, packets, time])) => {
                let limits = [(bytes, "bytes"), (packets, "packets"), (time, "ms")];
                let limits = limits.into_iter().filter_map(|(limit, unit)| {
                    limit.map(|limit| format!("{} {unit}", number(limit)))
                });
                format!(", queue of {}", limits.collect::<Vec<_>>().join(" or "))
            }
        }
    }
}
