//! Measures a finished run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpquic_core::Side;

use super::plan::{Plan, Progress};
use super::player::{Client, seconds};
use super::results::PathResult;
use super::stage::Stage;
use super::statistics::quantile;
use crate::scenario::metric::{self, *};
use crate::scenario::{Kind, Scenario};

fn client(stage: &Stage) -> Option<&Client> {
    stage.player(0, Side::Client)?.client.as_ref()
}

/// True if the whole workload was transferred.
pub(super) fn is_done(stage: &Stage) -> bool {
    let Some(client) = client(stage) else {
        return false;
    };
    match &client.plan {
        Plan::Objects(objects) => {
            let finished = finish_times(stage, client);
            finished.len() == objects.len() && finished.iter().all(|(_, at)| at.is_some())
        }
        Plan::Stream(_, duration) => {
            stage.elapsed() >= stage.flows[0].start.saturating_add(*duration)
        }
        Plan::Video(video) => video.is_done(),
    }
}

/// The time at which each object became due, and the time of its arrival at the receiver.
fn finish_times(stage: &Stage, client: &Client) -> Vec<(Progress, Option<Instant>)> {
    let mut times: Vec<_> = client
        .progress
        .iter()
        .map(|progress| (*progress, progress.finished))
        .collect();
    if client.upload {
        times.iter_mut().for_each(|(_, finished)| *finished = None);
        let arrivals = stage.player(0, Side::Server).map(|player| &player.arrivals);
        for (id, arrival) in arrivals.into_iter().flatten() {
            if let Some(index) = client.object_of(*id) {
                times[index].1 = arrival.finished;
            }
        }
    }
    times
}

/// Bytes received so far, per flow.
pub(super) type Received = Vec<u64>;

pub(super) fn received(stage: &Stage) -> Received {
    let flows = 0..stage.flows.len();
    let bytes = |flow| stage.receiver(flow).map_or(0, |player| player.received);
    flows.map(bytes).collect()
}

/// Throughput of each flow since an instant, Mbit/s.
pub(super) fn throughputs(stage: &Stage, since: Duration, before: &Received) -> Vec<f64> {
    let now = received(stage);
    let flows = stage.flows.iter().zip(now.iter().zip(before));
    let rate = |(flow, (now, before)): (&super::stage::Flow, (&u64, &u64))| {
        let time = stage.elapsed().saturating_sub(since.max(flow.start));
        (now - before) as f64 * 8.0 / 1e6 / time.as_secs_f64().max(1e-9)
    };
    flows.map(rate).collect()
}

/// The metrics of the workload. A missing object counts with the time `limit`.
pub(super) fn metrics(scenario: &Scenario, stage: &Stage, flows: &[f64]) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let Some(client) = client(stage) else {
        return metrics;
    };
    let limit = scenario.limit.as_secs_f64();
    let times = finish_times(stage, client);
    let start = stage.start_of(0);
    let objects = client.plan.objects();
    let took = |(progress, finished): &(Progress, Option<Instant>)| match (progress.ready, finished)
    {
        (Some(ready), Some(finished)) => seconds(ready, *finished),
        _ => limit,
    };
    let completion = {
        let ends: Option<Vec<_>> = times.iter().map(|(_, finished)| *finished).collect();
        let last = ends.and_then(|ends| ends.into_iter().max());
        last.map_or(limit, |last| seconds(start, last))
    };
    let mut add = |name: &str, value: f64| metrics.insert(name.to_owned(), value);
    if let Some(connected) = stage
        .player(0, Side::Client)
        .and_then(|player| player.connected)
    {
        add(HANDSHAKE, seconds(start, connected));
    }
    match &scenario.workload.kind {
        Kind::File { .. } => {
            add(COMPLETION, completion);
            add(GOODPUT, goodput(client, &times, completion));
        }
        Kind::Flows { count, .. } => {
            let took: Vec<_> = times.iter().map(took).collect();
            add(FLOW, took.iter().sum::<f64>() / *count as f64);
            add(FLOW_MAX, took.iter().copied().fold(0.0, f64::max));
            add(COMPLETION, completion);
        }
        Kind::Page { pages, choice: _ } => {
            add(PAGE, completion);
            let reported = pages
                .iter()
                .flat_map(|page| page.objects.iter().enumerate());
            for (kind, object) in reported.filter(|(_, object)| object.reported) {
                let of_kind = objects.iter().zip(&times);
                let of_kind = of_kind.filter(|(object, _)| object.kind == kind);
                let took: Vec<_> = of_kind.map(|(_, times)| took(times)).collect();
                let mean = took.iter().sum::<f64>() / took.len().max(1) as f64;
                add(&metric::stream(&object.name), mean);
            }
        }
        Kind::Messages { deadline, .. } => {
            if let Some(deadline) = deadline {
                let is_late = |times: &&_| took(times) > deadline.as_secs_f64();
                let late = times.iter().filter(is_late).count();
                add(LATE, 100.0 * late as f64 / times.len().max(1) as f64);
            }
        }
        Kind::Constant { .. } | Kind::Bulk { .. } => {
            add(THROUGHPUT, flows.first().copied().unwrap_or(0.0));
        }
        Kind::Video { .. } => {
            if let Plan::Video(video) = &client.plan {
                add(BITRATE, video.mean_rate());
                add(STALL, video.stalled().as_secs_f64());
            }
        }
    }
    if flows.len() > 1 {
        let sum: f64 = flows.iter().sum();
        let squares: f64 = flows.iter().map(|rate| rate * rate).sum();
        add(JAIN, sum * sum / (flows.len() as f64 * squares.max(1e-12)));
        let others = flows[1..].iter().sum::<f64>() / (flows.len() - 1) as f64;
        add(TIMES_COMPETITOR, flows[0] / others.max(1e-9));
    }
    add_waits(stage, &times, &mut metrics);
    if scenario.workload.kind.is_of_objects() {
        add_percentiles(times.iter().map(took).collect(), &mut metrics);
    }
    add_network(stage, &mut metrics);
    metrics
}

/// Adds the longest time without arriving bytes, up to the end of the transfer or the run.
fn add_waits(
    stage: &Stage,
    times: &[(Progress, Option<Instant>)],
    metrics: &mut BTreeMap<String, f64>,
) {
    let Some(receiver) = stage.receiver(0) else {
        return;
    };
    let arrived = times.iter().map(|(_, finished)| *finished);
    let all: Vec<_> = arrived.collect::<Option<_>>().unwrap_or_default();
    let end = all.into_iter().max().unwrap_or(stage.now());
    metrics.insert(GAP.into(), receiver.gap.until(end).as_secs_f64());
}

/// Adds percentiles of the times that objects take.
fn add_percentiles(mut took: Vec<f64>, metrics: &mut BTreeMap<String, f64>) {
    took.sort_by(f64::total_cmp);
    for (name, part) in PERCENTILES {
        metrics.insert(name.into(), quantile(&took, part));
    }
}

/// Goodput of the objects that arrived, Mbit/s, up to the end of the last object or of the run.
fn goodput(client: &Client, times: &[(Progress, Option<Instant>)], completion: f64) -> f64 {
    let objects = client.plan.objects().iter().zip(times);
    let arrived = objects.filter(|(_, (_, end))| end.is_some());
    let bytes: u64 = arrived.map(|(object, _)| object.request.size).sum();
    bytes as f64 * 8.0 / 1e6 / completion.max(1e-9)
}

/// Adds metrics of the network: loss, delay, and bytes beyond the requested bytes.
fn add_network(stage: &Stage, metrics: &mut BTreeMap<String, f64>) {
    let (mut dropped, mut packets, mut delay) = (0, 0, 0.0);
    for path in &stage.flows[0].paths {
        let (link, one_way) = stage.data_link(0, *path);
        let counters = link.counters();
        let waited = counters.mean_queue_delay();
        dropped += counters.dropped();
        packets += counters.packets_in;
        delay += (one_way + waited).as_secs_f64() * counters.departed as f64;
    }
    let departed = stage.flows[0].paths.iter();
    let departed: u64 = departed
        .map(|path| stage.data_link(0, *path).0.counters().departed)
        .sum();
    let share = dropped as f64 / packets.max(1) as f64;
    metrics.insert(LOSS.into(), share * 100.0);
    metrics.insert(DELAY.into(), delay / departed.max(1) as f64 * 1e3);
    let sent = stage.path_stats(0).into_values();
    let sent: u64 = sent
        .filter_map(|[sender, _]| Some(sender?.bytes_sent))
        .sum();
    let received = stage.receiver(0).map_or(0, |player| player.received);
    if received > 0 {
        let overhead = sent as f64 / received as f64 - 1.0;
        metrics.insert(OVERHEAD.into(), overhead * 100.0);
    }
}

/// The measurements of each path.
pub(super) fn paths(stage: &Stage) -> Vec<PathResult> {
    let stats = stage.path_stats(0);
    let result = |path: &usize| {
        let sender = stats.get(path).and_then(|[sender, _]| sender.as_ref());
        let counters = stage.data_link(0, *path).0.counters();
        PathResult {
            path: *path,
            bytes: sender.map_or(0, |stats| stats.bytes_sent),
            lost: sender.map_or(0, |stats| stats.packets_lost),
            dropped_queue: counters.dropped_queue,
            dropped_loss: counters.dropped_loss,
            queue_ms: counters.mean_queue_delay().as_secs_f64() * 1e3,
            rtt_ms: sender.map_or(0.0, |stats| stats.rtt.as_secs_f64() * 1e3),
        }
    };
    stage.flows[0].paths.iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::experiment::{Experiment, Run, State};

    fn run(text: &str) -> Run {
        let text = format!(
            "schedulers = \"lrf\"\ncontrollers = [\"newreno\"]\nlimit_s = 60\n{text}\n\
             [[path]]\nname = \"a\"\nrate_mbit = 8\nowd_ms = 10\n"
        );
        let scenario = Scenario::parse("x", &text).unwrap_or_else(|error| panic!("{error}"));
        let mut results = Experiment::new(scenario).run(1, &|| ());
        results.runs.remove(0)
    }

    #[test]
    fn a_flow_is_compared_with_the_mean_of_the_others() {
        let run = run("workload = { kind = \"bulk\", duration_s = 5 }\n\
             [[competitor]]\nname = \"x\"\nrate_mbit = 1\n\
             [[competitor]]\nname = \"y\"\nrate_mbit = 0.5\n");
        let [own, x, y] = run.flows[..] else {
            panic!("{:?}", run.flows);
        };
        assert!(
            (4.0..7.0).contains(&own) && (0.8..1.0).contains(&x),
            "{own} {x}"
        );
        assert!((0.4..0.5).contains(&y), "{y}");
        let sum = own + x + y;
        let jain = sum * sum / (3.0 * (own * own + x * x + y * y));
        assert!((run.metrics[JAIN] - jain).abs() < 1e-12);
        assert!((run.metrics[TIMES_COMPETITOR] - own / f64::midpoint(x, y)).abs() < 1e-9);
        assert_eq!(run.metrics[THROUGHPUT], own);
    }

    #[test]
    fn times_and_rates_of_a_file_agree() {
        let run = run("workload = { kind = \"file\", size_mb = 1 }");
        assert_eq!(run.state, State::Finished);
        let took = run.metrics[COMPLETION];
        assert!((1.0..1.5).contains(&took), "{took}");
        assert!((run.metrics[GOODPUT] - 8.0 / took).abs() < 1e-9);
        let path = &run.paths[0];
        let overhead = path.bytes as f64 / 1e6 - 1.0;
        assert!((run.metrics[OVERHEAD] - 100.0 * overhead).abs() < 1e-9);
        // A round trip, and the first flights at the rate of the path.
        let handshake = run.metrics[HANDSHAKE];
        assert!((0.02..0.025).contains(&handshake), "{handshake}");
        // The delay is the propagation delay and the wait of packets.
        let delay = run.metrics[DELAY];
        assert!((delay - 10.0 - path.queue_ms).abs() < 1e-6, "{delay}");
        assert_eq!(
            run.metrics[LOSS] > 0.0,
            path.dropped_queue + path.dropped_loss > 0
        );
    }

    #[test]
    fn transfer_without_arrivals_has_neither_gap_nor_overhead() {
        let text = "workload = { kind = \"file\", size_mb = 1, direction = \"upload\" }";
        let dead = format!(
            "schedulers = \"lrf\"\nlimit_s = 60\n{text}\n\
             [[path]]\nname = \"a\"\nrate_mbit = 8\nowd_ms = 10\nblackhole = [{{ from = 0 }}]\n"
        );
        let scenario = Scenario::parse("x", &dead).unwrap();
        let run = Experiment::new(scenario).run(1, &|| ()).runs.remove(0);
        assert!(matches!(run.state, State::Failed(_)), "{run:?}");
        assert_eq!((run.metrics[COMPLETION], run.metrics[GOODPUT]), (60.0, 0.0));
        assert_eq!(run.metrics[LOSS], 100.0);
        for missing in [OVERHEAD, GAP, HANDSHAKE] {
            assert!(!run.metrics.contains_key(missing), "{missing}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_opened_later() {
        let text = "schedulers = \"lrf\"\nlimit_s = 60\nworkload = { kind = \"bulk\", duration_s = 30 }\n\
                    [[path]]\nname = \"a\"\nrate_mbit = 1\nowd_ms = 10\n\
                    [[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 10\nblackhole = [{ from = 0, to = 10 }]\n";
        let scenario = Scenario::parse("x", text).unwrap();
        let run = Experiment::new(scenario).run(1, &|| ()).runs.remove(0);
        assert_eq!(run.state, State::Finished);
        assert!(run.paths[1].bytes > 1_000_000, "{:?}", run.paths);
    }
}
