//! set.
