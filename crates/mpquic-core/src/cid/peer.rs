//! peer.
