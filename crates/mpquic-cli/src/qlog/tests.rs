//! Tests of pages from logs.

use super::*;

/// A log of packets, one per millisecond.
fn packets(count: u64) -> String {
    let packet =
        |time| json!({ "time": time, "name": "quic:packet_sent", "data": { "header": {} } });
    let records = std::iter::once(json!({ "trace": {} })).chain((1..=count).map(packet));
    records.map(|record| format!("\u{1e}{record}\n")).collect()
}

/// The times of events that are left out count, too.
#[test]
fn times_since_the_event_before_become_times_since_the_start() {
    let log = "{\"trace\":{\"common_fields\":{\"time_format\":\"relative_to_previous_event\"}}}\n\
                   {\"time\":5,\"name\":\"quic:packet_sent\"}\n\
                   {\"time\":2,\"name\":\"quic:stream_data_moved\"}\n\
                   {\"time\":3,\"name\":\"quic:packet_sent\"}\n";
    let log = sequence(log.as_bytes(), Path::new("x"), &mut 10_000).unwrap();
    let records: Vec<Value> = log
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let format = &records[0]["trace"]["common_fields"]["time_format"];
    assert_eq!(format, "relative_to_epoch");
    let times: Vec<_> = records[1..].iter().map(|it| it["time"].as_f64()).collect();
    assert_eq!(times, [Some(5.0), Some(10.0)]);
}

#[test]
fn records_without_room_are_reported() {
    let all = packets(100);
    let mut room = 10_000;
    let log = sequence(all.as_bytes(), Path::new("x"), &mut room).unwrap();
    assert_eq!((log.lines().count(), room), (101, 10_000 - log.len()));
    let mut room = log.len() / 2;
    let log = sequence(all.as_bytes(), Path::new("x"), &mut room).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["name"], "loglevel:warning");
    let shown = log.lines().count() as u64 - 2;
    assert!((45..55).contains(&shown), "{shown}");
    assert_eq!(last["time"], shown + 1);
    let message = last["data"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("the rest, from {} ms on, is left out", shown + 1)));
    // A log that ends within a record gets a notice.
    let mut room = 10_000;
    let cut = &all[..all.len() - 20];
    let log = sequence(cut.as_bytes(), Path::new("x"), &mut room).unwrap();
    let last = log.lines().last().unwrap();
    assert!(last.contains("the last line is cut short"), "{last}");
    // A log in one object is cut in the same way.
    let events: Vec<Value> = all
        .lines()
        .skip(1)
        .map(|line| serde_json::from_str(line.trim_start_matches('\u{1e}')).unwrap())
        .collect();
    let text = json!({ "traces": [{ "events": events }] }).to_string();
    let logs = whole(text.as_bytes(), MAX_WHOLE, Path::new("x"), &mut 1000).unwrap();
    let last = logs[0].lines().last().unwrap();
    assert!(last.contains("is left out: a page takes"), "{last}");
}

#[test]
fn only_one_object_with_traces_is_taken_whole() {
    for text in [
        "5",
        "[1]",
        "\"x\"",
        "null",
        "{}",
        "{\"traces\": 5}",
        "{\"traces\": []}",
    ] {
        let read = whole(text.as_bytes(), MAX_WHOLE, Path::new("x"), &mut 1000);
        let error = read.unwrap_err();
        assert!(
            error.starts_with("not a qlog: it has no `traces`"),
            "{text}"
        );
    }
    let odd = "{\"traces\": [5, null, {\"events\": [5, null, {\"time\": []}]}]}";
    let read = whole(odd.as_bytes(), MAX_WHOLE, Path::new("x"), &mut 1000);
    assert_eq!(read.unwrap().len(), 3);
}

#[test]
fn members_not_shown_are_left_out() {
    let mut record = json!({
        "time": 1,
        "name": "quic:packet_sent",
        "secret": "x",
        "data": {
            "header": { "packet_number": 1, "dcid": "0102", "token": { "data": "03" } },
            "frames": [
                { "frame_type": "stream", "stream_id": 4, "data": "616263", "key": 5 },
                { "frame_type": "ping" },
            ],
        },
    });
    reduce(&mut record);
    let expected = json!({
        "time": 1,
        "name": "quic:packet_sent",
        "data": {
            "header": { "packet_number": 1 },
            "frames": [{ "frame_type": "stream", "stream_id": 4 }, { "frame_type": "ping" }],
        },
    });
    assert_eq!(record, expected);
}

#[test]
fn names_do_not_tell_connection_ids() {
    for (name, shown) in [
        ("0123456789abcdef_client.sqlog", "log 2, client"),
        (
            "0123456789abcdef_client.qlog",
            "0123456789abcdef_client.qlog",
        ),
        ("my_client.sqlog", "my_client.sqlog"),
        ("_client.sqlog", "_client.sqlog"),
        ("client.sqlog", "client.sqlog"),
    ] {
        assert_eq!(shown_name(name, 2), shown);
    }
}

#[test]
fn only_times_since_the_event_before_are_changed() {
    for (format, counts) in [
        ("relative_to_previous_event", true),
        ("delta", true),
        ("relative_to_epoch", false),
    ] {
        let mut head = json!({ "trace": { "common_fields": { "time_format": format } } });
        assert_eq!(counts_from_event(&mut head), counts, "{format}");
        let now = &head["trace"]["common_fields"]["time_format"];
        assert_eq!(now, "relative_to_epoch");
    }
    assert!(!counts_from_event(&mut json!({ "title": "delta" })));
    assert!(!counts_from_event(&mut json!("delta")));
}

/// Each `<` takes the room of its escape of six characters.
#[test]
fn longer_records_need_more_room() {
    let mut log = Trace::default();
    let (plain, marked) = (json!({ "title": "ab" }), json!({ "title": "<<" }));
    let length = plain.to_string().len() + 1;
    let mut room = 2 * length + 10;
    assert!(log.add(plain, &mut room));
    assert_eq!(room, length + 10);
    let mut log = Trace::default();
    assert!(log.add(marked.clone(), &mut room));
    assert_eq!(room, 0);
    let mut less = length + 9;
    assert!(!Trace::default().add(marked, &mut less));
    assert_eq!(less, length + 9);
}

#[test]
fn an_object_with_traces_is_read_like_its_lines() {
    let event = |time| json!({ "time": time, "name": "transport:packet_sent" });
    let log = json!({
        "title": "x",
        "traces": [
            { "vantage_point": { "type": "client" }, "events": [event(1), event(2)] },
            { "events": [event(3)] },
            {},
        ],
    });
    let text = log.to_string();
    let read = |mut room: usize| whole(text.as_bytes(), MAX_WHOLE, Path::new("x"), &mut room);
    let logs = read(10_000).unwrap();
    let lines: Vec<_> = logs.iter().map(|log| log.lines().count()).collect();
    assert_eq!(lines, [3, 2, 1]);
    assert!(logs[0].contains("\"time\":2") && logs[1].contains("\"time\":3"));
    // Records without room are left out, with a message.
    let first = logs[0].lines().next().unwrap().len() + 1;
    let cut = read(first + 10).unwrap();
    assert_eq!(cut[0].lines().count(), 2);
    assert!(cut[0].contains("is left out"), "{}", cut[0]);
}

#[test]
fn oversized_logs_are_refused() {
    let text = "{\"traces\":[{}]}";
    let of = |most: usize| whole(text.as_bytes(), most as u64, Path::new("x"), &mut 1000);
    assert_eq!(of(text.len()).unwrap().len(), 1);
    let told = "larger than 14 B, and not JSON-SEQ, which can be read in parts";
    assert_eq!(of(text.len() - 1).unwrap_err(), told);
    // The longest line is one byte shorter than the read limit.
    let mut line = vec![b' '; MAX_LINE as usize];
    line[0] = RECORD_SEPARATOR;
    let read = |line: &[u8]| sequence(line, Path::new("x"), &mut 1000).unwrap_err();
    assert_eq!(read(&line[1..]), "not a qlog: it is empty");
    let told = "line 1 is longer than 8.0 MiB: a record stands on a line";
    assert_eq!(read(&line), told);
    let second = [b"{}\n", &line[..]].concat();
    assert!(read(&second).starts_with("line 2 is longer than "));
}

/// The values of a record take up to 64 times the memory of their text.
#[test]
fn large_records_in_an_object_are_refused() {
    let zeros = format!("[0{}]", ",0".repeat(MAX_LINE as usize / 2));
    for text in [
        format!("{{\"traces\":[{{\"events\":[{{}},{zeros}]}}]}}"),
        format!("{{\"traces\":[{{\"x\":{zeros}}}]}}"),
        format!("{{\"title\":{zeros},\"traces\":[{{}}]}}"),
    ] {
        let read = whole(text.as_bytes(), MAX_WHOLE, Path::new("x"), &mut 10_000);
        assert_eq!(read.unwrap_err(), "a record is larger than 8.0 MiB");
    }
    let text = format!("{{\"other\":{zeros},\"traces\":[{{}}]}}");
    let read = whole(text.as_bytes(), MAX_WHOLE, Path::new("x"), &mut 10_000);
    assert_eq!(read.unwrap().len(), 1);
}

/// The first line shows the format of a file, not its name.
#[test]
fn logs_are_told_from_each_other_by_their_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let lines = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let logs = read(&path, &mut 10_000)?;
        let lines = logs.iter().map(|log| log.lines().count());
        Ok::<_, String>(lines.collect::<Vec<_>>())
    };
    let head = "{\"trace\":{}}\n";
    let event = "{\"time\":1,\"name\":\"quic:packet_sent\"}";
    for (text, expected) in [
        (format!("\u{1e}{head}\u{1e}{event}\n"), vec![2]),
        (format!("{head}{event}\n{event}\n"), vec![3]),
        (
            format!("{{\"traces\":[{{\"events\":[{event}]}},{{}}]}}"),
            vec![2, 1],
        ),
        (
            format!("{{\n\"traces\":\n[{{\"events\":[{event}]}}]}}"),
            vec![2],
        ),
        // In a sequence with separators, the head may have any content.
        (format!("\u{1e}{{\"traces\":[]}}\n\u{1e}{event}\n"), vec![2]),
    ] {
        assert_eq!(lines(&text), Ok(expected), "{text}");
    }
    for (text, told) in [
        ("\u{1e}{\n", "not a qlog: line 1 is damaged: "),
        ("", "not a qlog: it is empty"),
        ("{\n", "not a qlog: EOF"),
        ("no log\n", "not a qlog: expected ident"),
    ] {
        let error = lines(text).unwrap_err();
        assert!(error.starts_with(told), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(
        read(&path, &mut 1000)
            .unwrap_err()
            .starts_with("No such file")
    );
}

#[test]
fn a_page_has_all_logs_and_no_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let secret =
        "{\"time\":1,\"name\":\"quic:packet_sent\",\"data\":{\"header\":{\"dcid\":\"beef\"}}}";
    let text = format!("\u{1e}{{\"title\":\"of a test\"}}\n\u{1e}{secret}\n");
    let names = ["01ab_client.sqlog", "02cd_server.sqlog"];
    for name in names {
        std::fs::write(path(name), &text).unwrap();
    }
    let args = QlogPage {
        logs: names.map(path).to_vec(),
        output: path("page.html"),
    };
    run(&args).unwrap();
    let page = std::fs::read_to_string(path("page.html")).unwrap();
    assert_eq!(page.matches("of a test").count(), 2);
    for shown in ["log 1, client", "log 2, server", "packet_sent"] {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains("beef"));
    // Without logs, the page is empty, and replaces an earlier one.
    let args = QlogPage {
        logs: Vec::new(),
        ..args
    };
    run(&args).unwrap();
    let empty = std::fs::read_to_string(path("page.html")).unwrap();
    assert!(empty.len() < page.len() && !empty.contains("of a test"));
    for (output, told) in [
        (
            Path::new("/"),
            "cannot write /: name a file, or `-`".to_owned(),
        ),
        (
            directory.path(),
            format!("cannot write {}: ", directory.path().display()),
        ),
    ] {
        let args = QlogPage {
            logs: Vec::new(),
            output: output.to_owned(),
        };
        let failure = run(&args).unwrap_err();
        assert_eq!(failure.cause(), Some(Cause::File));
        assert!(
            failure.message().starts_with(&told),
            "{}",
            failure.message()
        );
    }
    let missing = QlogPage {
        logs: vec![path("missing")],
        output: path("page.html"),
    };
    let failure = run(&missing).unwrap_err();
    let told = format!("{}: No such file", path("missing").display());
    assert!(
        failure.message().starts_with(&told),
        "{}",
        failure.message()
    );
}

#[test]
fn record_ends_with_a_newline() {
    let all = packets(3);
    let cut = &all[..all.len() - 5];
    for text in [&*all, cut] {
        let log = sequence(text.as_bytes(), Path::new("x"), &mut 10_000).unwrap();
        assert!(log.ends_with('\n'), "{log}");
        assert_eq!(log.lines().count(), 4);
    }
}
