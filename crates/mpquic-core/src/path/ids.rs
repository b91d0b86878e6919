//! ids.
