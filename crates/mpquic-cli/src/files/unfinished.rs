//! Names and locks of the files of unfinished uploads. The server neither lists nor sends these
//! files, and no client may choose such a name.

use std::ffi::OsStr;
use std::fs::File;

/// The start of the name of an unfinished file, and of its note.
pub(crate) const PREFIX: &str = ".mpquic-put-";
/// The end of the name of a note, after the token.
const NOTE: &str = ".note";
/// Length of a token, bytes.
const RANDOM: usize = 16;

/// True for the name of an unfinished file or of its note.
pub(crate) fn is_unfinished(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    // A file system that ignores case also finds the file if the prefix is in capitals.
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

/// The secret name of an upload that can be resumed. Only the upload's client learns the token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Token(String);

impl Token {
    /// A random token.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut random = [0; RANDOM];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        Ok(Self(crate::text::hex::hex(&random)))
    }

    /// The token with this text; `None` unless the text has 32 hexadecimal digits in small letters.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 2 * RANDOM && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The token in the name of an unfinished file; `None` for a file that cannot be resumed.
    pub(crate) fn of_file(name: &OsStr) -> Option<Self> {
        Self::parse(name.to_str()?.strip_prefix(PREFIX)?)
    }

    /// The token in the name of a note; `None` for other files.
    pub(crate) fn of_note(name: &OsStr) -> Option<Self> {
        Self::of_file(name.to_str()?.strip_suffix(NOTE)?.as_ref())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the unfinished file.
    pub(crate) fn file_name(&self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// The name of the note about the unfinished file.
    pub(crate) fn note_name(&self) -> String {
        format!("{PREFIX}{}{NOTE}", self.0)
    }
}

/// Locks a file for this process until the file is closed. False if the lock is taken: by another
/// process, or by another open handle of this process.
pub(crate) fn lock(file: &File) -> bool {
    #[cfg(unix)]
    {
        use rustix::fs::{FlockOperation, flock};
        // On a file system without locks, each file counts as free.
        flock(file, FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        true
    }
}

/// Locks a file as [`lock`] does, and waits while the lock is taken.
pub(crate) fn wait_for_lock(file: &File) {
    #[cfg(unix)]
    {
        use rustix::fs::{FlockOperation, flock};
        use rustix::io::Errno;
        while flock(file, FlockOperation::LockExclusive) == Err(Errno::INTR) {}
    }
    #[cfg(not(unix))]
    let _ = file;
}

/// Releases a lock while other handles of the file stay open.
pub(crate) fn unlock(file: &File) {
    #[cfg(unix)]
    {
        let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
    }
    #[cfg(not(unix))]
    let _ = file;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_new_and_is_read_from_names_of_its_files() {
        let token = Token::new().unwrap();
        assert_ne!(token, Token::new().unwrap());
        assert_eq!(Token::parse(token.as_str()), Some(token.clone()));
        let name = token.file_name();
        assert!(is_unfinished(name.as_ref()));
        assert_eq!(Token::of_file(name.as_ref()), Some(token.clone()));
        let note = token.note_name();
        assert!(is_unfinished(note.as_ref()) && Token::of_file(note.as_ref()).is_none());
        assert_eq!(Token::of_note(note.as_ref()), Some(token));
        assert_eq!(Token::of_note(name.as_ref()), None);
        for text in ["", "0", "../0123456789abcdef0123456789abc", &"A".repeat(32)] {
            assert_eq!(Token::parse(text), None, "{text}");
        }
        for (name, expected) in [
            (".mpquic-put-1-2", true),
            (".MPQUIC-put-1", true),
            (".mpquic-putt", false),
            ("mpquic-put-1", false),
        ] {
            assert_eq!(is_unfinished(name.as_ref()), expected, "{name}");
            assert_eq!(Token::of_file(name.as_ref()), None, "{name}");
        }
    }
}
