//! Tests of events and values that the transfers in `tests` do not cause or do not check.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use mpquic_core::congestion::ResumePhase;
use mpquic_core::qlog::frame::{Close, Frame};
use mpquic_core::qlog::{Event, Sink};
use mpquic_core::{
    ApplicationClose, ConnectionClose, ConnectionError, ConnectionId, KeyExchangeGroup, PathId,
    PreferredAddress, TransportErrorCode, TransportParameters, VarInt,
};
use serde_json::{Value, json};

use crate::Writer;
use crate::{event, frame, parameters};

#[expect(clippy::disallowed_methods, reason = "a log starts at some time")]
fn start() -> Instant {
    Instant::now()
}

/// The records of a log after its head.
fn logged(limit: u64, events: &[Event<'_>]) -> Vec<Value> {
    let start = start();
    let mut out = Vec::new();
    let mut writer = Writer::for_endpoint(&mut out, start, SystemTime::UNIX_EPOCH).limit(limit);
    for event in events {
        writer.on_event(start, event);
    }
    drop(writer);
    let records = out.split(|byte| *byte == crate::writer::RECORD_SEPARATOR);
    records
        .skip(2)
        .map(|record| serde_json::from_slice(record).expect("JSON"))
        .collect()
}

#[test]
fn every_transport_parameter_has_a_name() {
    let mut set = TransportParameters::default();
    set.max_idle_timeout = Duration::from_secs(30);
    set.max_ack_delay = Duration::from_millis(20);
    set.ack_delay_exponent = 5;
    set.stateless_reset_token = Some([0xab; 16]);
    set.initial_source_connection_id = Some(ConnectionId::new(&[1, 2]));
    set.grease_quic_bit = true;
    set.min_ack_delay = Some(Duration::from_micros(1500));
    set.initial_max_path_id = Some(PathId(4));
    set.preferred_address = Some(PreferredAddress {
        ipv4: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 443)),
        ipv6: Some(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 444, 0, 0)),
        connection_id: ConnectionId::new(&[3; 4]),
        stateless_reset_token: [0xcd; 16],
    });
    let members = parameters::members(&set);
    let token = "ab".repeat(16);
    for (name, expected) in [
        ("max_idle_timeout", json!(30_000)),
        ("max_ack_delay", json!(20)),
        ("ack_delay_exponent", json!(5)),
        ("stateless_reset_token", json!(token)),
        ("initial_source_connection_id", json!("0102")),
        ("grease_quic_bit", json!(true)),
        ("disable_active_migration", json!(false)),
        ("min_ack_delay", json!(1500)),
        ("initial_max_path_id", json!(4)),
        (
            "preferred_address",
            json!({
                "ip_v4": "127.0.0.1", "port_v4": 443, "ip_v6": "::1", "port_v6": 444,
                "connection_id": "03030303", "stateless_reset_token": "cd".repeat(16),
            }),
        ),
    ] {
        assert_eq!(members.get(name), Some(&expected), "{name}");
    }
    assert!(!members.contains_key("retry_source_connection_id"));

    // RFC 9000 section 7.4.1 lists the parameters that a client must not remember. They are not
    // among the restored parameters.
    let restored = parameters::restored(&set);
    for name in [
        "ack_delay_exponent",
        "max_ack_delay",
        "stateless_reset_token",
    ] {
        assert!(!restored.contains_key(name), "{name}");
    }
    assert_eq!(restored.get("max_idle_timeout"), Some(&json!(30_000)));
    assert_eq!(restored.get("grease_quic_bit"), Some(&json!(true)));
    assert_eq!(
        restored.get("disable_active_migration"),
        Some(&json!(false))
    );
}

#[test]
fn a_close_has_its_space_and_the_type_of_the_frame_in_error() {
    let close = |code: u64, frame_type| {
        Frame::ConnectionClose(Close::Connection(ConnectionClose {
            code: TransportErrorCode::from_u64(code),
            frame_type,
            reason: (&b"why"[..]).into(),
        }))
    };
    assert_eq!(
        frame::value(&close(0x0a, 6), 3),
        json!({
            "frame_type": "connection_close", "error_space": "transport",
            "error": "protocol_violation", "trigger_frame_type": 6, "reason": "why",
        })
    );
    let unknown = frame::value(&close(0x1234_5678, 0), 3);
    assert_eq!(
        unknown,
        json!({
            "frame_type": "connection_close", "error_space": "transport",
            "error": "unknown", "error_code": 0x1234_5678, "reason": "why",
        })
    );
    assert_eq!(frame::value(&close(0x0a, 1), 3)["trigger_frame_type"], 1);
    let application = Frame::ConnectionClose(Close::Application(ApplicationClose {
        error_code: VarInt::from_u32(9),
        reason: (&b""[..]).into(),
    }));
    assert_eq!(
        frame::value(&application, 3),
        json!({
            "frame_type": "connection_close", "error_space": "application",
            "error": "unknown", "error_code": 9,
        })
    );
}

#[test]
fn connection_closed_has_the_initiator_of_the_close() {
    let code = TransportErrorCode::PROTOCOL_VIOLATION;
    let remote = ConnectionError::ConnectionClosed(ConnectionClose {
        code,
        frame_type: 0,
        reason: (&b""[..]).into(),
    });
    let remote = event::lost(&remote);
    assert_eq!(remote["initiator"], "remote");
    assert_eq!(remote["connection_error"], "protocol_violation");
    let fault = mpquic_core::Fault::TooMuchMemory.into();
    let local = event::lost(&ConnectionError::TransportError(fault));
    assert_eq!(local["initiator"], "local");
}

#[test]
fn protocols_and_phases_of_a_resumed_path_are_logged() {
    let resumed = Event::ResumePhaseChanged {
        path: PathId(1),
        old: ResumePhase::Reconnaissance,
        new: ResumePhase::SafeRetreat,
    };
    let agreed = Event::KeyExchangeChosen(KeyExchangeGroup::X25519MLKEM768);
    let events = logged(1 << 20, &[Event::ProtocolChosen(b"h3"), resumed, agreed]);
    assert_eq!(events[0]["name"], "quic:alpn_information");
    let chosen = json!({ "chosen_alpn": { "byte_value": "6833", "string_value": "h3" } });
    assert_eq!(events[0]["data"], chosen);
    assert_eq!(events[1]["name"], "quic:careful_resume_phase_updated");
    let phases = json!({ "old": "reconnaissance", "new": "safe_retreat", "path_id": 1 });
    assert_eq!(events[1]["data"], phases);
    assert_eq!(events[2]["name"], "mpquic:key_exchange_information");
    assert_eq!(
        events[2]["data"],
        json!({ "chosen_group": "X25519MLKEM768" })
    );
    assert_eq!(events.len(), 3);
}

/// A log is full once its bytes reach the limit, even if the last event before fits exactly.
#[test]
fn a_log_that_reaches_its_limit_to_the_byte_is_full() {
    let event = || Event::ProtocolChosen(b"h3");
    let start = start();
    let mut out = Vec::new();
    let mut writer = Writer::for_endpoint(&mut out, start, SystemTime::UNIX_EPOCH);
    writer.on_event(start, &event());
    drop(writer);
    let reached = logged(out.len() as u64, &[event(), event()]);
    let names: Vec<_> = reached.iter().map(|record| &record["name"]).collect();
    assert_eq!(names, ["quic:alpn_information", "loglevel:warning"]);
    let further = logged(out.len() as u64 + 1, &[event(), event()]);
    let names: Vec<_> = further.iter().map(|record| &record["name"]).collect();
    let expected = [
        "quic:alpn_information",
        "quic:alpn_information",
        "loglevel:warning",
    ];
    assert_eq!(names, expected);
}

/// A writer whose call with the index `fails` fails. It counts all calls.
struct Failing<'a> {
    calls: &'a AtomicUsize,
    fails: usize,
}

impl Failing<'_> {
    fn call(&self) -> io::Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.fails {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl Write for Failing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call().map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.call()
    }
}

#[test]
fn nothing_is_written_after_an_error() {
    let start = start();
    // The four calls write the head, the event and the close event, and flush the file.
    for fails in 0..4 {
        let calls = AtomicUsize::new(0);
        let out = Failing {
            calls: &calls,
            fails,
        };
        let mut writer = Writer::for_endpoint(out, start, SystemTime::UNIX_EPOCH);
        writer.on_event(start, &Event::ProtocolChosen(b"h3"));
        let end = Event::LocallyClosed {
            error_code: 0,
            reason: b"",
        };
        writer.on_event(start, &end);
        writer.on_event(start, &end);
        assert_eq!(calls.load(Ordering::Relaxed), fails + 1);
    }
}
