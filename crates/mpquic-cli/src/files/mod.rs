//! The content of a server: the regular files of a directory, or generated data.

pub(crate) mod attributes;
pub(crate) mod beneath;
pub(crate) mod directory_page;
pub(crate) mod file_state;
pub(crate) mod list_pages;
pub(crate) mod list_query;
mod newer;
mod recent_names;
pub(crate) mod resuming;
pub(crate) mod selection;
mod turns;
pub(crate) mod unfinished;
pub(crate) mod upload;
mod upload_note;
pub(crate) mod uploads;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use cap_std::fs::Dir;
use mpquic_proxy::shares::Taker;
use thiserror::Error;

use crate::files::attributes::Attributes;
use crate::files::beneath::{Root, options};
use crate::files::file_state::FileState;
use crate::files::list_query::after_of;
use crate::files::recent_names::RecentNames;
use crate::files::unfinished::{Token, is_unfinished};
use crate::files::upload::{Place, Upload, UploadError};
use crate::files::uploads::Uploads;
use crate::text::percent::{file_name, percent_decode};

/// Most entries of a directory on one page of its list.
const MAX_ENTRIES: usize = 10_000;

/// Most bytes of all names on one page.
const MAX_NAMES: usize = 1 << 20;
/// Bytes of memory for the longest page of a list.
pub(crate) const LISTING_MEMORY: u64 = (MAX_NAMES + MAX_ENTRIES * size_of::<Entry>()) as u64;

/// Content to send, with its state.
pub(crate) struct Content {
    pub(crate) state: FileState,
    pub(crate) reader: Box<dyn Reader>,
}

/// A source of content.
pub(crate) trait Reader: Read + Send {
    /// Skips the next bytes, or all bytes up to the end.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;

    /// The current state of a file; `None` for content that never changes.
    fn state(&self) -> io::Result<Option<FileState>> {
        Ok(None)
    }
}

impl Reader for File {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
        self.seek(SeekFrom::Current(bytes)).map(|_| ())
    }

    fn state(&self) -> io::Result<Option<FileState>> {
        let metadata = self.metadata()?;
        Ok(Some(FileState::of(&metadata)))
    }
}

/// One page of the list of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Sorted by name, directories first.
    pub(crate) entries: Vec<Entry>,
    /// Names without a served file or directory, such as pipes, and links to a missing or hidden
    /// target.
    pub(crate) others: Vec<OsString>,
    /// The last name of this page, if the directory has more names after it.
    pub(crate) more_after: Option<OsString>,
}

/// A file or directory in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    /// Length of a file; `None` for a directory.
    pub(crate) length: Option<u64>,
    pub(crate) attributes: Attributes,
}

/// The form of a name in a list.
enum Shown {
    Entry(Entry),
    /// The name only.
    Other,
    Nothing,
}

/// The reason why a request gets no file.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Data from a client beside the content of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    /// Time and permissions for the file.
    pub(crate) attributes: Attributes,
    /// The client whose quota counts the file.
    pub(crate) taker: Option<Taker>,
    /// The announced length of the whole file, bytes.
    pub(crate) length: Option<u64>,
    /// Beginning of the first request of a repeated upload.
    pub(crate) begun: Option<SystemTime>,
}

/// The source of the content for requests.
pub(crate) trait Source: Send + Sync {
    /// `path` is the target of the request, percent-encoded. May block.
    fn open(&self, path: &str) -> Result<Content, OpenError>;

    /// True if `path` is a directory that can be listed. May block.
    fn is_directory(&self, _path: &str) -> bool {
        false
    }

    /// Largest accepted upload in bytes; `None` if uploads are off.
    fn max_upload(&self) -> Option<u64> {
        None
    }

    /// Begins the upload of a file to `path`. With a token, the client can resume the upload. May
    /// block.
    fn upload(
        &self,
        _path: &str,
        _sent: Sent,
        _token: Option<Token>,
    ) -> Result<Upload, UploadError> {
        Err(UploadError::Forbidden)
    }

    /// Resumes the upload of a file to `path`. May block.
    fn resume(&self, _path: &str, _sent: Sent, _token: &Token) -> Result<Upload, UploadError> {
        Err(UploadError::Unknown)
    }

    /// Makes the directory `path`, if uploads are on. May block.
    fn make_directory(&self, _path: &str, _sent: Sent) -> Result<(), UploadError> {
        Err(UploadError::Forbidden)
    }

    /// Sets the attributes of the file or directory `path`, if uploads are on. May block.
    fn set_attributes(&self, _path: &str, _sent: Sent) -> Result<(), UploadError> {
        Err(UploadError::Forbidden)
    }

    /// Lists the directory `path`. May block.
    fn list(&self, _path: &str) -> Result<Listing, OpenError> {
        Err(OpenError::NotFound)
    }
}

/// The regular files in a directory and below it. Symbolic links that lead out, `..` and absolute
/// paths are not found. Names with a dot in front are often secret (`.git`, `.ssh`), so they need
/// an option. Unfinished uploads are never found.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The path may be a link, and each request follows the link anew.
    root: PathBuf,
    dot_files: bool,
    /// Most entries on one page of a list.
    page_length: usize,
    recent: RecentNames,
    taking: Option<Taking>,
}

/// The options and the state of uploads.
#[derive(Debug)]
struct Taking {
    /// Largest accepted upload in bytes.
    max_upload: u64,
    uploads: Arc<Uploads>,
}

impl Directory {
    pub(crate) fn new(root: &Path, dot_files: bool) -> io::Result<Self> {
        let root = std::path::absolute(root)?;
        Root::open(&root)?;
        Ok(Self {
            root,
            dot_files,
            page_length: MAX_ENTRIES,
            recent: RecentNames::default(),
            taking: None,
        })
    }

    /// Lists directories in shorter pages.
    #[cfg(test)]
    pub(crate) fn page_length(self, page_length: usize) -> Self {
        Self {
            page_length,
            ..self
        }
    }

    /// Accepts uploads of at most this number of bytes; `None` accepts none.
    pub(crate) fn max_upload(self, max_upload: Option<u64>) -> Self {
        let taking = max_upload.map(|max_upload| Taking {
            max_upload,
            uploads: Uploads::new(self.root.clone(), u64::MAX),
        });
        Self { taking, ..self }
    }

    /// Limits all uploads together to this number of bytes; `None` for no limit.
    pub(crate) fn max_total(mut self, total: Option<u64>) -> Self {
        if let Some(taking) = &mut self.taking {
            taking.uploads = Uploads::new(self.root.clone(), total.unwrap_or(u64::MAX));
        }
        self
    }

    /// Limits the stored bytes of each client; `None` for no limit.
    pub(crate) fn quota(self, quota: Option<u64>) -> Self {
        if let (Some(taking), Some(quota)) = (&self.taking, quota) {
            taking.uploads.set_quota(quota);
        }
        self
    }

    /// The state that uploads share, if uploads are on.
    pub(crate) fn uploads(&self) -> Option<Arc<Uploads>> {
        self.taking.as_ref().map(|taking| taking.uploads.clone())
    }

    /// The directory in its current state, and the path of a request in it, without links. `None`
    /// for a missing or hidden path.
    fn resolve(&self, target: &str) -> io::Result<Option<(Root, PathBuf)>> {
        let Some(below) = below(target).filter(|below| self.is_shown(below)) else {
            return Ok(None);
        };
        let root = match Root::open(&self.root) {
            Ok(root) => root,
            // Another program replaces the link at this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A link must not lead out of the directory, nor to a hidden file.
        let found = root.resolve(&below).filter(|found| self.is_shown(found));
        Ok(found.map(|found| (root, found)))
    }

    /// True for paths below the directory that may be shown.
    fn is_shown(&self, below: &Path) -> bool {
        let has_dot = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
        !below
            .iter()
            .any(|name| is_unfinished(name) || (!self.dot_files && has_dot(name)))
    }

    /// One page of the list of a directory: the first page, or the page after the name in the
    /// query.
    fn listing(&self, target: &str) -> Result<Listing, OpenError> {
        let (root, path) = self.resolve(target)?.ok_or(OpenError::NotFound)?;
        let directory = root.directory(&path).map_err(not_found)?;
        let above = Above::new(target, &root);
        let names = self.first_names(target, &path, &directory)?;
        let (mut entries, mut others) = (Vec::new(), Vec::new());
        for name in &names.names {
            match self.entry(&root, &path, name, &directory, &above) {
                Shown::Entry(entry) => entries.push(entry),
                Shown::Other => others.push(name.clone()),
                Shown::Nothing => {}
            }
        }
        entries.sort_by(|a, b| (a.length.is_some(), &a.name).cmp(&(b.length.is_some(), &b.name)));
        let last = names.names.last().cloned().filter(|_| names.is_cut);
        Ok(Listing {
            entries,
            others,
            more_after: last,
        })
    }

    /// The names on a page of the list of a directory.
    fn first_names(&self, target: &str, path: &Path, directory: &Dir) -> io::Result<FirstNames> {
        let after = after_of(target);
        let is_shown = |name: &OsStr| self.is_shown(&path.join(name));
        let all = self.recent.of(directory, is_shown)?;
        let mut names = FirstNames::new(after.clone(), self.page_length);
        if let Some(all) = all {
            for name in all.after(after.as_deref()) {
                names.add(name.clone());
                if names.is_cut {
                    break;
                }
            }
            return Ok(names);
        }
        for entry in directory.entries()? {
            let name = entry?.file_name();
            if is_shown(&name) {
                names.add(name);
            }
        }
        Ok(names)
    }

    /// The entry with this name in a directory.
    fn entry(
        &self,
        root: &Root,
        path: &Path,
        name: &OsStr,
        directory: &Dir,
        above: &Above<'_>,
    ) -> Shown {
        let Ok(mut metadata) = directory.symlink_metadata(name) else {
            return Shown::Nothing;
        };
        if metadata.is_symlink() {
            let found = root.resolve(&path.join(name));
            let Some(found) = found.filter(|found| self.is_shown(found)) else {
                return Shown::Other;
            };
            // A link to a directory above makes an endless tree without new files.
            if above.has(&found) {
                return Shown::Nothing;
            }
            let target = root
                .parent(&found)
                .and_then(|(parent, name)| parent.symlink_metadata(name));
            match target {
                Ok(target) => metadata = target,
                Err(_) => return Shown::Nothing,
            }
        }
        if !metadata.is_file() && !metadata.is_dir() {
            return Shown::Other;
        }
        Shown::Entry(Entry {
            name: name.to_owned(),
            length: metadata.is_file().then_some(metadata.len()),
            attributes: Attributes::of_listed(&metadata),
        })
    }

    /// The place for a new file or directory `path`, if uploads may create this path.
    fn place(&self, path: &str, sent: Sent) -> Result<Place, UploadError> {
        let taking = self.taking.as_ref().ok_or(UploadError::Forbidden)?;
        let (parent, name) = path.rsplit_once('/').ok_or(UploadError::Forbidden)?;
        let name = percent_decode(name).and_then(plain_name);
        let name = name.filter(|name| self.is_shown(Path::new(name)));
        let name = name.ok_or(UploadError::Forbidden)?;
        let parent = self.resolve(&format!("{parent}/"))?;
        let (root, path) = parent.ok_or(UploadError::NoDirectory)?;
        let directory = root.directory(&path);
        Ok(Place {
            directory: directory.map_err(|_| UploadError::NoDirectory)?,
            path,
            name,
            attributes: sent.attributes,
            uploads: taking.uploads.clone(),
            taker: sent.taker,
            announced: sent.length,
            begun: sent.begun,
        })
    }
}

impl Source for Directory {
    fn open(&self, path: &str) -> Result<Content, OpenError> {
        let (root, path) = self.resolve(path)?.ok_or(OpenError::NotFound)?;
        let (parent, name) = root.parent(&path).map_err(not_found)?;
        let file = parent.open_with(name, options().read(true));
        let file = file.map_err(not_found)?.into_std();
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(OpenError::NotFound);
        }
        Ok(Content {
            state: FileState::of(&metadata),
            reader: Box::new(file),
        })
    }

    fn is_directory(&self, path: &str) -> bool {
        let resolved = self.resolve(path).ok().flatten();
        resolved.is_some_and(|(root, path)| root.directory(&path).is_ok())
    }

    fn max_upload(&self) -> Option<u64> {
        self.taking.as_ref().map(|taking| taking.max_upload)
    }

    fn upload(&self, path: &str, sent: Sent, token: Option<Token>) -> Result<Upload, UploadError> {
        Upload::create(self.place(path_of(path), sent)?, token)
    }

    fn resume(&self, path: &str, sent: Sent, token: &Token) -> Result<Upload, UploadError> {
        Upload::resume(self.place(path_of(path), sent)?, token)
    }

    fn make_directory(&self, path: &str, sent: Sent) -> Result<(), UploadError> {
        let path = path_of(path);
        if path == "/" {
            return Err(UploadError::Exists);
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        self.place(path, sent)?.make_directory()
    }

    fn set_attributes(&self, path: &str, sent: Sent) -> Result<(), UploadError> {
        let path = path_of(path);
        let directory = path.strip_suffix('/');
        let place = self.place(directory.unwrap_or(path), sent)?;
        place.set_attributes(directory.is_some())
    }

    fn list(&self, path: &str) -> Result<Listing, OpenError> {
        self.listing(path)
    }
}

/// The first names of a directory in byte order, or the first names after `after`: at most `most`
/// names, with at most [`MAX_NAMES`] bytes.
struct FirstNames {
    after: Option<OsString>,
    most: usize,
    names: BTreeSet<OsString>,
    bytes: usize,
    is_cut: bool,
}

impl FirstNames {
    fn new(after: Option<OsString>, most: usize) -> Self {
        Self {
            after,
            most,
            names: BTreeSet::new(),
            bytes: 0,
            is_cut: false,
        }
    }

    fn add(&mut self, name: OsString) {
        if self.after.as_ref().is_some_and(|after| name <= *after) {
            return;
        }
        self.bytes += name.len();
        self.names.insert(name);
        while self.names.len() > self.most || self.bytes > MAX_NAMES {
            self.is_cut = true;
            self.bytes -= self.names.pop_last().map_or(0, |name| name.len());
        }
    }
}

/// The directory of a request and all directories above, without links.
struct Above<'a> {
    root: &'a Root,
    path: PathBuf,
    found: std::cell::OnceCell<Vec<PathBuf>>,
}

impl<'a> Above<'a> {
    fn new(target: &str, root: &'a Root) -> Self {
        Self {
            root,
            path: below(target).unwrap_or_default(),
            found: std::cell::OnceCell::new(),
        }
    }

    /// The directories are resolved at the first link, because most lists have no links.
    fn has(&self, directory: &Path) -> bool {
        let ancestors = || {
            self.path
                .ancestors()
                .filter_map(|path| self.root.resolve(path))
        };
        let found = self.found.get_or_init(|| ancestors().collect());
        found.iter().any(|above| above == directory)
    }
}

/// Vanished files, files that became links, and impossible names are not found. Other errors stay
/// errors.
fn not_found(error: io::Error) -> OpenError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound | Kind::NotADirectory | Kind::IsADirectory | Kind::InvalidFilename => {
            OpenError::NotFound
        }
        // The file became a link, which may lead elsewhere, or a socket.
        _ if is_link(&error) => OpenError::NotFound,
        _ => error.into(),
    }
}

#[cfg(unix)]
fn is_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::LOOP, Errno::MLINK, Errno::NXIO]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(not(unix))]
fn is_link(_error: &io::Error) -> bool {
    false
}

/// The path of a request, relative to the served directory.
fn below(target: &str) -> Option<PathBuf> {
    let path = path_of(target).strip_prefix('/')?;
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    segments
        .map(|segment| percent_decode(segment).and_then(plain_name))
        .collect()
}

/// One plain name; `None` for text that the system reads as several names or as a special name.
fn plain_name(name: Vec<u8>) -> Option<OsString> {
    let name = file_name(name)?;
    let mut components = Path::new(&name).components();
    let is_plain = match (components.next(), components.next()) {
        (Some(Component::Normal(part)), None) => part == name,
        _ => false,
    };
    is_plain.then_some(name)
}

/// The path of a request's target.
pub(crate) fn path_of(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or_default()
}

/// True for absolute paths with a valid percent-encoding.
pub(crate) fn is_well_formed(path: &str) -> bool {
    path.starts_with('/') && percent_decode(path).is_some()
}

/// Content that is read piece by piece, on demand. A thread is busy while the system opens or reads
/// the file, and free during the wait for a client.
pub(crate) struct OpenContent {
    /// Bytes to read.
    pub(crate) length: u64,
    /// The state when the file was opened.
    pub(crate) state: FileState,
    /// `None` while a thread reads.
    reader: Option<Box<dyn Reader>>,
    /// Bytes left to read. A file that grows is read up to its announced length.
    left: u64,
}

impl OpenContent {
    pub(crate) async fn open(source: Arc<dyn Source>, path: String) -> Result<Self, OpenError> {
        let opened = tokio::task::spawn_blocking(move || source.open(&path)).await;
        let content = opened.map_err(io::Error::other)??;
        Ok(Self {
            length: content.state.length,
            state: content.state,
            reader: Some(content.reader),
            left: content.state.length,
        })
    }

    /// Limits the content to a range, before the first read. The length becomes the length of the
    /// range.
    pub(crate) async fn select(&mut self, range: Range<u64>) -> io::Result<()> {
        self.length = range.end.saturating_sub(range.start);
        self.left = self.length;
        if range.start == 0 {
            return Ok(());
        }
        self.with_reader(move |reader| reader.skip(range.start))
            .await
    }

    /// The next `size` bytes, fewer at the end, none after the end. If another program overwrote
    /// the file meanwhile, an error replaces the last bytes, because earlier bytes may be of
    /// another version.
    pub(crate) async fn read(&mut self, size: usize) -> io::Result<Bytes> {
        let size = usize::try_from(self.left).map_or(size, |left| left.min(size));
        let (left, opened) = (self.left, self.state);
        let read = move |reader: &mut dyn Reader| {
            let mut piece = Vec::with_capacity(size);
            (&mut *reader).take(size as u64).read_to_end(&mut piece)?;
            if piece.len() as u64 == left
                && let Some(now) = reader.state()?
                && !opened.is_unwritten_or_longer(&now)
            {
                return Err(io::Error::other("the file changed while it was sent"));
            }
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
// A fuzz target includes this file by its path.
mod tests;
