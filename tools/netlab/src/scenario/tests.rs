use super::{Scenario, parse};
use crate::link::Change;

fn read(text: &str) -> Result<Scenario, String> {
    parse(text, "x", None)
}

#[test]
fn a_table_applies_to_both_directions_unless_a_direction_overrides_fields() {
    let s = read(
        r#"
        [[path]]
        rate_mbit = 40
        owd_ms = 7.5
        blackhole = [{ from = 3.0 }]
        [path.c2s]
        rate_mbit = 10
        queue_ms = 20
        [[path.at]]
        t = 1
        owd_ms = 60
        [path.vary]
        rate_pct = 5
        "#,
    )
    .unwrap();
    assert_eq!((s.name.as_str(), s.seed), ("x", 1));
    let [c2s, s2c] = &s.paths[0].dir;
    assert_eq!(c2s.base.rate, 10e6);
    assert_eq!(c2s.base.queue.time, 20e6);
    assert_eq!(s2c.base.rate, 40e6);
    assert_eq!(s2c.base.queue.bytes, 250_000.0);
    assert_eq!(s2c.changes.len(), 2);
    let (t, Change::Set(params)) = &s2c.changes[0] else {
        panic!("{:?}", s2c.changes[0]);
    };
    // 120 ms of 40 Mbit/s.
    assert_eq!((*t, params.queue.bytes), (1_000_000_000, 600_000.0));
    assert_eq!(s2c.changes[1], (3_000_000_000, Change::Blackhole(true)));
    assert_eq!(c2s.vary_stream, s2c.vary_stream);
    assert_ne!(c2s.stream, s2c.stream);
}

#[test]
fn a_seed_of_the_command_line_replaces_the_seed_of_the_file() {
    let text = "seed = 7\n[[path]]\nrate_mbit = 1\nowd_ms = 1\n";
    assert_eq!(parse(text, "x", None).unwrap().seed, 7);
    let s = parse(text, "x", Some(9)).unwrap();
    assert_eq!((s.seed, s.paths[0].dir[0].seed), (9, 9));
}

#[test]
fn losses_in_bursts_have_the_mean_that_the_file_asks_for() {
    let s = read(
        "[[path]]\nrate_mbit = 1\nowd_ms = 1\ngilbert = { mean_loss_pct = 1, mean_burst = 4 }\n",
    )
    .unwrap();
    let g = s.paths[0].dir[0].base.gilbert.unwrap();
    assert_eq!((g.p_bad_good, g.loss_good, g.loss_bad), (0.25, 0.0, 1.0));
    let mean = g.p_good_bad / (g.p_good_bad + g.p_bad_good);
    assert!((mean - 0.01).abs() < 1e-12, "{mean}");
}

#[test]
fn an_error_names_the_place_the_field_and_the_value() {
    let path = |more: &str| format!("[[path]]\nrate_mbit = 1\nowd_ms = 1\n{more}\n");
    for (text, parts) in [
        (
            path("los_pct = 1"),
            &["path 0 (p0)", "unknown field 'los_pct'"][..],
        ),
        (path("[path.c2s]\nx = 1"), &["path 0 (p0) c2s", "'x'"]),
        (
            path("[[path.at]]\nt = 1\nx = 1"),
            &["path 0 (p0) at 1", "'x'"],
        ),
        (path("[[path.at]]\nowd_ms = 1"), &["missing field `t`"]),
        (
            path("loss_pct = 101"),
            &["path 0 (p0) c2s", "loss_pct = 101"],
        ),
        (
            path("[path.s2c]\nloss_pct = -1"),
            &["path 0 (p0) s2c", "loss_pct = -1"],
        ),
        (path("jitter_ms = -2"), &["jitter_ms = -2"]),
        (
            path("jitter_dist = \"pareto\""),
            &["jitter_dist", "pareto", "normal"],
        ),
        (path("queue = \"long\""), &["queue", "long", "none"]),
        (
            path("queue = \"auto\"\nqueue_ms = 3"),
            &["queue", "auto", "queue_ms"],
        ),
        (path("mtu = 60"), &["mtu = 60"]),
        (
            path("gilbert = { mean_loss_pct = 1 }"),
            &["gilbert", "mean_burst"],
        ),
        (
            path("gilbert = { p_good_bad = 2, p_bad_good = 0.5 }"),
            &["gilbert.p_good_bad = 2"],
        ),
        (
            path("gilbert = { mean_loss_pct = 100, mean_burst = 2 }"),
            &["gilbert.mean_loss_pct = 100"],
        ),
        (
            path("blackhole = [{ from = 1, dir = \"up\" }]"),
            &["blackhole", "\"up\"", "s2c"],
        ),
        (path("blackhole = [{ till = 1 }]"), &["till"]),
        (path("[path.vary]\nrate = 5"), &["rate", "rate_pct"]),
        ("[[path]]\nowd_ms = 1\n".into(), &["rate_mbit is missing"]),
        ("[[path]]\nrate_mbit = 1\n".into(), &["owd_ms is missing"]),
        (
            "[[path]]\nrate_mbit = 0\nowd_ms = 1\n".into(),
            &["rate_mbit = 0", "blackhole"],
        ),
        (
            "[[path]]\nrate_mbit = 1\nowd_ms = -1\n".into(),
            &["owd_ms = -1"],
        ),
        (
            format!("speed = 1\n{}", path("")),
            &["unknown field `speed`"],
        ),
        (
            format!("interval_ms = 0\n{}", path("")),
            &["interval_ms = 0"],
        ),
        (
            format!("server_routing = \"best\"\n{}", path("")),
            &["server_routing", "best"],
        ),
        ("name = 3\n[[path]]\n".into(), &["name = 3"]),
    ] {
        let error = read(&text)
            .err()
            .unwrap_or_else(|| panic!("accepted: {text}"));
        for part in parts {
            assert!(error.contains(part), "{text}: {error} does not name {part}");
        }
    }
}

#[test]
fn every_scenario_of_the_project_is_accepted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut names = vec![];
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let s = parse(&text, "no name", None).unwrap_or_else(|e| panic!("{stem}: {e}"));
        assert_eq!(s.name, stem);
        assert_eq!(s.describe().lines().count(), 1 + 2 * s.paths.len());
        names.push(stem);
    }
    assert!(names.contains(&"two-equal".to_string()), "{names:?}");
}

#[test]
fn a_scenario_without_a_path_is_refused() {
    let error = read("path = []").err().unwrap();
    assert!(error.contains("0 [[path]] tables"), "{error}");
}
