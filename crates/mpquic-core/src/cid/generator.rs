//! generator.
