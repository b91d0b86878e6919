//! Benchmarks of mpquic; see `benches/` and `RESULTS.md`.
