//! Clients that vanish: nothing tells the server.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::{Server, assert_exit, data, directories, mpquic, run, wait_until};

/// Uploads of a killed client wait at the server behind two others. The user stores newer files
/// with another client. The server must not carry out the older uploads once their turn comes.
#[test]
fn waiting_uploads_of_a_killed_client_replace_nothing() {
    let (served, source) = directories(b"");
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    let drafts: Vec<_> = (0..6).map(|number| format!("draft{number}")).collect();
    for name in ["a", "b"] {
        fs::write(top.join(name), data(400_000)).unwrap();
    }
    let write = |text: &str| {
        for name in &drafts {
            fs::write(top.join(name), text).unwrap();
        }
    };
    write("older");
    let log = source.path().join("log");
    let limits = ["--max-requests", "2", "--stall-timeout", "2"];
    let log_option = ["--access-log", log.to_str().unwrap()];
    let server = Server::start(
        served.path(),
        &[&["--allow-put"], &limits[..], &log_option].concat(),
    );
    let url = server.url("/");
    let put = [
        "put",
        "-r",
        "--insecure",
        "--quiet",
        &url,
        top.to_str().unwrap(),
    ];
    let mut killed = mpquic(&[&put[..], &["--rate", "1M"]].concat())
        .spawn()
        .unwrap();
    let there = served.path().join("top");
    let has_begun = || fs::read_dir(&there).is_ok_and(|files| files.count() == 2);
    wait_until("two uploads", has_begun);
    // The other requests are on their way now.
    sleep(Duration::from_millis(500));
    killed.kill().unwrap();
    killed.wait().unwrap();
    write("newer file");
    let again = run(&put);
    assert_exit(&again, 0);
    // Two uploads of the killed client hold their places until the stall timeout.
    let given_up = || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let ends = ["PUT /top/a HTTP/3\" - 0", "PUT /top/b HTTP/3\" - 0"];
        ends.into_iter().all(|end| log.contains(end))
    };
    wait_until("the end of the uploads", given_up);
    sleep(Duration::from_secs(1));
    for name in &drafts {
        assert_eq!(fs::read(there.join(name)).unwrap(), b"newer file", "{name}");
    }
}
