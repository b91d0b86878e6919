//! Descriptions of scenarios in words.

use super::*;

fn read(text: &str) -> Scenario {
    Scenario::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_workload_has_its_words() {
    let workload = |fields: &str| {
        let text = file("transport = { mtu = 1400 }");
        let text = text.replace("kind = \"file\", size_mb = 1", fields)
            + "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\n\
               [[path]]\nname = \"c\"\nrate_mbit = 1\nowd_ms = 1\n";
        read(&text).words().workload
    };
    let down = ", from the server to the client";
    for (fields, expected) in [
        ("kind = \"file\", size_mb = [1, 2]", "a file of 1 or 2 MB"),
        (
            "kind = \"flows\", count = 3, size_kb = 2000",
            "3 files of 2000 kB, one after another",
        ),
        (
            "kind = \"streams\", streams = [{ name = \"x\", size_kb = 1 }, { name = \"y\", size_kb = 2, count = 4 }]",
            "objects: x (1 kB), y (4 x 2 kB)",
        ),
        (
            "kind = \"cbr\", rate_mbit = 4, duration_s = 1.5",
            "4 Mbit/s for 1.5 s, whatever arrives",
        ),
        (
            "kind = \"bulk\", duration_s = 3",
            "as much as possible for 3 s",
        ),
        (
            "kind = \"messages\", every_ms = 2.5, size_kb = 1, duration_s = 3",
            "messages of 1 kB, one every 2.5 ms for 3 s",
        ),
        (
            "kind = \"messages\", every_ms = 2, size_kb = 1, duration_s = 3, arrivals = \"poisson\", deadline_ms = 5",
            "messages of 1 kB, one every 2 ms in the mean, at random for 3 s, late after 5 ms",
        ),
        (
            "kind = \"video\", rates_mbit = [1, 2.5], segment_s = 4, duration_s = 20",
            "a video of 20 s in segments of 4 s, of 1, 2.5 Mbit/s as the rate allows",
        ),
    ] {
        assert_eq!(workload(fields), format!("{expected}{down}"));
    }
    let file = "kind = \"file\", size_mb = 1";
    let up = workload(&format!(
        "{file}, direction = \"upload\", paths = [\"c\", \"a\"]"
    ));
    assert_eq!(
        up,
        "a file of 1 MB, from the client to the server, over c and a"
    );
    let inner = workload(&format!("{file}, inner = \"bbr\""));
    let expected = format!("a file of 1 MB{down}, by a connection (bbr) inside of DATAGRAMs");
    assert_eq!(inner, expected);
}

#[test]
fn pages_are_described_one_by_one() {
    let text = file("").replace(
        "kind = \"file\", size_mb = 1",
        "kind = \"page\", page = [\"p\", \"q\"]",
    ) + "[[page]]\nname = \"p\"\nobjects = [{ name = \"x\", size_kb = 1 }]\n\
           [[page]]\nname = \"q\"\nobjects = [{ name = \"y\", size_mb = 2 }]\n";
    let words = read(&text).words().workload;
    assert_eq!(
        words,
        "objects: x (1 kB); or y (2 MB), from the server to the client"
    );
}

#[test]
fn each_field_of_a_link_has_its_words() {
    let words = |fields: &str| {
        let text = file("").replace("rate_mbit = 10\nowd_ms = 5", fields);
        read(&text).words().paths[0].clone()
    };
    assert_eq!(
        words("rate_mbit = inf\nrtt_ms = 9"),
        "no limit of the rate, 4.5 ms one way"
    );
    let ranges = "rate_mbit = [1, 2]\nrtt_ms = \"10..20\"\nloss_pct = \"0..1\"";
    assert_eq!(
        words(ranges),
        "1 or 2 Mbit/s, 5 to 10 ms one way, loses 0 to 1 %"
    );
    let of = |fields: &str| words(&format!("rate_mbit = 1\nowd_ms = 2\n{fields}"));
    for (fields, expected) in [
        ("backup = true", "; a backup"),
        ("loss_pct = 0", ""),
        (
            "gilbert = { mean_loss_pct = 5, mean_burst = 4 }",
            ", loses 5 % in bursts of 4",
        ),
        ("queue = \"auto\"", ""),
        ("queue = \"none\"", ", queue without limit"),
        ("queue_bdp = 2", ", queue of 2 bandwidth-delay products"),
        (
            "queue_bytes = 9000\nqueue_packets = 7\nqueue_ms = 5",
            ", queue of 9000 bytes or 7 packets or 5 ms",
        ),
        ("aqm = \"none\"", ""),
        ("aqm = \"codel\"", ", managed by CoDel"),
        ("aqm = \"fq-codel\"", ", managed by FQ-CoDel"),
        ("aqm = \"pie\"", ", managed by PIE"),
        (
            "aqm = [\"pie\", \"codel\"]",
            ", its queue managed in several ways",
        ),
        (
            "vary = { rate_pct = 12.5 }",
            ", changes every 0.1 s (rate ± 12.5 %)",
        ),
        (
            "vary = { every_ms = 50, owd_pct = 5 }",
            ", changes every 0.05 s",
        ),
        ("at = [{ t = 3, owd_ms = 1 }]", ", changes at 3 s"),
        (
            "blackhole = [{ from = 1.5, to = 2 }, { from = 9 }]",
            ", cut at 1.5 s until 2 s, cut at 9 s",
        ),
    ] {
        assert_eq!(of(fields), format!("1 Mbit/s, 2 ms one way{expected}"));
    }
}

#[test]
fn others_and_shared_links_have_their_words() {
    let scenario = read(
        &(file(
            "limit_s = 99\n\
             [[link]]\nname = \"s\"\nrate_mbit = 3\nowd_ms = 2\n\
             [[competitor]]\nname = \"x\"\n\
             [[competitor]]\nname = \"y\"\ncontroller = \"single-path\"\ndirection = \"upload\"\npaths = \"b\"\nrate_mbit = 2\n\
             [[competitor]]\nname = \"z\"\ncount = 3\n\
             [[swap]]\nt = 7.5\npaths = [\"b\", \"a\"]\n",
        ) + "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\nvia = \"s\"\n"),
    );
    let words = scenario.words();
    let expected = [
        "x: another connection, which sends all it can over a and b (newreno)",
        "y: another connection, which sends 2 Mbit/s from the client over b (single-path)",
        "z-1 to z-3: 3 other connections, each of which sends all it can over a and b (newreno)",
        "b and a change places at 7.5 s",
    ];
    assert_eq!(words.others, expected);
    let link = ("s".to_owned(), "3 Mbit/s, 2 ms one way".to_owned(), vec![1]);
    assert_eq!(words.links, [link]);
}
