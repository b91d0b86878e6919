//! stream.
