//! The name of an incomplete file: no other file has or takes it meanwhile.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use cap_std::fs::OpenOptions;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::beneath::options;
use crate::get::beside::Beside;
use crate::get::note_key::NoteKey;
use crate::options::trust::Checked;
use crate::text::hex::hex;
use crate::text::stamp::Stamp;

/// Bytes of the longest file name on most file systems.
const LONGEST: usize = 255;
/// The longest suffix that follows the name of a file.
const SUFFIX: &str = ".999.part.json.new";
/// Names that are tried for one part.
const MOST: usize = 999;
/// The first bytes of each [`Note`].
const NOTE_START: &[u8] = b"{\"url\":";
/// The most bytes of a note that are read.
const LONGEST_NOTE: u64 = 64 << 10;

/// Why a part with a damaged note, or with somebody else's note, is not taken.
const NOT_OURS: &str = "the note about it is damaged, or not by this user's `mpquic get`";
/// The same without a key.
const NO_KEY: &str = "there is no key to check the note about it (RUST_LOG=warn tells why)";

/// The note about a part. It also proves that the file belongs to this tool, and not to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) url: String,
    /// The version of the bytes; `None` if no later download can continue them.
    #[serde(default)]
    pub(crate) stamp: Option<Stamp>,
    /// Length of the whole file, if the server told it.
    #[serde(default)]
    pub(crate) length: Option<u64>,
    /// The number of written bytes, and their SHA-256.
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// The weakest check of a server that sent some of the bytes. A note without this field, as
    /// earlier versions wrote notes, is of unchecked servers.
    #[serde(default, skip_serializing_if = "Checked::is_nothing")]
    pub(crate) checked: Checked,
}

/// A note as its file has it.
#[derive(Serialize, Deserialize)]
struct Signed {
    #[serde(flatten)]
    note: Note,
    /// The code of the note by the user's key.
    code: String,
}

impl Note {
    /// The content of the note's file; `None` without a key.
    pub(crate) fn text(&self, key: &NoteKey) -> io::Result<Option<Vec<u8>>> {
        let Some(code) = key.code(&serde_json::to_vec(self)?) else {
            return Ok(None);
        };
        let note = self.clone();
        Ok(Some(serde_json::to_vec(&Signed { note, code })?))
    }

    /// The note in the content of a file, if this user's tool wrote the content. A note stays true
    /// wherever its file is: the note has URL and checksum of the bytes.
    pub(crate) fn of_text(text: &[u8], key: &NoteKey) -> Option<Self> {
        let Signed { note, code } = serde_json::from_slice(text).ok()?;
        let expected = key.code(&serde_json::to_vec(&note).ok()?);
        (expected == Some(code)).then_some(note)
    }
}

/// `FILE.part` and the files beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) part: PathBuf,
    pub(crate) note: PathBuf,
    /// An incomplete note.
    pub(crate) new: PathBuf,
}

impl Names {
    pub(crate) fn new(path: &Path, number: usize) -> Self {
        let suffix = match number {
            1 => ".part".to_owned(),
            number => format!(".{number}.part"),
        };
        let part = with_suffix(&shortened(path), &suffix);
        let note = with_suffix(&part, ".json");
        let new = with_suffix(&note, ".new");
        Self { part, note, new }
    }

    /// True if a file of another program has one of the names.
    fn are_of_others(&self, beside: &Beside, key: &NoteKey) -> bool {
        match read(beside, &self.note, key) {
            Found::Note(_) => false,
            Found::Foreign => true,
            Found::Nothing => matches!(read(beside, &self.new, key), Found::Foreign),
        }
    }
}

/// An open part, which no other download can take while it is open.
pub(crate) struct Claimed {
    pub(crate) names: Names,
    pub(crate) file: File,
    /// The note of an earlier download; `None` for a new part.
    pub(crate) noted: Option<Note>,
}

/// Takes the part of `path` that an earlier download of `url` left, otherwise an unused part,
/// otherwise a new part, all in the directory `beside`. Also tells why an existing part with the
/// first name was not taken.
pub(crate) fn claim(
    beside: &Beside,
    path: &Path,
    url: Option<&str>,
    key: &NoteKey,
) -> io::Result<(Claimed, Option<&'static str>)> {
    let mut why = None;
    if let Some(url) = url {
        let numbers = (1..=MOST).map(|number| Names::new(path, number));
        for names in numbers.take_while(|names| beside.metadata(&names.part).is_ok()) {
            match left(beside, names, key)? {
                Ok(claimed) if claimed.noted.as_ref().is_some_and(|note| note.url == url) => {
                    return Ok((claimed, None));
                }
                Ok(_) => {}
                Err(told) => why = why.or(Some(told)),
            }
        }
    }
    for number in 1..=MOST {
        let names = Names::new(path, number);
        if names.are_of_others(beside, key) {
            continue;
        }
        if let Some(claimed) = made(beside, names.clone())? {
            return Ok((claimed, why));
        }
        if let Ok(claimed) = left(beside, names, key)? {
            return Ok((claimed, why));
        }
    }
    let told = format!("{MOST} names of parts are taken");
    Err(io::Error::new(ErrorKind::AlreadyExists, told))
}

/// Makes a part; `None` if its name is taken, also in the same moment by another download.
fn made(beside: &Beside, names: Names) -> io::Result<Option<Claimed>> {
    // Creating the file this way follows no link and overwrites no file, not even a link without a
    // target.
    let mut options = options();
    options.read(true).write(true).create_new(true);
    let file = match beside.open(&names.part, for_us_alone(&mut options)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        opened => opened?,
    };
    Ok(
        (is_locked(&file)? && beside.is_name(&names.part, &file)).then_some(Claimed {
            names,
            file,
            noted: None,
        }),
    )
}

/// Takes the part of an earlier download, or tells why this part is of no use.
fn left(beside: &Beside, names: Names, key: &NoteKey) -> io::Result<Result<Claimed, &'static str>> {
    let noted = match read(beside, &names.note, key) {
        Found::Note(note) => *note,
        Found::Nothing => return Ok(Err("there is no note about it")),
        Found::Foreign => {
            return Ok(Err(if key.is_there() { NOT_OURS } else { NO_KEY }));
        }
    };
    let mut options = options();
    options.read(true).write(true);
    let Ok(file) = beside.open(&names.part, for_us_alone(&mut options)) else {
        return Ok(Err("it cannot be opened"));
    };
    if !file.metadata()?.is_file() {
        return Ok(Err("it is no file"));
    }
    if !is_locked(&file)? || !beside.is_name(&names.part, &file) {
        return Ok(Err("another download writes to it"));
    }
    // Another user with write access to the directory may have linked a foreign file to the name.
    if !beside.is_only_name(&names.part, &file) {
        return Ok(Err("it has another name"));
    }
    // From now on no download changes the file; before the lock, another download may have.
    Ok(match read(beside, &names.note, key) {
        Found::Note(note) if *note == noted => Ok(Claimed {
            names,
            file,
            noted: Some(noted),
        }),
        _ => Err("another download writes to it"),
    })
}

enum Found {
    Nothing,
    Note(Box<Note>),
    /// A file that no tool of this user wrote, or with an incomplete note.
    Foreign,
}

fn read(beside: &Beside, path: &Path, key: &NoteKey) -> Found {
    if matches!(beside.metadata(path), Err(error) if error.kind() == ErrorKind::NotFound) {
        return Found::Nothing;
    }
    let text = beginning(beside, path, LONGEST_NOTE);
    match text.ok().and_then(|text| Note::of_text(&text, key)) {
        Some(note) => Found::Note(Box::new(note)),
        None => Found::Foreign,
    }
}

/// Reads at most `most` bytes from the beginning of a file. Anything but a file is an error.
fn beginning(beside: &Beside, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = beside.open(path, options().read(true))?;
    if !file.metadata()?.is_file() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// No other program may open the file for writing while it is open.
#[cfg(windows)]
fn for_us_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    use cap_std::fs::OpenOptionsExt as _;
    /// FILE_SHARE_READ and FILE_SHARE_DELETE: the file is read and renamed while it is open.
    const SHARED: u32 = 1 | 4;
    options.share_mode(SHARED)
}

#[cfg(not(windows))]
fn for_us_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Locks the file, unless another process or download has locked it. Closing the file unlocks it.
#[cfg(unix)]
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        // Some network file systems know no locks.
        Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
fn is_locked(_file: &File) -> io::Result<bool> {
    // The file was opened for this process alone.
    Ok(true)
}

/// The same path with a shortened name, which leaves room for suffixes: a hash of the whole name
/// replaces its end.
fn shortened(path: &Path) -> PathBuf {
    let Some(name) = path.file_name() else {
        return path.to_owned();
    };
    let bytes = name.as_encoded_bytes();
    if bytes.len() + SUFFIX.len() <= LONGEST {
        return path.to_owned();
    }
    let hash = Sha256::digest(bytes);
    let hash = hex(hash.get(..8).unwrap_or_default());
    let mut room = LONGEST - SUFFIX.len() - 1 - hash.len();
    let mut shown = name.to_string_lossy().into_owned();
    while !shown.is_char_boundary(room) {
        room -= 1;
    }
    shown.truncate(room);
    path.with_file_name(format!("{shown}~{hash}"))
}

/// True if there is a part of this file, with its note, or with a note that another program wrote.
pub(crate) fn has_part(beside: &Beside, path: &Path) -> bool {
    let numbers = (1..=MOST).map(|number| Names::new(path, number));
    let there = numbers.take_while(|names| beside.metadata(&names.part).is_ok());
    let mut there = there.map(|names| names.note);
    there.any(|note| beside.metadata(&note).is_ok())
}

/// The names of the files whose part, or the note about it, may have this name.
pub(crate) fn wholes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let note = name.strip_suffix(b".new").unwrap_or(name);
    let part = match note.strip_suffix(b".json") {
        Some(part) => part,
        None => name,
    };
    let of = part.strip_suffix(b".part");
    let numbered = of.and_then(|of| {
        let digits = of.iter().rev().take_while(|byte| byte.is_ascii_digit());
        let (whole, _) = of.split_at_checked(of.len() - digits.count())?;
        whole.strip_suffix(b".")
    });
    of.into_iter().chain(numbered)
}

/// True for an empty file and for a file that begins as notes do: a download was killed while it
/// wrote.
pub(crate) fn is_begun_note(beside: &Beside, path: &Path) -> bool {
    let text = beginning(beside, path, NOTE_START.len() as u64);
    text.is_ok_and(|text| NOTE_START.starts_with(&text))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const URL: &str = "https://host/file";

    fn note(url: &str) -> Vec<u8> {
        let note = Note {
            url: url.to_owned(),
            stamp: None,
            length: None,
            bytes: 0,
            sha256: String::new(),
            checked: Checked::FirstUse,
        };
        note.text(NoteKey::known()).unwrap().unwrap()
    }

    /// The name of the part that is taken, and why the first one was not.
    fn taken(path: &Path, url: Option<&str>) -> (Claimed, String, Option<&'static str>) {
        let (claimed, why) =
            claim(&Beside::of(path).unwrap(), path, url, NoteKey::known()).unwrap();
        let name = claimed.names.part.file_name().unwrap();
        let name = name.to_str().unwrap().to_owned();
        (claimed, name, why)
    }

    #[test]
    fn a_part_is_one_downloads_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let (first, name, _) = taken(&path, None);
        assert_eq!(name, "file.part");
        fs::write(&first.names.note, note(URL)).unwrap();
        for url in [None, Some(URL)] {
            let (second, name, why) = taken(&path, url);
            assert_eq!(name, "file.2.part");
            assert_eq!(why, url.map(|_| "another download writes to it"));
            fs::remove_file(&second.names.part).unwrap();
        }
        drop(first);
        let (_again, name, _) = taken(&path, None);
        assert_eq!(name, "file.part", "it is left by now");
    }

    /// A hard link could otherwise make the tool cut a foreign file.
    #[cfg(unix)]
    #[test]
    fn part_with_another_name_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let theirs = directory.path().join("theirs");
        fs::write(&theirs, "precious").unwrap();
        fs::hard_link(&theirs, directory.path().join("file.part")).unwrap();
        fs::write(directory.path().join("file.part.json"), note(URL)).unwrap();
        for url in [None, Some(URL)] {
            let (claimed, name, told) = taken(&path, url);
            assert_eq!(name, "file.2.part");
            assert_eq!(told, url.map(|_| "it has another name"));
            fs::remove_file(&claimed.names.part).unwrap();
        }
        assert_eq!(fs::read(&theirs).unwrap(), b"precious");
    }

    #[test]
    fn part_without_a_note_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let at = |name: &str| directory.path().join(name);
        for (theirs, why) in [
            ("file.part", Some("there is no note about it")),
            ("file.part.json", None),
            ("file.part.json.new", None),
        ] {
            fs::write(at(theirs), "precious").unwrap();
            for url in [None, Some(URL)] {
                let (claimed, name, told) = taken(&path, url);
                assert_eq!(name, "file.2.part", "{theirs}");
                assert_eq!(told, url.and(why), "{theirs}");
                fs::remove_file(&claimed.names.part).unwrap();
            }
            assert_eq!(fs::read(at(theirs)).unwrap(), b"precious");
            fs::remove_file(at(theirs)).unwrap();
        }
    }

    /// A server of `get -r` chooses the names and the content of files, and another user has
    /// another key.
    #[test]
    fn only_notes_of_this_user_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let part = directory.path().join("file.part");
        let at = with_suffix(&part, ".json");
        let ours = note(URL);
        let read = Note::of_text(&ours, NoteKey::known()).unwrap();
        let edited = |old: &str, new: &str| {
            let text = String::from_utf8(ours.clone()).unwrap();
            assert_eq!(text.matches(old).count(), 1, "{text}");
            text.replace(old, new).into_bytes()
        };
        let other = NoteKey::at(Some(directory.path().join("other.key")));
        let forged = [
            // Versions without keys wrote such notes.
            serde_json::to_vec(&read).unwrap(),
            read.text(&other).unwrap().unwrap(),
            edited(URL, "https://host/fi1e"),
            edited("\"bytes\":0", "\"bytes\":1"),
            edited("\"stamp\":null", "\"stamp\":{\"etag\":\"\"}"),
            edited("\"length\":null", "\"length\":1"),
            edited("\"sha256\":\"\"", "\"sha256\":\"00\""),
            edited("first-use", "certificate"),
            edited("\"code\":\"", "\"code\":\"0"),
        ];
        fs::write(&part, "forged").unwrap();
        for forged in forged {
            fs::write(&at, &forged).unwrap();
            for url in [None, Some(URL)] {
                let (claimed, name, why) = taken(&path, url);
                let shown = String::from_utf8_lossy(&forged);
                assert_eq!(name, "file.2.part", "{shown}");
                assert_eq!(why, url.map(|_| NOT_OURS), "{shown}");
                fs::remove_file(&claimed.names.part).unwrap();
            }
            assert_eq!(fs::read(&part).unwrap(), b"forged");
            assert_eq!(fs::read(&at).unwrap(), forged);
        }
        fs::write(&at, &ours).unwrap();
        let (claimed, why) = claim(
            &Beside::of(&path).unwrap(),
            &path,
            Some(URL),
            &NoteKey::at(None),
        )
        .unwrap();
        assert_eq!((claimed.noted, why), (None, Some(NO_KEY)));
        let (claimed, name, _) = taken(&path, Some(URL));
        assert_eq!((&*name, claimed.noted), ("file.part", Some(read)));
    }

    /// An earlier download of the same URL may have had another number.
    #[test]
    fn the_part_of_the_url_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (name, url) in [("file.part", "https://host/other"), ("file.2.part", URL)] {
            let part = directory.path().join(name);
            fs::write(with_suffix(&part, ".json"), note(url)).unwrap();
            fs::write(part, "").unwrap();
        }
        let (found, name, _) = taken(&path, Some(URL));
        assert_eq!(
            (name.as_str(), found.noted.unwrap().url.as_str()),
            ("file.2.part", URL)
        );
        let (_, name, _) = taken(&path, None);
        assert_eq!(name, "file.part");
    }

    /// In a directory that other users can write to, a link of theirs could lead to a file that
    /// only this user may write.
    #[cfg(target_os = "linux")]
    #[test]
    fn links_and_pipes_are_neither_followed_nor_waited_for() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("target"), "precious").unwrap();
        fs::write(at("note"), note(URL)).unwrap();
        for (name, to) in [
            ("file.part", "target"),
            ("file.2.part", "nowhere"),
            ("file.3.part.json", "note"),
        ] {
            symlink(at(to), at(name)).unwrap();
        }
        // The first part's note could be written by a stranger.
        fs::write(at("file.part.json"), note(URL)).unwrap();
        let pipe = at("file.4.part.json");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for url in [None, Some(URL)] {
            let (claimed, name, _) = taken(&path, url);
            assert_eq!(name, "file.5.part");
            fs::remove_file(claimed.names.part).unwrap();
        }
        assert_eq!(fs::read(at("target")).unwrap(), b"precious");
        assert!(!at("nowhere").exists());
    }

    #[test]
    fn long_names_are_shortened() {
        let directory = tempfile::tempdir().unwrap();
        let name = |length: usize| "é".repeat(length / 2) + &"x".repeat(length % 2);
        let mut seen = Vec::new();
        for length in [1, 236, 237, 238, 241, 242, 255] {
            let path = directory.path().join(name(length));
            for number in [1, MOST] {
                let names = Names::new(&path, number);
                fs::write(&names.new, "").unwrap();
                fs::rename(&names.new, &names.note).unwrap();
                let part = names.part.file_name().unwrap().to_str().unwrap();
                let is_whole = part.starts_with(&format!("{}.", name(length)));
                assert_eq!(is_whole, length <= 237, "{length}");
                assert!(!seen.contains(&names));
                seen.push(names);
            }
        }
    }
}
