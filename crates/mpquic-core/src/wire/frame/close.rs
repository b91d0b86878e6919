//! close.
