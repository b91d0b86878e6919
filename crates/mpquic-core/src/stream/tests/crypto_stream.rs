//! CRYPTO of one level.

use proptest::prelude::*;

use super::*;
use crate::stream::crypto_stream::CryptoStream;
use crate::wire::frame::Crypto;

fn crypto_packet(stream: &mut CryptoStream, room: usize) -> Option<Packet> {
    packet(room, |writer| stream.write_frames(writer))
}

fn give_crypto(stream: &mut CryptoStream, packet: &Packet, limit: usize) {
    for frame in packet.frames() {
        let Frame::Crypto(frame) = frame else {
            unreachable!("only CRYPTO is written")
        };
        stream.on_crypto(frame, limit).expect("within the buffer");
    }
}

/// RFC 9000 section 7.5.
#[test]
fn the_buffer_is_bounded() {
    let crypto = |offset, length| Crypto {
        offset,
        data: Bytes::from(bytes_of(offset..offset + length)),
    };
    let mut stream = CryptoStream::default();
    assert_eq!(stream.on_crypto(crypto(96, 4), 100), Ok(()));
    let result = stream.on_crypto(crypto(96, 5), 100);
    fails_with(result, Fault::CryptoBeyondBuffer);
    assert_eq!(stream.on_crypto(crypto(0, 50), 100), Ok(()));
    assert_eq!(stream.read().as_deref(), Some(&bytes_of(0..50)[..]));
    assert_eq!(stream.unread(), 4);
    assert_eq!(stream.on_crypto(crypto(140, 10), 100), Ok(()));
}

/// RFC 9000 sections 7.5 and 21.6: whoever sends single bytes does not make us hold hundreds for
/// each.
#[test]
fn gaps_are_bounded() {
    let mut stream = CryptoStream::default();
    let mut gaps = 0;
    let result = loop {
        let byte = Crypto {
            offset: 1 + 2 * gaps,
            data: Bytes::from_static(&[0]),
        };
        match stream.on_crypto(byte, 64 << 10) {
            Ok(()) => gaps += 1,
            Err(error) => break Err::<(), _>(error),
        }
    };
    fails_with(result, Fault::CryptoGaps);
    assert_eq!(gaps, 256);
}

#[test]
fn bytes_that_wait_pin_no_datagram() {
    let datagram = Bytes::from(vec![0; 64 << 10]);
    let mut stream = CryptoStream::default();
    let frame = Crypto {
        offset: 1,
        data: datagram.slice(100..1200),
    };
    assert_eq!(stream.on_crypto(frame, 4096), Ok(()));
    assert!(datagram.is_unique());
}

#[test]
fn a_small_packet_takes_a_part() {
    let mut sender = CryptoStream::default();
    assert!(!sender.wants_to_send());
    sender.write(Bytes::from(bytes_of(0..300)));
    assert!(crypto_packet(&mut sender, 4).is_none());
    let first = crypto_packet(&mut sender, 100).expect("room");
    assert!(sender.wants_to_send());
    let second = crypto_packet(&mut sender, 1200).expect("room");
    assert!(!sender.wants_to_send() && sender.is_unacked());
    let mut receiver = CryptoStream::default();
    give_crypto(&mut receiver, &second, 4096);
    assert_eq!(receiver.read(), None);
    give_crypto(&mut receiver, &first, 4096);
    let mut read = Vec::new();
    while let Some(bytes) = receiver.read() {
        read.extend_from_slice(&bytes);
    }
    assert_eq!(read, bytes_of(0..300));
    // After Retry, or to probe, all of it goes again; once acknowledged, nothing does.
    sender.resend();
    assert!(sender.wants_to_send());
    for &delivery in first.deliveries.iter().chain(&second.deliveries) {
        sender.on_delivery(delivery.of_crypto(), Fate::Acked);
    }
    assert!(!sender.wants_to_send() && !sender.is_unacked());
}

proptest! {
    #[test]
    fn every_byte_arrives_over_a_lossy_channel(
        length in 1u64..20_000,
        fates in prop::collection::vec((20usize..600, any::<bool>(), any::<bool>()), 1..60),
    ) {
        let (mut sender, mut receiver) = (CryptoStream::default(), CryptoStream::default());
        sender.write(Bytes::from(bytes_of(0..length)));
        let mut read = Vec::new();
        let lossless = std::iter::repeat((600, true, true));
        for (room, arrives, acked) in fates.into_iter().chain(lossless) {
            let Some(packet) = crypto_packet(&mut sender, room) else { break };
            if arrives {
                give_crypto(&mut receiver, &packet, 1 << 16);
            }
            let fate = if arrives && acked { Fate::Acked } else { Fate::Lost };
            for &delivery in &packet.deliveries {
                sender.on_delivery(delivery.of_crypto(), fate);
            }
            while let Some(bytes) = receiver.read() {
                read.extend_from_slice(&bytes);
            }
        }
        prop_assert_eq!(read, bytes_of(0..length));
        prop_assert!(!sender.is_unacked());
    }
}
