//! Connection IDs of one path: those we issued and those the peer issued.

pub(crate) mod generator;
pub(crate) mod local;
pub(crate) mod peer;
mod retirements;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
