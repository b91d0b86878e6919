//! [`Place`]: a file that nobody but root and this program's user can replace.
//!
//! A client of root writes the resolver's file again and again. The owner of the file's directory
//! could put a link there, and the client would read or write the link's target with root's rights.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, unlinkat};
use rustix::io::Errno;

/// Most links on the way to a file, as in the kernel.
const MOST_LINKS: usize = 40;
/// Mode bits: the group or all users may write.
const BY_OTHERS: u32 = 0o022;
/// Mode bit: users can only replace their own entries of a directory.
const STICKY: u32 = 0o1000;

/// Whether links lead to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Links of root and of this program's user, in directories of the same users.
    Followed,
    Refused,
}

/// A place in an open directory, with or without a file.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
    /// Other users can make files in the directory, as in `/tmp`.
    is_shared: bool,
}

/// A directory on the way.
struct Step {
    directory: OwnedFd,
    path: PathBuf,
    is_shared: bool,
}

/// The way to a file.
struct Way {
    /// From the root on; never empty.
    steps: Vec<Step>,
    rest: VecDeque<OsString>,
    links: usize,
}

impl Place {
    /// Goes to a file, directory by directory. `None` if the way leads into the directory
    /// `excepted`, which is not entered.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::PermissionDenied`] if other users can change the way, or for a refused
    /// link; and if a directory is missing.
    pub(super) fn find(path: &Path, links: Links, excepted: &Path) -> io::Result<Option<Self>> {
        let mut way = Way::new(path)?;
        while let Some(name) = way.rest.pop_front() {
            if name == ".." {
                way.steps.truncate((way.steps.len() - 1).max(1));
                continue;
            }
            let here = way.here()?;
            let path = here.path.join(&name);
            if path.starts_with(excepted) {
                return Ok(None);
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let entry = openat(&here.directory, &name, flags, Mode::empty());
            let is_last = way.rest.is_empty();
            let entry = match entry {
                Err(Errno::NOENT) if is_last => return way.place(name).map(Some),
                entry => entry?,
            };
            let stat = fstat(&entry)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if links == Links::Refused => {
                    return Err(denied(format_args!("{} is a link", path.display())));
                }
                FileType::Symlink => {
                    check_owner(&stat, &path)?;
                    way.follow(&entry)?;
                }
                FileType::Directory if !is_last => way.enter(entry, &stat, path)?,
                _ if is_last => return way.place(name).map(Some),
                _ => return Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        Err(io::ErrorKind::IsADirectory.into())
    }

    /// The path without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the file; `None` without a file.
    ///
    /// # Errors
    ///
    /// If there is another thing than a file, or a file of another user in a shared directory.
    pub(super) fn read(&self) -> io::Result<Option<String>> {
        let mut file = match self.open(OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Writes the file in place, because the file may be a mount.
    ///
    /// # Errors
    ///
    /// Like [`Self::read`], and if there is no file.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        let mut file = self.open(OFlags::WRONLY)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }

    /// Makes the file.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if there is a file or a link by now.
    pub(super) fn create(&self, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(
            &self.directory,
            &self.name,
            flags,
            Mode::from_raw_mode(0o644),
        )?;
        File::from(file).write_all(text.as_bytes())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory, &self.name, AtFlags::empty())?)
    }

    fn open(&self, access: OFlags) -> io::Result<File> {
        // A pipe would block.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(denied(format_args!("{} is no file", self.path.display())));
        }
        if self.is_shared {
            check_owner(&stat, &self.path)?;
            // Another user can make a second name for a file of root.
            if stat.st_nlink > 1 {
                return Err(denied(format_args!(
                    "{} has several names",
                    self.path.display()
                )));
            }
        }
        Ok(file.into())
    }
}

impl Way {
    fn new(path: &Path) -> io::Result<Self> {
        let mut way = Self {
            steps: Vec::new(),
            rest: VecDeque::new(),
            links: 0,
        };
        way.go(path);
        way.restart()?;
        Ok(way)
    }

    /// Goes back to the root.
    fn restart(&mut self) -> io::Result<()> {
        self.steps.clear();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, "/", flags, Mode::empty())?;
        let stat = fstat(&root)?;
        self.enter(root, &stat, PathBuf::from("/"))
    }

    fn here(&self) -> io::Result<&Step> {
        self.steps
            .last()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Puts a path before the rest of the way.
    fn go(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.rest.push_front(name.to_owned()),
                Component::ParentDir => self.rest.push_front(OsStr::new("..").to_owned()),
                Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
            }
        }
    }

    fn follow(&mut self, link: &OwnedFd) -> io::Result<()> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(link.as_fd(), "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        self.go(&target);
        if target.is_absolute() {
            self.restart()?;
        }
        Ok(())
    }

    fn enter(&mut self, directory: OwnedFd, stat: &Stat, path: PathBuf) -> io::Result<()> {
        check_owner(stat, &path)?;
        let is_open = stat.st_mode & BY_OTHERS != 0;
        if is_open && stat.st_mode & STICKY == 0 {
            return Err(denied(format_args!(
                "the directory {} of user {} can be written by other users (mode {:o})",
                path.display(),
                stat.st_uid,
                stat.st_mode & 0o7777
            )));
        }
        self.steps.push(Step {
            directory,
            path,
            is_shared: is_open,
        });
        Ok(())
    }

    /// The place with this name in the last directory.
    fn place(mut self, name: OsString) -> io::Result<Place> {
        let step = self.steps.pop();
        let step = step.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Place {
            path: step.path.join(&name),
            name,
            directory: step.directory,
            is_shared: step.is_shared,
        })
    }
}

/// Refuses what belongs neither to root nor to this program's user.
fn check_owner(stat: &Stat, path: &Path) -> io::Result<()> {
    if [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid) {
        return Ok(());
    }
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => "the directory ",
        FileType::Symlink => "the link ",
        _ => "",
    };
    Err(denied(format_args!(
        "{kind}{} belongs to user {}",
        path.display(),
        stat.st_uid
    )))
}

fn denied(told: std::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, told.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn find(path: &Path, links: Links) -> io::Result<Option<Place>> {
        Place::find(path, links, Path::new("/run/excepted"))
    }

    fn path(path: &Path) -> Option<PathBuf> {
        let place = find(path, Links::Followed).unwrap();
        place.map(|place| place.path().to_owned())
    }

    fn is_denied<T>(found: io::Result<T>) -> bool {
        matches!(found, Err(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn own_links_lead_to_a_file() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "text").unwrap();
        for (link, target) in [
            ("relative", PathBuf::from("a/b/../b/./file")),
            ("absolute", at("a/b/file")),
            ("chain", PathBuf::from("absolute")),
            ("a/up", PathBuf::from("../chain")),
            ("dangling", at("a/b/none")),
            ("lost", at("none/none")),
            ("loop", PathBuf::from("loop")),
            ("over", PathBuf::from("/run/excepted/file")),
            ("beyond", PathBuf::from("file/none")),
        ] {
            symlink(target, at(link)).unwrap();
        }
        for link in ["relative", "absolute", "chain", "a/up", "a/b/file"] {
            assert_eq!(path(&at(link)), Some(at("a/b/file")), "{link}");
        }
        assert_eq!(path(&at("dangling")), Some(at("a/b/none")));
        assert_eq!(path(&at("over")), None);
        assert_eq!(path(Path::new("/run/excepted/file")), None);
        let kind = |link: &str| find(&at(link), Links::Followed).unwrap_err().kind();
        assert_eq!(kind("lost"), io::ErrorKind::NotFound);
        assert_eq!(kind("a/b/file/none"), io::ErrorKind::NotADirectory);
        assert!(find(&at("loop"), Links::Followed).is_err());
        assert!(find(Path::new("/"), Links::Followed).is_err());
        assert!(is_denied(find(&at("relative"), Links::Refused)));
        assert!(find(&at("a/b/file"), Links::Refused).is_ok());
    }

    #[test]
    fn ways_that_others_can_change_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let open = |mode| {
            fs::set_permissions(at("open"), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir(at("open")).unwrap();
        fs::write(at("open/file"), "text").unwrap();
        symlink(at("open/file"), at("link")).unwrap();
        for mode in [0o777, 0o775, 0o757] {
            open(mode);
            for name in ["open/file", "open/none", "link"] {
                assert!(is_denied(find(&at(name), Links::Followed)), "{name}");
            }
        }
        for mode in [0o755, 0o1777] {
            open(mode);
            let place = find(&at("link"), Links::Followed).unwrap().unwrap();
            assert_eq!(place.read().unwrap().as_deref(), Some("text"));
        }
        // A second name for a file, where other users can make names.
        fs::hard_link(at("open/file"), at("second")).unwrap();
        let place = find(&at("open/file"), Links::Followed).unwrap().unwrap();
        assert!(is_denied(place.read()) && is_denied(place.write("new")));
        open(0o755);
        let place = find(&at("open/file"), Links::Followed).unwrap().unwrap();
        assert!(place.read().is_ok());
    }

    /// A link that comes after the look at the directories.
    #[test]
    fn later_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let place = find(&at("file"), Links::Refused).unwrap().unwrap();
        assert_eq!(place.read().unwrap(), None);
        assert!(place.write("new").is_err());
        fs::write(at("secret"), "secret").unwrap();
        for target in ["secret", "none"] {
            symlink(at(target), at("file")).unwrap();
            assert!(place.read().is_err());
            assert!(place.write("new").is_err());
            let error = place.create("new").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            place.remove().unwrap();
        }
        assert_eq!(fs::read_to_string(at("secret")).unwrap(), "secret");
        assert!(!at("none").exists());
        place.create("long text").unwrap();
        place.write("text").unwrap();
        assert_eq!(place.read().unwrap().as_deref(), Some("text"));
    }
}
