//! Path managers on connections in virtual time.

mod plan;
mod wrong_managers;
