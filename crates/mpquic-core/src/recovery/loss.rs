//! loss.
