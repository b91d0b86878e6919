//! pacer.
