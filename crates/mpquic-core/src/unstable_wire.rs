//! Wire formats for tests, benchmarks and fuzz targets outside this crate. This module is no part
//! of the interface: anything here may change at any time, without notice.
//!
//! Programs find what they need elsewhere: the frames in logs in [`qlog`](crate::qlog), the
//! transport parameters for crypto providers at the crate's root.

pub use crate::range_set::RangeSet;

/// Frames, and how they are written and read.
pub mod frame {
    pub use crate::wire::frame::*;
}

/// Packet headers, and how they are written and read.
pub mod header {
    pub use crate::wire::header::*;
}
