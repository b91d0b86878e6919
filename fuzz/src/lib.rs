//! What fuzz targets share: values to make structured inputs of.

pub mod frames;
pub mod http3;
pub mod number;
pub mod table;
