use super::{Scenario, parse};
use crate::link::{Backlog, Change, Params, Vary};

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

#[test]
fn every_field_of_a_link_has_its_unit_and_its_default() {
    let s = read(
        r#"
        [[path]]
        rate_mbit = 40
        owd_ms = 7.5
        [[path]]
        rate_mbit = inf
        owd_ms = 20
        jitter_ms = 3
        jitter_dist = "normal"
        allow_reorder = true
        loss_pct = 2
        duplicate_pct = 3
        reorder_pct = 4
        reorder_extra_ms = 6
        queue_ms = 30
        queue_bytes = 9000
        queue_packets = 8
        ecn_ms = 10
        ecn_bytes = 4000
        ecn_packets = 5
        "#,
    )
    .unwrap();
    let none = Backlog::NONE;
    let least = Params {
        rate: 40e6,
        owd: 7.5e6,
        jitter: 0.0,
        jitter_normal: false,
        allow_reorder: false,
        loss: 0.0,
        gilbert: None,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_extra: 5e6,
        queue: Backlog {
            bytes: 250_000.0,
            ..none
        },
        ecn: none,
    };
    let most = Params {
        rate: f64::INFINITY,
        owd: 20e6,
        jitter: 3e6,
        jitter_normal: true,
        allow_reorder: true,
        loss: 0.02,
        gilbert: None,
        duplicate: 0.03,
        reorder: 0.04,
        reorder_extra: 6e6,
        queue: Backlog {
            bytes: 9000.0,
            packets: 8.0,
            time: 30e6,
        },
        ecn: Backlog {
            bytes: 4000.0,
            packets: 5.0,
            time: 10e6,
        },
    };
    for (path, expected) in s.paths.iter().zip([least, most]) {
        assert_eq!(
            (path.mtu, s.interval_ns, s.source_routing),
            (1500, 100_000_000, false)
        );
        for plan in &path.dir {
            assert_eq!(plan.base, expected);
            assert_eq!(plan.interval, s.interval_ns);
        }
    }
}

#[test]
fn variation_has_streams_of_its_own_for_each_path_and_for_directions_that_differ() {
    let path = "[[path]]\nrate_mbit = 1\nowd_ms = 1\n";
    let vary = "[path.vary]\nevery_ms = 200\nrate_pct = 5\nowd_pct = 10\nloss_points = 0.5\n";
    let s = read(&format!("{path}{vary}{path}{vary}shared = false\n")).unwrap();
    let expected = Vary {
        every: 200_000_000,
        rate: 0.05,
        owd: 0.1,
        loss: 0.005,
    };
    let plans: Vec<_> = s.paths.iter().flat_map(|p| &p.dir).collect();
    assert!(plans.iter().all(|p| p.vary == Some(expected)));
    // The numbers of the streams decide which packets of a published run were lost.
    let streams: Vec<_> = plans.iter().map(|p| (p.stream, p.vary_stream)).collect();
    assert_eq!(streams, [(0, 4), (1, 4), (8, 13), (9, 14)]);
}

#[test]
fn a_change_of_one_direction_leaves_the_other_one_as_it_was() {
    let s = read(
        "[[path]]\nrate_mbit = 8\nowd_ms = 1\nqueue = \"none\"\n\
         blackhole = [{ from = 3, to = 4.5, dir = \"c2s\" }]\n\
         [[path.at]]\nt = 2\ndir = \"s2c\"\nrate_mbit = 4\n",
    )
    .unwrap();
    let [c2s, s2c] = &s.paths[0].dir;
    let set = |rate: f64| {
        let mut params = c2s.base.clone();
        params.rate = rate;
        (2_000_000_000, Change::Set(params))
    };
    assert_eq!(c2s.base.queue, Backlog::NONE);
    assert_eq!(s2c.changes, [set(4e6)]);
    let outage = [
        (3_000_000_000, Change::Blackhole(true)),
        (4_500_000_000, Change::Blackhole(false)),
    ];
    assert_eq!(c2s.changes[0], set(8e6));
    assert_eq!(c2s.changes[1..], outage);
}

#[test]
fn a_hundred_paths_are_the_most() {
    let path = "[[path]]\nrate_mbit = 1\nowd_ms = 1\nmtu = 65535\n";
    assert_eq!(read(&path.repeat(100)).unwrap().paths.len(), 100);
    assert!(
        read(&path.repeat(101))
            .err()
            .unwrap()
            .contains("101 [[path]] tables")
    );
}

#[test]
fn a_description_has_a_line_for_each_direction() {
    let s = read(
        "name = \"both\"\nserver_routing = \"source\"\nsysctl = { \"net.a\" = 1, \"net.b\" = \"x\" }\n\
         [[path]]\nname = \"wifi\"\nrate_mbit = 40\nowd_ms = 7.5\nqueue_ms = 20\nqueue_packets = 9\n\
         blackhole = [{ from = 3 }]\n[path.s2c]\nloss_pct = 1\nqueue = \"none\"\n\
         [path.vary]\nrate_pct = 5\n",
    )
    .unwrap();
    assert!(s.source_routing);
    assert_eq!(
        s.sysctl,
        [("net.a", "1"), ("net.b", "x")].map(|(k, v)| (k.into(), v.into()))
    );
    let vary = ", every 100 ms rate +-5 % owd +-0 % loss +-0 points, 1 scheduled changes";
    let expected = format!(
        "both (seed 1)\n\
         path 0 wifi       c2s   40.000 Mbit/s owd    7.50 ms loss  0.000 % queue 9 packets / 20 ms mtu 1500{vary}\n\
         path 0 wifi       s2c   40.000 Mbit/s owd    7.50 ms loss  1.000 % queue unlimited mtu 1500{vary}\n"
    );
    assert_eq!(s.describe(), expected);
}
