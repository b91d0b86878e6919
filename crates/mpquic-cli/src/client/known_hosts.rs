//! Servers trusted at the first contact, and their certificates.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::files::unfinished::wait_for_lock;
use crate::options::trust::{Fingerprint, changed};
use crate::process::failure::{Cause, Failure};
use crate::process::{screen, state};

/// A file with a line for each server: its host and port, a space, and the fingerprint of its
/// certificate. Lines with `#` in front are comments.
#[derive(Debug, Clone)]
pub(crate) struct KnownHosts {
    path: PathBuf,
}

impl KnownHosts {
    /// The file with this name, or else the common file of all runs.
    pub(crate) fn new(named: Option<&Path>) -> Result<Self, Failure> {
        let kept = || Some(state::state_directory()?.join("known_hosts"));
        let path = named.map(Path::to_owned).or_else(kept);
        let path = path.ok_or_else(|| {
            Failure::usage(
                "--first-use: there is no home directory; name a file with --known-hosts",
            )
        })?;
        Ok(Self { path })
    }

    /// The certificate of a known server.
    pub(crate) fn find(&self, server: &str) -> Result<Option<Fingerprint>, Failure> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let path = self.path.display();
                return Err(Cause::File.failed(format_args!("cannot read {path}: {error}")));
            }
        };
        match line_of(server, &text) {
            None => Ok(None),
            Some((number, fingerprint)) => fingerprint.map(Some).map_err(|error| {
                let path = self.path.display();
                Failure::usage(format!("{path}, line {number}: {error}"))
            }),
        }
    }

    /// Adds a server that [`Self::find`] did not find. Meanwhile, another contact of the same
    /// server may have added a line; then the file stays as it is.
    fn add(&self, server: &str, certificate: Fingerprint) -> io::Result<Added> {
        if let Some(directory) = self.path.parent() {
            state::make_directory(directory)?;
        }
        let mut file = state::append_private(&self.path)?;
        // Other processes may add the same server at the same time.
        wait_for_lock(&file);
        let mut there = Vec::new();
        file.read_to_end(&mut there)?;
        match line_of(server, &String::from_utf8_lossy(&there)) {
            None => {}
            Some((_, Ok(known))) if known == certificate => return Ok(Added::Already),
            Some((_, Ok(known))) => return Ok(Added::Differs(known)),
            Some((_, Err(error))) => return Err(io::Error::other(error)),
        }
        // An editor may have left the last line without its end.
        let end = match there.last() {
            None | Some(b'\n') => "",
            Some(_) => "\n",
        };
        // A single write, because a file system without locks lets other processes append lines at
        // the same time.
        file.write_all(format!("{end}{server} {certificate}\n").as_bytes())?;
        Ok(Added::New)
    }

    /// Adds a new server, and tells the user. Fails if a simultaneous first contact met another
    /// certificate.
    pub(crate) fn remember(
        &self,
        server: &str,
        met: Fingerprint,
        quiet: bool,
    ) -> Result<(), Failure> {
        let path = self.path.display();
        match self.add(server, met) {
            Ok(Added::Differs(first)) => {
                let told = changed(met, first);
                return Err(Cause::Trust.failed(told).and(Some(self.renewal())));
            }
            Ok(Added::New) if !quiet => screen::say(format_args!(
                "mpquic: {server} is new: its certificate {met} is now in {path}"
            )),
            Ok(Added::New | Added::Already) => {}
            Err(error) => screen::say(format_args!(
                "mpquic: cannot write {path}: {error}; {server} stays unknown"
            )),
        }
        Ok(())
    }

    /// Advice for a server that has another certificate than at the first contact.
    pub(crate) fn renewal(&self) -> String {
        format!(
            "if you know why, remove its line from {}",
            self.path.display()
        )
    }
}

/// The result of [`KnownHosts::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    /// The file has a new line.
    New,
    /// Another contact has added the server with the same certificate.
    Already,
    /// Another contact has added the server with this certificate, which is another one.
    Differs(Fingerprint),
}

/// The number of a server's first line, and the fingerprint in the line.
fn line_of(server: &str, text: &str) -> Option<(usize, Result<Fingerprint, &'static str>)> {
    text.lines().enumerate().find_map(|(number, line)| {
        let mut words = line.split_whitespace();
        let is_it = words.next()?.eq_ignore_ascii_case(server);
        is_it.then(|| (number + 1, words.next().unwrap_or_default().parse()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_host_and_port() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/known");
        let known = KnownHosts::new(Some(&path)).unwrap();
        let [one, two] = [Fingerprint([1; 32]), Fingerprint([2; 32])];
        assert_eq!(known.find("a:1"), Ok(None));
        known.add("a:1", one).unwrap();
        known.add("a:2", two).unwrap();
        assert_eq!(known.find("A:1"), Ok(Some(one)));
        assert_eq!(known.find("a:2"), Ok(Some(two)));
        assert_eq!(known.find("a:11"), Ok(None));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.trim_end()).unwrap();
        known.add("a:3", one).unwrap();
        assert_eq!(known.find("a:2"), Ok(Some(two)), "the last line had no end");
        assert_eq!(known.find("a:3"), Ok(Some(one)));
    }

    /// Each contact of a server that began before the first one ended finds no line of the server.
    #[test]
    fn simultaneous_first_contacts_write_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let known = KnownHosts::new(Some(&path)).unwrap();
        let [one, two] = [Fingerprint([1; 32]), Fingerprint([2; 32])];
        let added: Vec<_> = std::thread::scope(|scope| {
            let add = || known.add("a:1", one).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(add)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let new = added.iter().filter(|added| **added == Added::New);
        if cfg!(unix) {
            assert_eq!(new.count(), 1, "{added:?}");
            let line = format!("a:1 {one}\n");
            assert_eq!(fs::read_to_string(&path).unwrap(), line);
        }
        // A later line would replace nothing, as the first line of a server counts.
        assert_eq!(known.add("A:1", two).unwrap(), Added::Differs(one));
        assert_eq!(known.find("a:1"), Ok(Some(one)));
        assert_eq!(known.add("a:1", one).unwrap(), Added::Already);
        fs::write(&path, "a:1 sha256:12\n").unwrap();
        known.add("a:1", one).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a:1 sha256:12\n");
    }

    /// The file says which servers the user knows.
    #[cfg(unix)]
    #[test]
    fn only_its_user_can_read_a_new_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        let known = KnownHosts::new(Some(&path)).unwrap();
        for number in 0..2 {
            let server = format!("a:{number}");
            known.add(&server, Fingerprint([number; 32])).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_damaged_line_is_no_stranger() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("known");
        fs::write(&path, "# a:1 x\n\na:1 sha256:12\n").unwrap();
        let known = KnownHosts::new(Some(&path)).unwrap();
        let failure = known.find("a:1").unwrap_err();
        assert!(
            failure.message().contains("line 3: expected"),
            "{failure:?}"
        );
        assert!(
            KnownHosts::new(Some(directory.path()))
                .unwrap()
                .find("a")
                .is_err()
        );
    }
}
