//! [`check`]: checks that a log follows the schemas of [`Writer`](crate::Writer).
//!
//! The check accepts only the events and frames that `Writer` writes, and rejects all others.

mod tables;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use tables::{EVENTS, FRAMES, Field, HEAD, Kind};

/// A summary of a log that follows the schemas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of events by full name, such as `quic:packet_sent`.
    pub events: BTreeMap<String, u64>,
    /// The types of the frames in the log.
    pub frames: BTreeSet<String>,
    /// The paths of the packets that were sent.
    pub sent_on: BTreeSet<u64>,
    /// The paths of the packets that were received.
    pub received_on: BTreeSet<u64>,
}

/// Checks a JSON text sequence (RFC 7464). Each record is an object. The head and each event have
/// all required members, and only known members of the right type. Times never decrease, and a
/// tuple is assigned before its first use.
///
/// # Errors
///
/// The number of the first wrong record, and what is wrong with it.
pub fn check(log: &[u8]) -> Result<Summary, String> {
    let mut records = log.split(|byte| *byte == crate::writer::RECORD_SEPARATOR);
    if records.next() != Some(&[]) {
        return Err("the log does not begin with a record separator".to_owned());
    }
    let mut reader = Reader::default();
    for (index, record) in records.enumerate() {
        reader
            .on_record(index, record)
            .map_err(|fault| format!("record {index}: {fault}"))?;
    }
    if reader.summary.events.is_empty() {
        return Err("there is no event".to_owned());
    }
    Ok(reader.summary)
}

#[derive(Default)]
struct Reader {
    summary: Summary,
    time: f64,
    tuples: BTreeSet<String>,
}

impl Reader {
    fn on_record(&mut self, index: usize, record: &[u8]) -> Result<(), String> {
        if record.last() != Some(&b'\n') {
            return Err("it does not end with a line feed".to_owned());
        }
        let record: Value = serde_json::from_slice(record).map_err(|error| error.to_string())?;
        if index == 0 {
            return Kind::Object(HEAD).check(&record);
        }
        self.on_event(&record)
            .map_err(|fault| format!("{fault} in {record}"))
    }

    fn on_event(&mut self, record: &Value) -> Result<(), String> {
        Kind::Object(tables::EVENT).check(record)?;
        let (time, name, data) = (&record["time"], &record["name"], &record["data"]);
        let time = time.as_f64().unwrap_or_default();
        if time < self.time {
            return Err("time goes back".to_owned());
        }
        self.time = time;
        let name = name.as_str().unwrap_or_default();
        let (_, fields) = EVENTS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or("unknown event")?;
        Kind::Object(fields).check(data)?;
        *self.summary.events.entry(name.to_owned()).or_default() += 1;
        if name == "quic:tuple_assigned" {
            self.tuples.extend(text(&data["tuple_id"]));
        }
        if let Some(tuple) = record.get("tuple")
            && !text(tuple).is_some_and(|tuple| self.tuples.contains(&tuple))
        {
            return Err("the tuple was not assigned".to_owned());
        }
        let path = data["header"]["path_id"].as_u64();
        match name {
            "quic:packet_sent" => self.summary.sent_on.extend(path),
            "quic:packet_received" => self.summary.received_on.extend(path),
            _ => {}
        }
        let frames = data["frames"].as_array().into_iter().flatten();
        let types = frames.filter_map(|frame| text(&frame["frame_type"]));
        self.summary.frames.extend(types);
        Ok(())
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

impl Kind {
    fn check(self, value: &Value) -> Result<(), String> {
        let is_right = match self {
            Self::Any => true,
            Self::Bool => value.is_boolean(),
            Self::Text => value.is_string(),
            Self::Number => value.as_f64().is_some_and(|number| number >= 0.0),
            Self::Unsigned(bits) => value
                .as_u64()
                .is_some_and(|number| bits == 64 || number >> bits == 0),
            Self::Hex => value.as_str().is_some_and(is_hex),
            Self::HexOf(bytes) => value
                .as_str()
                .is_some_and(|text| is_hex(text) && text.len() == 2 * bytes),
            Self::OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Error => value.as_str().is_some_and(is_error),
            Self::Ranges => return check_ranges(value),
            Self::List(kind) => return check_list(*kind, value),
            Self::Frame => return check_frame(value),
            Self::Object(fields) => return check_object(fields, value),
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("{value} is not {self:?}"))
        }
    }
}

fn is_hex(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len().is_multiple_of(2) && text.bytes().all(is_digit)
}

/// True if the text is a transport error, a TLS alert, or "unknown".
fn is_error(text: &str) -> bool {
    match text.strip_prefix("crypto_error_0x1") {
        Some(rest) => rest.len() == 2 && is_hex(rest),
        None => !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
    }
}

fn check_ranges(value: &Value) -> Result<(), String> {
    let ranges = value.as_array().filter(|ranges| !ranges.is_empty());
    let is_range = |range: &Value| {
        let numbers: Option<Vec<_>> = range
            .as_array()
            .map(|range| range.iter().filter_map(Value::as_u64).collect());
        matches!(numbers.as_deref(), Some([_]))
            || matches!(numbers.as_deref(), Some([a, b]) if a < b)
    };
    if ranges.is_some_and(|ranges| ranges.iter().all(is_range)) {
        Ok(())
    } else {
        Err(format!("{value} are no ranges"))
    }
}

fn check_list(kind: Kind, value: &Value) -> Result<(), String> {
    let items = value
        .as_array()
        .ok_or_else(|| format!("{value} is no list"))?;
    items.iter().try_for_each(|item| kind.check(item))
}

fn check_frame(value: &Value) -> Result<(), String> {
    let name = value["frame_type"].as_str().unwrap_or_default();
    let (_, fields) = FRAMES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("unknown frame {value}"))?;
    let mut members = value.as_object().cloned().unwrap_or_default();
    members.remove("frame_type");
    check_members(fields, &members)
}

fn check_object(fields: &[Field], value: &Value) -> Result<(), String> {
    let members = value
        .as_object()
        .ok_or_else(|| format!("{value} is no object"))?;
    check_members(fields, members)
}

fn check_members(fields: &[Field], members: &Map<String, Value>) -> Result<(), String> {
    for field in fields {
        match members.get(field.name) {
            Some(value) => field
                .kind
                .check(value)
                .map_err(|fault| format!("{}: {fault}", field.name))?,
            None if field.required => return Err(format!("{} is missing", field.name)),
            None => {}
        }
    }
    let is_known = |name: &String| fields.iter().any(|field| field.name == name);
    match members.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("{name} is not in the schema")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: &[&str]) -> Vec<u8> {
        let head = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential",
            "serialization_format":"application/qlog+json-seq","title":"t","trace":{
            "vantage_point":{"type":"client"},"common_fields":{"group_id":"00",
            "time_format":"relative_to_epoch"},
            "event_schemas":["urn:ietf:params:qlog:events:quic-13"]}}"#;
        let records = std::iter::once(&head).chain(events);
        records
            .flat_map(|record| format!("\u{1e}{record}\n").into_bytes())
            .collect()
    }

    const ASSIGNED: &str = r#"{"time":1,"name":"quic:tuple_assigned","tuple":"0",
        "data":{"tuple_id":"0","path_id":0}}"#;

    #[test]
    fn good_logs_pass() {
        let lost = r#"{"time":2.5,"name":"quic:packet_lost","tuple":"0",
            "data":{"header":{"packet_type":"1RTT","packet_number":1,"path_id":0}}}"#;
        let summary = check(&log(&[ASSIGNED, lost])).unwrap();
        assert_eq!(summary.events["quic:packet_lost"], 1);
    }

    #[test]
    fn faults_are_found() {
        for (event, fault) in [
            (
                r#"{"time":2,"name":"quic:nonsense","data":{}}"#,
                "unknown event",
            ),
            (
                r#"{"time":0.5,"name":"quic:packet_lost","data":{}}"#,
                "time goes back",
            ),
            (
                r#"{"name":"quic:packet_lost","data":{}}"#,
                "time is missing",
            ),
            (
                r#"{"time":2,"name":"quic:packet_lost","tuple":"1","data":{}}"#,
                "not assigned",
            ),
            (
                r#"{"time":2,"name":"quic:packet_lost","data":{"header":{"packet_type":"2RTT"}}}"#,
                "packet_type: ",
            ),
            (
                r#"{"time":2,"name":"quic:packet_sent","data":{"header":{"packet_type":"1RTT"},
                "frames":[{"frame_type":"max_data"}]}}"#,
                "maximum is missing",
            ),
            (
                r#"{"time":2,"name":"quic:mtu_updated","data":{"new":-1}}"#,
                "not Unsigned",
            ),
            (
                r#"{"time":2,"name":"quic:mtu_updated","data":{"new":1,"path":0}}"#,
                "path is not in the schema",
            ),
            ("[", "EOF"),
        ] {
            let error = check(&log(&[ASSIGNED, event])).unwrap_err();
            assert!(
                error.starts_with("record 2: ") && error.contains(fault),
                "{error}"
            );
        }
        assert!(check(b"{}").is_err());
        assert!(check(&log(&[])).is_err());
    }

    #[test]
    fn errors_are_words_or_alerts() {
        for right in [
            "no_error",
            "unknown",
            "crypto_error_0x128",
            "crypto_error_0x1ff",
        ] {
            assert!(is_error(right), "{right}");
        }
        for wrong in [
            "",
            "No_error",
            "error 7",
            "crypto_error_0x1",
            "crypto_error_0x12",
            "crypto_error_0x12g",
            "crypto_error_0x1280",
        ] {
            assert!(!is_error(wrong), "{wrong}");
        }
    }
}
