//! mpquic-sim.
