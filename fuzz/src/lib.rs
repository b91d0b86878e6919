//! Parts that fuzz targets share: values for structured inputs.

pub mod frames;
pub mod http3;
pub mod number;
pub mod table;
