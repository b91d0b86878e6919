//! rustls.
