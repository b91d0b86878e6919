//! connection_id.
