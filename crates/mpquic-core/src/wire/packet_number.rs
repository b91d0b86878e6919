//! Truncated packet numbers (RFC 9000 section 17.1, appendices A.2 and A.3).

/// Bytes, 1 to 4, that let the peer recover `packet_number` when it has acknowledged
/// `largest_acked`: enough for twice the distance.
pub fn encoded_length(packet_number: u64, largest_acked: Option<u64>) -> usize {
    let unacked = match largest_acked {
        Some(largest) => packet_number.saturating_sub(largest),
        None => packet_number.saturating_add(1),
    };
    let bits = unacked.max(1).ilog2() + if unacked.is_power_of_two() { 0 } else { 1 } + 1;
    (bits.div_ceil(8) as usize).clamp(1, 4)
}

/// Appends the low `length` bytes, 1 to 4, of `packet_number`.
pub fn put(out: &mut Vec<u8>, packet_number: u64, length: usize) {
    debug_assert!((1..=4).contains(&length));
    out.extend_from_slice(&(packet_number as u32).to_be_bytes()[4 - length.clamp(1, 4)..]);
}

/// The packet number closest to `expected_next`, the largest one opened plus one, whose low
/// `length` bytes are `truncated`.
pub fn expand(truncated: u32, length: usize, expected_next: u64) -> u64 {
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
