//! `mpquic lab`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{assert_exit, run, stderr, stdout};

/// A scenario that takes no time: two paths, two schedulers, six runs.
const SCENARIO: &str = "title = \"a test\"\nschedulers = [\"lrf\", \"round-robin\"]\nruns = 6\n\
    workload = { kind = \"file\", size_kb = 100 }\n\
    [[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n\
    [[path]]\nname = \"b\"\nrate_mbit = 10\nowd_ms = \"5..20\"\n";

#[test]
fn the_lab_runs_a_scenario_twice_to_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("own.toml");
    fs::write(&file, SCENARIO).unwrap();
    let file = file.to_str().unwrap();
    let outputs = ["first", "second"].map(|name| {
        let output = directory.path().join(name);
        let jobs = if name == "first" { "1" } else { "3" };
        let target = output.to_str().unwrap();
        let ran = run(&["lab", "run", file, "-o", target, "--jobs", jobs]);
        assert_exit(&ran, 0);
        let table = stdout(&ran);
        for expected in ["own: a test", "lrf", "round-robin"] {
            assert!(table.contains(expected), "{table}");
        }
        output
    });
    for name in [
        "results.json",
        "runs.csv",
        "summary.csv",
        "traces.csv",
        "report.html",
    ] {
        let [first, second] = outputs
            .each_ref()
            .map(|output| fs::read(output.join(name)).unwrap());
        assert!(first == second, "{name} differs");
    }
    let csv = fs::read_to_string(outputs[0].join("runs.csv")).unwrap();
    let wanted = |line: &&str| line.contains("own,,lrf,0,1,finished,completion_s,");
    assert_eq!(csv.lines().filter(wanted).count(), 1, "{csv}");

    let [first, second] = outputs.each_ref().map(|output| output.to_str().unwrap());
    let compared = run(&["lab", "compare", first, second, "--tolerance", "1"]);
    assert_exit(&compared, 0);
    assert!(stdout(&compared).contains("1.000"), "{compared:?}");
    let compared = run(&["lab", "compare", first, "--metric", "loss"]);
    assert_exit(&compared, 2);
    assert!(stderr(&compared).contains("completion_s"), "{compared:?}");
    let contenders = run(&["lab", "compare", first]);
    assert_exit(&contenders, 0);
    assert!(
        stdout(&contenders).contains("round-robin"),
        "{contenders:?}"
    );
}

#[test]
fn lab_table_shows_published_and_measured_values() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("own.toml");
    let published = "[[published]]\ncontender = \"round-robin\"\nagainst = \"lrf\"\nratio = 9\n\
                     reason = \"nobody | knows\"\n";
    let with_form = "\"round-robin\", \"lrf-ns3\"]\nas_published = [[\"lrf\", \"lrf-ns3\"]]";
    let scenario = SCENARIO.replace("\"round-robin\"]", with_form) + published;
    fs::write(&file, scenario).unwrap();
    let output = directory.path().join("results");
    let [file, output] = [&file, &output].map(|path| path.to_str().unwrap());
    assert_exit(&run(&["lab", "run", file, "-o", output, "-q"]), 0);
    let table = run(&["lab", "table", output]);
    assert_exit(&table, 0);
    let printed = stdout(&table);
    let row = printed.lines().find(|line| line.contains("`own`")).unwrap();
    for expected in ["round-robin/lrf 9.000", "| differs |", "nobody \\| knows"] {
        assert!(row.contains(expected), "{row}");
    }
    // Against lrf-ns3, and against lrf.
    assert_eq!(row.matches("| differs |").count(), 2, "{row}");
    assert!(printed.contains("| differs | 1 | 1 |"), "{printed}");
    let page = directory.path().join("page.md");
    let marks = "<!-- begin: mpquic lab table -->\nold\n<!-- end: mpquic lab table -->\n";
    fs::write(&page, format!("before\n{marks}after\n")).unwrap();
    let into = page.to_str().unwrap();
    assert_exit(&run(&["lab", "table", output, "--into", into]), 0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("before\n<!-- begin") && text.ends_with("table -->\nafter\n"));
    assert!(text.contains(row) && !text.contains("old"), "{text}");
    fs::write(&page, "no marks").unwrap();
    let refused = run(&["lab", "table", output, "--into", into]);
    assert!(!refused.status.success() && stderr(&refused).contains("begin: mpquic"));
}

#[test]
fn the_lab_lists_and_shows_its_scenarios() {
    let list = run(&["lab", "list", "etc"]);
    assert_exit(&list, 0);
    assert!(stdout(&list).contains("etc-l-hhlh"), "{list:?}");
    let shown = run(&["lab", "show", "etc-l-hhlh"]);
    assert_exit(&shown, 0);
    assert!(stdout(&shown).contains("size_mb = 100"), "{shown:?}");
}

#[test]
fn lab_errors_name_line_and_field() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("own.toml");
    let name = file.to_str().unwrap();
    let cases: [(&str, &str, &[&str]); 5] = [
        (
            "rate_mbit = 10",
            "rate_mbit = 0",
            &["own.toml:7: path a: rate_mbit: 0", "0.001"],
        ),
        (
            "owd_ms = 5",
            "owd_ms = 5\nloss_pct = 150",
            &["own.toml:9", "loss_pct: 150", "100"],
        ),
        (
            "owd_ms = 5",
            "owd_ms = 5\nqueue_packets = 0",
            &["own.toml:9", "queue_packets: 0"],
        ),
        (
            "runs",
            "run",
            &["own.toml:3", "unknown field `run`", "runs"],
        ),
        (
            "\"lrf\"",
            "\"best\"",
            &["own.toml:2", "schedulers", "`best`", "round-robin"],
        ),
    ];
    for (from, to, expected) in cases {
        fs::write(&file, SCENARIO.replacen(from, to, 1)).unwrap();
        let output = run(&["lab", "run", name]);
        assert_exit(&output, 2);
        let told = stderr(&output);
        assert_eq!(told.lines().count(), 1, "{told}");
        for expected in expected {
            assert!(told.contains(expected), "{to}: {told}");
        }
    }
    for (arguments, expected) in [
        (["run", "etc-x"], "etc-l-hhlh"),
        (["run", "/nonexistent.toml"], "/nonexistent.toml"),
        (["compare", "/nonexistent"], "/nonexistent"),
    ] {
        let output = run(&["lab", arguments[0], arguments[1]]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(expected), "{output:?}");
    }
    let output = run(&["lab", "run", "handover", "--schedulers", "best"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("round-robin"), "{output:?}");
}

/// A scenario with randomly drawn delays, six points of two repetitions each.
fn drawn() -> String {
    SCENARIO.replace("runs = 6", "runs = 2\ndraw = \"space-filling\"\npoints = 6")
}

/// The lines of a file of results after a run with these options: runs.csv has a line for each
/// value, and traces.csv one for each instant.
fn written(directory: &Path, scenario: &str, options: &[&str], file: &str) -> Vec<String> {
    let own = directory.join("own.toml");
    fs::write(&own, scenario).unwrap();
    let [own, output] = [own, directory.join("results")];
    let [own, to] = [&own, &output].map(|path| path.to_str().unwrap());
    let fixed = ["lab", "run", own, "-o", to, "--quiet"];
    assert_exit(&run(&[&fixed[..], options].concat()), 0);
    let text = fs::read_to_string(output.join(file)).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

/// Contender, point and repetition of each run that finished.
fn finished(lines: &[String]) -> BTreeSet<(String, String, String)> {
    let lines = lines.iter().filter(|line| line.contains(",completion_s,"));
    let runs = lines.map(|line| {
        let mut cells = line.split(',').skip(2).map(str::to_owned);
        let mut next = || cells.next().unwrap();
        (next(), next(), next())
    });
    runs.collect()
}

#[test]
fn options_of_the_lab_choose_contenders_points_and_repetitions() {
    let directory = tempfile::tempdir().unwrap();
    for (options, contenders, points, repetitions) in [
        (&["--runs", "2"][..], 2, 6, 2),
        (&["--runs", "5", "--points", "7"], 2, 7, 5),
        (&["--runs", "2", "--add", "ecf,lrf"], 3, 6, 2),
        (&["--runs", "2", "--schedulers", "ecf"], 1, 6, 2),
        // Most points and repetitions of a quick run.
        (&["--runs", "9", "--quick"], 2, 4, 3),
        (&["--quick"], 2, 4, 2),
    ] {
        let lines = written(directory.path(), &drawn(), options, "runs.csv");
        let runs = finished(&lines);
        let count = |of: fn(&(String, String, String)) -> &String| {
            runs.iter().map(of).collect::<BTreeSet<_>>().len()
        };
        let counts = [
            count(|run| &run.0),
            count(|run| &run.1),
            count(|run| &run.2),
        ];
        assert_eq!(counts, [contenders, points, repetitions], "{options:?}");
        assert_eq!(runs.len(), contenders * points * repetitions, "{options:?}");
    }
}

#[test]
fn another_seed_draws_other_values() {
    let directory = tempfile::tempdir().unwrap();
    let with = |seed| {
        let options = ["--runs", "1", "--seed", seed];
        written(directory.path(), &drawn(), &options, "runs.csv")
    };
    let (first, second) = (with("1"), with("2"));
    assert!(first != second && first == with("1"));
}

#[test]
fn the_lab_records_the_runs_that_the_option_names() {
    let directory = tempfile::tempdir().unwrap();
    let traced = |which| {
        let options = ["--runs", "2", "--traces", which];
        written(directory.path(), &drawn(), &options, "traces.csv").len()
    };
    let [none, first, all] = ["none", "first", "all"].map(traced);
    assert_eq!(none, 0);
    assert!(0 < first && first < all, "{first} of {all} lines");
}

#[test]
fn contenders_are_compared_with_the_named_baseline() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), SCENARIO, &[], "runs.csv");
    let results = directory.path().join("results");
    let results = results.to_str().unwrap();
    for (baseline, other) in [("lrf", "round-robin"), ("round-robin", "lrf")] {
        let compared = run(&["lab", "compare", results, "--baseline", baseline]);
        assert_exit(&compared, 0);
        let text = stdout(&compared);
        let rows: Vec<_> = text.lines().filter(|line| line.contains("own")).collect();
        let [row] = rows[..] else {
            panic!("{text}");
        };
        let contender = row.split_whitespace().nth(1);
        assert_eq!(contender, Some(other), "{text}");
    }
    let unknown = run(&["lab", "compare", results, "--baseline", "ecf"]);
    assert_exit(&unknown, 2);
    assert!(stderr(&unknown).contains("there are: lrf, round-robin"));
}
