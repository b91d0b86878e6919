//! The state of a file: metadata from the system. Files with equal states have equal content, if
//! the clock of the file system distinguishes the times of the writes.

use std::fs::Metadata;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::text::hex::hex;
use crate::text::times;

/// Bytes of a tag.
const TAG: usize = 16;

/// The state of a file, or of data that is served like a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Bytes.
    pub(crate) length: u64,
    /// Time of the last change of the content, which programs can set.
    pub(crate) modified: Option<SystemTime>,
    /// `None` on systems other than Unix, and for data without a file.
    pub(crate) inode: Option<Inode>,
}

/// The identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
    /// Time of the last change of the content or of the other values, in seconds and nanoseconds
    /// since 1970. Only the system sets this time.
    changed: (i64, i64),
    /// Number of names, permissions, owner and group.
    others: (u64, u32, u32, u32),
}

impl FileState {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let inode = {
            use std::os::unix::fs::MetadataExt;
            Some(Inode {
                device: metadata.dev(),
                number: metadata.ino(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
                others: (
                    metadata.nlink(),
                    metadata.mode(),
                    metadata.uid(),
                    metadata.gid(),
                ),
            })
        };
        #[cfg(not(unix))]
        let inode = None;
        Self {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            inode,
        }
    }

    /// The permissions with the type of the file, on Unix.
    pub(crate) fn mode(&self) -> Option<u32> {
        self.inode.map(|inode| inode.others.1)
    }

    /// True if nobody wrote to the file between this state and a later one. New permissions are no
    /// write. The removal of a name, for example when another file takes the name, is no write
    /// either.
    pub(crate) fn is_unwritten(&self, later: &Self) -> bool {
        let is_touched = match (self.inode, later.inode) {
            (Some(this), Some(later)) => {
                this.changed != later.changed && this.others == later.others
            }
            _ => false,
        };
        (self.length, self.modified) == (later.length, later.modified) && !is_touched
    }

    /// True if the earlier bytes are unwritten. The later state may be longer, as for a log.
    pub(crate) fn is_unwritten_or_longer(&self, later: &Self) -> bool {
        later.length > self.length || self.is_unwritten(later)
    }

    /// Time since the last change; `None` for an unknown or a future time of the change.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        let (seconds, nanoseconds) = self.inode?.changed;
        let (seconds, nanoseconds) = (seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        let since_1970 = Duration::new(seconds, nanoseconds);
        let changed = SystemTime::UNIX_EPOCH.checked_add(since_1970)?;
        now.duration_since(changed).ok()
    }

    /// Hexadecimal digits that differ between two states. The digits do not reveal the values.
    pub(crate) fn tag(&self) -> String {
        let inode = self.inode.map(|inode| {
            let (seconds, nanoseconds) = inode.changed;
            let Inode { device, number, .. } = inode;
            format!("{device} {number} {seconds} {nanoseconds}")
        });
        let modified = self.modified.map(times::seconds);
        let all = format!("{} {modified:?} {inode:?}", self.length);
        let mut digits = hex(&Sha256::digest(all));
        digits.truncate(2 * TAG);
        digits
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn state(file: &File) -> FileState {
        FileState::of(&file.metadata().unwrap())
    }

    /// Waits until the clock of the file system advances.
    fn tick(directory: &Path) {
        let mut states = (0..1000).map(|_| {
            std::thread::sleep(Duration::from_millis(2));
            let file = File::create(directory.join("clock")).unwrap();
            state(&file).inode.unwrap().changed
        });
        let first = states.next();
        assert!(states.any(|state| Some(state) != first));
    }

    #[test]
    fn writing_is_seen_and_new_names_and_permissions_are_not_taken_for_it() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "12345").unwrap();
        let mut file = File::options().write(true).open(&path).unwrap();
        let before = state(&file);
        tick(directory.path());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(before.is_unwritten(&state(&file)) && before != state(&file));
        fs::hard_link(&path, directory.path().join("other")).unwrap();
        assert!(before.is_unwritten(&state(&file)));

        // The program restores the time of the content.
        let before = state(&file);
        tick(directory.path());
        file.write_all(b"6").unwrap();
        file.set_modified(before.modified.unwrap()).unwrap();
        let after = state(&file);
        assert_eq!(
            (before.length, before.modified),
            (after.length, after.modified)
        );
        assert!(!before.is_unwritten(&after) && !before.is_unwritten_or_longer(&after));

        tick(directory.path());
        file.write_all(b"7890123").unwrap();
        let longer = state(&file);
        assert!(!after.is_unwritten(&longer) && after.is_unwritten_or_longer(&longer));
        assert!(!longer.is_unwritten_or_longer(&after), "shorter");
    }

    /// Reproducible builds and `cp -p` give other files the same length and time.
    #[test]
    fn another_file_of_the_same_length_and_time_has_another_tag() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let made = |content: &str| {
            let new = directory.path().join("new");
            fs::write(&new, content).unwrap();
            let file = File::options().write(true).open(&new).unwrap();
            file.set_modified(time).unwrap();
            fs::rename(&new, &path).unwrap();
            file
        };
        let one = made("A");
        let tag = state(&one).tag();
        assert_eq!(tag, state(&one).tag());
        assert_eq!(tag.len(), 2 * TAG);
        let other = made("B");
        assert_eq!(state(&other).modified, Some(time));
        assert_ne!(tag, state(&other).tag());
    }
}
