//! reset.
