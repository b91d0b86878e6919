//! The scenarios that come with the crate: the experiments of the papers.

/// A scenario that comes with the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name.
    pub id: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! files {
    ($($id:literal)*) => {
        &[$(BuiltIn {
            id: $id,
            text: include_str!(concat!("../../scenarios/", $id, ".toml")),
        }),*]
    };
}

static FILES: &[BuiltIn] = files! {
    "etc-l-hhlh"
    "ns3-dom"
};

/// All scenarios that come with the crate.
pub fn built_in() -> &'static [BuiltIn] {
    FILES
}
