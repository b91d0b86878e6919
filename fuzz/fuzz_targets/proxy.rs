//! Messages of strangers to a proxy: capsules in pieces, SOCKS messages, targets. Capsules agree
//! with a model that has all bytes at once. Capsules of CONNECT-IP and of bound UDP survive writing
//! and reading. Further bytes do not change the reading of a SOCKS message. A target survives each
//! of its forms.

#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use capsule::{Capsules, take_varint, udp_capsule, udp_payload};
use libfuzzer_sys::fuzz_target;
use target::Target;

#[path = "../../crates/mpquic-proxy/src/bound.rs"]
#[allow(dead_code, reason = "the proxy needs all of it")]
mod bound;
#[path = "../../crates/mpquic-proxy/src/capsule.rs"]
#[allow(dead_code, reason = "the proxy needs all of it")]
mod capsule;
#[path = "../../crates/mpquic-proxy/src/ip_capsule.rs"]
mod ip_capsule;
#[path = "../../crates/mpquic-proxy/src/client/socks.rs"]
#[allow(dead_code, reason = "the proxy needs all of it")]
mod socks;
#[path = "../../crates/mpquic-proxy/src/target.rs"]
#[allow(dead_code, reason = "the proxy needs all of it")]
mod target;

/// Longest accepted datagram in a capsule.
const MAX_DATAGRAM: u64 = 8 + 65_527;

#[derive(Debug, Arbitrary)]
enum Part {
    Datagram(Vec<u8>),
    Bytes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Input {
    capsules: Vec<Part>,
    /// Where pieces end.
    pieces: Vec<u8>,
    message: Vec<u8>,
    name: String,
}

fuzz_target!(|input: Input| {
    check_capsules(&input);
    check_capsules_of_ip(&input);
    check_bound(&input.message);
    check_socks(&input.message);
    check_target(&input.name);
});

fn check_capsules(input: &Input) {
    let stream: Vec<u8> = (input.capsules.iter())
        .flat_map(|part| match part {
            Part::Datagram(payload) => udp_capsule(payload).to_vec(),
            Part::Bytes(bytes) => bytes.clone(),
        })
        .collect();
    let (expected, may_end) = model(&stream);
    let mut capsules = Capsules::default();
    let mut found = Vec::new();
    let mut rest = Bytes::from(stream);
    let mut pieces = input.pieces.iter().chain(std::iter::repeat(&255));
    while !rest.is_empty() {
        let length = usize::from(*pieces.next().unwrap_or(&255)).max(1);
        capsules.push(rest.split_to(length.min(rest.len())));
        while let Some(datagram) = capsules.next() {
            found.push(datagram.to_vec());
        }
    }
    assert_eq!(found, expected);
    assert_eq!(capsules.may_end(), may_end);
    for datagram in &found {
        if let Some(payload) = udp_payload(datagram) {
            assert!(datagram.ends_with(payload) && payload.len() < datagram.len());
        }
    }
}

fn check_capsules_of_ip(input: &Input) {
    let mut capsules = Capsules::of_ip();
    for part in &input.capsules {
        let (Part::Datagram(bytes) | Part::Bytes(bytes)) = part;
        capsules.push(Bytes::copy_from_slice(bytes));
        loop {
            match capsules.take() {
                Ok(Some((kind, value))) => check_told(kind, &value),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    // Bytes that are no capsule are parsed as well.
    for kind in 1..=3 {
        check_told(kind, &input.message);
    }
}

fn check_told(kind: u64, value: &[u8]) {
    let Ok(Some(told)) = ip_capsule::parse(kind, value) else {
        return;
    };
    let mut capsules = Capsules::of_ip();
    capsules.push(told.to_capsule());
    let (again, written) = capsules.take().unwrap().unwrap();
    // The input may have encoded numbers in more bytes than necessary.
    assert!(again == kind && written.len() <= value.len() && capsules.may_end());
    assert_eq!(ip_capsule::parse(kind, &written), Ok(Some(told)));
}

fn check_bound(message: &[u8]) {
    for kind in [bound::ASSIGN, bound::ACK, bound::CLOSE] {
        let Ok(Some(told)) = bound::parse(kind, message) else {
            continue;
        };
        let mut capsules = Capsules::of_bound();
        capsules.push(told.to_capsule());
        let (again, written) = capsules.take().unwrap().unwrap();
        assert!(again == kind && written.len() <= message.len() && capsules.may_end());
        assert_eq!(bound::parse(kind, &written), Ok(Some(told)));
        let mut contexts = bound::Contexts::default();
        if let bound::Told::Assign(context, peer) = told {
            contexts.insert(context, peer).unwrap();
            assert!(contexts.insert(context, peer).is_err());
            if let Some((from, payload)) = contexts.read(message) {
                assert!(message.ends_with(payload));
                let mut header = Vec::new();
                assert!(contexts.put_header(&mut header, from));
                assert_eq!(contexts.read(&header), Some((from, &[][..])));
            }
        }
    }
}

/// The datagrams of a whole stream, and whether it ends between two capsules.
fn model(mut stream: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut found = Vec::new();
    while !stream.is_empty() {
        let header = take_varint(&mut stream).zip(take_varint(&mut stream));
        let Some((kind, length)) = header else {
            return (found, false);
        };
        let whole = usize::try_from(length).ok();
        let Some((payload, rest)) = whole.and_then(|length| stream.split_at_checked(length)) else {
            return (found, false);
        };
        if kind == 0 && length <= MAX_DATAGRAM {
            found.push(payload.to_vec());
        }
        stream = rest;
    }
    (found, true)
}

fn check_socks(message: &[u8]) {
    if let Ok(Some((_, length))) = socks::greeting(message) {
        assert!(length <= message.len());
        assert_eq!(
            socks::greeting(&message[..length]),
            socks::greeting(message)
        );
        assert_eq!(socks::greeting(&message[..length - 1]), Ok(None));
    }
    if let Ok(Some((_, length))) = socks::request(message) {
        assert!(length <= message.len().min(socks::MAX_MESSAGE));
        assert_eq!(socks::request(&message[..length]), socks::request(message));
        assert!(!matches!(
            socks::request(&message[..length - 1]),
            Ok(Some(_))
        ));
    }
    if let Some((target, start)) = socks::udp_packet(message) {
        assert!(start <= message.len());
        let header = socks::udp_header(&target);
        assert_eq!(socks::udp_packet(&header), Some((target, header.len())));
    }
}

fn check_target(name: &str) {
    if let Ok(target) = name.parse::<Target>() {
        assert_eq!(target.to_string().parse(), Ok(target.clone()));
        assert_eq!(Target::from_udp_path(&target.udp_path()), Ok(target));
    }
    if let Ok(target) = Target::from_udp_path(name) {
        assert_eq!(Target::from_udp_path(&target.udp_path()), Ok(target));
    }
}
