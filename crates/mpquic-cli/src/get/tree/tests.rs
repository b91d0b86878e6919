use std::time::{Duration, SystemTime};

use super::*;
use crate::client::session::Purpose;
use crate::files::directory_page::Kind;
use crate::files::{Content, Listing, OpenError, Source};
use crate::get::left::Left;
use crate::get::listed_name::LONGEST_NAME;
use crate::get::note_key::NoteKey;
use crate::options::Alpn;
use crate::options::trust::Checked;
use crate::process::screen::tests::Heard;
use crate::serve::limits::Limits;
use crate::testing::{Served, reach, soon};

#[test]
fn file_with_listed_size_and_time_is_here() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let listed = |size, mtime: &str| Listed {
        mtime: Some(mtime.to_owned()),
        size,
        ..Listed::named("file".as_ref(), Kind::File)
    };
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let modified = listed(None, date).attributes().modified;
    let entry = |size, modified| Entry {
        size,
        attributes: Attributes {
            modified,
            mode: None,
        },
    };
    let is_here = |path: &Path, entry| {
        let there = Beside::of(path).unwrap().metadata(path);
        there.is_ok_and(|there| super::is_here(&there, entry))
    };
    let known_at = |modified| entry(Some(3), modified);
    let known = known_at(modified);
    assert!(!is_here(&path, known), "nothing is");
    fs::write(&path, "123").unwrap();
    assert!(!is_here(&path, known), "it is of another time");
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(modified.unwrap()).unwrap();
    assert!(is_here(&path, known));
    for (size, modified) in [(Some(4), modified), (None, modified), (Some(3), None)] {
        assert!(!is_here(&path, entry(size, modified)));
    }
    let later = modified.unwrap() + std::time::Duration::from_secs(1);
    assert!(!is_here(&path, entry(Some(3), Some(later))));
    // What a link leads to was not fetched.
    #[cfg(unix)]
    {
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(!is_here(&link, known));
    }
    assert_eq!(listed(None, "yesterday").attributes().modified, None);
    // The fraction counts, unless one of both systems has none.
    let exact = |text| known_at(times::of_seconds(text));
    file.set_modified(times::of_seconds("784111777.5").unwrap())
        .unwrap();
    assert!(is_here(&path, exact("784111777.5")) && is_here(&path, known));
    assert!(!is_here(&path, exact("784111777.25")));
}

#[test]
fn existing_directories_are_not_made_again() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let reach = reach(&["--insecure"]);
    let url: Uri = "https://host/a/".parse().unwrap();
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let (plan, place) = (plan(), |name| Place {
        url: url.clone(),
        path: path(name),
    });
    let begun = |name| {
        let tree = tree(&plan, &sessions, place(name));
        tree.begin(&path(name)).unwrap();
        tree
    };
    drop(begun("top/b"));
    drop(begun("top/b"));
    let top = begun("top");
    let made = |name: &str, is_private| {
        let beside = top
            .beside(&path(name))
            .map_err(|error| cannot_make(&path(name), &error))?;
        make_directory(&beside, &path(name), is_private)
    };
    assert!(made("top/c", false).unwrap());
    assert!(!made("top/c", false).unwrap());
    assert!(path("top/b").is_dir() && path("top/c").is_dir());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        made("top/private", true).unwrap();
        let mode = fs::metadata(path("top/private"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o700);
    }
    // A file that takes the place of a directory is no directory.
    fs::write(path("top/taken"), "").unwrap();
    let taken = top.beside(&path("top/taken")).unwrap();
    assert!(taken.open_directory(&path("top/taken")).is_err());
    #[cfg(unix)]
    assert!(taken.open_directory(&path("top/c")).is_ok());
    // Only the user may name a directory whose parents do not exist.
    let refused = |name| {
        let failure = made(name, false).unwrap_err();
        let told = format!("cannot make {}: ", path(name).display());
        assert!(
            failure.message().starts_with(&told),
            "{}",
            failure.message()
        );
    };
    refused("top/x/y");
    fs::write(path("top/file"), "").unwrap();
    refused("top/file");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(path("top/b"), path("top/link")).unwrap();
        refused("top/link");
        refused("top/link/below");
        drop(begun("top/link"));
    }
}

fn plan() -> Plan {
    Plan {
        method: http::Method::GET,
        fields: http::HeaderMap::new(),
        secrets: crate::client::secrets::Secrets::default(),
        treatment: Treatment {
            left: Left::default(),
            key: NoteKey::known().clone().into(),
            checked: Checked::Nothing,
            quiet: false,
            resume: true,
            replace: true,
            private: false,
            pace: None,
            stall: std::time::Duration::from_secs(1),
            total: Arc::default(),
            json: None,
        },
        retry: std::time::Duration::from_secs(1),
        outage: None,
        max_redirects: 0,
        expected: None,
    }
}

fn tree<'a>(plan: &'a Plan, sessions: &'a Sessions<'a>, root: Place) -> Tree<'a> {
    Tree {
        plan,
        sessions,
        root,
        parallel: 4,
        max_depth: 4,
        dot_files: false,
        umask: 0,
        quiet: true,
        is_live: false,
        state: None,
        common: Common::default(),
    }
}

/// The task for an entry of a nested directory, or the reason for skipping it.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table, and the helpers that its rows share"
)]
fn entries_of_a_list_are_fetched_or_told() {
    let reach = reach(&["--insecure"]);
    let url: Uri = "https://host/a/".parse().unwrap();
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let plan = plan();
    let root = Place {
        url: "https://host/a%20b/?query".parse().unwrap(),
        path: "here".into(),
    };
    let tree = |dot_files| Tree {
        dot_files,
        ..tree(&plan, &sessions, root.clone())
    };
    // A nested directory, with equal lists if requested.
    let dir = |depth: usize, same: bool| {
        let within = (0..depth).fold(None, |within, at| {
            let list = [if same { 9 } else { at as u8 }; 32];
            let dir = Arc::new(Dir { within, list });
            Some((dir, OsStr::new("d").into()))
        });
        let list = [9; 32];
        Arc::new(Dir { within, list })
    };
    let told_of = |dir: &Arc<Dir>, name: &str, encoded: Option<&str>, kind, dot_files| {
        let tree = tree(dot_files);
        let entry = Listed {
            encoded: encoded.map(str::to_owned),
            size: Some(7),
            ..Listed::named(name.as_ref(), kind)
        };
        let mut names = HashSet::from([b"seen".to_vec()]);
        match tree.job(dir, &entry, &mut names) {
            Ok(job) => {
                let at = tree.place(&job).unwrap();
                let size = match job.what {
                    What::List(_) => None,
                    What::Fetch(entry) => entry.size,
                };
                format!("{} {:?} {size:?}", at.url, at.path)
            }
            Err(failure) => format!("{} {}", failure.code(), failure.message()),
        }
    };
    let told = |depth, name, kind| told_of(&dir(depth, false), name, None, kind, false);
    for (depth, name, kind, expected) in [
        (
            1,
            "x",
            Kind::File,
            "https://host/a%20b/d/x \"here/d/x\" Some(7)",
        ),
        (
            0,
            "c?#%",
            Kind::Directory,
            "https://host/a%20b/c%3F%23%25/ \"here/c?#%\" None",
        ),
        (
            2,
            "x",
            Kind::File,
            "https://host/a%20b/d/d/x \"here/d/d/x\" Some(7)",
        ),
        (
            4,
            "b",
            Kind::Directory,
            "7 `b` is more than 4 directories deep",
        ),
        (
            1,
            "x",
            Kind::Other,
            "9 `x` is left out: the server says that it is neither file nor directory, or a link that leads nowhere",
        ),
        (
            1,
            "",
            Kind::More,
            "9 the server lists only a part of the directory",
        ),
        (
            1,
            "../x",
            Kind::File,
            "9 a file here cannot have the name `../x`",
        ),
        (1, "seen", Kind::File, "9 `seen` is listed twice"),
        (
            1,
            ".bashrc",
            Kind::File,
            "9 `.bashrc` is left out: --dot-files fetches it",
        ),
        (
            1,
            ".ssh",
            Kind::Directory,
            "9 `.ssh` is left out: --dot-files fetches it",
        ),
    ] {
        assert_eq!(told(depth, name, kind), expected);
    }
    let root_dir = dir(0, false);
    let dot = told_of(&root_dir, ".bashrc", None, Kind::File, true);
    assert!(dot.starts_with("https://host/a%20b/.bashrc "), "{dot}");
    for (encoded, expected) in [
        (
            "caf%E9",
            "https://host/a%20b/caf%E9 \"here/caf\\xE9\" Some(7)",
        ),
        ("..%2Fx", "9 a file here cannot have the name `x`"),
        ("%4", "9 a file here cannot have the name `x`"),
    ] {
        if cfg!(unix) {
            let told = told_of(&root_dir, "x", Some(encoded), Kind::File, false);
            assert_eq!(told, expected);
        }
    }
    // Nested directories with equal lists are a circle.
    let same = |depth, kind| told_of(&dir(depth, true), "x", None, kind, false);
    assert!(same(REPEATED - 1, Kind::Directory).starts_with("https://"));
    assert!(same(REPEATED, Kind::File).starts_with("https://"));
    let told = same(REPEATED, Kind::Directory);
    assert!(
        told.starts_with("7 `x` is left out: 3 directories above"),
        "{told}"
    );

    let tree = tree(false);
    // Lists are requested as such, and are not results.
    let lists = tree.lists();
    assert_eq!(lists.fields[ACCEPT], "application/json");
    assert!(lists.treatment.quiet && !lists.treatment.resume);
    assert!(!Arc::ptr_eq(&lists.treatment.total, &plan.treatment.total));
}

/// Waiting names are bounded for lists of any length.
#[test]
fn waiting_names_are_bounded() {
    let dir = Arc::new(Dir {
        within: None,
        list: [0; 32],
    });
    let entry = Entry {
        size: None,
        attributes: Attributes::default(),
    };
    let jobs = |count: usize, name: &str, what: What| -> Vec<Job> {
        let job = || Job {
            entry: Some((dir.clone(), OsStr::new(name).into())),
            what,
        };
        std::iter::repeat_with(job).take(count).collect()
    };
    let long = "x".repeat(LONGEST_NAME);
    let mut waiting = Waiting::new();
    assert!(waiting.pop(0).is_some_and(|root| root.entry.is_none()));
    assert_eq!((waiting.bytes, waiting.seen), (0, 0));
    waiting
        .extend(jobs(2, "d", What::List(Attributes::default())), 0)
        .unwrap();
    waiting.extend(jobs(1, "f", What::Fetch(entry)), 0).unwrap();
    // Files come first; only a limited number of lists is fetched at a time.
    assert!(matches!(waiting.pop(LISTS).unwrap().what, What::Fetch(_)));
    assert!(waiting.pop(LISTS).is_none());
    assert!(matches!(
        waiting.pop(LISTS - 1).unwrap().what,
        What::List(_)
    ));
    waiting.pop(0).unwrap();
    assert_eq!((waiting.bytes, waiting.seen), (0, 3));

    let told = |result: Result<(), Failure>| result.unwrap_err().message().to_owned();
    let many = MAX_WAITING / LONGEST_NAME;
    let refused = waiting.extend(jobs(many, &long, What::List(Attributes::default())), 0);
    assert_eq!(told(refused), "more than 64 MiB of names to fetch");
    // Even with one entry at a time.
    let mut waiting = Waiting::new();
    let mut result = Ok(());
    for _ in 0..=MAX_ENTRIES {
        result = result.and(waiting.extend(jobs(1, "f", What::Fetch(entry)), 0));
        waiting.pop(0);
    }
    let most = "more than 1000000 files and directories";
    assert_eq!(told(result), most);
    // Entries that are left out count as well.
    let mut waiting = Waiting::new();
    waiting.extend(Vec::new(), MAX_ENTRIES).unwrap();
    assert_eq!(told(waiting.extend(Vec::new(), 1)), most);
}

/// `get -r` fetches the files of every page of a list, also in subdirectories. It names a file
/// whose name is the name of another file's part, though the pages of both files differ.
#[tokio::test]
async fn all_pages_of_a_list_are_fetched() {
    let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(root.path().join("d")).unwrap();
    let files = (0..9).flat_map(|number| [format!("{number} ?&"), format!("d/{number}")]);
    let files: Vec<_> = files.chain(["a".into(), "a!".into()]).collect();
    for name in files.iter().chain(["a.part".into()].iter()) {
        fs::write(root.path().join(name), name).unwrap();
    }
    let source = crate::files::Directory::new(root.path(), false).unwrap();
    let served = Served::start(source.page_length(2), Limits::default(), Alpn::H3);
    let (url, reach) = (served.url("/"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let heard = Heard::begin();
    let plan = plan();
    let here = target.path().join("here");
    let root = Place {
        url: url.clone(),
        path: here.clone(),
    };
    let tree = tree(&plan, &sessions, root);
    let result = soon(tree.fetch()).await;
    let [_, said] = heard.take();
    let told = "`a.part` is left out: a part of another file has that name here";
    assert_eq!(said, format!("mpquic: {url}: {told}\n"));
    assert!(matches!(result, Err(Failure::Reported(Cause::File))));
    for name in &files {
        assert_eq!(fs::read_to_string(here.join(name)).unwrap(), *name);
    }
}

/// A server with endless lists: each page names a next page, and every second page a file.
struct Endless {
    pages: Arc<AtomicUsize>,
    has_files: bool,
}

impl Source for Endless {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        Err(OpenError::NotFound)
    }

    fn is_directory(&self, _: &str) -> bool {
        true
    }

    fn list(&self, _: &str) -> Result<Listing, OpenError> {
        let number = self.pages.fetch_add(1, Relaxed);
        let file = crate::files::Entry {
            name: format!("{number:09}").into(),
            length: Some(1),
            attributes: Attributes::default(),
        };
        let has_file = self.has_files && number.is_multiple_of(2);
        Ok(Listing {
            entries: has_file.then_some(file).into_iter().collect(),
            others: Vec::new(),
            more_after: Some(format!("{number:09}+").into()),
        })
    }
}

#[tokio::test]
async fn lists_without_an_end_are_given_up() {
    let target = tempfile::tempdir().unwrap();
    for (has_files, before, code, pages, told) in [
        (
            false,
            0,
            9,
            16,
            "16 pages in a row of the server's list of the directory have no entry",
        ),
        // Further directories had the others.
        (true, MAX_PAGES - 5, 7, 6, "more than 2000 pages of lists"),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let source = Endless {
            pages: asked.clone(),
            has_files,
        };
        let served = Served::start(source, Limits::default(), Alpn::H3);
        let (url, reach) = (served.url("/"), served.reach(&[]));
        let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
        let sessions = sessions.that_forget();
        let heard = Heard::begin();
        let (plan, path) = (plan(), target.path().join("here"));
        let root = Place {
            url: url.clone(),
            path,
        };
        let tree = tree(&plan, &sessions, root);
        tree.common.pages.store(before, Relaxed);
        let failed = soon(tree.fetch()).await.unwrap_err();
        let [_, said] = heard.take();
        assert_eq!(said, format!("mpquic: {url}: {told}\n"));
        assert_eq!((failed.code(), asked.load(Relaxed)), (code, pages));
    }
}

#[tokio::test]
async fn a_list_of_too_many_bytes_is_given_up() {
    // RFC 9204 section 4.5 and appendix A: the status 200. Then a DATA frame, whose length has four
    // bytes.
    let length = (u32::try_from(MAX_LIST).unwrap() + 1) | 0x8000_0000;
    let head = [&b"\x01\x03\0\0\xd9\0"[..], &length.to_be_bytes()].concat();
    let served = Served::blunt(Alpn::H3, [head, vec![b' '; MAX_LIST + 1]].concat());
    let target = tempfile::tempdir().unwrap();
    let (url, reach) = (served.url("/"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let plan = plan();
    let root = Place {
        url: url.clone(),
        path: target.path().join("here"),
    };
    let tree = tree(&plan, &sessions, root);
    let pages = Pages::new(url.clone());
    let failed = soon(tree.page(&pages, &tree.lists())).await;
    let told = failed.err().unwrap().message().to_owned();
    assert!(told.ends_with("it is longer than 16777216 bytes"), "{told}");
}

/// Links make no circle, but each directory doubles the copies of the next one.
#[cfg(unix)]
#[tokio::test]
async fn links_that_multiply_a_directory_are_left_out() {
    let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for level in 0..10 {
        let directory = root.path().join(format!("d{level}"));
        fs::create_dir(&directory).unwrap();
        for name in ["a", "b"] {
            let to = format!("../d{}", level + 1);
            std::os::unix::fs::symlink(to, directory.join(name)).unwrap();
        }
    }
    fs::create_dir(root.path().join("d10")).unwrap();
    fs::write(root.path().join("d10/file"), "1").unwrap();
    // The lists differ by these times, or links would seem to lead back.
    for level in 0..=10 {
        let directory = File::open(root.path().join(format!("d{level}"))).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(level);
        directory.set_modified(time).unwrap();
    }
    let source = crate::files::Directory::new(root.path(), false).unwrap();
    let served = Served::start(source, Limits::default(), Alpn::H3);
    let (url, reach) = (served.url("/d0/"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let heard = Heard::begin();
    let plan = plan();
    let root = Place {
        url: url.clone(),
        path: target.path().join("here"),
    };
    let tree = Tree {
        parallel: 8,
        max_depth: 20,
        ..tree(&plan, &sessions, root)
    };
    let result = soon(tree.fetch()).await;
    assert!(matches!(result, Err(Failure::Reported(Cause::Refused))));
    let [_, said] = heard.take();
    let told = format!("it is left out: {EQUAL} directories have the same list, ");
    // Each of 512 directories has two links to the last one.
    let others: Vec<_> = said.lines().filter(|line| !line.contains(&told)).collect();
    assert_eq!(others, [""; 0]);
    assert_eq!(said.matches(&told).count(), 512 - EQUAL);
    let bytes = plan.treatment.total.load(Relaxed);
    assert_eq!(bytes, 2 * EQUAL as u64);
}

/// Fetched and existing files are counted on one line; failures are reported separately.
#[tokio::test]
async fn directory_is_fetched_with_all_entries() {
    let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    for (name, content) in [("1", "12345"), ("a/2", "123"), ("a/b/3", "1")] {
        fs::write(at(name), content).unwrap();
    }
    let source = crate::files::Directory::new(root.path(), false).unwrap();
    let served = Served::start(source, Limits::default(), Alpn::H3);
    let (url, reach) = (served.url("/"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let heard = Heard::begin();
    let here = target.path().join("here");
    let fetch = async |max_depth, quiet| {
        let plan = plan();
        let root = Place {
            url: url.clone(),
            path: here.clone(),
        };
        let tree = Tree {
            parallel: 2,
            max_depth,
            quiet,
            ..tree(&plan, &sessions, root)
        };
        let result = soon(tree.fetch()).await;
        let mut view = Progress::new(String::new(), None, clock::now(), true, &[]);
        tree.show(&mut view);
        let [printed, said] = heard.take();
        assert_eq!(printed, "");
        (result, said, view.told().2)
    };
    let (result, said, bytes) = fetch(5, false).await;
    result.unwrap();
    // Each file is reported as well.
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with(&format!("{url}: 3 files, 9 B in ")),
        "{said}"
    );
    assert!(last.ends_with("bit/s") && bytes == 9, "{said}");
    for (name, content) in [("1", "12345"), ("a/2", "123"), ("a/b/3", "1")] {
        assert_eq!(fs::read_to_string(here.join(name)).unwrap(), content);
    }
    let (result, said, _) = fetch(5, false).await;
    result.unwrap();
    assert!(
        said.starts_with(&format!("{url}: 0 files, 0 B in ")),
        "{said}"
    );
    assert!(said.ends_with(", 3 were already here\n"), "{said}");
    let (result, said, _) = fetch(5, true).await;
    result.unwrap();
    assert_eq!(said, "");
    // Too deep, or where a file is: the rest is fetched.
    let (result, said, _) = fetch(1, true).await;
    assert!(matches!(result, Err(Failure::Reported(Cause::Refused))));
    let told = format!("mpquic: {url}a/: `b` is more than 1 directory deep\n");
    assert_eq!(said, told);
    fs::remove_dir_all(here.join("a")).unwrap();
    fs::write(here.join("a"), "").unwrap();
    fs::remove_file(here.join("1")).unwrap();
    let (result, said, bytes) = fetch(5, true).await;
    assert!(matches!(result, Err(Failure::Reported(Cause::File))));
    let told = format!(
        "mpquic: {url}a/: cannot make {}: ",
        here.join("a").display()
    );
    assert!(said.starts_with(&told) && bytes == 5, "{said}");
    assert!(here.join("1").exists());
}

/// A directory of a server. A function runs before each opening and listing of a path.
#[cfg(unix)]
struct Swapping {
    source: crate::files::Directory,
    before: Box<dyn Fn(&str) + Send + Sync>,
}

#[cfg(unix)]
impl Source for Swapping {
    fn open(&self, path: &str) -> Result<Content, OpenError> {
        (self.before)(path);
        self.source.open(path)
    }

    fn is_directory(&self, path: &str) -> bool {
        self.source.is_directory(path)
    }

    fn list(&self, path: &str) -> Result<Listing, OpenError> {
        (self.before)(path);
        self.source.list(path)
    }
}

/// The owner of the output directory may replace subdirectories by links during the download of
/// another user.
#[cfg(unix)]
#[tokio::test]
async fn nothing_outside_of_the_directory_is_changed_after_a_swap() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let names = ["a/b/file", "b/file", "file"];
    for (asked, swapped) in [
        ("/a/b/", "a"),
        ("/a/b/file", "a"),
        ("/a/b/file", "a/b"),
        ("/b/file", "b"),
        ("/b/file", "b/file"),
        ("/file", "a"),
    ] {
        let directories = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let [there, here, outside, away] = directories.each_ref().map(|it| it.path().to_owned());
        for (directory, content) in [(&there, "new"), (&here, "before"), (&outside, "kept")] {
            for name in names {
                let path = directory.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }
        let state = |name: &str| {
            let path = outside.join(name);
            let metadata = fs::metadata(&path).unwrap();
            let names = fs::read_dir(&path).map(Iterator::count).unwrap_or_default();
            let content = fs::read(path).ok();
            let times = (metadata.mtime(), metadata.mtime_nsec());
            (names, content, times, metadata.mode(), metadata.ino())
        };
        let states = || ["", "a", "a/b", "b", "a/b/file", "b/file", "file"].map(state);
        // The files of the server have other times and permissions.
        for name in ["a", "a/b", "b"].iter().chain(&names) {
            let path = there.join(name);
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o750);
            fs::set_permissions(&path, mode).unwrap();
            let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
            File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
        let before = states();
        let swap = {
            let (here, outside, away) = (here.clone(), outside.clone(), away.clone());
            move |path: &str| {
                if path == asked && fs::rename(here.join(swapped), away.join("away")).is_ok() {
                    symlink(outside.join(swapped), here.join(swapped)).unwrap();
                }
            }
        };
        let source = Swapping {
            source: crate::files::Directory::new(&there, false).unwrap(),
            before: Box::new(swap),
        };
        let served = Served::start(source, Limits::default(), Alpn::H3);
        let (url, reach) = (served.url("/"), served.reach(&[]));
        let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
        let sessions = sessions.that_forget();
        let plan = plan();
        let _heard = Heard::begin();
        let root = Place {
            url: url.clone(),
            path: here,
        };
        let fetched = soon(tree(&plan, &sessions, root).fetch()).await;
        assert!(away.join("away").exists(), "{asked} {swapped} {fetched:?}");
        assert_eq!(states(), before, "{asked} {swapped}");
    }
}
