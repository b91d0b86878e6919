//! Tests of the crate's interface: its names, and what handles, streams and errors do.

mod endpoints;
mod ends;
mod harness;
mod interop;
mod names;
mod streams;
