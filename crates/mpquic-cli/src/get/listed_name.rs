//! Names of the files and directories that a server lists.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use crate::files::directory_page::{Kind, Listed};
use crate::get::part_name::wholes;
use crate::process::failure::{Cause, Failure};

/// Longest name of a file or directory, bytes.
pub(crate) const LONGEST_NAME: usize = 255;
/// The most characters of a name in a message: a server may list names of any length.
const MOST_SHOWN: usize = 300;

/// The name of a listed file or directory here, and whether it is a directory. `names` holds
/// earlier names of the same directory.
pub(crate) fn taken(
    entry: &Listed,
    dot_files: bool,
    names: &mut HashSet<Vec<u8>>,
) -> Result<(OsString, bool), Failure> {
    let shown = shown(&entry.name);
    let is_directory = match entry.kind {
        Kind::File => false,
        Kind::Directory => true,
        Kind::More => {
            let told = "the server lists only a part of the directory";
            return Err(Cause::Content.failed(told));
        }
        Kind::Other => {
            let told = format!(
                "`{shown}` is left out: the server says that it is neither file nor directory, \
                 or a link that leads nowhere"
            );
            return Err(Cause::Content.failed(told));
        }
    };
    let Some(name) = entry.file_name().filter(|name| is_plain_name(name)) else {
        let told = format!("a file here cannot have the name `{shown}`");
        return Err(Cause::Content.failed(told));
    };
    if !dot_files && name.as_encoded_bytes().starts_with(b".") {
        let told = format!("`{shown}` is left out: --dot-files fetches it");
        return Err(Cause::Content.failed(told));
    }
    if !names.insert(name.as_encoded_bytes().to_vec()) {
        let told = format!("`{shown}` is listed twice");
        return Err(Cause::Content.failed(told));
    }
    Ok((name, is_directory))
}

/// A name for a message, with escapes.
fn shown(name: &str) -> String {
    let mut escaped = name.escape_debug();
    let mut shown: String = escaped.by_ref().take(MOST_SHOWN).collect();
    if escaped.next().is_some() {
        shown += "...";
    }
    shown
}

/// True for names of one file in a directory, on this system.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_special = matches!(name, "" | "." | "..");
    !is_special && !name.contains(|c: char| std::path::is_separator(c) || c.is_control())
}

/// The file name with these bytes, which are not UTF-8; `None` for separators, control characters,
/// and systems other than Unix.
pub(crate) fn of_bytes(name: Vec<u8>) -> Option<OsString> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt as _;
        let is_other = |byte: &u8| *byte == b'/' || byte.is_ascii_control();
        (!name.iter().any(is_other)).then(|| OsString::from_vec(name))
    }
    #[cfg(not(unix))]
    {
        let _ = name;
        None
    }
}

/// The same for names in lists, byte for byte: a file on Unix may have control characters in its
/// name.
fn is_plain_name(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let is_possible = match cfg!(unix) {
        true => !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(|b| b"/\0".contains(b)),
        // In a name that is not UTF-8, the other bytes are neither separators nor control
        // characters.
        false => is_plain(&name.to_string_lossy()),
    };
    name.len() <= LONGEST_NAME && is_possible
}

/// True for a name that the part of one of these files, or the note about it, may have meanwhile.
pub(crate) fn is_part(name: &OsStr, names: &HashSet<Vec<u8>>) -> bool {
    wholes(name.as_encoded_bytes()).any(|whole| names.contains(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_directory() {
        for name in ["a", "a b", ".hidden", "...", "ä", "-rf", "a\\b"] {
            assert_eq!(is_plain(name), name != "a\\b" || !cfg!(windows), "{name}");
        }
        for name in ["", ".", "..", "a/b", "/etc", "../a", "a\0", "a\n"] {
            assert!(!is_plain(name), "{name:?}");
        }
        for name in ["a\n", "\u{1b}[1m", "\u{7f}", "\u{202e}"] {
            assert_eq!(
                is_plain_name(OsStr::new(name)),
                cfg!(unix) || is_plain(name)
            );
        }
        for name in ["", ".", "..", "a/b", "\n/../x", "a\0"] {
            assert!(!is_plain_name(OsStr::new(name)), "{name:?}");
        }
        assert!(is_plain_name(OsStr::new(&"x".repeat(255))));
        assert!(!is_plain_name(OsStr::new(&"x".repeat(256))));
    }

    /// A list of 16 MiB may be a single name.
    #[test]
    fn messages_show_the_beginning_of_a_long_name() {
        for kind in [Kind::File, Kind::Other] {
            let entry = Listed::named("\u{7f}".repeat(1 << 20).as_ref(), kind);
            let failure = taken(&entry, true, &mut HashSet::new()).unwrap_err();
            let message = failure.message();
            assert!(message.contains(r"\u{7f}...`"), "{message}");
            assert!(message.len() < 500, "{}", message.len());
        }
    }

    #[test]
    fn no_file_is_another_ones_part() {
        let names = ["a", "a.part", "b.part", "c.part.json", "c"];
        let names = names.map(|name| name.as_bytes().to_vec());
        let names = HashSet::from(names);
        for (name, expected) in [
            ("a", false),
            ("a.part", true),
            ("b.part", false),
            ("c.part.json", true),
            ("c.part.json.new", true),
            ("a.2.part", true),
            ("a.2.part.json", true),
            ("b.2.part", false),
            ("a.2x.part", false),
            ("a.new", false),
            ("a.part.new", false),
            ("a.json", false),
        ] {
            assert_eq!(is_part(OsStr::new(name), &names), expected, "{name}");
        }
    }
}
