//! Any content of the TLS extension: decoded parameters stay the same after encoding and decoding.
//! Neither the order nor unknown parameters matter, and no parameter may come twice.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mpquic_core::{Side, TransportParameters};

fuzz_target!(|bytes: &[u8]| {
    for sender in [Side::Client, Side::Server] {
        let decoded = TransportParameters::decode(sender, bytes);
        let Some(all) = split(bytes) else {
            assert!(decoded.is_err(), "they are cut");
            continue;
        };
        let reversed: Vec<u8> = all
            .iter()
            .rev()
            .flat_map(|(_, bytes)| *bytes)
            .copied()
            .collect();
        let again = TransportParameters::decode(sender, &reversed);
        let Ok(parameters) = decoded else {
            assert!(again.is_err(), "only the order is another");
            continue;
        };
        assert_eq!(again.as_ref(), Ok(&parameters), "in another order");

        let mut out = Vec::new();
        parameters.encode(sender, &mut out);
        assert_eq!(
            TransportParameters::decode(sender, &out),
            Ok(parameters.clone())
        );
        // The encoding is the shortest and the only one.
        let mut twice = Vec::new();
        parameters.encode(sender, &mut twice);
        assert_eq!(out, twice);

        // 31 * 5 + 27 is reserved for being ignored (RFC 9000 section 18.1).
        let reserved = [&[0x40, 182, 3, 1, 2, 3][..], bytes].concat();
        assert_eq!(
            TransportParameters::decode(sender, &reserved),
            Ok(parameters)
        );
        for (id, parameter) in all.iter().filter(|(id, _)| is_known(*id)) {
            let doubled = [bytes, parameter].concat();
            let result = TransportParameters::decode(sender, &doubled);
            assert!(result.is_err(), "parameter {id:#x} came twice");
        }
    }
});

fn is_known(id: u64) -> bool {
    matches!(
        id,
        0..=0x11 | 0x1d | 0x20 | 0x3e | 0x2ab2 | 0xff04_de1b | 0xff_0969_d85c
    )
}

/// The parameters with their IDs; `None` if they are cut.
fn split(mut bytes: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let start = bytes;
        let id = varint(&mut bytes)?;
        let length = usize::try_from(varint(&mut bytes)?).ok()?;
        bytes = bytes.get(length..)?;
        all.push((id, &start[..start.len() - bytes.len()]));
    }
    Some(all)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (first, _) = bytes.split_first()?;
    let length = 1 << (first >> 6);
    let (varint, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let value = varint
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (64 + 2 - 8 * length)))
}
