//! Limits of the system on the sizes of files (`ulimit -f`).

use std::fs;
use std::process::Command;

use crate::{Server, assert_exit, data, directories, mpquic, run, stderr};

/// Most bytes of a file.
const LIMIT: usize = 1 << 20;

/// The tool with this limit.
fn limited(arguments: &[&str]) -> Command {
    let (mut command, tool) = (Command::new("sh"), mpquic(arguments));
    // The unit of POSIX is 512 bytes.
    let script = format!("ulimit -f {}; exec \"$@\"", LIMIT / 512);
    command.args(["-c", &script, "sh"]).arg(tool.get_program());
    command.args(tool.get_args());
    let set = tool.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    command
}

/// The server refuses the file, and goes on.
#[test]
fn a_file_beyond_the_limit_ends_no_server() {
    let (served, source) = directories(b"file");
    let arguments = [
        "serve",
        served.path().to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--allow-put",
    ];
    let server = Server::launch_by(limited(&arguments), &arguments);
    let large = source.path().join("large");
    fs::write(&large, data(2 * LIMIT)).unwrap();
    let put = |name: &str| {
        let url = server.url(name);
        run(&["put", "--pin", &server.pin, &url, large.to_str().unwrap()])
    };
    let refused = put("/new");
    assert_exit(&refused, 7);
    let told = "507 Insufficient Storage: the server's system takes no file of this size";
    assert!(stderr(&refused).contains(told), "{refused:?}");
    assert_eq!(fs::read_dir(served.path()).unwrap().count(), 1);
    fs::write(&large, data(LIMIT)).unwrap();
    assert_exit(&put("/new"), 0);
    assert_eq!(fs::read(served.path().join("new")).unwrap().len(), LIMIT);
}

/// The client keeps the part, and says why it stopped.
#[test]
fn a_download_beyond_the_limit_fails_with_a_message() {
    let (served, target) = directories(&data(2 * LIMIT));
    let server = Server::start(served.path(), &[]);
    let (url, to) = (server.url("/file"), target.path().join("copy"));
    let output = to.to_str().unwrap();
    let output = limited(&["get", "--pin", &server.pin, &url, "-o", output])
        .output()
        .unwrap();
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("File too large"), "{output:?}");
    assert!(!to.exists());
}
