//! `mpquic proxy client -R`: ports of the server that lead to targets near the client.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::proxy::target;
use crate::{Server, assert_exit, mpquic, run, stderr, wait_until};

const SERVER: [&str; 4] = ["proxy", "server", "--listen", "127.0.0.1:0"];

/// A client without entrances, killed when dropped.
struct Client(Child);

impl Client {
    fn start(server: &Server, more: &[&str]) -> Self {
        let url = server.url("");
        let fixed = ["proxy", "client", &url, "--pin", &server.pin];
        let paths = ["--local", "127.0.0.2", "--local", "127.0.0.3"];
        let mut command = mpquic(&[&fixed[..], &paths, more].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What comes back; nothing without a listener.
fn exchange(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let exchanging = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        stream.write_all(bytes)?;
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut answer)
    });
    let _ = exchanging;
    answer
}

#[test]
fn a_port_of_the_server_leads_to_the_client() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (users, me, log) = (at("users"), at("me"), at("log"));
    fs::write(&users, "basic alice:secret\nbasic bob:secret\n").unwrap();
    fs::write(&me, "basic alice:secret\n").unwrap();
    let (port, other, target) = (free(), free(), target());
    let allowed = format!("alice={port}");
    let options = [
        "--credentials",
        &users,
        "--access-log",
        &log,
        "--allow-reverse",
    ];
    let server = Server::launch(&[&SERVER[..], &options, &[&allowed]].concat());
    let (right, wrong) = (
        format!("127.0.0.1:{port}:{target}"),
        format!("{other}:{target}"),
    );
    let options = ["--credentials", &me, "-R", &right, "-R", &wrong];
    let client = Client::start(&server, &options);
    wait_until("an answer", || exchange(port, b"hello") == b"hello");
    let content = crate::data(1 << 20);
    assert!(exchange(port, &content) == content);
    assert_eq!(exchange(other, b"hello"), b"");
    wait_until("a line of the log", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let accepted =
            |line: &str| line.contains(" alice ") && line.contains("TCP-ACCEPT 127.0.0.1:");
        let denied = format!("\"TCP-LISTEN [::]:{other} HTTP/3\" 403");
        log.lines().any(accepted) && log.contains(&denied)
    });

    // The client is killed, and starts again: who connects meanwhile waits.
    drop(client);
    let early = std::thread::spawn(move || exchange(port, b"early"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _client = Client::start(&server, &options);
    wait_until("an answer again", || exchange(port, b"hello") == b"hello");
    let early = early.join().unwrap();
    assert!(early == b"early" || early.is_empty());
}

#[test]
fn rules_for_users_need_users() {
    let refused = run(&[&SERVER[..], &["--open", "--allow-reverse", "alice=80"]].concat());
    assert_exit(&refused, 2);
    assert!(
        stderr(&refused).contains("nobody has a name"),
        "{refused:?}"
    );
    let refused = run(&[&SERVER[..], &["--open", "--allow-reverse", "alice"]].concat());
    assert_exit(&refused, 2);
    assert!(
        stderr(&refused).contains("such as alice=8000-8099"),
        "{refused:?}"
    );
    let refused = run(&["proxy", "client", "https://127.0.0.1:1", "-R", "80:host"]);
    assert_exit(&refused, 2);
    let told = "expected [ADDR:]PORT:HOST:PORT, such as 8443:192.168.1.5:443";
    assert!(stderr(&refused).contains(told), "{refused:?}");
}
