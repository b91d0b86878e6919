//! What a server serves: the regular files of a directory, or generated data.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::mpsc;

/// Bytes read from a file at a time and handed to a stream in one piece.
const CHUNK: usize = 256 << 10;
/// Chunks read ahead of the stream.
const READ_AHEAD: usize = 2;

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
/// absolute paths are not found.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root })
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
        let file = file.canonicalize().ok()?;
        (file.starts_with(&self.root) && file.is_file()).then_some(file)
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

/// Opens and reads a file on a thread of its own, a few chunks ahead of the receiver.
pub(crate) async fn read(
    source: std::sync::Arc<dyn Source>,
    path: String,
) -> Result<(u64, mpsc::Receiver<io::Result<Bytes>>), OpenError> {
    let opened = tokio::task::spawn_blocking(move || source.open(&path)).await;
    let content = opened.map_err(io::Error::other)??;
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    let mut reader = content.reader;
    tokio::task::spawn_blocking(move || {
        loop {
            let chunk = read_chunk(reader.as_mut()).transpose();
            let Some(chunk) = chunk else { return };
            let failed = chunk.is_err();
            // The receiver is gone when the request was cancelled.
            if sender.blocking_send(chunk).is_err() || failed {
                return;
            }
        }
    });
    Ok((content.length, receiver))
}

/// The next full chunk, a shorter one at the end, `None` after it.
fn read_chunk(reader: &mut dyn Read) -> io::Result<Option<Bytes>> {
    let mut chunk = Vec::with_capacity(CHUNK);
    reader.take(CHUNK as u64).read_to_end(&mut chunk)?;
    Ok((!chunk.is_empty()).then(|| chunk.into()))
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
        let directory = Directory::new(&root).unwrap();
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

    #[tokio::test]
    async fn contents_arrive_in_large_chunks() {
        let (_outside, directory) = directory();
        let data: Vec<u8> = (0..CHUNK * 2 + 5).map(|index| index as u8).collect();
        fs::write(directory.root.join("big"), &data).unwrap();
        let source = std::sync::Arc::new(directory);
        let (length, mut chunks) = read(source, "/big".into()).await.unwrap();
        let mut received = Vec::new();
        let mut sizes = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            let chunk = chunk.unwrap();
            sizes.push(chunk.len());
            received.extend_from_slice(&chunk);
        }
        assert_eq!(length, data.len() as u64);
        assert_eq!(sizes, [CHUNK, CHUNK, 5]);
        assert!(received == data);
    }
}
