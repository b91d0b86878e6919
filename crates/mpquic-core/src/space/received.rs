//! Packets received: duplicates, and ranges to acknowledge.
