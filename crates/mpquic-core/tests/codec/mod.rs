//! The wire formats through the public interface: golden encodings, malformed input, round trips.

mod frames;
mod headers;
mod round_trips;
mod transport_parameters;

use mpquic_core::{StreamId, VarInt};

/// Bytes from hexadecimal digits; everything else in `text` is ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let bytes = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
    bytes.collect()
}

fn stream_id(id: u64) -> StreamId {
    VarInt::from_u64(id).unwrap().into()
}
