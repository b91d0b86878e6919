//! Figures: of one transfer, and of all of them.

use std::fmt::{self, Display, Write};
use std::ops::Sub;
use std::str::FromStr;

use crate::{Contestant, Failure};

/// CPU time, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user: self.user - before.user,
            system: self.system - before.system,
        }
    }
}

impl Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.user, self.system)
    }
}

impl FromStr for Cost {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let (user, system) = text.split_once(' ').ok_or("not a cost")?;
        Ok(Self {
            user: user.parse()?,
            system: system.parse()?,
        })
    }
}

/// One transfer. Costs are CPU seconds per GB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    gbits: f64,
    server: Cost,
    client: Cost,
}

impl Sample {
    pub(crate) fn new(bytes: u64, seconds: f64, server: Cost, client: Cost) -> Self {
        let gigabytes = bytes as f64 / 1e9;
        let per_gigabyte = |cost: Cost| Cost {
            user: cost.user / gigabytes,
            system: cost.system / gigabytes,
        };
        Self {
            gbits: gigabytes * 8.0 / seconds,
            server: per_gigabyte(server),
            client: per_gigabyte(client),
        }
    }

    fn server_total(&self) -> f64 {
        self.server.user + self.server.system
    }

    fn client_total(&self) -> f64 {
        self.client.user + self.client.system
    }

    /// What it could reach alone on the machine: the rate at which the busier side works.
    fn capacity(&self) -> f64 {
        8.0 / self.server_total().max(self.client_total())
    }
}

impl Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} Gbit/s, CPU s/GB (user + system): server {:.2} + {:.2}, client {:.2} + {:.2}",
            self.gbits, self.server.user, self.server.system, self.client.user, self.client.system
        )
    }
}

/// Medians of every contestant; ratios are medians of the ratios within each round.
pub(crate) fn table(
    contestants: &[Contestant],
    samples: &[Vec<Sample>],
    reference: Option<usize>,
) -> String {
    let reference = reference.and_then(|index| Some((index, samples.get(index)?)));
    let mut table = String::from(
        "| | Gbit/s | server CPU s/GB | client CPU s/GB | Gbit/s per CPU | ratio | ratio per CPU |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (index, (contestant, samples)) in contestants.iter().zip(samples).enumerate() {
        let of = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
        let ratio = |figure: fn(&Sample) -> f64| match reference {
            Some((reference, others)) if reference != index => {
                let pairs = samples.iter().zip(others);
                let ratios = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs));
                format!("{:.2}", median(ratios.collect()))
            }
            _ => "1".to_owned(),
        };
        let _ = writeln!(
            table,
            "| {contestant} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} |",
            of(|sample| sample.gbits),
            of(Sample::server_total),
            of(Sample::client_total),
            of(Sample::capacity),
            ratio(|sample| sample.gbits),
            ratio(Sample::capacity),
        );
    }
    table
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
