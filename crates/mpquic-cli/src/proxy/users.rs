//! `mpquic proxy user`: the users in a file of credentials.

use std::fs::{self, Metadata};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use mpquic_proxy::{Credential, HashedPassword};

use crate::options::credentials::User;
use crate::process::failure::{Cause, Failure};
use crate::process::{screen, state};
use crate::text::hex::hex;

/// Add, list and remove users in a file of credentials
///
/// The file has only hashes of passwords. A running server reads the file again after SIGHUP.
#[derive(Debug, Subcommand)]
pub(crate) enum ProxyUser {
    Add(Add),
    List(List),
    Remove(Remove),
}

/// Add a user with a hashed password
///
/// Prints the line for the client's own file of credentials, `basic NAME:PASSWORD`, with a random
/// password. No file has the password.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The server's file of credentials; a new file is private
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The user's name
    #[arg(value_name = "NAME")]
    name: String,
    /// Read the password from the first line of standard input, and print nothing
    #[arg(long)]
    stdin: bool,
}

/// Print the names of users, and how their secrets are kept: hashed, as a password, or as a token
#[derive(Debug, Args)]
pub(crate) struct List {
    /// The server's file of credentials
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Remove a user; open flows go on
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The server's file of credentials
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The user's name
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) fn run(command: &ProxyUser) -> Result<(), Failure> {
    match command {
        ProxyUser::Add(args) => {
            let password = if args.stdin {
                Some(first_line(&mut io::stdin().lock())?)
            } else {
                None
            };
            if let Some(line) = add(&args.file, &args.name, password.as_deref())? {
                screen::print(format_args!("{line}"));
            }
            Ok(())
        }
        ProxyUser::List(args) => {
            for (name, kind) in list(&args.file)? {
                screen::print(format_args!("{name} {kind}"));
            }
            Ok(())
        }
        ProxyUser::Remove(args) => remove(&args.file, &args.name),
    }
}

fn first_line(input: &mut impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(Failure::other)?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        Err(Failure::usage("standard input has no password"))
    } else {
        Ok(password.to_owned())
    }
}

/// Adds a user. Returns the line of the client for a random password.
fn add(path: &Path, name: &str, password: Option<&str>) -> Result<Option<String>, Failure> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Failure::other)?;
    let (secret, salt) = random.split_at(16);
    let line = format!(
        "basic {name}:{}",
        password.map_or_else(|| hex(secret), str::to_owned)
    );
    // The message leaves out the line, which has the password.
    let credential: Credential = line.parse().map_err(Failure::usage)?;
    if credential.name() != name {
        return Err(Failure::usage("a name has no colon"));
    }
    let salt = salt.try_into().map_err(Failure::other)?;
    let hashed = HashedPassword::new(&credential, salt).map_err(Failure::usage)?;
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(cannot("read", path, &error)),
    };
    if users(path, &text)?.iter().any(|user| user.name() == name) {
        let path = path.display();
        return Err(Failure::usage(format!(
            "{path} has a user {name} already; `mpquic proxy user remove {path} {name}` removes it"
        )));
    }
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    write(path, &format!("{text}{end}{hashed}\n"))?;
    Ok(password.is_none().then_some(line))
}

/// The names of users, and the kinds of their secrets.
fn list(path: &Path) -> Result<Vec<(String, &'static str)>, Failure> {
    let text = fs::read_to_string(path).map_err(|error| cannot("read", path, &error))?;
    let users = users(path, &text)?.into_iter();
    Ok(users
        .map(|user| (user.name().to_owned(), user.kind()))
        .collect())
}

/// Removes all lines of a user.
fn remove(path: &Path, name: &str) -> Result<(), Failure> {
    let text = fs::read_to_string(path).map_err(|error| cannot("read", path, &error))?;
    let of_name = |user: &User| user.name() == name;
    if !users(path, &text)?.iter().any(of_name) {
        return Err(Failure::usage(format!(
            "{} has no user {name}",
            path.display()
        )));
    }
    let is_left =
        |line: &&str| !User::of_line(line).is_some_and(|user| user.as_ref().is_ok_and(of_name));
    let left: String = text.split_inclusive('\n').filter(is_left).collect();
    write(path, &left)
}

/// All users of a file.
fn users(path: &Path, text: &str) -> Result<Vec<User>, Failure> {
    let lines = text.lines().enumerate();
    let users = lines.filter_map(|(number, line)| Some((number + 1, User::of_line(line)?)));
    let users = users.map(|(number, user)| {
        // The message leaves out the line, which is a secret.
        user.map_err(|error| Failure::usage(format!("{}, line {number}: {error}", path.display())))
    });
    users.collect()
}

/// Replaces a file at once, with owner and permissions of the old one: the server may run as
/// another user.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    // A link stays a link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut next = path.clone().into_os_string();
    next.push(".new");
    let next = PathBuf::from(next);
    let replace = || {
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = state::create_private(&next)?;
        if let Ok(old) = fs::metadata(&path) {
            keep_owner(&file, &old)?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, &path)
    };
    replace().map_err(|error| cannot("write", &path, &error))
}

#[cfg_attr(
    not(unix),
    expect(unused_variables, reason = "permissions are those of Unix")
)]
fn keep_owner(file: &fs::File, old: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())?;
    }
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Cause::File.failed(format_args!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::credentials::read_users;

    #[test]
    fn users_are_added_listed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        let read = || fs::read_to_string(&path).unwrap();
        let line = add(&path, "alice", None).unwrap().unwrap();
        let secret = line.strip_prefix("basic alice:").unwrap();
        assert_eq!(secret.len(), 32);
        assert!(read().starts_with("basic-hash alice:") && !read().contains(secret));
        assert!(add(&path, "alice", None).is_err(), "twice");
        fs::write(&path, format!("# users\nbearer t\n{}basic carol:c", read())).unwrap();
        assert_eq!(add(&path, "bob", Some("b:b")).unwrap(), None);
        let kinds: Vec<_> = list(&path).unwrap().into_iter().skip(1).collect();
        let named = |name: &str, kind| (name.to_owned(), kind);
        let expected = [
            named("alice", "hashed"),
            named("carol", "password"),
            named("bob", "hashed"),
        ];
        assert_eq!(kinds, expected);
        let users = read_users(&path).unwrap();
        for (line, name) in [
            (&*line, "alice"),
            ("basic bob:b:b", "bob"),
            ("basic carol:c", "carol"),
        ] {
            let field = line.parse::<Credential>().unwrap().to_field();
            assert_eq!(users.user(&field), Some(name));
        }
        let others = tempfile::tempdir().unwrap();
        let other = others.path().join("users");
        let lines = ["alice", "bob"].map(|name| add(&other, name, None).unwrap().unwrap());
        let [alice, bob] = lines
            .each_ref()
            .map(|line| line.rsplit_once(':').unwrap().1);
        assert_ne!(alice, bob, "random passwords");
        for name in ["carol", "dora"] {
            add(&other, name, Some("same")).unwrap();
        }
        let text = fs::read_to_string(&other).unwrap();
        let salt_of = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.contains(name)).unwrap();
            line.split(':').nth(2).unwrap()
        };
        assert_ne!(salt_of("carol"), salt_of("dora"));
        remove(&path, "alice").unwrap();
        assert!(remove(&path, "alice").is_err());
        let field = line.parse::<Credential>().unwrap().to_field();
        assert_eq!(read_users(&path).unwrap().user(&field), None);
        assert!(
            read().starts_with("# users\nbearer t\nbasic carol:c\nbasic-hash bob:"),
            "{}",
            read()
        );
        for wrong in ["", "a:b", "a b", "\u{fc}"] {
            assert!(add(&path, wrong, None).is_err(), "{wrong}");
        }
        fs::write(&path, "secret").unwrap();
        for failure in [
            list(&path).unwrap_err(),
            add(&path, "dora", None).unwrap_err(),
        ] {
            assert!(!failure.message().contains("secret"), "{failure:?}");
        }
        assert!(list(&directory.path().join("none")).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_keeps_its_permissions_and_its_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["users", "link"].map(|name| directory.path().join(name));
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        add(&path, "alice", None).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        add(&link, "bob", None).unwrap();
        assert_eq!((mode(), list(&path).unwrap().len()), (0o640, 2));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn passwords_come_from_the_first_line() {
        let read = |text: &str| first_line(&mut text.as_bytes());
        assert_eq!(read("secret\nmore\n").unwrap(), "secret");
        assert_eq!(read("secret\r\n").unwrap(), "secret");
        assert!(read("").is_err() && read("\n").is_err());
    }
}
