//! Who takes part.

use std::fmt;

use clap::ValueEnum;

/// What is measured next to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    Mpquic,
    Quinn,
}

impl Contestant {
    /// The package with its program, and the program.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Mpquic => "peer-mpquic",
            Self::Quinn => "peer-quinn",
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
