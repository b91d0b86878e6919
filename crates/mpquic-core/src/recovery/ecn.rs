//! ecn.
