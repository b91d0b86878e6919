//! path.
