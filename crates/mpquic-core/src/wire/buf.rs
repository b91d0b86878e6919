//! wire/buf
