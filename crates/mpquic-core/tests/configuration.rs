//! The values of options: bounds are accepted, and the next values beyond are refused, with an
//! error that names the option, its value and the right values. No value is corrected in silence.

use std::net::{SocketAddrV4, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use mpquic_core::config::{
    AckFrequencyOptions, ConnectionIds, EndpointOptions, InvalidOption, ServerOptions,
    TransportConfig, TransportOptions,
};
use mpquic_sim::null_crypto::NullCrypto;

const MS: Duration = Duration::from_millis(1);
const NS: Duration = Duration::from_nanos(1);
/// What a variable-length integer holds at most.
const VARINT_MAX: u64 = (1 << 62) - 1;
const LARGEST: Duration = Duration::from_millis(VARINT_MAX);

/// The error for times below a millisecond or above the largest number of milliseconds.
const INTERVAL: &str = "from 1ms to 4611686018427387.903s";

type Change<O> = fn(&mut O);

/// An option with accepted values, and with refused values and their errors.
struct Row<O: 'static> {
    option: &'static str,
    taken: &'static [Change<O>],
    refused: &'static [(Change<O>, &'static str, &'static str)],
}

/// Tries all of them.
fn check<O: Clone, C>(defaults: &O, build: fn(O) -> Result<C, InvalidOption>, rows: &[Row<O>]) {
    assert!(build(defaults.clone()).is_ok(), "defaults");
    let built = |change: &Change<O>| {
        let mut options = defaults.clone();
        change(&mut options);
        build(options)
    };
    for Row {
        option,
        taken,
        refused,
    } in rows
    {
        for (index, change) in taken.iter().enumerate() {
            assert_eq!(built(change).err(), None, "{option}, taken {index}");
        }
        for (change, value, expected) in *refused {
            let error = built(change).err();
            let error = error.unwrap_or_else(|| panic!("{option} may be {value}"));
            let said = (error.option(), error.value(), error.expected());
            assert_eq!(said, (*option, *value, *expected));
            let text = format!("{option} is {value}, but must be {expected}");
            assert_eq!(error.to_string(), text);
        }
    }
}

fn transport() -> TransportOptions {
    TransportOptions::new(mpquic_sched::default(), mpquic_cc::default())
}

#[test]
fn counts_of_a_connection() {
    let rows: &[Row<TransportOptions>] = &[
        Row {
            option: "active_connection_id_limit",
            taken: &[
                |it| it.active_connection_id_limit = 2,
                |it| it.active_connection_id_limit = u32::MAX.into(),
            ],
            refused: &[
                (
                    |it| it.active_connection_id_limit = 1,
                    "1",
                    "from 2 to 4294967295",
                ),
                (
                    |it| it.active_connection_id_limit = 1 << 32,
                    "4294967296",
                    "from 2 to 4294967295",
                ),
            ],
        },
        Row {
            option: "max_concurrent_bidi_streams",
            taken: &[
                |it| it.max_concurrent_bidi_streams = 0,
                |it| it.max_concurrent_bidi_streams = 1 << 59,
            ],
            refused: &[(
                |it| it.max_concurrent_bidi_streams = (1 << 59) + 1,
                "576460752303423489",
                "from 0 to 576460752303423488",
            )],
        },
        Row {
            option: "max_concurrent_uni_streams",
            taken: &[
                |it| it.max_concurrent_uni_streams = 0,
                |it| it.max_concurrent_uni_streams = 1 << 59,
            ],
            refused: &[(
                |it| it.max_concurrent_uni_streams = (1 << 59) + 1,
                "576460752303423489",
                "from 0 to 576460752303423488",
            )],
        },
        Row {
            option: "max_transmit_segments",
            taken: &[|it| it.max_transmit_segments = 1],
            refused: &[(|it| it.max_transmit_segments = 0, "0", "at least 1")],
        },
    ];
    check(&transport(), TransportOptions::build, rows);
}

#[test]
fn windows_of_a_connection() {
    let rows: &[Row<TransportOptions>] = &[
        Row {
            option: "max_receive_window",
            taken: &[|it| it.max_receive_window = VARINT_MAX],
            refused: &[(
                |it| it.max_receive_window = VARINT_MAX + 1,
                "4611686018427387904",
                "from 0 to 4611686018427387903",
            )],
        },
        Row {
            option: "initial_stream_receive_window",
            taken: &[|it| it.initial_stream_receive_window = it.max_receive_window],
            refused: &[(
                |it| it.initial_stream_receive_window = it.max_receive_window + 1,
                "67108865",
                "at most 67108864 (max_receive_window)",
            )],
        },
        Row {
            option: "max_stream_receive_window",
            taken: &[|it| it.max_stream_receive_window = Some(it.initial_stream_receive_window)],
            refused: &[(
                |it| it.max_stream_receive_window = Some(1),
                "1",
                "at least 1048576 (initial_stream_receive_window)",
            )],
        },
        Row {
            option: "initial_receive_window",
            taken: &[|it| it.initial_receive_window = it.max_receive_window],
            refused: &[(
                |it| it.initial_receive_window = it.max_receive_window + 1,
                "67108865",
                "at most 67108864 (max_receive_window)",
            )],
        },
        Row {
            option: "send_window",
            taken: &[|it| it.send_window = 1, |it| it.send_window = u64::MAX],
            refused: &[(|it| it.send_window = 0, "0", "at least 1")],
        },
        Row {
            option: "initial_send_window",
            taken: &[
                |it| it.initial_send_window = 1,
                |it| it.initial_send_window = u64::MAX,
            ],
            refused: &[(|it| it.initial_send_window = 0, "0", "at least 1")],
        },
        Row {
            option: "send_queue_time",
            taken: &[
                |it| it.send_queue_time = Some(Duration::ZERO),
                |it| it.send_queue_time = Some(Duration::from_secs(3600)),
            ],
            refused: &[(
                |it| it.send_queue_time = Some(Duration::from_secs(3601)),
                "3601s",
                "from 0ns to 3600s",
            )],
        },
        Row {
            option: "memory_limit",
            taken: &[
                |it| it.memory_limit = Some(8 << 20),
                |it| it.memory_limit = Some(u64::MAX),
            ],
            refused: &[(
                |it| it.memory_limit = Some((8 << 20) - 1),
                "8388607",
                "at least 8388608 (1 MiB, four times initial_receive_window)",
            )],
        },
    ];
    check(&transport(), TransportOptions::build, rows);
}

#[test]
fn duration_of_a_handshake() {
    let rows: &[Row<TransportOptions>] = &[Row {
        option: "max_handshake_duration",
        taken: &[
            |it| it.max_handshake_duration = MS,
            |it| it.max_handshake_duration = LARGEST,
        ],
        refused: &[
            (
                |it| it.max_handshake_duration = Duration::ZERO,
                "0ns",
                INTERVAL,
            ),
            (
                |it| it.max_handshake_duration = LARGEST + MS,
                "4611686018427387.904s",
                INTERVAL,
            ),
        ],
    }];
    check(&transport(), TransportOptions::build, rows);
}

#[test]
fn times_of_a_connection() {
    let rows: &[Row<TransportOptions>] = &[
        Row {
            option: "max_idle_timeout",
            taken: &[
                |it| it.max_idle_timeout = None,
                |it| it.max_idle_timeout = Some(MS),
                |it| it.max_idle_timeout = Some(LARGEST),
            ],
            refused: &[
                (
                    |it| it.max_idle_timeout = Some(Duration::ZERO),
                    "0ns",
                    INTERVAL,
                ),
                (
                    |it| it.max_idle_timeout = Some(MS - NS),
                    "999.999µs",
                    INTERVAL,
                ),
                (
                    |it| it.max_idle_timeout = Some(LARGEST + MS),
                    "4611686018427387.904s",
                    INTERVAL,
                ),
            ],
        },
        Row {
            option: "keep_alive_interval",
            taken: &[
                |it| it.keep_alive_interval = None,
                |it| it.keep_alive_interval = Some(MS),
                |it| it.keep_alive_interval = Some(LARGEST),
            ],
            refused: &[
                (
                    |it| it.keep_alive_interval = Some(MS - NS),
                    "999.999µs",
                    INTERVAL,
                ),
                (
                    |it| it.keep_alive_interval = Some(LARGEST + MS),
                    "4611686018427387.904s",
                    INTERVAL,
                ),
            ],
        },
        Row {
            option: "initial_rtt",
            taken: &[
                |it| it.initial_rtt = MS,
                |it| it.initial_rtt = Duration::from_secs(3600),
            ],
            refused: &[
                (
                    |it| it.initial_rtt = MS - NS,
                    "999.999µs",
                    "from 1ms to 3600s",
                ),
                (
                    |it| it.initial_rtt = Duration::from_secs(3601),
                    "3601s",
                    "from 1ms to 3600s",
                ),
            ],
        },
    ];
    check(&transport(), TransportOptions::build, rows);
}

#[test]
fn acknowledgement_delays_of_a_connection() {
    let rows: &[Row<TransportOptions>] = &[
        Row {
            option: "max_ack_delay",
            taken: &[
                |it| (it.max_ack_delay, it.min_ack_delay) = (Duration::ZERO, None),
                |it| it.max_ack_delay = 16_383 * MS,
            ],
            refused: &[(
                |it| it.max_ack_delay = 16_384 * MS,
                "16.384s",
                "from 0ns to 16.383s",
            )],
        },
        Row {
            option: "min_ack_delay",
            taken: &[
                |it| it.min_ack_delay = None,
                |it| it.min_ack_delay = Some(Duration::ZERO),
                |it| it.min_ack_delay = Some(it.max_ack_delay),
            ],
            refused: &[(
                |it| it.min_ack_delay = Some(it.max_ack_delay + MS),
                "26ms",
                "at most 25ms (max_ack_delay)",
            )],
        },
    ];
    check(&transport(), TransportOptions::build, rows);
}

#[test]
fn sizes_and_loss_detection_of_a_connection() {
    let rows: &[Row<TransportOptions>] = &[
        Row {
            option: "initial_mtu",
            taken: &[
                |it| it.initial_mtu = 1200,
                |it| (it.initial_mtu, it.max_mtu) = (65527, 65527),
            ],
            refused: &[
                (|it| it.initial_mtu = 1199, "1199", "from 1200 to 65527"),
                (
                    |it| (it.initial_mtu, it.max_mtu) = (65528, 65528),
                    "65528",
                    "from 1200 to 65527",
                ),
            ],
        },
        Row {
            option: "max_mtu",
            taken: &[
                |it| (it.initial_mtu, it.max_mtu) = (1300, 1300),
                |it| it.max_mtu = 65527,
            ],
            refused: &[
                (
                    |it| (it.initial_mtu, it.max_mtu) = (1300, 1299),
                    "1299",
                    "from 1300 (initial_mtu) to 65527",
                ),
                (
                    |it| it.max_mtu = 65528,
                    "65528",
                    "from 1200 (initial_mtu) to 65527",
                ),
            ],
        },
        Row {
            option: "datagram_receive_buffer",
            taken: &[
                |it| it.datagram_receive_buffer = None,
                |it| it.datagram_receive_buffer = Some(1),
            ],
            refused: &[(|it| it.datagram_receive_buffer = Some(0), "0", "at least 1")],
        },
        Row {
            option: "crypto_buffer",
            taken: &[|it| it.crypto_buffer = 4096],
            refused: &[(|it| it.crypto_buffer = 4095, "4095", "at least 4096")],
        },
        Row {
            option: "packet_threshold",
            taken: &[
                |it| it.packet_threshold = 3,
                |it| it.packet_threshold = VARINT_MAX,
            ],
            refused: &[
                (
                    |it| it.packet_threshold = 2,
                    "2",
                    "from 3 to 4611686018427387903",
                ),
                (
                    |it| it.packet_threshold = VARINT_MAX + 1,
                    "4611686018427387904",
                    "from 3 to 4611686018427387903",
                ),
            ],
        },
        Row {
            option: "time_threshold",
            taken: &[|it| it.time_threshold = 1.0, |it| it.time_threshold = 16.0],
            refused: &[
                (|it| it.time_threshold = 0.99, "0.99", "from 1.0 to 16.0"),
                (|it| it.time_threshold = 16.01, "16.01", "from 1.0 to 16.0"),
                (|it| it.time_threshold = f64::NAN, "NaN", "from 1.0 to 16.0"),
            ],
        },
    ];
    check(&transport(), TransportOptions::build, rows);
}

fn asked(change: impl FnOnce(&mut AckFrequencyOptions), options: &mut TransportOptions) {
    change(options.ack_frequency.insert(AckFrequencyOptions::default()));
}

#[test]
fn acknowledgement_thresholds_of_a_connection() {
    let rows: &[Row<TransportOptions>] = &[
        Row {
            option: "ack_eliciting_threshold",
            taken: &[
                |it| it.ack_eliciting_threshold = 1,
                |it| it.ack_eliciting_threshold = u64::MAX,
            ],
            refused: &[(|it| it.ack_eliciting_threshold = 0, "0", "at least 1")],
        },
        Row {
            option: "ack_frequency.ack_eliciting_threshold",
            taken: &[
                |it| asked(|it| it.ack_eliciting_threshold = 1, it),
                |it| asked(|it| it.ack_eliciting_threshold = VARINT_MAX, it),
            ],
            refused: &[
                (
                    |it| asked(|it| it.ack_eliciting_threshold = 0, it),
                    "0",
                    "from 1 to 4611686018427387903",
                ),
                (
                    |it| asked(|it| it.ack_eliciting_threshold = VARINT_MAX + 1, it),
                    "4611686018427387904",
                    "from 1 to 4611686018427387903",
                ),
            ],
        },
        Row {
            option: "ack_frequency.max_ack_delay",
            taken: &[
                |it| asked(|it| it.max_ack_delay = Some(Duration::ZERO), it),
                |it| asked(|it| it.max_ack_delay = Some(16_383 * MS), it),
            ],
            refused: &[(
                |it| asked(|it| it.max_ack_delay = Some(16_384 * MS), it),
                "16.384s",
                "from 0ns to 16.383s",
            )],
        },
        Row {
            option: "ack_frequency.reordering_threshold",
            taken: &[
                |it| asked(|it| it.reordering_threshold = Some(0), it),
                |it| asked(|it| it.reordering_threshold = Some(VARINT_MAX), it),
            ],
            refused: &[(
                |it| asked(|it| it.reordering_threshold = Some(VARINT_MAX + 1), it),
                "4611686018427387904",
                "from 0 to 4611686018427387903",
            )],
        },
    ];
    check(&transport(), TransportOptions::build, rows);
}

#[test]
fn options_of_an_endpoint() {
    let rows: &[Row<EndpointOptions>] = &[
        Row {
            option: "max_udp_payload_size",
            taken: &[
                |it| it.max_udp_payload_size = 1200,
                |it| it.max_udp_payload_size = 65527,
            ],
            refused: &[
                (
                    |it| it.max_udp_payload_size = 1199,
                    "1199",
                    "from 1200 to 65527",
                ),
                (
                    |it| it.max_udp_payload_size = 65528,
                    "65528",
                    "from 1200 to 65527",
                ),
            ],
        },
        Row {
            option: "memory_limit",
            taken: &[|it| it.memory_limit = 1 << 20],
            refused: &[(
                |it| it.memory_limit = (1 << 20) - 1,
                "1048575",
                "at least 1048576",
            )],
        },
        Row {
            option: "supported_versions",
            taken: &[|it| it.supported_versions.truncate(1)],
            refused: &[(
                |it| it.supported_versions.clear(),
                "[]",
                "at least one version",
            )],
        },
    ];
    check(&EndpointOptions::new([1; 32]), EndpointOptions::build, rows);
    for (length, is_taken) in [(3, false), (4, true), (20, true), (21, false)] {
        let refused = ConnectionIds::random(length).err();
        let text = format!("connection_id_length is {length}, but must be from 4 to 20");
        assert_eq!(
            refused.map(|error| error.to_string()),
            (!is_taken).then_some(text)
        );
    }
}

#[test]
fn options_of_a_server() {
    const EXPECTED: &str = "one address with a port";
    fn v4(text: &str) -> Option<SocketAddrV4> {
        text.parse().ok()
    }
    fn v6(text: &str) -> Option<SocketAddrV6> {
        text.parse().ok()
    }
    let rows: &[Row<ServerOptions>] = &[
        Row {
            option: "retry_token_lifetime",
            taken: &[|it| it.retry_token_lifetime = NS],
            refused: &[(
                |it| it.retry_token_lifetime = Duration::ZERO,
                "0ns",
                "more than zero",
            )],
        },
        Row {
            option: "max_connections",
            taken: &[|it| it.max_connections = 1],
            refused: &[(|it| it.max_connections = 0, "0", "at least 1")],
        },
        Row {
            option: "max_half_open_connections",
            taken: &[|it| it.max_half_open_connections = 1],
            refused: &[(|it| it.max_half_open_connections = 0, "0", "at least 1")],
        },
        Row {
            option: "preferred_address_v4",
            taken: &[|it| it.preferred_address_v4 = v4("192.0.2.1:1")],
            refused: &[
                (
                    |it| it.preferred_address_v4 = v4("192.0.2.1:0"),
                    "192.0.2.1:0",
                    EXPECTED,
                ),
                (
                    |it| it.preferred_address_v4 = v4("0.0.0.0:443"),
                    "0.0.0.0:443",
                    EXPECTED,
                ),
            ],
        },
        Row {
            option: "preferred_address_v6",
            taken: &[|it| it.preferred_address_v6 = v6("[2001:db8::1]:1")],
            refused: &[
                (
                    |it| it.preferred_address_v6 = v6("[2001:db8::1]:0"),
                    "[2001:db8::1]:0",
                    EXPECTED,
                ),
                (
                    |it| it.preferred_address_v6 = v6("[::]:443"),
                    "[::]:443",
                    EXPECTED,
                ),
            ],
        },
    ];
    let transport = TransportConfig::new(mpquic_sched::default(), mpquic_cc::default());
    let server = NullCrypto::new(b"test").server(Arc::new(transport));
    check(server.options(), ServerOptions::build, rows);
}

/// A configuration keeps its options, and can be the start of another one.
#[test]
fn a_configuration_gives_its_options_back() {
    let mut options = transport();
    options.initial_mtu = 1300;
    let config = options.build().unwrap();
    assert_eq!(
        (config.initial_mtu, config.options().initial_mtu),
        (1300, 1300)
    );
    let mut options = config.options().clone();
    options.max_mtu = 1250;
    assert_eq!(options.build().unwrap_err().option(), "max_mtu");
}

/// Defaults are a promise: who changes one changes what users see.
#[test]
fn defaults_are_as_documented() {
    let defaults = TransportOptions::new(mpquic_sched::default(), mpquic_cc::default());
    let ms = Duration::from_millis;
    assert_eq!(defaults.max_concurrent_paths, 8);
    assert_eq!(defaults.active_connection_id_limit, 3);
    assert_eq!(defaults.max_concurrent_bidi_streams, 100);
    assert_eq!(defaults.max_concurrent_uni_streams, 100);
    assert_eq!(defaults.initial_stream_receive_window, 1 << 20);
    assert_eq!(defaults.initial_receive_window, 2 << 20);
    assert_eq!(defaults.max_stream_receive_window, None);
    assert_eq!(defaults.max_receive_window, 64 << 20);
    assert_eq!(defaults.send_window, 64 << 20);
    assert_eq!(defaults.initial_send_window, 4 << 20);
    assert_eq!(defaults.send_queue_time, None);
    assert!(!defaults.priority_floor);
    assert_eq!(defaults.max_idle_timeout, Some(ms(30_000)));
    assert_eq!(defaults.max_handshake_duration, ms(20_000));
    assert_eq!(defaults.keep_alive_interval, None);
    // RFC 9002 section 6.2.2
    assert_eq!(defaults.initial_rtt, ms(333));
    assert_eq!((defaults.initial_mtu, defaults.max_mtu), (1200, 1452));
    assert_eq!(defaults.max_ack_delay, ms(25));
    assert_eq!(defaults.timer_lateness, Duration::ZERO);
    assert_eq!(defaults.ack_eliciting_threshold, 2);
    assert_eq!(defaults.min_ack_delay, Some(ms(1)));
    // RFC 9002 section 6.1
    assert_eq!(defaults.packet_threshold, 3);
    assert!((defaults.time_threshold - 9.0 / 8.0).abs() < f64::EPSILON);
    assert_eq!(defaults.datagram_receive_buffer, Some(1 << 20));
    assert_eq!(defaults.datagram_send_buffer, 1 << 20);
    assert_eq!(defaults.max_redundancy, 100);
    assert_eq!(defaults.crypto_buffer, 64 << 10);
    assert_eq!(defaults.max_transmit_segments, 64);
    let is = [
        defaults.ack_on_fastest_path,
        defaults.ecn,
        defaults.reset_stream_at,
        defaults.contain_panics,
        defaults.pacing,
        defaults.knowledge.is_some(),
        defaults.careful_resume,
        defaults.ack_frequency == Some(AckFrequencyOptions::default()),
    ];
    assert_eq!(is, [true; 8]);
    let is_not = [
        defaults.spin_bit,
        defaults.qlog.is_some(),
        defaults.memory_limit.is_some(),
    ];
    assert_eq!(is_not, [false; 3]);
}
