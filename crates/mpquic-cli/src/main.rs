//! The `mpquic` tool.
fn main() {}
