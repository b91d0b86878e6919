//! tokens.
