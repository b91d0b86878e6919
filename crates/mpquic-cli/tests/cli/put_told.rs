//! The lines of `mpquic put` about breaks, failures and directories.

use std::fs;
use std::net::UdpSocket;
use std::process::Stdio;

use crate::{Server, assert_exit, data, directories, mpquic, run, stderr};

/// Many files are sent over one connection: its break is told once.
#[test]
fn a_broken_connection_is_told_once_for_all_files() {
    let (served, source) = directories(b"");
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    for number in 0..8 {
        fs::write(top.join(number.to_string()), data(400_000)).unwrap();
    }
    // A port that is free. With a port of its own, the new server resets connections of the killed
    // server.
    let address = Server::start(served.path(), &[]).address.to_string();
    let mut server = Server::start_on(&address, served.path(), &["--allow-put"]);
    let url = server.url("/");
    let child = mpquic(&["put", "-r", "--insecure", "--rate", "8M", &url])
        .arg(&top)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let has_begun = || {
        let files = fs::read_dir(served.path().join("top"));
        files.is_ok_and(|files| files.count() == 8)
    };
    crate::wait_until("eight files", has_begun);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let _server = Server::start_on(&address, served.path(), &["--allow-put"]);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    let told = stderr(&output);
    let again = told.lines().filter(|line| line.ends_with("; trying again"));
    assert_eq!(again.count(), 1, "{told}");
}

/// Each failure names its URL: a script has several.
#[test]
fn failures_name_the_url() {
    let (served, source) = directories(b"old");
    let server = Server::start(served.path(), &["--allow-put"]);
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dead = format!("https://{}", nobody.local_addr().unwrap());
    let absent = "https://nobody.invalid".to_owned();
    drop(nobody);
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    let file = top.join("new");
    fs::write(&file, "new").unwrap();
    let (top, file) = (top.to_str().unwrap(), file.to_str().unwrap());
    let content = format!("{top}/.");
    for (server, pin, code) in [
        (server.url(""), "--quiet", 6),
        (dead, "--insecure", 5),
        (absent, "--insecure", 4),
    ] {
        for (path, sent) in [
            ("/new", file),
            ("/", file),
            ("/", top),
            ("/", &content),
            ("/none/", top),
        ] {
            let url = format!("{server}{path}");
            let output = run(&["put", "-r", pin, &url, sent]);
            assert_exit(&output, code);
            let told = stderr(&output);
            let start = format!("mpquic: {url}");
            assert!(told.starts_with(&start), "{url}: {told}");
            assert_eq!(told.lines().count(), 1, "{told}");
        }
    }
}

#[cfg(unix)]
fn put_all(server: &Server, path: &str, directory: &str, more: &[&str]) -> std::process::Output {
    let url = server.url(path);
    run(&[&["put", "-r", "--pin", &server.pin, &url, directory], more].concat())
}

/// A link in place of a directory keeps its target's time and permissions: the line says so, and
/// names the directory.
#[cfg(unix)]
#[test]
fn a_directory_behind_a_link_is_named() {
    let (served, source) = directories(b"");
    let at = |name: &str| source.path().join(name);
    for name in ["one", "two"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("new"), "new").unwrap();
        fs::create_dir(served.path().join(format!("{name} itself"))).unwrap();
    }
    let link = |name: &str| {
        let itself = format!("{name} itself");
        std::os::unix::fs::symlink(itself, served.path().join(name)).unwrap();
    };
    link("one");
    let server = Server::start(served.path(), &["--allow-put"]);
    let output = put_all(&server, "/", at("one").to_str().unwrap(), &[]);
    assert_exit(&output, 0);
    let one = format!("time and permissions of {}", server.url("/one/"));
    let why =
        "stay as the server set them: the server answered 403 Forbidden: a link has that name";
    let told = stderr(&output);
    assert!(told.contains(&format!("{one} {why}")), "{told}");
    let hint = "`mpquic serve` changes no directory behind a link, of another owner, or ";
    assert!(told.contains(hint), "{told}");
    assert!(!told.contains("refuses files"), "{told}");
    assert!(served.path().join("one itself/new").exists());

    link("two");
    let all = format!("{}/.", source.path().display());
    let output = put_all(&server, "/", &all, &[]);
    assert_exit(&output, 0);
    let told = stderr(&output);
    let both = ["one", "two"].map(|name| {
        let url = server.url(&format!("/{name}/"));
        format!("time and permissions of {url} and of another directory {why}")
    });
    assert!(both.iter().any(|both| told.contains(both)), "{told}");
}

/// A user whose rights begin below a directory may not change the directory itself, and is not
/// refused for a try.
#[cfg(unix)]
#[test]
fn a_directory_of_a_user_is_not_asked_for_in_vain() {
    use std::os::unix::fs::PermissionsExt as _;
    let (served, source) = directories(b"");
    let private = |name: &str, text: &str| {
        let file = source.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let users = private("users", "basic alice:wonderland\n");
    let alice = source.path().join("alice");
    fs::create_dir(&alice).unwrap();
    fs::write(alice.join("new"), "new").unwrap();
    fs::set_permissions(&alice, fs::Permissions::from_mode(0o711)).unwrap();
    let log = source.path().join("log");
    let options = ["--allow-put", "--credentials", &users];
    let rest = ["--allow", "alice:rw:/alice/", "--access-log"];
    let options = [&options[..], &rest, &[log.to_str().unwrap()]].concat();
    let server = Server::start(served.path(), &options);
    let credentials = private(
        "cred",
        &format!("{} basic alice:wonderland\n", server.address),
    );
    let there = served.path().join("alice");
    fs::create_dir(&there).unwrap();
    let mode = || fs::metadata(&there).unwrap().permissions().mode();
    let before = mode();
    for (path, directory) in [("/", "alice"), ("/alice/", "alice/.")] {
        let directory = source.path().join(directory);
        let directory = directory.to_str().unwrap();
        let more = ["--credentials", &credentials];
        let output = put_all(&server, path, directory, &more);
        assert_exit(&output, 0);
        assert!(there.join("new").exists());
        let told = format!(
            "time and permissions of {} stay as the server set them: the server lets this client change neither",
            server.url("/alice/")
        );
        assert_eq!(stderr(&output).contains(&told), path == "/", "{output:?}");
        assert_eq!(mode(), before);
    }
    drop(server);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("\"MKCOL /alice/ "), "{log}");
    assert!(!log.contains("\" 403 "), "{log}");
}

/// Uploads leave one after the other: an interrupted command has sent some files as a whole, and
/// not a part of each file.
#[test]
fn the_first_files_are_complete_long_before_the_last() {
    let (served, source) = directories(b"");
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    for number in 0..8 {
        fs::write(top.join(number.to_string()), data(200_000)).unwrap();
    }
    let server = Server::start(served.path(), &["--allow-put"]);
    let stored = served.path().join("top");
    let url = server.url("/");
    let top = top.to_str().unwrap();
    let mut child = mpquic(&["put", "-r", "--rate", "8M", "--pin", &server.pin, &url, top])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let count = || {
        (0..8)
            .filter(|number| stored.join(number.to_string()).exists())
            .count()
    };
    crate::wait_until("a file", || count() > 0);
    let first = count();
    assert!(child.wait().unwrap().success());
    assert_eq!(count(), 8);
    assert!(first <= 4, "{first} files were complete at once");
}
