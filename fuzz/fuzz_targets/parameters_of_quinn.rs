//! Decodes transport parameters with our code and with quinn's code: both must accept the same
//! parameters. Parameters that quinn has read and written again must mean the same to our code.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mpquic_core::{Side, TransportParameters};
use quinn_proto::coding::Codec;
use quinn_proto::transport_parameters::TransportParameters as Quinn;

fuzz_target!(|bytes: &[u8]| {
    let Some(common) = common(bytes) else {
        return;
    };
    for sender in [Side::Client, Side::Server] {
        let ours = TransportParameters::decode(sender, &common);
        let theirs = Quinn::read(!sender, &mut &common[..]);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                let mut written = Vec::new();
                theirs.write(&mut written);
                let again = TransportParameters::decode(sender, &written).expect("quinn's own");
                assert_eq!(again, ours);
            }
            (Ok(ours), Err(error)) => panic!("quinn: {error}; {ours:?}"),
            (Err(error), Ok(theirs)) => panic!("{error}; quinn: {theirs:?}"),
            (Err(_), Err(_)) => {}
        }
    }
});

/// The parameters that both know. `None` if the content is cut, or if a number is longer than
/// necessary: quinn refuses such a number, RFC 9000 section 16 allows it.
fn common(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut common = Vec::new();
    let mut flags = std::collections::BTreeSet::new();
    while !bytes.is_empty() {
        let start = bytes;
        let id = u64::from(quinn_proto::VarInt::decode(&mut bytes).ok()?);
        let length = u64::from(quinn_proto::VarInt::decode(&mut bytes).ok()?);
        let (value, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
        bytes = rest;
        if matches!(id, 0x01 | 0x03..=0x0b | 0x0e) && !is_shortest(value) {
            return None;
        }
        // quinn lets flags stand twice (RFC 9000 section 7.4: SHOULD be an error).
        if matches!(id, 0x0c | 0x2ab2) && !flags.insert(id) {
            return None;
        }
        // A preferred address of neither family: quinn refuses it, RFC 9000 says nothing.
        if id == 0x0d && value.iter().take(24).all(|byte| *byte == 0) {
            return None;
        }
        if matches!(id, 0..=0x10 | 0x20 | 0x2ab2) {
            common.extend_from_slice(&start[..start.len() - bytes.len()]);
        }
    }
    Some(common)
}

fn is_shortest(mut value: &[u8]) -> bool {
    let length = value.len();
    match quinn_proto::VarInt::decode(&mut value) {
        Ok(number) => value.is_empty() && shortest(number.into_inner()) == length,
        Err(_) => true,
    }
}

fn shortest(number: u64) -> usize {
    match number {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}
