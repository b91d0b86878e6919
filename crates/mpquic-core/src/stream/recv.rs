//! recv.
