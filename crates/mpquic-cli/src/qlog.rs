//! `mpquic qlog`: logs of connections as a page for the browser.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserializer as _;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
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

/// Most bytes of a page's data.
const MAX_PAGE: usize = 64 << 20;
/// Most bytes of a line, or of a record in a log that is one JSON object.
const MAX_LINE: u64 = 8 << 20;
/// Most bytes of a log that is one JSON object.
const MAX_WHOLE: u64 = 256 << 20;
/// The first byte of every record of JSON-SEQ (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// Members that the page shows or needs. Other members are left out: connection IDs, tokens,
/// secrets, payloads.
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

/// Writes a page as a whole, or leaves an existing file unchanged.
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

/// The records of a file for a page, one line each. `room` is the rest of the page's limit.
pub(crate) fn read(path: &Path, room: &mut usize) -> Result<Vec<String>, String> {
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
    if is_sequence {
        Ok(vec![sequence(
            io::Cursor::new(first).chain(file),
            path,
            room,
        )?])
    } else {
        whole(io::Cursor::new(first).chain(file), MAX_WHOLE, path, room)
    }
}

/// The JSON of a record.
fn text_of(line: &[u8]) -> &[u8] {
    let text = line.trim_ascii();
    text.strip_prefix(&[RECORD_SEPARATOR])
        .unwrap_or(text)
        .trim_ascii()
}

/// Reads a text sequence (RFC 7464) with one record per line.
fn sequence(mut lines: impl BufRead, path: &Path, room: &mut usize) -> Result<String, String> {
    let mut log = Trace::default();
    // The error of the latest line. Without a further line, the error is no failure, because the
    // last line may be cut short.
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
    // One event at a time is parsed, because its values take far more memory than its text.
    let whole: &RawValue = serde_json::from_slice(&text).map_err(|error| {
        format!("not a qlog: {error}; a .qlog is one JSON object, a .sqlog has one in each line")
    })?;
    let (mut title, mut traces) = (Value::Null, None);
    parts(whole, |name, part| {
        match name {
            "title" => title = value(part)?,
            "traces" => traces = Some(part),
            _ => {}
        }
        Ok(())
    })?;
    let mut logs = Vec::new();
    let mut is_full = false;
    let each = |_: &str, trace| {
        if !is_full {
            let (log, fits) = one_trace(&title, trace, path, room)?;
            logs.push(log);
            is_full = !fits;
        }
        Ok(())
    };
    let is_array = |traces: &&RawValue| traces.get().starts_with('[');
    traces
        .filter(is_array)
        .map_or(Ok(()), |traces| parts(traces, each))?;
    if logs.is_empty() {
        Err("not a qlog: it has no `traces`, and is not JSON-SEQ".to_owned())
    } else {
        Ok(logs)
    }
}

/// The records of a trace in an object; false if the room ends before the records.
fn one_trace(
    title: &Value,
    trace: &RawValue,
    path: &Path,
    room: &mut usize,
) -> Result<(String, bool), String> {
    let (mut head, mut events, mut length) = (Map::new(), None, 0);
    parts(trace, |name, part| {
        if name == "events" {
            events = Some(part);
            return Ok(());
        }
        length += name.len() + part.get().len();
        bounded(length)?;
        head.insert(name.to_owned(), value(part)?);
        Ok(())
    })?;
    let mut log = Trace::default();
    let mut fits = log.add(json!({ "title": title, "trace": head }), room);
    if !fits {
        log.end(path);
    }
    if let Some(events) = events.filter(|events| events.get().starts_with('[')) {
        parts(events, |_, event| {
            if fits {
                fits = log.add(value(event)?, room);
                if !fits {
                    log.end(path);
                }
            }
            Ok(())
        })?;
    }
    Ok((log.text, fits))
}

/// Refuses records above the limit of a line.
fn bounded(length: usize) -> Result<(), String> {
    if length as u64 > MAX_LINE {
        Err(format!("a record is larger than {}", size(MAX_LINE)))
    } else {
        Ok(())
    }
}

fn value(part: &RawValue) -> Result<Value, String> {
    bounded(part.get().len())?;
    serde_json::from_str(part.get()).map_err(|error| format!("not a qlog: {error}"))
}

/// Calls a function with each element of an array, or with each member of an object and its name.
fn parts<'a>(
    whole: &'a RawValue,
    mut each: impl FnMut(&str, &'a RawValue) -> Result<(), String>,
) -> Result<(), String> {
    let mut result = Ok(());
    let visitor = Parts(|name: &str, part| {
        if result.is_ok() {
            result = each(name, part);
        }
    });
    // Other values have no parts. The syntax is already checked.
    let _has_parts = serde_json::Deserializer::from_str(whole.get()).deserialize_any(visitor);
    result
}

struct Parts<F>(F);

impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for Parts<F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<(), A::Error> {
        while let Some(element) = array.next_element()? {
            (self.0)("", element);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some((name, member)) = object.next_entry::<String, _>()? {
            (self.0)(&name, member);
        }
        Ok(())
    }
}

/// The part of a trace for a page.
#[derive(Debug, Default)]
struct Trace {
    text: String,
    /// True once the first record, the head, has been added.
    begun: bool,
    /// True if each time counts from the event before. The page leaves events out, so such times
    /// are replaced by times since the start.
    counts_from_event: bool,
    last_time: Value,
}

impl Trace {
    /// Adds a record, unless the page does not show this event. False if the room is too small.
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
        // Each `<` becomes an escape of six characters.
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

    /// Reports, here and in the page, that the last record is cut short.
    fn cut_short(&mut self, path: &Path) {
        let what = "the last line is cut short, and left out";
        screen::say(format_args!("{}: {what}", path.display()));
        self.notice(what);
    }

    /// Adds a warning to the page.
    fn notice(&mut self, what: &str) {
        let time = &self.last_time;
        let notice =
            json!({ "time": time, "name": "loglevel:warning", "data": { "message": what } });
        self.text += &notice.to_string();
        self.text.push('\n');
    }

    /// Reports, here and in the page, that the rest is left out.
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

/// True if each time counts from the event before. The head of the log then gets the format of
/// times since the start.
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

/// The name of a log in the page. The name of an mpquic log begins with a connection ID, which the
/// page must not contain.
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

/// Removes all members that the page does not show.
fn reduce(value: &mut Value) {
    match value {
        Value::Object(members) => {
            // In frames and tokens, `data` has the bytes themselves.
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
mod tests;
