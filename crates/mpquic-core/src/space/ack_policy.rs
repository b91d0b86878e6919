//! When an acknowledgement is due.
