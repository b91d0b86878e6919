//! datagrams.
