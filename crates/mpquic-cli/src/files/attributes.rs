//! A file's attributes beside its content: the time of its last change, and its permissions.
//! `mpquic put` sends both in fields that other servers ignore.

use std::fs::{File, Metadata};
use std::time::SystemTime;

use http::header::{HeaderMap, HeaderName, LAST_MODIFIED};

use crate::text::times;

/// Seconds since 1970, with up to nine digits behind a point.
const FILE_MODIFIED: HeaderName = HeaderName::from_static("file-modified");
/// The permissions of Unix, as octal digits.
const FILE_MODE: HeaderName = HeaderName::from_static("file-mode");
/// Of the permissions, those for owner, group and others: nothing that lends rights.
const PERMISSIONS: u32 = 0o777;

/// The known attributes of a file; the system chooses the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) modified: Option<SystemTime>,
    pub(crate) mode: Option<u32>,
}

impl Attributes {
    pub(crate) fn of_file(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let mode = Some(std::os::unix::fs::PermissionsExt::mode(
            &metadata.permissions(),
        ));
        #[cfg(not(unix))]
        let mode = None;
        Self {
            modified: metadata.modified().ok(),
            mode: mode.map(|mode: u32| mode & PERMISSIONS),
        }
    }

    /// Those of what is listed.
    pub(crate) fn of_listed(metadata: &cap_std::fs::Metadata) -> Self {
        #[cfg(unix)]
        let mode = Some(cap_std::fs::PermissionsExt::mode(&metadata.permissions()));
        #[cfg(not(unix))]
        let mode = None;
        Self {
            modified: metadata.modified().ok().map(|time| time.into_std()),
            mode: mode.map(|mode: u32| mode & PERMISSIONS),
        }
    }

    /// What a client says. What makes no sense is passed over.
    pub(crate) fn of_fields(fields: &HeaderMap) -> Self {
        let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
        let modified = text(FILE_MODIFIED).and_then(times::of_seconds);
        let date = || httpdate::parse_http_date(text(LAST_MODIFIED)?).ok();
        Self {
            modified: modified.or_else(date),
            mode: text(FILE_MODE).and_then(mode_of),
        }
    }

    /// Adds the attributes to the fields of a request.
    pub(crate) fn add_to(&self, fields: &mut HeaderMap) {
        let modified = self.modified.map(times::seconds);
        let mode = self.mode.map(digits_of);
        for (name, value) in [(FILE_MODIFIED, modified), (FILE_MODE, mode)] {
            if let Some(Ok(value)) = value.map(TryInto::try_into) {
                fields.insert(name, value);
            }
        }
    }

    /// Sets the attributes of a file that was made with [`Self::mode_to_make`]. The umask already removed bits when the
    /// file was made.
    pub(crate) fn give_to(&self, file: &File) {
        self.give_at_most(file, |made_with| made_with);
    }

    /// The same for a file with the default permissions of new files: users who may read the file may run it.
    pub(crate) fn give_to_plain(&self, file: &File) {
        self.give_at_most(file, |made_with| made_with | (made_with & 0o444) >> 2);
    }

    fn give_at_most(&self, file: &File, most: impl Fn(u32) -> u32) {
        if let Err(error) = self.try_give_to(file, most) {
            tracing::warn!(%error, "the time or the permissions of a file");
        }
    }

    #[cfg_attr(
        not(unix),
        expect(unused_variables, reason = "permissions are those of Unix")
    )]
    fn try_give_to(&self, file: &File, most: impl Fn(u32) -> u32) -> std::io::Result<()> {
        #[cfg(unix)]
        if let Some(mode) = self.mode {
            use std::os::unix::fs::PermissionsExt;
            let mut permissions = file.metadata()?.permissions();
            permissions.set_mode(most(permissions.mode()) & mode);
            file.set_permissions(permissions)?;
        }
        self.modified.map_or(Ok(()), |time| file.set_modified(time))
    }

    /// The permissions to make a file or directory with: the owner can write until it is whole.
    #[cfg(unix)]
    pub(crate) fn mode_to_make(&self, of_owner: u32) -> Option<u32> {
        self.mode.map(|mode| mode | of_owner)
    }
}

/// Permissions as octal digits.
pub(crate) fn digits_of(mode: u32) -> String {
    format!("{mode:04o}")
}

/// The permissions that octal digits stand for, without those that lend rights.
pub(crate) fn mode_of(digits: &str) -> Option<u32> {
    let mode = u32::from_str_radix(digits, 8).ok()?;
    Some(mode & PERMISSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_a_round_trip() {
        let modified = times::of_seconds("-1.25");
        let said = |attributes: Attributes| {
            let mut fields = HeaderMap::new();
            attributes.add_to(&mut fields);
            Attributes::of_fields(&fields)
        };
        for mode in [None, Some(0), Some(0o600), Some(0o755)] {
            for modified in [None, modified] {
                let attributes = Attributes { modified, mode };
                assert_eq!(said(attributes), attributes);
            }
        }
        let mode = Some(0o4711);
        let attributes = Attributes {
            mode,
            ..Attributes::default()
        };
        assert_eq!(said(attributes).mode, Some(0o711), "no rights are lent");
    }

    /// With the usual umask, and with an umask that leaves no permission for group and others.
    #[cfg(unix)]
    #[test]
    fn who_may_read_a_fetched_file_may_run_it() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::tempfile().unwrap();
        for (made_with, wanted, expected) in [
            (0o644, 0o755, 0o755),
            (0o644, 0o777, 0o755),
            (0o644, 0o600, 0o600),
            (0o600, 0o755, 0o700),
            (0o644, 0o4755, 0o755),
        ] {
            file.set_permissions(std::fs::Permissions::from_mode(made_with))
                .unwrap();
            let attributes = Attributes {
                modified: times::of_seconds("-1.25"),
                mode: mode_of(&digits_of(wanted)),
            };
            attributes.give_to_plain(&file);
            let there = file.metadata().unwrap();
            assert_eq!(there.permissions().mode() & 0o7777, expected);
            assert_eq!(there.modified().ok(), attributes.modified);
        }
    }

    #[test]
    fn others_say_when_a_file_changed_as_servers_do() {
        let mut fields = HeaderMap::new();
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        fields.insert(LAST_MODIFIED, date.parse().unwrap());
        fields.insert(FILE_MODE, "rw-------".parse().unwrap());
        let attributes = Attributes::of_fields(&fields);
        assert_eq!(attributes.modified, times::of_seconds("784111777"));
        assert_eq!(attributes.mode, None);
        fields.insert(FILE_MODIFIED, "5".parse().unwrap());
        let attributes = Attributes::of_fields(&fields);
        assert_eq!(attributes.modified, times::of_seconds("5"));
    }
}
