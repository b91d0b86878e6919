//! [`usable`]: whether a path can start from an interface now.

use mpquic_tokio::path_managers::fits_interface;

/// The addresses of interfaces from which paths may start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Usable {
    /// At least one is there.
    Some,
    /// All that are there have excluded interfaces.
    Excluded,
    /// None is there now.
    None,
}

/// The addresses that are there now, without those of excluded interfaces or patterns.
pub(super) fn usable(excluded: &[String]) -> Usable {
    let there = mpquic_tokio::usable_addresses().unwrap_or_default();
    let is_excluded = |name: &str| excluded.iter().any(|one| fits_interface(one, name));
    if there.is_empty() {
        Usable::None
    } else if there.iter().all(|one| is_excluded(&one.name)) {
        Usable::Excluded
    } else {
        Usable::Some
    }
}
