//! Packets sent and not yet resolved.
