//! Files of credentials.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use mpquic_proxy::{Credential, Credentials, HashedPassword, InvalidCredential};

use crate::process::failure::{Cause, Failure};
use crate::process::state;

/// A line of a file of credentials.
#[derive(Debug)]
pub(crate) enum User {
    Secret(Credential),
    Hashed(HashedPassword),
}

impl User {
    /// The user of a line; `None` for an empty line or a comment.
    pub(crate) fn of_line(line: &str) -> Option<Result<Self, InvalidCredential>> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let hashed = line.parse().map(Self::Hashed);
        Some(hashed.or_else(|_| line.parse().map(Self::Secret)))
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Secret(credential) => credential.name(),
            Self::Hashed(hashed) => hashed.name(),
        }
    }

    /// How the file keeps the secret.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Hashed(_) => "hashed",
            Self::Secret(credential) if credential.is_token() => "token",
            Self::Secret(_) => "password",
        }
    }
}

/// Reads the credentials of a file, one per line. Lines with `#` in front are comments. A warning
/// reports a file that others may use. It is not an error, because a service may run as another
/// user than the owner of its file.
pub(crate) fn read_credentials(path: &Path) -> Result<Vec<Credential>, Failure> {
    let users = read_lines(path, "`basic NAME:PASSWORD` or `bearer TOKEN`")?;
    let credentials = users.into_iter().map(|user| match user {
        User::Secret(credential) => Ok(credential),
        User::Hashed(hashed) => {
            let (path, name) = (path.display(), hashed.name());
            Err(Failure::usage(format!(
                "--credentials {path}: the line of {name} has a hash; only `mpquic proxy server` takes hashes"
            )))
        }
    });
    credentials.collect()
}

/// Reads the users of a server's file, with plain or hashed passwords.
pub(crate) fn read_users(path: &Path) -> Result<Credentials, Failure> {
    let expected = "`basic NAME:PASSWORD`, `bearer TOKEN`, or a hash of `mpquic proxy user add`";
    let (mut secrets, mut hashes) = (Vec::new(), Vec::new());
    for user in read_lines(path, expected)? {
        match user {
            User::Secret(credential) => secrets.push(credential),
            User::Hashed(hashed) => hashes.push(hashed),
        }
    }
    Ok(Credentials::new(secrets).with_hashed(hashes))
}

/// Reads the lines of a file, at least one.
fn read_lines(path: &Path, expected: &str) -> Result<Vec<User>, Failure> {
    let text = read(path).map_err(|error| {
        Cause::File.failed(format_args!("cannot read {}: {error}", path.display()))
    })?;
    let lines = text.lines().enumerate();
    let lines = lines.filter_map(|(number, line)| Some((number + 1, User::of_line(line)?)));
    let users: Result<Vec<_>, _> = lines
        .map(|(number, user)| {
            // The message leaves out the line, which is a secret.
            user.map_err(|error| {
                let path = path.display();
                Failure::usage(format!("--credentials {path}, line {number}: {error}"))
            })
        })
        .collect();
    let users = users?;
    if users.is_empty() {
        Err(Failure::usage(format!(
            "--credentials {}: no line with {expected}",
            path.display()
        )))
    } else {
        Ok(users)
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
        let secret: Credential = "basic alice:secret".parse().unwrap();
        let hashed = HashedPassword::new(&secret, [1; 16]).unwrap();
        std::fs::write(&path, format!("{hashed}\nbasic bob:b")).unwrap();
        let failure = read_credentials(&path).unwrap_err();
        assert!(
            failure.message().contains("alice has a hash"),
            "{failure:?}"
        );
        let users = read_users(&path).unwrap();
        assert_eq!(users.user(&secret.to_field()), Some("alice"));
        std::fs::write(&path, "").unwrap();
        assert!(read_users(&path).is_err());
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
