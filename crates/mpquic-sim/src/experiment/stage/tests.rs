//! The parts of a stage, and its events.

use mpquic_core::PathStatus;

use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Paths of a scenario: `a` has the lowest delay, `b` the highest rate, `c` goes through two shared
/// links.
const PATHS: &str = "
    [[link]]
    name = \"s\"
    rate_mbit = 30
    owd_ms = 3
    [[link]]
    name = \"t\"
    rate_mbit = 40
    owd_ms = 4
    [[path]]
    name = \"a\"
    rate_mbit = 10
    owd_ms = 5
    c2s = { rate_mbit = 5 }
    [[path]]
    name = \"b\"
    rate_mbit = 20
    rtt_ms = 40
    backup = true
    c2s = { rate_mbit = 1 }
    [[path]]
    name = \"c\"
    rate_mbit = 15
    owd_ms = 7
    s2c = { owd_ms = 1 }
    via = [\"s\", \"t\"]
";

fn scenario(more: &str) -> Scenario {
    let file = "workload = { kind = \"bulk\", duration_s = 20 }";
    let file = if more.contains("workload") { "" } else { file };
    let text =
        format!("schedulers = \"lrf\"\ncontrollers = [\"newreno\"]\n{file}\n{more}\n{PATHS}");
    Scenario::parse("x.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn stage(scenario: &Scenario) -> Stage {
    Stage::new(scenario, &scenario.contenders[0], &[], 7).unwrap()
}

fn bulk(more: &str) -> String {
    format!("workload = {{ kind = \"bulk\", duration_s = 20, {more} }}")
}

#[test]
fn used_paths_are_in_the_requested_order() {
    let used = |more: &str, used| used_paths(&scenario(more), used, &[]);
    assert_eq!(used("", UsedPaths::All), [0, 1, 2]);
    assert_eq!(
        used(&bulk("handshake_path = \"c\""), UsedPaths::All),
        [2, 0, 1]
    );
    assert_eq!(
        used(&bulk("handshake_path = \"b\""), UsedPaths::All),
        [1, 0, 2]
    );
    let two = bulk("paths = [\"c\", \"b\"], handshake_path = \"b\"");
    assert_eq!(used(&two, UsedPaths::All), [1, 2]);
    assert_eq!(used("", UsedPaths::Only(1)), [1]);
    // Both directions of the path's own links count: 8 ms, not 10 ms.
    assert_eq!(used("", UsedPaths::LowestDelay), [2]);
    assert_eq!(used("", UsedPaths::HighestRate), [1]);
    let upload = bulk("direction = \"upload\"");
    assert_eq!(used(&upload, UsedPaths::HighestRate), [2]);
    let rates = |more: &str| [0, 1, 2].map(|path| rate(&scenario(more), path, &[]));
    assert_eq!(rates(""), [10e6, 20e6, 15e6]);
    assert_eq!(rates(&upload), [5e6, 1e6, 15e6]);
}

#[test]
fn shared_links_are_behind_those_of_the_path() {
    let stage = stage(&scenario(""));
    let rates = |hops: Vec<Hop>| {
        let rates = hops.into_iter().map(|hop| match hop {
            Hop::Link(link) => stage.lab.network.link(link).config().rate.unwrap() / 1e6,
            other => panic!("{other:?}"),
        });
        rates.collect::<Vec<_>>()
    };
    assert_eq!(stage.hops(1).map(rates), [vec![1.0], vec![20.0]]);
    let through = [vec![15.0, 30.0, 40.0], vec![40.0, 30.0, 15.0]];
    assert_eq!(stage.hops(2).map(rates), through);
    let both = |one: u32, other: u32| [MS * one, MS * other];
    assert_eq!(stage.one_way, [both(5, 5), both(20, 20), both(14, 8)]);
    let (link, delay) = stage.data_link(0, 2);
    assert_eq!((link.config().delay, delay), (MS, 8 * MS));
    let stage = self::stage(&scenario(&bulk("direction = \"upload\"")));
    let (link, delay) = stage.data_link(0, 2);
    assert_eq!((link.config().delay, delay), (7 * MS, 14 * MS));
}

#[test]
fn connections_have_the_transport_of_the_scenario() {
    let setup = |more: &str| {
        let scenario = scenario(more);
        let scheduler = scheduler(&scenario, "lrf").unwrap();
        setup(&scenario, scheduler, "cubic").unwrap()
    };
    let given = setup(
        "transport = { mtu = 1300, max_ack_delay_ms = 3, ack_every = 7, packet_threshold = 9, \
         time_threshold = 2, pacing = false, ack_on_fastest_path = false, receive_window_mb = 1, \
         send_buffer_mb = 2 }",
    );
    for config in [&given.client, &given.server] {
        assert_eq!((config.initial_mtu, config.max_mtu), (1300, 1300));
        assert_eq!(config.max_ack_delay, 3 * MS);
        assert!(config.min_ack_delay.is_none_or(|delay| delay <= 3 * MS));
        assert_eq!(config.ack_eliciting_threshold, 7);
        assert_eq!(config.packet_threshold, 9);
        assert_eq!(config.time_threshold, 2.0);
        assert!(!config.pacing && !config.ack_on_fastest_path && !config.contain_panics);
        let windows = (
            config.initial_stream_receive_window,
            config.initial_receive_window,
            config.max_receive_window,
            config.send_window,
        );
        assert_eq!(windows, (1_000_000, 1_000_000, 1_000_000, 2_000_000));
        let streams = (
            config.max_concurrent_bidi_streams,
            config.max_concurrent_uni_streams,
        );
        assert_eq!(streams, (1000, 1000));
    }
    let usual = setup("");
    let default = Setup::new();
    assert_eq!(usual.client.send_window, default.client.send_window);
    let window = |setup: &Setup| setup.client.max_receive_window;
    assert_eq!(window(&usual), window(&default));
    assert!(scheduler(&scenario(""), "x").is_err());
    let inner = inner_setup(&scenario("transport = { mtu = 1400 }"), "cubic", 5).unwrap();
    assert_eq!(
        (inner.client.initial_mtu, inner.server.max_mtu),
        (1200, 1200)
    );
    assert_eq!(
        (inner.client.max_concurrent_paths, inner.seed),
        (0, 5 + (1 << 20))
    );
}

#[test]
fn flows_have_hosts_addresses_and_seeds_of_their_own() {
    let others = "[[competitor]]\nname = \"x\"\npaths = [\"b\", \"a\"]\nstart_s = 1\nstop_s = 2\n\
                  [[competitor]]\nname = \"y\"\npaths = \"c\"\ndirection = \"upload\"\n";
    let stage = stage(&scenario(others));
    let of = |flow: &Flow| (flow.client.0, flow.server.0, flow.setup.seed, flow.upload);
    let flows: Vec<_> = stage.flows.iter().map(of).collect();
    assert_eq!(flows, [(0, 1, 7, false), (2, 3, 8, false), (4, 5, 9, true)]);
    let paths: Vec<_> = stage.flows.iter().map(|flow| &flow.paths[..]).collect();
    assert_eq!(paths, [&[0, 1, 2][..], &[1, 0], &[2]]);
    let ends: Vec<_> = stage
        .flows
        .iter()
        .map(|flow| (flow.start, flow.stop))
        .collect();
    let endless = (Duration::ZERO, None);
    assert_eq!(ends, [endless, (SECOND, Some(2 * SECOND)), endless]);
    assert_eq!(stage.start_of(1), epoch() + SECOND);
    // A flow with one path opens no other path.
    let most: Vec<_> = stage
        .flows
        .iter()
        .map(|flow| flow.setup.client.max_concurrent_paths)
        .collect();
    assert!(most[0] > 0 && most[1] > 0 && most[2] == 0, "{most:?}");
    assert_eq!(client_address(2, 1).to_string(), "10.2.1.1:50000");
    assert_eq!(server_address(2).to_string(), "10.2.0.2:4433");
    let sides = |flow: usize| (stage.flows[flow].sender().0, stage.flows[flow].receiver().0);
    assert_eq!((sides(0), sides(2)), ((1, 0), (4, 5)));
}

#[test]
fn further_paths_are_opened_with_their_status() {
    let mut stage = stage(&scenario(""));
    stage.run_until(SECOND).unwrap();
    let client = stage.player(0, Side::Client).unwrap();
    let paths = &client.client.as_ref().unwrap().paths;
    assert_eq!((paths.wanted, paths.established), (2, 2));
    let stats = stage.path_stats(0);
    assert_eq!(stats.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    for (path, [sender, receiver]) in stats {
        let (sender, receiver) = (sender.unwrap(), receiver.unwrap());
        let four_tuple = FourTuple::new(client_address(0, path), server_address(0));
        assert_eq!(receiver.four_tuple, four_tuple);
        assert_eq!(sender.four_tuple.remote, four_tuple.local);
        assert_eq!(receiver.status == PathStatus::Backup, path == 1, "{path}");
        // The server sends, but not on the backup.
        assert_eq!(sender.bytes_sent > 100_000, path != 1, "{path}");
    }
}

/// The plan closes the path of a vanished interface, and opens the path again when the interface is
/// back.
#[test]
fn paths_go_and_come_with_their_interfaces() {
    let mut scenario = scenario("");
    scenario.paths[2].absent = vec![(SECOND, Some(3 * SECOND)), (5 * SECOND, None)];
    let mut stage = stage(&scenario);
    let mut carried = 0;
    for (at, is_there) in [(9, true), (29, false), (40, true), (70, false)] {
        stage.run_until(100 * MS * at).unwrap();
        let stats = stage.path_stats(0);
        let client = stats.get(&2).and_then(|[_, client]| client.clone());
        let open = client.filter(|path| path.state != mpquic_core::PathState::Abandoned);
        assert_eq!(open.is_some(), is_there, "{at}");
        let received = stage.receiver(0).unwrap().received;
        assert!(received > carried, "the other paths carry on");
        carried = received;
    }
}

#[test]
fn flows_start_and_stop_at_their_times() {
    let other = "[[competitor]]\nname = \"x\"\npaths = \"b\"\nstart_s = 1\nstop_s = 2\n";
    let mut stage = stage(&scenario(other));
    let mut received = Vec::new();
    assert!(stage.player(1, Side::Client).is_none());
    for tenths in [9, 15, 22, 30] {
        stage.run_until(100 * MS * tenths).unwrap();
        assert_eq!(stage.elapsed(), 100 * MS * tenths);
        assert_eq!(stage.now(), epoch() + stage.elapsed());
        received.push(stage.receiver(1).map_or(0, |player| player.received));
    }
    assert_eq!(received[0], 0);
    assert!(received[1] > 200_000 && received[2] > received[1]);
    assert_eq!(received[3], received[2]);
    assert_eq!(stage.lost(), None, "that was another one");
    assert!(!stage.is_over());
}

#[test]
fn cross_traffic_takes_the_links_of_its_path_and_direction() {
    for (direction, counted) in [("c2s", [true, false]), ("s2c", [false, true])] {
        let cross = format!(
            "workload = {{ kind = \"file\", size_kb = 1, start_s = 100 }}\n\
             [[cross]]\npath = \"b\"\nrate_mbit = 0.8\npacket_bytes = 1000\nfrom = 1\nto = 2\ndir = \"{direction}\"\n"
        );
        let mut stage = stage(&scenario(&cross));
        stage.run_until(3 * SECOND).unwrap();
        let packets = |path: usize| {
            stage.paths[path].map(|link| stage.lab.network.link(link).counters().packets_in)
        };
        // A packet every 10 ms, for a second.
        assert_eq!(packets(1), counted.map(|counted| u64::from(counted) * 99));
        assert_eq!((packets(0), packets(2)), ([0, 0], [0, 0]));
    }
}

#[test]
fn swapped_paths_have_the_links_of_each_other() {
    let mut stage = stage(&scenario(
        "workload = { kind = \"file\", size_kb = 1, start_s = 100 }\n\
         [[swap]]\nt = 1\npaths = [\"a\", \"b\"]\n\
         [[cross]]\npath = \"a\"\nrate_mbit = 0.1\n[[cross]]\npath = \"b\"\nrate_mbit = 0.1\n\
         [[cross]]\npath = \"a\"\nrate_mbit = 0.1\ndir = \"c2s\"\n\
         [[cross]]\npath = \"b\"\nrate_mbit = 0.1\ndir = \"c2s\"\n",
    ));
    let links = |stage: &Stage| {
        [0, 1].map(|path: usize| {
            stage.paths[path].map(|link| {
                let config = stage.lab.network.link(link).config();
                (config.rate.unwrap() / 1e6, config.delay)
            })
        })
    };
    let before = [
        [(5.0, 5 * MS), (10.0, 5 * MS)],
        [(1.0, 20 * MS), (20.0, 20 * MS)],
    ];
    stage.run_until(SECOND / 2).unwrap();
    assert_eq!(links(&stage), before);
    stage.run_until(3 * SECOND / 2).unwrap();
    assert_eq!(links(&stage), [before[1], before[0]]);
}

#[test]
fn a_client_that_moves_keeps_its_port() {
    let scenario = scenario(
        "limit_s = 30\ncontender = { name = \"x\", paths = \"a\", migrate_s = 1, migrate_to = \"c\" }",
    );
    let mut stage = Stage::new(&scenario, &scenario.contenders[1], &[], 7).unwrap();
    assert_eq!(stage.flows[0].paths, [0, 2]);
    stage.run_until(SECOND - MS).unwrap();
    assert!(stage.path_stats(0).contains_key(&0));
    stage.run_until(2 * SECOND).unwrap();
    let stats = stage.path_stats(0);
    assert_eq!(stats.keys().copied().collect::<Vec<_>>(), [2]);
    let client = stats[&2][0].as_ref().unwrap().four_tuple.remote;
    assert_eq!(client, client_address(0, 2));
}

#[test]
fn queued_bytes_count_all_links_in_the_direction_of_the_data() {
    let mut stage = stage(&scenario("contender = { name = \"x\", paths = \"a\" }"));
    assert_eq!(stage.queued(0), 0);
    stage.run_until(SECOND).unwrap();
    assert!((0..3).any(|path| stage.queued(path) > 5_000));
    let waiting = |stage: &mut Stage, direction: usize| {
        let now = stage.now();
        let own = stage.paths[2][direction];
        let links = [
            stage.vias[2][0][direction],
            stage.vias[2][1][direction],
            own,
        ];
        links
            .map(|link| stage.lab.network.queue_bytes(now, link))
            .iter()
            .sum::<u64>()
    };
    assert_eq!(stage.queued(2), waiting(&mut stage, 1));
}

#[test]
fn stage_is_over_when_all_flows_have_begun_and_no_event_will_come() {
    let file =
        |start: u32| format!("workload = {{ kind = \"file\", size_kb = 1, start_s = {start} }}");
    let mut waiting = stage(&scenario(&file(100)));
    waiting.run_until(SECOND).unwrap();
    assert!(!waiting.is_over(), "it has yet to begin");
    let mut stage = stage(&scenario(&file(0)));
    stage.run_until(SECOND).unwrap();
    assert!(!stage.is_over() && stage.lost().is_none());
    // Both sides forget a connection that is silent for too long.
    stage.run_until(200 * SECOND).unwrap();
    assert!(stage.is_over());
    assert!(stage.lost().unwrap().contains("timed out"));
}

#[test]
fn the_handshake_continues_where_the_first_answer_comes() {
    for (everywhere, first) in [(false, 2), (true, 0)] {
        let more = format!("handshake_path = \"c\", starts_everywhere = {everywhere}");
        let mut stage = stage(&scenario(&bulk(&more)));
        stage.run_until(SECOND).unwrap();
        let host = stage.lab.host(stage.flows[0].client);
        let connection = &host.connections()[0].connection;
        let begun = connection.path_stats(PathId::ZERO).unwrap();
        assert_eq!(begun.four_tuple.local, client_address(0, first));
    }
}
