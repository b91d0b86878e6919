//! Two ends and a channel that loses, repeats and reorders packets: every byte must arrive once, in
//! its place, and no state may be left.

use std::collections::VecDeque;

use proptest::prelude::*;
use quinn_proto::WriteError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::stream::ReadStreamError;

/// One transfer: a direction of a stream.
struct Transfer {
    id: StreamId,
    length: u64,
    written: u64,
    read: u64,
    reader_done: bool,
    /// Instead of ending, the stream is reset; so many bytes are to arrive all the same.
    reliable: Option<u64>,
}

impl Transfer {
    /// Sometimes changes its mind: fewer bytes, or none, need to arrive.
    fn cut_shorter(&mut self, streams: &mut StreamSet, rng: &mut StdRng) {
        let Some(size) = self.reliable.filter(|_| rng.random_range(0..20) == 0) else {
            return;
        };
        let shorter = rng.random_range(0..=size);
        let mut stream = streams.send_stream(self.id);
        let done = if rng.random() {
            stream.reset_at(code(4), shorter).is_ok().then_some(shorter)
        } else {
            stream.reset(code(5)).is_ok().then_some(0)
        };
        self.reliable = done.or(self.reliable);
    }
}

/// One end and the packets in flight to the other.
struct End {
    streams: StreamSet,
    /// In flight towards the other end.
    channel: VecDeque<Packet>,
    /// Arrived or not; the sender will learn a fate of each packet, sometimes twice.
    fates: Vec<(Packet, bool)>,
    sending: Vec<Transfer>,
}

impl End {
    fn new(streams: StreamSet) -> Self {
        Self {
            streams,
            channel: VecDeque::new(),
            fates: Vec::new(),
            sending: Vec::new(),
        }
    }

    fn write(&mut self, rng: &mut StdRng) {
        for transfer in &mut self.sending {
            if transfer.written > transfer.length {
                transfer.cut_shorter(&mut self.streams, rng);
                continue;
            }
            let mut stream = self.streams.send_stream(transfer.id);
            if transfer.written == transfer.length {
                match transfer.reliable {
                    None => stream.finish().expect("open"),
                    Some(size) => stream.reset_at(code(3), size).expect("open"),
                }
                transfer.written += 1;
                continue;
            }
            let length = rng
                .random_range(1..3000)
                .min(transfer.length - transfer.written);
            let data = bytes_of(transfer.written..transfer.written + length);
            let written = if rng.random() {
                stream.write(&data)
            } else {
                let middle = rng.random_range(0..=data.len());
                let data = Bytes::from(data);
                let mut chunks = [data.slice(..middle), data.slice(middle..)];
                stream
                    .write_chunks(&mut chunks)
                    .map(|written| written.bytes)
            };
            match written {
                Ok(bytes) => transfer.written += bytes as u64,
                Err(WriteError::Blocked) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn send(&mut self, rng: &mut StdRng) {
        for _ in 0..rng.random_range(1..6) {
            let room = rng.random_range(60..1400);
            let selection = self.selection(rng);
            let max_bytes = rng.random_range(1..3000);
            let packet = packet(room, |writer| {
                self.streams.write_control(writer);
                let before = writer.remaining();
                let written = self.streams.write_data(writer, &selection, max_bytes);
                assert!(written <= max_bytes.min(before));
            });
            self.channel.extend(packet);
        }
    }

    fn selection(&self, rng: &mut StdRng) -> DataSelection {
        let Some(transfer) = self
            .sending
            .get(rng.random_range(0..self.sending.len() + 4))
        else {
            return DataSelection::Next;
        };
        let id = transfer.id;
        let offset = rng.random_range(0..transfer.length + 10);
        match rng.random_range(0..3) {
            0 => DataSelection::Stream(id),
            1 => DataSelection::StreamAt { id, offset },
            _ => DataSelection::Range {
                id,
                offsets: offset..offset + rng.random_range(0..5000),
            },
        }
    }

    /// Takes a packet off the channel: mostly the oldest.
    fn next_in_flight(&mut self, rng: &mut StdRng) -> Option<Packet> {
        let reorder = rng.random_range(0..4) == 0;
        let index = if reorder { rng.random_range(0..4) } else { 0 };
        self.channel
            .remove(index)
            .or_else(|| self.channel.pop_front())
    }

    /// Reports some fates, late, in any order, sometimes a wrong loss first.
    fn learn_fates(&mut self, rng: &mut StdRng) {
        while self.fates.len() > 8 || !self.fates.is_empty() && rng.random_range(0..3) > 0 {
            let (packet, arrived) = self
                .fates
                .swap_remove(rng.random_range(0..self.fates.len()));
            if !arrived || rng.random_range(0..8) == 0 {
                packet.report(&mut self.streams, Fate::Lost);
            }
            if arrived {
                packet.report(&mut self.streams, Fate::Acked);
            }
            if rng.random_range(0..8) == 0 {
                let fate = if arrived { Fate::Acked } else { Fate::Lost };
                packet.report(&mut self.streams, fate);
            }
        }
    }

    fn read(&mut self, transfers: &mut [Transfer], rng: &mut StdRng) {
        for transfer in transfers
            .iter_mut()
            .filter(|transfer| !transfer.reader_done)
        {
            let mut stream = self.streams.recv_stream(transfer.id);
            loop {
                match stream.read_chunk(rng.random_range(1..4000), true) {
                    Ok(Some(chunk)) => {
                        let end = transfer.read + chunk.bytes.len() as u64;
                        assert_eq!(chunk.offset, transfer.read);
                        assert_eq!(chunk.bytes, bytes_of(transfer.read..end));
                        transfer.read = end;
                    }
                    Ok(None) => {
                        assert_eq!(transfer.read, transfer.length);
                        transfer.reader_done = true;
                        break;
                    }
                    Err(ReadStreamError::Reset(error_code)) => {
                        assert_eq!(error_code, code(3));
                        assert!(transfer.reliable.is_some_and(|size| transfer.read >= size));
                        transfer.reader_done = true;
                        break;
                    }
                    // Its first frame has not arrived yet.
                    Err(ReadStreamError::ClosedStream) if transfer.read == 0 => break,
                    Err(ReadStreamError::Blocked) => break,
                    Err(error) => panic!("{error}"),
                }
                if rng.random_range(0..4) == 0 {
                    break;
                }
            }
        }
    }
}

fn deliver(from: &mut End, to: &mut End, loss: f64, rng: &mut StdRng) {
    for _ in 0..rng.random_range(0..8) {
        let Some(packet) = from.next_in_flight(rng) else {
            return;
        };
        let arrives = !rng.random_bool(loss);
        if arrives {
            packet
                .give_to(&mut to.streams)
                .expect("the peer keeps the rules");
        }
        from.fates.push((packet, arrives));
    }
}

fn exchange(lengths: &[(u64, bool, Option<u64>)], config: &TransportConfig, loss: f64, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (client, server) = pair(config);
    let (mut client, mut server) = (End::new(client), End::new(server));
    for &(length, from_client, reliable) in lengths {
        let end = if from_client {
            &mut client
        } else {
            &mut server
        };
        let id = end.streams.open(Dir::Uni).expect("credit");
        end.streams
            .send_stream(id)
            .set_priority(rng.random_range(-1..2))
            .expect("open");
        end.sending.push(Transfer {
            id,
            length,
            written: 0,
            read: 0,
            reader_done: false,
            reliable: reliable.map(|size| size.min(length)),
        });
    }
    for round in 0.. {
        assert!(round < 200_000, "no end in sight");
        // After a while everything gets through, so that all is settled in the end.
        let loss = if round > 2000 { 0.0 } else { loss };
        client.write(&mut rng);
        server.write(&mut rng);
        client.send(&mut rng);
        server.send(&mut rng);
        deliver(&mut client, &mut server, loss, &mut rng);
        deliver(&mut server, &mut client, loss, &mut rng);
        client.learn_fates(&mut rng);
        server.learn_fates(&mut rng);
        server.read(&mut client.sending, &mut rng);
        client.read(&mut server.sending, &mut rng);
        let idle =
            |end: &End| end.streams.is_idle() && end.channel.is_empty() && end.fates.is_empty();
        if idle(&client) && idle(&server) {
            break;
        }
    }
    for end in [&mut client, &mut server] {
        assert!(end.sending.iter().all(|transfer| transfer.reader_done));
        let finished = events(&mut end.streams)
            .into_iter()
            .filter(|event| matches!(event, StreamEvent::Finished { .. }));
        let whole = end
            .sending
            .iter()
            .filter(|transfer| transfer.reliable.is_none());
        assert_eq!(finished.count(), whole.count());
        let view = end.streams.queue_view();
        assert_eq!((view.unsent, view.retransmit), (0, 0));
        assert_eq!(view.flow_window, view.flow_credit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_byte_arrives(
        lengths in prop::collection::vec((0u64..30_000, any::<bool>(), prop::option::of(0u64..30_000)), 1..8),
        stream_window in 500u64..20_000,
        window in 500u64..40_000,
        send_window in 500u64..40_000,
        loss in 0.0..0.4f64,
        seed in any::<u64>(),
    ) {
        let config = checked(TransportOptions {
            initial_stream_receive_window: stream_window,
            initial_receive_window: window,
            max_receive_window: 100_000,
            send_window,
            ..options()
        });
        exchange(&lengths, &config, loss, seed);
    }
}

#[test]
fn many_streams_over_a_bad_channel() {
    let lengths: Vec<(u64, bool, Option<u64>)> = (0..60)
        .map(|i| (i * 997 % 9000, i % 3 > 0, (i % 4 == 0).then_some(i * 100)))
        .collect();
    for seed in 0..5 {
        exchange(&lengths, &config(), 0.2, seed);
    }
}
