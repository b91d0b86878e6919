//! Small versions of the papers' experiments: what must hold on every machine and for every seed.

use mpquic_sched::papers::{Etc, EtcConfig, Jdl, JdlConfig};
use mpquic_sim::Policies;
use mpquic_sim::experiment::{Cell, Experiment, ScenarioResults, State};
use mpquic_sim::scenario::Scenario;

fn run_with(policies: &Policies, text: &str) -> ScenarioResults {
    // As in the papers, which ran with controllers that answer losses.
    let text = format!("controllers = [\"olia\"]\n{text}");
    let scenario = Scenario::parse_with(policies, "small.toml", &text).unwrap();
    let results = Experiment::new(scenario).run(2, &|| ());
    for run in &results.runs {
        assert_eq!(run.state, State::Finished, "{run:?}");
    }
    results
}

fn run(text: &str) -> ScenarioResults {
    run_with(&Policies::built_in(), text)
}

fn median(results: &ScenarioResults, contender: &str, metric: &str) -> f64 {
    let contender = results.contender(contender).unwrap();
    let cell = Cell {
        sweep: 0,
        contender,
    };
    results.summary(cell, metric).statistics.median
}

/// Bytes each path carried, over all runs of a contender.
fn bytes(results: &ScenarioResults, contender: &str) -> Vec<u64> {
    let contender = results.contender(contender).unwrap();
    let runs = results.runs.iter().filter(|run| run.contender == contender);
    let mut sums = vec![0; results.paths.len()];
    for path in runs.flat_map(|run| &run.paths) {
        sums[path.path] += path.bytes;
    }
    sums
}

/// Two paths that differ in delay and loss.
fn unlike(first: [f64; 3], second: [f64; 3]) -> String {
    let path = |name: &str, [rate, rtt, loss]: [f64; 3]| {
        format!(
            "[[path]]\nname = \"{name}\"\nrate_mbit = {rate}\nrtt_ms = {rtt}\n\
             queue_packets = 1000\ns2c = {{ loss_pct = {loss} }}\n"
        )
    };
    path("first", first) + &path("second", second)
}

#[test]
fn etc_without_waiting_is_as_fast_as_lowest_rtt_first() {
    let policies = Policies::built_in().with_scheduler("etc-1mb", || {
        let mut config = EtcConfig::default();
        config.unit = 1_000_000;
        config.work_conserving = true;
        Box::new(Etc::new(config))
    });
    let text = "schedulers = [\"lrf\", \"etc\", \"etc-1mb\"]\nruns = 5\n\
                workload = { kind = \"file\", size_mb = 10 }\n"
        .to_owned()
        + &unlike([95.0, 150.0, 0.05], [95.0, 20.0, 0.3]);
    let results = run_with(&policies, &text);
    let [lrf, etc] = ["lrf", "etc-1mb"].map(|name| median(&results, name, "completion_s"));
    assert!(etc <= 1.05 * lrf, "{etc} {lrf}");
}

#[test]
fn pstream_serves_the_urgent_stream_no_later_than_taking_turns() {
    let text = "runs = 5
        [workload]
        kind = \"streams\"
        wait_for_paths = true
        streams = [
            { name = \"A\", size_kb = 26, weight = 255 },
            { name = \"B\", size_kb = 900, weight = 8 },
        ]
        [[contender]]
        name = \"pstream\"
        scheduler = \"pstream\"
        know_rates = true
        [[contender]]
        name = \"turns\"
        priorities = false
        "
    .to_owned()
        + &unlike([10.0, 10.0, 0.0], [40.0, 50.0, 0.0]);
    let results = run(&text);
    let [pstream, turns] = ["pstream", "turns"].map(|name| median(&results, name, "stream_A_s"));
    assert!(pstream <= turns, "{pstream} {turns}");
}

#[test]
fn qaware_uses_equal_links_alike() {
    let results = run("schedulers = \"qaware\"
        transport = { show_queues = true, send_buffer_mb = 0.5 }
        workload = { kind = \"cbr\", rate_mbit = 12, duration_s = 10, direction = \"upload\" }
        [[path]]
        name = \"w1\"
        rate_mbit = 4.8
        owd_ms = 5
        queue_packets = 100
        [[path]]
        name = \"w2\"
        rate_mbit = 4.8
        owd_ms = 5
        queue_packets = 100");
    let [first, second] = bytes(&results, "qaware")[..] else {
        panic!("two paths");
    };
    let share = first as f64 / (first + second) as f64;
    assert!((0.4..=0.6).contains(&share), "{share}");
}

#[test]
fn paths_that_change_places_are_noticed_within_two_seconds() {
    let results = run(
        "schedulers = [\"lrf\", \"round-robin\", \"blest\", \"ecf\", \"peekaboo\"]
        workload = { kind = \"bulk\", duration_s = 8 }
        [[path]]
        name = \"p0\"
        rate_mbit = 5
        owd_ms = 50
        queue_packets = 100
        [[path]]
        name = \"p1\"
        rate_mbit = 10
        owd_ms = 10
        queue_packets = 100
        [[swap]]
        t = 2
        paths = [\"p0\", \"p1\"]",
    );
    for name in &results.contenders {
        let crossed = median(&results, name, "crossover_s");
        assert!(crossed <= 2.0, "{name}: {crossed}");
    }
}

#[test]
fn msab_completes_and_prefers_the_better_path() {
    let results = run("schedulers = \"msab\"
        runs = 20
        workload = { kind = \"file\", size_mb = 2 }
        [[path]]
        name = \"p0\"
        rate_mbit = \"5..5.25\"
        owd_ms = \"50..55\"
        queue_packets = 100
        s2c = { loss_pct = 0.5 }
        redraw_ms = 100
        [[path]]
        name = \"p1\"
        rate_mbit = \"10..10.5\"
        owd_ms = \"10..11\"
        queue_packets = 100
        s2c = { loss_pct = 0.5 }
        redraw_ms = 100");
    let carried = bytes(&results, "msab");
    assert!(carried[1] > carried[0], "{carried:?}");
}

#[test]
fn jdl_with_one_path_takes_the_one_of_little_loss() {
    let policies = Policies::built_in().with_scheduler("jdl-1", || {
        Box::new(Jdl::new(JdlConfig {
            paths: 1,
            ..JdlConfig::default()
        }))
    });
    let results = run_with(
        &policies,
        "schedulers = [\"lrf\", \"jdl-1\"]
        workload = { kind = \"file\", size_mb = 10 }
        [[path]]
        name = \"near\"
        rate_mbit = 100
        owd_ms = 10
        queue_packets = 1000
        s2c = { loss_pct = 1 }
        [[path]]
        name = \"clean\"
        rate_mbit = 100
        owd_ms = 30
        queue_packets = 1000
        s2c = { loss_pct = 0.01 }
        [[path]]
        name = \"far\"
        rate_mbit = 100
        owd_ms = 50
        queue_packets = 1000
        s2c = { loss_pct = 0.1 }",
    );
    let [near, clean, far] = bytes(&results, "jdl-1")[..] else {
        panic!("three paths");
    };
    assert!(clean > 2 * (near + far), "{near} {clean} {far}");
    let all = bytes(&results, "lrf");
    assert!(all.iter().all(|bytes| *bytes > 100_000), "{all:?}");
}

#[test]
fn copies_end_with_the_first_sample_of_a_path() {
    let text = "schedulers = [\"lrf\", \"etc\", \"blest\"]\nruns = 3\n\
                workload = { kind = \"file\", size_mb = 1 }\n"
        .to_owned()
        + &unlike([95.0, 150.0, 0.0], [95.0, 20.0, 0.0]);
    let results = run(&text);
    for name in &results.contenders {
        // Headers and acknowledgements take 4 %, an initial window of copies 1.2 %.
        let overhead = median(&results, name, "overhead_pct");
        assert!(overhead < 6.0, "{name}: {overhead}");
    }
}
