//! validation.
