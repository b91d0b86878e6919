//! key_phase.
