//! local.
