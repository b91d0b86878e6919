//! Transfers of many files whose server is restarted as a service manager does: told to end, and
//! started again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::ending::signal;
use crate::{Server, assert_exit, data, directories, mpquic, stderr, wait_until};

/// Runs a command that brings 60 files to `arrived`, and restarts the server in the middle. All
/// files arrive, and the command tells of the restart at most twice.
fn run_over_a_restart(mut server: Server, served: &Path, words: &[&str], arrived: &Path) {
    let address = server.address.to_string();
    let child = mpquic(words).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a part of the files", || count(arrived) > 5);
    signal(&server.child, "-TERM");
    server.child.wait().unwrap();
    let _server = Server::start_on(&address, served, &["--allow-put"]);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    assert_eq!(count(arrived), 60);
    let told = stderr(&output);
    let again = told.lines().filter(|line| line.ends_with("; trying again"));
    assert!(again.count() <= 2, "{told}");
}

fn make_files(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for number in 0..60 {
        fs::write(directory.join(number.to_string()), data(50_000)).unwrap();
    }
}

/// The file names below a directory, without unfinished ones.
fn count(directory: &Path) -> usize {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().into_string().unwrap());
    names.filter(|name| name.parse::<u32>().is_ok()).count()
}

/// A server that waits this number of seconds for its requests when it stops.
fn start(served: &Path, seconds: &str) -> Server {
    // A port that is free.
    let address = Server::start(served, &[]).address.to_string();
    Server::start_on(
        &address,
        served,
        &["--allow-put", "--drain-timeout", seconds],
    )
}

#[test]
fn all_files_are_fetched_over_a_restart() {
    let (served, target) = directories(b"");
    make_files(&served.path().join("tree"));
    let server = start(served.path(), "1");
    let (url, into) = (server.url("/tree/"), target.path().join("into"));
    fs::create_dir(&into).unwrap();
    let into_text = into.to_str().unwrap();
    let words = [
        "get",
        "-r",
        "--insecure",
        "--rate",
        "8M",
        "--output-dir",
        into_text,
        &url,
    ];
    let arrived = into.join("tree");
    run_over_a_restart(server, served.path(), &words, &arrived);
}

#[test]
fn all_files_are_sent_over_a_restart() {
    let (served, source) = directories(b"");
    let top = source.path().join("top");
    make_files(&top);
    let server = start(served.path(), "1");
    let (url, top) = (server.url("/"), top.to_str().unwrap());
    let words = [
        "put",
        "-r",
        "--insecure",
        "--rate",
        "8M",
        "--parallel",
        "4",
        &url,
        top,
    ];
    let arrived = served.path().join("top");
    run_over_a_restart(server, served.path(), &words, &arrived);
}

/// The first request for a file finds nobody at the server's port, after another file has come from
/// the server.
#[test]
fn a_file_that_was_not_asked_for_before_waits_for_the_server() {
    let (served, target) = directories(b"");
    for name in ["one", "two"] {
        fs::write(served.path().join(name), data(300_000)).unwrap();
    }
    let mut server = start(served.path(), "30");
    let address = server.address.to_string();
    let urls = [server.url("/one"), server.url("/two")];
    let child = mpquic(&["get", "--insecure", "--rate", "2M", &urls[0], &urls[1]])
        .current_dir(target.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let part = target.path().join("one.part");
    wait_until("a part", || {
        fs::metadata(&part).is_ok_and(|part| part.len() > 0)
    });
    signal(&server.child, "-TERM");
    server.child.wait().unwrap();
    wait_until("a whole file", || target.path().join("one").exists());
    // Nobody can tell when the request fails; most of the time, it has failed by then.
    std::thread::sleep(Duration::from_millis(300));
    let _server = Server::start_on(&address, served.path(), &[]);
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    for name in ["one", "two"] {
        assert!(fs::read(target.path().join(name)).unwrap() == data(300_000));
    }
}

/// Files that were not asked for before do not each wait for a server that is gone for good.
#[test]
fn a_server_that_is_gone_is_waited_for_once() {
    let (served, target) = directories(b"");
    make_files(&served.path().join("tree"));
    let mut server = start(served.path(), "30");
    let (url, into) = (server.url("/tree/"), target.path().join("into"));
    fs::create_dir(&into).unwrap();
    let into_text = into.to_str().unwrap();
    let rate = ["get", "-r", "--insecure", "--rate", "8M", "--parallel", "4"];
    let more = [
        "--retry-time",
        "1",
        "--json=events",
        "--output-dir",
        into_text,
        &url,
    ];
    let command = [&rate[..], &more].concat();
    let (told, failures) = (Stdio::piped(), Stdio::piped());
    let child = mpquic(&command)
        .stdout(told)
        .stderr(failures)
        .spawn()
        .unwrap();
    let arrived = into.join("tree");
    wait_until("a part of the files", || count(&arrived) > 5);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 8);
    let told = String::from_utf8(output.stdout).unwrap();
    let of = |event: &str| {
        let event = format!("\"event\":\"{event}\"");
        let lines = told.lines().filter(move |line| line.contains(&event));
        let urls = lines.map(|line| line.split("\"url\":\"").nth(1).unwrap());
        let urls = urls.map(|rest| rest.split('"').next().unwrap());
        urls.collect::<BTreeSet<_>>().len()
    };
    // The files on their way wait, and no others.
    assert!(of("retry") <= 8 && of("failed") > 30, "{told}");
}
