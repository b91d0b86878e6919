//! Removing packet protection.
