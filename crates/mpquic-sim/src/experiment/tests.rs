use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mpquic_core::sched::{Decision, Needs, Scheduler, View};

use super::*;
use crate::policies::Policies;
use crate::scenario::Scenario;

const TWO_PATHS: &str = "
    schedulers = [\"lrf\", \"round-robin\"]
    limit_s = 60
    [[path]]
    name = \"a\"
    rate_mbit = 20
    owd_ms = 10
    s2c = { loss_pct = \"0..0.5\" }
    [[path]]
    name = \"b\"
    rate_mbit = 10
    rtt_ms = \"30..60\"
";

fn run(text: &str) -> ScenarioResults {
    let scenario = Scenario::parse("test.toml", text).unwrap();
    Experiment::new(scenario).run(1, &|| ())
}

fn metric(results: &ScenarioResults, run: usize, name: &str) -> f64 {
    let metrics = &results.runs[run].metrics;
    *metrics.get(name).unwrap_or_else(|| panic!("{metrics:?}"))
}

fn assert_all_finished(results: &ScenarioResults) {
    for run in &results.runs {
        assert_eq!(run.state, State::Finished, "{run:?}");
    }
}

#[test]
fn equal_seeds_give_equal_bytes_on_any_number_of_threads() {
    let text = format!("runs = 3\n{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_mb = 1");
    let scenario = Scenario::parse("test.toml", &text).unwrap();
    let outcome = |threads, seed| {
        let scenario = Scenario {
            seed,
            ..scenario.clone()
        };
        let results = Experiment::new(scenario).run(threads, &|| ());
        assert_all_finished(&results);
        let results = Results {
            scenarios: vec![results],
        };
        [
            results.runs_csv(),
            results.summary_csv(),
            results.traces_csv(),
        ]
        .concat()
    };
    let first = outcome(1, 7);
    assert_eq!(first, outcome(3, 7));
    assert_ne!(first, outcome(1, 8));
}

#[test]
fn a_file_comes_over_both_paths_faster_than_the_better_one_could_carry_it() {
    let text = format!("{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_mb = 10");
    let text = text.replace("\"0..0.5\"", "0");
    let results = run(&text);
    assert_all_finished(&results);
    for run in 0..2 {
        // 10 MB take 4 s on the better path alone, and 2.7 s on both.
        let took = metric(&results, run, "completion_s");
        assert!((2.7..3.8).contains(&took), "{took}");
        let paths = &results.runs[run].paths;
        assert!(paths.iter().all(|path| path.bytes > 1_000_000), "{paths:?}");
        let handshake = metric(&results, run, "handshake_s");
        assert!((0.02..0.05).contains(&handshake), "{handshake}");
    }
    let trace = &results.traces[0];
    assert_eq!(trace.received[0].last(), Some(&10_000_000));
    assert!(trace.window[1].iter().any(|window| *window > 20_000));
}

#[test]
fn longest_time_without_arrivals_is_measured() {
    let one_path = "
        schedulers = [\"lrf\"]
        [[path]]
        name = \"a\"
        rate_mbit = 20
        owd_ms = 10
        blackhole = [{ from = 1, to = 2 }]
        [workload]
        kind = \"file\"
        size_mb = 5
    ";
    let dead = metric(&run(one_path), 0, "gap_s");
    // By the end of the outage, probe timeouts have doubled to half of its length.
    assert!((1.0..1.6).contains(&dead), "{dead}");
    let alive = metric(
        &run(&one_path.replace("from = 1, to = 2", "from = 50")),
        0,
        "gap_s",
    );
    // Packets behind a lost packet wait for its repetition, behind a full queue.
    assert!(alive < 0.1, "{alive}");
    let cut_short = format!("limit_s = 1.5\n{one_path}");
    let until_the_end = metric(&run(&cut_short), 0, "gap_s");
    assert!((0.48..0.51).contains(&until_the_end), "{until_the_end}");
}

#[test]
fn percentiles_of_objects_are_between_the_first_and_the_last() {
    let text = format!("{TWO_PATHS}\n[workload]\nkind = \"flows\"\ncount = 20\nsize_kb = 100");
    let results = run(&text);
    assert_all_finished(&results);
    let of = |name| metric(&results, 0, name);
    assert!(of("object_p50_s") < of("object_p95_s"));
    assert!(of("object_p95_s") < of("object_p99_s"));
    assert!(of("object_p99_s") <= of("flow_max_s"));
    assert!(
        of("object_p50_s") >= 0.04,
        "less than a round trip and the time at the rate"
    );
}

#[test]
fn a_run_that_takes_too_long_is_counted_with_the_limit() {
    let text = format!("{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_mb = 100");
    let results = run(&text.replace("limit_s = 60", "limit_s = 2"));
    for index in 0..2 {
        assert_eq!(results.runs[index].state, State::Unfinished);
        assert_eq!(metric(&results, index, "completion_s"), 2.0);
    }
    let cell = Cell {
        sweep: 0,
        contender: 0,
    };
    let summary = results.summary(cell, "completion_s");
    assert_eq!((summary.statistics.count, summary.unfinished), (1, 1));
}

#[test]
fn a_connection_that_cannot_be_made_is_counted_as_failed() {
    let text = format!("{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_mb = 1");
    let dead = text.replace("owd_ms = 10\n", "owd_ms = 10\nblackhole = [{ from = 0 }]\n");
    let results = run(&dead);
    for run in &results.runs {
        assert!(matches!(run.state, State::Failed(_)), "{run:?}");
        assert_eq!(run.metrics["completion_s"], 60.0);
    }
}

#[test]
fn objects_wait_for_their_dependencies() {
    let text = format!(
        "{TWO_PATHS}
        [workload]
        kind = \"page\"
        page = [\"flat\", \"deep\"]
        [[page]]
        name = \"flat\"
        objects = [{{ name = \"all\", size_kb = 10, count = 150 }}]
        [[page]]
        name = \"deep\"
        objects = [
            {{ name = \"html\", size_kb = 26 }},
            {{ name = \"css\", size_kb = 10, count = 2, after = \"html\" }},
            {{ name = \"image\", size_kb = 10, count = 5, after = \"css\", priority = 3 }},
        ]"
    );
    let results = run(&text);
    assert_all_finished(&results);
    let labels: Vec<_> = results
        .sweeps
        .iter()
        .map(|sweep| sweep_label(sweep))
        .collect();
    assert_eq!(labels, ["page=flat", "page=deep"]);
    // The shorter RTT is 20 ms: one round trip for the handshake, then at least one per level.
    let deep = metric(&results, 2, "page_s");
    assert!((0.08..0.4).contains(&deep), "{deep}");
    let flat = metric(&results, 0, "page_s");
    assert!(
        (0.4..1.5).contains(&flat),
        "1.5 MB over 30 Mbit/s in {flat} s"
    );
}

#[test]
fn flows_follow_each_other_and_streams_run_together() {
    let flows = format!("{TWO_PATHS}\n[workload]\nkind = \"flows\"\ncount = 4\nsize_mb = 1");
    let results = run(&flows);
    assert_all_finished(&results);
    let (mean, all) = (
        metric(&results, 0, "flow_s"),
        metric(&results, 0, "completion_s"),
    );
    assert!(all > 4.0 * mean && all < 4.0 * mean + 0.1, "{mean} {all}");
    let streams = format!(
        "{TWO_PATHS}
        [workload]
        kind = \"streams\"
        streams = [
            {{ name = \"A\", size_kb = 26, weight = 255 }},
            {{ name = \"B\", size_kb = 900, weight = 8 }},
        ]"
    );
    let results = run(&streams);
    assert_all_finished(&results);
    assert_eq!(results.metric, "stream_A_s");
    let (a, b) = (
        metric(&results, 0, "stream_A_s"),
        metric(&results, 0, "stream_B_s"),
    );
    assert!(a < b && b > 0.25, "{a} {b}");
}

#[test]
fn a_source_of_constant_rate_is_limited_by_itself_or_by_the_paths() {
    let text =
        format!("{TWO_PATHS}\n[workload]\nkind = \"cbr\"\nrate_mbit = [4, 60]\nduration_s = 5");
    let results = run(&text.replace("\"0..0.5\"", "0"));
    assert_all_finished(&results);
    let slow = metric(&results, 0, "throughput_mbit");
    assert!((3.8..=4.0).contains(&slow), "{slow}");
    let fast = metric(&results, 2, "throughput_mbit");
    assert!((22.0..30.0).contains(&fast), "{fast}");
}

#[test]
fn competitors_share_a_bottleneck_and_cross_traffic_takes_from_it() {
    let text = "
        schedulers = \"lrf\"
        controllers = [\"newreno\"]
        limit_s = 30
        warm_up_s = 5
        [workload]
        kind = \"bulk\"
        duration_s = 20
        paths = \"a\"
        [[link]]
        name = \"shared\"
        rate_mbit = 20
        owd_ms = 5
        [[path]]
        name = \"a\"
        rate_mbit = 100
        owd_ms = 5
        via = \"shared\"
        [[path]]
        name = \"b\"
        rate_mbit = 100
        owd_ms = 5
        via = \"shared\"
        [[competitor]]
        name = \"reno\"
        paths = \"b\"
    ";
    let results = run(text);
    assert_all_finished(&results);
    let flows = &results.runs[0].flows;
    let sum: f64 = flows.iter().sum();
    assert!((17.0..20.0).contains(&sum), "{flows:?}");
    assert!(flows.iter().all(|rate| *rate > 5.0), "{flows:?}");
    let alike = text.replace(
        "paths = \"b\"",
        "paths = \"b\"\ncontroller = \"single-path\"",
    );
    assert_eq!(run(&alike).runs[0].flows, *flows);
    let bbr = alike.replace("\"newreno\"", "\"bbr\"");
    assert_eq!(
        run(&bbr).runs[0].flows,
        run(&bbr.replace("\"single-path\"", "\"bbr\"")).runs[0].flows
    );
    let cross = "[[cross]]\npath = \"a\"\nrate_mbit = 95\narrivals = \"poisson\"\n";
    let results = run(&(text.to_owned() + cross));
    let squeezed = &results.runs[0].flows;
    assert!(squeezed[0] < 6.0 && squeezed[1] > flows[1], "{squeezed:?}");
}

#[test]
fn an_upload_is_measured_where_it_arrives() {
    let text =
        format!("{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_mb = 5\ndirection = \"upload\"");
    let results = run(&text);
    assert_all_finished(&results);
    let took = metric(&results, 0, "completion_s");
    assert!((1.3..3.0).contains(&took), "{took}");
    assert!(
        results.runs[0]
            .paths
            .iter()
            .all(|path| path.bytes > 500_000)
    );
}

#[test]
fn a_video_takes_the_quality_the_paths_can_carry() {
    let text = format!(
        "{TWO_PATHS}
        [workload]
        kind = \"video\"
        rates_mbit = [1, 5, 15, 60]
        segment_s = 4
        duration_s = 40"
    );
    let results = run(&text.replace("\"0..0.5\"", "0"));
    assert_all_finished(&results);
    let rate = metric(&results, 0, "bitrate_mbit");
    assert!((8.0..15.0).contains(&rate), "{rate}");
    assert_eq!(metric(&results, 0, "stall_s"), 0.0);
}

#[test]
fn swap_of_two_paths_is_measured() {
    let text = format!("{TWO_PATHS}\n[workload]\nkind = \"bulk\"\nduration_s = 10")
        + "\n[[swap]]\nt = 5\npaths = [\"a\", \"b\"]\n";
    let results = run(&text.replace("\"0..0.5\"", "0"));
    assert_all_finished(&results);
    let trace = &results.traces[0];
    let at = |path: usize, seconds: f64| {
        trace.path_bytes[path][(seconds / trace.interval_s) as usize] as f64
    };
    let rate = |path, from, to| (at(path, to) - at(path, from)) * 8e-6 / (to - from);
    assert!(rate(0, 2.0, 5.0) > 15.0 && rate(1, 2.0, 5.0) < 10.1);
    assert!(rate(0, 6.5, 9.5) < 10.1 && rate(1, 6.5, 9.5) > 12.0);
    let crossed = metric(&results, 0, "crossover_s");
    assert!((0.1..2.0).contains(&crossed), "{crossed}");
    let gap = metric(&results, 0, "window_gap_pct");
    assert!((5.0..95.0).contains(&gap), "{gap}");
}

#[test]
fn several_experiments_share_the_threads_and_keep_their_order() {
    let long = format!("{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_mb = 5");
    let short = format!("{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_kb = 5");
    let experiments = [("long", long), ("short", short)].map(|(name, text)| {
        let mut experiment = Experiment::new(Scenario::parse(name, &text).unwrap());
        experiment.set_traces(Traces::All);
        experiment
    });
    let run = |threads| {
        let (mut done, progress) = (Vec::new(), AtomicUsize::new(0));
        let count = |_: &Experiment| {
            progress.fetch_add(1, Ordering::Relaxed);
        };
        run_all(&experiments, threads, &count, &mut |index, results| {
            assert_eq!(index, done.len());
            done.push(results);
        });
        let runs: usize = done.iter().map(|results| results.runs.len()).sum();
        assert_eq!(progress.into_inner(), runs);
        assert!(done.iter().all(|of| of.traces.len() == of.runs.len()));
        done
    };
    let alone = run(1);
    assert_eq!(alone[0].id, "long");
    assert_eq!(alone, run(4));
}

#[test]
fn an_experiment_stops_when_its_claims_are_decided() {
    let text = |first: &str, second: &str| {
        format!(
            "runs = 27\n{TWO_PATHS}\n[workload]\nkind = \"file\"\nsize_kb = 500\n\
             [[published]]\norder = [\"{first}\", \"{second}\"]"
        )
        .replace("\"round-robin\"", "\"round-robin\", \"backup\"")
        .replace("loss_pct = \"0..0.5\"", "loss_pct = 0")
        .replace("30..60", "44..46")
    };
    let experiment = |text: &str| {
        let mut experiment = Experiment::new(Scenario::parse("test.toml", text).unwrap());
        experiment.stop_early();
        experiment
    };
    // One path alone is slower in every run.
    let clear = text("lrf", "backup");
    let experiments = [experiment(&clear), experiment(&text("backup", "lrf"))];
    let run = |threads| {
        let mut all = Vec::new();
        let mut done = |_: usize, results: ScenarioResults| all.push(results);
        run_all(&experiments, threads, &|_| (), &mut done);
        all
    };
    let alone = run(1);
    let runs: Vec<_> = alone.iter().map(|results| results.runs.len()).collect();
    assert_eq!(
        runs,
        [27, 27],
        "nine of 27 repetitions, each with three contenders"
    );
    assert_eq!(alone[0].traces.len(), 3);
    assert_eq!(alone, run(4));
    // The runs are every third of all runs, with equal results.
    let all = self::run(&clear);
    assert_eq!(all.runs.len(), 81);
    for run in &alone[0].runs {
        assert!(run.run % 3 == 0 && all.runs.contains(run));
    }
    let in_words = clear.replace("order = ", "text = \"in words\" # ");
    // Four repetitions decide no claim, even with a clear difference.
    let too_few = clear.replace("runs = 27", "runs = 6");
    let counts = [in_words, too_few].map(|text| run_alone(&experiment(&text)));
    assert_eq!(counts, [81, 18]);
}

/// The number of runs that an experiment does.
fn run_alone(experiment: &Experiment) -> usize {
    experiment.run(2, &|| ()).runs.len()
}

#[test]
fn contenders_may_know_rates_and_ignore_priorities() {
    let text = "
        schedulers = [\"pstream\", \"lrf\"]
        # The urgent stream has to fill more than one first window.
        controllers = [\"olia\"]
        [workload]
        kind = \"streams\"
        wait_for_paths = true
        streams = [
            { name = \"B\", size_kb = 900, weight = 8 },
            { name = \"A\", size_kb = 26, weight = 255 },
        ]
        [[contender]]
        name = \"informed\"
        scheduler = \"pstream\"
        know_rates = true
        [[contender]]
        name = \"in-turn\"
        scheduler = \"lrf\"
        priorities = false
        [[path]]
        name = \"narrow\"
        rate_mbit = 1
        owd_ms = 2
        [[path]]
        name = \"wide\"
        rate_mbit = 50
        owd_ms = 20
    ";
    let results = run(text);
    assert_all_finished(&results);
    let [guessing, lrf, informed, in_turn] = [0, 1, 2, 3];
    let time = |of, stream| metric(&results, of, stream);
    assert!(time(informed, "stream_B_s") < 0.5 * time(guessing, "stream_B_s"));
    assert!(time(lrf, "stream_A_s") < 0.8 * time(in_turn, "stream_A_s"));
}

/// Sends one datagram at a time. Fails the run unless local queues are known as expected.
#[derive(Debug)]
struct QueueReader {
    wanted: bool,
    shown: bool,
    most: Arc<AtomicU64>,
}

impl Scheduler for QueueReader {
    fn select(&mut self, view: &View<'_>) -> Decision {
        for path in view.paths {
            let known = path.local_queue.is_some();
            if known != (self.wanted && self.shown) {
                fail_run(format!("{:?}: {:?}", path.id, path.local_queue));
            }
            // Rates of 20 or 10 Mbit/s.
            let drain = path.local_drain_rate;
            if known && !matches!(drain, Some(2_500_000 | 1_250_000)) {
                fail_run(format!("{drain:?}"));
            }
            let bytes = path.local_queue.unwrap_or(0);
            self.most.fetch_max(bytes, Ordering::Relaxed);
        }
        let Some(path) = view.sendable().next() else {
            return Decision::Blocked;
        };
        Decision::send(path.id)
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        needs.local_queue = self.wanted;
        needs
    }

    fn name(&self) -> &'static str {
        "queue-reader"
    }
}

#[test]
fn schedulers_see_local_queues_if_the_scenario_shows_them() {
    for (wanted, shown) in [(true, true), (true, false), (false, true)] {
        let most = Arc::<AtomicU64>::default();
        let seen = most.clone();
        let policies = Policies::built_in().with_scheduler("queue-reader", move || {
            Box::new(QueueReader {
                wanted,
                shown,
                most: seen.clone(),
            })
        });
        let text = format!(
            "transport = {{ show_queues = {shown} }}
             {TWO_PATHS}
             [workload]
             kind = \"file\"
             size_mb = 1"
        )
        .replace("[\"lrf\", \"round-robin\"]", "\"queue-reader\"");
        let scenario = Scenario::parse_with(&policies, "test.toml", &text).unwrap();
        assert_all_finished(&Experiment::new(scenario).run(1, &|| ()));
        let most = most.load(Ordering::Relaxed);
        assert_eq!(most > 10_000, wanted && shown, "{most}");
    }
}

/// The results of a workload on one path of 8 Mbit/s and 20 ms.
fn one_path(workload: &str) -> ScenarioResults {
    run(&format!(
        "schedulers = \"lrf\"
        limit_s = 20
        {workload}
        [[path]]
        name = \"a\"
        rate_mbit = 8
        rtt_ms = 20
        "
    ))
}

#[test]
fn messages_begin_at_their_times_and_those_that_take_longer_are_late() {
    let messages = |deadline: u32, more: &str| {
        let results = one_path(&format!(
            "workload = {{ kind = \"messages\", every_ms = 10, size_kb = 1, deadline_ms = {deadline}, duration_s = 2{more} }}"
        ));
        assert_all_finished(&results);
        let of = |name| metric(&results, 0, name);
        (
            of("late_pct"),
            of("object_p50_s"),
            results.runs[0].paths[0].bytes,
        )
    };
    // A round trip and 1 ms of transmission for each of 200 messages; some messages share a
    // datagram.
    let (late, median, bytes) = messages(30, "");
    assert!(late < 2.0, "{late}");
    assert!((0.02..0.03).contains(&median), "{median}");
    assert!((200_000..260_000).contains(&bytes), "{bytes}");
    assert_eq!(messages(15, "").0, 100.0);
    // From the client, without a request.
    let (late, median, _) = messages(15, ", direction = \"upload\"");
    assert!(late < 2.0, "{late}");
    assert!((0.01..0.015).contains(&median), "{median}");
    // Random times give as many messages, but some messages wait for others.
    let (late, _, bytes) = messages(30, ", arrivals = \"poisson\"");
    assert!((0.0..20.0).contains(&late), "{late}");
    assert!((150_000..320_000).contains(&bytes), "{bytes}");
}

#[test]
fn messages_that_wait_for_a_stream_are_timed_from_when_they_were_due() {
    // 2000 messages in 0.2 s, of which 1000 may be open at a time; together they take 2 s at the
    // rate of the path.
    let results = one_path(
        "workload = { kind = \"messages\", every_ms = 0.1, size_kb = 1, duration_s = 0.2 }",
    );
    assert_all_finished(&results);
    let last = metric(&results, 0, "object_p99_s");
    assert!((1.9..2.4).contains(&last), "{last}");
}

#[test]
fn objects_wait_for_all_they_need_and_for_the_client() {
    let page = |more: &str| {
        let results = one_path(&format!(
            "workload = {{ kind = \"page\", page = \"p\" }}
            [[page]]
            name = \"p\"
            objects = [
                {{ name = \"small\", size_kb = 1 }},
                {{ name = \"large\", size_kb = 500 }},
                {{ name = \"last\", size_kb = 1, {more} }},
            ]"
        ));
        assert_all_finished(&results);
        (
            metric(&results, 0, "object_p50_s"),
            metric(&results, 0, "page_s"),
        )
    };
    // The object that needs the large object follows the large object: a round trip of 20 ms later,
    // less the time for which both objects shared the link before.
    let (_, early) = page("after = \"small\"");
    let (_, late) = page("after = [\"small\", \"large\"]");
    assert!((0.016..0.06).contains(&(late - early)), "{early} {late}");
    let (median, later) = page("after = [\"small\", \"large\"], wait_ms = 300");
    assert!((later - late - 0.3).abs() < 0.005, "{late} {later}");
    assert!(median < 0.3, "the wait does not count: {median}");
}

#[test]
fn many_competitors_share_a_link_within_their_source_rates() {
    let results = one_path(
        "workload = { kind = \"bulk\", duration_s = 10 }
        [[competitor]]
        name = \"user\"
        count = 20
        rate_mbit = 0.1
        every_s = 0.05
        paths = \"a\"",
    );
    assert_all_finished(&results);
    let (own, others) = results.runs[0].flows.split_first().unwrap();
    assert_eq!(others.len(), 20);
    assert_eq!(results.competitors[19], "user-20");
    assert!(
        others.iter().all(|rate| (0.07..0.11).contains(rate)),
        "{others:?}"
    );
    assert!((4.5..6.0).contains(own), "{own}");
    assert_eq!(
        results.words.others,
        [
            "user-1 to user-20: 20 other connections, each of which sends 0.1 Mbit/s over a (newreno)"
        ]
    );
}

#[test]
fn queues_are_recorded_over_time_on_all_links_of_a_path() {
    let results = run("schedulers = \"lrf\"
        controllers = [\"cubic\"]
        workload = { kind = \"bulk\", duration_s = 3 }
        [[link]]
        name = \"narrow\"
        rate_mbit = 8
        owd_ms = 5
        queue_packets = 40
        [[path]]
        name = \"a\"
        rate_mbit = 100
        owd_ms = 5
        via = \"narrow\"
        [[path]]
        name = \"b\"
        rate_mbit = 1000
        owd_ms = 50
        backup = true");
    let queue = &results.traces[0].queue;
    let most = queue[0].iter().max().unwrap();
    // 40 packets of 1228 bytes are in the queue before the first loss, and fewer when a sample is
    // taken.
    assert!((25_000..=49_120).contains(most), "{most}");
    assert!(queue[1].iter().max().unwrap() < &5_000, "{:?}", queue[1]);
    assert_eq!(queue[0].len(), results.traces[0].rtt_ms[0].len());
}

#[test]
fn inner_connection_transfers_the_whole_workload() {
    let inner = |more: &str| {
        let text = TWO_PATHS.replace("[\"lrf\", \"round-robin\"]", "\"lrf\"");
        let workload = format!("kind = \"file\"\nsize_mb = 2\nwait_for_paths = true\n{more}");
        let results = run(&format!(
            "transport = {{ mtu = 1400 }}\n{}\n[workload]\n{workload}",
            text.replace("\"0..0.5\"", "0")
        ));
        assert_all_finished(&results);
        let of = |name| metric(&results, 0, name);
        (of("completion_s"), of("handshake_s"), of("overhead_pct"))
    };
    let (_, handshake, overhead) = inner("");
    let (took, inner_handshake, inner_overhead) = inner("inner = \"cubic\"");
    // Two megabytes at 30 Mbit/s take 0.53 s at least; over one of the paths, 0.8 s.
    assert!((0.6..2.0).contains(&took), "{took}");
    // The inner handshake begins when the paths are open.
    assert!(
        inner_handshake > 2.0 * handshake,
        "{handshake} {inner_handshake}"
    );
    // Each packet of the inner connection has two headers.
    assert!(
        inner_overhead > overhead + 2.0,
        "{overhead} {inner_overhead}"
    );
    let (upload, ..) = inner("inner = \"cubic\"\ndirection = \"upload\"");
    assert!((0.6..2.0).contains(&upload), "{upload}");
}

#[test]
fn a_client_with_a_ticket_sends_a_round_trip_earlier() {
    let results = one_path(
        "workload = { kind = \"file\", size_kb = 0.5, direction = \"upload\" }
        contender = [
            { name = \"full\", handshake = \"full\" },
            { name = \"resumed\", handshake = \"1-rtt\" },
            { name = \"early\", handshake = \"0-rtt\" },
        ]",
    );
    assert_all_finished(&results);
    let took = |run| metric(&results, run, "completion_s");
    // 20 ms for the handshake and 10 ms for the file, or only the 10 ms. The first contender is
    // `lrf`.
    for run in [1, 2] {
        assert!((0.030..0.038).contains(&took(run)), "{run}: {}", took(run));
    }
    assert!((0.010..0.014).contains(&took(3)), "{}", took(3));
}

#[test]
fn client_with_a_changed_address_continues_on_the_new_path() {
    let run = |more: &str| {
        run(&format!(
            "limit_s = 20
            workload = {{ kind = \"file\", size_mb = 4 }}
            contender = [{{ name = \"one\", paths = \"a\"{more} }}]
            [[path]]
            name = \"a\"
            rate_mbit = 16
            rtt_ms = 20
            blackhole = [{{ from = 1 }}]
            [[path]]
            name = \"b\"
            rate_mbit = 8
            rtt_ms = 20"
        ))
    };
    let results = run(", migrate_s = 1.5, migrate_to = \"b\"");
    assert_all_finished(&results);
    let gap = metric(&results, 0, "gap_s");
    assert!((0.5..0.6).contains(&gap), "{gap}");
    // 2 MB in the first second, and 2 s for the rest.
    let took = metric(&results, 0, "completion_s");
    assert!((3.4..4.5).contains(&took), "{took}");
    assert_ne!(run("").runs[0].state, State::Finished);
}

#[test]
fn scalable_flow_has_a_short_queue_and_leaves_the_classic_flow_its_share() {
    let flow = |controller: &str| {
        let results = run(&format!(
            "limit_s = 40
            warm_up_s = 5
            schedulers = \"lrf\"
            controllers = \"{controller}\"
            workload = {{ kind = \"bulk\", duration_s = 20 }}
            [[path]]
            name = \"a\"
            rate_mbit = 20
            rtt_ms = 20
            aqm = \"dualpi2\"
            [[competitor]]
            name = \"classic\"
            controller = \"cubic\""
        ));
        assert_all_finished(&results);
        let rtt = results.runs[0].paths[0].rtt_ms;
        (rtt, metric(&results, 0, "times_competitor"))
    };
    let (rtt, share) = flow("prague");
    assert!(rtt < 24.0, "{rtt} ms");
    assert!((0.1..2.0).contains(&share), "{share}");
    let (rtt, _) = flow("cubic");
    assert!(rtt > 27.0, "{rtt} ms");
}

#[test]
fn runs_without_late_messages_count() {
    let pairs = [(0.0, 1.4), (0.0, 1.2), (0.0, 1.6), (0.3, 1.4), (0.0, 1.5)];
    let compared = Comparison::of(&pairs, true).unwrap();
    assert_eq!((compared.ratio, compared.better), (0.0, 1.0));
    assert!(compared.is_significant() && compared.paired < 0.5);
    // Equal runs do not differ, even if no message was late in both.
    let alike = Comparison::of(&[(0.0, 0.0), (2.0, 2.0), (2.0, 2.0)], true);
    assert_eq!(alike.unwrap().paired, 1.0);
}
