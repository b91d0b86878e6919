//! The user's key for notes about parts. A server chooses names and content of the files that `get
//! -r` stores, so it could also store a note. Only a note with a code by this key counts.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::process::state;
use crate::text::hex::hex;

/// Bytes of a key.
const LENGTH: usize = 32;
/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;
/// The file of the key, in the directory of the user's state.
const FILE: &str = "parts.key";

/// A key for notes. The first use reads the key's file, or makes the file.
#[derive(Clone)]
pub(crate) struct NoteKey {
    /// `None` without a directory for state.
    path: Option<PathBuf>,
    /// `None` inside if the file cannot be used.
    key: OnceLock<Option<[u8; LENGTH]>>,
}

impl NoteKey {
    /// The key of the user.
    pub(crate) fn of_user() -> Self {
        Self::at(state::state_directory().map(|directory| directory.join(FILE)))
    }

    /// The key in a file, which the first use may make.
    pub(crate) fn at(path: Option<PathBuf>) -> Self {
        let key = OnceLock::new();
        Self { path, key }
    }

    /// A key that is in no file.
    #[cfg(test)]
    pub(crate) fn known() -> &'static Self {
        static KNOWN: OnceLock<NoteKey> = OnceLock::new();
        KNOWN.get_or_init(|| Self {
            path: None,
            key: Some([7; LENGTH]).into(),
        })
    }

    /// The code of a note, in hex. `None` if there is no key; then no note counts. May block.
    pub(crate) fn code(&self, note: &[u8]) -> Option<String> {
        let key = self.key.get_or_init(|| self.read());
        key.as_ref().map(|key| hex(&hmac(key, note)))
    }

    /// True if there is a key. May block.
    pub(crate) fn is_there(&self) -> bool {
        self.code(b"").is_some()
    }

    fn read(&self) -> Option<[u8; LENGTH]> {
        let Some(path) = &self.path else {
            tracing::warn!("without a directory for state, no part of a download is kept");
            return None;
        };
        match read_or_make(path) {
            Ok(key) => Some(key),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%error, "no part of a download is kept: cannot use {path}");
                None
            }
        }
    }
}

/// Keys stay out of messages.
impl fmt::Debug for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoteKey")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

fn read_or_make(path: &Path) -> io::Result<[u8; LENGTH]> {
    match read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => make(path),
        read => read,
    }
}

fn read(path: &Path) -> io::Result<[u8; LENGTH]> {
    let mut text = Vec::new();
    let file = File::open(path)?;
    file.take(LENGTH as u64 + 1).read_to_end(&mut text)?;
    let wrong = |_| io::Error::new(ErrorKind::InvalidData, "its length is not 32 bytes");
    text.try_into().map_err(wrong)
}

/// Writes a new key. Of several processes, the first one's key counts for all.
fn make(path: &Path) -> io::Result<[u8; LENGTH]> {
    if let Some(directory) = path.parent() {
        state::make_directory(directory)?;
    }
    let (mut key, mut number) = ([0; LENGTH], [0; 8]);
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    getrandom::fill(&mut number).map_err(io::Error::other)?;
    // The key gets its name as a whole: no process reads a half.
    let new = path.with_extension(format!("{}.new", hex(&number)));
    let written = || {
        let mut file = state::create_private(&new)?;
        file.write_all(&key)?;
        file.sync_all()?;
        state::rename_to_new(&new, path)
    };
    match written() {
        Ok(()) => Ok(key),
        Err(error) => {
            // If it stays, nobody reads it.
            let _ = fs::remove_file(&new);
            match error.kind() {
                ErrorKind::AlreadyExists => read(path),
                _ => Err(error),
            }
        }
    }
}

/// HMAC-SHA-256 (RFC 2104) with a key shorter than a block.
fn hmac(key: &[u8; LENGTH], message: &[u8]) -> [u8; 32] {
    let padded = |pad: u8| {
        let mut block = [pad; BLOCK];
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
        block
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message);
    let outer = Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner.finalize());
    outer.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 sections 4.2 and 4.3; zeros behind a short key change nothing (RFC 2104 section 2).
    #[test]
    fn codes_are_those_of_hmac() {
        for (key, message, code) in [
            (
                &[0x0b; 20][..],
                "Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
        ] {
            let mut padded = [0; LENGTH];
            padded[..key.len()].copy_from_slice(key);
            assert_eq!(hex(&hmac(&padded, message.as_bytes())), code);
        }
    }

    #[test]
    fn a_key_is_made_once_and_for_its_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/parts.key");
        let code = || NoteKey::at(Some(path.clone())).code(b"note");
        let codes = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(code)).collect();
            let codes = threads.into_iter().map(|thread| thread.join().unwrap());
            codes.collect::<Vec<_>>()
        });
        assert!(codes[0].is_some() && codes.iter().all(|other| *other == codes[0]));
        assert_eq!(code(), codes[0]);
        assert_ne!(NoteKey::at(Some(path.clone())).code(b"other"), codes[0]);
        let beside = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(beside.count(), 1, "nothing stays beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // Another user has another key.
        let other = directory.path().join("other/parts.key");
        assert_ne!(NoteKey::at(Some(other)).code(b"note"), codes[0]);
        // A damaged key is none.
        for damaged in [&[7; LENGTH - 1][..], &[7; LENGTH + 1], b""] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(code(), None);
            assert_eq!(fs::read(&path).unwrap(), damaged);
        }
        assert_eq!(NoteKey::at(None).code(b"note"), None);
        assert!(NoteKey::known().is_there() && !NoteKey::at(None).is_there());
        let told = format!("{:?}", NoteKey::known());
        assert_eq!(told, "NoteKey { path: None, .. }");
    }
}
