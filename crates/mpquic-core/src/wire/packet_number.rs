//! Truncated packet numbers (RFC 9000 section 17.1, appendices A.2 and A.3).

/// Bytes, 1 to 4, that let the peer recover `packet_number` when it has acknowledged
/// `largest_acked`: enough for twice the distance.
pub(crate) fn encoded_length(packet_number: u64, largest_acked: Option<u64>) -> usize {
    let unacked = match largest_acked {
        Some(largest) => packet_number.saturating_sub(largest),
        None => packet_number.saturating_add(1),
    };
    let bits = unacked.max(1).ilog2() + if unacked.is_power_of_two() { 0 } else { 1 } + 1;
    (bits.div_ceil(8) as usize).clamp(1, 4)
}

/// Appends the low `length` bytes, 1 to 4, of `packet_number`.
pub(crate) fn put(out: &mut Vec<u8>, packet_number: u64, length: usize) {
    debug_assert!((1..=4).contains(&length));
    let length = length.clamp(1, 4);
    // Four bytes are cheaper to append than a number of them that only the running program knows.
    let leading = (packet_number as u32) << (8 * (4 - length));
    out.extend_from_slice(&leading.to_be_bytes());
    out.truncate(out.len() - (4 - length));
}

/// The packet number closest to `expected_next`, the largest one opened plus one, whose low
/// `length` bytes are `truncated`.
pub(crate) fn expand(truncated: u32, length: usize, expected_next: u64) -> u64 {
    let window = 1u64 << (8 * length.clamp(1, 4));
    let half = window / 2;
    let candidate = (expected_next & !(window - 1)) | (u64::from(truncated) & (window - 1));
    if candidate.saturating_add(half) <= expected_next && candidate < (1 << 62) - window {
        candidate + window
    } else if candidate > expected_next.saturating_add(half) && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 9000 section 17.1 and appendix A.2.
    #[test]
    fn sample_lengths() {
        assert_eq!(encoded_length(0xac_5c02, Some(0xab_e8b3)), 2);
        assert_eq!(encoded_length(0xac_e8fe, Some(0xab_e8b3)), 3);
        assert_eq!(encoded_length(0, None), 1);
        assert_eq!(encoded_length(127, None), 1);
        assert_eq!(encoded_length(128, None), 2);
        assert_eq!(encoded_length(5, Some(9)), 1);
        assert_eq!(encoded_length(u64::MAX, None), 4);
    }

    /// RFC 9000 appendix A.3.
    #[test]
    fn sample_expansion() {
        assert_eq!(expand(0x9b32, 2, 0xa82f_30ea + 1), 0xa82f_9b32);
    }

    #[test]
    fn expansion_stays_in_the_number_space() {
        assert_eq!(expand(0xff, 1, 0), 0xff);
        assert_eq!(expand(0xff, 1, 0x100), 0xff);
        assert_eq!(expand(0, 1, 0xff), 0x100);
        assert_eq!(expand(0, 1, (1 << 62) - 1), (1 << 62) - 0x100);
        let _ = expand(u32::MAX, 4, u64::MAX);
    }

    #[test]
    fn low_bytes_are_written() {
        let mut out = Vec::new();
        put(&mut out, 0x0102_0304_0506, 3);
        assert_eq!(out, [4, 5, 6]);
    }

    proptest! {
        /// Whatever the receiver has opened of the packets sent since the last acknowledgement.
        #[test]
        fn truncation_can_be_undone(
            acked in prop::option::of(0u64..1 << 62),
            distance in 1u64..1 << 31,
            opened in 0.0f64..1.0,
        ) {
            let first = acked.map_or(0, |acked| acked + 1);
            let packet_number = (first + distance - 1).min((1 << 62) - 1);
            let length = encoded_length(packet_number, acked);
            let truncated = packet_number & (u64::MAX >> (64 - 8 * length));
            let expected = first + (opened * packet_number.saturating_sub(first) as f64) as u64;
            prop_assert_eq!(expand(truncated as u32, length, expected), packet_number);
        }
    }
}
