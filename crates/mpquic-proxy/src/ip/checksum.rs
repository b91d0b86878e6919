//! The Internet checksum (RFC 1071), and its update for replaced addresses (RFC 1624).

use std::net::IpAddr;

/// Adds 16-bit words in network order; an odd byte at the end counts as if a zero followed.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
        [high] => u64::from(*high) << 8,
        _ => 0,
    });
    sum + words.sum::<u64>()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// The sum of these bytes. The result is 0xffff if the bytes include their right checksum.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    fold(add(0, bytes))
}

/// The sum over a pseudo header of TCP, UDP or ICMPv6 (RFC 9293 section 3.1, RFC 8200 section 8.1),
/// and over the bytes.
pub(crate) fn transport_sum(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    bytes: &[u8],
) -> u16 {
    let mut sum = u64::from(protocol) + bytes.len() as u64;
    for address in [source, destination] {
        sum = match address {
            IpAddr::V4(v4) => add(sum, &v4.octets()),
            IpAddr::V6(v6) => add(sum, &v6.octets()),
        };
    }
    fold(add(sum, bytes))
}

/// The sum after a replacement of some words.
pub(crate) fn replaced(sum: u16, old: &[u8], new: &[u8]) -> u16 {
    // In ones' complement, adding the inverse of a word subtracts the word.
    let words = old.len().div_ceil(2) as u64;
    let taken = words * 0xffff - add(0, old);
    fold(add(u64::from(sum) + taken, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_rfc_1071() {
        // The example of its section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[0xff; 4]), 0xffff);
    }

    #[test]
    fn sum_after_a_replacement_is_the_sum_of_the_new_bytes() {
        let whole = [0x45, 0x00, 0x12, 0x34, 0xff, 0xff, 0x00, 0x01, 0xab, 0xcd];
        for new in [[0; 4], [0xff; 4], [1, 2, 3, 4], [0xff, 0xff, 0, 0]] {
            let mut after = whole;
            after[4..8].copy_from_slice(&new);
            assert_eq!(
                replaced(sum(&whole), &whole[4..8], &new),
                sum(&after),
                "{new:?}"
            );
        }
    }
}
