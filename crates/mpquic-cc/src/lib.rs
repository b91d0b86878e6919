//! mpquic-cc.
