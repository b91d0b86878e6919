//! What a server serves: the regular files of a directory, or generated data.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

/// Something to send.
pub(crate) struct Content {
    pub(crate) length: u64,
    pub(crate) reader: Box<dyn Read + Send>,
}

/// Why there is nothing to send.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where the content that requests ask for comes from.
pub(crate) trait Source: Send + Sync {
    /// `path` is the target of the request, percent-encoded. May block.
    fn open(&self, path: &str) -> Result<Content, OpenError>;
}

/// The regular files in a directory and below it. Symbolic links that lead out of it, `..` and
/// absolute paths are not found, nor are names that begin with a dot unless that is allowed: they
/// are often secret, like those in `.git` or `.ssh`.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    dot_files: bool,
}

impl Directory {
    pub(crate) fn new(root: &Path, dot_files: bool) -> io::Result<Self> {
        let root = root.canonicalize()?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root, dot_files })
    }

    /// The file that a request means, if it is in the directory.
    fn find(&self, target: &str) -> Option<PathBuf> {
        let path = target.split(['?', '#']).next()?.strip_prefix('/')?;
        let mut file = self.root.clone();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let segment = percent_decode(segment)?;
            let mut components = Path::new(&segment).components();
            // Anything that the system would read as more than one plain name is refused.
            match (components.next(), components.next()) {
                (Some(Component::Normal(name)), None) if name == segment.as_str() => {
                    file.push(name);
                }
                _ => return None,
            }
        }
        let is_shown = |path: &Path| {
            let below = path.strip_prefix(&self.root).ok()?;
            let has_dot = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
            (self.dot_files || !below.iter().any(has_dot)).then_some(())
        };
        is_shown(&file)?;
        let file = file.canonicalize().ok()?;
        // A link must not lead out of the directory, nor to what is not shown.
        is_shown(&file)?;
        file.is_file().then_some(file)
    }
}

impl Source for Directory {
    fn open(&self, path: &str) -> Result<Content, OpenError> {
        let path = self.find(path).ok_or(OpenError::NotFound)?;
        let length = fs::metadata(&path)?.len();
        Ok(Content {
            length,
            reader: Box::new(File::open(path)?),
        })
    }
}

fn percent_decode(segment: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push((high * 16 + low) as u8);
    }
    let decoded = String::from_utf8(decoded).ok()?;
    (!decoded.contains('\0')).then_some(decoded)
}

/// Content that is read a piece at a time, each when it is asked for. Threads are used for as long
/// as the system takes to open or read, and not while anybody waits for a client.
pub(crate) struct OpenContent {
    pub(crate) length: u64,
    /// `None` while a thread reads from it.
    reader: Option<Box<dyn Read + Send>>,
}

impl OpenContent {
    pub(crate) async fn open(source: Arc<dyn Source>, path: String) -> Result<Self, OpenError> {
        let opened = tokio::task::spawn_blocking(move || source.open(&path)).await;
        let content = opened.map_err(io::Error::other)??;
        Ok(Self {
            length: content.length,
            reader: Some(content.reader),
        })
    }

    /// The next `size` bytes, fewer at the end, none after it.
    pub(crate) async fn read(&mut self, size: usize) -> io::Result<Bytes> {
        let reader = self.reader.take();
        let mut reader = reader.ok_or_else(|| io::Error::other("a read was given up"))?;
        let read = move || {
            let mut piece = Vec::with_capacity(size);
            let result = reader.by_ref().take(size as u64).read_to_end(&mut piece);
            (reader, result.map(|_| piece.into()))
        };
        let (reader, result) = tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)?;
        self.reader = Some(reader);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Directory) {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("sub dir")).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a.txt"), "a").unwrap();
        fs::write(root.join("sub dir/b"), "b").unwrap();
        let directory = Directory::new(&root, false).unwrap();
        (outside, directory)
    }

    #[test]
    fn files_are_found_by_their_encoded_names() {
        let (_outside, directory) = directory();
        for target in [
            "/a.txt",
            "/%61.txt",
            "//a.txt",
            "/a.txt?x=1",
            "/sub%20dir/b",
        ] {
            assert!(directory.find(target).is_some(), "{target}");
        }
        assert!(directory.open("/a.txt").unwrap().length == 1);
    }

    #[test]
    fn nothing_outside_is_found() {
        let (outside, directory) = directory();
        for target in [
            "/../secret",
            "/%2e%2e/secret",
            "/sub%20dir/../../secret",
            "/..%2fsecret",
            "/./a.txt",
            "a.txt",
            "",
            "/",
            "/sub%20dir",
            "/a.txt%00",
            "/%zz",
            "/%ff",
            "/missing",
            &format!("/{}/secret", outside.path().display()),
        ] {
            assert!(directory.find(target).is_none(), "{target}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_within_the_directory_only() {
        let (outside, directory) = directory();
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, directory.root.join(name)).unwrap();
        };
        link(&outside.path().join("secret"), "out");
        link(outside.path(), "parent");
        link(Path::new("a.txt"), "in");
        assert!(directory.find("/out").is_none());
        assert!(directory.find("/parent/secret").is_none());
        assert!(directory.find("/in").is_some());
    }

    #[test]
    fn names_with_a_dot_are_found_on_request_only() {
        let (_outside, mut directory) = directory();
        let root = directory.root.clone();
        fs::create_dir_all(root.join("sub dir/.git")).unwrap();
        fs::write(root.join("sub dir/.git/config"), "x").unwrap();
        fs::write(root.join(".secret"), "x").unwrap();
        let mut targets = vec!["/.secret", "/%2esecret", "/sub%20dir/.git/config"];
        if cfg!(unix) {
            #[cfg(unix)]
            std::os::unix::fs::symlink(".secret", root.join("link")).unwrap();
            targets.push("/link");
        }
        for target in &targets {
            assert!(directory.find(target).is_none(), "{target}");
        }
        directory.dot_files = true;
        for target in &targets {
            assert!(directory.find(target).is_some(), "{target}");
        }
        for target in ["/../secret", "/./a.txt", "/.", "/.."] {
            assert!(directory.find(target).is_none(), "{target}");
        }
    }

    /// A directory may itself have such a name, or be below one.
    #[test]
    fn the_directory_served_may_begin_with_a_dot() {
        let above = tempfile::tempdir().unwrap();
        let root = above.path().join(".hidden");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "a").unwrap();
        let directory = Directory::new(&root, false).unwrap();
        assert!(directory.find("/a").is_some());
    }

    #[tokio::test]
    async fn contents_arrive_in_pieces_of_the_size_asked_for() {
        let (_outside, directory) = directory();
        let data: Vec<u8> = (0..100_005).map(|index| index as u8).collect();
        fs::write(directory.root.join("big"), &data).unwrap();
        let source = Arc::new(directory);
        let mut content = OpenContent::open(source, "/big".into()).await.unwrap();
        let mut received = Vec::new();
        for (asked, expected) in [(10, 10), (99_990, 99_990), (100, 5), (100, 0)] {
            let piece = content.read(asked).await.unwrap();
            assert_eq!(piece.len(), expected);
            received.extend_from_slice(&piece);
        }
        assert_eq!(content.length, data.len() as u64);
        assert!(received == data);
    }
}
