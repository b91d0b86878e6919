//! What can go wrong with a download: each has its exit code and one clear line, and leaves no file
//! that looks whole. `docs/tool.md` has them as a table.

use std::fs;

use crate::http3_get::Peculiar;
use crate::{Server, assert_exit, directories, names, run, stderr};

/// Runs `mpquic get`, and looks at its end.
#[track_caller]
fn fails(arguments: &[&str], code: i32, told: &str) {
    let output = run(&[&["get"], arguments].concat());
    assert_exit(&output, code);
    let line = stderr(&output);
    assert!(line.contains(told), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(output.stdout, b"");
}

#[test]
fn the_server_cannot_be_reached() {
    fails(
        &["https://host.invalid/file", "-o", "-"],
        4,
        "cannot find the address of host.invalid",
    );
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/file", closed.local_addr().unwrap());
    let silent = ["--connect-timeout", "1", &url, "-o", "-"];
    fails(&silent, 5, "no answer from 127.0.0.1");
    drop(closed);
    fails(
        &[&url, "-o", "-"],
        5,
        "nobody listens at the server's address and port",
    );
}

/// A wrong URL is a wrong command line, and no request leaves.
#[test]
fn urls_that_cannot_be_used_are_refused() {
    for (url, told) in [
        (
            "https://[fe80::1]/file",
            "name its link, as in [fe80::1%25eth0]",
        ),
        (
            "https://[fe80::1%254294967295]/file",
            "there is no link `4294967295`",
        ),
        ("https://alice:secret@127.0.0.1/file", "--credentials"),
    ] {
        let commands = [
            &["get", url, "-o", "-"][..],
            &["put", url, "file"],
            &["paths", url],
            &["proxy", "client", url],
        ];
        for command in commands {
            let output = run(command);
            assert_exit(&output, 2);
            assert!(stderr(&output).contains(told), "{output:?}");
        }
    }
}

#[test]
fn the_server_is_not_trusted() {
    let (served, target) = directories(b"x");
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let server = Server::start(served.path(), &[]);
    let url = server.url("/file");
    fails(&[&url, "-o", file], 6, "it is self-signed");
    let pin = format!("sha256:{}", "0".repeat(64));
    let wrong = [&url, "-o", file, "--pin", &pin];
    fails(&wrong, 6, "was pinned with --pin");

    let keys = tempfile::tempdir().unwrap();
    let write = |name: &str, content: String| {
        let path = keys.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (name, years, told) in [
        ("localhost", 1990..1991, "it has expired"),
        ("localhost", 4000..4001, "it is not valid yet"),
        ("other", 1990..4000, "it is for another name"),
    ] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut made = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        made.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        made.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let cert = write("cert.pem", made.self_signed(&key).unwrap().pem());
        let key = write("key.pem", key.serialize_pem());
        let server = Server::start(served.path(), &["--cert", &cert, "--key", &key]);
        let url = format!("https://localhost:{}/file", server.address.port());
        let address = server.address.to_string();
        let get = [&url, "-o", file, "--ca", &cert, "--server-addr", &address];
        fails(&get, 6, told);
    }
    assert_eq!(names(target.path()), [""; 0]);
}

#[test]
fn the_output_cannot_be_written() {
    let (served, target) = directories(&vec![1; 1 << 20]);
    let server = Server::start(served.path(), &[]);
    let url = server.url("/file");
    let get = [&url, "--pin", &server.pin, "-o"];
    let missing = target.path().join("none/copy");
    let directory = target.path().to_str().unwrap();
    for (file, told) in [
        (missing.to_str().unwrap(), "No such file or directory"),
        (directory, "is a directory"),
    ] {
        fails(&[&get[..], &[file]].concat(), 3, told);
    }
    if cfg!(target_os = "linux") {
        let full = [&get[..], &["/dev/full"]].concat();
        // A device has no part beside it.
        let told = "cannot write /dev/full: No space left on device (os error 28)\n";
        fails(&full, 3, told);
    }
    assert_eq!(names(target.path()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_without_the_requested_part_is_an_error() {
    let server = Peculiar::start();
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let fails = |path: &str, more: &[&str], code, told: &str| {
        let url = format!("https://{}{path}", server.address);
        let get = [&[&url, "--pin", &server.pin, "-o", file], more].concat();
        tokio::task::block_in_place(|| fails(&get, code, told));
    };
    fails("/404", &[], 7, "not found on the server");
    fails("/403", &[], 7, "403 Forbidden");
    fails("/416", &[], 7, "416 Range Not Satisfiable");
    fails("/loop", &[], 7, "more than 10 redirections");
    fails("/moved", &["--max-redirects", "0"], 7, "(302 Found)");
    fails("/short", &[], 8, "there is less content than was announced");
    let patience = ["--stall-timeout", "1", "--retry-time", "0"];
    fails("/stalled", &patience, 8, "the server sent nothing for 1 s");
    let sum = "0".repeat(64);
    let wrong = ["--sha256", &sum];
    fails("/whole", &wrong, 9, "its SHA-256 is ");
    assert_eq!(names(target.path()), [""; 0]);
}

/// The file is named once, behind what is wrong.
#[test]
fn an_option_of_a_file_may_be_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("proxy.toml");
    std::fs::write(&file, "max-flows = \"many\"").unwrap();
    let file = file.to_str().unwrap();
    let output = run(&["proxy", "server", "--config", file]);
    assert_exit(&output, 2);
    let told = stderr(&output);
    assert_eq!(told.matches("error: ").count(), 1, "{told}");
    assert!(told.contains("'many'"), "{told}");
    let last = format!("Some of the options are those of {file}.");
    assert_eq!(told.lines().last(), Some(last.as_str()), "{told}");
}

/// Each try brings the same bytes again, which is no reason to go on for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_always_stalls_at_the_same_byte_is_given_up() {
    let server = Peculiar::start();
    let url = format!("https://{}/stalled", server.address);
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("copy");
    let to = ["-o", file.to_str().unwrap()];
    let patience = ["--stall-timeout", "1", "--retry-time", "2"];
    let get = [&["get", &url, "--pin", &server.pin], &to[..], &patience].concat();
    let output = tokio::task::block_in_place(|| run(&get));
    assert_exit(&output, 8);
    let told = stderr(&output);
    let last = told.lines().last().unwrap();
    assert!(last.contains("the server sent nothing for 1 s"), "{told}");
    assert!(told.contains("trying again, 1000 B are there"), "{told}");
    assert_eq!(names(target.path()), [""; 0]);
}
