//! Newer files in the place of a repeated upload.
//!
//! A client that has lost its connection does not know whether the server stored the file, so it
//! sends the file again. Meanwhile somebody may have stored a newer version. The time of the last
//! change of the file there tells: the system alone sets this time.

use std::time::{Duration, SystemTime};

use cap_std::fs::Metadata;

use crate::files::upload::{Place, UploadError};

/// Most time between the clock and the clock of file systems, which ticks rarely.
const TICK: Duration = Duration::from_millis(20);

impl Place {
    /// Fails if the file with the name is newer than the first request of a repeated upload:
    /// [`UploadError::Stored`] for the uploaded file itself.
    pub(crate) fn look_for_newer(&self) -> Result<(), UploadError> {
        let (Some(begun), Ok(there)) = (self.begun, self.directory.symlink_metadata(&self.name))
        else {
            return Ok(());
        };
        let changed = changed(&there).map(|at| at.checked_add(TICK).unwrap_or(at));
        if changed.is_none_or(|changed| changed < begun) {
            return Ok(());
        }
        let modified = there.modified().ok().map(|time| time.into_std());
        let is_same = there.is_file()
            && self.announced == Some(there.len())
            && modified.is_some()
            && self.attributes.modified == modified;
        Err(if is_same {
            UploadError::Stored
        } else {
            UploadError::Newer
        })
    }
}

/// Time of the last change of a file: of its content, its name or its attributes.
#[cfg(unix)]
fn changed(there: &Metadata) -> Option<SystemTime> {
    use cap_std::fs::MetadataExt;
    let seconds = there.ctime().try_into().ok()?;
    let nanoseconds = there.ctime_nsec().try_into().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

/// Time of the creation of a file. The system does not tell the time of the last change.
#[cfg(not(unix))]
fn changed(there: &Metadata) -> Option<SystemTime> {
    there.created().ok().map(|time| time.into_std())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::files::attributes::Attributes;
    use crate::files::unfinished::Token;
    use crate::files::upload::Upload;
    use crate::process::clock;

    /// A place for an upload of these bytes, which began this long ago.
    fn place(directory: &Path, content: &[u8], age: Option<Duration>) -> Place {
        Place {
            attributes: Attributes {
                modified: crate::text::times::of_seconds("784111777.123456789"),
                mode: None,
            },
            announced: Some(content.len() as u64),
            begun: age.map(|age| clock::time_of_day().checked_sub(age).unwrap()),
            ..Place::new(directory, OsStr::new("file")).unwrap()
        }
    }

    fn store(directory: &Path, content: &[u8], age: Option<Duration>) -> Result<(), UploadError> {
        let mut upload = Upload::create(place(directory, content, age), None)?;
        upload.write(content)?;
        upload.finish().map(drop)
    }

    const AGO: Option<Duration> = Some(Duration::from_secs(3600));
    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn a_repeated_upload_replaces_older_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let there = || fs::read(directory.path().join("file")).unwrap();
        let now = || std::thread::sleep(TICK * 2);
        store(directory.path(), b"older", AGO).unwrap();
        now();
        store(directory.path(), b"newer", NOW).unwrap();
        assert_eq!(there(), b"newer");
        let refused = store(directory.path(), b"late", AGO);
        assert!(matches!(refused, Err(UploadError::Newer)), "{refused:?}");
        // Without an age, it is no repeated upload.
        store(directory.path(), b"first", None).unwrap();
        assert_eq!(there(), b"first");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_stored_upload_is_not_stored_again() {
        let directory = tempfile::tempdir().unwrap();
        store(directory.path(), b"mine", None).unwrap();
        let again = store(directory.path(), b"mine", AGO);
        assert!(matches!(again, Err(UploadError::Stored)), "{again:?}");
        // Another length, another time of the content, or no time at all.
        let longer = store(directory.path(), b"longer", AGO);
        assert!(matches!(longer, Err(UploadError::Newer)), "{longer:?}");
        for seconds in [Some("784111777.0"), None] {
            let modified = seconds.and_then(crate::text::times::of_seconds);
            let mut other = place(directory.path(), b"mine", AGO);
            other.attributes.modified = modified;
            let refused = Upload::create(other, None);
            assert!(matches!(refused, Err(UploadError::Newer)), "{seconds:?}");
        }
    }

    /// The other version may come while the bytes of the repeated upload come.
    #[test]
    fn a_newer_file_is_seen_when_the_upload_ends() {
        let directory = tempfile::tempdir().unwrap();
        let begin = |content: &[u8]| {
            let token = Some(Token::new().unwrap());
            let mut upload = Upload::create(place(directory.path(), content, AGO), token).unwrap();
            upload.write(content).unwrap();
            upload
        };
        let (own, late) = (begin(b"other"), begin(b"late"));
        store(directory.path(), b"other", None).unwrap();
        let refused = late.finish();
        assert!(matches!(refused, Err(UploadError::Newer)), "{refused:?}");
        let stored = own.finish();
        assert!(matches!(stored, Err(UploadError::Stored)), "{stored:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
