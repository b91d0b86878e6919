//! Files that the tool keeps for its next runs: their directory, and permissions for their owner
//! alone.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Opens an empty file that only its owner can read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let file = open_private(path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file that only its owner can read. A new file is empty.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
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
    use std::fs;
    use std::io::Write;

    use super::*;

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
    fn a_private_file_begins_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("private");
        fs::write(&path, "what was there before").unwrap();
        create_private(&path).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
