use std::time::Duration;

use super::*;
use crate::link::{Backlog, Change, Loss};

mod options;
mod ranges;
mod words;

const MS: Duration = Duration::from_millis(1);

/// A complete file with one path, and with `more` at its end.
fn file(more: &str) -> String {
    format!(
        "schedulers = \"lrf\"\n\
         workload = {{ kind = \"file\", size_mb = 1 }}\n\
         {more}\n\
         [[path]]\n\
         name = \"a\"\n\
         rate_mbit = 10\n\
         owd_ms = 5\n"
    )
}

fn message(text: &str) -> String {
    Scenario::parse("lab/x.toml", text).unwrap_err().to_string()
}

/// For each mistake: its line, and two parts of the answer.
fn assert_answered(cases: &[(&str, usize, &str, &str)]) {
    for &(more, line, what, accepted) in cases {
        let message = message(&file(more));
        assert!(
            message.starts_with(&format!("lab/x.toml:{line}: ")),
            "{more}: {message}"
        );
        assert!(message.contains(what), "{more}: {message}");
        assert!(message.contains(accepted), "{more}: {message}");
    }
}

#[test]
fn every_built_in_scenario_is_valid_and_named() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut files: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    let mut built_in_ids: Vec<_> = built_in().iter().map(|file| file.id).collect();
    built_in_ids.sort_unstable();
    assert_eq!(built_in_ids, files, "the list of files in library.rs");
    for file in built_in() {
        let scenario = Scenario::parse(file.id, file.text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenario.id, file.id);
        assert!(!scenario.title.is_empty(), "{}", file.id);
        for published in &scenario.published {
            let empty = published.text.is_empty() && published.claim == Claim::Words;
            assert!(!empty, "{}", file.id);
        }
    }
}

#[test]
fn errors_name_line_field_and_accepted_values() {
    let cases = [
        ("seeds = 1", 3, "unknown field `seeds`", "seed, "),
        ("runs = 0", 3, "runs: 0 is not possible", "from 1 to 100000"),
        ("runs = 1.5", 3, "runs: 1.5 is not possible", "whole number"),
        ("runs = \"many\"", 3, "runs: \"many\"", "a number from 1"),
        ("controllers = \"vegas\"", 3, "`vegas`", "olia"),
        ("sweep = \"both\"", 3, "sweep: \"both\"", "product, zip"),
        ("points = 3", 3, "points: needs", "space-filling"),
        ("baseline = \"etc\"", 3, "baseline: \"etc\"", "lrf"),
        (
            "[[cross]]\npath = \"b\"\nrate_mbit = 1",
            4,
            "cross: path: \"b\"",
            "one of: a",
        ),
        (
            "[[competitor]]\nname = \"x\"\npaths = [\"b\"]",
            5,
            "competitor x: paths",
            "there are: a",
        ),
        (
            "[transport]\nmtu = 1000",
            4,
            "transport: mtu: 1000",
            "from 1200 to 1452",
        ),
        (
            "limit_s = 5\nwarm_up_s = 6",
            4,
            "warm_up_s: 6 is not possible",
            "less than `limit_s` = 5",
        ),
        (
            "metric = \"speed\"",
            3,
            "metric: \"speed\" is not possible",
            "completion_s, goodput_mbit",
        ),
        (
            "[[published]]\norder = [\"lrf\", \"etc\"]",
            4,
            "published: order: \"etc\"",
            "one of: lrf",
        ),
        (
            "[[published]]\ntext = \"x\"\nmetric = \"page_s\"",
            5,
            "published: metric: \"page_s\"",
            "completion_s",
        ),
        (
            "[[published]]\ntext = \"x\"\nat = \"a.owd_ms=7\"",
            5,
            "published: at: \"a.owd_ms=7\"",
            "one of: ",
        ),
        (
            "[[published]]\nmetric = \"completion_s\"",
            3,
            "published: `text`, `order`",
            "`value` is missing",
        ),
        (
            "[[published]]\ncontender = \"lrf\"\nratio = 0.5",
            3,
            "published: `against` is missing",
            "",
        ),
        ("x = ", 3, "", ""),
    ];
    assert_answered(&cases);
}

#[test]
fn fields_without_effect_are_refused() {
    let cases = [
        (
            "[[competitor]]\nname = \"x\"\nevery_s = 2",
            5,
            "competitor x: every_s: 2 is not possible",
            "`count` of 2 or more",
        ),
        (
            "[[competitor]]\nname = \"x\"\ncount = 3\nevery_s = 2\nstart_s = 1\nstop_s = 5",
            8,
            "competitor x: stop_s: 5 is not possible",
            "after the start at 5 s",
        ),
        (
            "limit_s = 5\n[[competitor]]\nname = \"x\"\ncount = 3\nevery_s = 2\nstart_s = 1",
            4,
            "competitor: x-3 would start after 5 s",
            "less than `limit_s` = 5",
        ),
        (
            "[[cross]]\npath = \"a\"\nrate_mbit = 1\nfrom = 3\nto = 2",
            7,
            "cross: to: 2 is not possible",
            "after the start at 3 s",
        ),
        (
            "[[competitor]]\nname = \"x\"\ncount = 150\n[[competitor]]\nname = \"y\"\ncount = 51",
            3,
            "competitor: 201 in all",
            "at most 200",
        ),
        (
            "[[contender]]\nname = \"x\"\nmigrate_s = 1",
            5,
            "contender x: migrate_s: ",
            "`migrate_to` is needed",
        ),
        (
            "[[contender]]\nname = \"x\"\nmigrate_s = 1\nmigrate_to = \"a\"\npaths = \"a\"",
            6,
            "contender x: migrate_to: ",
            "one other path",
        ),
        (
            "limit_s = 5\n[[path]]\nname = \"b\"\nrate_mbit = 10\nowd_ms = 5\n\
             [[contender]]\nname = \"x\"\nmigrate_s = 5\nmigrate_to = \"b\"\npaths = \"a\"",
            8,
            "contender: `migrate_s` = 5 is not possible",
            "more than the start at 0 s, and less than `limit_s` = 5",
        ),
        (
            "[[contender]]\nname = \"x\"\nhandshake = \"2-rtt\"",
            5,
            "contender x: handshake: \"2-rtt\" is not possible",
            "full, 1-rtt, 0-rtt",
        ),
        (
            "[[swap]]\nt = 1\npaths = [\"a\", \"a\"]",
            5,
            "swap: paths: a and a are one path",
            "two",
        ),
    ];
    assert_answered(&cases);
}

#[test]
fn controller_of_a_competitor_is_a_known_name_or_single_path() {
    let with = |controller: &str| {
        file(&format!(
            "[[competitor]]\nname = \"x\"\ncontroller = \"{controller}\"\npaths = [\"a\"]"
        ))
    };
    let controller = |text: &str| {
        let scenario = Scenario::parse("x", text).unwrap();
        scenario.competitors[0].controller.clone()
    };
    assert_eq!(controller(&with("cubic")).as_deref(), Some("cubic"));
    assert_eq!(controller(&with("single-path")), None);
    assert!(message(&with("single")).contains("`single`"));
}

#[test]
fn impossible_paths_are_refused() {
    let cases = [
        ("rate_mbit = 0", "from 0.001 to 1000000 (Mbit/s), or inf"),
        ("rate_mbit = -5", "rate_mbit: -5 is not possible"),
        ("rate_mbit = nan", "rate_mbit: NaN is not possible"),
        ("rate_mbit = \"0..5\"", "rate_mbit: 0 is not possible"),
        ("rate_mbit = []", "at least one entry"),
        ("rate_mbit = [1, 0]", "rate_mbit: 0 is not possible"),
        ("rate_mbit = true", "\"LOW..HIGH\""),
        (
            "loss_pct = 101",
            "loss_pct: 101 is not possible; expected a number from 0 to 100 (%)",
        ),
        ("loss_pct = \"0..101\"", "loss_pct: 101 is not possible"),
        (
            "queue_packets = 0",
            "queue_packets: 0 is not possible; expected a number from 1",
        ),
        ("queue_ms = 0", "queue_ms: 0 is not possible"),
        ("queue = \"small\"", "one of: auto, none"),
        ("owd_ms = -1", "owd_ms: -1 is not possible"),
        ("rtt_ms = 1\nowd_ms = 1", "only one of `owd_ms`, `rtt_ms`"),
        ("s2c = { owd = 5 }", "path b: s2c: unknown field `owd`"),
        (
            "at = [{ t = 1, rate = 5 }]",
            "path b: at: unknown field `rate`",
        ),
        (
            "blackhole = [{ from = 2, to = 1 }]",
            "must be later than `from`",
        ),
        (
            "absent = [{ from = 2, to = 2 }]",
            "must be later than `from`",
        ),
        ("absent = [{ to = 2 }]", "path b: absent: `from` is missing"),
        (
            "absent = [{ from = 2, dir = \"c2s\" }]",
            "unknown field `dir`",
        ),
        ("via = \"x\"", "path b: via: \"x\" is not possible"),
        ("name = \"a\"", "\"a\" is there already"),
        ("jitter_dist = \"odd\"", "uniform, normal"),
    ];
    for (field, expected) in cases {
        let mut path = "[[path]]\n".to_owned();
        for (key, default) in [("name", "\"b\""), ("rate_mbit", "1"), ("owd_ms", "1")] {
            if !field.contains(key) {
                path += &format!("{key} = {default}\n");
            }
        }
        let text = file("") + &path + field;
        let message = message(&text);
        assert!(message.contains(expected), "{field}: {message}");
    }
    let no_rate = message(&(file("") + "[[path]]\nname = \"b\"\nowd_ms = 1"));
    assert!(
        no_rate.contains("path b: `rate_mbit` and `owd_ms`"),
        "{no_rate}"
    );
    let no_path = message("schedulers = \"lrf\"\nworkload = { kind = \"bulk\", duration_s = 1 }");
    assert!(no_path.contains("`path` is missing"), "{no_path}");
}

#[test]
fn error_for_an_unknown_scheduler_lists_all_names() {
    let text = file("").replace("\"lrf\"", "[\"lrf\", \"fastest\"]");
    let message = message(&text);
    assert!(
        message.starts_with("lab/x.toml:1: schedulers:"),
        "{message}"
    );
    for info in mpquic_sched::list() {
        assert!(message.contains(info.name), "{message}");
    }
    let all = Scenario::parse("x.toml", &file("").replace("\"lrf\"", "\"all\"")).unwrap();
    assert_eq!(all.contenders.len(), mpquic_sched::list().len());
}

#[test]
fn published_forms_are_contenders() {
    let wrong = message(&file("as_published = [[\"lrf\", \"lrf-ns3\"]]"));
    assert!(
        wrong.starts_with("lab/x.toml:3: as_published: \"lrf-ns3\""),
        "{wrong}"
    );
    let wrong = message(&file("as_published = [[\"lrf\"]]"));
    assert!(
        wrong.contains("two contenders") && wrong.contains("published form"),
        "{wrong}"
    );
}

#[test]
fn with_controllers_replaces_only_the_controller() {
    let text = file(
        "as_published = [[\"lrf\", \"slow\"]]\n\
         [[contender]]\nname = \"slow\"\nscheduler = \"lrf-ns3\"\ncontroller = \"olia\"\n\
         [[contender]]\nname = \"one\"\nscheduler = \"lrf\"\npaths = \"lowest-delay\"\n\
         [[contender]]\nname = \"other\"\nscheduler = \"lrf\"\ncontroller = \"newreno\"\n",
    );
    let mut scenario = Scenario::parse("x.toml", &text).unwrap();
    let forms = [("lrf".to_owned(), "slow".to_owned())];
    assert_eq!(scenario.as_published, forms);
    let names = |contenders: &[Contender]| -> Vec<String> {
        contenders.iter().map(|one| one.name.clone()).collect()
    };
    let cubic = with_controllers(&scenario.contenders, &["cubic".to_owned()]);
    // `other` differed from `lrf` only in its controller.
    assert_eq!(names(&cubic), ["lrf", "slow", "one"]);
    assert!(cubic.iter().all(|one| one.controller == "cubic"));
    assert_eq!(cubic[2].paths, UsedPaths::LowestDelay);
    assert_eq!(cubic[1].scheduler, "lrf-ns3");
    let both = ["cubic".to_owned(), "bbr".to_owned()];
    let two = with_controllers(&cubic[..2], &both);
    assert_eq!(
        names(&two),
        ["lrf+cubic", "lrf+bbr", "slow+cubic", "slow+bbr"]
    );
    assert_eq!(names(&with_controllers(&two[..2], &both)), both);
    // Names that identified a controller no longer do so.
    let olia = ["olia".to_owned()];
    let all = "schedulers = [\"lrf\", \"etc\"]\ncontrollers = [\"cubic\", \"bbr\"]";
    let all = file("").replace("schedulers = \"lrf\"", all);
    let all = Scenario::parse("x.toml", &all).unwrap().contenders;
    let each = ["lrf+cubic", "lrf+bbr", "etc+cubic", "etc+bbr"];
    assert_eq!(names(&all), each);
    assert_eq!(names(&with_controllers(&all, &olia)), ["lrf", "etc"]);
    let by_controller = with_controllers(&two[..2], &both);
    assert_eq!(names(&with_controllers(&by_controller, &olia)), ["lrf"]);
    scenario.set_contenders(cubic);
    assert_eq!(scenario.as_published, forms);
    scenario.set_contenders(two[..1].to_vec());
    assert_eq!(scenario.as_published, []);
}

#[test]
fn directions_and_later_values_override() {
    let text = file("")
        + "loss_pct = 2\n\
           queue_bdp = 2\n\
           c2s = { rate_mbit = 1, loss_pct = 0, queue_packets = 7 }\n\
           at = [{ t = 3, owd_ms = 20, dir = \"s2c\" }]\n\
           blackhole = [{ from = 5 }]\n";
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    let [up, down] = scenario.paths[0].links.links(&[], 1);
    assert_eq!(
        (up.rate, up.delay, up.loss),
        (Some(1e6), 5 * MS, Loss::None)
    );
    assert_eq!(up.queue, Some(Backlog::packets(7)));
    let outage = (5000 * MS, Change::Outage(true));
    assert_eq!(up.schedule, [outage]);
    assert_eq!((down.rate, down.loss), (Some(10e6), Loss::Bernoulli(0.02)));
    // Two bandwidth-delay products of 10 Mbit/s and 10 ms would be 25 kB, less than the minimum of
    // 20 packets. Later, two products are 100 kB.
    assert_eq!(down.queue, Some(Backlog::bytes(30_000)));
    let later = 3000 * MS;
    let expected = [
        (later, Change::Rate(10.0)),
        (later, Change::Delay(20 * MS)),
        (later, Change::Queue(Backlog::bytes(100_000))),
        outage,
    ];
    assert_eq!(down.schedule, expected);
}

#[test]
fn interfaces_go_and_come() {
    let text = file("") + "absent = [{ from = 3, to = 4.5 }, { from = 9 }]\n";
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    let absent = [(3000 * MS, Some(4500 * MS)), (9000 * MS, None)];
    assert_eq!(scenario.paths[0].absent, absent);
    let words = &scenario.words().paths[0];
    let expected = "; without an address from 3 to 4.5 s; without an address from 9 s";
    assert!(words.ends_with(expected), "{words}");
    let none = Scenario::parse("x.toml", &file("")).unwrap();
    assert_eq!(none.paths[0].absent, []);
}

#[test]
fn traces_and_single_paths_are_read() {
    let text = file("[[contender]]\nname = \"b alone\"\nscheduler = \"lrf\"\npaths = \"b\"\n")
        + "[[path]]\nname = \"b\"\nrate_mbit = 3\nowd_ms = 1\n\
           trace = { every_ms = 200, rate_mbit = [2, 4.5], dir = \"s2c\" }\n";
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    let alone = scenario.contenders.last().unwrap();
    assert_eq!(alone.paths, UsedPaths::Only(1));
    let [up, down] = scenario.paths[1].links.links(&[], 1);
    assert_eq!(up.trace, None);
    let trace = down.trace.unwrap();
    assert_eq!((trace.every, &trace.mbit[..]), (200 * MS, &[2.0, 4.5][..]));
    let words = scenario.words();
    let expected = "3.25 Mbit/s in the mean, as recorded, 1 ms one way; from the client: 3 Mbit/s";
    assert!(words.paths[1].starts_with(expected), "{words:?}");
    for (wrong, expected) in [
        ("rate_mbit = [2, 4.5]", "rate_mbit = [2, 0]"),
        ("every_ms = 200", "every_ms = 0"),
        ("paths = \"b\"", "paths = \"c\""),
    ] {
        let changed = text.replace(wrong, expected);
        assert_ne!(changed, text);
        assert!(Scenario::parse("x.toml", &changed).is_err(), "{expected}");
    }
}

#[test]
fn values_are_equal_for_equal_positions_and_within_their_ranges() {
    let text = file("draw = \"space-filling\"\npoints = 5\nruns = 2\nsweep = \"product\"")
        + "[[path]]\nname = \"b\"\nrate_mbit = [1, 2]\nrtt_ms = \"10..20\"\nloss_pct = \"0..1\"\n";
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    let points = Points::new(&scenario);
    assert_eq!((points.sweeps(), points.points()), (2, 5));
    assert_eq!(
        points.labels(1),
        [("b.rate_mbit".to_owned(), "2".to_owned())]
    );
    let names: Vec<_> = points.names().collect();
    assert_eq!(names, ["b.loss_pct", "b.rate_mbit", "b.rtt_ms"]);
    for point in 0..5 {
        let at = |sweep, run| points.values(Position { sweep, point, run });
        let values = at(0, 0);
        assert!((0.0..=1.0).contains(&values[0]) && (10.0..=20.0).contains(&values[2]));
        assert_eq!(values[1], 1.0);
        assert_eq!(values, at(0, 1), "a space-filling point serves all runs");
        assert_eq!([values[0], 2.0, values[2]], at(1, 0)[..]);
        let [up, down] = scenario.paths[1].links.one_way(&values);
        assert_eq!(up, down);
        assert!((5 * MS..=10 * MS).contains(&up));
    }
}

#[test]
fn redrawn_ranges_vary_around_their_middle() {
    let text = file("")
        + "[[path]]\nname = \"b\"\nrate_mbit = \"4..6\"\nowd_ms = \"10..10.5\"\nredraw_ms = 100\n";
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    assert!(scenario.parameters.is_empty());
    let [up, down] = scenario.paths[1].links.links(&[], 1);
    assert_eq!(
        (up.rate, up.delay),
        (Some(5e6), Duration::from_micros(10_250))
    );
    let variation = up.variation.unwrap();
    assert_eq!((variation.every, variation.rate), (100 * MS, 0.2));
    assert!((variation.delay - 0.25 / 10.25).abs() < 1e-9);
    assert_eq!(down.variation, Some(variation));
}

#[test]
fn a_workload_ends_before_the_limit() {
    let bulk = file("limit_s = 5").replace("\"file\", size_mb = 1", "\"bulk\", duration_s = 6");
    let message = message(&bulk);
    let expected = "lab/x.toml:2: workload: it ends after 6 s; expected at most `limit_s` = 5";
    assert_eq!(message, expected);
}

#[test]
fn description_contains_ecn_of_cross_traffic() {
    for (ecn, expected) in [
        ("none", "2 Mbit/s of other packets on a"),
        ("ect0", "2 Mbit/s of other packets on a, marked ECT(0)"),
        ("ect1", "2 Mbit/s of other packets on a, marked ECT(1)"),
    ] {
        let cross = format!("[[cross]]\npath = \"a\"\nrate_mbit = 2\necn = \"{ecn}\"");
        let scenario = Scenario::parse("x.toml", &file(&cross)).unwrap();
        assert_eq!(scenario.words().others, [expected]);
    }
}

#[test]
fn description_contains_differences_between_directions() {
    let words = |more: &str| {
        let scenario = Scenario::parse("x.toml", &file("").replace("owd_ms = 5", more)).unwrap();
        scenario.words().paths[0].clone()
    };
    for (more, expected) in [
        ("owd_ms = 5", "10 Mbit/s, 5 ms one way"),
        (
            "owd_ms = 5\ns2c = { loss_pct = 2 }",
            "10 Mbit/s, 5 ms one way, loses 2 % (to the client alone: loses 2 %)",
        ),
        (
            "owd_ms = 5\nc2s = { rate_mbit = 1 }",
            "10 Mbit/s, 5 ms one way; from the client: 1 Mbit/s",
        ),
        (
            "owd_ms = 5\nc2s = { rate_mbit = 1 }\ns2c = { loss_pct = 2 }",
            "10 Mbit/s, 5 ms one way, loses 2 %; from the client: 1 Mbit/s, 5 ms one way",
        ),
        (
            // Equally many parts, but with different subjects.
            "owd_ms = 5\nc2s = { queue_packets = 9 }\ns2c = { loss_pct = 2 }",
            "10 Mbit/s, 5 ms one way, loses 2 %; from the client: 10 Mbit/s, 5 ms one way, queue of 9 packets",
        ),
        (
            "owd_ms = 5\njitter_ms = 1\naqm = \"dualpi2\"",
            "10 Mbit/s, 5 ms one way ± 1 ms, managed by DualPI2",
        ),
    ] {
        assert_eq!(words(more), expected);
    }
}
