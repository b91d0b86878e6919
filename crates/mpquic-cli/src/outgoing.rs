//! What `mpquic put` sends, and where to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use http::Uri;

use crate::directory_page::percent_encode;
use crate::failure::{Cause, Failure};

/// All that is sent.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// Directories to make, by their depth.
    pub(crate) directories: Vec<Directory>,
    pub(crate) files: Vec<Item>,
    /// Bytes of the files, if that is known.
    pub(crate) length: Option<u64>,
    /// Links in directories, which are left out.
    pub(crate) links: usize,
}

/// A file, or standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// `None` for standard input.
    pub(crate) file: Option<PathBuf>,
    pub(crate) url: Uri,
}

/// A directory of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) depth: usize,
    pub(crate) url: Uri,
}

impl Item {
    /// The last part of its URL.
    pub(crate) fn name(&self) -> &str {
        self.url.path().rsplit('/').next().unwrap_or_default()
    }
}

/// Finds what is to be sent.
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
            items.length = None;
            let url = target(url, path, None)?;
            items.files.push(Item { file: None, url });
            continue;
        }
        let metadata = fs::metadata(path).map_err(|error| cannot_read(path, &error))?;
        if !metadata.is_dir() {
            items.add(path, target(url, path, file_name(path))?, &metadata);
            continue;
        }
        if !recursive {
            let error = io::Error::from(io::ErrorKind::IsADirectory);
            let failure = cannot_read(path, &error);
            return Err(failure.and(Some("--recursive sends directories".to_owned())));
        }
        if !url.path().ends_with('/') {
            return Err(Failure::usage(format!(
                "{url} names a file, but {} is a directory; end the URL with a slash",
                path.display()
            )));
        }
        // What is in `.` and `dir/.` goes where the URL leads.
        let is_content =
            path == Path::new(".") || path.as_os_str().as_encoded_bytes().ends_with(b"/.");
        let below = match file_name(path).filter(|_| !is_content) {
            Some(name) => {
                let below = directory_url(url, &name)?;
                let url = below.clone();
                items.directories.push(Directory { depth: 0, url });
                below
            }
            None => url.clone(),
        };
        items.walk(path, &below)?;
    }
    items.directories.sort_by_key(|directory| directory.depth);
    Ok(items)
}

impl Items {
    fn add(&mut self, path: &Path, url: Uri, metadata: &fs::Metadata) {
        // Devices and pipes have no length.
        let length = metadata.is_file().then_some(metadata.len());
        self.length = self.length.zip(length).map(|(all, more)| all + more);
        let file = Some(path.to_owned());
        self.files.push(Item { file, url });
    }

    /// Adds what is in a directory, and in those in it.
    fn walk(&mut self, root: &Path, url: &Uri) -> Result<(), Failure> {
        let mut left = vec![(root.to_owned(), url.clone(), 1)];
        while let Some((directory, url, depth)) = left.pop() {
            let cannot_read = |error: io::Error| cannot_read(&directory, &error);
            let entries = fs::read_dir(&directory).map_err(cannot_read)?;
            let entries: io::Result<Vec<_>> = entries.collect();
            let mut entries = entries.map_err(cannot_read)?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let path = entry.path();
                // Not followed: a link may lead anywhere, even back here.
                let metadata = entry.metadata().map_err(cannot_read)?;
                if metadata.is_symlink() {
                    self.links += 1;
                } else if metadata.is_dir() {
                    let name = entry.file_name();
                    let name = name.to_str().ok_or_else(|| no_name(&path))?;
                    let url = directory_url(&url, name)?;
                    self.directories.push(Directory {
                        depth,
                        url: url.clone(),
                    });
                    left.push((path, url, depth + 1));
                } else {
                    self.add(&path, target(&url, &path, file_name(&path))?, &metadata);
                }
            }
        }
        Ok(())
    }
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

/// Where a file goes.
fn target(url: &Uri, file: &Path, name: Option<String>) -> Result<Uri, Failure> {
    if !url.path().ends_with('/') {
        return Ok(url.clone());
    }
    let name = name.ok_or_else(|| {
        let file = file.display();
        Failure::usage(format!("{url} names no file, and {file} none to add"))
    })?;
    below(url, &percent_encode(&name))
}

fn directory_url(url: &Uri, name: &str) -> Result<Uri, Failure> {
    below(url, &format!("{}/", percent_encode(name)))
}

fn below(url: &Uri, name: &str) -> Result<Uri, Failure> {
    let text = url.to_string();
    let without_query = text.split('?').next().unwrap_or_default();
    let text = format!("{without_query}{name}");
    text.parse().map_err(Failure::usage)
}

fn no_name(path: &Path) -> Failure {
    let path = path.display();
    Cause::File.failed(format_args!("{path} has a name that URLs cannot have"))
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
            let name = file_name(file).filter(|name| name != "-");
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
        assert_eq!(items.links, usize::from(cfg!(unix)));

        // Without the directory itself.
        let items = super::items(&url("https://host/"), &[top.join(".")], true).unwrap();
        let files = text(&mut items.files.iter().map(|item| &item.url));
        assert!(files.contains(&"/x%20y".to_owned()), "{files:?}");
        assert_eq!((items.directories.len(), items.length), (3, Some(6)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
        refused("https://host/", &[&directory], false, "--recursive");
        let stdin = PathBuf::from("-");
        refused("https://host/", &[&file, &stdin], false, "(-)");
        refused("https://host/", &[&stdin], false, "names no file");
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
        assert_eq!((items.length, items.links), (Some(10), 0));
        assert_eq!(items.files[0].file, Some(path("one/a")));
        assert_eq!(items.files[0].name(), "a");

        let items = super::items(&url("https://host/x"), &[PathBuf::from("-")], false).unwrap();
        let input = Item {
            file: None,
            url: url("https://host/x"),
        };
        assert_eq!((items.files, items.length), (vec![input], None));
    }

    /// A device has no length, and so the whole has none.
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
}
