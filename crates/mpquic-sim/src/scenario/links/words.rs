//! Describes links in words.

use std::fmt::Write as _;

use super::super::number::{Number, Parameter};
use super::{AQM, Delay, LinkPair, LinkSpec, QueueSpec};
use crate::link::Discipline;

/// The subject of a part of a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Rate,
    Delay,
    Loss,
    Bursts,
    Queue,
    Management,
    Variation,
    Change,
    Outage,
}

type Part = (Thing, String);

fn join(parts: &[Part]) -> String {
    let parts: Vec<_> = parts.iter().map(|(_, words)| words.as_str()).collect();
    parts.join(", ")
}

impl LinkPair {
    /// A description of the link, as "10 Mbit/s, 20 ms one way, loses 1 %".
    pub(in super::super) fn words(&self, parameters: &[Parameter]) -> String {
        let [up, down] = [&self.up, &self.down].map(|link| link.parts(parameters));
        let missing = |from: &[Part], of: &[Part]| -> Vec<Part> {
            let parts = of.iter().filter(|part| !from.contains(part));
            parts.cloned().collect()
        };
        let (only_up, only_down) = (missing(&down, &up), missing(&up, &down));
        let mut words = join(&down);
        if only_up.is_empty() && !only_down.is_empty() {
            let _ = write!(words, " (to the client alone: {})", join(&only_down));
        } else if !only_up.is_empty() {
            // The differing parts are enough if the parts of both directions have the same
            // subjects.
            let things = |parts: &[Part]| parts.iter().map(|(thing, _)| *thing).collect::<Vec<_>>();
            let alike = things(&only_up) == things(&only_down);
            let other = if alike { only_up } else { up };
            let _ = write!(words, "; from the client: {}", join(&other));
        }
        words
    }
}

impl LinkSpec {
    fn parts(&self, parameters: &[Parameter]) -> Vec<Part> {
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
        let mut parts = vec![(Thing::Rate, words)];
        let delay = match fields.delay {
            Some(Delay::OneWay(delay)) => Some(delay.words(parameters, 1.0)),
            Some(Delay::RoundTrip(delay)) => Some(delay.words(parameters, 0.5)),
            None => None,
        };
        if let Some(delay) = delay {
            let jitter = fields.jitter.map_or(String::new(), |jitter| {
                format!(" ± {} ms", jitter.words(parameters, 1.0))
            });
            parts.push((Thing::Delay, format!("{delay} ms one way{jitter}")));
        }
        let loss = fields.loss.map(|loss| loss.words(parameters, 1.0));
        let loss = loss.filter(|loss| loss != "0");
        parts.extend(loss.map(|loss| (Thing::Loss, format!("loses {loss} %"))));
        let bursts = fields
            .gilbert
            .map(|(mean, burst)| format!("loses {} % in bursts of {burst}", 100.0 * mean));
        parts.extend(bursts.map(|words| (Thing::Bursts, words)));
        let queue = self.queue_words(parameters);
        parts.extend(queue.map(|words| (Thing::Queue, words)));
        let management = self.management_words();
        parts.extend(management.map(|words| (Thing::Management, words)));
        if let Some(vary) = self.vary {
            let rate = if vary.rate > 0.0 {
                format!(" (rate ± {} %)", (1e4 * vary.rate).round() / 1e2)
            } else {
                String::new()
            };
            let every = vary.every.as_secs_f64();
            parts.push((Thing::Variation, format!("changes every {every} s{rate}")));
        }
        parts.extend(self.changes.iter().map(|(time, _)| {
            let words = format!("changes at {} s", time.as_secs_f64());
            (Thing::Change, words)
        }));
        parts.extend(self.outages.iter().map(|(from, to)| {
            let until = to.map_or(String::new(), |to| format!(" until {} s", to.as_secs_f64()));
            let words = format!("cut at {} s{until}", from.as_secs_f64());
            (Thing::Outage, words)
        }));
        parts
    }

    fn management_words(&self) -> Option<String> {
        let index = match self.fields.aqm? {
            Number::Fixed(index) => index as usize,
            Number::Varied(_) => return Some("its queue managed in several ways".to_owned()),
        };
        let name = match AQM.get(index)?.1 {
            Discipline::Fifo => return None,
            Discipline::CoDel => "CoDel",
            Discipline::FqCoDel => "FQ-CoDel",
            Discipline::Pie => "PIE",
            Discipline::DualPi2 => "DualPI2",
        };
        Some(format!("managed by {name}"))
    }

    fn queue_words(&self, parameters: &[Parameter]) -> Option<String> {
        let number = |number: Number| number.words(parameters, 1.0);
        match self.fields.queue {
            None | Some(QueueSpec::Auto) => None,
            Some(QueueSpec::Unlimited) => Some("queue without limit".to_owned()),
            Some(QueueSpec::Products(products)) => {
                let products = number(products);
                Some(format!("queue of {products} bandwidth-delay products"))
            }
            Some(QueueSpec::Limited([bytes, packets, time])) => {
                let limits = [(bytes, "bytes"), (packets, "packets"), (time, "ms")];
                let limits = limits.into_iter().filter_map(|(limit, unit)| {
                    limit.map(|limit| format!("{} {unit}", number(limit)))
                });
                let limits: Vec<_> = limits.collect();
                Some(format!("queue of {}", limits.join(" or ")))
            }
        }
    }
}
