//! Transport parameters of a peer against what a connection then does: parameters that break a rule
//! end it, and the limits of others are kept.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_core::config::{ClientConfig, ServerConfig, TransportOptions};
use mpquic_core::crypto::{
    ClientCrypto, FirstFlight, InitialCrypto, InvalidServerName, Keys, ServerCrypto, Session,
};
use mpquic_core::{
    ConnectionError, ConnectionId, Dir, PathId, SendDatagramError, Side, TransportError,
    TransportErrorCode, TransportParameters, Version,
};
use mpquic_fuzz::number::Varint;
use mpquic_fuzz::table::{Options, SIDES, Table};
use mpquic_sim::NullCrypto;

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
    /// `None` leaves it as it is, 0 takes it away.
    initial_max_path_id: Option<u8>,
    min_ack_delay: Option<Varint>,
    reset_stream_at: bool,
    wrong_source: bool,
    wrong_destination: bool,
    retry_source: bool,
}

#[derive(Debug, Arbitrary)]
struct Input {
    client: Announced,
    server: Announced,
    streams: Vec<(bool, bool, u16)>,
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

    /// What RFC 9000 sections 7.3, 7.4 and 18.2 and the extensions call wrong.
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

/// [`NullCrypto`] that announces other parameters than those of its connection.
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
    let meddler = |announced: &Announced| {
        let (inner, announced) = (NullCrypto::new(b"fuzz"), announced.clone());
        Arc::new(Meddler { inner, announced })
    };
    let client = ClientConfig::new(meddler(&input.client), config(options.client));
    let server = ServerConfig::new(meddler(&input.server), config(options.server), [7; 32]);
    let mut table = Table::with_configs(client, server, false);
    table.connect(0);
    table.exchange();
    let wrong = SIDES.map(|side| is_wrong(&input, side));
    if wrong.contains(&true) {
        check_refused(&mut table, wrong);
    } else {
        for side in SIDES {
            let hosted = table.hosted(side).expect("both accept");
            assert_eq!(hosted.lost(), None);
            assert!(!hosted.connection.is_handshaking());
        }
        use_it(&mut table, &input);
    }
    table.finish();
});

fn announced(input: &Input, side: Side) -> &Announced {
    match side {
        Side::Client => &input.client,
        Side::Server => &input.server,
    }
}

/// What a side says is wrong, starting from what it would say by itself.
fn is_wrong(input: &Input, side: Side) -> bool {
    let announced = announced(input, side);
    let mut own = TransportParameters::default();
    own.max_ack_delay = Duration::from_millis(25);
    own.min_ack_delay = Some(Duration::from_millis(1));
    own.active_connection_id_limit = 3;
    announced.apply(&mut own);
    announced.is_wrong(side, &own)
}

/// The side that is told nonsense ends the connection for that.
fn check_refused(table: &mut Table, wrong: [bool; 2]) {
    let mut refused = false;
    for (side, other_is_wrong) in SIDES.into_iter().zip([wrong[1], wrong[0]]) {
        let Some(hosted) = table.hosted(side) else {
            continue;
        };
        match hosted.lost() {
            Some(ConnectionError::TransportError(error)) => {
                assert!(other_is_wrong, "{error}");
                assert_eq!(
                    error.fault.code(),
                    TransportErrorCode::TRANSPORT_PARAMETER_ERROR
                );
                refused = true;
            }
            Some(ConnectionError::ConnectionClosed(close)) => {
                assert_eq!(close.code, TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
                refused = true;
            }
            Some(other) => panic!("{other}"),
            None => {}
        }
    }
    assert!(refused, "nobody minds");
}

fn use_it(table: &mut Table, input: &Input) {
    for side in SIDES {
        let peer = announced(input, !side);
        let now = table.now;
        let Some(hosted) = table.hosted(side) else {
            continue;
        };
        let connection = &mut hosted.connection;
        let mut opened = [0, 0];
        let mut written = 0;
        for (by_client, is_bidi, length) in input.streams.iter().take(50) {
            if *by_client != side.is_client() {
                continue;
            }
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
            written += sent;
        }
        assert!(peer.initial_max_data.is_none_or(|limit| written <= limit.0));
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
        let is_multipath =
            [&input.client, &input.server].map(|side| side.initial_max_path_id != Some(0));
        assert_eq!(connection.is_multipath(), is_multipath == [true; 2]);
        let _ = connection.initiate_key_update(now);
    }
    for index in 0..input.paths % 6 {
        let most = SIDES.map(|side| announced(input, side).initial_max_path_id);
        let most = most.into_iter().flatten().min();
        let opened = table.open_path(1 + index);
        // Path IDs count from 0, and here the limits from 1.
        let allowed = most.is_none_or(|most| index + 1 < most);
        assert!(allowed || !opened, "path {} of {most:?}", index + 1);
        table.take(Side::Client);
        table.take(Side::Server);
        check_sizes(table, input);
        table.wait(Duration::from_millis(100));
    }
    table.wait(Duration::from_millis(200));
}

/// No datagram is larger than its receiver takes.
fn check_sizes(table: &Table, input: &Input) {
    for datagram in &table.in_flight {
        let peer = announced(input, !datagram.from);
        let most = peer.max_udp_payload_size.unwrap_or(u16::MAX);
        assert!(datagram.data.len() <= usize::from(most));
    }
}
