//! [`FileStore`]: entries of connections in files, for later processes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::mem::{Discriminant, discriminant};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use mpquic_core::knowledge::{Entry, Key, MemoryStore, Store};
use mpquic_core::{StdSystemTime, TimeSource};

/// Files of each kind of entry.
const MOST: usize = 256;
/// Length of a value, bytes.
const MAX_VALUE: usize = 1000;
/// Length of the line before the value, bytes: two numbers of 20 digits.
const MAX_HEADER: usize = 42;
/// Length of a file's name, bytes. Common file systems allow 255.
const MAX_NAME: usize = 240;
/// Start of the names of files that exist only while a process writes or takes an entry.
const TEMPORARY: &str = "temporary-";
/// Temporary files of this age are left over from processes that have ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Keeps [`Knowledge`](mpquic_core::knowledge::Knowledge) in a directory, one file for each entry.
///
/// - New entries are in memory, at most 1024 of each kind, until [`FileStore::flush`] writes them.
///   Call it before the process ends, and from time to time in a process that runs long.
/// - The directory keeps at most 256 entries of each kind of [`Key`]; `flush` removes the oldest,
///   and entries older than [`Key::lifetime`]. Entries for loopback addresses are not written.
/// - Files are replaced in one step, and only their owner can read them (mode 0600 on Unix).
///   Several processes may use the same directory. A token is removed by the process that takes it,
///   so no token is used twice.
/// - The store ignores links, pipes, files that cannot be read and files of another form, with a
///   warning that names the file. Files with other names stay as they are.
///
/// A file has a line with two decimal numbers, the time of the entry in milliseconds since 1970 and
/// the length of the value in bytes, and then the value. Its name is the text of the key, with `-`
/// for spaces, and `%` and two hexadecimal digits for each byte that is neither an ASCII letter nor
/// a digit, `.` or `_`.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use mpquic_tokio::knowledge::Knowledge;
/// use mpquic_tokio::{ClientConfig, FileStore, default_transport};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("mpquic-example-{}", std::process::id()));
/// let store = Arc::new(FileStore::new(&directory));
/// let mut transport = default_transport();
/// transport.knowledge = Some(Knowledge::new(store.clone()));
/// let config = ClientConfig::dangerous_insecure(&[b"hello"])?
///     .transport_config(transport.build()?);
/// // Connections with `config` start with the entries of earlier processes, and add new entries.
/// store.flush()?;
/// # std::fs::remove_dir_all(&directory).or_else(|error| match error.kind() {
/// #     std::io::ErrorKind::NotFound => Ok(()),
/// #     _ => Err(error),
/// # })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    directory: PathBuf,
    /// Entries that are not written yet.
    new: MemoryStore,
}

impl FileStore {
    /// Keeps entries in this directory, which [`Self::flush`] makes if necessary.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            new: MemoryStore::default(),
        }
    }

    /// Writes new entries to the directory, and removes old and surplus files.
    ///
    /// # Errors
    ///
    /// The first failure to make the directory, to write an entry or to remove a file. Entries that
    /// could not be written stay in memory.
    pub fn flush(&self) -> io::Result<()> {
        let new = self.new.drain().filter(|(key, entry)| is_kept(key, entry));
        let mut new = new.peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        let mut result = create_directory(&self.directory);
        for (key, entry) in new {
            if let Err(error) = self.write(&key, &entry) {
                // A connection may have saved a newer entry meanwhile.
                if self.new.load(&key).is_none() {
                    self.new.save(key, entry);
                }
                result = result.and(Err(error));
            }
        }
        result.and_then(|()| self.clean())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(file_name(key))
    }

    /// A path that no file has.
    fn temporary(&self) -> PathBuf {
        let random = RandomState::new().build_hasher().finish();
        self.directory.join(format!("{TEMPORARY}{random:016x}"))
    }

    /// Replaces a file in one step.
    fn write(&self, key: &Key, entry: &Entry) -> io::Result<()> {
        let temporary = self.temporary();
        let written = create_private(&temporary)
            .and_then(|mut file| file.write_all(&encode(entry)))
            .and_then(|()| fs::rename(&temporary, self.path(key)));
        if written.is_err() {
            // It may not exist. The error of writing is the one to report.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Takes an entry out of the directory. The process that renames the file has the entry.
    fn take_kept(&self, key: &Key) -> Option<Entry> {
        let (path, taken) = (self.path(key), self.temporary());
        let renamed = check_regular(&path).and_then(|()| fs::rename(&path, &taken));
        used(&path, renamed)?;
        let entry = used(&path, read(&taken));
        used(&taken, fs::remove_file(&taken));
        entry
    }

    /// Removes files that are too old, and the oldest files of each kind beyond the limit of files.
    fn clean(&self) -> io::Result<()> {
        let mut kept: Vec<(Duration, Key)> = Vec::new();
        let now = StdSystemTime.now();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            let name = file.file_name();
            let key = name.to_str().and_then(parse_name);
            let lifetime = match &key {
                Some(key) => key.lifetime(),
                None if name.to_string_lossy().starts_with(TEMPORARY) => ABANDONED,
                None => continue,
            };
            // Another process may have removed the file by now.
            let metadata = file.metadata().ok().filter(fs::Metadata::is_file);
            let Some(written) = metadata.and_then(|metadata| metadata.modified().ok()) else {
                continue;
            };
            // Files from the future are of a time when the clock was wrong. As the newest files,
            // they would stay for long in the place of new ones.
            let age = now.duration_since(written);
            let age = age.unwrap_or_else(|error| error.duration());
            if age >= lifetime {
                remove(&file.path())?;
            } else {
                kept.extend(key.map(|key| (age, key)));
            }
        }
        kept.sort_by_key(|(age, _)| *age);
        let mut counts: HashMap<Discriminant<Key>, usize> = HashMap::new();
        for (_, key) in kept {
            let count = counts.entry(discriminant(&key)).or_default();
            *count += 1;
            if *count > MOST {
                remove(&self.path(&key))?;
            }
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn load(&self, key: &Key) -> Option<Entry> {
        let path = self.path(key);
        self.new.load(key).or_else(|| used(&path, read(&path)))
    }

    fn save(&self, key: Key, entry: Entry) {
        self.new.save(key, entry);
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        let (new, kept) = (self.new.take(key), self.take_kept(key));
        new.or(kept)
    }
}

/// Whether the entry may be of use to later processes, and has a place in a file.
fn is_kept(key: &Key, entry: &Entry) -> bool {
    let is_loopback = match key {
        Key::Capacity { local, .. } | Key::RoundTrip { local, .. } => local.is_loopback(),
        _ => false,
    };
    !is_loopback && entry.value.len() <= MAX_VALUE && file_name(key).len() <= MAX_NAME
}

fn file_name(key: &Key) -> String {
    let mut name = String::new();
    for byte in key.to_string().bytes() {
        match byte {
            b' ' => name.push('-'),
            b'.' | b'_' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// The key of a file; `None` if the file is not one of ours.
fn parse_name(name: &str) -> Option<Key> {
    let mut text = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        text.push(match byte {
            b'-' => b' ',
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            byte => *byte,
        });
    }
    let key = Key::parse(std::str::from_utf8(&text).ok()?)?;
    (file_name(&key) == name).then_some(key)
}

fn encode(entry: &Entry) -> Vec<u8> {
    let saved = entry.saved.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (millis, length) = (saved.as_millis(), entry.value.len());
    let mut bytes = format!("{millis} {length}\n").into_bytes();
    bytes.extend_from_slice(&entry.value);
    bytes
}

fn decode(mut bytes: Vec<u8>) -> Option<Entry> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let value = bytes.split_off(end + 1);
    let (millis, length) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(' ')?;
    let saved = UNIX_EPOCH.checked_add(Duration::from_millis(millis.parse().ok()?))?;
    let is_whole = length.parse() == Ok(value.len()) && value.len() <= MAX_VALUE;
    is_whole.then(|| Entry::new(value.into(), saved))
}

/// Reads a file; an error if the file does not have the form of [`encode`].
fn read(path: &Path) -> io::Result<Entry> {
    check_regular(path)?;
    let mut bytes = Vec::new();
    let longest = (MAX_HEADER + MAX_VALUE) as u64;
    File::open(path)?.take(longest).read_to_end(&mut bytes)?;
    decode(bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Links may lead anywhere, and a process that opens a pipe waits for another process.
fn check_regular(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "no regular file"))
    }
}

/// The result of using a file. Warns of a file that cannot be used, but not of a missing file: most
/// keys have no file.
fn used<T>(path: &Path, result: io::Result<T>) -> Option<T> {
    if let Err(error) = &result
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "ignored a file of the store");
    }
    result.ok()
}

/// Removes a file, unless another process has.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a directory that only its owner can read.
fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Makes a file that only its owner can read.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

#[cfg(test)]
mod tests;
