//! Sealing and opening 1-RTT packets: AES-128-GCM and header protection.

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mpquic_core::config::TransportConfig;
use mpquic_core::crypto::{Keys, Session};
use mpquic_core::testing::{self, PacketKeys};
use mpquic_core::unstable_wire::header::{PacketHeader, next_packet};
use mpquic_core::{ConnectionId, TransportParameters, Version};
use mpquic_sim::tls::{SERVER_NAME, Tls};

const CID: [u8; 8] = [7; 8];
const NUMBER: u64 = 1_000_000;

/// 1-RTT keys of both sides.
fn keys() -> (Keys, Keys) {
    let tls = Tls::new(b"bench");
    let transport = TransportConfig::new(mpquic_sched::default(), mpquic_cc::default());
    let transport = Arc::new(transport);
    let parameters = TransportParameters::default();
    let client = tls.client(transport.clone()).crypto;
    let client = client.start_session(Version::V1, SERVER_NAME, &parameters);
    let server = tls.server(transport).crypto.clone();
    let server = server.start_session(Version::V1, &parameters);
    let mut client = client.expect("the name is valid");
    let mut server = server.expect("TLS starts");
    let (mut client_keys, mut server_keys) = (Vec::new(), Vec::new());
    while client_keys.len() < 2 || server_keys.len() < 2 {
        client_keys.extend(flight(&mut *client, &mut *server));
        server_keys.extend(flight(&mut *server, &mut *client));
    }
    let last = |mut keys: Vec<Keys>| keys.pop().expect("the handshake is complete");
    (last(client_keys), last(server_keys))
}

/// Passes a flight of CRYPTO from one side to the other; returns the keys that `from` has got.
fn flight(from: &mut dyn Session, to: &mut dyn Session) -> Vec<Keys> {
    let mut all = Vec::new();
    loop {
        let mut data = Vec::new();
        let keys = from.write_handshake(&mut data);
        to.read_handshake(&data).expect("TLS agrees");
        let Some(keys) = keys else { return all };
        all.push(keys);
    }
}

fn protection(c: &mut Criterion) {
    let mut group = c.benchmark_group("packet");
    let (client, server) = keys();
    let sealing = PacketKeys {
        header: &*client.header.local,
        packet: &*client.packet.local,
    };
    let opening = PacketKeys {
        header: &*server.header.remote,
        packet: &*server.packet.remote,
    };
    let header = PacketHeader::Short {
        dcid: ConnectionId::new(&CID),
        spin: false,
        key_phase: false,
    };
    for size in [1200, 1452] {
        group.throughput(Throughput::Bytes(size as u64));
        // First byte, connection ID, one byte of packet number, tag.
        let payload = vec![0x5a; size - 1 - CID.len() - 1 - 16];
        let mut packet = Vec::with_capacity(size);
        group.bench_function(format!("seal/{size}"), |b| {
            b.iter(|| {
                packet.clear();
                let sealed = testing::seal(&mut packet, &header, NUMBER, &payload, sealing, size);
                assert_eq!(black_box(sealed), Some(size));
            });
        });
        group.bench_function(format!("open/{size}"), |b| {
            b.iter_batched(
                || BytesMut::from(&packet[..]),
                |mut datagram| {
                    let packet = next_packet(&mut datagram, CID.len()).expect("a packet");
                    testing::open(packet, NUMBER, opening).expect("the packet is authentic")
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, protection);
criterion_main!(benches);
