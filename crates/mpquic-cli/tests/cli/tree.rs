//! `mpquic get --recursive`.

use std::fs;
use std::path::Path;
use std::process::Output;
#[cfg(unix)]
use std::time::Duration;

use crate::http3_get::Peculiar;
use crate::{Server, assert_exit, data, directories, mpquic, names, reports, run, stderr};

/// All files below a directory, with what is in them; `None` for directories.
fn contents(root: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            let content = path.is_file().then(|| fs::read(&path).unwrap());
            found.push((name.to_owned(), content));
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a b/c?#%")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for (name, length) in [
        ("a b/one", 1),
        ("a b/c?#%/\"two\" <2> & more", 300_000),
        ("nothing", 0),
        // It is shown instead of the names, but not to programs.
        ("a b/index.html", 10),
    ] {
        fs::write(root.join(name), data(length)).unwrap();
    }
    for number in 0..200 {
        fs::write(root.join(format!("{number}")), format!("{number}")).unwrap();
    }
}

fn get(server: &Server, path: &str, into: &Path, more: &[&str]) -> Output {
    let into = ["-r", "--output-dir", into.to_str().unwrap()];
    server.get(path, &[&into[..], more].concat())
}

#[test]
fn a_directory_arrives_with_all_that_is_in_it_and_only_once() {
    let (served, target) = directories(b"");
    make_tree(&served.path().join("tree"));
    let log = target.path().join("log");
    let server = Server::start(served.path(), &["--access-log", log.to_str().unwrap()]);
    let into = target.path().join("into");
    fs::create_dir(&into).unwrap();
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let output = get(&server, "/tree/", &into, &two);
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert!(told.contains("204 files, "), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.contains("\non the wire: 127.0.0.1 "), "{told}");
    assert_eq!(names(&into), ["tree"]);
    let tree = into.join("tree");
    assert!(contents(&tree) == contents(&served.path().join("tree")));

    // Again, and after one file has changed: what is here is not fetched.
    let output = get(&server, "/tree/", &into, &["--continue"]);
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert!(
        told.contains("0 files, ") && told.contains("204 were already here"),
        "{told}"
    );
    fs::write(served.path().join("tree/a b/one"), "changed").unwrap();
    let output = get(&server, "/tree/", &into, &["--continue", "--json"]);
    assert_exit(&output, 0);
    let reports = reports(&output);
    assert_eq!(reports.len(), 1);
    let file = tree.join("a b/one");
    assert_eq!(reports[0]["file"], file.to_str().unwrap());
    assert_eq!(fs::read(file).unwrap(), b"changed");

    // The root has no name; a directory may be given another.
    let root = target.path().join("root");
    fs::create_dir(&root).unwrap();
    assert_exit(&get(&server, "/", &root, &[]), 0);
    assert!(contents(&root) == contents(served.path()));
    let other = target.path().join("new/other");
    let output = server.get("/tree/a%20b/", &["-r", "-o", other.to_str().unwrap()]);
    assert_exit(&output, 0);
    assert!(contents(&other) == contents(&served.path().join("tree/a b")));
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_back_is_not_listed_and_depth_is_limited() {
    let (served, target) = directories(b"x");
    for name in ["again", "and again"] {
        std::os::unix::fs::symlink(".", served.path().join(name)).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let options = ["--max-depth", "3"];
    assert_exit(&get(&server, "/", target.path(), &options), 0);
    assert_eq!(names(target.path()), ["file"]);
    fs::create_dir_all(served.path().join("a/b/c/d")).unwrap();
    let output = get(&server, "/", target.path(), &options);
    assert_exit(&output, 7);
    let told = stderr(&output);
    assert!(told.contains("more than 3 directories deep"), "{told}");
    assert!(target.path().join("a/b/c").is_dir());
}

/// Whatever a server calls its files, they stay in the directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_lead_nowhere_else() {
    let server = Peculiar::start();
    let (outside, _) = directories(b"kept");
    let into = outside.path().join("into");
    fs::create_dir_all(into.join("nasty")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(outside.path(), into.join("nasty/link")).unwrap();
    let output = server.get("/nasty/", &["-r", "--output-dir", into.to_str().unwrap()]);
    assert_exit(&output, 9);
    let told = stderr(&output);
    for name in ["`../file`", "`/etc/file`", "`..`", "`a\\0`"] {
        assert!(told.contains(name), "{name}: {told}");
    }
    assert!(told.contains("only a part"), "{told}");
    if cfg!(unix) {
        assert!(told.contains("cannot make"), "{told}");
    }
    assert_eq!(names(outside.path()), ["file", "into"]);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"kept");
    assert_eq!(names(&into), ["nasty"]);
    let got = names(&into.join("nasty"));
    assert!(
        got.contains(&"good".to_owned()) && got.len() <= 2,
        "{got:?}"
    );

    // Programs are told of each.
    let events = [
        "-r",
        "--json=events",
        "--output-dir",
        into.to_str().unwrap(),
    ];
    let events = reports(&server.get("/nasty/", &events));
    let failed = events.iter().filter(|event| event["event"] == "failed");
    assert!(failed.count() >= 5, "{events:?}");

    // No list at all.
    let output = server.get("/whole/", &["-r", "--output-dir", into.to_str().unwrap()]);
    assert_exit(&output, 9);
    let told = stderr(&output);
    assert!(told.contains("no list of the directory"), "{told}");
}

#[test]
fn options_without_use_for_recursive_are_refused() {
    for (more, expected) in [
        (&["https://localhost/file", "-r"][..], "end it with a slash"),
        (
            &["https://localhost/a/", "-r", "-o", "-"],
            "standard output",
        ),
        (&["https://localhost/a/", "--max-depth", "3"], "--recursive"),
        (
            &["https://localhost/a/", "-r", "--output-dir", "/none"],
            "no such directory",
        ),
    ] {
        let output = run(&[&["get"], more].concat());
        assert_exit(&output, 2);
        let told = stderr(&output);
        assert!(told.contains(expected), "{told}");
    }
}

/// There and back, byte for byte: all that may stand in the name of a file on Unix.
#[cfg(target_os = "linux")]
#[test]
fn odd_names_go_there_and_back() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (served, source) = directories(b"");
    let target = tempfile::tempdir().unwrap();
    let odd = source.path().join("odd");
    let bytes = || (1..=255_u8).filter(|byte| *byte != b'/');
    let alone = bytes().filter(|byte| *byte != b'.').map(|byte| vec![byte]);
    let within = bytes().map(|byte| vec![b'a', byte, b'z']);
    let others = [
        "\u{1b}[2J\r\n",
        "a%0A",
        "%2F",
        "-rf",
        "e\u{301}",
        "\u{202e}x",
        "a\\b ",
    ];
    let others = others.map(|name| name.as_bytes().to_vec());
    let all: Vec<_> = alone.chain(within).chain(others).collect();
    let inner = OsStr::new("d\n\u{1b}[1m\t");
    for directory in [odd.clone(), odd.join(inner)] {
        fs::create_dir(&directory).unwrap();
        for name in &all {
            fs::write(directory.join(OsStr::from_bytes(name)), name).unwrap();
        }
    }
    let server = Server::start(served.path(), &["--allow-put"]);
    let url = server.url("/");
    let sent = run(&[
        "put",
        "-r",
        "--pin",
        &server.pin,
        &url,
        odd.to_str().unwrap(),
    ]);
    for output in [sent, get(&server, "/odd/", target.path(), &[])] {
        assert_exit(&output, 0);
        let told = stderr(&output);
        assert_eq!(told.matches(char::is_control).count(), 1, "{told:?}");
    }
    let got = target.path().join("odd");
    for directory in [got.clone(), got.join(inner)] {
        for name in &all {
            let path = directory.join(OsStr::from_bytes(name));
            assert_eq!(&fs::read(path).unwrap(), name);
        }
    }
    assert_eq!(fs::read_dir(got).unwrap().count(), all.len() + 1);
}

/// A server does not make files of others writable: only what the umask leaves is given.
#[cfg(unix)]
#[test]
fn umask_limits_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let (served, target) = directories(b"");
    let tree = served.path().join("tree");
    fs::create_dir_all(tree.join("open")).unwrap();
    let all = [
        ("a", 0o4777, 0o750),
        ("b", 0o666, 0o640),
        ("c", 0o600, 0o600),
        ("open", 0o777, 0o750),
    ];
    for (name, mode, _) in all {
        if name != "open" {
            fs::write(tree.join(name), name).unwrap();
        }
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let into = target.path().join("tree");
    let fetch = |more: &[&str]| {
        let url = server.url("/tree/");
        let get = ["get", "-q", "-r", "--continue", "--pin", &server.pin, &url];
        let mut command = mpquic(&[&get[..], more].concat());
        command.arg("-o").arg(&into);
        let mut shell = std::process::Command::new("sh");
        let shell = shell.arg("-c").arg("umask 027; exec \"$0\" \"$@\"");
        let shell = shell.arg(command.get_program()).args(command.get_args());
        assert_exit(&shell.output().unwrap(), 0);
    };
    let check = |expected: fn(u32, u32) -> u32| {
        for (name, mode, limited) in all {
            let here = fs::metadata(into.join(name)).unwrap();
            let expected = expected(mode, limited);
            assert_eq!(here.permissions().mode() & 0o7777, expected, "{name}");
        }
    };
    // Also where the files are already.
    for _ in 0..2 {
        fetch(&[]);
        check(|_, limited| limited);
    }
    fetch(&["--preserve-permissions"]);
    check(|mode, _| mode & 0o777);
}

/// There and back: whatever the umask, and directories too.
#[cfg(unix)]
#[test]
fn times_and_permissions_arrive_and_are_corrected() {
    use std::os::unix::fs::PermissionsExt;
    let (served, target) = directories(b"x");
    let tree = served.path().join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    let time = |seconds| std::time::SystemTime::UNIX_EPOCH + Duration::new(seconds, 7);
    let set = |name: &str, mode: u32, seconds: u64| {
        let file = fs::File::open(tree.join(name)).unwrap();
        file.set_modified(time(seconds)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(mode))
            .unwrap();
    };
    let mut all = [
        ("a", 0o666),
        ("sub/b", 0o4775),
        ("sub/deep/c", 0o600),
        ("sub/deep", 0o777),
        ("sub", 0o570),
    ];
    for (name, _) in &all[..3] {
        fs::write(tree.join(name), name).unwrap();
    }
    for (seconds, (name, mode)) in (0..).zip(all) {
        set(name, mode, seconds);
    }
    let server = Server::start(served.path(), &[]);
    for (more, told) in [
        (&[][..], "3 files"),
        (&["--continue"], "3 were already here"),
        (&["--continue"], "1 file"),
    ] {
        let more = [&["--preserve-permissions"], more].concat();
        let output = get(&server, "/tree/", target.path(), &more);
        assert_exit(&output, 0);
        assert!(stderr(&output).contains(told), "{output:?}");
        for (seconds, (name, mode)) in (0..).zip(all) {
            let here = fs::metadata(target.path().join("tree").join(name)).unwrap();
            // No rights are lent.
            let mode = mode & 0o777;
            assert_eq!(here.permissions().mode() & 0o7777, mode, "{name} {told}");
            assert_eq!(here.modified().unwrap(), time(seconds), "{name} {told}");
        }
        if more.len() == 1 {
            // Only permissions change,
            (all[0].1, all[4].1) = (0o640, 0o500);
        } else {
            // and then there is another file.
            set("sub", 0o700, 4);
            fs::write(tree.join("sub/d"), "d").unwrap();
        }
        set("a", all[0].1, 0);
        set("sub", all[4].1, 4);
    }
}

/// Two commands would mix their files in one directory.
#[cfg(unix)]
#[test]
fn second_command_for_one_directory_is_refused() {
    let content = data(1_000_000);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--rate", "1M"]);
    let into = target.path().join("into");
    let into = into.to_str().unwrap();
    let mut first = mpquic(&["get", "-q", "-r", "--pin", &server.pin, &server.url("/")])
        .args(["-o", into])
        .spawn()
        .unwrap();
    crate::wait_for_bytes(&target.path().join("into/file.part"), 10_000);
    let second = ["-r", "-q", "--overwrite", "-o", into];
    let output = server.get("/", &second);
    assert_exit(&output, 3);
    let told = stderr(&output);
    assert!(
        told.contains("another `mpquic get -r` fetches into "),
        "{told}"
    );
    assert!(first.wait().unwrap().success());
    assert_eq!(names(Path::new(into)), ["file"]);
    assert!(fs::read(target.path().join("into/file")).unwrap() == content);
    assert_exit(&server.get("/", &["-r", "-q", "--continue", "-o", into]), 0);
}

/// Of a file that only its owner may read, nobody sees a part.
#[cfg(unix)]
#[test]
fn a_part_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (served, target) = directories(&data(4_000_000));
    let file = served.path().join("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(served.path(), &["--rate", "16M"]);
    let into = target.path().join("into");
    let mut child = mpquic(&["get", "-q", "-r", "--pin", &server.pin, &server.url("/")])
        .args(["-o", into.to_str().unwrap()])
        .spawn()
        .unwrap();
    let part = into.join("file.part");
    crate::wait_for_bytes(&part, 100_000);
    let mode = fs::metadata(&part).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(child.wait().unwrap().success());
    let mode = fs::metadata(into.join("file"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Nothing is missing without a word.
#[cfg(target_os = "linux")]
#[test]
fn special_files_are_named() {
    let (served, target) = directories(b"x");
    let inner = served.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("plain"), "x").unwrap();
    std::os::unix::fs::symlink("plain", inner.join("within")).unwrap();
    std::os::unix::fs::symlink("../file", inner.join("out")).unwrap();
    std::os::unix::fs::symlink("nowhere", inner.join("lost")).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, inner.join("pipe"), kind, mode, 0).unwrap();
    let server = Server::start(&inner, &[]);
    let into = target.path().join("into");
    let output = server.get("/", &["-r", "-q", "-o", into.to_str().unwrap()]);
    assert_exit(&output, 9);
    let told = stderr(&output);
    for name in ["out", "lost", "pipe"] {
        assert!(told.contains(&format!("`{name}` is left out")), "{told}");
    }
    assert_eq!(told.lines().count(), 3, "{told}");
    assert_eq!(names(&into), ["plain", "within"]);
}

/// What the tool made, it finishes: another run does so after the first one was killed.
#[cfg(unix)]
#[test]
fn directories_of_a_killed_run_get_their_times_and_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let (served, target) = directories(b"x");
    let tree = served.path().join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    fs::write(tree.join("sub/deep/file"), data(4_000_000)).unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["sub/deep", "sub"] {
        let directory = fs::File::open(tree.join(name)).unwrap();
        directory.set_modified(time).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        directory.set_permissions(mode).unwrap();
    }
    let slow = Server::start(served.path(), &["--rate", "8M"]);
    let mut first = mpquic(&["get", "-q", "-r", "--pin", &slow.pin, &slow.url("/tree/")])
        .args(["--output-dir", target.path().to_str().unwrap()])
        .spawn()
        .unwrap();
    let into = target.path().join("tree");
    crate::wait_for_bytes(&into.join("sub/deep/file.part"), 100_000);
    first.kill().unwrap();
    first.wait().unwrap();
    drop(slow);
    // A directory of the user stays as the user made it.
    fs::create_dir_all(tree.join("own")).unwrap();
    fs::create_dir(into.join("own")).unwrap();
    let own = fs::Permissions::from_mode(0o710);
    fs::set_permissions(into.join("own"), own).unwrap();
    let mode = |name: &str| {
        let metadata = fs::metadata(into.join(name)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!(mode("sub"), 0o700, "nobody else sees what is not complete");
    let server = Server::start(served.path(), &[]);
    let output = get(
        &server,
        "/tree/",
        target.path(),
        &["--preserve-permissions"],
    );
    assert_exit(&output, 0);
    for name in ["sub", "sub/deep"] {
        assert_eq!(mode(name), 0o755, "{name}");
        let modified = fs::metadata(into.join(name)).unwrap().modified();
        assert_eq!(modified.unwrap(), time, "{name}");
    }
    assert_eq!(mode("own"), 0o710);
    // They belong to the user now.
    fs::set_permissions(into.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_exit(&get(&server, "/tree/", target.path(), &[]), 0);
    assert_eq!(mode("sub"), 0o700);
}

/// While a file arrives, its part has the name; afterwards nobody needs the name.
#[test]
fn a_file_with_the_name_of_a_part_arrives_after_the_other_file() {
    let (served, target) = directories(b"content");
    fs::write(served.path().join("file.part"), "of another program").unwrap();
    fs::create_dir(served.path().join("directory")).unwrap();
    fs::write(served.path().join("directory.part"), "file").unwrap();
    let server = Server::start(served.path(), &[]);
    let into = target.path().join("into");
    let get = |more: &[&str]| {
        let options = ["-r", "-o", into.to_str().unwrap()];
        server.get("/", &[&options[..], more].concat())
    };
    let output = get(&[]);
    assert_exit(&output, 3);
    assert!(
        stderr(&output).contains("`file.part` is left out"),
        "{output:?}"
    );
    assert_eq!(names(&into), ["directory", "directory.part", "file"]);
    assert_exit(&get(&["--continue"]), 0);
    assert_eq!(
        fs::read(into.join("file.part")).unwrap(),
        b"of another program"
    );
    for more in [&[][..], &["--continue"]] {
        assert_exit(&get(more), 0);
    }
    // What is in the way is refused, and both ways to replace it are named.
    fs::write(into.join("file"), "other").unwrap();
    let output = get(&[]);
    assert_exit(&output, 3);
    let told = stderr(&output);
    assert!(
        told.contains("--overwrite") && told.contains("--continue"),
        "{told}"
    );
}

/// Many files wait for the server: the outage is told once.
#[test]
fn an_outage_is_told_once_for_all_files() {
    let (served, target) = directories(b"x");
    for number in 0..8 {
        fs::write(served.path().join(format!("{number}")), data(1_000_000)).unwrap();
    }
    let mut server = Server::start(served.path(), &["--rate", "8M"]);
    let url = server.url("/");
    let into = target.path().join("into");
    let child = mpquic(&["get", "-r", "--insecure", &url])
        .args(["-o", into.to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let has_begun = || {
        let mut parts = (0..8).map(|number| into.join(format!("{number}.part")));
        parts.any(|part| fs::metadata(part).is_ok_and(|part| part.len() > 100_000))
    };
    crate::wait_until("bytes", has_begun);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let _server = Server::start_on(&server.address.to_string(), served.path(), &[]);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    let told = stderr(&output);
    let again = told.lines().filter(|line| line.ends_with("; trying again"));
    assert_eq!(again.count(), 1, "{told}");
}

/// A file of the server with the name of a directory that is sent keeps its content, time and
/// permissions.
#[cfg(unix)]
#[test]
fn a_directory_takes_no_file_of_its_name() {
    use std::os::unix::fs::PermissionsExt as _;
    let (served, source) = directories(b"");
    for name in ["empty", "full"] {
        fs::create_dir(source.path().join(name)).unwrap();
        let file = served.path().join(name);
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let old = fs::File::options().write(true).open(&file).unwrap();
        old.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    fs::write(source.path().join("full/inner"), "x").unwrap();
    fs::create_dir(source.path().join("good")).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let paths = ["empty", "full", "good"].map(|name| source.path().join(name));
    let paths = paths.each_ref().map(|path| path.to_str().unwrap());
    let url = server.url("/");
    let line = ["put", "-r", "--pin", &server.pin, &url];
    let output = run(&[&line[..], &paths].concat());
    assert_exit(&output, 7);
    let told = stderr(&output);
    for name in ["empty", "full"] {
        let expected =
            format!("{url}{name}/: the server has a file of this name, and no directory");
        assert!(told.contains(&expected), "{told}");
        let file = served.path().join(name);
        let there = fs::metadata(&file).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, 0o600);
        assert_eq!(there.modified().unwrap(), std::time::UNIX_EPOCH);
        assert_eq!(fs::read(&file).unwrap(), b"secret");
    }
    assert!(served.path().join("good").is_dir());
}

/// The server's file is replaced after the list was made: time and permissions are those of the new
/// file, so later runs compare the right time.
#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_during_a_run_gets_its_own_attributes() {
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    let (served, target) = directories(b"");
    let (served, target) = (served.path(), target.path());
    let at = |days: u64| SystemTime::UNIX_EPOCH + Duration::new(days * 86_400, 250_000_000);
    let write = |path: &Path, content: &[u8], mode, days| {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(at(days)).unwrap();
    };
    for name in ["a", "b", "c"] {
        fs::write(served.join(name), data(400_000)).unwrap();
    }
    write(&served.join("0"), b"old", 0o600, 20_000);
    let server = Server::start(served, &[]);
    let into = ["--output-dir", target.to_str().unwrap()];
    let slow = [
        "get",
        "-r",
        "--insecure",
        "--quiet",
        "--parallel",
        "1",
        "--rate",
        "8M",
    ];
    let mut child = mpquic(&[&slow[..], &[&server.url("/")], &into].concat())
        .spawn()
        .unwrap();
    // The file with the first name comes last.
    let has_begun = || fs::read_dir(target).unwrap().count() > 0;
    crate::wait_until("a file", has_begun);
    let newer = served.join("newer");
    write(&newer, b"new", 0o640, 20_001);
    fs::rename(&newer, served.join("0")).unwrap();
    assert!(child.wait().unwrap().success());
    let got = target.join("0");
    let there = fs::metadata(&got).unwrap();
    assert_eq!(fs::read(&got).unwrap(), b"new");
    assert_eq!(there.modified().unwrap(), at(20_001));
    assert_eq!(there.permissions().mode() & 0o777, 0o640);
    // Nothing has changed, so nothing is fetched, and no file is in the way.
    assert_exit(&get(&server, "/", target, &[]), 0);
    // The old file is back: it is another one.
    write(&served.join("0"), b"old", 0o600, 20_000);
    assert_exit(&get(&server, "/", target, &["--continue"]), 0);
    assert_eq!(fs::read(&got).unwrap(), b"old");
}
