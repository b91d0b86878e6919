//! The numbers, names and combinations of fields that each field accepts.

use super::*;

/// A file with a field, including `= VALUE`, in the place of `@`.
fn at(template: &str, field: &str) -> String {
    template.replace('@', field)
}

const ROOT: &str = "schedulers = \"lrf\"\n@\nworkload = { kind = \"file\", size_mb = 1 }\n\
    [[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n";
const PATH: &str = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\n\
    [[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n@\n";
const RATE_OF_PATH: &str = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\n\
    [[path]]\nname = \"a\"\nowd_ms = 5\n@\n";
const DELAY_OF_PATH: &str = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\n\
    [[path]]\nname = \"a\"\nrate_mbit = 5\n@\n";
const TRANSPORT: &str = "schedulers = \"lrf\"\ntransport = { @ }\n\
    workload = { kind = \"file\", size_mb = 1 }\n\
    [[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n";
const COMPETITOR: &str = "schedulers = \"lrf\"\nlimit_s = 1e5\n\
    workload = { kind = \"file\", size_mb = 1 }\n\
    competitor = { name = \"x\", @ }\n[[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n";
const CROSS: &str = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\n\
    cross = { path = \"a\", @ }\n[[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n";
const PUBLISHED: &str = "schedulers = [\"lrf\", \"etc\"]\nworkload = { kind = \"file\", size_mb = 1 }\n\
    published = { contender = \"lrf\", @ }\n[[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n";

/// A file with this workload.
fn workload(fields: &str) -> String {
    let path = "[[path]]\nname = \"a\"\nrate_mbit = 10\nowd_ms = 5\n";
    format!("schedulers = \"lrf\"\nlimit_s = 1e5\nworkload = {{ {fields} }}\n{path}")
}

/// A template, a field, its smallest and largest value, and its unit.
type Range<'a> = (&'a str, &'a str, f64, f64, &'a str);

fn assert_ranges(ranges: &[Range<'_>]) {
    for &(template, field, least, most, unit) in ranges {
        let read = |value: f64| {
            let text = at(template, &field.replace('#', &value.to_string()));
            Scenario::parse("lab/x.toml", &text).map_err(|error| error.to_string())
        };
        for value in [least, most] {
            assert!(read(value).is_ok(), "{field} {value}: {:?}", read(value));
        }
        let unit = match unit {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        let before = field.split('#').next().unwrap();
        let before = before.trim_end_matches([' ', '=', '[', ',', '1']);
        let key = before
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        let key = key.unwrap();
        let expected = format!("is not possible; expected a number from {least} to {most}{unit}");
        // Slightly less than the smallest value, even for values far below 1, and slightly more
        // than the largest.
        for value in [least - 1e-3 * least.abs().max(1e-3), most * (1.0 + 1e-6)] {
            let message = read(value).unwrap_err();
            assert!(message.contains(&expected), "{field} {value}: {message}");
            assert!(message.contains(key), "{field} {value}: {message}");
        }
    }
}

#[test]
fn each_number_of_a_link_has_its_range() {
    assert_ranges(&[
        (RATE_OF_PATH, "rate_mbit = #", 0.001, 1e6, "Mbit/s"),
        (DELAY_OF_PATH, "owd_ms = #", 0.0, 1e5, "ms"),
        (DELAY_OF_PATH, "rtt_ms = #", 0.0, 1e5, "ms"),
        (PATH, "jitter_ms = #", 0.0, 1e5, "ms"),
        (PATH, "loss_pct = #", 0.0, 100.0, "%"),
        (PATH, "duplicate_pct = #", 0.0, 100.0, "%"),
        (PATH, "reorder_pct = #", 0.0, 100.0, "%"),
        (PATH, "reorder_extra_ms = #", 0.0, 1e5, "ms"),
        (
            PATH,
            "queue_bytes = #",
            1.0,
            1e9,
            "an empty queue cannot send",
        ),
        (
            PATH,
            "queue_packets = #",
            1.0,
            1e9,
            "an empty queue cannot send",
        ),
        (PATH, "queue_ms = #", 0.1, 1e5, "ms"),
        (PATH, "queue_bdp = #", 0.01, 1000.0, ""),
        (
            PATH,
            "ecn_bytes = #",
            1.0,
            1e9,
            "an empty queue cannot send",
        ),
        (
            PATH,
            "ecn_packets = #",
            1.0,
            1e9,
            "an empty queue cannot send",
        ),
        (PATH, "ecn_ms = #", 0.1, 1e5, "ms"),
        (PATH, "redraw_ms = #", 0.1, 1e6, "ms"),
        (
            PATH,
            "gilbert = { mean_loss_pct = #, mean_burst = 2 }",
            0.0,
            99.0,
            "%",
        ),
        (
            PATH,
            "gilbert = { mean_burst = #, mean_loss_pct = 1 }",
            1.0,
            1e6,
            "packets",
        ),
        (
            PATH,
            "trace = { every_ms = #, rate_mbit = [1] }",
            1.0,
            1e6,
            "ms",
        ),
        (
            PATH,
            "trace = { rate_mbit = [1, #], every_ms = 1 }",
            0.001,
            1e6,
            "Mbit/s",
        ),
        (PATH, "vary = { every_ms = # }", 0.1, 1e6, "ms"),
        (PATH, "vary = { rate_pct = # }", 0.0, 100.0, "%"),
        (PATH, "vary = { owd_pct = # }", 0.0, 100.0, "%"),
        (PATH, "vary = { loss_points = # }", 0.0, 100.0, "%"),
        (PATH, "at = { t = #, owd_ms = 1 }", 0.0, 1e5, "s"),
        (PATH, "blackhole = { from = # }", 0.0, 1e5, "s"),
    ]);
}

#[test]
fn each_number_of_a_scenario_has_its_range() {
    assert_ranges(&[
        (ROOT, "seed = #", 0.0, (1_u64 << 53) as f64, ""),
        (ROOT, "runs = #", 1.0, 1e5, ""),
        (
            ROOT,
            "draw = \"space-filling\"\npoints = #",
            1.0,
            10_000.0,
            "",
        ),
        (ROOT, "limit_s = #", 0.1, 1e5, "s"),
        (TRANSPORT, "mtu = #", 1200.0, 1452.0, ""),
        (TRANSPORT, "max_mtu = #", 1200.0, 1452.0, ""),
        (TRANSPORT, "receive_window_mb = #", 0.001, 1e4, "MB"),
        (TRANSPORT, "send_buffer_mb = #", 0.001, 1e4, "MB"),
        (TRANSPORT, "max_ack_delay_ms = #", 0.0, 1000.0, "ms"),
        (TRANSPORT, "ack_every = #", 1.0, 1000.0, ""),
        (TRANSPORT, "packet_threshold = #", 3.0, (1 << 20).into(), ""),
        (TRANSPORT, "time_threshold = #", 1.0, 16.0, "round trips"),
        (COMPETITOR, "count = #", 1.0, 200.0, ""),
        (COMPETITOR, "rate_mbit = #", 0.001, 1e6, "Mbit/s"),
        (CROSS, "rate_mbit = #", 0.001, 1e6, "Mbit/s"),
        (CROSS, "packet_bytes = #, rate_mbit = 1", 29.0, 65_535.0, ""),
        (CROSS, "from = #, rate_mbit = 1", 0.0, 1e5, "s"),
        (PUBLISHED, "value = #", 0.0, 1e12, ""),
        (PUBLISHED, "ratio = #, against = \"etc\"", 1e-6, 1e6, ""),
        (
            PUBLISHED,
            "better_pct = #, against = \"etc\"",
            0.0,
            100.0,
            "%",
        ),
        (
            PUBLISHED,
            "by_pct = #, better_pct = 50, against = \"etc\"",
            0.0,
            1e6,
            "%",
        ),
    ]);
}

#[test]
fn times_are_within_a_hundred_thousand_seconds() {
    let path = "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\n";
    let two = |fields: &str| file(&format!("limit_s = 1e5\n{fields}")) + path;
    let swap = two("swap = { paths = [\"a\", \"b\"], @ }");
    let cross = two("cross = { path = \"a\", rate_mbit = 1, @ }");
    assert_ranges(&[
        (&swap, "t = #", 0.0, 1e5, "s"),
        (&cross, "from = #", 0.0, 1e5, "s"),
    ]);
    // The times here also have to be before or after another time.
    let competitor = two("competitor = { name = \"x\", @ }");
    let migration = "contender = { name = \"x\", paths = \"a\", migrate_to = \"b\", @ }";
    let migration = two(migration);
    let root = two("@");
    for (template, field) in [
        (&competitor, "start_s"),
        (&competitor, "stop_s"),
        (&competitor, "count = 2, every_s"),
        (&cross, "to"),
        (&migration, "migrate_s"),
        (&root, "warm_up_s"),
    ] {
        for wrong in ["-0.001", "100000.001"] {
            let message = message(&at(template, &format!("{field} = {wrong}")));
            let expected =
                format!("{wrong} is not possible; expected a number from 0 to 100000 (s)");
            assert!(message.contains(&expected), "{field}: {message}");
        }
        let right = at(template, &format!("{field} = 99999.9"));
        let read = Scenario::parse("x", &right);
        assert!(read.is_ok(), "{field}: {read:?}");
    }
}

#[test]
fn each_number_of_a_workload_has_its_range() {
    let page = "kind = \"streams\", streams = [{ name = \"x\", size_kb = 1, @ }]";
    let streams = workload(page);
    let of = |fields: &str| workload(&format!("kind = {fields}, @"));
    let file = of("\"file\"");
    let flows = of("\"flows\"");
    let cbr = of("\"cbr\"");
    let bulk = of("\"bulk\"");
    let messages = of("\"messages\", size_kb = 1, duration_s = 1");
    let video = of("\"video\"");
    assert_ranges(&[
        (&file, "size_mb = #", 1e-6, 1e6, "MB"),
        (&file, "size_kb = #", 1e-3, 1e9, "kB"),
        (&file, "start_s = #, size_kb = 1", 0.0, 1e5, "s"),
        (&flows, "count = #, size_kb = 1", 1.0, 10_000.0, ""),
        (&cbr, "rate_mbit = #, duration_s = 1", 0.001, 1e6, "Mbit/s"),
        (&bulk, "duration_s = #", 0.001, 1e5, "s"),
        (&messages, "every_ms = #", 0.1, 1e5, "ms"),
        (&messages, "deadline_ms = #, every_ms = 1", 0.1, 1e5, "ms"),
        (
            &video,
            "rates_mbit = [#], segment_s = 1, duration_s = 1",
            0.001,
            1e6,
            "Mbit/s",
        ),
        (
            &video,
            "segment_s = #, rates_mbit = [1], duration_s = 1",
            0.001,
            1e5,
            "s",
        ),
        (&streams, "count = #", 1.0, 10_000.0, ""),
        (&streams, "priority = #", -1e6, 1e6, ""),
        (&streams, "weight = #", 1.0, 256.0, ""),
        (&streams, "wait_ms = #", 0.0, 1e5, "ms"),
    ]);
}

/// For each template and mistake, a part of the answer.
fn assert_refused(cases: &[(&str, &str, &str)]) {
    for &(template, field, expected) in cases {
        let message = message(&at(template, field));
        assert!(message.contains(expected), "{field}: {message}");
    }
}

#[test]
fn errors_for_wrong_types_name_the_expected_type() {
    assert_refused(&[
        (
            ROOT,
            "title = 5",
            "title: 5 is not possible; expected a text",
        ),
        (
            ROOT,
            "seed = true",
            "seed: true is not possible; expected a number from 0",
        ),
        (
            ROOT,
            "seed = 1.5",
            "seed: 1.5 is not possible; expected a whole number",
        ),
        (
            ROOT,
            "metric = 1979-05-27",
            "metric: a date is not possible; expected a text",
        ),
        (
            ROOT,
            "link = 1",
            "link: 1 is not possible; expected a list with at least one entry",
        ),
        (
            ROOT,
            "link = [1]",
            "link: 1 is not possible; expected a table",
        ),
        (
            ROOT,
            "transport = []",
            "transport: a list is not possible; expected a table",
        ),
        (
            ROOT,
            "baseline = {}",
            "baseline: a table is not possible; expected one of: lrf",
        ),
        (
            PATH,
            "backup = \"yes\"",
            "backup: \"yes\" is not possible; expected true or false",
        ),
        (
            PATH,
            "allow_reorder = 1",
            "allow_reorder: 1 is not possible; expected true or false",
        ),
    ]);
}

#[test]
fn errors_for_wrong_values_name_the_accepted_values() {
    assert_refused(&[
        (
            PATH,
            "aqm = \"red\"",
            "path a: aqm: \"red\" is not possible; expected one of: none, codel, fq-codel, pie, dualpi2",
        ),
        (
            PATH,
            "at = { t = 1, dir = \"up\" }",
            "path a: at: dir: \"up\" is not possible; expected one of: both, c2s, s2c",
        ),
        (
            PATH,
            "at = { t = 1, aqm = \"pie\" }",
            "path a: at: `aqm` cannot change: give it to the path or link",
        ),
        (PATH, "at = { owd_ms = 1 }", "path a: at: `t` is missing"),
        (
            PATH,
            "redraw_ms = 5\nvary = {}",
            "path a: vary: cannot be given together with `redraw_ms`",
        ),
        (
            PATH,
            "blackhole = [{ from = 2, to = 2 }]",
            "path a: blackhole: to: must be later than `from`",
        ),
        (
            PATH,
            "gilbert = { mean_burst = 2 }",
            "gilbert: `mean_loss_pct` is missing",
        ),
        (
            COMPETITOR,
            "controller = \"x\"",
            "competitor x: controller: ",
        ),
        (
            CROSS,
            "rate_mbit = 1, ecn = \"ce\"",
            "cross: ecn: \"ce\" is not possible; expected one of: none, ect0, ect1",
        ),
        (
            PUBLISHED,
            "value = 1, ratio = 1",
            "published: value: only one of `order`, `equal`, `ratio`, `better_pct`, `value` may be given",
        ),
        (
            PUBLISHED,
            "order = [\"lrf\"]",
            "published: order: an order needs at least two entries",
        ),
    ]);
}

#[test]
fn workload_needs_the_fields_of_its_kind() {
    for (fields, expected) in [
        (
            "kind = \"file\"",
            "workload: `size_mb` or `size_kb` is missing",
        ),
        (
            "kind = \"file\", size_mb = 1, size_kb = 1",
            "workload: size_kb: only one of `size_mb`, `size_kb` may be given",
        ),
        (
            "kind = \"mail\"",
            "workload: kind: \"mail\" is not possible; expected one of: file, flows, streams, page, cbr, bulk, messages, video",
        ),
        (
            "kind = \"flows\", size_kb = 1",
            "workload: `count` is missing",
        ),
        ("kind = \"bulk\"", "workload: `duration_s` is missing"),
        (
            "kind = \"video\", rates_mbit = [2, 1], segment_s = 1, duration_s = 1",
            "workload: rates_mbit: the rates must rise",
        ),
        (
            "kind = \"streams\", streams = [{ name = \"x\", size_kb = 1 }, { name = \"x\", size_kb = 1 }]",
            "\"x\" is there already",
        ),
        (
            "kind = \"streams\", streams = [{ name = \"x\", size_kb = 1, after = \"y\" }]",
            "streams, object x: after: \"y\" is not possible",
        ),
        (
            "kind = \"file\", size_kb = 1, paths = \"b\"",
            "workload: paths: there is no path \"b\"; there are: a",
        ),
        (
            "kind = \"file\", size_kb = 1, handshake_path = \"b\"",
            "workload: handshake_path: \"b\" is not possible; expected one of: a",
        ),
        (
            "kind = \"file\", size_kb = 1, direction = \"up\"",
            "workload: direction: \"up\" is not possible; expected one of: download, upload",
        ),
        (
            "kind = \"file\", size_kb = 1, inner = \"cubic\"",
            "workload: `inner` is not possible with `transport.mtu` = 1200; expected at least 1280",
        ),
        (
            "kind = \"bulk\", duration_s = 99999, start_s = 2",
            "workload: it ends after 100001 s; expected at most `limit_s` = 100000",
        ),
    ] {
        let message = message(&workload(fields));
        assert!(message.contains(expected), "{fields}: {message}");
    }
    let with_inner = workload("kind = \"file\", size_kb = 1, inner = \"cubic\"");
    let wide = format!("transport = {{ mtu = 1280 }}\n{with_inner}");
    assert!(Scenario::parse("x", &wide).is_ok());
    let just = workload("kind = \"bulk\", duration_s = 99999, start_s = 1");
    assert!(Scenario::parse("x", &just).is_ok());
}

#[test]
fn there_are_eight_paths_at_most_and_names_are_plain() {
    let path = |name: &str| format!("[[path]]\nname = \"{name}\"\nrate_mbit = 1\nowd_ms = 1\n");
    let more: String = ["b", "c", "d", "e", "f", "g", "h"].map(path).concat();
    let eight = file("") + &more;
    assert_eq!(Scenario::parse("x", &eight).unwrap().paths.len(), 8);
    let nine = message(&(eight + &path("i")));
    assert!(
        nine.contains("path: 9 are not possible; expected at most 8"),
        "{nine}"
    );
    for name in ["", "a b", "ä", "a.b"] {
        let wrong = message(&(file("") + &path(name)));
        assert!(
            wrong.contains("expected letters, digits, - and _"),
            "{wrong}"
        );
    }
    assert!(Scenario::parse("x", &(file("") + &path("B-2_c"))).is_ok());
}

#[test]
fn lists_that_go_together_have_one_length() {
    let text = |more: &str| {
        let zip = file("sweep = \"zip\"").replace("owd_ms = 5", "owd_ms = [1, 2]");
        zip.replace("rate_mbit = 10", &format!("rate_mbit = {more}"))
    };
    let wrong = message(&text("[1, 2, 3]"));
    let expected = "lab/x.toml:3: sweep: \"zip\" needs lists of one length; a.rate_mbit has 3 values, a.owd_ms 2";
    assert_eq!(wrong, expected);
    let right = Scenario::parse("x", &text("[1, 2]")).unwrap();
    assert!(right.zip_sweeps);
    assert_eq!(Points::new(&right).sweeps(), 2);
}

#[test]
fn a_swap_has_two_paths_and_a_migration_has_both_fields() {
    let two = file("") + "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\n";
    for (more, expected) in [
        (
            "[[swap]]\nt = 1\npaths = [\"a\"]",
            "swap: paths: 1 paths are not possible; expected two",
        ),
        (
            "[[contender]]\nname = \"x\"\nmigrate_to = \"b\"",
            "contender x: migrate_to: `migrate_s` is needed beside it",
        ),
        (
            "[[contender]]\nname = \"x\"\nmigrate_to = \"b\"\nmigrate_s = 0\npaths = \"a\"",
            "contender: `migrate_s` = 0 is not possible; expected more than the start at 0 s",
        ),
        (
            "[[contender]]\nname = \"lrf\"",
            "contender: name: there is one of this name already",
        ),
    ] {
        let message = message(&format!("{two}{more}"));
        assert!(message.contains(expected), "{more}: {message}");
    }
    let none = two.replace("schedulers = \"lrf\"\n", "");
    let none = message(&none);
    assert_eq!(
        none,
        "lab/x.toml:1: `schedulers` or a `[[contender]]` is needed"
    );
}

#[test]
fn claim_must_name_an_existing_swept_value() {
    let text = |at: &str| {
        let more = format!("[[published]]\ntext = \"x\"\nat = \"{at}\"");
        file(&more).replace("owd_ms = 5", "owd_ms = [1, 2]")
    };
    for at in ["a.owd_ms=1", "a.owd_ms=2"] {
        let scenario = Scenario::parse("x", &text(at)).unwrap();
        assert_eq!(scenario.published[0].at, at);
    }
    let wrong = message(&text("a.owd_ms=3"));
    let expected =
        "published: at: \"a.owd_ms=3\" is not possible; expected one of: a.owd_ms=1, a.owd_ms=2";
    assert!(wrong.contains(expected), "{wrong}");
}

#[test]
fn unknown_field_is_refused_in_each_table() {
    let link = "link = { name = \"s\", rate_mbit = 1, owd_ms = 1, @ }";
    let swap = "swap = { t = 1, paths = [\"a\", \"b\"], @ }";
    let page = "page = { name = \"p\", objects = [{ name = \"x\", size_kb = 1 }], @ }";
    let two = |more: &str| file(more) + "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\n";
    let streams = "kind = \"streams\", streams = [{ name = \"x\", size_kb = 1, @ }]";
    let nested = |field: &str| PATH.replace('@', field);
    for (template, place) in [
        (ROOT.to_owned(), ""),
        (PATH.to_owned(), "path a: "),
        (two(link), "link s: "),
        (two(swap), "swap: "),
        (two(page), "page p: "),
        (two("contender = { name = \"x\", @ }"), "contender x: "),
        (TRANSPORT.to_owned(), "transport: "),
        (COMPETITOR.to_owned(), "competitor x: "),
        (CROSS.replace('@', "rate_mbit = 1, @"), "cross: "),
        (PUBLISHED.replace('@', "value = 1, @"), "published: "),
        (workload("kind = \"file\", size_kb = 1, @"), "workload: "),
        (workload(streams), "streams, object x: "),
        (nested("c2s = { @ }"), "path a: c2s: "),
        (
            nested("trace = { every_ms = 1, rate_mbit = [1], @ }"),
            "path a: trace: ",
        ),
        (nested("vary = { @ }"), "path a: vary: "),
        (nested("at = { t = 1, @ }"), "path a: at: "),
        (nested("blackhole = { from = 1, @ }"), "path a: blackhole: "),
        (
            nested("gilbert = { mean_loss_pct = 1, mean_burst = 2, @ }"),
            "gilbert: ",
        ),
    ] {
        let message = message(&at(&template, "nonsense = 1"));
        let expected = format!("{place}unknown field `nonsense`; there are: ");
        assert!(message.contains(&expected), "{place}: {message}");
    }
}
