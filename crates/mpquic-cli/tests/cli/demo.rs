//! `mpquic demo`.

use serde_json::Value;

use crate::{assert_exit, run, stderr, stdout};

#[test]
fn the_demo_uses_both_paths() {
    let output = run(&[
        "demo", "--mib", "64", "--rate", "100M", "--steady", "--json",
    ]);
    assert_exit(&output, 0);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["bytes"], 64 << 20);
    let paths = report["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2, "{report}");
    if cfg!(target_os = "linux") {
        let local = |path: usize| paths[path]["local"].as_str().unwrap();
        assert!(local(0).starts_with("127.0.0.1:") && local(1).starts_with("127.0.0.2:"));
    }
    for path in paths {
        let carried = path["bytes_received"].as_u64().unwrap();
        // The rate is the limit: both paths are needed to go beyond one path's.
        assert!(carried >= 16 << 20, "{report}");
    }
}

#[test]
fn both_sides_of_the_demo_write_logs() {
    let logs = tempfile::tempdir().unwrap();
    let directory = logs.path().to_str().unwrap();
    let demo = ["demo", "--mib", "1", "--rate", "0", "--steady"];
    let output = run(&[&demo[..], &["--qlog-dir", directory]].concat());
    assert_exit(&output, 0);
    let names = crate::names(logs.path());
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("_client.sqlog") && names[1].ends_with("_server.sqlog"));
    // Nothing was wrong.
    for name in names {
        let log = std::fs::read_to_string(logs.path().join(name)).unwrap();
        let closed = log.lines().find(|line| line.contains("connection_closed"));
        let closed = closed.unwrap();
        assert!(closed.contains("\"error_code\":0,"), "{closed}");
        assert!(closed.contains("\"reason\":\"done\""), "{closed}");
    }
}

/// One path is cut, and comes back.
#[test]
fn the_demo_shows_an_outage() {
    let output = run(&["demo", "--mib", "32", "--rate", "40M", "--json"]);
    assert_exit(&output, 0);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["bytes"], 32 << 20);
    let (cut, gap) = (&report["outage"]["cut_ms"], &report["longest_gap_ms"]);
    let (cut, gap) = (cut.as_f64().unwrap(), gap.as_f64().unwrap());
    // Three tenths of the file over one path take 2 s; the other one does not wait.
    assert!(cut >= 1900.0 && gap > 0.0 && gap < cut / 2.0, "{report}");
    // Data takes its time: what is counted is more than a link carries at once.
    let again = report["outage"]["used_again_ms"].as_f64().unwrap();
    assert!(again >= 1.0, "{report}");
    let carried = |path: &Value| path["bytes_received"].as_u64().unwrap();
    let paths = report["paths"].as_array().unwrap();
    assert!(
        paths.len() == 2 && carried(&paths[1]) >= 6 << 20,
        "{report}"
    );
    assert!(
        carried(&paths[0]) >= carried(&paths[1]) + (4 << 20),
        "{report}"
    );
}

#[test]
fn the_demo_keeps_to_its_rate() {
    let output = run(&["demo", "--mib", "8", "--rate", "20M", "--json"]);
    assert_exit(&output, 0);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(output.stderr, b"");
    let seconds = report["seconds"].as_f64().unwrap();
    let bits = f64::from(8 << 20) * 8.0;
    // Of both paths together, but for what may leave at once in the beginning.
    assert!(bits / seconds < 44e6, "{report}");
}

#[test]
fn demo_describes_the_outage() {
    let output = run(&["demo", "--mib", "16", "--rate", "40M"]);
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert_eq!(
        told.lines().next(),
        Some(
            "Downloading 16 MiB of generated data over two loopback paths, each held to 40.0 Mbit/s. \
             One is cut after 40 %, and back after 70 %."
        )
    );
    // At once, or when this process gets to it.
    let percent = |what: &str| {
        let line = told.lines().find(|line| line.contains(what));
        let (percent, _) = line.unwrap().rsplit_once(" %: ").unwrap();
        let number = percent.rsplit(|c: char| !c.is_ascii_digit()).next();
        number.unwrap().parse::<u32>().unwrap()
    };
    assert!((40..=100).contains(&percent("one link is cut")), "{told}");
    assert!((70..=100).contains(&percent("it is back")), "{told}");
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("path  local"), "{text}");
    assert!(lines[1].starts_with("   0  127.0.0.1:"), "{text}");
    assert!(lines[3].starts_with("16.0 MiB in "), "{text}");
    assert!(lines[3].ends_with(", over 2 paths"), "{text}");
    let gap = "Longest time without data: ";
    assert!(lines[4].starts_with(gap), "{text}");
    let link = "The cut link carried ";
    assert!(lines[5].starts_with(link), "{text}");
    let matching = "SHA-256 of what was sent and of what arrived match: ";
    let sum = lines[6].strip_prefix(matching).unwrap();
    assert_eq!((sum.len(), lines.len()), (64, 7), "{text}");

    let output = run(&["demo", "--mib", "1", "--rate", "0", "--steady"]);
    assert_exit(&output, 0);
    let told = stderr(&output);
    let expected = "Downloading 1 MiB of generated data over two loopback paths.\n";
    assert!(told.starts_with(expected), "{told}");
    let text = stdout(&output);
    assert!(!text.contains("longest time"), "{text}");
    // What is generated is the same each time.
    let sum = text.lines().last().unwrap().rsplit(' ').next().unwrap();
    let again = run(&["demo", "--mib", "1", "--rate", "0", "--steady", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&again)).unwrap();
    assert_eq!(
        (report["sha256"].as_str(), &report["outage"]["cut_ms"]),
        (Some(sum), &Value::Null)
    );
}
