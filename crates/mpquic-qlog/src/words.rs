//! The qlog form of values that occur in many events.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use mpquic_core::qlog::PacketType;
use mpquic_core::{Dir, TransportErrorCode};
use serde_json::{Map, Value, json};

/// The members of a JSON object.
pub(crate) type Members = Map<String, Value>;

/// The qlog form of a QUIC version: its number in hexadecimal.
pub(crate) fn version(number: u32) -> String {
    format!("{number:08x}")
}

/// The milliseconds of a duration, with a resolution of 1 µs.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

/// The bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// The qlog name of a packet type.
pub(crate) fn packet_type(packet_type: PacketType) -> &'static str {
    match packet_type {
        PacketType::Initial => "initial",
        PacketType::ZeroRtt => "0RTT",
        PacketType::Handshake => "handshake",
        PacketType::OneRtt => "1RTT",
    }
}

/// The qlog name of a stream's direction.
pub(crate) fn stream_type(dir: Dir) -> &'static str {
    match dir {
        Dir::Bi => "bidirectional",
        Dir::Uni => "unidirectional",
    }
}

/// The qlog name of a transport error; `None` for a code without a name.
pub(crate) fn transport_error(code: TransportErrorCode) -> Option<String> {
    match code.to_u64() {
        value @ 0x100..=0x1ff => Some(format!("crypto_error_{value:#x}")),
        _ => {
            let name = code.to_string();
            let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            is_name.then(|| name.to_ascii_lowercase())
        }
    }
}

/// The address as the qlog type TupleEndpointInfo.
pub(crate) fn endpoint(address: SocketAddr) -> Value {
    let (ip, port) = (address.ip().to_string(), address.port());
    if address.is_ipv4() {
        json!({ "ip_v4": ip, "port_v4": port })
    } else {
        json!({ "ip_v6": ip, "port_v6": port })
    }
}

/// The time in the format of RFC 3339, in UTC, with a resolution of 1 ms. Times before 1970 become
/// the start of 1970.
pub(crate) fn date_time(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let milliseconds = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day of the date that is `days` days after 1 January 1970.
fn date(mut days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |millis| date_time(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(at(1_735_689_599_999), "2024-12-31T23:59:59.999Z");
        assert_eq!(at(1_735_689_600_000), "2025-01-01T00:00:00.000Z");
    }

    #[test]
    fn transport_errors_have_the_names_of_the_schema() {
        let name = |code| transport_error(TransportErrorCode::from_u64(code));
        assert_eq!(name(0xa).unwrap(), "protocol_violation");
        assert_eq!(name(0x3e77).unwrap(), "no_cid_available_for_path");
        assert_eq!(name(0x12a).unwrap(), "crypto_error_0x12a");
        assert_eq!(name(0x7777), None);
    }
}
