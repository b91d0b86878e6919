//! rtt.
