use clap::Parser;

use super::*;
use crate::process::screen::tests::Heard;
use crate::serve::limits::Limits;
use crate::testing::{Anything, Far, Served, answer_perf, far, far_perf, soon};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    perf: Perf,
}

async fn client() -> (Served, Client) {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
    let connection = served.connect(1 << 20).await;
    let stall = Duration::from_secs(10);
    (served, Client { connection, stall })
}

fn measurement<'a>(args: &'a Perf, client: &'a Client, test: Test) -> Measurement<'a> {
    Measurement {
        args,
        client,
        test,
        began: Instant::now(),
        idle: None,
        counts: Counts::default(),
        latencies: RefCell::default(),
        tally: RefCell::new(Tally::new(clock::now())),
        paths: RefCell::new(PathWatch::new(&client.connection)),
    }
}

fn amount(amount: Option<Amount>) -> Option<(u64, f64)> {
    amount.map(|amount| (amount.bytes, amount.bits_per_second))
}

#[tokio::test]
async fn partial_measurements_have_their_own_time() {
    let (_served, client) = client().await;
    let args = Line::try_parse_from(["x", "localhost"]).unwrap().perf;
    let before = || Reading {
        at: 1.0,
        down: 1_000_000,
        up: 500_000,
        samples: 2,
        paths: client.connection.path_stats(),
    };
    let mut measured = Vec::new();
    for test in [
        Test::Latency,
        Test::Download,
        Test::Upload,
        Test::Both,
        Test::Requests,
    ] {
        let measurement = measurement(&args, &client, test);
        measurement.counts.down.set(5_000_000);
        measurement.counts.up.set(1_500_000);
        for millis in [1000, 900, 3, 1, 2] {
            let latency = Duration::from_millis(millis);
            measurement.latencies.borrow_mut().add(latency);
        }
        let one = measurement.since(&before(), 3.0);
        assert_eq!((one.test, one.start, one.end), (test.name(), 1.0, 3.0));
        let latency = one.latency.unwrap();
        assert_eq!(
            (latency.count, latency.p50_ms, latency.max_ms),
            (3, 2.0, 3.0)
        );
        assert!(one.datagrams.is_none() && one.bufferbloat.is_none());
        assert_eq!(one.paths.len(), 1);
        assert_eq!((one.paths[0].bytes_sent, one.paths[0].packets_sent), (0, 0));
        measured.push((
            amount(one.download),
            amount(one.upload),
            one.requests_per_second,
        ));
        // One direction ended before, within, or after this interval.
        for (end, seconds) in [(0.5, 2.0), (1.0, 2.0), (1.5, 0.5)] {
            measurement.counts.down_end.set(Some(end));
            let one = measurement.since(&before(), 3.0);
            let expected = (4_000_000, 32e6 / seconds);
            assert!(one.download.is_none() || amount(one.download) == Some(expected));
        }
    }
    let (down, up) = (Some((4_000_000, 16e6)), Some((1_000_000, 4e6)));
    let expected = [
        (None, None, None),
        (down, None, None),
        (None, up, None),
        (down, up, None),
        (None, None, Some(1.5)),
    ];
    assert_eq!(measured, expected);
    let measurement = measurement(&args, &client, Test::Datagrams);
    for _ in 0..3 {
        measurement.tally.borrow_mut().next(100, clock::now());
    }
    let told = measurement.since(&before(), 3.0).datagrams.unwrap();
    assert_eq!((told.sent, told.returned, told.upload_loss), (3, 0, None));
    let reading = measurement.read();
    assert_eq!((reading.down, reading.up, reading.samples), (0, 0, 0));
    assert!(reading.at < 1000.0);
}

/// Figures of each path count from the path's own start.
#[test]
fn round_trips_are_those_of_a_path() {
    let stats = |id, received| crate::report::live::tests::seen(0, id, received).stats;
    let mut watch = PathWatch {
        first: Vec::new(),
        rtts: BTreeMap::new(),
    };
    watch.look(&[stats(0, 0)]);
    watch.look(&[stats(0, 0), stats(1, 0)]);
    let figures = watch.figures(
        &[stats(0, 100)],
        &[stats(0, 300), stats(1, 50), stats(2, 7)],
        2.0,
    );
    let told = figures.iter().map(|path| {
        let count = path.rtt.map(|rtt| rtt.count);
        (path.id, path.bytes_received, count)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(0, 200, Some(2)), (1, 50, Some(1)), (2, 7, None)]
    );
    assert_eq!(figures[0].received_bits_per_second, 800.0);
}

#[tokio::test]
async fn a_server_answers_what_is_asked_for() {
    let (_served, client) = client().await;
    for (size, wanted) in [(8, 0), (8, 1), (9, 64 << 10), (200_000, 70_000), (0, 5)] {
        soon(client.ask(size, wanted)).await.unwrap();
    }
    let (down, up) = (Cell::new(0), Cell::new(0));
    let until = || Instant::now() + Duration::from_millis(100);
    let add = |count: &Cell<u64>, bytes| count.set(count.get() + bytes);
    soon(client.download(until(), |bytes| add(&down, bytes)))
        .await
        .unwrap();
    soon(client.upload(until(), |bytes| add(&up, bytes)))
        .await
        .unwrap();
    let stats = client.connection.stats();
    assert!(down.get() > 0 && stats.bytes_received > down.get());
    assert!(up.get() > 0 && stats.bytes_sent > up.get());
}

fn arguments(options: &[&str]) -> Perf {
    let line = [&["x", "localhost"], options].concat();
    Line::try_parse_from(line).unwrap().perf
}

/// The JSON of one measurement: progress, then the result.
async fn events(measurement: &Measurement<'_>) -> (Vec<serde_json::Value>, serde_json::Value) {
    let heard = Heard::begin();
    soon(measurement.run()).await.unwrap();
    let [printed, said] = heard.take();
    assert_eq!(said, "");
    let events = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let mut events: Vec<serde_json::Value> = events.collect();
    let result = events.pop().unwrap();
    assert_eq!(
        (&result["event"], &result["start"]),
        (&"result".into(), &0.0.into())
    );
    // The last DATAGRAM leaves 4 ms before the end, and its answer may end the measurement.
    assert!(result["end"].as_f64().unwrap() >= 0.196);
    assert!(events.iter().all(|event| event["event"] == "interval"));
    (events, result)
}

#[tokio::test]
async fn result_counts_all_carried_bytes() {
    let (_served, client) = client().await;
    let args = arguments(&["--json", "--time", "0.2", "--interval", "0"]);
    for (test, directions) in [
        (Test::Download, &["download"][..]),
        (Test::Upload, &["upload"]),
        (Test::Both, &["download", "upload"]),
    ] {
        let measurement = measurement(&args, &client, test);
        let (intervals, result) = events(&measurement).await;
        assert_eq!(intervals.len(), 0, "none were asked for");
        for (direction, count, end) in [
            (
                "download",
                &measurement.counts.down,
                &measurement.counts.down_end,
            ),
            ("upload", &measurement.counts.up, &measurement.counts.up_end),
        ] {
            let told = &result[direction];
            let is_tested = directions.contains(&direction);
            assert_eq!((count.get() > 0, told.is_null()), (is_tested, !is_tested));
            if is_tested {
                // Bytes carried until the arrival of the last byte.
                let end = end.get().unwrap();
                assert!((0.2..=result["end"].as_f64().unwrap()).contains(&end));
                assert_eq!(told["bytes"], count.get());
                let rate = 8.0 * count.get() as f64 / end;
                let told = told["bits_per_second"].as_f64().unwrap();
                assert!((told / rate - 1.0).abs() < 1e-9, "{result}");
            }
        }
        let latency = &result["latency"]["count"];
        assert_eq!(*latency, measurement.latencies.borrow().len());
        assert!(latency.as_u64().unwrap() > 0 && result["bufferbloat"].is_null());
        // The test sampled the round trips of the path meanwhile.
        let looks = result["paths"][0]["rtt"]["count"].as_u64().unwrap();
        assert!(looks > 1, "{result}");
    }
}

#[tokio::test]
async fn a_load_is_graded_by_the_latency_without_it() {
    let (_served, client) = client().await;
    let args = arguments(&["--json", "--time", "0.2", "--interval", "0"]);
    let slow = Spread {
        count: 1,
        min_ms: 1e6,
        p50_ms: 1e6,
        p90_ms: 1e6,
        p99_ms: 1e6,
        max_ms: 1e6,
    };
    for (test, is_graded) in [(Test::Download, true), (Test::Latency, false)] {
        let mut measurement = measurement(&args, &client, test);
        measurement.idle = Some(slow);
        let (_, result) = events(&measurement).await;
        let grade = &result["bufferbloat"]["grade"];
        assert_eq!(grade.as_str(), is_graded.then_some("A+"), "{result}");
    }
}

#[tokio::test]
async fn request_follows_each_answer() {
    let (_served, client) = client().await;
    let args = arguments(&[
        "--json",
        "--time",
        "0.2",
        "--interval",
        "0",
        "--parallel",
        "1",
    ]);
    let measurement = measurement(&args, &client, Test::Requests);
    let (_, result) = events(&measurement).await;
    let count = measurement.latencies.borrow().len();
    let per_second = result["requests_per_second"].as_f64().unwrap();
    let expected = count as f64 / result["end"].as_f64().unwrap();
    assert!(count > 1 && (per_second / expected - 1.0).abs() < 1e-9);
    let args = arguments(&["--parallel", "1"]);
    tokio::time::pause();
    let late = Instant::now();
    let measurement = self::measurement(&args, &client, Test::Requests);
    measurement.requests(late).await.unwrap();
    measurement.probe(late).await.unwrap();
    assert_eq!(measurement.latencies.borrow().len(), 0, "the time is over");
}

#[tokio::test]
async fn datagrams_leave_at_their_rate_and_come_back() {
    let (_served, client) = client().await;
    // One each 4 ms.
    let args = arguments(&["--json", "--time", "0.2", "--interval", "0"]);
    let mut ends = Vec::new();
    for _ in 0..5 {
        let measurement = measurement(&args, &client, Test::Datagrams);
        let (_, result) = events(&measurement).await;
        let told = &result["datagrams"];
        let sent = told["sent"].as_u64().unwrap();
        // The first may be a little late.
        assert!((25..=51).contains(&sent), "{told}");
        let returned = told["returned"].as_u64().unwrap();
        assert!(returned > sent / 2, "{told}");
        assert_eq!(result["latency"]["count"], returned);
        ends.push(result["end"].as_f64().unwrap());
        // When all datagrams have returned, the run has nothing to wait for.
        if ends.last() < Some(&(0.2 + LATE.as_secs_f64())) {
            return;
        }
    }
    panic!("it waits for what is there: {ends:?}");
}

#[tokio::test]
async fn datagrams_have_to_fit_the_paths() {
    let (_served, client) = client().await;
    let largest = || client.connection.max_datagram_size().unwrap();
    // The limit may grow later, but never shrink.
    let args = arguments(&["--datagram-size", &largest().to_string()]);
    let fitting = measurement(&args, &client, Test::Datagrams);
    tokio::time::pause();
    fitting.datagrams(Instant::now()).await.unwrap();
    assert_eq!(fitting.tally.borrow().sent, 0, "the time is over");
    let args = arguments(&["--datagram-size", "60000"]);
    let too_large = measurement(&args, &client, Test::Datagrams);
    let failure = too_large.datagrams(Instant::now()).await.unwrap_err();
    let most = largest();
    let told = format!("--datagram-size 60000 does not fit the paths; expected at most {most}");
    assert_eq!((failure.code(), failure.message()), (2, &*told));
}

#[tokio::test]
async fn a_lost_connection_ends_a_measurement() {
    let (_served, client) = client().await;
    let args = arguments(&[]);
    client.connection.close(0u32.into(), b"");
    let measurement = measurement(&args, &client, Test::Latency);
    for failure in [
        soon(measurement.watch()).await.unwrap_err(),
        soon(measurement.run()).await.unwrap_err(),
        soon(measurement.take_datagrams()).await.unwrap_err(),
        not_sent(&client.connection, &SendDatagramError::TooLarge),
    ] {
        assert_eq!(failure.cause(), Some(Cause::Broken));
        let told = failure.message();
        assert!(told.starts_with("connection lost: "), "{told}");
    }
}

/// New paths get time to open. With a single path, the test does not wait.
#[tokio::test]
async fn paths_have_time_to_open() {
    for max_paths in [1, 8] {
        let mut transport = mpquic_tokio::default_transport();
        transport.max_concurrent_paths = max_paths - 1;
        let service = crate::serve::Service::new(std::sync::Arc::new(Anything::new(1)));
        let served = Served::over(service, Alpn::Perf, transport);
        let connection = served.connect(1 << 20).await;
        assert_eq!(connection.is_multipath(), max_paths > 1);
        let began = Instant::now();
        soon(all_paths(&connection)).await;
        let took = began.elapsed();
        assert_eq!(took >= 2 * LOOK, max_paths > 1, "{took:?}");
    }
}

/// The latency test without load comes first, and the load is compared with its result.
#[tokio::test]
async fn tests_run_one_after_the_other() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
    let address = served.address.to_string();
    let options = [
        "--insecure",
        "--interval",
        "0",
        "--test",
        "latency,download",
    ];
    let line = [&["x", &address, "--time", "0.1"], &options[..]].concat();
    let args = Line::try_parse_from(line).unwrap().perf;
    let purpose = Purpose::look(&args.server, &[Alpn::Perf]);
    let sessions = Sessions::new(&args.reach, purpose).unwrap().that_forget();
    let heard = Heard::begin();
    soon(measure(&args, &sessions, &address)).await.unwrap();
    let [printed, said] = heard.take();
    assert_eq!(said, "");
    let lines: Vec<_> = printed.lines().collect();
    let connected = format!("connected to {address} in ");
    assert!(lines[0].starts_with(&connected), "{printed}");
    assert!(lines[0].ends_with(" ms, QUIC v1, multipath"), "{printed}");
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start));
    let (latency, download) = (at("latency").unwrap(), at("download").unwrap());
    assert!(latency < download, "{printed}");
    let graded = at("  bufferbloat: ").unwrap();
    assert!(graded > download, "{printed}");
}

const DELAY: Duration = Duration::from_millis(10);

fn far_client(far: &Far) -> Client {
    Client {
        connection: far.client.clone(),
        stall: Duration::from_secs(10),
    }
}

/// With round trips of 20 ms, each step takes its expected time.
#[tokio::test(start_paused = true)]
async fn probes_and_looks_have_their_times() {
    let far = far_perf(DELAY, mpquic_tokio::default_transport()).await;
    let client = far_client(&far);
    let args = arguments(&["--json", "--time", "1.01", "--interval", "0.1"]);
    let measurement = measurement(&args, &client, Test::Latency);
    let (intervals, result) = events(&measurement).await;
    assert_eq!(result["end"], 1.02);
    assert_eq!(result["latency"]["count"], 26, "one each 40 ms");
    assert_eq!(result["paths"][0]["rtt"]["count"], 21, "one each 50 ms");
    assert!(result["download"].is_null() && result["upload"].is_null());
    let mut samples = 0;
    for (number, interval) in (1..=10).zip(&intervals) {
        let at = |tenth| f64::from(tenth) / 10.0;
        assert_eq!(
            (&interval["start"], &interval["end"]),
            (&at(number - 1).into(), &at(number).into())
        );
        samples += interval["latency"]["count"].as_u64().unwrap();
    }
    assert_eq!((intervals.len(), samples), (10, 25));
}

/// Probes are as small as possible.
#[tokio::test(start_paused = true)]
async fn a_probe_is_the_smallest_request() {
    let far = far(Alpn::Perf, DELAY, mpquic_tokio::default_transport()).await;
    let client = far_client(&far);
    let args = arguments(&[]);
    let measurement = measurement(&args, &client, Test::Latency);
    tokio::select! {
        _ = measurement.probe(Instant::now() + 10 * DELAY) => panic!("it is not over"),
        request = answer_perf(&far.server, 1) => assert_eq!(request, 1_u64.to_be_bytes()),
    }
}

/// One DATAGRAM leaves every 4 ms. The wait for missing DATAGRAMs is limited.
#[tokio::test(start_paused = true)]
async fn late_datagrams_are_awaited_for_a_limited_time() {
    let args = arguments(&["--time", "0.2"]);
    let sent = async |far: &Far| {
        let client = far_client(far);
        let measurement = measurement(&args, &client, Test::Datagrams);
        let until = measurement.began + args.time;
        measurement.datagrams(until).await.unwrap();
        let (sent, took) = (measurement.tally.borrow().sent, measurement.began.elapsed());
        (sent, took.as_millis())
    };
    let transport = mpquic_tokio::default_transport;
    let echoing = far_perf(DELAY, transport()).await;
    let (count, millis) = sent(&echoing).await;
    // Checked every millisecond.
    assert!((196 + 20..=196 + 21).contains(&millis), "{millis}");
    assert_eq!(count, 50);
    let silent = far(Alpn::Perf, DELAY, transport()).await;
    assert_eq!(sent(&silent).await, (50, 196 + 500));
}

/// Timers have a resolution of a millisecond: datagrams due by then leave at once.
#[tokio::test(start_paused = true)]
async fn datagrams_of_a_millisecond_leave_together() {
    let far = far(Alpn::Perf, DELAY, mpquic_tokio::default_transport()).await;
    let client = far_client(&far);
    let args = arguments(&["--datagram-size", "1000", "--datagram-rate", "8M"]);
    let measurement = measurement(&args, &client, Test::Datagrams);
    let arrivals = async {
        let (mut first, mut arrivals) = (None, Vec::new());
        while arrivals.len() < 8 {
            far.server.read_datagram().await.unwrap();
            let first = *first.get_or_insert(Instant::now());
            arrivals.push(first.elapsed().as_millis());
        }
        arrivals
    };
    tokio::select! {
        _ = measurement.datagrams(measurement.began + LATE) => panic!("it is not over"),
        arrivals = arrivals => assert_eq!(arrivals, [0, 0, 2, 2, 4, 4, 6, 6]),
    }
}

/// Some round trips and a margin while values change, and a second at most.
#[tokio::test(start_paused = true)]
async fn paths_have_some_round_trips_to_open() {
    for (delay, millis) in [(10, 250..290), (200, 1000..1010)] {
        let delay = Duration::from_millis(delay);
        let far = far(Alpn::Perf, delay, mpquic_tokio::default_transport()).await;
        let began = Instant::now();
        all_paths(&far.client).await;
        let took = began.elapsed();
        assert!(millis.contains(&took.as_millis()), "{took:?}");
    }
}
