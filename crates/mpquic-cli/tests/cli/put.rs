//! `mpquic put`, and the server's side of it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

#[cfg(unix)]
use crate::ending::signal;
use crate::http3::Client;
use crate::operating::relay;
use crate::{Server, assert_exit, data, directories, mpquic, names, reports, run, stderr};

#[cfg(unix)]
impl Server {
    /// Kills the server once it has written a million bytes of a file aside, and removes all that
    /// it has.
    fn kill_within_an_upload(&mut self, served: &Path) {
        let is_begun = || {
            let mut files = fs::read_dir(served).unwrap();
            files.any(|it| it.unwrap().metadata().is_ok_and(|it| it.len() > 1_000_000))
        };
        crate::wait_until("bytes", is_begun);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for name in names(served) {
            fs::remove_file(served.join(name)).unwrap();
        }
    }
}

/// Sends a file to a path of a server.
fn put(server: &Server, path: &str, file: &Path, more: &[&str]) -> Output {
    let url = server.url(path);
    let file = file.to_str().unwrap();
    run(&[&["put", "--pin", &server.pin, &url, file], more].concat())
}

/// Sends standard input.
fn put_stdin(server: &Server, path: &str) -> Child {
    mpquic(&["put", "--pin", &server.pin, &server.url(path), "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Uploads that wait for their turn leave the connection's window to those that are read.
#[test]
fn many_uploads_leave_each_other_room() {
    let (served, source) = directories(b"");
    let many = source.path().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..64 {
        fs::write(many.join(number.to_string()), data(400 << 10)).unwrap();
    }
    let limits = ["--allow-put", "--max-requests", "2", "--stall-timeout", "3"];
    let server = Server::start(served.path(), &limits);
    let output = put(&server, "/", &many, &["-r"]);
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert!(!told.contains("trying again"), "{told}");
    assert_eq!(names(&served.path().join("many")).len(), 64);
}

#[test]
fn a_file_is_sent_over_two_paths_and_replaces_another() {
    let content = data(20 << 20);
    let (served, source) = directories(b"old");
    let file = source.path().join("a b");
    fs::write(&file, &content).unwrap();
    fs::create_dir(served.path().join("sub")).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let policy = ["--scheduler", "round-robin", "--json"];
    // Of a directory, the file has its own name there.
    for (path, stored) in [("/file", "file"), ("/sub/", "sub/a b")] {
        let output = put(&server, path, &file, &[&two[..], &policy].concat());
        assert_exit(&output, 0);
        assert!(fs::read(served.path().join(stored)).unwrap() == content);
        let report = &reports(&output)[0];
        assert_eq!(report["bytes"], content.len());
        assert_eq!(report["sha256"], crate::sha256(&content));
        for path in report["paths"].as_array().unwrap() {
            assert!(path["bytes_sent"].as_u64().unwrap() > 1 << 20, "{report}");
        }
    }
    assert_eq!(names(served.path()), ["file", "sub"]);
    assert_eq!(names(&served.path().join("sub")), ["a b"]);
}

/// From one network to the other: the first path falls silent in mid-transfer, and nobody is told.
#[test]
fn an_upload_goes_on_where_its_first_path_falls_silent() {
    const CARRIED: usize = 1 << 20;
    let content = data(8 << 20);
    let (served, source) = directories(b"old");
    let file = source.path().join("file");
    fs::write(&file, &content).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let first = relay(server.address, CARRIED);
    let (first, direct) = (first.to_string(), server.address.to_string());
    let both = ["--server-addr", &first, "--server-addr", &direct];
    let policy = ["--scheduler", "round-robin", "--json"];
    let output = put(&server, "/file", &file, &[&both[..], &policy].concat());
    assert_exit(&output, 0);
    assert!(fs::read(served.path().join("file")).unwrap() == content);
    // It was one connection: nothing was begun anew.
    let report = &reports(&output)[0];
    assert!(!stderr(&output).contains("trying again"), "{output:?}");
    let sent = |path: &serde_json::Value| path["bytes_sent"].as_u64().unwrap();
    let most = report["paths"].as_array().unwrap().iter().map(sent).max();
    assert!(most.unwrap() > (content.len() - CARRIED) as u64, "{report}");
}

#[test]
fn standard_input_is_sent() {
    let (served, _) = directories(b"");
    let server = Server::start(served.path(), &["--allow-put"]);
    let content = data(3_000_000);
    let mut child = put_stdin(&server, "/new");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&content).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    assert!(stderr(&output).contains("2.9 MiB in"), "{output:?}");
    assert!(fs::read(served.path().join("new")).unwrap() == content);
}

#[test]
fn refused_upload_leaves_no_file() {
    let (served, source) = directories(b"old");
    let outer = served.path().join("outer");
    fs::create_dir_all(outer.join("sub")).unwrap();
    let large = source.path().join("large");
    fs::write(&large, vec![1; (1 << 20) + 1]).unwrap();
    let small = source.path().join("small");
    fs::write(&small, "new").unwrap();
    let server = Server::start(&outer, &["--allow-put", "--max-put-size", "1"]);
    for (path, file, told) in [
        ("/new", &large, "413 Payload Too Large"),
        ("/../new", &small, "409 Conflict"),
        ("/%2e%2e/new", &small, "409 Conflict"),
        ("/..%2fnew", &small, "403 Forbidden"),
        ("/.ssh", &small, "403 Forbidden"),
        ("/missing/new", &small, "409 Conflict"),
        ("/sub", &small, "409 Conflict"),
    ] {
        let output = put(&server, path, file, &[]);
        assert_exit(&output, 7);
        assert!(stderr(&output).contains(told), "{path}: {output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
    // The length of standard input is known at its end only.
    let mut child = put_stdin(&server, "/new");
    let mut stdin = child.stdin.take().unwrap();
    // It may end before it has read all.
    let _ = stdin.write_all(&vec![1; 8 << 20]);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 7);
    assert!(stderr(&output).contains("413"), "{output:?}");
    assert_eq!(names(&outer), ["sub"]);
    assert_eq!(names(served.path()), ["file", "outer"]);

    let server = Server::start(&outer, &[]);
    let output = put(&server, "/new", &small, &[]);
    assert_exit(&output, 7);
    assert!(
        stderr(&output).contains("405 Method Not Allowed"),
        "{output:?}"
    );
    let output = put(&server, "/new", &source.path().join("none"), &[]);
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("cannot read"), "{output:?}");
}

#[cfg(unix)]
#[test]
fn a_file_that_ends_early_is_not_stored() {
    let (served, _) = directories(b"old");
    let server = Server::start(served.path(), &["--allow-put"]);
    let mut child = put_stdin(&server, "/file");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&data(2_000_000)).unwrap();
    let eventually = |count: usize| {
        let mut waits = std::iter::repeat_n(Duration::from_millis(10), 2000);
        let is_so = waits.any(|wait| {
            std::thread::sleep(wait);
            names(served.path()).len() == count
        });
        assert!(is_so, "{:?}", names(served.path()));
    };
    eventually(2);
    assert_eq!(fs::read(served.path().join("file")).unwrap(), b"old");
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    eventually(1);
    assert_eq!(fs::read(served.path().join("file")).unwrap(), b"old");
}

/// RFC 9110 sections 9.3.4, 13 and 14.5.
#[tokio::test]
async fn http_proxy_answers_of_the_entrance() {
    let (served, _) = directories(b"old");
    let server = Server::start(served.path(), &["--allow-put"]);
    let mut client = Client::new(&server).await;
    let mut put = async |path: &str, fields: &[(&str, &str)]| {
        let (response, _) = client.ask("PUT", path, fields).await;
        let etag = response.headers().get("etag").cloned();
        (response.status().as_u16(), etag)
    };
    for (path, field, expected) in [
        ("/file", ("if-none-match", "*"), 412),
        ("/file", ("if-match", "\"1\""), 412),
        ("/new", ("if-match", "*"), 412),
        ("/file", ("content-range", "bytes 0-0/3"), 400),
    ] {
        let (status, etag) = put(path, &[field]).await;
        assert_eq!((status, etag), (expected, None), "{path} {field:?}");
    }
    assert_eq!(fs::read(served.path().join("file")).unwrap(), b"old");
    assert_eq!(names(served.path()), ["file"]);
    let (status, etag) = put("/new", &[("if-none-match", "*")]).await;
    assert_eq!(status, 201);
    let etag = etag.unwrap();
    let (status, _) = put("/new", &[("if-match", etag.to_str().unwrap())]).await;
    assert_eq!(status, 204);
    let (response, _) = client.ask("POST", "/new", &[]).await;
    assert_eq!(response.status(), 405);
    assert_eq!(response.headers()["allow"], "GET, HEAD, PUT, PATCH, MKCOL");
}

/// RFC 4918 section 9.3.
#[tokio::test]
async fn directories_are_made() {
    let (served, _) = directories(b"old");
    let server = Server::start(served.path(), &["--allow-put"]);
    let mut client = Client::new(&server).await;
    for (path, expected) in [
        ("/new/", 201),
        ("/new/", 405),
        ("/new/sub", 201),
        ("/file", 405),
        ("/", 405),
        ("/missing/sub/", 409),
        ("/.hidden/", 403),
        ("/..%2fout/", 403),
        ("/../out/", 409),
    ] {
        let (response, _) = client.ask("MKCOL", path, &[]).await;
        assert_eq!(response.status(), expected, "{path}");
    }
    assert_eq!(names(served.path()), ["file", "new"]);
    assert_eq!(names(&served.path().join("new")), ["sub"]);
    let server = Server::start(served.path(), &[]);
    let mut client = Client::new(&server).await;
    let (response, _) = client.ask("MKCOL", "/other/", &[]).await;
    assert_eq!(response.status(), 405);
    assert_eq!(names(served.path()), ["file", "new"]);
}

/// Each file is there, whatever its length; the server's limits are kept to.
#[test]
fn a_directory_of_many_small_files_is_sent() {
    let (served, source) = directories(b"old");
    let top = source.path().join("top");
    let count = 600;
    for number in 0..count {
        let directory = top.join((number % 7).to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), data(number * 10)).unwrap();
    }
    fs::create_dir(top.join("empty")).unwrap();
    let server = Server::start(served.path(), &["--allow-put", "--max-requests", "4"]);
    let url = server.url("/");
    let arguments = ["put", "--recursive", "--pin", &server.pin, &url];
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let send = |more: &[&str]| {
        let top = top.to_str().unwrap();
        run(&[&arguments[..], &two, &[top], more].concat())
    };
    // What is there is not sent again.
    for (sent, before) in [
        ("600 files, 1.7 MiB in ", ""),
        ("0 files, 0 B in ", ", 600 were already there"),
    ] {
        let output = send(&[]);
        assert_exit(&output, 0);
        let told = stderr(&output);
        assert!(told.contains(sent) && told.contains(before), "{told}");
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.contains("\non the wire: 127.0.0.1 "), "{told}");
        for number in 0..count {
            let path = format!("top/{}/{number}", number % 7);
            assert!(fs::read(served.path().join(path)).unwrap() == data(number * 10));
        }
        assert_eq!(names(&served.path().join("top/empty")), [""; 0]);
    }
    fs::remove_dir_all(served.path().join("top")).unwrap();
    let output = send(&["--json", "--parallel", "1"]);
    assert_exit(&output, 0);
    assert_eq!(reports(&output).len(), count);
    assert_eq!(stderr(&output), "");

    // One that is refused is told, and the others are sent.
    fs::write(top.join(".secret"), "x").unwrap();
    fs::write(top.join("plain"), "x").unwrap();
    let output = send(&[]);
    assert_exit(&output, 7);
    let told = stderr(&output);
    assert!(
        told.contains("/top/.secret: the server answered 403"),
        "{told}"
    );
    assert!(
        told.contains(": 1 file,") && told.contains(", 600 were already there"),
        "{told}"
    );
    assert!(served.path().join("top/plain").exists());
    // Without the option nothing is sent.
    let top = top.to_str().unwrap();
    let output = run(&["put", "--pin", &server.pin, &url, top]);
    assert_exit(&output, 3);
    assert!(
        stderr(&output).contains("--recursive sends directories"),
        "{output:?}"
    );
}

#[cfg(unix)]
#[test]
fn links_in_directories_are_left_out_and_that_is_told() {
    let (served, source) = directories(b"old");
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("plain"), "x").unwrap();
    std::os::unix::fs::symlink("plain", top.join("link")).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let told = format!(
        "mpquic: {} is left out: it is a link, a pipe, a socket or a device\n",
        top.join("link").display()
    );
    for more in [&["--recursive"][..], &["--recursive", "--quiet"]] {
        let output = put(&server, "/", &top, more);
        assert_exit(&output, 9);
        assert!(stderr(&output).ends_with(&told), "{output:?}");
        assert_eq!(names(&served.path().join("top")), ["plain"]);
    }
    fs::remove_file(top.join("link")).unwrap();
    let output = put(&server, "/", &top, &["--recursive"]);
    assert_exit(&output, 0);
    assert!(!stderr(&output).contains("left out"), "{output:?}");
}

#[test]
fn several_files_are_sent() {
    let (served, source) = directories(b"old");
    let server = Server::start(served.path(), &["--allow-put"]);
    let files = ["a", "b c", "d"].map(|name| source.path().join(name));
    for file in &files {
        fs::write(file, file.as_os_str().as_encoded_bytes()).unwrap();
    }
    let (one, many) = (server.url("/file"), server.url("/"));
    let put = |url: &str| {
        let files = files.each_ref().map(|file| file.to_str().unwrap());
        run(&[&["put", "--pin", &server.pin, url], &files[..]].concat())
    };
    let output = put(&one);
    assert_exit(&output, 2);
    assert!(
        stderr(&output).contains("end it with a slash"),
        "{output:?}"
    );
    assert_exit(&put(&many), 0);
    let file = files[0].to_str().unwrap();
    let quiet = ["put", "--pin", &server.pin, "--quiet", &many, file];
    assert_eq!(stderr(&run(&quiet)), "");
    assert_eq!(names(served.path()), ["a", "b c", "d", "file"]);
    let sent = fs::read(served.path().join("b c")).unwrap();
    assert_eq!(sent, files[1].as_os_str().as_encoded_bytes());
}

/// A server that is killed in the middle, and one that starts in its place. What was sent has to be
/// sent again.
#[cfg(unix)]
#[test]
fn an_upload_begins_anew_at_a_restarted_server() {
    let content = data(4_000_000);
    let (served, source) = directories(b"old");
    let file = source.path().join("file");
    fs::write(&file, &content).unwrap();
    let mut server = Server::start(served.path(), &["--allow-put"]);
    let url = server.url("/new");
    let put = ["put", "--insecure", "--rate", "16M", &url, "--json"];
    let put = [&put[..], &["--stall-timeout", "1"]].concat();
    let begin = |input: &str| {
        mpquic(&put)
            .arg(input)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let child = begin(file.to_str().unwrap());
    server.kill_within_an_upload(served.path());
    let address = server.address.to_string();
    let mut server = Server::start_on(&address, served.path(), &["--allow-put"]);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    assert!(fs::read(served.path().join("new")).unwrap() == content);
    let told = stderr(&output);
    assert!(told.contains("; trying again"), "{told}");
    let report = &reports(&output)[0];
    assert!(report["retries"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["bytes"], content.len());

    // What came from standard input is gone.
    fs::remove_file(served.path().join("new")).unwrap();
    let mut child = begin("-");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&content[..2_000_000]).unwrap();
    server.kill_within_an_upload(served.path());
    // It does not wait for the rest, nor for the end of standard input.
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_exit(&output, 8);
    assert!(stderr(&output).contains("gone"), "{output:?}");
    assert!(!stderr(&output).contains("trying again"), "{output:?}");
}

/// What the server has of it is not sent again, not even after the server was killed.
#[test]
fn a_file_is_resumed_at_a_server_that_begins_anew() {
    let content = data(64 << 20);
    let (served, source) = directories(b"old");
    let file = source.path().join("large");
    fs::write(&file, &content).unwrap();
    let mut server = Server::start(served.path(), &["--allow-put", "--dot-files"]);
    let url = server.url("/new");
    let child = mpquic(&[
        "put",
        "--pin",
        &server.pin,
        "--json",
        "--rate",
        "200M",
        &url,
    ])
    .arg(&file)
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let unfinished = || {
        let mut names = names(served.path()).into_iter();
        names.find(|name| name.starts_with(".mpquic-put-"))
    };
    let length = |name: String| fs::metadata(served.path().join(name)).map_or(0, |it| it.len());
    crate::wait_until("bytes", || unfinished().map(length) > Some(4 << 20));
    let note = || format!("{}.note", unfinished().unwrap());
    let noted = || fs::read_to_string(served.path().join(note())).unwrap();
    // The announced length of the file is in the second line.
    let on_disk = || noted().lines().next().and_then(|line| line.parse().ok());
    let is_noted = || on_disk() > Some(1_u64 << 20);
    crate::wait_until("a note", is_noted);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // As after a crash of the system: bytes that never came to the disk.
    let part = served.path().join(unfinished().unwrap());
    let mut part = fs::File::options().append(true).open(part).unwrap();
    part.write_all(&vec![0; 1 << 20]).unwrap();
    drop(part);
    fs::write(served.path().join(".mpquic-put-1-2"), "left").unwrap();
    let address = server.address.to_string();
    let server = Server::start_on(&address, served.path(), &["--allow-put", "--dot-files"]);
    // Nobody gets at it meanwhile.
    let name = unfinished().unwrap();
    let output = run(&[
        "get",
        "--pin",
        &server.pin,
        "-q",
        "-o",
        "-",
        &server.url(&format!("/{name}")),
    ]);
    assert_exit(&output, 7);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    let report = &reports(&output)[0];
    assert!(report["resumed_at"].as_u64().unwrap() > 1 << 20, "{report}");
    assert_eq!(report["sha256"], crate::sha256(&content));
    assert!(fs::read(served.path().join("new")).unwrap() == content);
    crate::wait_until("no unfinished file", || unfinished().is_none());
}

/// What came through a pipe is gone: sending the rest of it as the whole file would lose the
/// beginning.
#[cfg(target_os = "linux")]
#[test]
fn data_from_a_named_pipe_is_not_sent_again() {
    let (served, source) = directories(b"old");
    let pipe = source.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    fails_when_the_server_restarts(served.path(), pipe.to_str().unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn data_from_the_standard_input_is_not_sent_again() {
    let (served, _source) = directories(b"old");
    fails_when_the_server_restarts(served.path(), "/dev/stdin");
}

/// Uploads from a source that cannot be read again, and starts the server again meanwhile.
#[cfg(target_os = "linux")]
fn fails_when_the_server_restarts(served: &Path, name: &str) {
    let mut server = Server::start(served, &["--allow-put"]);
    let url = server.url("/new");
    let options = ["put", "--insecure", "--stall-timeout", "1", &url, name];
    let mut child = mpquic(&options)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to: Box<dyn Write> = match name {
        "/dev/stdin" => Box::new(child.stdin.take().unwrap()),
        name => Box::new(fs::File::options().write(true).open(name).unwrap()),
    };
    to.write_all(&data(2_000_000)).unwrap();
    server.kill_within_an_upload(served);
    let address = server.address.to_string();
    let _server = Server::start_on(&address, served, &["--allow-put"]);
    // It does not wait for more of the data.
    crate::wait_until("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    drop(to);
    assert_exit(&output, 8);
    assert!(!stderr(&output).contains("trying again"), "{output:?}");
    assert_eq!(names(served), [""; 0]);
}

/// Another program writes to the file meanwhile.
#[cfg(unix)]
#[test]
fn a_file_that_changes_is_neither_stored_nor_fetched() {
    let (served, source) = directories(&data(4_000_000));
    let file = source.path().join("source");
    fs::write(&file, data(4_000_000)).unwrap();
    let server = Server::start(served.path(), &["--allow-put", "--rate", "8M"]);
    let (to, from) = (server.url("/new"), server.url("/file"));
    let fetched = source.path().join("fetched");
    for (arguments, changed) in [
        (
            ["put", "--rate", "8M", &to, file.to_str().unwrap()],
            file.clone(),
        ),
        (
            ["get", "-q", "-o", fetched.to_str().unwrap(), &from],
            served.path().join("file"),
        ),
    ] {
        let child = mpquic(&arguments)
            .args(["--pin", &server.pin])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_put = arguments[0] == "put";
        let directory = if is_put { served.path() } else { source.path() };
        let is_begun = || {
            let mut all = fs::read_dir(directory).unwrap().map(Result::unwrap);
            all.any(|entry| {
                let name = entry.file_name().into_string().unwrap();
                let is_part = name.starts_with(".mpquic-put-") || name.ends_with(".part");
                is_part && entry.metadata().is_ok_and(|it| it.len() > 100_000)
            })
        };
        crate::wait_until("bytes", is_begun);
        let mut other = fs::File::options().write(true).open(&changed).unwrap();
        other.write_all(b"another beginning").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_exit(&output, if is_put { 3 } else { 8 });
        if is_put {
            let told = format!("{}: it changed while it was read", changed.display());
            assert!(stderr(&output).contains(&told), "{output:?}");
        }
    }
    assert!(!fetched.exists());
    assert!(!served.path().join("new").exists());
}

/// The state of the first command is not lost with it.
#[cfg(unix)]
#[test]
fn a_second_command_goes_on_where_the_first_one_ended() {
    let content = data(32 << 20);
    let (served, source) = directories(b"old");
    let file = source.path().join("large");
    fs::write(&file, &content).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let url = server.url("/new");
    let state = source.path().join("state");
    let put = |more: &[&str]| {
        let mut command = mpquic(&["put", "--pin", &server.pin, "--json", &url]);
        command.arg(&file).args(more).env("XDG_STATE_HOME", &state);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let unfinished = || {
        let mut names = names(served.path()).into_iter();
        names.find(|name| name.starts_with(".mpquic-put-"))
    };
    let length = |name: String| fs::metadata(served.path().join(name)).map_or(0, |it| it.len());
    let interrupt = |name: &str| {
        let first = put(&["--rate", "80M"]).spawn().unwrap();
        crate::wait_until("bytes", || unfinished().map(length) > Some(4 << 20));
        signal(&first, name);
        first.wait_with_output().unwrap()
    };
    let output = interrupt("-TERM");
    assert_exit(&output, 1);
    let told = "mpquic: interrupted; the same command goes on where this one stopped, as long as the \
                server keeps the upload\n";
    assert!(stderr(&output).ends_with(told), "{output:?}");
    let output = put(&[]).output().unwrap();
    assert_exit(&output, 0);
    let report = &reports(&output)[0];
    assert!(report["resumed_at"].as_u64().unwrap() > 1 << 20, "{report}");
    assert_eq!(report["sha256"], crate::sha256(&content));
    assert!(fs::read(served.path().join("new")).unwrap() == content);
    let notes = names(&state.join("mpquic/uploads"));
    assert_eq!(notes, [""; 0]);

    // Of another version, nothing is gone on with.
    interrupt("-KILL");
    let content = vec![7; 32 << 20];
    fs::write(&file, &content).unwrap();
    let output = put(&[]).output().unwrap();
    assert_exit(&output, 0);
    assert!(reports(&output)[0]["resumed_at"].is_null(), "{output:?}");
    assert!(fs::read(served.path().join("new")).unwrap() == content);
}

#[cfg(target_os = "linux")]
#[test]
fn special_files_do_not_stop_an_upload() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let (served, source) = directories(b"old");
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    let odd = OsStr::from_bytes(b"caf\xe9");
    for (name, mode) in [
        (OsStr::new("plain"), 0o600),
        (odd, 0o755),
        (OsStr::new(".hidden"), 0o644),
    ] {
        fs::write(top.join(name), "x").unwrap();
        fs::set_permissions(top.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let output = put(&server, "/", &top, &["--recursive"]);
    // Names with a dot are refused.
    assert_exit(&output, 7);
    let said = stderr(&output);
    assert!(
        said.contains("socket is left out") && said.contains("/.hidden: the server answered 403"),
        "{said}"
    );
    for (name, mode) in [(OsStr::new("plain"), 0o600), (odd, 0o755)] {
        let there = fs::metadata(served.path().join("top").join(name)).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, mode);
        let here = fs::metadata(top.join(name)).unwrap();
        assert_eq!(there.modified().unwrap(), here.modified().unwrap());
    }
}

/// /dev/null sends an empty file on purpose. A closed standard input is a mistake of a script.
#[cfg(unix)]
#[test]
fn a_closed_standard_input_is_refused() {
    let (served, _) = directories(b"content");
    let server = Server::start(served.path(), &["--allow-put"]);
    let put = mpquic(&["put", "--pin", &server.pin, &server.url("/file"), "-"]);
    for (input, code, content) in [("<&-", 2, "content"), ("</dev/null", 0, "")] {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("exec \"$@\" {input}"), "sh"])
            .arg(put.get_program())
            .args(put.get_args())
            .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .output()
            .unwrap();
        assert_exit(&output, code);
        let told = stderr(&output).contains("standard input (-) is closed");
        assert_eq!(told, code == 2, "{output:?}");
        let stored = fs::read_to_string(served.path().join("file")).unwrap();
        assert_eq!(stored, content, "{input}");
    }
}

/// A fragment would be cut off, and the file before it replaced.
#[test]
fn a_target_with_a_fragment_or_a_query_is_refused() {
    let (served, source) = directories(b"old");
    let file = source.path().join("new");
    fs::write(&file, "new").unwrap();
    fs::create_dir(served.path().join("sub")).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    for (path, more, told) in [
        ("/file#2", &[][..], "write `#` as %23"),
        ("/sub/#2/", &["-r"], "write `#` as %23"),
        ("/file?2", &[], "write `?` as %3F"),
        ("/sub/?2", &["-r"], "write `?` as %3F"),
    ] {
        let output = put(&server, path, &file, more);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
    assert_eq!(fs::read(served.path().join("file")).unwrap(), b"old");
    assert_eq!(names(&served.path().join("sub")), [""; 0]);
    assert_exit(&put(&server, "/file%232%3F", &file, &[]), 0);
    assert_eq!(names(served.path()), ["file", "file#2?", "sub"]);
}

#[test]
fn a_missing_file_keeps_no_other_file_from_the_server() {
    let (served, source) = directories(b"old");
    let path = |name: &str| source.path().join(name).to_str().unwrap().to_owned();
    for name in ["one", "two"] {
        fs::write(path(name), name).unwrap();
    }
    fs::create_dir(path("directory")).unwrap();
    let server = Server::start(served.path(), &["--allow-put"]);
    let url = server.url("/");
    let [one, missing, directory, two] = ["one", "missing", "directory", "two"].map(path);
    for (more, lines) in [(&[][..], 3), (&["-r"], 2)] {
        let line = [
            "put",
            "--pin",
            &server.pin,
            &url,
            &one,
            &missing,
            &directory,
            &two,
        ];
        let output = run(&[&line[..], more].concat());
        assert_exit(&output, 3);
        let told = stderr(&output);
        assert!(told.contains(&format!("cannot read {missing}: ")), "{told}");
        assert_eq!(told.lines().count(), lines, "{told}");
        let summary = told.lines().last().unwrap();
        assert!(summary.starts_with(&format!("{url}: 2 files, ")), "{told}");
        for name in ["one", "two"] {
            fs::remove_file(served.path().join(name)).unwrap();
        }
    }
    // Alone, it is all that is told.
    let output = run(&["put", "--pin", &server.pin, &url, &missing]);
    assert_exit(&output, 3);
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
}

/// The server says which of its limits it is, and the tool which option sets the limit.
#[test]
fn refusals_name_the_limit_and_the_option() {
    let (served, source) = directories(b"old");
    let large = source.path().join("large");
    fs::write(&large, data((2 << 20) + 1)).unwrap();
    let told = |options: &[&str]| {
        let server = Server::start(served.path(), options);
        let output = put(&server, "/new", &large, &[]);
        assert_exit(&output, 7);
        stderr(&output)
    };
    let size = told(&["--allow-put", "--max-put-size", "2"]);
    assert!(
        size.contains("413 Payload Too Large: the server takes files of up to 2 MiB; "),
        "{size}"
    );
    assert!(size.contains("--max-put-size"), "{size}");
    let all = told(&["--allow-put", "--max-put-total", "1"]);
    assert!(
        all.contains("507 Insufficient Storage: this would exceed the limit"),
        "{all}"
    );
    let none = told(&[]);
    assert!(
        none.contains("405 Method Not Allowed") && none.contains("--allow-put"),
        "{none}"
    );
}
