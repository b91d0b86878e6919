//! The effect of each field of a file, and the default without the field.

use mpquic_core::EcnCodepoint;

use super::*;
use crate::link::{Discipline, Jitter, LinkConfig, RateTrace, Variation};

fn read(text: &str) -> Scenario {
    Scenario::parse("lab/x.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

const SECOND: Duration = Duration::from_secs(1);

/// The links of a file whose only path has these fields.
fn links(fields: &str) -> [LinkConfig; 2] {
    let text = format!(
        "schedulers = \"lrf\"\nworkload = {{ kind = \"file\", size_mb = 1 }}\n\
         [[path]]\nname = \"a\"\n{fields}\n"
    );
    read(&text).paths[0].links.links(&[], 3)
}

/// A link of 10 Mbit/s and 5 ms with these fields, from the client.
fn link(fields: &str) -> LinkConfig {
    let [up, down] = links(&format!("rate_mbit = 10\nowd_ms = 5\n{fields}"));
    assert_eq!(up, down);
    up
}

fn plain() -> LinkConfig {
    LinkConfig::new(10.0, 5 * MS)
}

#[test]
fn missing_fields_have_defaults() {
    let scenario = read(&file(""));
    assert_eq!(scenario.id, "x");
    let texts = [&scenario.title, &scenario.paper, &scenario.figure];
    assert!(texts.iter().all(|text| text.is_empty()));
    assert_eq!((scenario.metric, scenario.variant_of), (None, None));
    assert_eq!((scenario.seed, scenario.runs), (1, 1));
    assert_eq!((scenario.draw, scenario.zip_sweeps), (Draw::Uniform, false));
    assert_eq!(scenario.limit, 300 * SECOND);
    assert_eq!(scenario.warm_up, Duration::ZERO);
    let contender = &scenario.contenders[0];
    let controller = mpquic_cc::list()[0].name;
    assert_eq!(*contender, Contender::new("lrf", "lrf", controller));
    assert_eq!(scenario.baseline, "lrf");
    let transport = Transport {
        mtu: 1200,
        max_mtu: 1200,
        receive_window: None,
        send_buffer: None,
        max_ack_delay: 25 * MS,
        ack_every: 2,
        packet_threshold: 3,
        time_threshold: 1.125,
        pacing: true,
        ack_on_fastest_path: true,
        show_queues: false,
    };
    assert_eq!(scenario.transport, transport);
    let workload = &scenario.workload;
    assert_eq!((workload.upload, workload.wait_for_paths), (false, false));
    assert_eq!(
        (&workload.paths[..], workload.start),
        (&[0][..], Duration::ZERO)
    );
    assert_eq!(workload.handshake_path, Number::Fixed(0.0));
    assert_eq!(workload.inner, None);
    assert!(scenario.links.is_empty() && scenario.swaps.is_empty());
    assert!(scenario.competitors.is_empty() && scenario.cross_traffic.is_empty());
    assert!(scenario.published.is_empty() && scenario.as_published.is_empty());
    assert!(scenario.parameters.is_empty());
    assert!(!scenario.paths[0].backup && scenario.paths[0].via.is_empty());
    let id = |name: &str| Scenario::parse(name, &file("")).unwrap().id;
    assert_eq!([id("x"), id("a\\b.toml"), id("a/b.c")], ["x", "b", "b.c"]);
}

#[test]
fn given_fields_replace_defaults() {
    let scenario = read(&file(
        "title = \"T\"\npaper = \"P\"\nfigure = \"F\"\nmetric = \"gap_s\"\nvariant_of = \"v\"\n\
         seed = 7\nruns = 3\ndraw = \"space-filling\"\npoints = 9\nsweep = \"zip\"\n\
         limit_s = 20\nwarm_up_s = 1.5\ncontrollers = [\"cubic\", \"bbr\"]\nbaseline = \"bbr\"\n\
         [transport]\nmtu = 1400\nmax_mtu = 1450\nreceive_window_mb = 2\nsend_buffer_mb = 0.5\n\
         max_ack_delay_ms = 5\nack_every = 10\npacket_threshold = 20\ntime_threshold = 1.5\n\
         pacing = false\nack_on_fastest_path = false\nshow_queues = true\n",
    ));
    let texts = [scenario.title.as_str(), &scenario.paper, &scenario.figure];
    assert_eq!(texts, ["T", "P", "F"]);
    assert_eq!(scenario.metric.as_deref(), Some("gap_s"));
    assert_eq!(scenario.variant_of.as_deref(), Some("v"));
    assert_eq!((scenario.seed, scenario.runs), (7, 3));
    assert_eq!(scenario.draw, Draw::SpaceFilling(9));
    assert!(scenario.zip_sweeps);
    assert_eq!(scenario.limit, 20 * SECOND);
    assert_eq!(scenario.warm_up, 1500 * MS);
    let names: Vec<_> = scenario
        .contenders
        .iter()
        .map(|one| &one.name[..])
        .collect();
    assert_eq!(
        (names, &scenario.baseline[..]),
        (vec!["cubic", "bbr"], "bbr")
    );
    let transport = Transport {
        mtu: 1400,
        max_mtu: 1450,
        receive_window: Some(2_000_000),
        send_buffer: Some(500_000),
        max_ack_delay: 5 * MS,
        ack_every: 10,
        packet_threshold: 20,
        time_threshold: 1.5,
        pacing: false,
        ack_on_fastest_path: false,
        show_queues: true,
    };
    assert_eq!(scenario.transport, transport);
    let filling = read(&file("draw = \"space-filling\""));
    assert_eq!(filling.draw, Draw::SpaceFilling(20));
}

#[test]
fn fields_of_a_path_become_those_of_its_links() {
    assert_eq!(link(""), plain());
    assert_eq!(
        links("rate_mbit = inf\nrtt_ms = 9")[0],
        LinkConfig::new(f64::INFINITY, 9 * MS / 2)
    );
    assert_eq!(link("jitter_ms = 2"), plain().jitter(2 * MS));
    let normal = link("jitter_ms = 2\njitter_dist = \"normal\"");
    assert_eq!(normal, plain().normal_jitter(2 * MS));
    assert_eq!(
        link("jitter_ms = 0\njitter_dist = \"normal\"").jitter,
        Jitter::None
    );
    assert!(link("allow_reorder = true").jitter_reorders);
    assert_eq!(link("loss_pct = 2"), plain().loss(0.02));
    let bursts = "gilbert = { mean_loss_pct = 5, mean_burst = 4 }";
    assert_eq!(link(bursts), plain().burst_loss(0.05, 4.0));
    assert_eq!(link("duplicate_pct = 3"), plain().duplicate(0.03));
    assert_eq!(link("reorder_pct = 4"), plain().reorder(0.04, 5 * MS));
    let late = link("reorder_pct = 4\nreorder_extra_ms = 8");
    assert_eq!(late, plain().reorder(0.04, 8 * MS));
    for (field, limit) in [
        ("bytes = 5000", Backlog::bytes(5000)),
        ("packets = 7", Backlog::packets(7)),
        ("ms = 30", Backlog::time(30 * MS)),
    ] {
        assert_eq!(link(&format!("queue_{field}")), plain().queue(limit));
        assert_eq!(link(&format!("ecn_{field}")), plain().ecn(limit));
    }
    let both = link("queue_packets = 7\nqueue_ms = 30").queue.unwrap();
    assert_eq!((both.packets, both.time), (Some(7), Some(30 * MS)));
    assert_eq!(link("queue = \"auto\""), plain());
    let unlimited = plain().queue(Backlog::UNLIMITED);
    assert_eq!(link("queue = \"none\""), unlimited);
    // 10 Mbit/s times 10 ms are 12.5 kB.
    assert_eq!(link("queue_bdp = 4").queue, Some(Backlog::bytes(50_000)));
    assert_eq!(link("queue_bdp = 2").queue, Some(Backlog::bytes(30_000)));
    let endless = links("rate_mbit = inf\nowd_ms = 5\nqueue_bdp = 2");
    assert_eq!(endless[0].queue, Some(Backlog::UNLIMITED));
    for (name, discipline) in [
        ("none", Discipline::Fifo),
        ("codel", Discipline::CoDel),
        ("fq-codel", Discipline::FqCoDel),
        ("pie", Discipline::Pie),
        ("dualpi2", Discipline::DualPi2),
    ] {
        let managed = link(&format!("aqm = \"{name}\""));
        assert_eq!(managed, plain().discipline(discipline));
    }
    let trace = RateTrace {
        every: 200 * MS,
        mbit: [2.0, 4.0].into(),
    };
    let traced = link("trace = { every_ms = 200, rate_mbit = [2, 4] }");
    assert_eq!(traced, plain().trace(trace));
}

#[test]
fn later_changes_are_on_the_schedule_of_the_link() {
    let [up, down] = links(
        "rate_mbit = 10\nowd_ms = 5\nat = [\n\
         { t = 1, rate_mbit = 2, loss_pct = 1, dir = \"c2s\" },\n\
         { t = 2, rtt_ms = 30, jitter_ms = 1, duplicate_pct = 5 },\n\
         { t = 3, queue_packets = 5, ecn_packets = 2, reorder_pct = 1, dir = \"s2c\" },\n\
         ]\n\
         blackhole = [{ from = 4, to = 5, dir = \"s2c\" }, { from = 6 }]",
    );
    let both = [
        (2 * SECOND, Change::Delay(15 * MS)),
        (2 * SECOND, Change::Jitter(Jitter::Uniform(MS))),
        (2 * SECOND, Change::Duplicate(0.05)),
    ];
    let dead = (6 * SECOND, Change::Outage(true));
    let mut expected = vec![
        (SECOND, Change::Rate(2.0)),
        (SECOND, Change::Loss(Loss::Bernoulli(0.01))),
    ];
    expected.extend(both);
    expected.push(dead);
    assert_eq!(up.schedule, expected);
    let mut expected = both.to_vec();
    expected.extend([
        (3 * SECOND, Change::Reorder(0.01, 5 * MS)),
        (3 * SECOND, Change::Queue(Backlog::packets(5))),
        (3 * SECOND, Change::Ecn(Some(Backlog::packets(2)))),
        (4 * SECOND, Change::Outage(true)),
        (5 * SECOND, Change::Outage(false)),
        dead,
    ]);
    assert_eq!(down.schedule, expected);
}

#[test]
fn links_vary_alike_or_separately() {
    let variation = |fields: &str| {
        let [up, down] = links(&format!(
            "rate_mbit = 10\nowd_ms = 5\nvary = {{ {fields} }}"
        ));
        (up.variation.unwrap(), down.variation.unwrap())
    };
    let nothing = Variation {
        every: 100 * MS,
        rate: 0.0,
        delay: 0.0,
        loss: 0.0,
        seed: 3,
    };
    assert_eq!(variation(""), (nothing, nothing));
    let all = Variation {
        every: 50 * MS,
        rate: 0.1,
        delay: 0.2,
        loss: 0.03,
        seed: 3,
    };
    let fields = "every_ms = 50, rate_pct = 10, owd_pct = 20, loss_points = 3";
    assert_eq!(variation(fields), (all, all));
    let (up, down) = variation(&format!("{fields}, shared = false"));
    assert_eq!((up, down), (all, Variation { seed: 2, ..all }));
}

#[test]
fn a_direction_has_its_own_fields_over_those_of_both() {
    let [up, down] = links(
        "rate_mbit = 10\nrtt_ms = 8\njitter_ms = 1\nduplicate_pct = 1\nreorder_pct = 2\n\
         gilbert = { mean_loss_pct = 5, mean_burst = 4 }\necn_packets = 3\naqm = \"codel\"\n\
         allow_reorder = true\n\
         c2s = { rate_mbit = 1, owd_ms = 9, jitter_ms = 2, jitter_dist = \"normal\", duplicate_pct = 3, \
         reorder_pct = 4, reorder_extra_ms = 6, loss_pct = 1, ecn_packets = 4, aqm = \"pie\", \
         queue_packets = 8, allow_reorder = false }",
    );
    let expected = LinkConfig::new(10.0, 4 * MS)
        .jitter(MS)
        .duplicate(0.01)
        .reorder(0.02, 5 * MS)
        .burst_loss(0.05, 4.0)
        .ecn(Backlog::packets(3))
        .discipline(Discipline::CoDel);
    let expected = LinkConfig {
        jitter_reorders: true,
        ..expected
    };
    assert_eq!(down, expected);
    let expected = LinkConfig::new(1.0, 9 * MS)
        .normal_jitter(2 * MS)
        .duplicate(0.03)
        .reorder(0.04, 6 * MS)
        .loss(0.01)
        .ecn(Backlog::packets(4))
        .queue(Backlog::packets(8))
        .discipline(Discipline::Pie);
    assert_eq!(up, expected);
}

#[test]
fn ranges_of_a_direction_are_redrawn_as_well() {
    let [up, down] = links(
        "redraw_ms = 50\nrate_mbit = \"8..12\"\nowd_ms = \"3..5\"\nc2s = { rate_mbit = 6 }\ns2c = { owd_ms = \"1..3\" }",
    );
    let of = |link: &LinkConfig| {
        let Variation {
            every, rate, delay, ..
        } = link.variation.unwrap();
        (link.rate, link.delay, every, rate, delay)
    };
    assert_eq!(of(&up), (Some(6e6), 4 * MS, 50 * MS, 0.0, 0.25));
    assert_eq!(of(&down), (Some(10e6), 2 * MS, 50 * MS, 0.2, 0.5));
}

#[test]
fn each_kind_of_workload_is_read() {
    let kind = |fields: &str| {
        let text = file("").replace("kind = \"file\", size_mb = 1", &fields.replace('\n', " "));
        read(&text).workload
    };
    let size_of = |size: Size| size.bytes(&[]);
    let Kind::File { size } = kind("kind = \"file\", size_kb = 2.5").kind else {
        panic!("another kind");
    };
    assert_eq!(size_of(size), 2500);
    let tiny = kind("kind = \"file\", size_kb = 0.001").kind;
    assert!(matches!(tiny, Kind::File { size } if size_of(size) == 1));
    let flows = kind("kind = \"flows\", count = 3, size_mb = 2").kind;
    assert!(matches!(flows, Kind::Flows { count: 3, size } if size_of(size) == 2_000_000));
    let cbr = Kind::Constant {
        rate: Number::Fixed(4.0),
        duration: 5 * SECOND,
    };
    assert_eq!(
        kind("kind = \"cbr\", rate_mbit = 4, duration_s = 5").kind,
        cbr
    );
    let bulk = Kind::Bulk {
        duration: 1500 * MS,
    };
    assert_eq!(kind("kind = \"bulk\", duration_s = 1.5").kind, bulk);
    let video = Kind::Video {
        rates: vec![1.0, 2.0],
        segment: 4 * SECOND,
        duration: 20 * SECOND,
    };
    let fields = "kind = \"video\", rates_mbit = [1, 2], segment_s = 4, duration_s = 20";
    assert_eq!(kind(fields).kind, video);
    let messages = |more: &str| {
        let fields = "kind = \"messages\", every_ms = 20, size_kb = 1, duration_s = 3";
        match kind(&format!("{fields}{more}")).kind {
            Kind::Messages {
                every,
                poisson,
                size,
                deadline,
                duration,
            } => (every, poisson, size_of(size), deadline, duration),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(messages(""), (20 * MS, false, 1000, None, 3 * SECOND));
    let late = messages(", deadline_ms = 50, arrivals = \"poisson\"");
    assert_eq!(late, (20 * MS, true, 1000, Some(50 * MS), 3 * SECOND));
    let workload = kind(
        "kind = \"file\", size_mb = 1, direction = \"upload\", start_s = 2, wait_for_paths = true, paths = \"a\"",
    );
    assert!(workload.upload && workload.wait_for_paths);
    assert_eq!((workload.start, workload.paths), (2 * SECOND, vec![0]));
}

#[test]
fn objects_of_a_page_are_read() {
    let text = file("").replace(
        "kind = \"file\", size_mb = 1",
        "kind = \"page\", page = [\"q\", \"p\"]",
    ) + "[[page]]\nname = \"p\"\nobjects = [\n\
         { name = \"x\", size_kb = 1 },\n\
         { name = \"y\", size_kb = 2, count = 4, priority = -3, after = \"x\", wait_ms = 7 },\n\
         { name = \"z\", size_kb = 3, weight = 24, after = [\"x\", \"y\"] },\n]\n\
         [[page]]\nname = \"q\"\nobjects = { name = \"only\", size_mb = 1 }\n";
    let scenario = read(&text);
    let Kind::Page { pages, choice } = &scenario.workload.kind else {
        panic!("another kind");
    };
    // The second page is swept first.
    let Source::Swept(values) = &scenario.parameters[0].source else {
        panic!("not swept");
    };
    assert_eq!(*choice, Number::Varied(0));
    assert_eq!(values[..], [(1.0, "q".to_owned()), (0.0, "p".to_owned())]);
    let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
    assert_eq!(names, ["p", "q"]);
    let objects = pages[0].objects.iter().map(|object| {
        let bytes = object.size.bytes(&[]);
        let after = object.after.clone();
        (
            object.count,
            bytes,
            object.priority,
            after,
            object.wait,
            object.reported,
        )
    });
    let expected = [
        (1, 1000, 0, vec![], Duration::ZERO, false),
        (4, 2000, -3, vec![0], 7 * MS, false),
        (1, 3000, 8, vec![0, 1], Duration::ZERO, false),
    ];
    assert_eq!(objects.collect::<Vec<_>>(), expected);
    assert_eq!(scenario.metrics()[..1], ["page_s"]);
}

#[test]
fn others_on_the_network_are_read() {
    let scenario = read(&file(
        "limit_s = 99\n\
         [[competitor]]\nname = \"plain\"\n\
         [[competitor]]\nname = \"many\"\ncount = 2\nstart_s = 3\nevery_s = 4\nstop_s = 20\n\
         scheduler = \"etc\"\ncontroller = \"bbr\"\nrate_mbit = 5\ndirection = \"upload\"\n\
         [[cross]]\npath = \"a\"\nrate_mbit = 2\n\
         [[cross]]\npath = \"a\"\nrate_mbit = 3\npacket_bytes = 300\narrivals = \"poisson\"\n\
         dir = \"c2s\"\necn = \"ect1\"\nfrom = 5\nto = 6\n",
    ));
    let plain = Competitor {
        name: "plain".into(),
        scheduler: mpquic_sched::list()[0].name.into(),
        controller: Some("newreno".into()),
        paths: vec![0],
        upload: false,
        start: Duration::ZERO,
        stop: None,
        rate: None,
    };
    let many = |number: u32| Competitor {
        name: format!("many-{number}"),
        scheduler: "etc".into(),
        controller: Some("bbr".into()),
        upload: true,
        start: SECOND * (4 * number - 1),
        stop: Some(20 * SECOND),
        rate: Some(5.0),
        ..plain.clone()
    };
    let expected = [plain.clone(), many(1), many(2)];
    assert_eq!(scenario.competitors, expected);
    let cross = CrossTraffic {
        path: 0,
        up: false,
        rate: Number::Fixed(2.0),
        packet_bytes: 1500,
        poisson: false,
        ecn: None,
        from: Duration::ZERO,
        to: None,
    };
    let other = CrossTraffic {
        path: 0,
        up: true,
        rate: Number::Fixed(3.0),
        packet_bytes: 300,
        poisson: true,
        ecn: Some(EcnCodepoint::Ect1),
        from: 5 * SECOND,
        to: Some(6 * SECOND),
    };
    assert_eq!(scenario.cross_traffic, [cross, other]);
}

#[test]
fn contenders_paths_links_and_swaps_are_read() {
    let scenario = read(
        &(file(
            "limit_s = 99\n\
             [[link]]\nname = \"s\"\nrate_mbit = 3\nowd_ms = 2\n\
             [[link]]\nname = \"t\"\nrate_mbit = 4\nowd_ms = 2\n\
             [[swap]]\nt = 7\npaths = [\"b\", \"a\"]\n\
             [[contender]]\nname = \"x\"\nscheduler = \"etc\"\ncontroller = \"bbr\"\n\
             paths = \"highest-rate\"\npriorities = false\nknow_rates = true\nknow_rtts = true\nhandshake = \"0-rtt\"\n\
             [[contender]]\nname = \"y\"\npaths = \"a\"\nmigrate_s = 8\nmigrate_to = \"b\"\n",
        ) + "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\nvia = [\"t\", \"s\"]\nbackup = true\n"),
    );
    let x = Contender {
        paths: UsedPaths::HighestRate,
        priorities: false,
        know_rates: true,
        know_rtts: true,
        handshake: Handshake::Early,
        ..Contender::new("x", "etc", "bbr")
    };
    let controller = mpquic_cc::list()[0].name;
    let y = Contender {
        paths: UsedPaths::Only(0),
        migration: Some(Migration {
            at: 8 * SECOND,
            to: 1,
        }),
        ..Contender::new("y", mpquic_sched::list()[0].name, controller)
    };
    assert_eq!(scenario.contenders[1..], [x, y]);
    let swap = Swap {
        time: 7 * SECOND,
        paths: [1, 0],
    };
    assert_eq!(scenario.swaps, [swap]);
    let names: Vec<_> = scenario.links.iter().map(|link| &link.name[..]).collect();
    assert_eq!(names, ["s", "t"]);
    assert_eq!(scenario.links[1].links.links(&[], 0)[0].rate, Some(4e6));
    let b = &scenario.paths[1];
    assert_eq!(
        (&b.name[..], &b.via[..], b.backup),
        ("b", &[1, 0][..], true)
    );
}

fn in_words() -> Published {
    Published {
        text: "T".into(),
        metric: "gap_s".into(),
        at: String::new(),
        reason: "R".into(),
        reason_forms: "F".into(),
        theirs: None,
        claim: Claim::Words,
    }
}

#[test]
fn claims_are_read() {
    let base = "schedulers = [\"lrf\", \"etc\", \"backup\"]";
    let claim = |fields: &str| {
        let more = format!("[[published]]\n{fields}");
        let text = file(&more).replace("schedulers = \"lrf\"", base);
        read(&text).published[0].clone()
    };
    let words = claim("text = \"T\"\nmetric = \"gap_s\"\nreason = \"R\"\nreason_forms = \"F\"");
    let expected = in_words();
    assert_eq!(words, expected);
    // Fields of other kinds of claims are not a mistake.
    assert_eq!(
        claim("text = \"T\"\ncontender = \"lrf\"").claim,
        Claim::Words
    );
    let (lrf, etc, backup) = ("lrf".to_owned(), "etc".to_owned(), "backup".to_owned());
    let order = Claim::Order(vec![vec![lrf.clone(), etc.clone()], vec![backup.clone()]]);
    assert_eq!(
        claim("order = [[\"lrf\", \"etc\"], \"backup\"]").claim,
        order
    );
    assert_eq!(order.contenders(), ["lrf", "etc", "backup"]);
    let equal = Claim::Equal(vec![lrf.clone(), etc.clone()]);
    assert_eq!(claim("equal = [\"lrf\", \"etc\"]").claim, equal);
    assert_eq!(equal.contenders(), ["lrf", "etc"]);
    let value = |or_better| Claim::Value {
        contender: lrf.clone(),
        value: 2.5,
        or_better,
    };
    let fields = "value = 2.5\ncontender = \"lrf\"";
    assert_eq!(claim(fields).claim, value(false));
    let bound = format!("{fields}\nor_better = true");
    assert_eq!(claim(&bound).claim, value(true));
    assert_eq!(value(true).contenders(), ["lrf"]);
    let ratio = |or_better| Claim::Ratio {
        contender: lrf.clone(),
        against: etc.clone(),
        ratio: 0.8,
        or_better,
        best: or_better,
    };
    let fields = "ratio = 0.8\ncontender = \"lrf\"\nagainst = \"etc\"";
    assert_eq!(claim(fields).claim, ratio(false));
    assert_eq!(
        claim(&format!("{fields}\nor_better = true\nbest = true")).claim,
        ratio(true)
    );
    assert_eq!(ratio(true).contenders(), ["lrf", "etc"]);
    let change = Claim::Change {
        contender: lrf.clone(),
        scenario: "other".into(),
        ratio: 0.8,
    };
    let fields = "ratio = 0.8\ncontender = \"lrf\"\nscenario = \"other\"";
    assert_eq!(claim(fields).claim, change);
    let better = |by| Claim::Better {
        contender: lrf.clone(),
        against: etc.clone(),
        share: 0.75,
        by,
    };
    let fields = "better_pct = 75\ncontender = \"lrf\"\nagainst = \"etc\"";
    assert_eq!(claim(fields).claim, better(0.0));
    assert_eq!(claim(&format!("{fields}\nby_pct = 20")).claim, better(0.2));
    // In each kind of claim, contenders can be replaced.
    let forms = [(lrf.clone(), "form".to_owned())];
    for claim in [order, equal, value(true), ratio(true), change, better(0.1)] {
        let published = Published {
            claim,
            ..expected.clone()
        };
        let of_form = published.of_published(&forms).unwrap();
        assert_eq!(of_form.claim.contenders()[0], "form");
        assert!(!of_form.claim.contenders().contains(&"lrf"));
    }
    assert_eq!(expected.of_published(&forms), None);
}

#[test]
fn figures_of_authors_are_read_beside_a_claim() {
    let claim = |theirs: &str| {
        let more = format!("[[published]]\ntext = \"T\"\ntheirs = {{ {theirs} }}");
        let text = file(&more).replace("schedulers = \"lrf\"", "schedulers = [\"lrf\", \"etc\"]");
        Scenario::parse("x.toml", &text)
    };
    let read = |theirs: &str| claim(theirs).unwrap().published[0].theirs.clone().unwrap();
    let medians = read("medians = [[\"lrf\", 4.37], [\"etc\", 3]], error = 0.1, source = \"S\"");
    let expected = Theirs {
        medians: vec![("lrf".to_owned(), 4.37), ("etc".to_owned(), 3.0)],
        number: None,
        error: 0.1,
        source: "S".into(),
    };
    assert_eq!(medians, expected);
    let share = read("share_pct = 50, error = 2, source = \"S\"");
    assert_eq!((share.number, share.error), (Some(0.5), 0.02));
    let ratio = read("ratio = 0.7, source = \"S\"");
    assert_eq!((ratio.number, ratio.error), (Some(0.7), 0.0));
    for (theirs, expected) in [
        ("error = 1", "`source` is missing"),
        (
            "medians = [[\"no\", 1]], source = \"S\"",
            "expected one of: lrf, etc",
        ),
        (
            "medians = [[\"lrf\"]], source = \"S\"",
            "a contender and its median",
        ),
        ("ratio = 1, share_pct = 1, source = \"S\"", "only one of"),
        ("source = \"S\", other = 1", "unknown field `other`"),
    ] {
        let error = claim(theirs).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn metrics_follow_workload_competitors_and_swaps() {
    let metrics = |workload: &str, more: &str| {
        let two = "[[path]]\nname = \"b\"\nrate_mbit = 1\nowd_ms = 1\n";
        let text = file(more).replace("kind = \"file\", size_mb = 1", workload) + two;
        let scenario = read(&text);
        let all = scenario.metrics();
        assert_eq!(default_metric(&scenario.workload.kind), all[0]);
        all.join(" ")
    };
    let rest = "gap_s handshake_s loss_pct delay_ms overhead_pct";
    let percentiles = "object_p50_s object_p95_s object_p99_s";
    for (workload, expected) in [
        ("kind = \"file\", size_mb = 1", "completion_s goodput_mbit"),
        (
            "kind = \"bulk\", duration_s = 1",
            "throughput_mbit window_gap_pct",
        ),
        (
            "kind = \"cbr\", rate_mbit = 1, duration_s = 1",
            "throughput_mbit",
        ),
        (
            "kind = \"video\", rates_mbit = [1], segment_s = 1, duration_s = 1",
            "bitrate_mbit stall_s",
        ),
    ] {
        assert_eq!(metrics(workload, ""), format!("{expected} {rest}"));
    }
    let flows = metrics("kind = \"flows\", count = 2, size_kb = 1", "");
    assert_eq!(
        flows,
        format!("flow_s flow_max_s completion_s {percentiles} {rest}")
    );
    let streams = "kind = \"streams\", streams = [{ name = \"A\", size_kb = 1 }, { name = \"B\", size_kb = 1 }]";
    let expected = format!("stream_A_s stream_B_s page_s {percentiles} {rest}");
    assert_eq!(metrics(streams, ""), expected);
    let more = "[[competitor]]\nname = \"x\"\n[[swap]]\nt = 1\npaths = [\"a\", \"b\"]\n";
    let all = metrics("kind = \"file\", size_mb = 1", more);
    let others = "jain_index times_competitor crossover_s overtaking_s";
    assert_eq!(all, format!("completion_s goodput_mbit {others} {rest}"));
    let lower: Vec<_> = ["goodput_mbit", "jain_index", "gap_s", "loss_pct"]
        .into_iter()
        .filter(|metric| is_lower_better(metric))
        .collect();
    assert_eq!(lower, ["gap_s", "loss_pct"]);
    let messages = "kind = \"messages\", every_ms = 1, size_kb = 1, duration_s = 1";
    let late = read(&file("").replace(
        "kind = \"file\", size_mb = 1",
        &format!("{messages}, deadline_ms = 5"),
    ));
    assert_eq!(late.metrics()[0], "late_pct");
    assert_eq!(default_metric(&late.workload.kind), "object_p99_s");
}

#[test]
fn the_baseline_is_one_of_those_that_are_compared() {
    let baseline = |schedulers: &str| {
        let text = file("").replace(
            "schedulers = \"lrf\"",
            &format!("schedulers = {schedulers}"),
        );
        read(&text).baseline
    };
    assert_eq!(baseline("[\"etc\", \"lrf\"]"), "lrf");
    assert_eq!(baseline("[\"etc\", \"backup\"]"), "etc");
    let contender = |name: &str| Contender::new(name, "lrf", "cubic");
    let mut scenario = read(&file(""));
    scenario.set_contenders(vec![contender("x"), contender("lrf")]);
    assert_eq!(scenario.baseline, "lrf");
    scenario.set_contenders(vec![contender("x"), contender("y")]);
    assert_eq!(scenario.baseline, "x", "there is no other");
    scenario.set_contenders(vec![contender("lrf"), contender("x")]);
    assert_eq!(scenario.baseline, "x", "it stays");
    scenario.set_contenders(Vec::new());
    assert_eq!(scenario.baseline, "");
}

#[test]
fn defaults_may_be_written_out() {
    let cross = |more: &str| format!("[[cross]]\npath = \"a\"\nrate_mbit = 1\n{more}");
    let competitor = |more: &str| format!("[[competitor]]\nname = \"x\"\n{more}");
    let contender = |more: &str| format!("[[contender]]\nname = \"x\"\n{more}");
    for (short, long) in [
        (
            "",
            "draw = \"uniform\"\nsweep = \"product\"\nseed = 1\nruns = 1",
        ),
        (
            &cross(""),
            &*cross(
                "dir = \"s2c\"\narrivals = \"constant\"\necn = \"none\"\npacket_bytes = 1500\nfrom = 0",
            ),
        ),
        (
            &competitor(""),
            &*competitor(
                "direction = \"download\"\ncount = 1\nstart_s = 0\ncontroller = \"newreno\"",
            ),
        ),
        (
            &contender(""),
            &*contender(
                "paths = \"all\"\nhandshake = \"full\"\npriorities = true\nknow_rates = false\nknow_rtts = false",
            ),
        ),
    ] {
        assert_eq!(read(&file(short)), read(&file(long)), "{long}");
    }
    let workload =
        |more: &str| read(&file("").replace("size_mb = 1", &format!("size_mb = 1{more}")));
    let long = ", direction = \"download\", start_s = 0, starts_everywhere = false, wait_for_paths = false, paths = [\"a\"], handshake_path = \"a\"";
    assert_eq!(workload(""), workload(long));
    let resumed = read(&file(&contender("handshake = \"1-rtt\"")));
    assert_eq!(resumed.contenders[1].handshake, Handshake::Resumed);
    let both = "at = { t = 1, owd_ms = 2, dir = \"both\" }";
    assert_eq!(link(both), link("at = { t = 1, owd_ms = 2 }"));
    let fields = "jitter_ms = 1\njitter_dist = \"uniform\"\nallow_reorder = false\nloss_pct = 0";
    assert_eq!(link(fields), link("jitter_ms = 1"));
}

#[test]
fn parameters_are_named_by_their_place_in_the_file() {
    let scenario = read(&file(
        "[[cross]]\npath = \"a\"\nrate_mbit = [1, 2]\n[[cross]]\npath = \"a\"\nrate_mbit = \"1..2\"\n\
         [[link]]\nname = \"s\"\nrate_mbit = [3, 4]\nowd_ms = 1\nc2s = { loss_pct = \"0..1\" }\n\
         at = { t = 2.5, owd_ms = [5, 6] }\n",
    ));
    let mut names: Vec<_> = scenario
        .parameters
        .iter()
        .map(|one| &one.name[..])
        .collect();
    names.sort_unstable();
    let expected = [
        "cross1.rate_mbit",
        "cross2.rate_mbit",
        "s.at_2.5s.owd_ms",
        "s.c2s.loss_pct",
        "s.rate_mbit",
    ];
    assert_eq!(names, expected);
}
