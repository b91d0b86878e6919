use std::fs;
use std::time::SystemTime;

use super::*;

impl Directory {
    /// The file of a request.
    fn find(&self, target: &str) -> Option<Content> {
        self.open(target).ok()
    }

    fn begin(&self, target: &str) -> Result<Upload, UploadError> {
        self.upload(target, Sent::default(), None)
    }

    fn make(&self, target: &str) -> Result<(), UploadError> {
        self.make_directory(target, Sent::default())
    }
}

fn directory() -> (tempfile::TempDir, Directory) {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("root");
    fs::create_dir_all(root.join("sub dir")).unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::write(root.join("a.txt"), "a").unwrap();
    fs::write(root.join("sub dir/b"), "b").unwrap();
    let directory = Directory::new(&root, false).unwrap();
    (outside, directory)
}

#[test]
fn files_are_found_by_their_encoded_names() {
    let (_outside, directory) = directory();
    for target in [
        "/a.txt",
        "/%61.txt",
        "//a.txt",
        "/a.txt?x=1",
        "/sub%20dir/b",
    ] {
        assert!(directory.find(target).is_some(), "{target}");
    }
    assert!(directory.open("/a.txt").unwrap().state.length == 1);
}

#[test]
fn files_outside_the_directory_are_not_found() {
    let (outside, directory) = directory();
    for target in [
        "/../secret",
        "/%2e%2e/secret",
        "/sub%20dir/../../secret",
        "/..%2fsecret",
        "/./a.txt",
        "a.txt",
        "",
        "/",
        "/sub%20dir",
        "/a.txt%00",
        "/%zz",
        "/%ff",
        "/missing",
        &format!("/{}/secret", outside.path().display()),
    ] {
        assert!(directory.find(target).is_none(), "{target}");
    }
}

#[test]
fn directories_are_listed_by_name_and_without_what_is_not_found() {
    let (outside, mut directory) = directory();
    let root = directory.root.clone();
    fs::create_dir(root.join("B")).unwrap();
    fs::write(root.join(".hidden"), "x").unwrap();
    fs::write(root.join("0"), "12345").unwrap();
    #[cfg(unix)]
    for (to, name) in [("a.txt", "in"), ("../secret", "out"), (".hidden", "shown")] {
        std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    }
    let names = |directory: &Directory, target: &str| -> Vec<_> {
        let entries = directory.list(target).unwrap().entries.into_iter();
        entries.map(|entry| (entry.name, entry.length)).collect()
    };
    let named = |name: &str, length| (OsString::from(name), length);
    let mut expected = vec![
        named("B", None),
        named("sub dir", None),
        named("0", Some(5)),
        named("a.txt", Some(1)),
    ];
    if cfg!(unix) {
        expected.push(named("in", Some(1)));
    }
    assert_eq!(names(&directory, "/"), expected);
    // Other entries have a name only.
    #[cfg(target_os = "linux")]
    {
        let pipe = root.join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("lost")).unwrap();
        let listing = directory.list("/").unwrap();
        assert_eq!(listing.others, ["lost", "out", "pipe", "shown"]);
        assert_eq!(listing.entries.len(), expected.len());
    }
    assert_eq!(names(&directory, "/sub%20dir"), [named("b", Some(1))]);
    let outside = format!("/{}", outside.path().display());
    for target in ["/a.txt", "/missing", "/..", "/sub%20dir/..", "", &outside] {
        assert!(directory.list(target).is_err(), "{target}");
    }
    directory.dot_files = true;
    fs::write(root.join(".mpquic-put-1-2"), "unfinished").unwrap();
    let all = names(&directory, "/");
    assert!(all.contains(&named(".hidden", Some(1))));
    assert!(all.iter().all(|(name, _)| name != ".mpquic-put-1-2"));
    assert!(directory.open("/.mpquic-put-1-2").is_err());
}

/// For any length of a page, all pages together list each entry once.
#[test]
fn very_large_directory_is_listed_page_by_page() {
    let root = tempfile::tempdir().unwrap();
    let page = |after: &str, most, are_names_kept| {
        let mut directory = Directory::new(root.path(), false).unwrap();
        if are_names_kept {
            directory.recent = RecentNames::settled();
        }
        let listing = directory.page_length(most).list(&format!("/{after}"));
        listing.unwrap()
    };
    assert_eq!(page("", 1, false).more_after, None, "there is nothing");
    let mut all: Vec<String> = (0..40).map(|number| format!("n {number} ä&?#%")).collect();
    for name in &all {
        fs::write(root.path().join(name), "").unwrap();
    }
    fs::write(root.path().join(".hidden"), "").unwrap();
    fs::create_dir(root.path().join("z")).unwrap();
    all.push("z".to_owned());
    all.sort();
    let lengths = [1, 2, 7, 40, 41, 42].into_iter();
    for (most, are_names_kept) in lengths.flat_map(|most| [(most, false), (most, true)]) {
        let (mut found, mut after, mut count) = (Vec::new(), String::new(), 0);
        loop {
            let listing = page(&after, most, are_names_kept);
            assert!(listing.entries.len() <= most);
            count += 1;
            let names = listing.entries.iter().map(|entry| &entry.name);
            found.extend(names.map(|name| name.to_str().unwrap().to_owned()));
            let Some(last) = listing.more_after else {
                break;
            };
            after = format!("?{}", crate::files::list_query::query_after(&last));
        }
        // On a page, directories come first.
        found.sort();
        assert_eq!(found, all);
        assert_eq!(count, all.len().div_ceil(most));
    }
}

/// The names of a page take at most `MAX_NAMES` bytes, also if every name is long.
#[test]
fn the_names_of_a_page_are_bounded_in_bytes() {
    let mut names = FirstNames::new(None, usize::MAX);
    let name = |number: usize| format!("{number:0255}").into();
    let most = MAX_NAMES / 255;
    for number in (0..most + 9).rev() {
        names.add(name(number));
    }
    assert!(names.is_cut && names.bytes <= MAX_NAMES);
    assert_eq!(names.names.len(), most);
    assert_eq!(names.names.pop_last(), Some(name(most - 1)));
}

#[tokio::test]
async fn a_part_of_a_file_is_read() {
    let (_outside, directory) = directory();
    let data: Vec<u8> = (0..100_000).map(|index| index as u8).collect();
    fs::write(directory.root.join("big"), &data).unwrap();
    let source: Arc<dyn Source> = Arc::new(directory);
    for range in [0..10, 1..10, 99_990..100_000, 5..50_000, 7..7] {
        let open = OpenContent::open(source.clone(), "/big".into());
        let mut content = open.await.unwrap();
        content.select(range.clone()).await.unwrap();
        assert_eq!(content.length, range.end - range.start);
        let mut received = Vec::new();
        loop {
            let piece = content.read(16_384).await.unwrap();
            if piece.is_empty() {
                break;
            }
            received.extend_from_slice(&piece);
        }
        assert!(received == data[range.start as usize..range.end as usize]);
    }
}

#[cfg(unix)]
#[test]
fn links_are_followed_within_the_directory_only() {
    let (outside, directory) = directory();
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, directory.root.join(name)).unwrap();
    };
    link(&outside.path().join("secret"), "out");
    link(outside.path(), "parent");
    link(Path::new("a.txt"), "in");
    assert!(directory.find("/out").is_none());
    assert!(directory.find("/parent/secret").is_none());
    assert!(directory.find("/in").is_some());
}

#[test]
fn files_are_taken_within_the_directory_only() {
    let (outside, directory) = directory();
    let root = directory.root.clone();
    assert!(directory.begin("/new").is_err(), "not asked for");
    let mut directory = directory.max_upload(Some(10));
    for target in ["/new", "/sub%20dir/new", "/a.txt", "//new?x", "/a%20b"] {
        directory.begin(target).unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(outside.path(), root.join("parent")).unwrap();
    let absolute = format!("/{}/new", outside.path().display());
    for target in [
        "/../new",
        "/%2e%2e/new",
        "/..%2fnew",
        "/sub%20dir/../../new",
        "/sub%20dir/..",
        "/sub%20dir%2fnew",
        "/parent/new",
        "/missing/new",
        "/sub%20dir",
        "/sub%20dir/",
        "/",
        "",
        "new",
        "/.",
        "/.new",
        "/.git/new",
        "/new%00",
        "/.mpquic-put-1-2",
        &absolute,
    ] {
        assert!(directory.begin(target).is_err(), "{target}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2);
    directory.dot_files = true;
    directory.begin("/.new").unwrap();
    assert!(directory.begin("/.mpquic-put-1-2").is_err());
    assert!(directory.begin("/..").is_err());
}

#[test]
fn names_with_a_dot_are_found_on_request_only() {
    let (_outside, mut directory) = directory();
    let root = directory.root.clone();
    fs::create_dir_all(root.join("sub dir/.git")).unwrap();
    fs::write(root.join("sub dir/.git/config"), "x").unwrap();
    fs::write(root.join(".secret"), "x").unwrap();
    let mut targets = vec!["/.secret", "/%2esecret", "/sub%20dir/.git/config"];
    if cfg!(unix) {
        #[cfg(unix)]
        for (to, name) in [(".secret", "link"), ("a.txt", ".link")] {
            std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        }
        targets.extend(["/link", "/.link"]);
    }
    for target in &targets {
        assert!(directory.find(target).is_none(), "{target}");
    }
    directory.dot_files = true;
    for target in &targets {
        assert!(directory.find(target).is_some(), "{target}");
    }
    for target in ["/../secret", "/./a.txt", "/.", "/.."] {
        assert!(directory.find(target).is_none(), "{target}");
    }
}

#[test]
fn paths_are_absolute_and_properly_encoded() {
    for path in ["/", "/a", "/a/b%20c", "//", "/%C3%a4", "/%ff"] {
        assert!(is_well_formed(path), "{path}");
    }
    for path in ["", "*", "a", "a/b", "/%", "/%1", "/%0g", "/%zz", "/%00"] {
        assert!(!is_well_formed(path), "{path}");
    }
}

/// The dot rule is for names inside the served directory, not for its own path.
#[test]
fn the_directory_served_may_begin_with_a_dot() {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().join(".hidden");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a"), "a").unwrap();
    let directory = Directory::new(&root, false).unwrap();
    assert!(directory.find("/a").is_some());
}

#[tokio::test]
async fn contents_arrive_in_pieces_of_the_size_asked_for() {
    let (_outside, directory) = directory();
    let data: Vec<u8> = (0..100_005).map(|index| index as u8).collect();
    fs::write(directory.root.join("big"), &data).unwrap();
    let source = Arc::new(directory);
    let mut content = OpenContent::open(source, "/big".into()).await.unwrap();
    let mut received = Vec::new();
    for (asked, expected) in [(10, 10), (99_990, 99_990), (100, 5), (100, 0)] {
        let piece = content.read(asked).await.unwrap();
        assert_eq!(piece.len(), expected);
        received.extend_from_slice(&piece);
    }
    assert_eq!(content.length, data.len() as u64);
    assert!(received == data);
}

/// A source with content only.
#[test]
fn uploads_need_a_limit() {
    let source = crate::testing::Anything::new(1);
    assert!(source.open("/x").is_ok());
    assert!(!source.is_directory("/"));
    assert_eq!(source.max_upload(), None);
    assert!(matches!(
        source.upload("/x", Sent::default(), None),
        Err(UploadError::Forbidden)
    ));
    let made = source.make_directory("/x", Sent::default());
    assert!(matches!(made, Err(UploadError::Forbidden)));
    let token = Token::new().unwrap();
    let resumed = source.resume("/x", Sent::default(), &token);
    assert!(matches!(resumed, Err(UploadError::Unknown)));
    assert!(matches!(source.list("/"), Err(OpenError::NotFound)));
}

#[test]
fn directories_are_made_where_files_are_taken() {
    let (_outside, directory) = directory();
    assert!(directory.make("/new").is_err(), "not asked for");
    let directory = directory.max_upload(Some(1));
    directory.make("/new").unwrap();
    directory.make("/new/a%20b/?query").unwrap();
    assert!(directory.root.join("new/a b").is_dir());
    assert!(directory.is_directory("/new/a%20b") && !directory.is_directory("/a.txt"));
    for (path, told) in [
        ("/", "something has that name"),
        ("/new", "something has that name"),
        ("/a.txt", "something has that name"),
        ("/missing/new", "there is no such directory"),
        ("/..%2fnew", "that name cannot be written to"),
        ("/.new", "that name cannot be written to"),
    ] {
        let error = directory.make(path).unwrap_err();
        assert_eq!(error.to_string(), told, "{path}");
    }
}

/// Archives and cameras leave times before 1970.
#[test]
fn files_of_any_time_are_found_and_listed() {
    let (_outside, directory) = directory();
    for text in ["-0.5", "-86400"] {
        let file = File::options()
            .write(true)
            .open(directory.root.join("a.txt"));
        let time = crate::text::times::of_seconds(text).unwrap();
        file.unwrap().set_modified(time).unwrap();
        let content = directory.find("/a.txt").unwrap();
        let version = crate::files::selection::Version::new(&content.state);
        assert!(version.etag().is_some() && version.last_modified().is_none());
        let listing = directory.list("/").unwrap();
        let json = crate::files::directory_page::tests::json(&listing);
        let seconds = crate::text::times::seconds(time);
        let listed = format!("{{\"name\":\"a.txt\",\"type\":\"file\",\"modified\":\"{seconds}\",");
        assert!(json.contains(&listed), "{json}");
        assert!(crate::files::directory_page::tests::page("/", &listing).contains("a.txt"));
    }
}

/// A link to a directory above would make an endless tree.
#[cfg(unix)]
#[test]
fn directories_containing_themselves_are_not_listed() {
    let (_outside, directory) = directory();
    let root = directory.root.clone();
    fs::create_dir(root.join("other")).unwrap();
    for (to, name) in [
        (".", "self"),
        ("..", "sub dir/up"),
        ("../other", "sub dir/other"),
        ("../sub dir", "other/back"),
    ] {
        std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    }
    let names = |target: &str| -> Vec<_> {
        let entries = directory.list(target).unwrap().entries.into_iter();
        entries
            .map(|entry| entry.name.into_string().unwrap())
            .collect()
    };
    assert_eq!(names("/"), ["other", "sub dir", "a.txt"]);
    assert_eq!(names("/sub%20dir/"), ["other", "b"]);
    assert_eq!(names("/sub%20dir/other/"), [""; 0]);
    assert_eq!(names("/other/"), ["back"]);
    assert_eq!(names("/other/back/"), ["b"]);
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf8_are_found_and_listed() {
    use std::os::unix::ffi::OsStrExt;
    let (_outside, directory) = directory();
    let odd = OsStr::from_bytes(b"caf\xe9");
    fs::write(directory.root.join(odd), "12").unwrap();
    assert_eq!(directory.find("/caf%E9").unwrap().state.length, 2);
    let listing = directory.list("/").unwrap();
    assert!(crate::files::directory_page::tests::page("/", &listing).contains("href=\"./caf%E9\""));
    let json = crate::files::directory_page::tests::json(&listing);
    let listed: Vec<crate::files::directory_page::Listed> = serde_json::from_str(&json).unwrap();
    let names: Vec<_> = listed
        .iter()
        .map(|entry| entry.file_name().unwrap())
        .collect();
    assert!(names.contains(&odd.to_owned()), "{json}");
}

/// Programs publish a release by moving a link.
#[cfg(unix)]
#[test]
fn a_link_to_the_directory_is_followed_anew() {
    let above = tempfile::tempdir().unwrap();
    for name in ["1", "2"] {
        fs::create_dir(above.path().join(name)).unwrap();
        fs::write(above.path().join(name).join(name), name).unwrap();
    }
    let link = above.path().join("link");
    std::os::unix::fs::symlink("1", &link).unwrap();
    let directory = Directory::new(&link, false).unwrap();
    assert!(directory.find("/1").is_some());
    fs::remove_file(&link).unwrap();
    assert!(matches!(directory.open("/1"), Err(OpenError::NotFound)));
    std::os::unix::fs::symlink("2", &link).unwrap();
    assert!(directory.find("/1").is_none() && directory.find("/2").is_some());
}

/// A user with write access to the directory exchanges a directory for a link at the worst time.
#[cfg(target_os = "linux")]
#[test]
fn replaced_directories_do_not_lead_outside() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let (outside, directory) = directory();
    let directory = directory.max_upload(Some(10));
    let root = directory.root.clone();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/secret"), "own").unwrap();
    std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (from, to) = (root.join("d"), root.join("link"));
                renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let (mut found, mut stored, mut failed) = (0, 0, None);
        for number in 0..20_000 {
            if let Ok(mut content) = directory.open("/d/secret") {
                let mut text = String::new();
                content.reader.read_to_string(&mut text).unwrap();
                assert_eq!(text, "own");
                found += 1;
            }
            if let Ok(upload) = directory.begin(&format!("/d/new{number}")) {
                match upload.finish() {
                    Ok(_) => stored += 1,
                    // At this moment, the path leads to the link.
                    Err(UploadError::NoDirectory) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(found > 0 && stored > 0 && failed.is_none(), "{failed:?}");
    });
    let mut names: Vec<_> = fs::read_dir(outside.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["root", "secret"]);
}

/// Programs overwrite files in place, replace files, and append to files.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_written_over_is_not_sent_to_its_end() {
    use std::io::Write;
    let (_outside, directory) = directory();
    let path = directory.root.join("a.txt");
    fs::write(&path, "12345678").unwrap();
    let source: Arc<dyn Source> = Arc::new(directory);
    let begun = async || {
        let opened = OpenContent::open(source.clone(), "/a.txt".to_owned());
        let mut content = opened.await.unwrap();
        assert_eq!(content.read(4).await.unwrap(), "1234");
        // The clock of the file system advances.
        std::thread::sleep(std::time::Duration::from_millis(30));
        content
    };
    let mut content = begun().await;
    let mut log = File::options().append(true).open(&path).unwrap();
    log.write_all(b"9").unwrap();
    assert_eq!(content.read(4).await.unwrap(), "5678", "as announced");

    let mut content = begun().await;
    let new = path.with_extension("new");
    fs::write(&new, "another").unwrap();
    fs::rename(&new, &path).unwrap();
    assert_eq!(content.read(100).await.unwrap(), "56789", "of the old file");

    fs::write(&path, "12345678").unwrap();
    for written in ["abcdefgh", "abcdefg"] {
        let mut content = begun().await;
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, written).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        let read = content.read(4).await;
        let is_short = read.as_ref().is_ok_and(|piece| piece.len() < 4);
        assert!(read.is_err() || is_short, "{written}: {read:?}");
        fs::write(&path, "12345678").unwrap();
    }
}

/// The rest of a new version must not follow the beginning of an old version.
#[cfg(unix)]
#[test]
fn a_file_of_the_same_length_and_time_is_another_version() {
    let (_outside, directory) = directory();
    let path = directory.root.join("a.txt");
    let etag = |content: &str| {
        let new = path.with_extension("new");
        fs::write(&new, content).unwrap();
        let file = File::options().write(true).open(&new).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::rename(&new, &path).unwrap();
        let content = directory.find("/a.txt").unwrap();
        crate::files::selection::Version::new(&content.state).etag()
    };
    let one = etag("A");
    assert!(one.is_some());
    assert_ne!(one, etag("B"));
}
