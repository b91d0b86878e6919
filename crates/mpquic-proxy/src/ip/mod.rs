//! IP packets as bytes.

pub(crate) mod checksum;
pub(crate) mod echo;
pub(crate) mod header;
