//! range_set.
