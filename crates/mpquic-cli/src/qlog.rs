//! `mpquic qlog`: logs of connections as a page for the browser.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use crate::files::upload::{Place, Upload, UploadError};
use crate::pages;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::report::size;

/// Show qlogs as a page for the browser
///
/// For each path the page draws packets and their fate, window, round trips and events. It is a
/// single file that loads nothing. Connection IDs, tokens and other secrets of the logs are left
/// out; addresses are not. Without QLOG the page is empty, and opens logs that are dropped on it.
#[derive(Debug, Args)]
pub(crate) struct QlogPage {
    /// Logs: .sqlog (JSON-SEQ), as `--qlog-dir DIR` writes them, or .qlog (JSON)
    #[arg(value_name = "QLOG")]
    logs: Vec<PathBuf>,
    /// Output file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "qlog.html")]
    output: PathBuf,
}

/// Limits in bytes: a page, a line, a log that is one object.
const MAX_PAGE: usize = 64 << 20;
const MAX_LINE: u64 = 8 << 20;
const MAX_WHOLE: u64 = 256 << 20;
const RECORD_SEPARATOR: u8 = 0x1e;

/// Members that the page shows or needs. Others are left out: connection IDs, tokens, secrets,
/// payloads.
const MEMBERS: &[&str] = &[
    "acked_ranges",
    "bytes_in_flight",
    "change",
    "common_fields",
    "congestion_window",
    "connection_code",
    "connection_error",
    "data",
    "done",
    "error",
    "error_code",
    "event_schemas",
    "file_schema",
    "frame_type",
    "frames",
    "header",
    "initiator",
    "ip_v4",
    "ip_v6",
    "latest_rtt",
    "length",
    "local",
    "message",
    "name",
    "new",
    "offset",
    "old",
    "packet_number",
    "packet_type",
    "path_id",
    "port_v4",
    "port_v6",
    "pto_count",
    "qlog_version",
    "raw",
    "reason",
    "reference_time",
    "remote",
    "serialization_format",
    "smoothed_rtt",
    "stream_id",
    "time",
    "time_format",
    "title",
    "trace",
    "trigger",
    "tuple",
    "tuple_id",
    "tuple_local",
    "tuple_remote",
    "type",
    "vantage_point",
    "wall_clock_time",
];
/// Events that the page shows, without the name of their schema.
const EVENTS: &[&str] = &[
    "careful_resume_phase_updated",
    "congestion_state_updated",
    "connection_closed",
    "connection_started",
    "ecn_state_updated",
    "metrics_updated",
    "mtu_updated",
    "packet_dropped",
    "packet_lost",
    "packet_received",
    "packet_sent",
    "path_updated",
    "recovery_metrics_updated",
    "tuple_assigned",
    "warning",
];

pub(crate) fn run(args: &QlogPage) -> Result<(), Failure> {
    let mut room = MAX_PAGE;
    let mut data = String::new();
    for (number, file) in (1..).zip(&args.logs) {
        let logs = read(file, &mut room)
            .map_err(|what| Cause::File.failed(format_args!("{}: {what}", file.display())))?;
        let name = file
            .file_name()
            .unwrap_or(file.as_os_str())
            .to_string_lossy();
        for log in logs {
            data += &pages::data(&shown_name(&name, number), &log);
        }
    }
    write(&args.output, &pages::QLOG.with(&data))
}

/// Writes a page, or leaves an existing file unchanged.
fn write(output: &Path, page: &str) -> Result<(), Failure> {
    if output.as_os_str() == "-" {
        return match io::stdout().write_all(page.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Cause::File.failed(format_args!("cannot write standard output: {error}")))
            }
            _ => Ok(()),
        };
    }
    let failed = |error: &dyn std::fmt::Display| {
        Cause::File.failed(format_args!("cannot write {}: {error}", output.display()))
    };
    let name = output
        .file_name()
        .ok_or_else(|| failed(&"name a file, or `-`"))?;
    let directory = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut file = Place::new(directory, name)
        .map_err(UploadError::from)
        .and_then(|place| Upload::create(place, None))
        .map_err(|error| failed(&error))?;
    file.write(page.as_bytes())
        .map_err(|error| failed(&error))?;
    file.finish().map_err(|error| failed(&error))?;
    screen::say(format_args!("written: {}", output.display()));
    Ok(())
}

/// The records of a file that a page needs, a line for each; `room` is the rest of the page's
/// limit.
fn read(path: &Path, room: &mut usize) -> Result<Vec<String>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut file = BufReader::new(file);
    let mut first = Vec::new();
    let cannot_read = |error: io::Error| error.to_string();
    (&mut file)
        .take(MAX_LINE)
        .read_until(b'\n', &mut first)
        .map_err(cannot_read)?;
    let record = serde_json::from_slice::<Value>(text_of(&first));
    let is_sequence = first.first() == Some(&RECORD_SEPARATOR)
        || record.is_ok_and(|record| record.get("traces").is_none());
    match is_sequence {
        true => Ok(vec![sequence(
            io::Cursor::new(first).chain(file),
            path,
            room,
        )?]),
        false => whole(io::Cursor::new(first).chain(file), MAX_WHOLE, path, room),
    }
}

/// A record as JSON.
fn text_of(line: &[u8]) -> &[u8] {
    let text = line.trim_ascii();
    text.strip_prefix(&[RECORD_SEPARATOR])
        .unwrap_or(text)
        .trim_ascii()
}

/// Reads a text sequence (RFC 7464), a record in each line.
fn sequence(mut lines: impl BufRead, path: &Path, room: &mut usize) -> Result<String, String> {
    let mut log = Trace::default();
    // The error of the last line, unless no line follows: the last one may be cut short.
    let mut damage = None;
    let mut bytes = Vec::new();
    for line in 1_u64.. {
        bytes.clear();
        let read = (&mut lines).take(MAX_LINE).read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| error.to_string())? as u64;
        if read == MAX_LINE {
            return Err(format!(
                "line {line} is longer than {}: a record stands on a line",
                size(MAX_LINE)
            ));
        }
        let text = text_of(&bytes);
        if let (Some(damage), false) = (&damage, text.is_empty()) {
            return Err(format!("{damage}; each line is a JSON object"));
        }
        if read == 0 {
            break;
        }
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Map<String, Value>>(text) {
            Ok(record) => {
                if !log.add(Value::Object(record), room) {
                    log.end(path);
                    return Ok(log.text);
                }
            }
            Err(error) => damage = Some(format!("line {line} is damaged: {error}")),
        }
    }
    match (log.text.is_empty(), damage) {
        (true, Some(damage)) => Err(format!("not a qlog: {damage}")),
        (true, None) => Err("not a qlog: it is empty".to_owned()),
        (false, Some(_)) => {
            log.cut_short(path);
            Ok(log.text)
        }
        (false, None) => Ok(log.text),
    }
}

/// Reads one object with `traces`, of at most `most` bytes.
fn whole(file: impl Read, most: u64, path: &Path, room: &mut usize) -> Result<Vec<String>, String> {
    let mut text = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > most {
        return Err(format!(
            "larger than {}, and not JSON-SEQ, which can be read in parts",
            size(most)
        ));
    }
    if text.trim_ascii().is_empty() {
        return Err("not a qlog: it is empty".to_owned());
    }
    let mut whole: Value = serde_json::from_slice(&text).map_err(|error| {
        format!("not a qlog: {error}; a .qlog is one JSON object, a .sqlog has one in each line")
    })?;
    let traces = match whole.get_mut("traces").map(Value::take) {
        Some(Value::Array(traces)) if !traces.is_empty() => traces,
        _ => return Err("not a qlog: it has no `traces`, and is not JSON-SEQ".to_owned()),
    };
    let mut logs = Vec::new();
    for mut trace in traces {
        let events = trace.get_mut("events").map_or(Value::Null, Value::take);
        let mut log = Trace::default();
        let head = json!({ "title": whole["title"], "trace": trace });
        let mut fits = log.add(head, room);
        if let Value::Array(events) = events {
            for event in events {
                fits = fits && log.add(event, room);
                if !fits {
                    log.end(path);
                    break;
                }
            }
        }
        logs.push(log.text);
    }
    Ok(logs)
}

/// What a page takes of a trace.
#[derive(Debug, Default)]
struct Trace {
    text: String,
    /// True once the first record, the head, is there.
    begun: bool,
    /// Times count from the event before. As some events are left out, they are converted to times
    /// since the start.
    counts_from_event: bool,
    last_time: Value,
}

impl Trace {
    /// Adds a record, unless the page shows nothing of it; false without room.
    fn add(&mut self, mut record: Value, room: &mut usize) -> bool {
        self.note_time(&mut record);
        let name = record["name"].as_str();
        let name = name.map(|name| name.rsplit(':').next().unwrap_or(name));
        if self.begun && !name.is_some_and(|name| EVENTS.contains(&name)) {
            return true;
        }
        self.begun = true;
        reduce(&mut record);
        let line = record.to_string();
        // Each `<` becomes an escape of six.
        let length = line.len() + 1 + 5 * line.matches('<').count();
        match room.checked_sub(length) {
            Some(left) => *room = left,
            None => return false,
        }
        self.text += &line;
        self.text.push('\n');
        true
    }

    fn note_time(&mut self, record: &mut Value) {
        if !self.begun {
            self.counts_from_event = counts_from_event(record);
            return;
        }
        let Some(time) = record["time"].as_f64() else {
            return;
        };
        if self.counts_from_event {
            record["time"] = json!(self.last_time.as_f64().unwrap_or(0.0) + time);
        }
        self.last_time = record["time"].clone();
    }

    /// Says that the last record is not whole, here and in the page.
    fn cut_short(&mut self, path: &Path) {
        let what = "the last line is cut short, and left out";
        screen::say(format_args!("{}: {what}", path.display()));
        self.notice(what);
    }

    /// A warning that the page shows.
    fn notice(&mut self, what: &str) {
        let time = &self.last_time;
        let notice =
            json!({ "time": time, "name": "loglevel:warning", "data": { "message": what } });
        self.text += &notice.to_string();
        self.text.push('\n');
    }

    /// Says that the rest is left out, here and in the page.
    fn end(&mut self, path: &Path) {
        let time = self.last_time.clone();
        let what = format!(
            "the rest, from {time} ms on, is left out: a page takes {}",
            size(MAX_PAGE as u64)
        );
        let how = "the empty page, of `mpquic qlog` alone, opens larger logs";
        screen::say(format_args!("{}: {what}; {how}", path.display()));
        self.notice(&what);
    }
}

/// True if times count from the event before; the head then says that they count from the start.
fn counts_from_event(value: &mut Value) -> bool {
    match value {
        Value::Object(members) => {
            let mut counts = false;
            for (name, value) in members {
                let format = value.as_str();
                if name == "time_format"
                    && matches!(format, Some("relative_to_previous_event" | "delta"))
                {
                    *value = json!("relative_to_epoch");
                    counts = true;
                }
                counts |= counts_from_event(value);
            }
            counts
        }
        _ => false,
    }
}

/// The name of a log in the page. Names of mpquic's logs begin with a connection ID, which the page
/// must not contain.
fn shown_name(name: &str, number: usize) -> String {
    let of_ours = name
        .strip_suffix(".sqlog")
        .and_then(|name| name.rsplit_once('_'));
    match of_ours {
        Some((id, side)) if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("log {number}, {side}")
        }
        _ => name.to_owned(),
    }
}

/// Leaves out what the page does not show.
fn reduce(value: &mut Value) {
    match value {
        Value::Object(members) => {
            // In frames and tokens `data` are the bytes themselves.
            let is_shown = |name: &str, value: &Value| {
                MEMBERS.contains(&name) && (name != "data" || value.is_object())
            };
            members.retain(|name, value| is_shown(name, value));
            members.values_mut().for_each(reduce);
        }
        Value::Array(values) => values.iter_mut().for_each(reduce),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of packets, one each millisecond.
    fn packets(count: u64) -> String {
        let packet =
            |time| json!({ "time": time, "name": "quic:packet_sent", "data": { "header": {} } });
        let records = std::iter::once(json!({ "trace": {} })).chain((1..=count).map(packet));
        records.map(|record| format!("\u{1e}{record}\n")).collect()
    }

    /// Events that are left out have taken time as well.
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
        // A log that ends within a record says so.
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

    /// Each `<` takes the room of the six characters that stand for it.
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
            // A head may have any name, where a separator begins the record.
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
}
