//! crypto_stream.
