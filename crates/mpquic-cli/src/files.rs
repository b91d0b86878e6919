//! What a server serves: the regular files of a directory, or generated data.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use thiserror::Error;

use crate::upload::{Upload, UploadError};

/// The most entries of a directory that are listed.
const MAX_ENTRIES: usize = 10_000;

/// Something to send.
pub(crate) struct Content {
    pub(crate) length: u64,
    /// When it changed last, if that is known.
    pub(crate) modified: Option<SystemTime>,
    pub(crate) reader: Box<dyn Reader>,
}

/// What content is read from.
pub(crate) trait Reader: Read + Send {
    /// Goes over the next bytes, or to the end if there are fewer.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

impl Reader for File {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
        self.seek(SeekFrom::Current(bytes)).map(|_| ())
    }
}

/// What is in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// By name, directories first.
    pub(crate) entries: Vec<Entry>,
    /// There are more.
    pub(crate) is_cut: bool,
}

/// A file or directory in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Length of a file; `None` for a directory.
    pub(crate) length: Option<u64>,
    pub(crate) modified: Option<SystemTime>,
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

    /// True if `path` is a directory that can be listed. May block.
    fn is_directory(&self, _path: &str) -> bool {
        false
    }

    /// The most bytes of a file that is taken; `None` if none is.
    fn max_upload(&self) -> Option<u64> {
        None
    }

    /// Begins a file that is named `path`. May block.
    fn upload(&self, _path: &str) -> Result<Upload, UploadError> {
        Err(UploadError::Forbidden)
    }

    /// Makes the directory `path`, where files are taken. May block.
    fn make_directory(&self, _path: &str) -> Result<(), UploadError> {
        Err(UploadError::Forbidden)
    }

    /// What the directory `path` has in it. May block.
    fn list(&self, _path: &str) -> Result<Listing, OpenError> {
        Err(OpenError::NotFound)
    }
}

/// The regular files in a directory and below it. Symbolic links that lead out of it, `..` and
/// absolute paths are not found, nor are names that begin with a dot unless that is allowed: they
/// are often secret, like those in `.git` or `.ssh`.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    dot_files: bool,
    max_upload: Option<u64>,
}

impl Directory {
    pub(crate) fn new(root: &Path, dot_files: bool) -> io::Result<Self> {
        let root = root.canonicalize()?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            root,
            dot_files,
            max_upload: None,
        })
    }

    /// Files of so many bytes at most are taken; `None` for none.
    pub(crate) fn max_upload(self, max_upload: Option<u64>) -> Self {
        Self { max_upload, ..self }
    }

    /// The file that a request means, if it is in the directory.
    fn find(&self, target: &str) -> Option<PathBuf> {
        self.resolve(target).filter(|path| path.is_file())
    }

    /// What a request means, without links, if it is in the directory or the directory itself.
    fn resolve(&self, target: &str) -> Option<PathBuf> {
        let path = path_of(target).strip_prefix('/')?;
        let mut found = self.root.clone();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let segment = percent_decode(segment)?;
            let mut components = Path::new(&segment).components();
            // Anything that the system would read as more than one plain name is refused.
            match (components.next(), components.next()) {
                (Some(Component::Normal(name)), None) if name == segment.as_str() => {
                    found.push(name);
                }
                _ => return None,
            }
        }
        self.is_shown(&found).then_some(())?;
        let found = found.canonicalize().ok()?;
        // A link must not lead out of the directory, nor to what is not shown.
        self.is_shown(&found).then_some(found)
    }

    /// True for paths in the directory that may be shown.
    fn is_shown(&self, path: &Path) -> bool {
        let has_dot = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
        path.strip_prefix(&self.root)
            .is_ok_and(|below| self.dot_files || !below.iter().any(has_dot))
    }

    /// At most so many entries of a directory.
    fn listing(&self, path: &Path, most: usize) -> io::Result<Listing> {
        let mut entries = Vec::new();
        let mut is_cut = false;
        for entry in fs::read_dir(path)? {
            if let Some(entry) = self.entry(&entry?.path()) {
                is_cut = entries.len() == most;
                if is_cut {
                    break;
                }
                entries.push(entry);
            }
        }
        entries.sort_by(|a, b| (a.length.is_some(), &a.name).cmp(&(b.length.is_some(), &b.name)));
        Ok(Listing { entries, is_cut })
    }

    /// The directory and the name of what is to be made, if that may be.
    fn place(&self, path: &str) -> Result<(PathBuf, String), UploadError> {
        if self.max_upload.is_none() {
            return Err(UploadError::Forbidden);
        }
        let (parent, name) = path.rsplit_once('/').ok_or(UploadError::Forbidden)?;
        let name = percent_decode(name).ok_or(UploadError::Forbidden)?;
        // As in `resolve`: one plain name, and one that could be read back.
        let mut components = Path::new(&name).components();
        let is_plain = match (components.next(), components.next()) {
            (Some(Component::Normal(part)), None) => part == name.as_str(),
            _ => false,
        };
        if !is_plain || (name.starts_with('.') && !self.dot_files) {
            return Err(UploadError::Forbidden);
        }
        let parent = self.resolve(&format!("{parent}/"));
        let parent = parent.filter(|parent| parent.is_dir());
        Ok((parent.ok_or(UploadError::NoDirectory)?, name))
    }

    /// How an entry of a directory is listed, if a request for it would find something.
    fn entry(&self, path: &Path) -> Option<Entry> {
        let name = path.file_name()?.to_str()?.to_owned();
        let leads_to = path.canonicalize().ok()?;
        if !self.is_shown(path) || !self.is_shown(&leads_to) {
            return None;
        }
        let metadata = fs::metadata(&leads_to).ok()?;
        if !metadata.is_file() && !metadata.is_dir() {
            return None;
        }
        Some(Entry {
            name,
            length: metadata.is_file().then_some(metadata.len()),
            modified: metadata.modified().ok(),
        })
    }
}

impl Source for Directory {
    fn open(&self, path: &str) -> Result<Content, OpenError> {
        let path = self.find(path).ok_or(OpenError::NotFound)?;
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Content {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            reader: Box::new(file),
        })
    }

    fn is_directory(&self, path: &str) -> bool {
        self.resolve(path).is_some_and(|path| path.is_dir())
    }

    fn max_upload(&self) -> Option<u64> {
        self.max_upload
    }

    fn upload(&self, path: &str) -> Result<Upload, UploadError> {
        let (parent, name) = self.place(path_of(path))?;
        Upload::create(&parent, &name)
    }

    fn make_directory(&self, path: &str) -> Result<(), UploadError> {
        let path = path_of(path);
        if path == "/" {
            return Err(UploadError::Exists);
        }
        let (parent, name) = self.place(path.strip_suffix('/').unwrap_or(path))?;
        fs::create_dir(parent.join(name)).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => UploadError::Exists,
            _ => error.into(),
        })
    }

    fn list(&self, path: &str) -> Result<Listing, OpenError> {
        let path = self.resolve(path).ok_or(OpenError::NotFound)?;
        if !path.is_dir() {
            return Err(OpenError::NotFound);
        }
        Ok(self.listing(&path, MAX_ENTRIES)?)
    }
}

/// The path of a request's target.
pub(crate) fn path_of(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or_default()
}

/// True for paths that can name something: absolute, and properly encoded.
pub(crate) fn is_well_formed(path: &str) -> bool {
    path.starts_with('/') && percent_decode(path).is_some()
}

pub(crate) fn percent_decode(segment: &str) -> Option<String> {
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
    pub(crate) modified: Option<SystemTime>,
    /// `None` while a thread reads from it.
    reader: Option<Box<dyn Reader>>,
    /// What is still to be read: no more than was announced if the file grows.
    left: u64,
}

impl OpenContent {
    pub(crate) async fn open(source: Arc<dyn Source>, path: String) -> Result<Self, OpenError> {
        let opened = tokio::task::spawn_blocking(move || source.open(&path)).await;
        let content = opened.map_err(io::Error::other)??;
        Ok(Self {
            length: content.length,
            modified: content.modified,
            reader: Some(content.reader),
            left: content.length,
        })
    }

    /// Narrows what is read, before the first read. The length is that of the range then.
    pub(crate) async fn select(&mut self, range: Range<u64>) -> io::Result<()> {
        self.length = range.end.saturating_sub(range.start);
        self.left = self.length;
        if range.start == 0 {
            return Ok(());
        }
        self.with_reader(move |reader| reader.skip(range.start))
            .await
    }

    /// The next `size` bytes, fewer at the end, none after it.
    pub(crate) async fn read(&mut self, size: usize) -> io::Result<Bytes> {
        let size = usize::try_from(self.left).map_or(size, |left| left.min(size));
        let read = move |reader: &mut dyn Reader| {
            let mut piece = Vec::with_capacity(size);
            reader.take(size as u64).read_to_end(&mut piece)?;
            Ok(Bytes::from(piece))
        };
        let piece = self.with_reader(read).await?;
        self.left -= piece.len() as u64;
        Ok(piece)
    }

    async fn with_reader<T: Send + 'static>(
        &mut self,
        run: impl FnOnce(&mut dyn Reader) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let reader = self.reader.take();
        let mut reader = reader.ok_or_else(|| io::Error::other("a read was given up"))?;
        let run = move || {
            let result = run(&mut *reader);
            (reader, result)
        };
        let (reader, result) = tokio::task::spawn_blocking(run)
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

    #[test]
    fn directories_are_listed_by_name_and_without_what_is_not_found() {
        let (outside, mut directory) = directory();
        let root = directory.root.clone();
        fs::create_dir(root.join("B")).unwrap();
        fs::write(root.join(".hidden"), "x").unwrap();
        fs::write(root.join("0"), "12345").unwrap();
        #[cfg(unix)]
        for (to, name) in [("a.txt", "in"), ("../secret", "out"), (".hidden", "shown")] {
            std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        }
        let names = |directory: &Directory, target: &str| -> Vec<_> {
            let entries = directory.list(target).unwrap().entries.into_iter();
            entries.map(|entry| (entry.name, entry.length)).collect()
        };
        let named = |name: &str, length| (name.to_owned(), length);
        let mut expected = vec![
            named("B", None),
            named("sub dir", None),
            named("0", Some(5)),
            named("a.txt", Some(1)),
        ];
        if cfg!(unix) {
            expected.push(named("in", Some(1)));
        }
        assert_eq!(names(&directory, "/"), expected);
        assert_eq!(names(&directory, "/sub%20dir"), [named("b", Some(1))]);
        let outside = format!("/{}", outside.path().display());
        for target in ["/a.txt", "/missing", "/..", "/sub%20dir/..", "", &outside] {
            assert!(directory.list(target).is_err(), "{target}");
        }
        directory.dot_files = true;
        assert!(names(&directory, "/").contains(&named(".hidden", Some(1))));
    }

    #[test]
    fn of_very_large_directories_a_part_is_listed() {
        let (_outside, directory) = directory();
        let listing = |most| directory.listing(&directory.root, most).unwrap();
        let empty = directory.root.join("empty");
        fs::create_dir(&empty).unwrap();
        assert!(!directory.listing(&empty, 1).unwrap().is_cut);
        fs::remove_dir(&empty).unwrap();
        // There are two.
        for (most, listed, is_cut) in [(1, 1, true), (2, 2, false), (3, 2, false)] {
            let listing = listing(most);
            assert_eq!((listing.entries.len(), listing.is_cut), (listed, is_cut));
        }
    }

    #[tokio::test]
    async fn a_part_of_a_file_is_read() {
        let (_outside, directory) = directory();
        let data: Vec<u8> = (0..100_000).map(|index| index as u8).collect();
        fs::write(directory.root.join("big"), &data).unwrap();
        let source: Arc<dyn Source> = Arc::new(directory);
        for range in [0..10, 1..10, 99_990..100_000, 5..50_000, 7..7] {
            let open = OpenContent::open(source.clone(), "/big".into());
            let mut content = open.await.unwrap();
            content.select(range.clone()).await.unwrap();
            assert_eq!(content.length, range.end - range.start);
            let mut received = Vec::new();
            loop {
                let piece = content.read(16_384).await.unwrap();
                if piece.is_empty() {
                    break;
                }
                received.extend_from_slice(&piece);
            }
            assert!(received == data[range.start as usize..range.end as usize]);
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
    fn files_are_taken_within_the_directory_only() {
        let (outside, directory) = directory();
        let root = directory.root.clone();
        assert!(directory.upload("/new").is_err(), "not asked for");
        let mut directory = directory.max_upload(Some(10));
        for target in ["/new", "/sub%20dir/new", "/a.txt", "//new?x", "/a%20b"] {
            directory.upload(target).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(outside.path(), root.join("parent")).unwrap();
        let absolute = format!("/{}/new", outside.path().display());
        for target in [
            "/../new",
            "/%2e%2e/new",
            "/..%2fnew",
            "/sub%20dir/../../new",
            "/sub%20dir/..",
            "/sub%20dir%2fnew",
            "/parent/new",
            "/missing/new",
            "/sub%20dir",
            "/sub%20dir/",
            "/",
            "",
            "new",
            "/.",
            "/.new",
            "/.git/new",
            "/new%00",
            "/%ff",
            &absolute,
        ] {
            assert!(directory.upload(target).is_err(), "{target}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2);
        directory.dot_files = true;
        directory.upload("/.new").unwrap();
        assert!(directory.upload("/..").is_err());
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
            for (to, name) in [(".secret", "link"), ("a.txt", ".link")] {
                std::os::unix::fs::symlink(to, root.join(name)).unwrap();
            }
            targets.extend(["/link", "/.link"]);
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

    #[test]
    fn paths_are_absolute_and_properly_encoded() {
        for path in ["/", "/a", "/a/b%20c", "//", "/%C3%a4"] {
            assert!(is_well_formed(path), "{path}");
        }
        for path in [
            "", "*", "a", "a/b", "/%", "/%1", "/%0g", "/%zz", "/%ff", "/%00",
        ] {
            assert!(!is_well_formed(path), "{path}");
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

    /// A source that has nothing but contents.
    #[test]
    fn nothing_is_taken_unless_it_is_said_how() {
        let source = crate::testing::Anything::new(1);
        assert!(source.open("/x").is_ok());
        assert!(!source.is_directory("/"));
        assert_eq!(source.max_upload(), None);
        assert!(matches!(source.upload("/x"), Err(UploadError::Forbidden)));
        let made = source.make_directory("/x");
        assert!(matches!(made, Err(UploadError::Forbidden)));
        assert!(matches!(source.list("/"), Err(OpenError::NotFound)));
    }

    #[test]
    fn directories_are_made_where_files_are_taken() {
        let (_outside, directory) = directory();
        assert!(directory.make_directory("/new").is_err(), "not asked for");
        let directory = directory.max_upload(Some(1));
        directory.make_directory("/new").unwrap();
        directory.make_directory("/new/a%20b/?query").unwrap();
        assert!(directory.root.join("new/a b").is_dir());
        assert!(directory.is_directory("/new/a%20b") && !directory.is_directory("/a.txt"));
        for (path, told) in [
            ("/", "something has that name"),
            ("/new", "something has that name"),
            ("/a.txt", "something has that name"),
            ("/missing/new", "there is no such directory"),
            ("/..%2fnew", "that name cannot be written to"),
            ("/.new", "that name cannot be written to"),
        ] {
            let error = directory.make_directory(path).unwrap_err();
            assert_eq!(error.to_string(), told, "{path}");
        }
    }
}
