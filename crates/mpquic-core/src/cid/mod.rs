//! Connection IDs of one path: those we issued and those the peer issued.

pub(crate) mod generator;
pub(crate) mod local;
pub(crate) mod peer;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
