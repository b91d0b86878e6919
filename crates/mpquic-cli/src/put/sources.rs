//! What `mpquic put` sends, and where to.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::Dir;
use http::Uri;

use crate::files::attributes::Attributes;
use crate::files::beneath::Top;
use crate::process::failure::{Cause, Failure};
use crate::put::local::Local;
use crate::text::percent::encode_name;

/// All that is sent.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// Directories to make, by their depth.
    pub(crate) directories: Vec<Directory>,
    pub(crate) files: Vec<Item>,
    /// Bytes of the files, if that is known.
    pub(crate) length: Option<u64>,
    /// What is left out on purpose: links, and what is no file, in directories.
    pub(crate) left_out: Vec<PathBuf>,
    /// What cannot be sent.
    pub(crate) failures: Vec<Failure>,
}

/// A file, or standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// `None` for standard input.
    pub(crate) file: Option<Local>,
    pub(crate) url: Uri,
    /// Of a file that goes into a directory of the server, where an equal one need not be sent.
    pub(crate) found: Option<Found>,
}

/// A file as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Bytes.
    pub(crate) length: u64,
    pub(crate) attributes: Attributes,
}

/// A directory of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) depth: usize,
    pub(crate) url: Uri,
    /// The local directory, whose attributes the new directory gets. `None` for the directory of
    /// the user's URL, which exists already.
    pub(crate) here: Option<Local>,
}

impl Item {
    /// The last part of its URL.
    pub(crate) fn name(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }

    /// The local path as messages tell it.
    pub(crate) fn shown(&self) -> &Path {
        self.file.as_ref().map_or(Path::new("-"), Local::path)
    }
}

/// Finds what is to be sent. May block.
pub(crate) fn items(url: &Uri, named: &[PathBuf], recursive: bool) -> Result<Items, Failure> {
    let several = named.len() > 1;
    if several && !url.path().ends_with('/') {
        return Err(Failure::usage(format!(
            "{url} names one file, but there are several; end it with a slash"
        )));
    }
    let mut items = Items {
        length: Some(0),
        ..Items::default()
    };
    for path in named {
        if path == Path::new("-") {
            if several {
                let message = "standard input (-) cannot be sent with other files";
                return Err(Failure::usage(message));
            }
            if is_stdin_closed() {
                return Err(Failure::usage(
                    "standard input (-) is closed, or /dev/null for reading and writing; `</dev/null` \
                     sends an empty file",
                ));
            }
            items.length = None;
            items.files.push(Item {
                file: None,
                url: target(url, path, None)?,
                found: None,
            });
            continue;
        }
        match single(url, path, recursive) {
            Ok(None) => {}
            Ok(Some((metadata, target))) => {
                let into_directory = url.path().ends_with('/');
                // Devices and pipes have no length.
                let found = metadata.is_file().then(|| Found {
                    length: metadata.len(),
                    attributes: Attributes::of_file(&metadata),
                });
                items.add(path.as_path().into(), target, found, into_directory);
                if into_directory && found.is_some() {
                    items.compare(url)?;
                }
                continue;
            }
            Err(failure) => {
                items.failures.push(failure);
                continue;
            }
        }
        if !url.path().ends_with('/') {
            return Err(Failure::usage(format!(
                "{url} names a file, but {} is a directory; end the URL with a slash",
                path.display()
            )));
        }
        items.add_directory(url, path)?;
    }
    items.directories.sort_by_key(|directory| directory.depth);
    items.all_differ()?;
    Ok(items)
}

/// True if the tool was started with a closed standard input. The runtime then opens /dev/null for
/// reading and writing in its place; a shell opens /dev/null for reading to send an empty file.
#[cfg(unix)]
fn is_stdin_closed() -> bool {
    use rustix::fs::{OFlags, fcntl_getfl, fstat, stat};
    let stdin = io::stdin();
    let is_both = fcntl_getfl(&stdin).is_ok_and(|flags| flags.contains(OFlags::RDWR));
    let null = stat("/dev/null").map(|null| null.st_rdev);
    is_both && fstat(&stdin).map(|stdin| stdin.st_rdev) == null
}

#[cfg(not(unix))]
fn is_stdin_closed() -> bool {
    false
}

impl Items {
    /// Makes sure that no file replaces another one of them on the server.
    fn all_differ(&mut self) -> Result<(), Failure> {
        let mut seen: HashMap<&str, &Path> = HashMap::new();
        let directories = self.directories.iter();
        for directory in directories.filter_map(|it| Some((&it.url, it.here.as_ref()?.path()))) {
            let (url, here) = directory;
            seen.insert(url.path().trim_end_matches('/'), here);
        }
        for item in &self.files {
            let Some(file) = item.file.as_ref().map(Local::path) else {
                continue;
            };
            if let Some(other) = seen.insert(item.url.path(), file) {
                return Err(Failure::usage(format_args!(
                    "{} and {} would both be stored as {}; send one of them alone",
                    other.display(),
                    file.display(),
                    item.url
                )));
            }
        }
        Ok(())
    }

    /// Adds a directory that the user named, with everything below it.
    fn add_directory(&mut self, url: &Uri, path: &Path) -> Result<(), Failure> {
        let top = match Top::open(path) {
            Ok(top) => Arc::new(top),
            Err(error) => {
                self.failures.push(cannot_read(path, &error));
                return Ok(());
            }
        };
        // What is in `.` and `dir/.` goes where the URL leads.
        let is_content =
            path == Path::new(".") || path.as_os_str().as_encoded_bytes().ends_with(b"/.");
        let name = path.file_name().filter(|_| !is_content);
        let directory = Directory {
            depth: 0,
            url: match name {
                Some(name) => directory_url(url, name)?,
                None => below(url, "")?,
            },
            here: name.map(|_| Local::within(top.clone(), path.to_owned())),
        };
        let url = directory.url.clone();
        self.directories.push(directory);
        self.walk(&top, path, &url);
        Ok(())
    }

    /// Has files compared with those of the directory that the user's URL names.
    fn compare(&mut self, url: &Uri) -> Result<(), Failure> {
        let url = below(url, "")?;
        let is_known = |known: &Directory| known.here.is_none() && known.url == url;
        if !self.directories.iter().any(is_known) {
            self.directories.push(Directory {
                depth: 0,
                url,
                here: None,
            });
        }
        Ok(())
    }

    /// Adds a file; `found` only of a regular file.
    fn add(&mut self, file: Local, url: Uri, found: Option<Found>, into_directory: bool) {
        let length = found.map(|found| found.length);
        self.length = self.length.zip(length).map(|(all, more)| all + more);
        self.files.push(Item {
            file: Some(file),
            url,
            found: found.filter(|_| into_directory),
        });
    }

    /// Adds the files and directories below a directory. A file that cannot be sent does not keep
    /// other files from being sent.
    fn walk(&mut self, top: &Arc<Top>, root: &Path, url: &Uri) {
        let mut left = vec![(root.to_owned(), url.clone(), 1)];
        while let Some((path, url, depth)) = left.pop() {
            // No link is followed: the directory may have become one.
            let read = top.directory(&path).and_then(|directory| {
                let entries = directory.entries()?;
                let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
                Ok((names.collect::<io::Result<Vec<_>>>()?, directory))
            });
            let (mut names, directory) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.failures.push(cannot_read(&path, &error));
                    continue;
                }
            };
            names.sort();
            for name in names {
                let local = Local::within(top.clone(), path.join(&name));
                match self.entry(local, (&directory, &name), &url, depth) {
                    Ok(more) => left.extend(more),
                    Err(failure) => self.failures.push(failure),
                }
            }
        }
    }

    /// Adds an entry of a directory, or gives it back if it is a directory itself.
    fn entry(
        &mut self,
        local: Local,
        (directory, name): (&Dir, &OsStr),
        url: &Uri,
        depth: usize,
    ) -> Result<Option<(PathBuf, Uri, usize)>, Failure> {
        let path = local.path().to_owned();
        // Not followed: a link may lead anywhere, even back here.
        let metadata = directory.symlink_metadata(name);
        let metadata = metadata.map_err(|error| cannot_read(&path, &error))?;
        let no_name = |_| no_name(&path);
        if metadata.is_dir() {
            let url = directory_url(url, name).map_err(no_name)?;
            self.directories.push(Directory {
                depth,
                url: url.clone(),
                here: Some(local),
            });
            return Ok(Some((path, url, depth + 1)));
        }
        if metadata.is_file() {
            let url = below(url, &encode_name(name)).map_err(no_name)?;
            let found = Found {
                length: metadata.len(),
                attributes: Attributes::of_listed(&metadata),
            };
            self.add(local, url, Some(found), true);
        } else {
            // Nothing is opened that might wait for somebody: a pipe, a socket, a device.
            self.left_out.push(path);
        }
        Ok(None)
    }
}

/// A named file, and where it goes; `None` for a directory that is to be sent.
fn single(url: &Uri, path: &Path, recursive: bool) -> Result<Option<(Metadata, Uri)>, Failure> {
    let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
    match metadata.is_dir() {
        true if recursive => Ok(None),
        true => {
            let error = io::Error::from(io::ErrorKind::IsADirectory);
            let hint = "--recursive sends directories".to_owned();
            Err(cannot_read(path, &error).and(Some(hint)))
        }
        false => Ok(Some((metadata, target(url, path, path.file_name())?))),
    }
}

/// Where a file goes.
fn target(url: &Uri, file: &Path, name: Option<&OsStr>) -> Result<Uri, Failure> {
    if !url.path().ends_with('/') {
        return Ok(url.clone());
    }
    let name = name.ok_or_else(|| {
        let file = file.display();
        Failure::usage(format!("{url} names no file, and {file} none to add"))
    })?;
    below(url, &encode_name(name)).map_err(|_| no_name(file))
}

/// A file whose name is too long for a URL.
fn no_name(path: &Path) -> Failure {
    let path = path.display();
    Cause::Content.failed(format_args!("{path} has a name that URLs cannot have"))
}

fn directory_url(url: &Uri, name: &OsStr) -> Result<Uri, Failure> {
    below(url, &format!("{}/", encode_name(name)))
}

fn below(url: &Uri, name: &str) -> Result<Uri, Failure> {
    let text = url.to_string();
    let without_query = text.split('?').next().unwrap_or_default();
    let text = format!("{without_query}{name}");
    text.parse().map_err(Failure::usage)
}

/// A file that is not to be sent.
pub(crate) fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Cause::File.failed(format_args!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn where_files_go() {
        let to = |address: &str, file: &str| {
            let file = Path::new(file);
            let name = file.file_name().filter(|name| *name != "-");
            let target = target(&url(address), file, name);
            target.map(|url| url.to_string()).ok()
        };
        let plain = Some("https://host/a".to_owned());
        assert_eq!(to("https://host/a", "x"), plain);
        assert_eq!(to("https://host/a", "-"), plain);
        let named = Some("https://host/d/b%20c".to_owned());
        assert_eq!(to("https://host/d/?q", "a/b c"), named);
        assert_eq!(to("https://host/", "-"), None);
        assert_eq!(to("https://host/", ".."), None);
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir(top.join("empty")).unwrap();
        for (name, content) in [("x y", "12"), ("a/1", "1"), ("a/b/2", "123")] {
            fs::write(top.join(name), content).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(&top, top.join("a/loop")).unwrap();
        let items = items(&url("https://host/into/"), std::slice::from_ref(&top), true).unwrap();
        let text = |urls: &mut dyn Iterator<Item = &Uri>| -> Vec<String> {
            urls.map(|url| url.path().to_owned()).collect()
        };
        let directories = text(&mut items.directories.iter().map(|directory| &directory.url));
        assert_eq!(directories[..1], ["/into/top/"]);
        assert_eq!(directories[3..], ["/into/top/a/b/"]);
        let mut middle = directories[1..3].to_vec();
        middle.sort();
        assert_eq!(middle, ["/into/top/a/", "/into/top/empty/"]);
        let mut files = text(&mut items.files.iter().map(|item| &item.url));
        files.sort();
        let expected = ["/into/top/a/1", "/into/top/a/b/2", "/into/top/x%20y"];
        assert_eq!(files, expected);
        assert_eq!(items.length, Some(6));
        assert_eq!(items.left_out.len(), usize::from(cfg!(unix)));

        // Without the directory itself.
        let items = super::items(&url("https://host/"), &[top.join(".")], true).unwrap();
        let files = text(&mut items.files.iter().map(|item| &item.url));
        assert!(files.contains(&"/x%20y".to_owned()), "{files:?}");
        // The one that the URL names comes first, and is not made.
        assert_eq!((items.directories.len(), items.length), (4, Some(6)));
        assert_eq!(items.directories[0].here, None);
    }

    /// A link may replace a directory after the first look.
    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_directory_is_not_listed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "1").unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("a/link")).unwrap();
        let top = Arc::new(Top::open(root.path()).unwrap());
        for name in ["a/link", "a/link/deeper"] {
            let (mut items, path) = (Items::default(), root.path().join(name));
            items.walk(&top, &path, &url("https://host/into/"));
            assert_eq!((items.files.len(), items.failures.len()), (0, 1), "{name}");
            let told = format!("cannot read {}: ", path.display());
            assert!(items.failures[0].message().starts_with(&told));
        }
    }

    #[test]
    fn senseless_requests_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let directory = root.path().to_owned();
        let refused = |address: &str, named: &[&PathBuf], recursive, told: &str| {
            let named: Vec<_> = named.iter().map(|path| (*path).clone()).collect();
            let failure = items(&url(address), &named, recursive).unwrap_err();
            assert!(failure.message().contains(told), "{}", failure.message());
        };
        refused("https://host/a", &[&file, &file], true, "with a slash");
        refused("https://host/a", &[&directory], true, "with a slash");
        let stdin = PathBuf::from("-");
        refused("https://host/", &[&file, &stdin], false, "(-)");
        refused("https://host/", &[&stdin], false, "names no file");
    }

    /// Whatever cannot be sent keeps nothing else from it.
    #[test]
    fn missing_files_and_directories_are_failures_beside_the_other_files() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("one"), "1").unwrap();
        fs::write(path("two"), "2").unwrap();
        fs::create_dir(path("directory")).unwrap();
        let named = ["one", "missing", "directory", "two"].map(path);
        for (recursive, told) in [
            (false, &["missing: ", "; --recursive sends directories"][..]),
            (true, &["missing: "]),
        ] {
            let items = items(&url("https://host/"), &named, recursive).unwrap();
            let files: Vec<_> = items.files.iter().map(|it| it.url.path()).collect();
            assert_eq!((files, items.length), (vec!["/one", "/two"], Some(2)));
            assert_eq!(items.failures.len(), told.len(), "{:?}", items.failures);
            for (failure, told) in items.failures.iter().zip(told) {
                assert_eq!(failure.code(), 3);
                assert!(failure.message().contains(told), "{failure:?}");
            }
        }
    }

    #[test]
    fn no_file_replaces_another_one() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["a", "b", "c/f", "d"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for name in ["a/f", "b/f", "b/g", "d/c"] {
            fs::write(path(name), name).unwrap();
        }
        let told = |names: &[&str]| {
            let named: Vec<_> = names.iter().map(|name| path(name)).collect();
            let found = items(&url("https://host/"), &named, true);
            found.err().map(|failure| {
                assert_eq!(failure.code(), 2);
                failure.message().to_owned()
            })
        };
        assert_eq!(told(&["a/f", "b/g", "b"]), None);
        assert_eq!(told(&["a", "b/."]), None);
        for (names, one, other, stored) in [
            (["a/f", "b/f"], "a/f", "b/f", "f"),
            (["a/.", "b/."], "a/./f", "b/./f", "f"),
            (["c/.", "a/f"], "c/./f", "a/f", "f"),
            (["d/c", "c"], "c", "d/c", "c"),
        ] {
            let (one, other) = (path(one), path(other));
            let expected = format!(
                "{} and {} would both be stored as https://host/{stored}; send one of them alone",
                one.display(),
                other.display()
            );
            assert_eq!(told(&names), Some(expected));
        }
    }

    #[test]
    fn everything_is_sent_in_the_order_of_its_depth_and_name() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["one/deep/deeper", "two/wide"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let names = ["one/c", "one/a", "one/b", "one/deep/x", "file"];
        for (length, name) in names.into_iter().enumerate() {
            fs::write(path(name), vec![0; length]).unwrap();
        }
        let named = ["one", "file", "two"].map(path);
        let items = items(&url("https://host/"), &named, true).unwrap();
        let directories = items.directories.iter();
        let directories: Vec<_> = directories.map(|it| (it.depth, it.url.path())).collect();
        let expected = [
            (0, "/one/"),
            // The file is compared with what is there.
            (0, "/"),
            (0, "/two/"),
            (1, "/one/deep/"),
            (1, "/two/wide/"),
            (2, "/one/deep/deeper/"),
        ];
        assert_eq!(directories, expected);
        let files: Vec<_> = items.files.iter().map(|it| it.url.path()).collect();
        assert_eq!(
            files,
            ["/one/a", "/one/b", "/one/c", "/one/deep/x", "/file"]
        );
        assert_eq!((items.length, items.left_out.len()), (Some(10), 0));
        assert_eq!(items.files[0].file, Some((&*path("one/a")).into()));
        assert_eq!(items.files[0].name(), "a");

        let items = super::items(&url("https://host/x"), &[PathBuf::from("-")], false).unwrap();
        let input = Item {
            file: None,
            url: url("https://host/x"),
            found: None,
        };
        assert_eq!((items.files, items.length), (vec![input], None));
    }

    /// A device has no length, so the sum of all files has no length.
    #[cfg(unix)]
    #[test]
    fn not_everything_has_a_length() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "12").unwrap();
        let to = url("https://host/");
        let all = items(&to, &[file.clone(), "/dev/null".into()], false).unwrap();
        assert_eq!((all.files.len(), all.length), (2, None));
        assert_eq!(items(&to, &[file], false).unwrap().length, Some(2));
    }

    /// Opening a pipe would wait for a writer.
    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_and_sockets_are_left_out_and_odd_names_are_encoded() {
        use std::os::unix::ffi::OsStrExt;
        let root = tempfile::tempdir().unwrap();
        let odd = OsStr::from_bytes(b"d\xe9");
        fs::create_dir(root.path().join(odd)).unwrap();
        fs::write(root.path().join(odd).join(OsStr::from_bytes(b"f\xff")), "1").unwrap();
        let pipe = root.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let socket = root.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let items = items(&url("https://host/"), &[root.path().join(".")], true).unwrap();
        assert_eq!(items.left_out.len(), 2);
        assert!(items.left_out.contains(&pipe) && items.left_out.contains(&socket));
        let files: Vec<_> = items.files.iter().map(|it| it.url.path()).collect();
        assert_eq!(files, ["/d%E9/f%FF"]);
        assert!(items.failures.is_empty());
    }
}
