//! amplification.
