//! incoming.
