//! Numbers of things.

use std::fmt::Display;

/// A number and a noun: "1 file", "2 files", "0 directories". The noun is in the singular, and
/// takes `s`, or `ies` in the place of `y`, for every number but 1.
pub(crate) fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if number == N::from(1) => format!("{number} {noun}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let files = [0, 1, 2, 11].map(|number: usize| count(number, "file"));
        assert_eq!(files, ["0 files", "1 file", "2 files", "11 files"]);
        let directories = [0, 1, 2].map(|number: u64| count(number, "directory"));
        assert_eq!(
            directories,
            ["0 directories", "1 directory", "2 directories"]
        );
    }
}
