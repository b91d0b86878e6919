//! From the text of a scenario file to one `Plan` for each path and direction.

mod fields;
#[cfg(test)]
mod tests;

use crate::link::{Backlog, Change, Params, Plan, Vary};
use fields::{At, Fields, File, PathTable};

/// What the plans of all paths need besides the path's table.
struct Common {
    seed: u64,
    /// Nanoseconds.
    interval: u64,
}

/// A path with its plans.
pub(crate) struct PathPlan {
    pub(crate) name: String,
    pub(crate) mtu: u32,
    /// Client to server, server to client.
    pub(crate) dir: [Plan; 2],
}

/// A scenario.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) threads: Option<String>,
    /// The server's source address decides the path of an answer, not the client's address.
    pub(crate) source_routing: bool,
    /// The interval of the statistics in nanoseconds.
    pub(crate) interval_ns: u64,
    pub(crate) sysctl: Vec<(String, String)>,
    pub(crate) paths: Vec<PathPlan>,
}

/// The names of the directions: client to server, server to client.
pub(crate) const DIRS: [&str; 2] = ["c2s", "s2c"];

/// The most paths; each has a network 10.(100 + i).0.0/24.
const MOST_PATHS: usize = 100;

/// Random streams of a path: one for each direction's packets, one for the variation of both, and
/// one for the variation of each.
const STREAMS: u64 = 8;

fn dirs(dir: &Option<String>, place: &str) -> Result<[bool; 2], String> {
    match dir.as_deref() {
        None | Some("both") => Ok([true, true]),
        Some("c2s") => Ok([true, false]),
        Some("s2c") => Ok([false, true]),
        Some(other) => Err(format!("{place}: dir = \"{other}\": use both, c2s or s2c")),
    }
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round().max(0.0) as u64
}

/// Reads a scenario. `seed` replaces the file's seed.
pub(crate) fn parse(
    text: &str,
    fallback_name: &str,
    seed: Option<u64>,
) -> Result<Scenario, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    let common = Common {
        seed: seed.unwrap_or(file.seed),
        interval: (file.interval_ms * 1e6) as u64,
    };
    if common.interval == 0 {
        return Err(format!(
            "interval_ms = {} is not positive",
            file.interval_ms
        ));
    }
    if file.path.is_empty() || file.path.len() > MOST_PATHS {
        return Err(format!(
            "{} [[path]] tables: use 1 to {MOST_PATHS}",
            file.path.len()
        ));
    }
    let paths = file
        .path
        .iter()
        .enumerate()
        .map(|(i, table)| path(i, table, &common))
        .collect::<Result<_, _>>()?;
    let sysctl = file.sysctl.into_iter().map(|(key, value)| match value {
        toml::Value::String(text) => (key, text),
        other => (key, other.to_string()),
    });
    Ok(Scenario {
        name: file.name.unwrap_or(fallback_name.to_string()),
        seed: common.seed,
        threads: file.threads,
        source_routing: match file.server_routing.as_deref() {
            None | Some("dest") => false,
            Some("source") => true,
            Some(other) => {
                return Err(format!("server_routing = \"{other}\": use dest or source"));
            }
        },
        interval_ns: common.interval,
        sysctl: sysctl.collect(),
        paths,
    })
}

fn path(i: usize, table: &PathTable, common: &Common) -> Result<PathPlan, String> {
    let name = table.name.clone().unwrap_or(format!("p{i}"));
    let place = format!("path {i} ({name})");
    table.both.check(&place)?;
    table.c2s.check(&format!("{place} c2s"))?;
    table.s2c.check(&format!("{place} s2c"))?;
    let mtu = table.mtu.unwrap_or(1500);
    if !(68..=65_535).contains(&mtu) {
        return Err(format!("{place}: mtu = {mtu} is not within 68 and 65535"));
    }
    let fields = [&table.c2s, &table.s2c].map(|d| table.both.over(d));
    let base = resolve(&fields, &place)?;
    let changes = changes(table, fields, &place)?;
    let vary = table.vary.as_ref().map(|v| Vary {
        every: ((v.every_ms * 1e6) as u64).max(1),
        rate: v.rate_pct / 100.0,
        owd: v.owd_pct / 100.0,
        loss: v.loss_points / 100.0,
    });
    let shared = table.vary.as_ref().is_none_or(|v| v.shared);
    let first = i as u64 * STREAMS;
    let plan = |dir: u64, base: Params, changes: Vec<(u64, Change)>| Plan {
        base,
        changes,
        vary,
        seed: common.seed,
        stream: first + dir,
        vary_stream: first + if shared { 4 } else { 5 + dir },
        interval: common.interval,
    };
    let ([c2s, s2c], [c2s_changes, s2c_changes]) = (base, changes);
    Ok(PathPlan {
        name,
        mtu,
        dir: [plan(0, c2s, c2s_changes), plan(1, s2c, s2c_changes)],
    })
}

fn resolve(fields: &[Fields; 2], place: &str) -> Result<[Params; 2], String> {
    let rtt_ms = fields[0].owd_ms.unwrap_or(0.0) + fields[1].owd_ms.unwrap_or(0.0);
    Ok([
        fields[0].params(&format!("{place} c2s"), rtt_ms)?,
        fields[1].params(&format!("{place} s2c"), rtt_ms)?,
    ])
}

/// The changes of both directions, sorted by time.
fn changes(
    table: &PathTable,
    mut fields: [Fields; 2],
    place: &str,
) -> Result<[Vec<(u64, Change)>; 2], String> {
    let mut changes: [Vec<(u64, Change)>; 2] = [vec![], vec![]];
    let mut ats: Vec<&At> = table.at.iter().collect();
    ats.sort_by(|a, b| a.t.total_cmp(&b.t));
    for at in ats {
        let place = format!("{place} at {}", at.t);
        at.set.check(&place)?;
        let on = dirs(&at.dir, &place)?;
        for d in 0..2 {
            if on[d] {
                fields[d] = fields[d].over(&at.set);
            }
        }
        // Both directions change: the default queue limit of either depends on the round trip.
        for (d, params) in resolve(&fields, &place)?.into_iter().enumerate() {
            changes[d].push((ns(at.t), Change::Set(params)));
        }
    }
    for outage in &table.blackhole {
        let on = dirs(&outage.dir, &format!("{place} blackhole"))?;
        for d in 0..2 {
            if on[d] {
                changes[d].push((ns(outage.from), Change::Blackhole(true)));
                if let Some(to) = outage.to {
                    changes[d].push((ns(to), Change::Blackhole(false)));
                }
            }
        }
    }
    for list in &mut changes {
        list.sort_by_key(|change| change.0);
    }
    Ok(changes)
}

impl Scenario {
    /// A line for each path and direction.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{} (seed {})\n", self.name, self.seed);
        for (i, path) in self.paths.iter().enumerate() {
            for (dir, plan) in DIRS.iter().zip(&path.dir) {
                let base = &plan.base;
                text += &format!(
                    "path {i} {:<10} {dir} {:>8.3} Mbit/s owd {:>7.2} ms loss {:>6.3} % queue {} mtu {}",
                    path.name,
                    base.rate / 1e6,
                    base.owd / 1e6,
                    base.loss * 100.0,
                    queue(&base.queue),
                    path.mtu,
                );
                if let Some(v) = plan.vary {
                    text += &format!(
                        ", every {} ms rate +-{} % owd +-{} % loss +-{} points",
                        v.every as f64 / 1e6,
                        v.rate * 100.0,
                        v.owd * 100.0,
                        v.loss * 100.0
                    );
                }
                if !plan.changes.is_empty() {
                    text += &format!(", {} scheduled changes", plan.changes.len());
                }
                text += "\n";
            }
        }
        text
    }
}

fn queue(limit: &Backlog) -> String {
    let mut parts = vec![];
    if limit.bytes.is_finite() {
        parts.push(format!("{:.0} B", limit.bytes));
    }
    if limit.packets.is_finite() {
        parts.push(format!("{:.0} packets", limit.packets));
    }
    if limit.time.is_finite() {
        parts.push(format!("{} ms", limit.time / 1e6));
    }
    if parts.is_empty() {
        "unlimited".into()
    } else {
        parts.join(" / ")
    }
}
