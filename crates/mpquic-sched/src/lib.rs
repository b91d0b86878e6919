//! mpquic-sched.
