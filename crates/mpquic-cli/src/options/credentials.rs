//! Files of credentials.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use mpquic_proxy::Credential;

use crate::process::failure::{Cause, Failure};
use crate::process::state;

/// Reads the credentials of a file, one per line. Lines with `#` in front are comments. A warning tells if others may
/// use the file: a service may run as another user than the owner of its file, so this is no error.
pub(crate) fn read_credentials(path: &Path) -> Result<Vec<Credential>, Failure> {
    let text = read(path).map_err(|error| {
        Cause::File.failed(format_args!("cannot read {}: {error}", path.display()))
    })?;
    let lines = (text.lines().map(str::trim).enumerate())
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let credentials: Result<Vec<_>, _> = lines
        .map(|(number, line)| {
            // The message leaves out the line, which is a secret.
            line.parse::<Credential>().map_err(|error| {
                let path = path.display();
                Failure::usage(format!(
                    "--credentials {path}, line {}: {error}",
                    number + 1
                ))
            })
        })
        .collect();
    let credentials = credentials?;
    match credentials.is_empty() {
        true => Err(Failure::usage(format!(
            "--credentials {}: no line with `basic NAME:PASSWORD` or `bearer TOKEN`",
            path.display()
        ))),
        false => Ok(credentials),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if let Some(told) = state::open_to_others(&file.metadata()?) {
        tracing::warn!("--credentials {}: {told}", path.display());
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_and_not_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, "# users\n\nbasic a:b\n bearer c \n").unwrap();
        assert_eq!(read_credentials(&path).unwrap().len(), 2);
        for text in ["", "# none", "basic a:b\nsecret"] {
            std::fs::write(&path, text).unwrap();
            let failure = read_credentials(&path).unwrap_err();
            assert!(
                failure.message().starts_with("--credentials"),
                "{failure:?}"
            );
            assert!(!failure.message().contains("secret"));
        }
        assert!(read_credentials(&directory.path().join("none")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_use_is_warned_about() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, "basic a:secret").unwrap();
        for (mode, is_told) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let told = crate::testing::logged(|| drop(read_credentials(&path).unwrap()));
            assert_eq!(told.contains("`chmod 600`"), is_told, "{told}");
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
