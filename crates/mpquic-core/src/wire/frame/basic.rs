//! basic.
