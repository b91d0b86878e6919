//! mpquic-tokio.
