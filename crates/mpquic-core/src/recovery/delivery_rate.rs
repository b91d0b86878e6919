//! delivery_rate.
