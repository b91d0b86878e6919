//! The tables of a scenario file, as they stand in the file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::link::{Backlog, Gilbert, Params};

/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;
/// The longest delay, in milliseconds.
const LONGEST_MS: f64 = 1e6;
/// The default queue holds at least so many seconds of the rate.
const LEAST_QUEUE_S: f64 = 0.05;

/// A whole scenario file.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<String>,
    /// For people who read the file.
    #[serde(rename = "description")]
    pub(super) _description: Option<String>,
    #[serde(default = "one")]
    pub(super) seed: u64,
    /// "direction" (default), "single" or "link".
    pub(super) threads: Option<String>,
    /// "dest" (default) or "source": how the server's namespace chooses the path of an answer.
    pub(super) server_routing: Option<String>,
    #[serde(default = "hundred")]
    pub(super) interval_ms: f64,
    /// Settings of both namespaces.
    #[serde(default)]
    pub(super) sysctl: BTreeMap<String, toml::Value>,
    pub(super) path: Vec<PathTable>,
}

fn one() -> u64 {
    1
}

fn hundred() -> f64 {
    100.0
}

/// A `[[path]]` table.
#[derive(Deserialize, Debug, Clone)]
pub(super) struct PathTable {
    pub(super) name: Option<String>,
    pub(super) mtu: Option<u32>,
    #[serde(flatten)]
    pub(super) both: Fields,
    #[serde(default)]
    pub(super) c2s: Fields,
    #[serde(default)]
    pub(super) s2c: Fields,
    #[serde(default)]
    pub(super) at: Vec<At>,
    #[serde(default)]
    pub(super) blackhole: Vec<Outage>,
    pub(super) vary: Option<VaryTable>,
}

/// The fields of a link, each of which a direction or a later time may override.
#[derive(Deserialize, Debug, Clone, Default)]
pub(super) struct Fields {
    rate_mbit: Option<f64>,
    pub(super) owd_ms: Option<f64>,
    jitter_ms: Option<f64>,
    jitter_dist: Option<String>,
    allow_reorder: Option<bool>,
    loss_pct: Option<f64>,
    gilbert: Option<GilbertTable>,
    duplicate_pct: Option<f64>,
    reorder_pct: Option<f64>,
    reorder_extra_ms: Option<f64>,
    queue: Option<String>,
    queue_ms: Option<f64>,
    queue_bytes: Option<f64>,
    queue_packets: Option<f64>,
    ecn_ms: Option<f64>,
    ecn_bytes: Option<f64>,
    ecn_packets: Option<f64>,
    /// Whatever else the table has; `check` refuses such fields. (serde cannot refuse unknown
    /// fields of a flattened table.)
    #[serde(flatten)]
    rest: BTreeMap<String, toml::Value>,
}

/// Losses in bursts: four parameters, or the mean loss and the mean length of a burst in packets.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
struct GilbertTable {
    p_good_bad: Option<f64>,
    p_bad_good: Option<f64>,
    #[serde(default)]
    loss_good_pct: f64,
    loss_bad_pct: Option<f64>,
    mean_loss_pct: Option<f64>,
    mean_burst: Option<f64>,
}

/// A `[[path.at]]` table: fields from a time on.
#[derive(Deserialize, Debug, Clone)]
pub(super) struct At {
    /// Seconds.
    pub(super) t: f64,
    /// "both" (default), "c2s" or "s2c".
    pub(super) dir: Option<String>,
    #[serde(flatten)]
    pub(super) set: Fields,
}

/// An outage of a path, in seconds.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub(super) struct Outage {
    pub(super) from: f64,
    pub(super) to: Option<f64>,
    pub(super) dir: Option<String>,
}

/// A `[path.vary]` table.
#[derive(Deserialize, Debug, Clone)]
#[serde(deny_unknown_fields)]
pub(super) struct VaryTable {
    #[serde(default = "hundred")]
    pub(super) every_ms: f64,
    #[serde(default)]
    pub(super) rate_pct: f64,
    #[serde(default)]
    pub(super) owd_pct: f64,
    #[serde(default)]
    pub(super) loss_points: f64,
    /// Both directions draw the same values.
    #[serde(default = "yes")]
    pub(super) shared: bool,
}

fn yes() -> bool {
    true
}

impl GilbertTable {
    fn resolve(&self, place: &str) -> Result<Gilbert, String> {
        let pct = |v: f64, name: &str| percent(place, name, Some(v));
        let probability = |v: f64, name: &str| {
            if (0.0..=1.0).contains(&v) {
                Ok(v)
            } else {
                Err(format!("{place}: {name} = {v} is not within 0 and 1"))
            }
        };
        let four = (self.p_good_bad, self.p_bad_good);
        match (self.mean_loss_pct, self.mean_burst, four) {
            (Some(mean), Some(burst), (None, None)) => {
                let loss = pct(mean, "gilbert.mean_loss_pct")?;
                if loss == 1.0 {
                    return Err(format!(
                        "{place}: gilbert.mean_loss_pct = {mean} leaves no packet (for an outage use blackhole)"
                    ));
                }
                let recovery = 1.0 / burst.max(1.0);
                Ok(Gilbert {
                    p_good_bad: loss * recovery / (1.0 - loss),
                    p_bad_good: recovery,
                    loss_good: 0.0,
                    loss_bad: 1.0,
                })
            }
            (None, None, (Some(good_bad), Some(bad_good))) => Ok(Gilbert {
                p_good_bad: probability(good_bad, "gilbert.p_good_bad")?,
                p_bad_good: probability(bad_good, "gilbert.p_bad_good")?,
                loss_good: pct(self.loss_good_pct, "gilbert.loss_good_pct")?,
                loss_bad: pct(self.loss_bad_pct.unwrap_or(100.0), "gilbert.loss_bad_pct")?,
            }),
            _ => Err(format!(
                "{place}: gilbert needs mean_loss_pct + mean_burst, or p_good_bad + p_bad_good"
            )),
        }
    }
}

fn percent(place: &str, name: &str, value: Option<f64>) -> Result<f64, String> {
    let value = value.unwrap_or(0.0);
    if (0.0..=100.0).contains(&value) {
        Ok(value / 100.0)
    } else {
        Err(format!("{place}: {name} = {value} is not within 0 and 100"))
    }
}

/// A time in nanoseconds, from milliseconds.
fn time(place: &str, name: &str, ms: f64) -> Result<f64, String> {
    if (0.0..=LONGEST_MS).contains(&ms) {
        Ok(ms * MS)
    } else {
        Err(format!(
            "{place}: {name} = {ms} is not within 0 and {LONGEST_MS}"
        ))
    }
}

impl Fields {
    /// The fields of `other`, and these fields where `other` has none. A queue limit in `other`
    /// replaces all queue limits, because a smaller limit in another unit would otherwise stay in
    /// force.
    pub(super) fn over(&self, other: &Fields) -> Fields {
        let has_queue = other.queue.is_some()
            || other.queue_ms.is_some()
            || other.queue_bytes.is_some()
            || other.queue_packets.is_some();
        let has_ecn =
            other.ecn_ms.is_some() || other.ecn_bytes.is_some() || other.ecn_packets.is_some();
        let queue = if has_queue { other } else { self };
        let ecn = if has_ecn { other } else { self };
        Fields {
            rate_mbit: other.rate_mbit.or(self.rate_mbit),
            owd_ms: other.owd_ms.or(self.owd_ms),
            jitter_ms: other.jitter_ms.or(self.jitter_ms),
            jitter_dist: other.jitter_dist.clone().or(self.jitter_dist.clone()),
            allow_reorder: other.allow_reorder.or(self.allow_reorder),
            loss_pct: other.loss_pct.or(self.loss_pct),
            gilbert: other.gilbert.clone().or(self.gilbert.clone()),
            duplicate_pct: other.duplicate_pct.or(self.duplicate_pct),
            reorder_pct: other.reorder_pct.or(self.reorder_pct),
            reorder_extra_ms: other.reorder_extra_ms.or(self.reorder_extra_ms),
            queue: queue.queue.clone(),
            queue_ms: queue.queue_ms,
            queue_bytes: queue.queue_bytes,
            queue_packets: queue.queue_packets,
            ecn_ms: ecn.ecn_ms,
            ecn_bytes: ecn.ecn_bytes,
            ecn_packets: ecn.ecn_packets,
            rest: BTreeMap::new(),
        }
    }

    /// Fails if the table has a field that netlab does not know.
    pub(super) fn check(&self, place: &str) -> Result<(), String> {
        match self.rest.keys().next() {
            Some(field) => Err(format!("{place}: unknown field '{field}'")),
            None => Ok(()),
        }
    }

    /// The parameters of a link. The default queue limit needs the path's round trip in
    /// milliseconds.
    pub(super) fn params(&self, place: &str, rtt_ms: f64) -> Result<Params, String> {
        let missing = |name: &str| format!("{place}: {name} is missing");
        let rate_mbit = self.rate_mbit.ok_or_else(|| missing("rate_mbit"))?;
        let owd_ms = self.owd_ms.ok_or_else(|| missing("owd_ms"))?;
        // Slower links would need times that the clock cannot hold.
        if rate_mbit.is_nan() || rate_mbit < 0.0001 {
            return Err(format!(
                "{place}: rate_mbit = {rate_mbit} is not at least 0.0001 (for an outage use blackhole)"
            ));
        }
        let rate = rate_mbit * 1e6;
        let gilbert = self
            .gilbert
            .as_ref()
            .map(|g| g.resolve(place))
            .transpose()?;
        Ok(Params {
            rate,
            owd: time(place, "owd_ms", owd_ms)?,
            jitter: time(place, "jitter_ms", self.jitter_ms.unwrap_or(0.0))?,
            jitter_normal: match self.jitter_dist.as_deref() {
                None | Some("uniform") => false,
                Some("normal") => true,
                Some(other) => {
                    return Err(format!(
                        "{place}: jitter_dist = \"{other}\": use uniform or normal"
                    ));
                }
            },
            allow_reorder: self.allow_reorder.unwrap_or(false),
            loss: percent(place, "loss_pct", self.loss_pct)?,
            gilbert,
            duplicate: percent(place, "duplicate_pct", self.duplicate_pct)?,
            reorder: percent(place, "reorder_pct", self.reorder_pct)?,
            reorder_extra: time(
                place,
                "reorder_extra_ms",
                self.reorder_extra_ms.unwrap_or(5.0),
            )?,
            queue: self.queue_limit(place, rate, rtt_ms)?,
            ecn: backlog(self.ecn_ms, self.ecn_bytes, self.ecn_packets),
        })
    }

    fn queue_limit(&self, place: &str, rate: f64, rtt_ms: f64) -> Result<Backlog, String> {
        let given =
            self.queue_ms.is_some() || self.queue_bytes.is_some() || self.queue_packets.is_some();
        match self.queue.as_deref() {
            Some("none") => Ok(Backlog::NONE),
            // One bandwidth-delay product, and at least some time of the rate.
            Some("auto") | None if !given => Ok(Backlog {
                bytes: rate / 8.0 * (rtt_ms / 1e3).max(LEAST_QUEUE_S),
                ..Backlog::NONE
            }),
            None => Ok(backlog(self.queue_ms, self.queue_bytes, self.queue_packets)),
            Some("auto") => Err(format!(
                "{place}: queue = \"auto\" cannot stand beside queue_ms, queue_bytes or queue_packets"
            )),
            Some(other) => Err(format!(
                "{place}: queue = \"{other}\": use \"auto\", \"none\", or queue_ms/bytes/packets"
            )),
        }
    }
}

fn backlog(ms: Option<f64>, bytes: Option<f64>, packets: Option<f64>) -> Backlog {
    Backlog {
        bytes: bytes.unwrap_or(f64::INFINITY),
        packets: packets.unwrap_or(f64::INFINITY),
        time: ms.map_or(f64::INFINITY, |v| v * MS),
    }
}
