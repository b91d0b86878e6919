//! The participants of a scenario: contenders, competitors and cross traffic.

use std::time::Duration;

use mpquic_core::EcnCodepoint;

use super::number::{Limits, Number};
use super::reader::{Item, Result, Table, controller, scheduler};
use super::workload::{read_arrivals, read_paths};
use crate::policies::Policies;

/// A contender: one of the compared configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// The contender's name in results.
    pub name: String,
    /// The name of its scheduler, one of the scenario's policies.
    pub scheduler: String,
    /// The name of its congestion controller, one of the scenario's policies.
    pub controller: String,
    /// The paths that the contender uses.
    pub paths: UsedPaths,
    /// True if streams have the priorities of their objects; otherwise all streams take turns.
    pub priorities: bool,
    /// True if the scheduler knows the rates of the paths beforehand, as delivery rates.
    pub know_rates: bool,
    /// True if the scheduler knows the propagation delays of the paths beforehand, and sees them as
    /// smoothed RTTs, whatever was measured.
    pub know_rtts: bool,
    /// How the contender's connection starts.
    pub handshake: Handshake,
    /// The only path's change of address, `None` if the path keeps its address.
    pub migration: Option<Migration>,
}

/// How a connection starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Handshake {
    /// Client and server meet for the first time.
    #[default]
    Full,
    /// The client has a session ticket of an earlier connection, and waits for the handshake.
    Resumed,
    /// The client has a session ticket, and sends requests with its first packets (0-RTT).
    Early,
}

/// A change of a path's address (RFC 9000 section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// When the address changes.
    pub at: Duration,
    /// Index of the scenario's path that gives the new address.
    pub to: usize,
}

impl Contender {
    /// A contender on all paths, with defaults for the other fields.
    pub fn new(name: &str, scheduler: &str, controller: &str) -> Self {
        Self {
            name: name.into(),
            scheduler: scheduler.into(),
            controller: controller.into(),
            paths: UsedPaths::All,
            priorities: true,
            know_rates: false,
            know_rtts: false,
            handshake: Handshake::default(),
            migration: None,
        }
    }
}

/// The paths that a contender uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UsedPaths {
    /// All paths.
    #[default]
    All,
    /// The path with the lowest delay, without multipath.
    LowestDelay,
    /// The path with the highest rate, without multipath.
    HighestRate,
    /// The path with this index, without multipath.
    Only(usize),
}

const USED_PATHS: [(&str, UsedPaths); 3] = [
    ("all", UsedPaths::All),
    ("lowest-delay", UsedPaths::LowestDelay),
    ("highest-rate", UsedPaths::HighestRate),
];

const HANDSHAKES: [(&str, Handshake); 3] = [
    ("full", Handshake::Full),
    ("1-rtt", Handshake::Resumed),
    ("0-rtt", Handshake::Early),
];

type Check = fn(&Item<'_>, &str) -> Result<String>;

fn read_names(
    item: Option<Item<'_>>,
    all: fn(&Policies) -> Vec<String>,
    check: Check,
) -> Result<Vec<String>> {
    let Some(item) = item else {
        return Ok(Vec::new());
    };
    if item.text() == Ok("all") {
        return Ok(all(item.policies()));
    }
    let names = item.texts()?;
    names.iter().map(|(item, name)| check(item, name)).collect()
}

/// Every scheduler with every controller. Names contain only the part that differs.
fn combine(schedulers: &[String], controllers: &[String]) -> Vec<Contender> {
    let name = |scheduler: &String, controller: &String| match (schedulers.len(), controllers.len())
    {
        (_, 1) => scheduler.clone(),
        (1, _) => controller.clone(),
        _ => format!("{scheduler}+{controller}"),
    };
    let mut contenders = Vec::new();
    for scheduler in schedulers {
        for controller in controllers {
            let name = name(scheduler, controller);
            contenders.push(Contender::new(&name, scheduler, controller));
        }
    }
    contenders
}

/// Each contender with every controller in the list instead of its own. Contenders that differed
/// only in the controller become one.
pub fn with_controllers(contenders: &[Contender], controllers: &[String]) -> Vec<Contender> {
    let mut bases: Vec<Contender> = Vec::new();
    for contender in contenders {
        let Contender {
            name,
            scheduler,
            controller,
            ..
        } = contender;
        let named_by_controller =
            name == controller || *name == format!("{scheduler}+{controller}");
        let base = Contender {
            name: if named_by_controller { scheduler } else { name }.clone(),
            controller: String::new(),
            ..contender.clone()
        };
        let same = |other: &Contender| {
            Contender {
                name: base.name.clone(),
                ..other.clone()
            } == base
        };
        if !bases.iter().any(same) {
            bases.push(base);
        }
    }
    let name = |base: &Contender, controller: &String| match (bases.len(), controllers.len()) {
        (_, 1) => base.name.clone(),
        (1, _) => controller.clone(),
        _ => format!("{}+{controller}", base.name),
    };
    let each = |base: &Contender| {
        let base = base.clone();
        controllers.iter().map(move |controller| Contender {
            name: name(&base, controller),
            controller: controller.clone(),
            ..base.clone()
        })
    };
    bases.iter().flat_map(each).collect()
}

/// Reads a field that names one of the contenders.
pub(super) fn named(item: &Item<'_>, contenders: &[Contender]) -> Result<String> {
    let names: Vec<_> = contenders.iter().map(|c| (c.name.as_str(), ())).collect();
    item.choice(&names)?;
    Ok(item.text()?.into())
}

/// Reads `schedulers`, `controllers` and the list of `[[contender]]`, which may refer to these
/// paths.
pub(super) fn read_contenders(root: &Table<'_>, paths: &[String]) -> Result<Vec<Contender>> {
    let schedulers = read_names(
        root.optional("schedulers"),
        Policies::scheduler_names,
        scheduler,
    )?;
    let mut controllers = read_names(
        root.optional("controllers"),
        Policies::controller_names,
        controller,
    )?;
    if controllers.is_empty() {
        controllers.push(mpquic_cc::list()[0].name.into());
    }
    let mut contenders = combine(&schedulers, &controllers);
    let Some(item) = root.optional("contender") else {
        if contenders.is_empty() {
            return Err(root.error("`schedulers` or a `[[contender]]` is needed"));
        }
        return Ok(contenders);
    };
    let only: Vec<_> = paths
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), UsedPaths::Only(index)))
        .collect();
    let used: Vec<_> = USED_PATHS.into_iter().chain(only.clone()).collect();
    for table in item.tables()? {
        let name = table.required("name")?;
        let table = table.named(&format!("contender {}", name.text()?));
        if contenders
            .iter()
            .any(|other| Ok(other.name.as_str()) == name.text())
        {
            return Err(name.error("there is one of this name already"));
        }
        let given = |key, check: Check, default: &str| {
            let item = table.optional(key);
            item.map_or(Ok(default.to_owned()), |item| check(&item, item.text()?))
        };
        let paths = table.optional("paths").map(|item| item.choice(&used));
        let flag = |key, default| {
            let item = table.optional(key);
            item.map_or(Ok(default), |item| item.boolean())
        };
        contenders.push(Contender {
            name: name.text()?.into(),
            scheduler: given("scheduler", scheduler, mpquic_sched::list()[0].name)?,
            controller: given("controller", controller, &controllers[0])?,
            paths: paths.transpose()?.unwrap_or_default(),
            priorities: flag("priorities", true)?,
            know_rates: flag("know_rates", false)?,
            know_rtts: flag("know_rtts", false)?,
            handshake: table
                .optional("handshake")
                .map_or(Ok(Handshake::Full), |item| item.choice(&HANDSHAKES))?,
            migration: read_migration(&table, &only)?,
        });
        table.finish()?;
    }
    Ok(contenders)
}

/// Reads `migrate_s` and `migrate_to`, which need each other, and `paths` with the name of a single
/// path.
fn read_migration(table: &Table<'_>, only: &[(&str, UsedPaths)]) -> Result<Option<Migration>> {
    let (at, to) = (table.optional("migrate_s"), table.optional("migrate_to"));
    let (at, to) = match (at, to) {
        (None, None) => return Ok(None),
        (Some(at), Some(to)) => (at, to),
        (Some(item), None) => return Err(item.error("`migrate_to` is needed beside it")),
        (None, Some(item)) => return Err(item.error("`migrate_s` is needed beside it")),
    };
    let from = table
        .optional("paths")
        .and_then(|item| item.choice(only).ok());
    let target = to.choice(only)?;
    match (from, target) {
        (Some(from), UsedPaths::Only(to)) if from != target => Ok(Some(Migration {
            at: at.duration(TIME, 1.0)?,
            to,
        })),
        _ => Err(to.error("`paths` is needed beside it, with the name of one other path")),
    }
}

/// A competitor: another connection that sends as fast as possible, or at the rate of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Competitor {
    /// The competitor's name.
    pub name: String,
    /// The name of its scheduler.
    pub scheduler: String,
    /// The name of its congestion controller; `None` for the single-path counterpart of the
    /// contender's controller.
    pub controller: Option<String>,
    /// Indices of the scenario's paths that the competitor uses.
    pub paths: Vec<usize>,
    /// True for a competitor that sends from the client to the server.
    pub upload: bool,
    /// The start of the competitor.
    pub start: Duration,
    /// The end of the competitor; `None` for the end of the run.
    pub stop: Option<Duration>,
    /// Rate of the competitor's source, Mbit/s; `None` for a source without a limit.
    pub rate: Option<f64>,
}

const TIME: Limits = Limits::new(0.0, 1e5, "s");
const RATE: Limits = Limits::new(0.001, 1e6, "Mbit/s");
/// Addresses have one byte for the number of a connection.
const MAX_COMPETITORS: u64 = 200;
/// The value of a competitor's `controller` that stands for the single-path counterpart of the
/// contender's controller.
const SINGLE_PATH: &str = "single-path";

/// Reads the list of `[[competitor]]`.
pub(super) fn read_competitors(root: &Table<'_>, paths: &[String]) -> Result<Vec<Competitor>> {
    let Some(item) = root.optional("competitor") else {
        return Ok(Vec::new());
    };
    let read = |table: Table<'_>| {
        let name = table.required("name")?.text()?;
        let table = table.named(&format!("competitor {name}"));
        let count = table.optional("count");
        let count = count.map_or(Ok(1), |item| item.integer(1, MAX_COMPETITORS))? as u32;
        let given = |key, check: Check, default: &str| {
            let item = table.optional(key);
            item.map_or(Ok(default.to_owned()), |item| check(&item, item.text()?))
        };
        let start = read_time(&table, "start_s")?.unwrap_or_default();
        let every = read_time(&table, "every_s")?.unwrap_or_default();
        if let (Some(item), 1) = (table.optional("every_s"), count) {
            return Err(
                item.expected("`count` of 2 or more beside it: one connection follows none")
            );
        }
        let last = start + every * (count - 1);
        let upload = table.optional("direction").map_or(Ok(false), |item| {
            item.choice(&[("download", false), ("upload", true)])
        })?;
        let check_controller: Check = |item, name| match name {
            SINGLE_PATH => Ok(name.into()),
            name => controller(item, name),
        };
        let controller = given("controller", check_controller, "newreno")?;
        let rate = table.optional("rate_mbit");
        let competitor = Competitor {
            name: name.into(),
            scheduler: given("scheduler", scheduler, mpquic_sched::list()[0].name)?,
            controller: Some(controller).filter(|name| name != SINGLE_PATH),
            paths: read_paths(&table, paths)?,
            upload,
            start,
            stop: read_end(&table, "stop_s", last)?,
            rate: rate.map(|item| item.fixed(RATE)).transpose()?,
        };
        table.finish()?;
        let one = |number: u32| Competitor {
            name: match count {
                1 => competitor.name.clone(),
                _ => format!("{name}-{number}"),
            },
            start: start + every * (number - 1),
            ..competitor.clone()
        };
        Ok((1..=count).map(one).collect())
    };
    let read: Result<Vec<Vec<_>>> = item.tables()?.into_iter().map(read).collect();
    let competitors = read?.concat();
    let count = competitors.len() as u64;
    if count > MAX_COMPETITORS {
        let problem =
            format!("{count} in all are not possible; expected at most {MAX_COMPETITORS}");
        return Err(item.error(&problem));
    }
    Ok(competitors)
}

fn read_time(table: &Table<'_>, key: &'static str) -> Result<Option<Duration>> {
    let item = table.optional(key);
    item.map(|item| item.duration(TIME, 1.0)).transpose()
}

/// Reads the end of a participant, which has to follow its start.
fn read_end(table: &Table<'_>, key: &'static str, start: Duration) -> Result<Option<Duration>> {
    let end = read_time(table, key)?;
    match table.optional(key).filter(|_| end <= Some(start)) {
        None => Ok(end),
        Some(item) => {
            let start = start.as_secs_f64();
            Err(item.expected(&format!("a time after the start at {start} s")))
        }
    }
}

/// Cross traffic: packets that belong to no connection and use up the rate of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossTraffic {
    /// Index of the path.
    pub path: usize,
    /// True for traffic from the client to the server, false for traffic to the client.
    pub up: bool,
    /// Rate in Mbit/s of IP packets.
    pub rate: Number,
    /// Size of each IP packet, bytes.
    pub packet_bytes: usize,
    /// True for random intervals between packets, false for equal intervals.
    pub poisson: bool,
    /// The ECN codepoint of the packets.
    pub ecn: Option<EcnCodepoint>,
    /// When the traffic starts.
    pub from: Duration,
    /// When the traffic stops; `None` for the end of the run.
    pub to: Option<Duration>,
}

/// Reads the list of `[[cross]]`.
pub(super) fn read_cross_traffic(root: &Table<'_>, paths: &[String]) -> Result<Vec<CrossTraffic>> {
    let Some(item) = root.optional("cross") else {
        return Ok(Vec::new());
    };
    let read = |(table, index): (Table<'_>, usize)| {
        let table = table.named("cross");
        let names: Vec<_> = paths
            .iter()
            .enumerate()
            .map(|(i, name)| (name.as_str(), i))
            .collect();
        let packet_bytes = table.optional("packet_bytes");
        let from = read_time(&table, "from")?.unwrap_or_default();
        let cross = CrossTraffic {
            path: table.required("path")?.choice(&names)?,
            up: table.optional("dir").map_or(Ok(false), |item| {
                item.choice(&[("c2s", true), ("s2c", false)])
            })?,
            rate: table
                .required("rate_mbit")?
                .number(RATE, &format!("cross{index}.rate_mbit"))?,
            packet_bytes: packet_bytes.map_or(Ok(1500), |item| item.integer(29, 65_535))? as usize,
            poisson: read_arrivals(&table)?,
            ecn: table.optional("ecn").map_or(Ok(None), |item| {
                item.choice(&[
                    ("none", None),
                    ("ect0", Some(EcnCodepoint::Ect0)),
                    ("ect1", Some(EcnCodepoint::Ect1)),
                ])
            })?,
            from,
            to: read_end(&table, "to", from)?,
        };
        table.finish()?;
        Ok(cross)
    };
    item.tables()?.into_iter().zip(1..).map(read).collect()
}
