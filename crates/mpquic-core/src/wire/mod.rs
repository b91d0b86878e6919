//! Bytes to values and back: no state, no time.

pub(crate) mod buf;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod packet_number;
pub(crate) mod transport_parameters;
