//! Transport parameters of a peer: parameters that break a rule end the connection, and the
//! connection keeps the limits of valid parameters. The peer's own connection does not know the
//! announced parameters, because they are replaced on their way.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_core::config::{ClientConfig, ServerConfig, TransportOptions};
use mpquic_core::crypto::{
    ClientCrypto, FirstFlight, InitialCrypto, InvalidServerName, Keys, ServerCrypto, Session,
};
use mpquic_core::unstable_wire::frame::{Frame, FrameIter};
use mpquic_core::unstable_wire::header::{Header, next_packet};
use mpquic_core::{
    ConnectionError, ConnectionId, Dir, PathId, SendDatagramError, ServerAddress, Side, StreamId,
    TransportError, TransportErrorCode, TransportParameters, Version,
};
use mpquic_fuzz::number::Varint;
use mpquic_fuzz::table::{Datagram, Options, Table};
use mpquic_sim::NullCrypto;

/// Bytes of the tag that [`NullCrypto`] appends.
const TAG_LENGTH: usize = 16;

#[derive(Debug, Clone, Arbitrary)]
struct Announced {
    max_idle_timeout: Option<u16>,
    max_udp_payload_size: Option<u16>,
    initial_max_data: Option<Varint>,
    stream_data: Option<[Varint; 3]>,
    streams: Option<[Varint; 2]>,
    ack_delay_exponent: Option<u8>,
    max_ack_delay: Option<u16>,
    disable_active_migration: bool,
    active_connection_id_limit: Option<Varint>,
    max_datagram_frame_size: Option<Varint>,
    /// `None` leaves the parameter as it is, 0 takes the parameter away.
    initial_max_path_id: Option<u8>,
    min_ack_delay: Option<Varint>,
    reset_stream_at: bool,
    alternative_address: bool,
    wrong_source: bool,
    wrong_destination: bool,
    retry_source: bool,
}

#[derive(Debug, Arbitrary)]
struct Input {
    by_server: bool,
    announced: Announced,
    streams: Vec<(bool, u16)>,
    datagrams: Vec<u16>,
    paths: u8,
}

impl Announced {
    fn apply(&self, all: &mut TransportParameters) {
        let milliseconds = |ms: u16| Duration::from_millis(ms.into());
        if let Some(timeout) = self.max_idle_timeout {
            all.max_idle_timeout = milliseconds(timeout);
        }
        if let Some(size) = self.max_udp_payload_size {
            all.max_udp_payload_size = size.into();
        }
        if let Some(limit) = self.initial_max_data {
            all.initial_max_data = limit.0;
        }
        if let Some([local, remote, uni]) = self.stream_data {
            all.initial_max_stream_data_bidi_local = local.0;
            all.initial_max_stream_data_bidi_remote = remote.0;
            all.initial_max_stream_data_uni = uni.0;
        }
        // More than 2^60 streams are never encoded.
        if let Some([bidi, uni]) = self.streams {
            all.initial_max_streams_bidi = bidi.0;
            all.initial_max_streams_uni = uni.0;
        }
        if let Some(exponent) = self.ack_delay_exponent {
            all.ack_delay_exponent = exponent;
        }
        if let Some(delay) = self.max_ack_delay {
            all.max_ack_delay = milliseconds(delay);
        }
        all.disable_active_migration |= self.disable_active_migration;
        if let Some(limit) = self.active_connection_id_limit {
            all.active_connection_id_limit = limit.0;
        }
        if let Some(size) = self.max_datagram_frame_size {
            all.max_datagram_frame_size = size.0;
        }
        if let Some(path) = self.initial_max_path_id {
            all.initial_max_path_id = path.checked_sub(1).map(|path| PathId(path.into()));
        }
        if let Some(delay) = self.min_ack_delay {
            all.min_ack_delay = Some(Duration::from_micros(delay.0));
        }
        all.reset_stream_at = self.reset_stream_at;
        all.alternative_address = self.alternative_address;
        let wrong = Some(ConnectionId::new(&[0xee; 5]));
        if self.wrong_source {
            all.initial_source_connection_id = wrong;
        }
        if self.wrong_destination {
            all.original_destination_connection_id = wrong;
        }
        if self.retry_source {
            all.retry_source_connection_id = wrong;
        }
    }

    /// True if the parameters are invalid by RFC 9000 sections 7.3, 7.4 and 18.2 or by an
    /// extension.
    fn is_wrong(&self, of: Side, applied: &TransportParameters) -> bool {
        let min_ack_delay = applied.min_ack_delay.unwrap_or_default();
        let of_server = of.is_server() && (self.wrong_destination || self.retry_source);
        applied.max_udp_payload_size < 1200
            || applied.ack_delay_exponent > 20
            || applied.max_ack_delay >= Duration::from_millis(1 << 14)
            || applied.active_connection_id_limit < 2
            || min_ack_delay > applied.max_ack_delay
            || self.wrong_source
            || of_server
    }
}

/// [`NullCrypto`] that replaces the parameters of its connection by the input's.
struct Meddler {
    inner: Arc<NullCrypto>,
    announced: Announced,
}

impl Meddler {
    fn parameters(&self, parameters: &TransportParameters) -> TransportParameters {
        let mut parameters = parameters.clone();
        self.announced.apply(&mut parameters);
        parameters
    }
}

impl InitialCrypto for Meddler {
    fn initial_keys(&self, version: Version, side: Side, destination: &ConnectionId) -> Keys {
        self.inner.initial_keys(version, side, destination)
    }
}

impl ClientCrypto for Meddler {
    fn start_session(
        self: Arc<Self>,
        version: Version,
        server_name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, InvalidServerName> {
        let parameters = self.parameters(parameters);
        ClientCrypto::start_session(self.inner.clone(), version, server_name, &parameters)
    }
}

impl ServerCrypto for Meddler {
    fn read_first_flight(&self, crypto: &[u8]) -> FirstFlight {
        self.inner.read_first_flight(crypto)
    }

    fn start_session(
        self: Arc<Self>,
        version: Version,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, TransportError> {
        let parameters = self.parameters(parameters);
        ServerCrypto::start_session(self.inner.clone(), version, &parameters)
    }
}

fuzz_target!(|input: Input| {
    let options = Options::default();
    let config = |options: TransportOptions| Arc::new(options.build().expect("options"));
    let meddler = || {
        let (inner, announced) = (NullCrypto::new(b"fuzz"), input.announced.clone());
        Arc::new(Meddler { inner, announced })
    };
    let (client, server) = (config(options.client), config(options.server));
    let honest = NullCrypto::new(b"fuzz");
    let (client, server) = if input.by_server {
        (
            honest.client(client),
            ServerConfig::new(meddler(), server, [7; 32]),
        )
    } else {
        (ClientConfig::new(meddler(), client), honest.server(server))
    };
    let victim = if input.by_server {
        Side::Client
    } else {
        Side::Server
    };
    let mut table = Table::with_configs(client, server, false);
    table.connect(0);
    table.exchange();
    let lost = table
        .hosted(victim)
        .and_then(|hosted| hosted.lost().cloned());
    match lost {
        Some(ConnectionError::TransportError(error)) if is_wrong(&input, !victim) => {
            let code = TransportErrorCode::TRANSPORT_PARAMETER_ERROR;
            assert_eq!(error.fault.code(), code, "{error}");
        }
        // The peer's connection uses multipath, although the replaced parameters do not announce
        // it.
        Some(ConnectionError::TransportError(error)) => {
            assert_eq!(input.announced.initial_max_path_id, Some(0), "{error}");
        }
        // A server that cannot begin answers without a connection.
        None if table.hosted(victim).is_none() => assert!(is_wrong(&input, !victim)),
        None => {
            assert!(!is_wrong(&input, !victim), "nobody minds");
            use_it(&mut table, &input, victim);
        }
        // The victim kept the announced limits, which exceed the limits that the peer's connection
        // knows.
        Some(ConnectionError::ConnectionClosed(_)) => assert!(!is_wrong(&input, !victim)),
        Some(other) => panic!("{other}"),
    }
    table.finish();
});

/// True if the parameters of a side become invalid by the input's changes.
fn is_wrong(input: &Input, of: Side) -> bool {
    let mut own = TransportParameters::default();
    own.max_ack_delay = Duration::from_millis(25);
    own.min_ack_delay = Some(Duration::from_millis(1));
    own.active_connection_id_limit = 3;
    input.announced.apply(&mut own);
    input.announced.is_wrong(of, &own)
}

/// Uses the connection, and checks that the victim keeps the announced limits.
fn use_it(table: &mut Table, input: &Input, victim: Side) {
    let peer = &input.announced;
    let hosted = table.hosted(victim).expect("it goes on");
    let connection = &mut hosted.connection;
    assert!(!connection.is_handshaking());
    assert_eq!(
        connection.is_multipath(),
        peer.initial_max_path_id != Some(0)
    );
    let mut opened = [0, 0];
    for (is_bidi, length) in input.streams.iter().take(50) {
        let dir = if *is_bidi { Dir::Bi } else { Dir::Uni };
        let Some(id) = connection.streams().open(dir) else {
            continue;
        };
        opened[usize::from(!is_bidi)] += 1;
        let sent = connection
            .send_stream(id)
            .write(&vec![1; usize::from(*length)]);
        let sent = sent.unwrap_or(0) as u64;
        if let Some([_, remote, uni]) = peer.stream_data {
            assert!(sent <= if *is_bidi { remote.0 } else { uni.0 });
        }
    }
    if let Some([bidi, uni]) = peer.streams {
        assert!(opened[0] <= bidi.0 && opened[1] <= uni.0, "{opened:?}");
    }
    for length in input.datagrams.iter().take(10) {
        let data = vec![2; usize::from(*length)];
        let sent = connection.datagrams().send(data.into());
        let most = peer.max_datagram_frame_size.map(|size| size.0);
        assert!(sent.is_err() || most.is_none_or(|most| u64::from(*length) < most));
        assert!(most != Some(0) || sent == Err(SendDatagramError::UnsupportedByPeer));
    }
    if victim.is_server() {
        let further = ServerAddress::new(([192, 0, 2, 77], 443).into());
        let announced = connection.announce_addresses(&[further]);
        assert_eq!(announced, Ok(()), "whether or not it is sent");
    }
    table.take(victim);
    check_flight(table, peer, victim);
    // Path IDs count from 0, and the announced limit here from 1.
    let mut next = 1;
    for index in 1..=input.paths % 6 {
        let most = peer.initial_max_path_id;
        let opened = victim.is_client() && table.open_path(index);
        assert!(
            !opened || most.is_none_or(|most| next < most),
            "path {next} of {most:?}"
        );
        next += u8::from(opened);
        table.wait(Duration::from_millis(100));
    }
    table.wait(Duration::from_millis(200));
}

/// Checks the victim's first datagrams: no datagram is larger than the peer accepts, and the bytes
/// of streams stay within the peer's credit.
fn check_flight(table: &Table, peer: &Announced, victim: Side) {
    let most = peer.max_udp_payload_size.unwrap_or(u16::MAX);
    let mut ends: BTreeMap<StreamId, u64> = BTreeMap::new();
    for datagram in table
        .in_flight
        .iter()
        .filter(|datagram| datagram.from == victim)
    {
        assert!(datagram.data.len() <= usize::from(most));
        for frame in one_rtt_frames(datagram) {
            if let Frame::AlternativeAddress(_) = frame {
                assert!(peer.alternative_address, "nobody asked for it");
            }
            if let Frame::Stream(stream) = frame {
                let end = ends.entry(stream.stream_id).or_default();
                *end = (*end).max(stream.offset + stream.data.len() as u64);
            }
        }
    }
    let sent: u64 = ends.values().sum();
    assert!(
        peer.initial_max_data.is_none_or(|limit| sent <= limit.0),
        "{sent} bytes"
    );
}

/// The frames of a datagram's 1-RTT packet, which is not encrypted: [`NullCrypto`] appends a tag
/// only.
fn one_rtt_frames(datagram: &Datagram) -> Vec<Frame> {
    let mut rest = datagram.data.clone();
    while let (false, Ok(packet)) = (rest.is_empty(), next_packet(&mut rest, 8)) {
        if let Header::Short { .. } = packet.header {
            let start = packet.packet_number_offset + usize::from(packet.first & 3) + 1;
            let payload = packet.data.freeze().slice(start..);
            let payload = payload.slice(..payload.len() - TAG_LENGTH);
            let frames: Result<_, _> = FrameIter::new(payload, true).collect();
            return frames.expect("the victim's own frames");
        }
    }
    Vec::new()
}
