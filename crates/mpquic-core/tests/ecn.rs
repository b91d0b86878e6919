//! ECN marks, as the peer hears of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mpquic_core::config::{EndpointConfig, TransportOptions};
use mpquic_core::unstable_wire::frame::{Frame, FrameIter, PathAck};
use mpquic_core::unstable_wire::header::{Header, next_packet};
use mpquic_core::{
    Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, FourTuple, Side,
};
use mpquic_sim::NullCrypto;

const CID_LENGTH: usize = 8;
const TAG_LENGTH: usize = 16;

/// Counts of ECT(0) reported in packets of each type; `None` if one acknowledged without counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reported {
    initial: Vec<Option<u64>>,
    handshake: Vec<Option<u64>>,
    one_rtt: Vec<Option<u64>>,
}

impl Reported {
    fn read(&mut self, mut datagram: BytesMut) {
        while !datagram.is_empty() {
            let Ok(packet) = next_packet(&mut datagram, CID_LENGTH) else {
                return;
            };
            let list = match packet.header {
                Header::Initial { .. } => &mut self.initial,
                Header::Handshake { .. } => &mut self.handshake,
                Header::Short { .. } => &mut self.one_rtt,
                _ => continue,
            };
            // The simulator's keys leave packets readable.
            let number_length = usize::from(packet.first & 3) + 1;
            let end = packet.data.len() - TAG_LENGTH;
            let payload = &packet.data[packet.packet_number_offset + number_length..end];
            for frame in FrameIter::new(payload.to_vec().into(), true) {
                let (Frame::Ack(ack) | Frame::PathAck(PathAck { ack, .. })) = frame.unwrap() else {
                    continue;
                };
                list.push(ack.ecn_counts.map(|counts| counts.ect0));
            }
        }
    }
}

/// An endpoint and its connection, once there is one.
struct Host {
    endpoint: Endpoint,
    hosted: Option<(ConnectionHandle, Connection)>,
    address: SocketAddr,
    reported: Reported,
}

impl Host {
    fn send(&mut self, now: Instant) -> Vec<BytesMut> {
        let mut datagrams = Vec::new();
        let Some((handle, connection)) = &mut self.hosted else {
            return datagrams;
        };
        let mut buf = Vec::new();
        while let Some(sent) = connection.poll_transmit(now, 1, &mut buf) {
            datagrams.push(BytesMut::from(&buf[..sent.size]));
            buf.clear();
        }
        while let Some(event) = connection.poll_endpoint_event() {
            self.endpoint.handle_event(*handle, event);
        }
        for datagram in &datagrams {
            self.reported.read(datagram.clone());
        }
        datagrams
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, data: BytesMut) {
        let four_tuple = FourTuple::new(self.address, from);
        let mark = Some(EcnCodepoint::Ect0);
        let mut buf = Vec::new();
        let event = self
            .endpoint
            .handle_datagram(now, four_tuple, mark, data, &mut buf);
        match event {
            Some(DatagramEvent::Connection(_, datagram)) => {
                let (_, connection) = self.hosted.as_mut().unwrap();
                connection.handle_datagram(datagram);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.hosted = self.endpoint.accept(now, incoming, &mut buf).ok();
            }
            _ => {}
        }
    }
}

/// RFC 9000 section 13.4.1: each packet number space has its own counts, and even an endpoint
/// without marks of its own reports received marks.
#[test]
#[expect(clippy::disallowed_methods, reason = "any point in time will do")]
fn rfc_9000_13_4_1_marks_are_reported_in_every_space() {
    for ecn in [true, false] {
        let mut options = TransportOptions::new(mpquic_sched::default(), mpquic_cc::default());
        options.ecn = ecn;
        let transport = Arc::new(options.build().unwrap());
        let crypto = NullCrypto::new(b"test");
        let server = Arc::new(crypto.clone().server(transport.clone()));
        let host = |key, address: &str, config| Host {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::new([key; 32])), config, [key; 32]),
            hosted: None,
            address: address.parse().unwrap(),
            reported: Reported::default(),
        };
        let mut client = host(1, "198.51.100.1:5000", None);
        let mut server = host(2, "192.0.2.1:443", Some(server));
        let mut now = Instant::now();
        let four_tuple = FourTuple::new(client.address, server.address);
        let connected = client
            .endpoint
            .connect(now, crypto.client(transport), four_tuple, "test");
        client.hosted = Some(connected.unwrap());
        for _ in 0..4 {
            // Longer than acknowledgements wait for company.
            now += Duration::from_millis(30);
            for datagram in client.send(now) {
                server.receive(now, client.address, datagram);
            }
            for datagram in server.send(now) {
                client.receive(now, server.address, datagram);
            }
        }
        for host in [&client, &server] {
            let (_, connection) = host.hosted.as_ref().unwrap();
            assert!(!connection.is_handshaking());
            let Reported {
                initial,
                handshake,
                one_rtt,
            } = &host.reported;
            assert!(!initial.is_empty() && !one_rtt.is_empty());
            // The server discards this space when the client's last packet in it arrives.
            assert_eq!(handshake.is_empty(), connection.side() == Side::Server);
            for counts in initial.iter().chain(handshake).chain(one_rtt) {
                assert!(counts.is_some_and(|ect0| ect0 > 0), "{:?}", host.reported);
            }
        }
    }
}
