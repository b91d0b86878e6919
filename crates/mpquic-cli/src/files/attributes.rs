//! A file's attributes beside its content: the time of its last change, and its permissions.
//! `mpquic put` sends both in fields that other servers ignore.

use std::fs::{File, Metadata};
use std::time::SystemTime;

use http::header::{HeaderMap, HeaderName, LAST_MODIFIED};

use crate::files::file_state::FileState;
use crate::text::times;

/// Seconds since 1970, with up to nine digits behind a point.
const FILE_MODIFIED: HeaderName = HeaderName::from_static("file-modified");
/// The permissions of Unix, as octal digits.
const FILE_MODE: HeaderName = HeaderName::from_static("file-mode");
/// The permissions for owner, group and others. The set-user-ID and set-group-ID bits are left out,
/// because they lend rights.
const PERMISSIONS: u32 = 0o777;
/// The media type of a PATCH request without content, which sets the attributes of an existing file
/// or directory.
pub(crate) const ATTRIBUTES: &str = "application/vnd.mpquic.attributes";

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

    /// The attributes of a listed file or directory.
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

    /// The attributes of an open file.
    pub(crate) fn of_state(state: &FileState) -> Self {
        Self {
            modified: state.modified,
            mode: state.mode().map(|mode| mode & PERMISSIONS),
        }
    }

    /// Adds the listed time of a file to the fields of the request for this file. `mpquic serve`
    /// then tells the attributes of the file that it sends: somebody may have replaced the file
    /// since the list was made.
    pub(crate) fn ask(&self, fields: &mut HeaderMap) {
        let time = Self {
            mode: None,
            ..*self
        };
        time.add_to(fields);
    }

    /// True if a request asks for the attributes of the file.
    pub(crate) fn are_asked(fields: &HeaderMap) -> bool {
        fields.contains_key(FILE_MODIFIED)
    }

    /// These listed attributes, or those that the answer with the content has in other form.
    pub(crate) fn corrected(&self, answered: &Self) -> Self {
        let is_listed = |answered: &SystemTime| {
            (self.modified).is_some_and(|listed| times::are_equal(listed, *answered))
        };
        Self {
            modified: answered
                .modified
                .filter(|it| !is_listed(it))
                .or(self.modified),
            mode: answered.mode.or(self.mode),
        }
    }

    /// The attributes in the fields of a request or an answer. Invalid values are ignored.
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

    /// Sets the attributes of a file or directory, independently of the umask. An error is logged.
    pub(crate) fn give_to(&self, file: &File) {
        if let Err(error) = self.try_give_to(file) {
            tracing::warn!(%error, "the time or the permissions of a file");
        }
    }

    /// Sets the attributes, and returns an error.
    pub(crate) fn try_give_to(&self, file: &File) -> std::io::Result<()> {
        #[cfg(unix)]
        if let Some(mode) = self.mode {
            use std::os::unix::fs::PermissionsExt;
            let mut permissions = file.metadata()?.permissions();
            permissions.set_mode(mode & PERMISSIONS);
            file.set_permissions(permissions)?;
        }
        self.modified.map_or(Ok(()), |time| file.set_modified(time))
    }

    /// Without these permissions, if there are any.
    pub(crate) fn without_mode(self, less: u32) -> Self {
        Self {
            mode: self.mode.map(|mode| mode & !less),
            ..self
        }
    }

    /// Adds permissions, if the permissions are known.
    pub(crate) fn and_mode(self, more: u32) -> Self {
        Self {
            mode: self.mode.map(|mode| mode | more),
            ..self
        }
    }

    /// True unless both permissions are known and differ.
    pub(crate) fn has_mode_of(&self, other: &Self) -> bool {
        self.mode
            .zip(other.mode)
            .is_none_or(|(one, other)| one == other)
    }
}

/// Permissions as octal digits.
pub(crate) fn digits_of(mode: u32) -> String {
    format!("{mode:04o}")
}

/// The permissions of octal digits, without the bits that lend rights.
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

    /// No umask gives all of these permissions, and no permission lends rights.
    #[cfg(unix)]
    #[test]
    fn a_file_gets_the_permissions_that_were_sent() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::tempfile().unwrap();
        for (wanted, expected) in [
            (0o755, 0o755),
            (0o777, 0o777),
            (0o666, 0o666),
            (0o600, 0o600),
            (0o070, 0o070),
            (0, 0),
            (0o7755, 0o755),
        ] {
            let attributes = Attributes {
                modified: times::of_seconds("-1.25"),
                mode: Some(wanted),
            };
            attributes.give_to(&file);
            let there = file.metadata().unwrap();
            assert_eq!(there.permissions().mode() & 0o7777, expected);
            assert_eq!(there.modified().ok(), attributes.modified);
        }
    }

    #[test]
    fn unknown_permissions_do_not_differ() {
        let of = |mode| Attributes {
            modified: None,
            mode,
        };
        let one = of(Some(0o644));
        assert!(one.has_mode_of(&one) && one.has_mode_of(&of(None)));
        assert!(of(None).has_mode_of(&one) && !one.has_mode_of(&of(Some(0o600))));
        assert_eq!(one.and_mode(0o100).mode, Some(0o744));
        assert_eq!(of(None).and_mode(0o100).mode, None);
        let less = |mode| of(Some(mode)).without_mode(0o027).mode;
        assert_eq!([0o777, 0o600, 0].map(less), [0o750, 0o600, 0].map(Some));
        assert_eq!(of(None).without_mode(0o777).mode, None);
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
