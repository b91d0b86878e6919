//! Transport parameters: samples, golden encodings, malformed input.

use std::time::Duration;

use mpquic_core::{
    ConnectionId, Fault, PathId, ReservedParameter, Side, TransportErrorCode, TransportParameters,
    VersionInformation,
};

use super::hex;

/// The extension in the client's Initial of RFC 9001 appendix A.2.
#[test]
fn sample_parameters() {
    let bytes = hex(
        "0408ffffffffffffffff 05048000ffff 07048000ffff 080110 010480007530 090110 \
         0f088394c8f03e515708 06048000ffff",
    );
    let mut expected = TransportParameters::default();
    expected.max_idle_timeout = Duration::from_secs(30);
    expected.initial_max_data = (1 << 62) - 1;
    expected.initial_max_stream_data_bidi_local = 65535;
    expected.initial_max_stream_data_bidi_remote = 65535;
    expected.initial_max_stream_data_uni = 65535;
    expected.initial_max_streams_bidi = 16;
    expected.initial_max_streams_uni = 16;
    expected.initial_source_connection_id = Some(ConnectionId::new(&hex("8394c8f03e515708")));

    assert_eq!(
        TransportParameters::decode(Side::Client, &bytes),
        Ok(expected)
    );
}

#[test]
fn absent_parameters_have_defaults() {
    let mut out = Vec::new();
    TransportParameters::default().encode(Side::Server, &mut out);
    assert!(out.is_empty());
    let decoded = TransportParameters::decode(Side::Server, &[]);
    assert_eq!(decoded, Ok(TransportParameters::default()));
}

/// MP-005, MP-013.
#[test]
fn initial_max_path_id() {
    for (bytes, limit) in [
        ("3e0100", 0),
        ("3e0102", 2),
        ("3e08c0000000ffffffff", u32::MAX),
    ] {
        let mut parameters = TransportParameters::default();
        parameters.initial_max_path_id = Some(PathId(limit));

        let mut out = Vec::new();
        parameters.encode(Side::Client, &mut out);
        assert_eq!(out, hex(bytes));
        assert_eq!(
            TransportParameters::decode(Side::Client, &out),
            Ok(parameters)
        );
    }
}

/// draft-ietf-quic-ack-frequency-14 section 3: in microseconds, at most max_ack_delay.
#[test]
fn min_ack_delay() {
    for (bytes, min, max) in [
        ("c0000000ff04de1b 0243e8", 1000, 25),
        ("0b0102 c0000000ff04de1b 0247d0", 2000, 2),
        ("c0000000ff04de1b 0100", 0, 25),
    ] {
        let mut parameters = TransportParameters::default();
        parameters.min_ack_delay = Some(Duration::from_micros(min));
        parameters.max_ack_delay = Duration::from_millis(max);

        let mut out = Vec::new();
        parameters.encode(Side::Client, &mut out);
        assert_eq!(out, hex(bytes));
        let decoded = TransportParameters::decode(Side::Client, &out);
        assert_eq!(decoded, Ok(parameters));
    }
}

/// Zero would mean no timeout.
#[test]
fn short_timeouts_are_rounded_up() {
    let mut parameters = TransportParameters::default();
    parameters.max_idle_timeout = Duration::from_micros(1);

    let mut out = Vec::new();
    parameters.encode(Side::Client, &mut out);
    assert_eq!(out, hex("010101"));
}

const ADDRESSES: &str = "01020304 01bb 00112233445566778899aabbccddeeff 01bb";
const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

#[track_caller]
fn assert_refused(sender: Side, bytes: &str, fault: Fault) {
    let error = TransportParameters::decode(sender, &hex(bytes)).expect_err(bytes);
    assert_eq!(error.fault, fault, "{bytes}");
}

#[test]
fn malformed_parameters_are_errors() {
    let long_cid = "00".repeat(21);
    let cases: [(Fault, &[&str]); 12] = [
        (
            Fault::TruncatedParameter,
            &["04", "04 02 40", "04 ffffffffffffffff 00"],
        ),
        (
            Fault::DuplicateParameter,
            &[
                "04 01 05 04 01 05",
                "6ab2 00 6ab2 00",
                "3e 01 02 3e 01 02", // MP-007
                "c0000000ff04de1b 01 01 c0000000ff04de1b 01 01",
                "11 04 00000001 11 04 00000001",
            ],
        ),
        (
            Fault::MalformedParameter,
            &[
                "04 02 05 05",         // two integers
                "04 01 40",            // half an integer
                "04 00",               // no integer
                "3e 02 02 02",         // two integers (MP-007)
                "3e 00",               // no integer (MP-007)
                "c0000000ff04de1b 00", // no integer
                "1d 01 00",            // flags with a value
                "0c 01 00",
                "6ab2 01 00",
                "02 0f 000102030405060708090a0b0c0d0e", // a token of 15 bytes
                &format!("00 15 {long_cid}"),           // connection IDs of 21 bytes
                &format!("0f 15 {long_cid}"),
                &format!("10 15 {long_cid}"),
                "0d 00",
                &format!("0d 29 {ADDRESSES} 01 aa {}", &TOKEN[2..]), // a token of 15 bytes
                &format!("0d 2b {ADDRESSES} 01 aa {TOKEN} 00"),      // one byte too many
                "11 00", // no chosen version (RFC 9368 section 4)
                "11 03 000000",
                "11 06 00000001 0000",
            ],
        ),
        (Fault::InitialPathIdTooLarge, &["3e 08 c000000100000000"]),
        (Fault::UdpPayloadSizeTooSmall, &["03 02 44af"]),
        (
            Fault::InitialStreamsTooLarge,
            &["08 08 d000000000000001", "09 08 d000000000000001"],
        ),
        (Fault::AckDelayExponentTooLarge, &["0a 01 15"]),
        (Fault::MaxAckDelayTooLarge, &["0b 04 80004000"]),
        (Fault::ConnectionIdLimitTooSmall, &["0e 01 01"]),
        (
            // Above 25 ms, above 2 ms.
            Fault::MinAckDelayTooLarge,
            &[
                "c0000000ff04de1b 04 800061a9",
                "0b 01 02 c0000000ff04de1b 02 47d1",
            ],
        ),
        (
            Fault::VersionZero,
            &["11 04 00000000", "11 08 00000001 00000000"],
        ),
        (
            Fault::PreferredAddressWithoutId,
            &[&format!("0d 29 {ADDRESSES} 00 {TOKEN}")],
        ),
    ];
    for (fault, all) in cases {
        for bytes in all {
            assert_refused(Side::Server, bytes, fault);
        }
    }
}

/// RFC 9000 section 18.2.
#[test]
fn some_parameters_are_the_servers() {
    for bytes in [
        "00 01 aa",
        &format!("02 10 {TOKEN}"),
        "10 01 aa",
        &format!("0d 2a {ADDRESSES} 01 aa {TOKEN}"),
    ] {
        assert!(
            TransportParameters::decode(Side::Server, &hex(bytes)).is_ok(),
            "{bytes}"
        );
        assert_refused(Side::Client, bytes, Fault::ServerOnlyParameter);
    }
}

/// draft-munizaga-quic-alternative-server-address-01 section 3: empty, and only a client's.
#[test]
fn alternative_address() {
    let mut parameters = TransportParameters::default();
    parameters.alternative_address = true;
    let mut out = Vec::new();
    parameters.encode(Side::Client, &mut out);
    assert_eq!(out, hex("c00000ff0969d85c 00"));
    assert_eq!(
        TransportParameters::decode(Side::Client, &out),
        Ok(parameters.clone())
    );
    out.clear();
    parameters.encode(Side::Server, &mut out);
    assert!(out.is_empty(), "a server must not send it");
    let bytes = "c00000ff0969d85c 00";
    assert_refused(Side::Server, bytes, Fault::ClientOnlyParameter);
    let code = Fault::ClientOnlyParameter.code();
    assert_eq!(code, TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
    let bytes = "c00000ff0969d85c 01 00";
    assert_refused(Side::Client, bytes, Fault::MalformedParameter);
    let bytes = "c00000ff0969d85c 00 c00000ff0969d85c 00";
    assert_refused(Side::Client, bytes, Fault::DuplicateParameter);
}

/// RFC 9000 section 18.1.
#[test]
fn a_reserved_parameter_is_announced_and_ignored() {
    for (number, value, bytes) in [
        (0, [0; 8], "1b 00"),
        (1, [3, 4, 5, 6, 7, 8, 9, 10], "3a 03 030405"),
        (2, [9; 8], "4059 00"),
        (2, [17; 8], "4059 08 1111111111111111"),
    ] {
        let mut parameters = TransportParameters::default();
        parameters.reserved = Some(ReservedParameter::new(number, value));

        let mut out = Vec::new();
        parameters.encode(Side::Client, &mut out);
        assert_eq!(out, hex(bytes));
        let decoded = TransportParameters::decode(Side::Server, &out);
        assert_eq!(decoded, Ok(TransportParameters::default()));
    }
}

/// RFC 9368 sections 3 and 4: a client's list contains its choice, a server's need not.
#[test]
fn version_information() {
    let bytes = hex("11 08 00000001 6b3343cf");
    let decoded = TransportParameters::decode(Side::Server, &bytes).unwrap();
    let expected = VersionInformation {
        chosen: 1,
        available: vec![0x6b33_43cf],
    };
    assert_eq!(decoded.version_information, Some(expected));
    let fault = Fault::ChosenVersionNotAvailable;
    assert_refused(Side::Client, "11 08 00000001 6b3343cf", fault);
    assert_refused(Side::Client, "11 04 00000001", fault);
    let bytes = hex("11 0c 00000001 6b3343cf 00000001");
    let decoded = TransportParameters::decode(Side::Client, &bytes).unwrap();
    let mut out = Vec::new();
    decoded.encode(Side::Client, &mut out);
    assert_eq!(out, bytes);
}

/// RFC 9000 section 7.4.2.
#[test]
fn unknown_parameters_are_ignored() {
    let decoded = TransportParameters::decode(Side::Client, &hex("1b 03 010203 3a 00 7fff 00"));
    assert_eq!(decoded, Ok(TransportParameters::default()));
}

#[test]
fn an_unspecified_preferred_address_is_none() {
    let bytes = format!("0d 2a 00000000 0000 00112233445566778899aabbccddeeff 01bb 01 aa {TOKEN}");
    let decoded = TransportParameters::decode(Side::Server, &hex(&bytes)).unwrap();
    let address = decoded.preferred_address.unwrap();
    assert_eq!(address.ipv4, None);
    assert_eq!(address.ipv6.unwrap().port(), 443);
    let with_port = |port: &str| {
        let bytes = format!(
            "0d 2a 7f000001 {port} {} 0000 01 aa {TOKEN}",
            "00".repeat(16)
        );
        let decoded = TransportParameters::decode(Side::Server, &hex(&bytes)).unwrap();
        let address = decoded.preferred_address.unwrap();
        assert_eq!(address.ipv6, None);
        address.ipv4.map(|address| address.port())
    };
    assert_eq!(with_port("0000"), None);
    assert_eq!(with_port("0001"), Some(1));
}
