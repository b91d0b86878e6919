//! A scenario in words, for people who have not read its file.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::model::Scenario;
use super::number::{Number, Parameter};
use super::workload::{Kind, Size};

/// What a scenario is about: the network and the transfer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Words {
    /// What each path is like.
    pub paths: Vec<String>,
    /// Links that several paths share: name, what they are like, and which paths go through them.
    pub links: Vec<(String, String, Vec<usize>)>,
    /// What is transferred.
    pub workload: String,
    /// Who else is on the network, a line each.
    pub others: Vec<String>,
}

impl Scenario {
    /// The scenario in words.
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
                    path.links.words(&self.parameters) + backup
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
                let page = |page: &super::workload::Page| {
                    let objects = page.objects.iter();
                    let objects = objects.map(|object| {
                        let count = match object.count {
                            1 => String::new(),
                            count => format!("{count} x "),
                        };
                        format!("{} ({count}{})", object.name, size(object.size))
                    });
                    objects.collect::<Vec<_>>().join(", ")
                };
                let pages: Vec<_> = pages.iter().map(page).collect();
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
        words += match workload.upload {
            true => ", from the client to the server",
            false => ", from the server to the client",
        };
        if workload.paths.len() < names.len() {
            let used: Vec<_> = workload.paths.iter().map(|path| names[*path]).collect();
            let _ = write!(words, ", over {}", used.join(" and "));
        }
        words
    }

    fn others(&self, names: &[&str]) -> Vec<String> {
        let competitors = self.competitors.iter().map(|competitor| {
            let paths: Vec<_> = competitor.paths.iter().map(|path| names[*path]).collect();
            let controller = competitor.controller.as_deref().unwrap_or("single-path");
            format!(
                "{}: another connection ({controller}) that sends all it can over {}",
                competitor.name,
                paths.join(" and ")
            )
        });
        let cross = self.cross_traffic.iter().map(|cross| {
            format!(
                "{} Mbit/s of other packets on {}",
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

fn size_words(size: Size, parameters: &[Parameter]) -> String {
    let (number, bytes) = size.parts();
    let unit = if bytes >= 1e6 { "MB" } else { "kB" };
    format!("{} {unit}", number.words(parameters, 1.0))
}
