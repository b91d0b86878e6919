//! Wire formats as the tests, benchmarks and fuzz targets around the core need them. No part of the
//! interface: anything here may change at any time, without notice.
//!
//! What programs may name lies elsewhere: the frames that logs show in [`qlog`](crate::qlog), the
//! transport parameters that crypto providers carry at the root.

pub use crate::range_set::RangeSet;

/// Frames, and how they are written and read.
pub mod frame {
    pub use crate::wire::frame::*;
}

/// Packet headers, and how they are written and read.
pub mod header {
    pub use crate::wire::header::*;
}
