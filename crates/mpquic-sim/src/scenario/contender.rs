//! Who takes part: what is compared, who competes, and which results were published.

use std::time::Duration;

use mpquic_core::EcnCodepoint;

use super::number::{Limits, Number};
use super::reader::{Item, Result, Table, controller, scheduler};
use super::workload::{read_arrivals, read_paths};
use crate::policies::Policies;

/// One of the things a scenario compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    /// Its name in results.
    pub name: String,
    /// The name of its scheduler, one of the scenario's policies.
    pub scheduler: String,
    /// The name of its congestion controller, one of the scenario's policies.
    pub controller: String,
    /// Which paths it uses.
    pub paths: UsedPaths,
    /// True if streams have the priorities of their objects; otherwise all take turns.
    pub priorities: bool,
    /// True if its scheduler is told the rates of the paths beforehand, as delivery rates.
    pub know_rates: bool,
    /// How its connection starts.
    pub handshake: Handshake,
    /// When its one path gets another address, if it does.
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
    /// The client has one, and asks with its first packets.
    Early,
}

/// The address of a path changes (RFC 9000 section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// When.
    pub at: Duration,
    /// To which of the scenario's paths.
    pub to: usize,
}

impl Contender {
    /// A contender that uses all paths and has defaults for everything else.
    pub fn new(name: &str, scheduler: &str, controller: &str) -> Self {
        Self {
            name: name.into(),
            scheduler: scheduler.into(),
            controller: controller.into(),
            paths: UsedPaths::All,
            priorities: true,
            know_rates: false,
            handshake: Handshake::default(),
            migration: None,
        }
    }
}

/// Which of its paths a contender uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UsedPaths {
    /// All of them.
    #[default]
    All,
    /// The one with the lowest delay, without multipath.
    LowestDelay,
    /// The one with the highest rate, without multipath.
    HighestRate,
    /// The one with this index, without multipath.
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

/// Every scheduler with every controller; their names say what differs.
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

/// These contenders with every one of these controllers instead of their own. What differed in the
/// controller alone becomes one.
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

/// Reads `schedulers`, `controllers` and the list of `[[contender]]`, which may name one of these paths.
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
            handshake: table
                .optional("handshake")
                .map_or(Ok(Handshake::Full), |item| item.choice(&HANDSHAKES))?,
            migration: read_migration(&table, &only)?,
        });
        table.finish()?;
    }
    Ok(contenders)
}

/// Reads `migrate_s` and `migrate_to`, which come together, beside `paths` with the name of one.
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

/// Another connection that sends as much as it can, or what its source produces.
#[derive(Debug, Clone, PartialEq)]
pub struct Competitor {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// Its congestion controller; `None` for the single-path counterpart of the contender's.
    pub controller: Option<String>,
    /// Which of the scenario's paths it uses.
    pub paths: Vec<usize>,
    /// True if it sends from the client to the server.
    pub upload: bool,
    /// When it starts.
    pub start: Duration,
    /// When it stops; `None` for the end of the run.
    pub stop: Option<Duration>,
    /// What its source produces, Mbit/s; `None` for as much as it can send.
    pub rate: Option<f64>,
}

const TIME: Limits = Limits::new(0.0, 1e5, "s");
const RATE: Limits = Limits::new(0.001, 1e6, "Mbit/s");
/// Addresses have one byte for the number of a connection.
const MAX_COMPETITORS: u64 = 200;
/// The value of a competitor's `controller` that stands for the single-path counterpart of the
/// contender's.
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

/// The time when something ends, which has to be after this start.
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
    /// The path it takes.
    pub path: usize,
    /// True if it goes from the client to the server; otherwise the other way.
    pub up: bool,
    /// Mbit/s of IP packets.
    pub rate: Number,
    /// Bytes of each IP packet.
    pub packet_bytes: usize,
    /// True for random gaps between packets, false for equal ones.
    pub poisson: bool,
    /// How the packets are marked.
    pub ecn: Option<EcnCodepoint>,
    /// When it starts.
    pub from: Duration,
    /// When it stops; `None` for the end of the run.
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
