//! Files that the tool keeps for its next runs: their directory, and permissions for their owner
//! alone.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Makes a file that only its owner can read. An existing file or link is an error.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    private().create_new(true).open(path)
}

/// Opens a file that only its owner can read. A new file is empty. A link is an error, because
/// another user may own the directory, and have root make or empty the link's target.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = private();
    options.create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path)
}

/// Opens a file that only its owner can read, to read the file and to add to its end.
pub(crate) fn append_private(path: &Path) -> io::Result<File> {
    private().read(true).append(true).create(true).open(path)
}

fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

/// Makes a directory and the missing directories above, for their owner alone. An existing
/// directory stays as it is.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.recursive(true).create(path)
}

/// Renames a file, unless the new name is taken.
pub(crate) fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // Some file systems have one name for each file.
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// A message about a file that others than its owner may use, and how to make the file private.
#[cfg_attr(
    not(unix),
    expect(unused_variables, reason = "permissions are those of Unix")
)]
pub(crate) fn open_to_others(file: &Metadata) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.permissions().mode() & 0o7777;
        (mode & 0o077 != 0).then(|| {
            format!(
                "others may use the file (its mode is {mode:04o}): `chmod 600` makes it private"
            )
        })
    }
    #[cfg(not(unix))]
    None
}

/// The user's directory for lasting data; `None` without a home directory.
pub(crate) fn state_directory() -> Option<PathBuf> {
    state_directory_by(|name| std::env::var_os(name))
}

fn state_directory_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    let from = |name, below: &str| variable(name).map(|path| PathBuf::from(path).join(below));
    // https://specifications.freedesktop.org/basedir-spec
    from("XDG_STATE_HOME", "mpquic")
        .filter(|path| path.is_absolute())
        .or_else(|| from("LOCALAPPDATA", "mpquic").filter(|_| cfg!(windows)))
        .or_else(|| from("HOME", ".local/state/mpquic"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_private_file_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let [link, target] = ["link", "target"].map(|name| root.path().join(name));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(open_private(&link).is_err() && !target.exists());
        fs::write(&target, "of root").unwrap();
        assert!(open_private(&link).is_err());
        assert!(open_private(&target).is_ok());
        assert_eq!(fs::read_to_string(&target).unwrap(), "of root");
    }

    #[test]
    fn where_the_state_of_users_is() {
        let directory = |variables: &[(&str, &str)]| {
            let found = state_directory_by(|name| {
                let mut variables = variables.iter();
                let found = variables.find(|(variable, _)| *variable == name);
                found.map(|(_, value)| value.into())
            });
            found.map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/a");
        for (variables, expected) in [
            (&[("XDG_STATE_HOME", "/state"), home][..], "/state/mpquic"),
            (&[home], "/home/a/.local/state/mpquic"),
            // The specification says that programs must ignore relative paths.
            (
                &[("XDG_STATE_HOME", ""), home],
                "/home/a/.local/state/mpquic",
            ),
            (
                &[("XDG_STATE_HOME", "state"), home],
                "/home/a/.local/state/mpquic",
            ),
        ] {
            if cfg!(unix) {
                assert_eq!(directory(variables).as_deref(), Some(expected));
            }
        }
        assert_eq!(directory(&[]), None);
        assert_eq!(directory(&[("HOME", ""), ("XDG_STATE_HOME", "")]), None);
    }

    #[test]
    fn a_private_file_is_new() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("private");
        create_private(&path).unwrap().write_all(b"new").unwrap();
        let failed = create_private(&path).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
