//! Bytes to values and back: no state, no time.

pub mod buf;
pub mod frame;
pub mod header;
pub mod packet_number;
pub mod transport_parameters;
