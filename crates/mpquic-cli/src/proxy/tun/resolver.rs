//! The name servers of the machine.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command::run;
use super::place::{Links, Place};
use crate::process::failure::{Cause, Failure};

const FILE: &str = "/etc/resolv.conf";
/// systemd-resolved keeps name servers for each device, and forgets them with the device.
const RESOLVED: &str = "/run/systemd/resolve";

/// The first line of a file that this tool wrote.
const FIRST_LINE: &str = "# Set by mpquic proxy client; `mpquic proxy down` restores it.\n";

/// A replaced file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replaced {
    path: PathBuf,
    /// `None` if the file did not exist.
    pub(super) before: Option<String>,
    after: String,
    /// The user named the file with `--dns-file`.
    #[serde(default)]
    is_named: bool,
}

/// The way to set the name servers.
#[derive(Debug)]
pub(crate) enum Resolver {
    /// systemd-resolved, for the device.
    Resolved,
    /// The file.
    File(Replaced),
}

impl Resolver {
    /// The steps for using these name servers.
    ///
    /// Without a named file, the file of the machine is meant. A named file is a result of
    /// [`check`], so the path has no links.
    pub(crate) fn plan(servers: &[IpAddr], named: Option<&Path>) -> Result<Self, Failure> {
        let plan = match named {
            Some(path) => Self::plan_of(path, Links::Refused, servers)?,
            None => Self::plan_of(Path::new(FILE), Links::Followed, servers)?,
        };
        Ok(match plan {
            Self::File(replaced) => Self::File(Replaced {
                is_named: named.is_some(),
                ..replaced
            }),
            Self::Resolved => Self::Resolved,
        })
    }

    pub(super) fn plan_of(path: &Path, links: Links, servers: &[IpAddr]) -> Result<Self, Failure> {
        let read = |error| cannot("read", path, &error);
        let Some(place) = find(path, links).map_err(read)? else {
            return Ok(Self::Resolved);
        };
        let before = place.read().map_err(read)?;
        let after = text(before.as_deref().unwrap_or_default(), servers);
        Ok(Self::File(Replaced {
            path: place.path().to_owned(),
            before,
            after,
            is_named: false,
        }))
    }

    /// The resolver's file, to be restored at the end of the client.
    pub(super) fn replaced(&self) -> Option<&Replaced> {
        match self {
            Self::File(replaced) => Some(replaced),
            Self::Resolved => None,
        }
    }

    /// The next setting of the resolver, if `self` is a plan for the file's present content, and
    /// `set` the last setting. `None` if no other program has changed the file. The end of the
    /// client never restores a content written by this tool: another program may have saved such a
    /// content and brought the content back.
    pub(super) fn after(self, set: &Self) -> Option<Self> {
        match (self, set) {
            (Self::Resolved, Self::Resolved) => None,
            (Self::File(now), Self::File(set)) if now.path == set.path => {
                match now.before.as_deref() {
                    Some(text) if text == set.after => None,
                    Some(text) if text.starts_with(FIRST_LINE) => Some(Self::File(set.clone())),
                    _ => Some(Self::File(now)),
                }
            }
            (now, _) => Some(now),
        }
    }

    /// Sets the name servers. For a file, the plan must be on the disk before.
    pub(crate) fn set(&self, device: &str, servers: &[IpAddr]) -> Result<(), Failure> {
        match self {
            Self::Resolved => {
                let commands = commands(device, servers);
                commands
                    .iter()
                    .try_for_each(|words| run("resolvectl", words))
            }
            Self::File(replaced) => {
                let path = &replaced.path;
                (replaced.write()).map_err(|error| cannot("write", path, &error))
            }
        }
    }
}

fn find(path: &Path, links: Links) -> io::Result<Option<Place>> {
    Place::find(path, links, Path::new(RESOLVED))
}

/// The path of the resolver's file, without links.
fn file() -> PathBuf {
    let found = find(Path::new(FILE), Links::Followed).ok().flatten();
    found.map_or_else(|| FILE.into(), |place| place.path().to_owned())
}

fn without_links(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.into())
}

/// Checks that no other user can lead a client of root to another file. Returns the path of the
/// named file without links.
///
/// # Errors
///
/// If other users can change the file's directories or the links on the way.
pub(super) fn check(servers: &[IpAddr], named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(server) = servers.first() else {
        return Ok(None);
    };
    let found = find(named.unwrap_or(Path::new(FILE)), Links::Followed);
    let error = match (found, named) {
        (Ok(Some(place)), Some(path)) if !is_of_resolver(place.path()) => {
            let told = format!("{} leads to {}", path.display(), place.path().display());
            io::Error::new(io::ErrorKind::PermissionDenied, told)
        }
        (Ok(Some(place)), Some(_)) => return Ok(Some(place.path().to_owned())),
        (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => error,
        // The file may come later.
        (_, named) => return Ok(named.map(Path::to_owned)),
    };
    let (option, advice) = match named {
        Some(path) => (
            format!("--dns-file {}", path.display()),
            "name a file in directories that only root can change",
        ),
        None => (
            format!("--dns {server}: {FILE}"),
            "make /etc/resolv.conf a file, or a link to a file in directories that only root can \
             change",
        ),
    };
    Err(Cause::File.failed(format_args!(
        "{option}: {error}, so another user could have this program write any file: {advice}"
    )))
}

/// True for a file name that resolvers use, such as `resolv.conf.auto`. No other file is ever
/// replaced or restored.
fn is_of_resolver(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("resolv"))
}

/// A value of `--dns-file`.
pub(super) fn parse_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() && is_of_resolver(&path) && is_of_resolver(&without_links(&path)) {
        Ok(path)
    } else {
        Err(
            "expected the absolute path of a file whose name begins with `resolv`, such as \
             /tmp/resolv.conf.d/resolv.conf.auto"
                .to_owned(),
        )
    }
}

/// The arguments of `resolvectl`.
fn commands(device: &str, servers: &[IpAddr]) -> [Vec<String>; 2] {
    let servers = servers.iter().map(IpAddr::to_string);
    let dns = ["dns".to_owned(), device.to_owned()];
    // All names go to these servers, not only names of some domains.
    let domain = ["domain", device, "~."].map(str::to_owned);
    [dns.into_iter().chain(servers).collect(), domain.to_vec()]
}

/// A configuration with these name servers, otherwise unchanged.
fn text(before: &str, servers: &[IpAddr]) -> String {
    let mut text = FIRST_LINE.to_owned();
    for server in servers {
        text += &format!("nameserver {server}\n");
    }
    let is_server = |line: &&str| line.split_whitespace().next() == Some("nameserver");
    for line in before.lines().filter(|line| !is_server(line)) {
        text += line;
        text += "\n";
    }
    text
}

impl Replaced {
    /// Writes the new content. A file that has come or gone since the plan was made is an error.
    fn write(&self) -> io::Result<()> {
        let place = find(&self.path, Links::Refused)?;
        let place = place.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        match &self.before {
            Some(_) => place.write(&self.after),
            None => place.create(&self.after),
        }
    }

    /// Restores the old content, unless another program has changed the file.
    pub(crate) fn restore(&self) -> Result<(), Failure> {
        if self.is_named && is_of_resolver(&self.path) {
            self.restore_at(&self.path)
        } else {
            self.restore_at(&file())
        }
    }

    /// Like [`Self::restore`], for this file. Only the configuration of the resolver is ever
    /// restored.
    fn restore_at(&self, file: &Path) -> Result<(), Failure> {
        let path = &self.path;
        if path != file {
            tracing::warn!(
                "{} does not configure the resolver, and stays as it is",
                path.display()
            );
            return Ok(());
        }
        let place = match find(path, Links::Refused) {
            Ok(Some(place)) => place,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{} stays as it is: {error}", path.display());
                return Ok(());
            }
            _ => {
                tracing::warn!("{} is not there any more", path.display());
                return Ok(());
            }
        };
        let now = place.read().ok().flatten();
        if now == self.before {
            return Ok(());
        }
        // Only an interrupted write of this tool leaves a beginning of the new content.
        if !now.is_some_and(|now| self.after.starts_with(&now)) {
            tracing::warn!(
                "{} was changed meanwhile, and stays as it is",
                path.display()
            );
            return Ok(());
        }
        let done = match &self.before {
            Some(before) => place.write(before),
            None => place.remove(),
        };
        done.map_err(|error| cannot("restore", path, &error))
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Cause::File.failed(format_args!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn servers_are_replaced_and_the_rest_stays() {
        let before = "nameserver 192.168.1.1\nsearch home.arpa\n nameserver ::1\noptions edns0";
        let servers = ["9.9.9.9".parse().unwrap(), "2620:fe::fe".parse().unwrap()];
        assert_eq!(
            text(before, &servers),
            "# Set by mpquic proxy client; `mpquic proxy down` restores it.\nnameserver 9.9.9.9\n\
             nameserver 2620:fe::fe\nsearch home.arpa\noptions edns0\n"
        );
    }

    #[test]
    fn resolver_file_is_restored_unless_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let read = || fs::read_to_string(&path).ok();
        let mut replaced = Replaced {
            path: path.clone(),
            before: Some("nameserver 192.168.1.1\n".to_owned()),
            after: "nameserver 9.9.9.9\n".to_owned(),
            is_named: false,
        };
        for (now, then) in [
            ("nameserver 9.9.9.9\n", replaced.before.clone()),
            ("nameserv", replaced.before.clone()),
            ("", replaced.before.clone()),
            (
                "nameserver 8.8.8.8\n",
                Some("nameserver 8.8.8.8\n".to_owned()),
            ),
        ] {
            fs::write(&path, now).unwrap();
            replaced.restore_at(&path).unwrap();
            assert_eq!(read(), then, "{now:?}");
        }
        replaced.before = None;
        fs::write(&path, &replaced.after).unwrap();
        replaced.restore_at(&path).unwrap();
        assert_eq!(read(), None);
        replaced.restore_at(&path).unwrap();
    }

    /// The path in a state makes no difference.
    #[test]
    fn no_other_file_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let [path, resolver] = ["crontab", "resolv.conf"].map(|name| directory.path().join(name));
        let replaced = Replaced {
            path: path.clone(),
            before: Some("line of an attacker\n".to_owned()),
            after: "line\n".to_owned(),
            is_named: true,
        };
        fs::write(&path, &replaced.after).unwrap();
        replaced.restore_at(&resolver).unwrap();
        // A state that says otherwise makes no difference.
        replaced.restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "line\n");
        assert!(!resolver.exists());
    }

    #[test]
    fn resolver_file_of_resolved_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let servers = ["9.9.9.9".parse().unwrap(), "2620:fe::fe".parse().unwrap()];
        let plan = |path: &Path| Resolver::plan_of(path, Links::Followed, &servers);
        let before = |path: &Path| match plan(path).unwrap() {
            Resolver::File(replaced) => {
                let text = text(replaced.before.as_deref().unwrap_or_default(), &servers);
                assert_eq!((&*replaced.path, replaced.after), (path, text));
                replaced.before
            }
            Resolver::Resolved => panic!("it is a file"),
        };
        assert_eq!(before(&path), None);
        fs::write(&path, "nameserver 192.168.1.1\n").unwrap();
        assert_eq!(before(&path).as_deref(), Some("nameserver 192.168.1.1\n"));
        let failure = plan(directory.path()).unwrap_err();
        let told = format!("cannot read {}: ", directory.path().display());
        assert!(
            failure.message().starts_with(&told),
            "{}",
            failure.message()
        );
        let resolved = plan(Path::new("/run/systemd/resolve/stub-resolv.conf"));
        assert!(matches!(resolved, Ok(Resolver::Resolved)));
        let told = commands("tun0", &servers).map(|words| words.join(" "));
        assert_eq!(told, ["dns tun0 9.9.9.9 2620:fe::fe", "domain tun0 ~."]);
    }

    #[test]
    fn a_named_file_is_replaced_and_restored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf.auto");
        let before = "# Interface wan\nnameserver 192.0.2.53\nsearch lan\n";
        fs::write(&path, before).unwrap();
        let servers = ["9.9.9.9".parse().unwrap()];
        let resolver = Resolver::plan(&servers, Some(&path)).unwrap();
        resolver.set("tun0", &servers).unwrap();
        let now = fs::read_to_string(&path).unwrap();
        assert!(
            now.contains("\nnameserver 9.9.9.9\n") && !now.contains("192.0.2.53"),
            "{now}"
        );
        resolver.replaced().unwrap().restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        let named = path.to_str().unwrap();
        assert_eq!(parse_file(named), Ok(path.clone()));
        let link = directory.path().join("resolv.link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        for wrong in ["resolv.conf", "/etc/passwd", "/", link.to_str().unwrap()] {
            assert!(parse_file(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_written_as_planned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let replaced = Replaced {
            path: path.clone(),
            before: None,
            after: "nameserver 9.9.9.9\n".to_owned(),
            is_named: false,
        };
        let resolver = Resolver::File(replaced.clone());
        resolver.set("tun0", &[]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), replaced.after);
        // Another file is never restored.
        replaced.restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), replaced.after);
        let missing = Replaced {
            path: directory.path().join("missing/file"),
            ..replaced
        };
        let failure = Resolver::File(missing).set("tun0", &[]).unwrap_err();
        assert_eq!(failure.cause(), Some(Cause::File));
    }

    #[test]
    fn files_that_others_can_replace_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let (directory, secret) = (root.path().join("daemon"), root.path().join("shadow"));
        let path = directory.join("resolv.conf");
        fs::create_dir(&directory).unwrap();
        fs::write(&secret, "secret\n").unwrap();
        fs::write(&path, "nameserver 10.9.9.9\n").unwrap();
        let servers = ["9.9.9.9".parse().unwrap()];
        let allow = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&directory, mode).unwrap();
        };
        assert_eq!(check(&[], Some(&path)), Ok(None));
        assert_eq!(check(&servers, Some(&path)), Ok(Some(path.clone())));
        let set = Resolver::plan(&servers, Some(&path)).unwrap();
        set.set("tun0", &servers).unwrap();
        allow(0o777);
        let failure = check(&servers, Some(&path)).unwrap_err();
        let told = failure.message();
        let start = format!(
            "--dns-file {}: the directory {}",
            path.display(),
            directory.display()
        );
        assert!(told.starts_with(&start) && told.contains("777"), "{told}");
        assert_eq!(failure.cause(), Some(Cause::File));
        assert!(set.set("tun0", &servers).is_err());
        // A link in the place of the file, also where only root could put the link.
        fs::remove_file(&path).unwrap();
        for mode in [0o777, 0o755] {
            allow(mode);
            for target in [&secret, &root.path().join("missing")] {
                std::os::unix::fs::symlink(target, &path).unwrap();
                assert!(Resolver::plan(&servers, Some(&path)).is_err());
                assert!(set.set("tun0", &servers).is_err());
                set.replaced().unwrap().restore().unwrap();
                fs::remove_file(&path).unwrap();
            }
        }
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        let failure = check(&servers, Some(&path)).unwrap_err();
        assert!(failure.message().contains(" leads to "), "{failure:?}");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret\n");
        assert!(!root.path().join("missing").exists());
    }
}
