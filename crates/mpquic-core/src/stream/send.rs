//! send.
