//! Describes a scenario in words.

use std::fmt::Write as _;
use std::time::Duration;

use mpquic_core::EcnCodepoint;
use serde::{Deserialize, Serialize};

use super::contender::Competitor;
use super::model::Scenario;
use super::number::{Number, Parameter};
use super::workload::{Kind, Page, Size};

/// A description of a scenario: the network and the transfer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Words {
    /// A description of each path.
    pub paths: Vec<String>,
    /// Links that several paths share: name, description, and indices of the paths.
    pub links: Vec<(String, String, Vec<usize>)>,
    /// A description of the workload.
    pub workload: String,
    /// Other users of the network, one line each.
    pub others: Vec<String>,
}

impl Scenario {
    /// The description of the scenario.
    pub fn words(&self) -> Words {
        let names: Vec<_> = self.paths.iter().map(|path| path.name.as_str()).collect();
        let through = |link: usize| {
            let paths = self.paths.iter().enumerate();
            let through = paths.filter(|(_, path)| path.via.contains(&link));
            through.map(|(index, _)| index).collect()
        };
        let links = self.links.iter().enumerate();
        Words {
            paths: self
                .paths
                .iter()
                .map(|path| {
                    let backup = if path.backup { "; a backup" } else { "" };
                    let absences = path.absent.iter().map(|(from, to)| {
                        let to = to.map(|to| format!(" to {}", to.as_secs_f64()));
                        let to = to.unwrap_or_default();
                        format!("; without an address from {}{to} s", from.as_secs_f64())
                    });
                    path.links.words(&self.parameters) + backup + &absences.collect::<String>()
                })
                .collect(),
            links: links
                .map(|(index, link)| {
                    let words = link.links.words(&self.parameters);
                    (link.name.clone(), words, through(index))
                })
                .collect(),
            workload: self.workload_words(&names),
            others: self.others(&names),
        }
    }

    fn workload_words(&self, names: &[&str]) -> String {
        let number = |number: Number| number.words(&self.parameters, 1.0);
        let size = |size: Size| size_words(size, &self.parameters);
        let workload = &self.workload;
        let mut words = match &workload.kind {
            Kind::File { size: bytes } => format!("a file of {}", size(*bytes)),
            Kind::Flows { count, size: bytes } => {
                format!("{count} files of {}, one after another", size(*bytes))
            }
            Kind::Page { pages, .. } => {
                let pages = pages.iter();
                let pages: Vec<_> = pages
                    .map(|page| page_words(page, &self.parameters))
                    .collect();
                format!("objects: {}", pages.join("; or "))
            }
            Kind::Constant { rate, duration } => format!(
                "{} Mbit/s for {} s, whatever arrives",
                number(*rate),
                duration.as_secs_f64()
            ),
            Kind::Bulk { duration } => {
                format!("as much as possible for {} s", duration.as_secs_f64())
            }
            Kind::Messages {
                every,
                poisson,
                size: bytes,
                deadline,
                duration,
            } => {
                let deadline = deadline.map_or(String::new(), |deadline| {
                    format!(", late after {} ms", milliseconds(deadline))
                });
                format!(
                    "messages of {}, one every {} ms{} for {} s{deadline}",
                    size(*bytes),
                    milliseconds(*every),
                    if *poisson {
                        " in the mean, at random"
                    } else {
                        ""
                    },
                    duration.as_secs_f64()
                )
            }
            Kind::Video {
                rates,
                segment,
                duration,
            } => {
                let rates: Vec<_> = rates.iter().map(f64::to_string).collect();
                format!(
                    "a video of {} s in segments of {} s, of {} Mbit/s as the rate allows",
                    duration.as_secs_f64(),
                    segment.as_secs_f64(),
                    rates.join(", ")
                )
            }
        };
        words += if workload.upload {
            ", from the client to the server"
        } else {
            ", from the server to the client"
        };
        if let Some(controller) = &workload.inner {
            let _ = write!(
                words,
                ", by a connection ({controller}) inside of DATAGRAMs"
            );
        }
        if workload.paths.len() < names.len() {
            let used: Vec<_> = workload.paths.iter().map(|path| names[*path]).collect();
            let _ = write!(words, ", over {}", used.join(" and "));
        }
        words
    }

    fn others(&self, names: &[&str]) -> Vec<String> {
        let like = |competitor: &Competitor| {
            let paths: Vec<_> = competitor.paths.iter().map(|path| names[*path]).collect();
            let controller = competitor.controller.as_deref().unwrap_or("single-path");
            let what = match competitor.rate {
                Some(rate) => format!("{rate} Mbit/s"),
                None => "all it can".to_owned(),
            };
            let direction = if competitor.upload {
                " from the client"
            } else {
                ""
            };
            let paths = paths.join(" and ");
            format!("{what}{direction} over {paths} ({controller})")
        };
        let alike = self.competitors.chunk_by(|a, b| like(a) == like(b));
        let competitors = alike.map(|alike| {
            let like = like(&alike[0]);
            match alike {
                [first, .., last] => format!(
                    "{} to {}: {} other connections, each of which sends {like}",
                    first.name,
                    last.name,
                    alike.len()
                ),
                _ => format!("{}: another connection, which sends {like}", alike[0].name),
            }
        });
        let cross = self.cross_traffic.iter().map(|cross| {
            let marks = match cross.ecn {
                None => "",
                Some(EcnCodepoint::Ect0) => ", marked ECT(0)",
                Some(EcnCodepoint::Ect1) => ", marked ECT(1)",
                Some(EcnCodepoint::Ce) => ", marked CE",
            };
            format!(
                "{} Mbit/s of other packets on {}{marks}",
                cross.rate.words(&self.parameters, 1.0),
                names[cross.path]
            )
        });
        let swaps = self.swaps.iter().map(|swap| {
            let [a, b] = swap.paths.map(|path| names[path]);
            format!("{a} and {b} change places at {} s", swap.time.as_secs_f64())
        });
        competitors.chain(cross).chain(swaps).collect()
    }
}

fn page_words(page: &Page, parameters: &[Parameter]) -> String {
    let objects = page.objects.iter().map(|object| {
        let count = match object.count {
            1 => String::new(),
            count => format!("{count} x "),
        };
        let size = size_words(object.size, parameters);
        format!("{} ({count}{size})", object.name)
    });
    objects.collect::<Vec<_>>().join(", ")
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn size_words(size: Size, parameters: &[Parameter]) -> String {
    let (number, bytes) = size.parts();
    let unit = if bytes >= 1e6 { "MB" } else { "kB" };
    format!("{} {unit}", number.words(parameters, 1.0))
}
