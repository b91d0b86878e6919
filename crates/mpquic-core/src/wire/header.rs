//! wire/header
