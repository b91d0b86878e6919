//! The workload of a scenario.

use std::time::Duration;

use super::number::{Limits, Number};
use super::reader::{Item, Result, Table, controller};

const SIZE_MB: Limits = Limits::new(1e-6, 1e6, "MB");
const SIZE_KB: Limits = Limits::new(1e-3, 1e9, "kB");
const RATE: Limits = Limits::new(0.001, 1e6, "Mbit/s");
const DURATION: Limits = Limits::new(0.001, 1e5, "s");
const WAIT: Limits = Limits::new(0.0, 1e5, "ms");
const DISTANCE: Limits = Limits::new(0.1, 1e5, "ms");

/// The transfers of a connection, and the measure of their success.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The kind of workload.
    pub kind: Kind,
    /// True if the client sends; false if the server sends at the client's request.
    pub upload: bool,
    /// Indices of the scenario's paths that the connection may use.
    pub paths: Vec<usize>,
    /// The position in `paths` of the path that carries the handshake.
    pub handshake_path: Number,
    /// Whether the first flight leaves on all paths but backups. The handshake continues where the
    /// server answers first.
    pub starts_everywhere: bool,
    /// When the transfer starts.
    pub start: Duration,
    /// Whether to send no requests before all paths are open.
    pub wait_for_paths: bool,
    /// The controller of an inner connection, which does the transfers and whose packets are
    /// DATAGRAMs of the contender's connection. `None` if the contender's connection does the
    /// transfers itself.
    pub inner: Option<String>,
}

/// The kind of workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// One file.
    File {
        /// The size of the file, bytes.
        size: Size,
    },
    /// Files of one size, one after another.
    Flows {
        /// Number of files.
        count: usize,
        /// The size of each file, bytes.
        size: Size,
    },
    /// Objects that depend on each other: one of several pages.
    Page {
        /// All pages.
        pages: Vec<Page>,
        /// The page that is fetched.
        choice: Number,
    },
    /// A source of constant rate.
    Constant {
        /// The rate of the source, Mbit/s.
        rate: Number,
        /// How long the source sends.
        duration: Duration,
    },
    /// As much as possible.
    Bulk {
        /// How long data is sent.
        duration: Duration,
    },
    /// Messages at times that do not depend on arrivals: requests, frames, the ticks of a game.
    Messages {
        /// The mean time from one message to the next.
        every: Duration,
        /// True for random intervals (a Poisson process), false for equal intervals.
        poisson: bool,
        /// The size of each message, bytes.
        size: Size,
        /// The longest duration of a message that is not late.
        deadline: Option<Duration>,
        /// How long new messages begin.
        duration: Duration,
    },
    /// A video in segments, whose quality follows the throughput.
    Video {
        /// Available bit rates, Mbit/s, rising.
        rates: Vec<f64>,
        /// Playing time of a segment.
        segment: Duration,
        /// Playing time of the video.
        duration: Duration,
    },
}

impl Kind {
    /// True if the workload consists of objects whose single times matter.
    pub(crate) fn is_of_objects(&self) -> bool {
        matches!(
            self,
            Self::Flows { .. } | Self::Page { .. } | Self::Messages { .. }
        )
    }
}

/// A number of bytes that may differ between runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    number: Number,
    unit: f64,
}

impl Size {
    /// The number in the scenario's file, and its unit in bytes.
    pub(super) fn parts(self) -> (Number, f64) {
        (self.number, self.unit)
    }

    /// The number of bytes for these values of the parameters.
    pub fn bytes(self, values: &[f64]) -> u64 {
        ((self.number.at(values) * self.unit).round() as u64).max(1)
    }
}

/// A page: objects in the order of their requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Its name.
    pub name: String,
    /// The objects of the page.
    pub objects: Vec<PageObject>,
}

/// Objects of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct PageObject {
    /// The name of the kind.
    pub name: String,
    /// Number of objects.
    pub count: usize,
    /// The size of each object.
    pub size: Size,
    /// Stream priority; a larger number is more urgent.
    pub priority: i32,
    /// The kinds of objects that must have arrived before.
    pub after: Vec<usize>,
    /// How long the client is busy between the arrival of the needed objects and the request of
    /// this object.
    pub wait: Duration,
    /// Report the completion time of this kind as a metric.
    pub reported: bool,
}

fn read_size(table: &Table<'_>, name: &str) -> Result<Size> {
    let Some((index, item)) = table.one_of(&["size_mb", "size_kb"])? else {
        return Err(table.error("`size_mb` or `size_kb` is missing"));
    };
    let (limits, unit, key) = [(SIZE_MB, 1e6, "size_mb"), (SIZE_KB, 1e3, "size_kb")][index];
    let number = item.number(limits, &format!("{name}.{key}"))?;
    Ok(Size { number, unit })
}

/// A priority, or a weight of HTTP/2: the default of 16 stands for the priority 0.
fn read_priority(kind: usize, item: &Item<'_>) -> Result<i32> {
    match kind {
        0 => Ok(item.fixed(Limits::new(-1e6, 1e6, ""))? as i32),
        _ => Ok(item.integer(1, 256)? as i32 - 16),
    }
}

fn read_objects(item: &Item<'_>, page: &str, reported: bool) -> Result<Vec<PageObject>> {
    let mut objects: Vec<PageObject> = Vec::new();
    for table in item.tables()? {
        let name_item = table.required("name")?;
        let name = name_item.text()?;
        if objects.iter().any(|object| object.name == name) {
            return Err(name_item.error(&format!("\"{name}\" is there already")));
        }
        let table = table.named(&format!("{page}, object {name}"));
        let count = table.optional("count");
        let urgency = table.one_of(&["priority", "weight"])?;
        let after = table.optional("after").map_or(Ok(Vec::new()), |item| {
            let names: Vec<_> = objects.iter().map(|o| o.name.clone()).enumerate().collect();
            let choices: Vec<_> = names.iter().map(|(i, name)| (name.as_str(), *i)).collect();
            let items = item.texts()?;
            items
                .iter()
                .map(|(item, _)| item.choice(&choices))
                .collect()
        });
        let wait = table.optional("wait_ms");
        objects.push(PageObject {
            name: name.into(),
            count: count.map_or(Ok(1), |item| item.integer(1, 10_000))? as usize,
            size: read_size(&table, &format!("{page}.{name}"))?,
            priority: urgency.map_or(Ok(0), |(kind, item)| read_priority(kind, &item))?,
            after: after?,
            wait: wait.map_or(Ok(Duration::ZERO), |item| item.duration(WAIT, 1e-3))?,
            reported,
        });
        table.finish()?;
    }
    Ok(objects)
}

/// Reads the list of `[[page]]`.
pub(super) fn read_pages(root: &Table<'_>) -> Result<Vec<Page>> {
    let Some(item) = root.optional("page") else {
        return Ok(Vec::new());
    };
    let read = |table: Table<'_>| {
        let name = table.required("name")?.text()?;
        let table = table.named(&format!("page {name}"));
        let objects = read_objects(&table.required("objects")?, name, false)?;
        table.finish()?;
        Ok(Page {
            name: name.into(),
            objects,
        })
    };
    item.tables()?.into_iter().map(read).collect()
}

impl Workload {
    /// Reads `[workload]`.
    pub(super) fn read(item: &Item<'_>, pages: Vec<Page>, path_names: &[String]) -> Result<Self> {
        let table = item.table()?.named("workload");
        let kind = read_kind(&table, pages)?;
        let upload = table.optional("direction").map_or(Ok(false), |item| {
            item.choice(&[("download", false), ("upload", true)])
        })?;
        let paths = read_paths(&table, path_names)?;
        let names: Vec<_> = paths
            .iter()
            .map(|index| path_names[*index].clone())
            .collect();
        let handshake_path = table
            .optional("handshake_path")
            .map_or(Ok(Number::Fixed(0.0)), |item| {
                item.swept_choice(&names, "workload.handshake_path")
            })?;
        let start = table
            .optional("start_s")
            .map_or(Ok(Duration::ZERO), |item| {
                item.duration(Limits::new(0.0, 1e5, "s"), 1.0)
            })?;
        let everywhere = table.optional("starts_everywhere");
        let wait = table.optional("wait_for_paths");
        let workload = Self {
            kind,
            upload,
            paths,
            handshake_path,
            starts_everywhere: everywhere.map_or(Ok(false), |item| item.boolean())?,
            start,
            wait_for_paths: wait.map_or(Ok(false), |item| item.boolean())?,
            inner: table
                .optional("inner")
                .map(|item| controller(&item, item.text()?))
                .transpose()?,
        };
        table.finish()?;
        Ok(workload)
    }
}

/// Reads `paths`; by default, all paths.
pub(super) fn read_paths(table: &Table<'_>, names: &[String]) -> Result<Vec<usize>> {
    let Some(item) = table.optional("paths") else {
        return Ok((0..names.len()).collect());
    };
    let index = |(item, name): &(Item<'_>, &str)| {
        let found = names.iter().position(|known| known == name);
        found.ok_or_else(|| {
            let problem = format!(
                "there is no path \"{name}\"; there are: {}",
                names.join(", ")
            );
            item.error(&problem)
        })
    };
    item.texts()?.iter().map(index).collect()
}

/// Reads `arrivals`: true for random times.
pub(super) fn read_arrivals(table: &Table<'_>) -> Result<bool> {
    table.optional("arrivals").map_or(Ok(false), |item| {
        item.choice(&[("constant", false), ("poisson", true)])
    })
}

fn read_kind(table: &Table<'_>, pages: Vec<Page>) -> Result<Kind> {
    #[derive(Clone, Copy)]
    enum Name {
        File,
        Flows,
        Streams,
        Page,
        Constant,
        Bulk,
        Messages,
        Video,
    }
    let names = [
        ("file", Name::File),
        ("flows", Name::Flows),
        ("streams", Name::Streams),
        ("page", Name::Page),
        ("cbr", Name::Constant),
        ("bulk", Name::Bulk),
        ("messages", Name::Messages),
        ("video", Name::Video),
    ];
    let duration = || table.required("duration_s")?.duration(DURATION, 1.0);
    Ok(match table.required("kind")?.choice(&names)? {
        Name::File => Kind::File {
            size: read_size(table, "workload")?,
        },
        Name::Flows => Kind::Flows {
            count: table.required("count")?.integer(1, 10_000)? as usize,
            size: read_size(table, "workload")?,
        },
        Name::Streams => {
            let objects = read_objects(&table.required("streams")?, "streams", true)?;
            let name = "streams".into();
            Kind::Page {
                pages: vec![Page { name, objects }],
                choice: Number::Fixed(0.0),
            }
        }
        Name::Page => {
            let names: Vec<_> = pages.iter().map(|page| page.name.clone()).collect();
            let choice = table.required("page")?;
            let choice = choice.swept_choice(&names, "page")?;
            Kind::Page { pages, choice }
        }
        Name::Constant => Kind::Constant {
            rate: table
                .required("rate_mbit")?
                .number(RATE, "workload.rate_mbit")?,
            duration: duration()?,
        },
        Name::Bulk => Kind::Bulk {
            duration: duration()?,
        },
        Name::Messages => Kind::Messages {
            every: table.required("every_ms")?.duration(DISTANCE, 1e-3)?,
            poisson: read_arrivals(table)?,
            size: read_size(table, "workload")?,
            deadline: table
                .optional("deadline_ms")
                .map(|item| item.duration(DISTANCE, 1e-3))
                .transpose()?,
            duration: duration()?,
        },
        Name::Video => {
            let rates = table.required("rates_mbit")?;
            let read: Result<Vec<f64>> =
                rates.items()?.iter().map(|item| item.fixed(RATE)).collect();
            let read = read?;
            if !read.is_sorted() {
                return Err(rates.error("the rates must rise"));
            }
            Kind::Video {
                rates: read,
                segment: table.required("segment_s")?.duration(DURATION, 1.0)?,
                duration: duration()?,
            }
        }
    })
}
