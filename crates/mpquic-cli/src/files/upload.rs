//! An upload of a file: written under another name, and renamed once complete.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use mpquic_proxy::shares::Taker;
use thiserror::Error;

use crate::files::attributes::Attributes;
use crate::files::beneath::{is_only_name, is_same_directory, options};
use crate::files::unfinished::{PREFIX, Token, lock, unlock};
use crate::files::upload_note::{self, Notes, Owner};
use crate::files::uploads::{Claim, LEAST_KEPT, NAME, Uploads};

/// Gives each file that is being written a number of its own.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Most names to try for a new file.
const TRIES: u32 = 100;
/// Interval and number of the checks whether the earlier request has released the file's lock.
const LOOK: (Duration, u32) = (Duration::from_millis(10), 200);

/// The reason why an upload is refused.
#[derive(Debug, Error)]
pub(crate) enum UploadError {
    #[error("that name cannot be written to")]
    Forbidden,
    #[error("there is no such directory")]
    NoDirectory,
    #[error("a directory has that name")]
    IsDirectory,
    #[error("a file has that name")]
    IsFile,
    #[error("something has that name")]
    Exists,
    #[error("a link has that name")]
    IsLink,
    #[error("there is no such upload or file")]
    Unknown,
    #[error("clients have stored as much as they may")]
    Full,
    #[error("another version is there")]
    OtherVersion,
    #[error("another version was stored since this upload began")]
    Newer,
    #[error("this upload was stored already")]
    Stored,
    #[error("the server cannot read the file that has that name")]
    Unreadable,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The destination of a file, and its attributes.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory, followed by its path beneath the root.
    pub(crate) directory: Dir,
    pub(crate) path: PathBuf,
    pub(crate) name: OsString,
    pub(crate) attributes: Attributes,
    pub(crate) uploads: Arc<Uploads>,
    /// The client whose quota counts the bytes.
    pub(crate) taker: Option<Taker>,
    /// The announced length of the whole file, bytes.
    pub(crate) announced: Option<u64>,
    /// Beginning of the first request of a repeated upload. The file replaces no newer one.
    pub(crate) begun: Option<SystemTime>,
}

/// An upload in progress. Dropping this before [`Upload::finish`] removes the file, unless its
/// client may resume it and has sent [`LEAST_KEPT`] bytes.
#[derive(Debug)]
pub(crate) struct Upload {
    file: File,
    aside: String,
    place: Place,
    /// Received bytes.
    length: u64,
    /// The claim on a file that can be resumed.
    claim: Option<Claim>,
    notes: Option<Notes>,
    finished: bool,
}

impl Upload {
    /// Begins a file. With a token, the client can resume the upload. No other client sees the file
    /// before it is complete.
    pub(crate) fn create(place: Place, token: Option<Token>) -> Result<Self, UploadError> {
        place.look()?;
        place.look_for_newer()?;
        let (uploads, taker) = (&place.uploads, place.taker.as_ref());
        let whole = NAME.saturating_add(place.announced.unwrap_or_default());
        if !uploads.has_room(taker, whole) || !uploads.take_room(taker, NAME) {
            return Err(UploadError::Full);
        }
        let created = Self::create_aside(&place, token.as_ref());
        let (file, aside) =
            created.inspect_err(|_| place.uploads.give_back(place.taker.as_ref(), NAME))?;
        let mut upload = Self {
            file,
            aside,
            length: 0,
            claim: None,
            notes: None,
            place,
            finished: false,
        };
        if let Some(token) = token {
            let owner = upload.place.owner(&token);
            let Place {
                directory,
                announced,
                ..
            } = &upload.place;
            let notes = Notes::begin(directory, token.clone(), *announced, owner)?;
            upload.notes = Some(notes);
            upload.claim = Some(upload.place.uploads.claim(token));
        }
        Ok(upload)
    }

    fn create_aside(place: &Place, token: Option<&Token>) -> io::Result<(File, String)> {
        let directory = &place.directory;
        for _ in 0..TRIES {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let aside = match token {
                Some(token) => token.file_name(),
                None => format!("{PREFIX}{}-{number}", std::process::id()),
            };
            match directory.open_with(&aside, &to_make(&place.attributes)) {
                Ok(file) => {
                    let file = file.into_std();
                    // A server that starts at this moment removes unlocked files, perhaps before
                    // the lock.
                    if lock(&file) && directory.symlink_metadata(&aside).is_ok() {
                        return Ok((file, aside));
                    }
                }
                // A killed server has left the file.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Resumes a file. The earlier request loses its claim, and releases its lock. The token of
    /// another user, or of a file with another name, is unknown.
    pub(crate) fn resume(mut place: Place, token: &Token) -> Result<Self, UploadError> {
        place.look()?;
        let owner = place.owner(token);
        let noted = upload_note::read(&place.directory, token);
        if noted.and_then(|noted| noted.owner).as_ref() != Some(&owner) {
            return Err(UploadError::Unknown);
        }
        let claim = place.uploads.claim(token.clone());
        let aside = token.file_name();
        let opened = place.directory.open_with(&aside, options().write(true));
        let mut file: File = opened.map_err(|_| UploadError::Unknown)?.into_std();
        let mut looks = 0..LOOK.1;
        while !lock(&file) {
            looks.next().ok_or(UploadError::Forbidden)?;
            thread::sleep(LOOK.0);
        }
        // The upload may be complete, and the file renamed. A file with a further name may be a
        // foreign file.
        let metadata = file.metadata()?;
        if !metadata.is_file() || !is_only_name(&place.directory, aside.as_ref(), &file) {
            return Err(UploadError::Unknown);
        }
        let noted = upload_note::read(&place.directory, token);
        place.announced = noted.as_ref().and_then(|noted| noted.announced);
        place.look_for_newer()?;
        // After the death of a server, only the length in the note is safely on the disk.
        let on_disk = noted.map(|noted| noted.length);
        let length = place.uploads.length_of(token).or(on_disk);
        let length = length.filter(|length| *length <= metadata.len());
        let length = length.ok_or(UploadError::Unknown)?;
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        if !place.uploads.resume(token, place.taker.as_ref()) {
            return Err(UploadError::Full);
        }
        let notes = Notes::resume(token.clone(), length, place.announced, owner);
        Ok(Self {
            file,
            aside,
            place,
            length,
            claim: Some(claim),
            notes: Some(notes),
            finished: false,
        })
    }

    /// Received bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of the whole file, from the first request.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.place.announced
    }

    /// True if the client may resume the file after this is dropped.
    pub(crate) fn is_kept(&self) -> bool {
        self.claim.is_some() && self.length >= LEAST_KEPT
    }

    /// Waits until the client resumes the file in another request.
    pub(crate) async fn taken(&mut self) {
        match &mut self.claim {
            Some(claim) => claim.taken().await,
            None => std::future::pending().await,
        }
    }

    /// Drops the upload, so its client cannot resume it.
    pub(crate) fn forget(mut self) {
        self.claim = None;
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        let length = bytes.len() as u64;
        if !self
            .place
            .uploads
            .take_room(self.place.taker.as_ref(), length)
        {
            return Err(UploadError::Full);
        }
        self.length += length;
        self.file.write_all(bytes)?;
        if let Some(notes) = &mut self.notes {
            notes.on_length(self.length, &self.file, &self.place.directory);
        }
        Ok(())
    }

    /// Gives the file its name. Returns the metadata, and true for a new name.
    pub(crate) fn finish(self) -> Result<(Metadata, bool), UploadError> {
        self.finish_if(false, || Ok(()))
    }

    /// [`Self::finish`] if `look` has no objection to the file with the name. With `wants_new`, the
    /// name must be free. No other upload takes a name in the directory between the look and the
    /// rename. A refused file is removed.
    pub(crate) fn finish_if(
        mut self,
        wants_new: bool,
        look: impl FnOnce() -> Result<(), UploadError>,
    ) -> Result<(Metadata, bool), UploadError> {
        self.place.attributes.give_to(&self.file);
        let uploads = self.place.uploads.clone();
        let turn = uploads.turn(self.place.path.clone());
        let looked = look()
            .and_then(|()| self.place.look_for_newer())
            .and_then(|()| self.place.look_at_directory())
            .and_then(|()| self.place.look());
        let renamed = looked.and_then(|()| self.rename(wants_new));
        drop(turn);
        let replaced = renamed.inspect_err(|error| {
            if !matches!(error, UploadError::Io(_)) {
                self.claim = None;
            }
        })?;
        self.finished = true;
        if let Some(notes) = &self.notes {
            notes.remove(&self.place.directory);
        }
        let bytes = NAME.saturating_add(self.length);
        let at = self.place.path.join(&self.place.name);
        uploads.count_stored(&at, bytes, replaced);
        // The rename changes the state of the file, so the metadata is read afterwards.
        Ok((self.file.metadata()?, !replaced))
    }

    /// Renames the file. Returns true if it replaced something.
    fn rename(&self, wants_new: bool) -> Result<bool, UploadError> {
        let Place {
            directory, name, ..
        } = &self.place;
        let replaced = directory.symlink_metadata(name).is_ok();
        if !wants_new {
            directory.rename(&self.aside, directory, name)?;
        } else if replaced {
            return Err(UploadError::OtherVersion);
        } else {
            rename_to_new(directory, &self.aside, name)?;
        }
        Ok(replaced)
    }
}

/// Renames a file to a name that nothing has. On Linux, other programs cannot give the name to
/// something else meanwhile, except on file systems without `RENAME_NOREPLACE`.
fn rename_to_new(directory: &Dir, aside: &str, name: &OsStr) -> Result<(), UploadError> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(directory, aside, directory, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(UploadError::OtherVersion),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(UploadError::Io(error.into())),
        }
    }
    Ok(directory.rename(aside, directory, name)?)
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let bytes = NAME.saturating_add(self.length);
        match self.claim.as_ref().filter(|_| self.is_kept()) {
            Some(claim) => {
                claim.keep(self.place.path.clone(), self.place.taker.clone(), bytes);
                // A thread that waits for the disk may keep the file open, and would keep the lock.
                unlock(&self.file);
            }
            None => {
                let _ = self.place.directory.remove_file(&self.aside);
                if let Some(notes) = &self.notes {
                    notes.remove(&self.place.directory);
                }
                self.place
                    .uploads
                    .give_back(self.place.taker.as_ref(), bytes);
            }
        }
    }
}

impl Place {
    /// A name in a local directory, for a file that is either complete or absent.
    pub(crate) fn new(directory: &Path, name: &OsStr) -> io::Result<Self> {
        Ok(Self {
            directory: Dir::open_ambient_dir(directory, ambient_authority())?,
            path: PathBuf::new(),
            name: name.to_owned(),
            attributes: Attributes::default(),
            uploads: Uploads::new(directory.to_owned(), u64::MAX),
            taker: None,
            announced: None,
            begun: None,
        })
    }

    fn owner(&self, token: &Token) -> Owner {
        Owner::new(token, &self.name, self.taker.as_ref())
    }

    /// Fails if the path of the directory leads to another directory by now, or to none: the file
    /// would not be where the client has put it.
    fn look_at_directory(&self) -> Result<(), UploadError> {
        let there = self.uploads.directory(&self.path);
        let is_same = there.is_ok_and(|there| is_same_directory(&there, &self.directory));
        is_same.then_some(()).ok_or(UploadError::NoDirectory)
    }

    /// Checks that a file may take the name.
    fn look(&self) -> Result<(), UploadError> {
        match self.directory.symlink_metadata(&self.name) {
            Ok(there) if there.is_dir() => Err(UploadError::IsDirectory),
            // A link is replaced and never followed. Devices and pipes stay.
            Ok(there) if !there.is_file() && !there.is_symlink() => Err(UploadError::Forbidden),
            // An unfinished file has a short name of its own, so its creation cannot fail for a
            // long name.
            Err(error) if error.kind() == ErrorKind::InvalidFilename => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Makes a directory.
    pub(crate) fn make_directory(&self) -> Result<(), UploadError> {
        if !self.uploads.take_room(self.taker.as_ref(), NAME) {
            return Err(UploadError::Full);
        }
        #[cfg_attr(
            not(unix),
            expect(unused_mut, reason = "permissions are those of Unix")
        )]
        let mut builder = cap_std::fs::DirBuilder::new();
        #[cfg(unix)]
        if self.attributes.mode.is_some() {
            // No other user can read the directory before it has its permissions.
            cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
        }
        let made = self.directory.create_dir_with(&self.name, &builder);
        made.map_err(|error| {
            self.uploads.give_back(self.taker.as_ref(), NAME);
            match error.kind() {
                ErrorKind::AlreadyExists => UploadError::Exists,
                _ => error.into(),
            }
        })?;
        let empty = Attributes {
            modified: None,
            ..self.attributes
        };
        if cfg!(unix) && empty.mode.is_some() {
            self.give(&empty.and_mode(0o700))?;
        }
        Ok(())
    }

    /// Sets the attributes of the existing file or directory with this name; with `is_directory`,
    /// of a directory only.
    pub(crate) fn set_attributes(&self, is_directory: bool) -> Result<(), UploadError> {
        let of_owner = match self.directory.symlink_metadata(&self.name) {
            // The server must still find the files in the directory.
            Ok(there) if there.is_dir() => 0o500,
            Ok(there) if there.is_file() && is_directory => return Err(UploadError::IsFile),
            Ok(there) if there.is_file() => 0,
            Ok(there) if there.is_symlink() => return Err(UploadError::IsLink),
            Ok(_) => return Err(UploadError::Forbidden),
            Err(_) => return Err(UploadError::Unknown),
        };
        self.give(&self.attributes.and_mode(of_owner))
    }

    fn give(&self, attributes: &Attributes) -> Result<(), UploadError> {
        let opened = self
            .directory
            .open_with(&self.name, options().read(true))
            .and_then(|file| attributes.try_give_to(&file.into_std()));
        opened.map_err(|error| match error.kind() {
            // A file that the server cannot read, or a file of another owner.
            ErrorKind::PermissionDenied => UploadError::Forbidden,
            _ => error.into(),
        })
    }
}

/// Options to create an unfinished file.
fn to_make(attributes: &Attributes) -> OpenOptions {
    let mut options = options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if attributes.mode.is_some() {
        cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = attributes;
    options
}

#[cfg(test)]
mod tests;
