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
use crate::files::beneath::options;
use crate::files::unfinished::{PREFIX, Token, lock, unlock};
use crate::files::upload_note::{self, Notes};
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
        if !place.uploads.take_room(place.taker.as_ref(), NAME) {
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
            let Place {
                directory,
                announced,
                ..
            } = &upload.place;
            let notes = Notes::begin(directory, token.clone(), *announced)?;
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

    /// Resumes a file. The earlier request loses its claim, and releases its lock.
    pub(crate) fn resume(mut place: Place, token: &Token) -> Result<Self, UploadError> {
        place.look()?;
        let claim = place.uploads.claim(token.clone());
        let aside = token.file_name();
        let opened = place.directory.open_with(&aside, options().write(true));
        let mut file: File = opened.map_err(|_| UploadError::Unknown)?.into_std();
        let mut looks = 0..LOOK.1;
        while !lock(&file) {
            looks.next().ok_or(UploadError::Forbidden)?;
            thread::sleep(LOOK.0);
        }
        // The upload may be complete, and the file renamed.
        let there = place.directory.symlink_metadata(&aside);
        let metadata = file.metadata()?;
        if !metadata.is_file() || there.is_err() {
            return Err(UploadError::Unknown);
        }
        let noted = upload_note::read(&place.directory, token);
        place.announced = noted.and_then(|noted| noted.announced);
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
        let notes = Notes::resume(token.clone(), length, place.announced);
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
        let looked = look().and_then(|()| self.place.look_for_newer());
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
        if let Some(replaced) = replaced {
            uploads.free(NAME.saturating_add(replaced));
        }
        // The rename changes the state of the file, so the metadata is read afterwards.
        Ok((self.file.metadata()?, replaced.is_none()))
    }

    /// Renames the file. Returns the length of the replaced file, bytes.
    fn rename(&self, wants_new: bool) -> Result<Option<u64>, UploadError> {
        let Place {
            directory, name, ..
        } = &self.place;
        let replaced = directory.symlink_metadata(name).ok();
        if !wants_new {
            directory.rename(&self.aside, directory, name)?;
        } else if replaced.is_some() {
            return Err(UploadError::OtherVersion);
        } else {
            rename_to_new(directory, &self.aside, name)?;
        }
        Ok(replaced.map(|replaced| replaced.len()))
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
mod tests {
    use std::fs;

    use super::*;

    fn place(directory: &Path, name: &str) -> Place {
        Place::new(directory, name.as_ref()).unwrap()
    }

    fn create(directory: &Path, name: &str) -> Result<Upload, UploadError> {
        Upload::create(place(directory, name), None)
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(directory.path()).unwrap().count();
        for (content, is_new) in [(&b"one"[..], true), (b"two", false)] {
            let mut upload = create(directory.path(), "file").unwrap();
            upload.write(content).unwrap();
            let before = fs::read(directory.path().join("file")).ok();
            assert_ne!(before.as_deref(), Some(content));
            let (metadata, new) = upload.finish().unwrap();
            assert_eq!((metadata.len(), new), (3, is_new));
            assert_eq!(fs::read(directory.path().join("file")).unwrap(), content);
            assert_eq!(names(), 1);
        }
        drop(create(directory.path(), "file").unwrap());
        assert_eq!(names(), 1, "given up");
    }

    #[test]
    fn only_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        let refused = create(directory.path(), "sub").unwrap_err();
        assert!(matches!(refused, UploadError::IsDirectory));
        #[cfg(unix)]
        {
            let outside = tempfile::tempdir().unwrap();
            let secret = outside.path().join("secret");
            fs::write(&secret, "kept").unwrap();
            std::os::unix::fs::symlink(&secret, directory.path().join("link")).unwrap();
            let mut upload = create(directory.path(), "link").unwrap();
            upload.write(b"new").unwrap();
            upload.finish().unwrap();
            assert_eq!(fs::read(&secret).unwrap(), b"kept");
            assert_eq!(fs::read(directory.path().join("link")).unwrap(), b"new");
        }
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            let pipe = directory.path().join("pipe");
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
            let refused = create(directory.path(), "pipe").unwrap_err();
            assert!(matches!(refused, UploadError::Forbidden));
        }
    }

    #[test]
    fn temporary_files_of_others_do_not_stop_an_upload() {
        let directory = tempfile::tempdir().unwrap();
        let first = create(directory.path(), "a").unwrap();
        let name = first.aside.clone();
        let (begin, number) = name.rsplit_once('-').unwrap();
        let number: u64 = number.parse().unwrap();
        // Other tests take numbers, too.
        for next in number + 1..number + 50 {
            let _ = File::create_new(directory.path().join(format!("{begin}-{next}")));
        }
        let (metadata, is_new) = first.finish().unwrap();
        assert!(metadata.is_file() && is_new);
        let mut second = create(directory.path(), "a").unwrap();
        second.write(b"12").unwrap();
        let (_, is_new) = second.finish().unwrap();
        assert!(!is_new);
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"12");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_has_the_time_and_the_permissions_it_is_to_have() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        for (mode, seconds) in [
            (0o600, "784111777.123456789"),
            (0o400, "-1.500000000"),
            (0o777, "1.500000000"),
        ] {
            let mut place = place(directory.path(), "file");
            let modified = crate::text::times::of_seconds(seconds);
            place.attributes = Attributes {
                mode: Some(mode),
                modified,
            };
            let mut upload = Upload::create(place, None).unwrap();
            let aside = fs::metadata(directory.path().join(&upload.aside)).unwrap();
            assert_eq!(aside.permissions().mode() & 0o777, 0o600);
            upload.write(b"12").unwrap();
            let (metadata, _) = upload.finish().unwrap();
            assert_eq!(metadata.modified().ok(), modified);
            let there = fs::metadata(directory.path().join("file")).unwrap();
            assert_eq!(there.modified().ok(), modified);
            assert_eq!(there.permissions().mode() & 0o777, mode);
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_and_directories_get_other_attributes() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let modified = crate::text::times::of_seconds("-1.500000000");
        let with = |name: &str, mode| Place {
            attributes: Attributes {
                mode: Some(mode),
                modified,
            },
            ..place(directory.path(), name)
        };
        let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
        // The owner keeps the right to write, because files for the directory follow.
        with("sub", 0o577).make_directory().unwrap();
        assert_eq!(mode("sub"), 0o777);
        fs::write(path("file"), "12").unwrap();
        for (name, wanted, expected) in [
            ("file", 0o662, 0o662),
            ("file", 0o4600, 0o600),
            ("sub", 0o570, 0o570),
            ("sub", 0o007, 0o507),
        ] {
            with(name, wanted).set_attributes(false).unwrap();
            assert_eq!(mode(name), expected, "{name}");
            let there = fs::metadata(path(name)).unwrap();
            assert_eq!(there.modified().ok(), modified);
        }
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        let refused = with("link", 0o777).set_attributes(false);
        assert!(matches!(refused, Err(UploadError::IsLink)));
        let refused = with("none", 0o777).set_attributes(false);
        assert!(matches!(refused, Err(UploadError::Unknown)));
        assert_eq!(mode("file"), 0o600);
    }

    #[test]
    fn a_file_is_resumed_where_it_broke_off() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
        let place = || Place {
            uploads: uploads.clone(),
            ..place(directory.path(), "file")
        };
        // Of the first bytes alone, nothing is kept.
        let token = Token::new().unwrap();
        let least = vec![b'1'; LEAST_KEPT as usize];
        for length in [0, least.len() - 1] {
            let mut first = Upload::create(place(), Some(token.clone())).unwrap();
            first.write(&least[..length]).unwrap();
            drop(first);
            let gone = Upload::resume(place(), &token);
            assert!(matches!(gone, Err(UploadError::Unknown)));
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        let mut first = Upload::create(place(), Some(token.clone())).unwrap();
        first.write(&least).unwrap();
        // Like a thread that waits for the disk.
        let _open = first.file.try_clone().unwrap();
        drop(first);
        // Bytes of other writers do not count for the client.
        let aside = directory.path().join(token.file_name());
        let mut other = File::options().append(true).open(aside).unwrap();
        other.write_all(&[0; 100]).unwrap();
        drop(other);
        let other = Upload::resume(place(), &Token::new().unwrap());
        assert!(matches!(other, Err(UploadError::Unknown)));
        let mut second = Upload::resume(place(), &token).unwrap();
        assert_eq!(second.length(), LEAST_KEPT);
        second.write(b"45").unwrap();
        second.finish().unwrap();
        let whole = [&least[..], b"45"].concat();
        assert!(fs::read(directory.path().join("file")).unwrap() == whole);
        let gone = Upload::resume(place(), &token);
        assert!(matches!(gone, Err(UploadError::Unknown)));
        // A refused upload is not kept.
        let token = Token::new().unwrap();
        Upload::create(place(), Some(token.clone()))
            .unwrap()
            .forget();
        assert!(Upload::resume(place(), &token).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// After a crash of the system, the file is longer than its safe part, and the new server does
    /// not know the upload.
    #[test]
    fn only_what_came_to_the_disk_is_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let token = Token::new().unwrap();
        let aside = directory.path().join(token.file_name());
        let note = directory.path().join(token.note_name());
        fs::write(&aside, b"123\0\0\0").unwrap();
        let resume = || Upload::resume(place(directory.path(), "file"), &token);
        assert!(matches!(resume(), Err(UploadError::Unknown)), "no note");
        fs::write(&note, format!("{:020}\n", 7)).unwrap();
        assert!(matches!(resume(), Err(UploadError::Unknown)), "shorter");
        fs::write(&note, format!("{:020}\n", 3)).unwrap();
        assert_eq!(resume().unwrap().announced(), None);
        fs::write(&aside, b"123\0\0\0").unwrap();
        fs::write(&note, format!("{:020}\n{:020}\n", 3, 5)).unwrap();
        let mut upload = resume().unwrap();
        assert_eq!((upload.length(), upload.announced()), (3, Some(5)));
        upload.write(b"45").unwrap();
        upload.finish().unwrap();
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"12345");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Between the look and the rename of an upload, each further upload of the directory waits.
    #[test]
    fn no_upload_is_renamed_between_the_look_of_another_and_its_rename() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
        let begin = |content: &[u8]| {
            let place = Place {
                uploads: uploads.clone(),
                ..place(directory.path(), "file")
            };
            let mut upload = Upload::create(place, None).unwrap();
            upload.write(content).unwrap();
            upload
        };
        let there = || fs::read(directory.path().join("file")).ok();
        let (first, second) = (begin(b"first"), begin(b"second"));
        let mut other = None;
        let look = || {
            other = Some(thread::spawn(|| second.finish().unwrap().1));
            thread::sleep(Duration::from_millis(50));
            assert_eq!(there(), None);
            Ok(())
        };
        let (_, is_new) = first.finish_if(true, look).unwrap();
        assert!(is_new && !other.unwrap().join().unwrap());
        assert_eq!(there().as_deref(), Some(&b"second"[..]));
    }

    #[test]
    fn a_refused_file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let begin = || {
            let token = Some(Token::new().unwrap());
            let mut upload = Upload::create(place(directory.path(), "file"), token).unwrap();
            upload.write(&vec![1; LEAST_KEPT as usize]).unwrap();
            upload
        };
        let refused = begin().finish_if(false, || Err(UploadError::OtherVersion));
        assert!(matches!(refused, Err(UploadError::OtherVersion)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        fs::write(directory.path().join("file"), "12").unwrap();
        let refused = begin().finish_if(true, || Ok(()));
        assert!(matches!(refused, Err(UploadError::OtherVersion)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// The name may have come from another program since the server's look.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_for_a_new_name_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("aside"), "1").unwrap();
        rename_to_new(&dir, "aside", "new".as_ref()).unwrap();
        fs::write(path("aside"), "2").unwrap();
        let refused = rename_to_new(&dir, "aside", "new".as_ref());
        assert!(matches!(refused, Err(UploadError::OtherVersion)));
        assert_eq!(fs::read(path("new")).unwrap(), b"1");
        // The server's look was before the other program's change.
        let mut upload = Upload::create(place(directory.path(), "new"), None).unwrap();
        upload.write(b"3").unwrap();
        let refused = upload.finish_if(true, || Ok(()));
        assert!(matches!(refused, Err(UploadError::OtherVersion)));
        assert_eq!(fs::read(path("new")).unwrap(), b"1");
    }

    /// Otherwise a client could store more than its quota by replacing files of others.
    #[test]
    fn a_replaced_file_refills_no_quota() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(directory.path().to_owned(), u64::MAX);
        uploads.set_quota(NAME + 10);
        let store = |who: &str| {
            let place = Place {
                uploads: uploads.clone(),
                taker: Some(Taker::User(who.into())),
                ..place(directory.path(), "file")
            };
            let mut upload = Upload::create(place, None)?;
            upload.write(&[0; 10])?;
            upload.finish().map(|_| ())
        };
        for who in ["alice", "bob"] {
            store(who).unwrap();
        }
        for who in ["alice", "bob"] {
            assert!(matches!(store(who), Err(UploadError::Full)), "{who}");
        }
    }

    #[test]
    fn names_and_bytes_count() {
        let directory = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(directory.path().to_owned(), 2 * NAME + 10);
        let place = |name: &str| Place {
            uploads: uploads.clone(),
            ..place(directory.path(), name)
        };
        let begin = |name| Upload::create(place(name), None);
        let mut upload = begin("a").unwrap();
        upload.write(&[0; 10]).unwrap();
        let more = vec![0; NAME as usize + 1];
        assert!(matches!(upload.write(&more), Err(UploadError::Full)));
        upload.finish().unwrap();
        place("sub").make_directory().unwrap();
        assert!(matches!(begin("b"), Err(UploadError::Full)));
        let full = place("more").make_directory();
        assert!(matches!(full, Err(UploadError::Full)));
        // A complete upload counts in place of the replaced file. An abandoned upload does not
        // count.
        uploads.free(NAME);
        drop(begin("a").unwrap());
        begin("a").unwrap().finish().unwrap();
        drop(begin("c").unwrap());
        assert!(uploads.take_room(None, NAME + 10));
    }
}
