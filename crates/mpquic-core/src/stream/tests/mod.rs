//! Streams as a whole: two ends that exchange frames, every rule that the peer may break, and the
//! state left at the end.

use std::time::Duration;

use bytes::Bytes;
use quinn_proto::{Dir, Side, StreamId, VarInt};

use super::StreamEvent;
use super::send_window::PathsNow;
use super::set::StreamSet;
use crate::config::{TransportConfig, TransportOptions};
use crate::error::{Fault, TransportError};
use crate::packet::delivery::Fate;
use crate::packet::writer::{Deliveries, FrameWriter};
use crate::sched::DataSelection;
use crate::wire::frame::{
    Frame, FrameIter, MaxStreamData, MaxStreams, StreamDataBlocked, StreamsBlocked,
};
use crate::wire::transport_parameters::TransportParameters;

mod assembler;
mod channel;
mod crypto_stream;
mod datagrams;
mod delivery_choices;
mod egress;
mod ingress;
mod lifecycle;
mod operations;
mod reset_at;
mod send_buffer;
mod settings;
mod waiting;
mod writers;

/// Options whose policies are never asked.
fn options() -> TransportOptions {
    TransportOptions::without_policies()
}

fn checked(options: TransportOptions) -> TransportConfig {
    options.build().expect("options that are right")
}

fn config() -> TransportConfig {
    checked(options())
}

/// The parameters a side with this configuration announces.
fn parameters(config: &TransportConfig) -> TransportParameters {
    TransportParameters {
        initial_max_data: config.initial_receive_window,
        initial_max_stream_data_bidi_local: config.initial_stream_receive_window,
        initial_max_stream_data_bidi_remote: config.initial_stream_receive_window,
        initial_max_stream_data_uni: config.initial_stream_receive_window,
        initial_max_streams_bidi: config.max_concurrent_bidi_streams,
        initial_max_streams_uni: config.max_concurrent_uni_streams,
        max_ack_delay: Duration::from_millis(25),
        reset_stream_at: config.reset_stream_at,
        ..TransportParameters::default()
    }
}

/// A client whose peer has the same configuration.
fn client(config: &TransportConfig) -> StreamSet {
    let mut streams = StreamSet::new(Side::Client, config, crate::recovery::testing::start());
    streams.set_peer_parameters(&parameters(config));
    streams
}

/// A client and a server.
fn pair(config: &TransportConfig) -> (StreamSet, StreamSet) {
    let mut server = StreamSet::new(Side::Server, config, crate::recovery::testing::start());
    server.set_peer_parameters(&parameters(config));
    (client(config), server)
}

/// A packet of one end.
struct Packet {
    payload: Bytes,
    deliveries: Deliveries,
}

impl Packet {
    fn frames(&self) -> Vec<Frame> {
        FrameIter::new(self.payload.clone(), true)
            .collect::<Result<_, _>>()
            .expect("frames we wrote ourselves")
    }

    fn give_to(&self, streams: &mut StreamSet) -> Result<(), TransportError> {
        self.frames()
            .into_iter()
            .try_for_each(|frame| give(streams, frame))
    }

    fn report(&self, streams: &mut StreamSet, fate: Fate) {
        for &delivery in &self.deliveries {
            streams.on_delivery(delivery.of_stream(), fate);
        }
    }
}

/// Fills a packet of `room` bytes.
fn packet(room: usize, write: impl FnOnce(&mut FrameWriter<'_>)) -> Option<Packet> {
    let mut buffer = Vec::new();
    let mut counts = crate::wire::frame::FrameCounts::default();
    let mut writer = FrameWriter::new(&mut buffer, room, &mut counts);
    write(&mut writer);
    let deliveries = writer.into_deliveries();
    assert!(buffer.len() <= room);
    (!buffer.is_empty()).then(|| Packet {
        payload: buffer.into(),
        deliveries,
    })
}

/// The next packet as a connection would build it.
fn next_packet(streams: &mut StreamSet, room: usize) -> Option<Packet> {
    packet(room, |writer| {
        streams.write_control(writer);
        streams.write_data(writer, &DataSelection::Next, room);
    })
}

/// Takes everything out that can be sent, as frames.
fn drain(streams: &mut StreamSet) -> Vec<Frame> {
    std::iter::from_fn(|| next_packet(streams, 1200))
        .flat_map(|packet| packet.frames())
        .collect()
}

fn events(streams: &mut StreamSet) -> Vec<StreamEvent> {
    std::iter::from_fn(|| streams.poll()).collect()
}

fn give(streams: &mut StreamSet, frame: Frame) -> Result<(), TransportError> {
    let now = crate::recovery::testing::start();
    match frame {
        Frame::Stream(frame) => {
            let datagram = frame.data.len();
            streams.on_stream(frame, datagram)
        }
        Frame::ResetStream(frame) => streams.on_reset_stream(&frame, now),
        Frame::ResetStreamAt(frame) => streams.on_reset_stream_at(&frame, now),
        Frame::StopSending(frame) => streams.on_stop_sending(&frame),
        Frame::MaxData(maximum) => {
            streams.on_max_data(maximum);
            Ok(())
        }
        Frame::MaxStreamData(frame) => streams.on_max_stream_data(&frame),
        Frame::MaxStreams(frame) => streams.on_max_streams(&frame),
        Frame::DataBlocked(_) => {
            streams.on_data_blocked();
            Ok(())
        }
        Frame::StreamDataBlocked(frame) => streams.on_stream_data_blocked(&frame),
        Frame::StreamsBlocked(frame) => streams.on_streams_blocked(&frame),
        other => unreachable!("not a frame of streams: {other:?}"),
    }
}

fn max_stream_data(stream_id: StreamId, maximum_stream_data: u64) -> Frame {
    Frame::MaxStreamData(MaxStreamData {
        stream_id,
        maximum_stream_data,
    })
}

fn stream_data_blocked(stream_id: StreamId, maximum_stream_data: u64) -> Frame {
    Frame::StreamDataBlocked(StreamDataBlocked {
        stream_id,
        maximum_stream_data,
    })
}

fn max_streams(dir: Dir, maximum_streams: u64) -> Frame {
    Frame::MaxStreams(MaxStreams {
        dir,
        maximum_streams,
    })
}

fn streams_blocked(dir: Dir, maximum_streams: u64) -> Frame {
    Frame::StreamsBlocked(StreamsBlocked {
        dir,
        maximum_streams,
    })
}

fn stream_frame(id: StreamId, offset: u64, data: &[u8], fin: bool) -> Frame {
    Frame::Stream(crate::wire::frame::Stream {
        stream_id: id,
        offset,
        fin,
        data: Bytes::copy_from_slice(data),
    })
}

fn code(number: u32) -> VarInt {
    VarInt::from_u32(number)
}

/// The byte at an offset of a stream: any misplaced byte shows.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Paths with this round trip, these congestion windows in bytes, and this rate in bytes per
/// second.
fn paths(
    rtt: Duration,
    congestion_windows: u64,
    rate: u64,
) -> PathsNow<impl Fn() -> Duration, impl Fn() -> u64, impl Fn() -> u64> {
    PathsNow {
        largest_rtt: move || rtt,
        congestion_windows: move || congestion_windows,
        rate: move || rate,
    }
}

fn bytes_of(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(byte_at).collect()
}

fn fails_with(result: Result<(), TransportError>, fault: Fault) {
    assert_eq!(result.map_err(|error| error.fault), Err(fault));
}

fn local_uni(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

fn peer_uni(index: u64) -> StreamId {
    StreamId::new(Side::Server, Dir::Uni, index)
}

fn peer_bidi(index: u64) -> StreamId {
    StreamId::new(Side::Server, Dir::Bi, index)
}
