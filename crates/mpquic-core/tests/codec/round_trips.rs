//! Whatever can be written is read back the same; whatever arrives does no harm.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mpquic_core::unstable_wire::frame::{
    self, Ack, AckFrequency, AddressEntry, AlternativeAddress, Close, Crypto, EcnCounts, Frame,
    MaxStreamData, MaxStreams, NewConnectionId, PathAbandon, PathAck, PathCidsBlocked,
    PathNewConnectionId, PathRetireConnectionId, ResetStream, ResetStreamAt, StopSending, Stream,
    StreamDataBlocked, StreamsBlocked,
};
use mpquic_core::unstable_wire::header::next_packet;
use mpquic_core::{
    ApplicationClose, ConnectionClose, ConnectionId, Dir, PathId, PathStatus, PreferredAddress,
    Side, StreamId, TransportErrorCode, TransportParameters, VarInt, VersionInformation,
};
use proptest::prelude::*;

use super::frames::{decoded, encoded};
use super::stream_id;

fn varint() -> impl Strategy<Value = u64> {
    prop_oneof![0..64u64, 0..1u64 << 14, 0..1u64 << 30, 0..1u64 << 62]
}

fn data() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..80).prop_map(Bytes::from)
}

fn offset() -> impl Strategy<Value = u64> {
    varint().prop_map(|offset| offset.min((1 << 62) - 100))
}

fn path() -> impl Strategy<Value = PathId> {
    prop_oneof![0..10u32, any::<u32>()].prop_map(PathId)
}

fn any_stream_id() -> impl Strategy<Value = StreamId> {
    varint().prop_map(stream_id)
}

fn direction() -> impl Strategy<Value = Dir> {
    prop_oneof![Just(Dir::Bi), Just(Dir::Uni)]
}

fn code() -> impl Strategy<Value = TransportErrorCode> {
    varint().prop_map(TransportErrorCode::from_u64)
}

fn cid(lengths: RangeInclusive<usize>) -> impl Strategy<Value = ConnectionId> {
    prop::collection::vec(any::<u8>(), lengths).prop_map(|bytes| ConnectionId::new(&bytes))
}

prop_compose! {
    fn ack()(
        gaps_and_lengths in prop::collection::vec((0..100_000u64, 1..10_000u64), 1..40),
        delay in varint(),
        ecn in prop::option::of([varint(), varint(), varint()]),
    ) -> Ack {
        let mut end = 0;
        let ranges = gaps_and_lengths.into_iter().map(|(gap, length)| {
            let start = end + gap;
            end = start + length;
            start..end
        });
        let ecn = ecn.map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce });
        Ack::new(&ranges.collect(), delay, ecn).unwrap()
    }
}

prop_compose! {
    fn new_connection_id()(
        numbers in [varint(), varint()],
        connection_id in cid(1..=20),
        stateless_reset_token in any::<[u8; 16]>(),
    ) -> NewConnectionId {
        let [a, b] = numbers;
        NewConnectionId {
            sequence_number: a.max(b),
            retire_prior_to: a.min(b),
            connection_id,
            stateless_reset_token,
        }
    }
}

prop_compose! {
    fn stream()(
        stream_id in any_stream_id(),
        offset in offset(),
        fin in any::<bool>(),
        data in data(),
    ) -> Stream {
        Stream { stream_id, offset, fin, data }
    }
}

prop_compose! {
    fn reset_stream()(
        stream_id in any_stream_id(),
        error_code in varint(),
        final_size in varint(),
    ) -> ResetStream {
        ResetStream { stream_id, error_code, final_size }
    }
}

prop_compose! {
    fn connection_close()(
        code in code(),
        frame_type in varint(),
        reason in data(),
    ) -> ConnectionClose {
        ConnectionClose { code, frame_type, reason }
    }
}

prop_compose! {
    fn application_close()(error_code in varint(), reason in data()) -> ApplicationClose {
        let error_code = VarInt::from_u64(error_code).unwrap();
        ApplicationClose { error_code, reason }
    }
}

prop_compose! {
    fn ack_frequency()(numbers in prop::array::uniform4(varint())) -> AckFrequency {
        let [a, b, c, d] = numbers;
        AckFrequency {
            sequence_number: a,
            ack_eliciting_threshold: b,
            requested_max_ack_delay: c,
            reordering_threshold: d,
        }
    }
}

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<(u32, u16)>().prop_map(|(ip, port)| (ip.to_be_bytes(), port).into()),
        any::<(u128, u16)>().prop_map(|(ip, port)| (ip.to_be_bytes(), port).into()),
    ]
}

prop_compose! {
    fn alternative_address()(
        sequence_number in varint(),
        addresses in prop::collection::btree_set(address(), 0..8),
        mut hints in prop::collection::vec(varint(), 8),
        place in 0..8usize,
    ) -> AlternativeAddress {
        let place = place.min(addresses.len());
        hints[..place].sort_unstable();
        hints[place..].sort_unstable();
        let addresses: BTreeSet<_> = addresses;
        let entries = hints.into_iter().zip(addresses);
        let entries = entries.map(|(priority_hint, address)| AddressEntry { priority_hint, address });
        let mut preferred: Vec<_> = entries.collect();
        let backup = preferred.split_off(place);
        AlternativeAddress { sequence_number, preferred, backup }
    }
}

fn control_frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        Just(Frame::Padding),
        Just(Frame::Ping),
        Just(Frame::HandshakeDone),
        Just(Frame::ImmediateAck),
        ack_frequency().prop_map(Frame::AckFrequency),
        alternative_address().prop_map(Frame::AlternativeAddress),
        ack().prop_map(Frame::Ack),
        any::<[u8; 8]>().prop_map(Frame::PathChallenge),
        any::<[u8; 8]>().prop_map(Frame::PathResponse),
        new_connection_id().prop_map(Frame::NewConnectionId),
        varint().prop_map(Frame::RetireConnectionId),
        application_close().prop_map(|close| Frame::ConnectionClose(Close::Application(close))),
        connection_close().prop_map(|close| Frame::ConnectionClose(Close::Connection(close))),
    ]
}

fn stream_frame() -> impl Strategy<Value = Frame> {
    let token = data().prop_filter("tokens have bytes", |token| !token.is_empty());
    prop_oneof![
        stream().prop_map(Frame::Stream),
        reset_stream().prop_map(Frame::ResetStream),
        (reset_stream(), varint()).prop_map(|(reset, v)| Frame::ResetStreamAt(ResetStreamAt {
            stream_id: reset.stream_id,
            error_code: reset.error_code,
            final_size: reset.final_size,
            reliable_size: v.min(reset.final_size),
        })),
        (any_stream_id(), varint()).prop_map(|(stream_id, error_code)| Frame::StopSending(
            StopSending {
                stream_id,
                error_code
            }
        )),
        (offset(), data()).prop_map(|(offset, data)| Frame::Crypto(Crypto { offset, data })),
        token.prop_map(Frame::NewToken),
        data().prop_map(Frame::Datagram),
    ]
}

prop_compose! {
    fn max_stream_data()(
        stream_id in any_stream_id(),
        maximum_stream_data in varint(),
    ) -> MaxStreamData {
        MaxStreamData { stream_id, maximum_stream_data }
    }
}

prop_compose! {
    fn stream_data_blocked()(
        stream_id in any_stream_id(),
        maximum_stream_data in varint(),
    ) -> StreamDataBlocked {
        StreamDataBlocked { stream_id, maximum_stream_data }
    }
}

prop_compose! {
    fn max_streams()(dir in direction(), maximum_streams in 0..=1u64 << 60) -> MaxStreams {
        MaxStreams { dir, maximum_streams }
    }
}

prop_compose! {
    fn streams_blocked()(dir in direction(), maximum_streams in 0..=1u64 << 60) -> StreamsBlocked {
        StreamsBlocked { dir, maximum_streams }
    }
}

fn limit_frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        varint().prop_map(Frame::MaxData),
        varint().prop_map(Frame::DataBlocked),
        max_stream_data().prop_map(Frame::MaxStreamData),
        max_streams().prop_map(Frame::MaxStreams),
        stream_data_blocked().prop_map(Frame::StreamDataBlocked),
        streams_blocked().prop_map(Frame::StreamsBlocked),
    ]
}

prop_compose! {
    fn path_abandon()(path_id in path(), error_code in code()) -> PathAbandon {
        PathAbandon { path_id, error_code }
    }
}

prop_compose! {
    fn path_status()(
        path_id in path(),
        status in prop_oneof![Just(PathStatus::Backup), Just(PathStatus::Available)],
        sequence_number in varint(),
    ) -> frame::PathStatus {
        frame::PathStatus { path_id, status, sequence_number }
    }
}

prop_compose! {
    fn path_new_connection_id()(
        path_id in path(),
        new_connection_id in new_connection_id(),
    ) -> PathNewConnectionId {
        PathNewConnectionId { path_id, new_connection_id }
    }
}

prop_compose! {
    fn path_retire_connection_id()(
        path_id in path(),
        sequence_number in varint(),
    ) -> PathRetireConnectionId {
        PathRetireConnectionId { path_id, sequence_number }
    }
}

prop_compose! {
    fn path_cids_blocked()(
        path_id in path(),
        next_sequence_number in varint(),
    ) -> PathCidsBlocked {
        PathCidsBlocked { path_id, next_sequence_number }
    }
}

fn multipath_frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (path(), ack()).prop_map(|(path_id, ack)| Frame::PathAck(PathAck { path_id, ack })),
        path_abandon().prop_map(Frame::PathAbandon),
        path_status().prop_map(Frame::PathStatus),
        path_new_connection_id().prop_map(Frame::PathNewConnectionId),
        path_retire_connection_id().prop_map(Frame::PathRetireConnectionId),
        path().prop_map(Frame::MaxPathId),
        path().prop_map(Frame::PathsBlocked),
        path_cids_blocked().prop_map(Frame::PathCidsBlocked),
    ]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        control_frame(),
        stream_frame(),
        limit_frame(),
        multipath_frame()
    ]
}

prop_compose! {
    fn preferred_address()(
        ipv4 in prop::option::of((1..=u32::MAX, 1..=u16::MAX)),
        ipv6 in prop::option::of((1..=u128::MAX, 1..=u16::MAX)),
        connection_id in cid(1..=20),
        stateless_reset_token in any::<[u8; 16]>(),
    ) -> PreferredAddress {
        PreferredAddress {
            ipv4: ipv4.map(|(ip, port)| SocketAddrV4::new(ip.into(), port)),
            ipv6: ipv6.map(|(ip, port)| SocketAddrV6::new(ip.into(), port, 0, 0)),
            connection_id,
            stateless_reset_token,
        }
    }
}

prop_compose! {
    fn version_information()(
        chosen in 1..=u32::MAX,
        mut available in prop::collection::vec(1..=u32::MAX, 0..5),
    ) -> VersionInformation {
        available.push(chosen);
        VersionInformation { chosen, available }
    }
}

prop_compose! {
    fn transport_parameters()(
        integers in prop::array::uniform6(varint()),
        streams in prop::array::uniform2(0..=1u64 << 60),
        max_udp_payload_size in 1200..1u64 << 62,
        ack_delay_exponent in 0..=20u8,
        max_ack_delay in (0..1u64 << 14).prop_map(Duration::from_millis),
        active_connection_id_limit in 2..1u64 << 62,
        flags in any::<[bool; 4]>(),
        cids in prop::array::uniform3(prop::option::of(cid(0..=20))),
        stateless_reset_token in any::<Option<[u8; 16]>>(),
        preferred_address in prop::option::of(preferred_address()),
        initial_max_path_id in prop::option::of(path()),
        min_ack_delay in prop::option::of(0..1u64 << 30),
        version_information in prop::option::of(version_information()),
    ) -> TransportParameters {
        let mut parameters = TransportParameters::default();
        parameters.original_destination_connection_id = cids[0];
        parameters.max_idle_timeout = Duration::from_millis(integers[0]);
        parameters.stateless_reset_token = stateless_reset_token;
        parameters.max_udp_payload_size = max_udp_payload_size;
        parameters.initial_max_data = integers[1];
        parameters.initial_max_stream_data_bidi_local = integers[2];
        parameters.initial_max_stream_data_bidi_remote = integers[3];
        parameters.initial_max_stream_data_uni = integers[4];
        parameters.initial_max_streams_bidi = streams[0];
        parameters.initial_max_streams_uni = streams[1];
        parameters.ack_delay_exponent = ack_delay_exponent;
        parameters.max_ack_delay = max_ack_delay;
        parameters.disable_active_migration = flags[0];
        parameters.preferred_address = preferred_address;
        parameters.active_connection_id_limit = active_connection_id_limit;
        parameters.initial_source_connection_id = cids[1];
        parameters.retry_source_connection_id = cids[2];
        parameters.max_datagram_frame_size = integers[5];
        parameters.grease_quic_bit = flags[1];
        parameters.initial_max_path_id = initial_max_path_id;
        parameters.reset_stream_at = flags[2];
        parameters.alternative_address = flags[3];
        parameters.min_ack_delay = min_ack_delay.map(|delay| Duration::from_micros(delay).min(max_ack_delay));
        parameters.version_information = version_information;
        parameters
    }
}

proptest! {
    #[test]
    fn frames_survive(frame in any_frame()) {
        let bytes = encoded(&frame);
        prop_assert_eq!(decoded(&bytes, true), Ok(vec![frame]));
    }

    #[test]
    fn packets_full_of_frames_survive(mut frames in prop::collection::vec(any_frame(), 1..20)) {
        // A run of PADDING is one item.
        frames.dedup_by(|a, b| *a == Frame::Padding && *b == Frame::Padding);
        let bytes: Vec<u8> = frames.iter().flat_map(encoded).collect();
        prop_assert_eq!(decoded(&bytes, true), Ok(frames));
    }

    #[test]
    fn transport_parameters_survive(mut parameters in transport_parameters()) {
        let mut out = Vec::new();
        parameters.encode(Side::Server, &mut out);
        let of_server = TransportParameters::decode(Side::Server, &out);
        let is_client_ready = std::mem::take(&mut parameters.alternative_address);
        prop_assert_eq!(of_server, Ok(parameters.clone()));
        parameters.alternative_address = is_client_ready;
        out.clear();
        parameters.encode(Side::Client, &mut out);
        parameters.original_destination_connection_id = None;
        parameters.stateless_reset_token = None;
        parameters.preferred_address = None;
        parameters.retry_source_connection_id = None;
        prop_assert_eq!(TransportParameters::decode(Side::Client, &out), Ok(parameters));
    }

    #[test]
    fn noise_does_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        local_cid_length in 0..=20usize,
    ) {
        let _ = decoded(&bytes, true);
        let _ = TransportParameters::decode(Side::Server, &bytes);
        let mut datagram = BytesMut::from(&bytes[..]);
        while !datagram.is_empty() {
            let before = datagram.len();
            let _ = next_packet(&mut datagram, local_cid_length);
            prop_assert!(datagram.len() < before);
        }
    }
}
