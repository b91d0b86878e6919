//! Files of credentials.

use std::path::Path;

use mpquic_proxy::Credential;

use crate::process::failure::{Cause, Failure};

/// Reads the credentials of a file, one per line. Lines with `#` in front are comments.
pub(crate) fn read_credentials(path: &Path) -> Result<Vec<Credential>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
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
}
