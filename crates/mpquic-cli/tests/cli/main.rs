//! The tool as its users run it: exit codes, what it prints, what it writes.

mod alt_svc;
mod backup;
mod client_cert;
mod demo;
mod ending;
mod exit_codes;
mod http3;
mod http3_get;
mod json;
#[cfg(feature = "aws-lc-rs")]
mod key_exchange;
mod lab;
mod limits;
#[cfg(target_os = "linux")]
mod live;
mod manual;
mod operating;
mod paths;
mod perf;
mod perf_options;
mod proxy;
mod proxy_reverse;
mod proxy_rules;
mod proxy_survival;
#[cfg(target_os = "linux")]
mod proxy_tun;
mod proxy_udp;
mod put;
mod put_told;
mod qlog;
mod rate;
mod record;
#[cfg(unix)]
mod restarted;
mod resume;
#[cfg(unix)]
mod size_limits;
mod tree;
mod users;
mod vanished;
mod workers;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// For tests that tell loopback addresses apart. Linux has all of them, other systems the first.
fn assert_loopback(ip: Ipv4Addr) {
    if let Err(error) = UdpSocket::bind((ip, 0)) {
        let how = format!("`sudo ifconfig lo0 alias {ip}` adds it on macOS");
        panic!("this test needs the loopback address {ip} ({error}): {how}");
    }
}

/// The tool. It leaves signals ignored that are so when it begins, and shells ignore some for
/// programs in the background: these tests must not depend on how they were begun.
const PROGRAM: &[&str] = if cfg!(target_os = "linux") {
    &[
        "env",
        "--default-signal=HUP,INT,TERM",
        env!("CARGO_BIN_EXE_mpquic"),
    ]
} else {
    &[env!("CARGO_BIN_EXE_mpquic")]
};

/// The command with these arguments; the loopback addresses among them are there.
fn mpquic(arguments: &[&str]) -> Command {
    let words = arguments
        .iter()
        .flat_map(|word| word.split(['=', ':', ',']));
    let addresses = words.filter_map(|word| word.parse::<Ipv4Addr>().ok());
    addresses
        .filter(Ipv4Addr::is_loopback)
        .for_each(assert_loopback);
    let [program, words @ ..] = PROGRAM else {
        unreachable!("it has a name")
    };
    let mut command = Command::new(program);
    command
        .args(words)
        .args(arguments)
        // Nothing is kept where the user's programs keep it.
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("RUST_LOG")
        .env_remove("QLOGDIR");
    command
}

fn run(arguments: &[&str]) -> Output {
    mpquic(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
}

/// `mpquic serve`, killed when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    pin: String,
    /// What it printed at its start.
    lines: Vec<String>,
}

impl Server {
    fn start(directory: &Path, more: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", directory, more)
    }

    fn start_on(address: &str, directory: &Path, more: &[&str]) -> Self {
        let directory = directory.to_str().unwrap();
        Self::launch(&[&["serve", directory, "--listen", address], more].concat())
    }

    /// One that answers measurements.
    fn perf(more: &[&str]) -> Self {
        Self::launch(&[&["serve", "--perf", "--listen", "127.0.0.1:0"], more].concat())
    }

    fn launch(arguments: &[&str]) -> Self {
        Self::launch_by(mpquic(arguments), arguments)
    }

    /// Starts the server by a command that runs it with these arguments.
    fn launch_by(mut command: Command, arguments: &[&str]) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first
            .strip_prefix("listening on ")
            .unwrap()
            .parse()
            .unwrap();
        let mut more_lines = Vec::new();
        let pin = if arguments.contains(&"--cert") {
            String::new()
        } else {
            loop {
                let line = lines.next().unwrap().unwrap();
                if let Some(pin) = line.strip_prefix("certificate ") {
                    break pin.to_owned();
                }
                more_lines.push(line);
            }
        };
        if arguments
            .iter()
            .any(|option| option.starts_with("--alt-svc"))
        {
            more_lines.push(lines.next().unwrap().unwrap());
        }
        Self {
            child,
            address,
            pin,
            lines: more_lines,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// `mpquic get` of one path, trusting the server.
    fn get(&self, path: &str, more: &[&str]) -> Output {
        let url = self.url(path);
        run(&[&["get", "--pin", &self.pin, url.as_str()], more].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fails if `condition` does not come true.
#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("waited in vain for {what}");
}

/// Waits until a file is as long as this.
#[track_caller]
fn wait_for_bytes(path: &Path, bytes: u64) {
    let length = || fs::metadata(path).map_or(0, |file| file.len());
    wait_until("bytes", || length() >= bytes);
}

fn data(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn sha256(data: &[u8]) -> String {
    let hash = Sha256::digest(data);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A directory to serve with `file` in it, and an empty one to write to.
fn directories(content: &[u8]) -> (tempfile::TempDir, tempfile::TempDir) {
    let served = tempfile::tempdir().unwrap();
    fs::write(served.path().join("file"), content).unwrap();
    (served, tempfile::tempdir().unwrap())
}

/// RFC 9000 section 8.1: a client that was there before has a token, and is not asked again.
#[test]
fn a_server_may_insist_on_a_retry_the_first_time() {
    let (served, state) = directories(b"content");
    let server = Server::start(served.path(), &["--retry"]);
    let is_asked = |run: &str| {
        let logs = state.path().join(run);
        let url = server.url("/file");
        let trust = [
            "--pin",
            server.pin.as_str(),
            "--qlog-dir",
            logs.to_str().unwrap(),
        ];
        let mut client = mpquic(&["get", &url, "-o", "-", "--quiet"]);
        client.args(trust).env("XDG_STATE_HOME", state.path());
        let output = client.output().unwrap();
        assert_exit(&output, 0);
        assert_eq!(output.stdout, b"content");
        let log = fs::read_dir(logs).unwrap().next().unwrap().unwrap();
        let log = fs::read_to_string(log.path()).unwrap();
        log.contains("\"packet_type\":\"retry\"")
    };
    assert_eq!(["1", "2", "3"].map(is_asked), [true, false, false]);
}

/// RFC 9368: the server switches a connection to the version it prefers, if both sides speak it.
#[test]
fn both_sides_say_which_versions_they_speak() {
    let (served, _) = directories(b"content");
    for (server, client, spoken) in [
        ("v1,v2", "v2", Some("v2")),
        ("v2,v1", "v1,v2", Some("v2")),
        ("v2,v1", "v1", Some("v1")),
        ("v2", "v1,v2", Some("v2")),
        ("v2", "v1", None),
    ] {
        let server = Server::start(served.path(), &["--quic-version", server]);
        let arguments = ["-o", "-", "--json", "--quic-version", client];
        let output = server.get("/file", &arguments);
        match spoken {
            Some(spoken) => {
                assert_exit(&output, 0);
                let report: Value = serde_json::from_str(&stderr(&output)).unwrap();
                assert_eq!(report["quic_version"], spoken);
                assert_eq!(report["multipath"], true);
            }
            None => {
                assert_exit(&output, 5);
                assert!(stderr(&output).contains("no version of QUIC that we do"));
            }
        }
    }
}

/// RFC 9000 section 9.6.
#[test]
fn clients_are_asked_to_move_to_the_preferred_address() {
    let content = data(8 << 20);
    let (served, target) = directories(&content);
    let arguments = ["--preferred-address", "127.0.0.9:0"];
    let server = Server::start(served.path(), &arguments);
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let output = server.get("/file", &["-o", file, "--json", "--paths", "1"]);
    assert_exit(&output, 0);
    assert!(fs::read(file).unwrap() == content);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let remote = report["paths"][0]["remote"].as_str().unwrap();
    assert!(remote.starts_with("127.0.0.9:"), "{report}");
}

/// The server tells of its second address, of which the command line says nothing.
#[test]
fn paths_lead_to_addresses_that_the_server_announces() {
    let content = data(24 << 20);
    let (served, target) = directories(&content);
    let arguments = ["--announce", "127.0.0.9:0", "--scheduler", "round-robin"];
    let server = Server::start(served.path(), &arguments);
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let output = server.get("/file", &["-o", file, "--json", "--local", "127.0.0.1"]);
    assert_exit(&output, 0);
    assert!(fs::read(file).unwrap() == content);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let paths = report["paths"].as_array().unwrap();
    let announced = paths.iter().filter(|path| {
        let remote = path["remote"].as_str().unwrap();
        remote.starts_with("127.0.0.9:")
    });
    let carried: Vec<_> = announced.map(|path| &path["bytes_received"]).collect();
    let [carried] = carried[..] else {
        panic!("{report}");
    };
    // How much depends on the machine's load; it is data in any case, not just probes.
    assert!(carried.as_u64().unwrap() > 100_000, "{report}");
}

#[test]
fn a_file_arrives_over_two_paths() {
    let content = data(24 << 20);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--scheduler", "round-robin"]);
    let file = target.path().join("copy");
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2", "--json"];
    let output = server.get(
        "/file",
        &[&two[..], &["-o", file.to_str().unwrap()]].concat(),
    );
    assert_exit(&output, 0);
    assert!(fs::read(&file).unwrap() == content);
    assert_eq!(names(target.path()), ["copy"]);

    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["url"], server.url("/file"));
    assert_eq!(report["bytes"], content.len());
    assert_eq!(report["sha256"], sha256(&content));
    assert_eq!(report["multipath"], true);
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    let paths = report["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2, "{report}");
    for path in paths {
        let carried = path["bytes_received"].as_u64().unwrap();
        // How much depends on the machine's load; it is data in any case, not just probes.
        assert!(carried > 1 << 20, "{report}");
        assert_eq!(path["remote"], server.address.to_string());
        assert_eq!(path["state"], "active");
    }
}

/// Its name need not lead there, nor anywhere.
#[test]
fn the_address_of_a_server_may_be_given() {
    let (served, _) = directories(b"content");
    let server = Server::start(served.path(), &[]);
    let address = server.address.to_string();
    let url = format!("https://nowhere.invalid:{}/file", server.address.port());
    let get = ["get", &url, "--pin", &server.pin, "-o", "-", "--quiet"];
    let output = run(&[&get[..], &["--server-addr", &address]].concat());
    assert_exit(&output, 0);
    assert_eq!(output.stdout, b"content");
    let output = run(&get);
    assert_exit(&output, 4);
    assert!(stderr(&output).contains("cannot find the address of nowhere.invalid"));
}

/// The reports of `mpquic get --json`, one per line.
fn reports(output: &Output) -> Vec<Value> {
    let text = stdout(output);
    let reports = text.lines().map(|line| serde_json::from_str(line).unwrap());
    reports.collect()
}

#[test]
fn several_files_at_once() {
    let (served, target) = directories(b"");
    let names: Vec<_> = (0..200).map(|number| format!("{number:03}")).collect();
    for name in &names {
        fs::write(served.path().join(name), name).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let urls: Vec<_> = names
        .iter()
        .map(|name| server.url(&format!("/{name}")))
        .collect();
    let mut more: Vec<_> = urls.iter().map(String::as_str).collect();
    let directory = target.path().to_str().unwrap();
    more.extend(["--output-dir", directory, "--parallel", "150", "--quiet"]);
    let output = server.get("/file", &more);
    assert_exit(&output, 0);
    for name in &names {
        let content = fs::read_to_string(target.path().join(name)).unwrap();
        assert_eq!(&content, name);
    }
}

#[test]
fn a_request_to_a_known_server_goes_with_the_first_flight() {
    let (served, target) = directories(b"x");
    let server = Server::start(served.path(), &[]);
    let directory = target.path().to_str().unwrap();
    let again = server.url("/file");
    let reconnect = [&again, "--reconnect", "--json", "--output-dir", directory];
    let early = |output: &Output| -> Vec<_> {
        let reports = reports(output).into_iter();
        reports.map(|report| report["early_data"] == true).collect()
    };
    let output = server.get("/file", &[&reconnect[..], &["--early-data"]].concat());
    assert_exit(&output, 0);
    assert_eq!(early(&output), [false, true]);
    let output = server.get("/file", &reconnect);
    assert_exit(&output, 0);
    assert_eq!(early(&output), [false, false]);

    // Several requests over the second connection, one after the other or at once.
    fs::write(served.path().join("other"), "y").unwrap();
    let other = server.url("/other");
    let once = [&again, &other, "--reconnect=once", "--early-data"];
    let once = [&once[..], &reconnect[2..]].concat();
    let output = server.get("/file", &once);
    assert_exit(&output, 0);
    assert_eq!(early(&output), [false, true, false]);
    let both = ["--parallel", "2", "--alpn", "hq-interop"];
    let output = server.get("/file", &[&once[..], &both].concat());
    assert_exit(&output, 0);
    // One of both begins the connection; the other may come when the handshake is over.
    let early = early(&output);
    assert!(!early[0] && (early[1] || early[2]), "{early:?}");
}

#[test]
fn both_sides_must_have_the_cipher() {
    let (served, _) = directories(b"x");
    let server = Server::start(served.path(), &["--cipher", "chacha20"]);
    for more in [&["--cipher", "chacha20"][..], &[]] {
        let output = server.get("/file", &[&["-o", "-"], more].concat());
        assert_exit(&output, 0);
    }
    let output = server.get("/file", &["-o", "-", "--cipher", "aes128"]);
    assert_exit(&output, 5);
}

#[test]
fn a_silent_server_is_given_up() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/file", silent.local_addr().unwrap());
    let output = run(&["get", &url, "-o", "-", "--connect-timeout", "1"]);
    assert_exit(&output, 5);
    assert!(stderr(&output).contains("for 1 s"), "{output:?}");
}

#[test]
fn keys_and_address_change_in_a_drill() {
    let content = data(16 << 20);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--max-paths", "0"]);
    let file = target.path().join("copy");
    let logs = target.path().join("logs");
    let output = server.get(
        "/file",
        &[
            "--local",
            "127.0.0.1",
            "--drill",
            "update-keys,move=127.0.0.2",
            "--qlog-dir",
            logs.to_str().unwrap(),
            "--json",
            "-o",
            file.to_str().unwrap(),
        ],
    );
    assert_exit(&output, 0);
    assert!(fs::read(&file).unwrap() == content);
    let local = &reports(&output)[0]["paths"][0]["local"];
    assert!(local.as_str().unwrap().starts_with("127.0.0.2:"), "{local}");
    let log = fs::read_to_string(logs.join(&names(&logs)[0])).unwrap();
    assert!(log.contains("local_update"));
}

/// Both logs keep to the schema and show both paths.
#[test]
fn both_sides_write_logs_where_they_are_told() {
    let (served, target) = directories(&data(8 << 20));
    let logs = tempfile::tempdir().unwrap();
    // A directory that does not exist yet is made.
    let logs = logs.path().join("new");
    let directory = logs.to_str().unwrap();
    let arguments = ["--qlog-dir", directory, "--scheduler", "round-robin"];
    let server = Server::start(served.path(), &arguments);
    let file = target.path().join("copy");
    let url = server.url("/file");
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let output = mpquic(&[&["get", "--pin", &server.pin, &url], &two[..]].concat())
        .args(["-o", file.to_str().unwrap()])
        .env("QLOGDIR", directory)
        .output()
        .unwrap();
    assert_exit(&output, 0);
    let names = names(&logs);
    let [client, server_log] = &names[..] else {
        panic!("{names:?}");
    };
    let id = client.strip_suffix("_client.sqlog").unwrap();
    assert_eq!(server_log, &format!("{id}_server.sqlog"));
    let both = BTreeSet::from([0, 1]);
    for name in &names {
        let read = || fs::read(logs.join(name)).unwrap();
        // The server hears of the end a moment later.
        let is_complete = || String::from_utf8_lossy(&read()).contains("quic:connection_closed");
        let mut waits = std::iter::repeat_n(Duration::from_millis(20), 500);
        let complete = is_complete()
            || waits.any(|wait| {
                std::thread::sleep(wait);
                is_complete()
            });
        assert!(complete, "{name}");
        let summary = mpquic_qlog::schema::check(&read()).unwrap();
        assert_eq!((&summary.sent_on, &summary.received_on), (&both, &both));
        assert!(summary.frames.contains("path_ack"), "{summary:?}");
    }
}

#[test]
fn files_are_named_after_their_urls() {
    let (served, target) = directories(b"one");
    fs::write(served.path().join("empty"), "").unwrap();
    let server = Server::start(served.path(), &[]);
    let directory = target.path().to_str().unwrap();
    let second = server.url("/empty");
    let output = server.get("/file", &[&second, "--output-dir", directory, "--quiet"]);
    assert_exit(&output, 0);
    assert_eq!(stdout(&output) + &stderr(&output), "");
    assert_eq!(names(target.path()), ["empty", "file"]);
    assert_eq!(fs::read(target.path().join("file")).unwrap(), b"one");

    let output = server.get("/file", &["-o", "-"]);
    assert_exit(&output, 0);
    assert_eq!(output.stdout, b"one");
    assert!(stderr(&output).contains("over 1 path"), "{output:?}");

    let here = tempfile::tempdir().unwrap();
    let url = server.url("/file");
    let mut get = mpquic(&["get", "--pin", &server.pin, &url, "-O"]);
    assert_exit(&get.current_dir(here.path()).output().unwrap(), 0);
    assert_eq!(fs::read(here.path().join("file")).unwrap(), b"one");
}

#[test]
fn an_untrusted_certificate_is_refused_with_advice() {
    let (served, target) = directories(b"x");
    let server = Server::start(served.path(), &[]);
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let output = run(&["get", &server.url("/file"), "-o", file]);
    assert_exit(&output, 6);
    let told = stderr(&output);
    assert!(told.contains(&format!("--pin {}", server.pin)), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");

    let wrong = format!("sha256:{}", "5a".repeat(32));
    let output = run(&["get", &server.url("/file"), "-o", file, "--pin", &wrong]);
    assert_exit(&output, 6);
    let told = stderr(&output);
    assert!(
        told.contains(&wrong) && told.contains(&server.pin),
        "{told}"
    );
    assert_eq!(names(target.path()), [""; 0]);

    let output = run(&["get", &server.url("/file"), "-o", file, "--insecure"]);
    assert_exit(&output, 0);
}

#[test]
fn certificates_of_an_authority() {
    let (served, target) = directories(b"x");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, content: String| {
        let path = target.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cert = write("cert.pem", made.cert.pem());
    let key = write("key.pem", made.signing_key.serialize_pem());
    let server = Server::start(served.path(), &["--cert", &cert, "--key", &key]);
    let url = format!("https://localhost:{}/file", server.address.port());
    let address = server.address.to_string();
    let get =
        |more: &[&str]| run(&[&["get", &url, "--server-addr", &address, "-o", "-"], more].concat());
    let output = get(&["--ca", &cert]);
    assert_exit(&output, 0);
    assert_eq!(output.stdout, b"x");
    // What the system trusts.
    let mut system = mpquic(&["get", &url, "--server-addr", &address, "-o", "-"]);
    let output = system.env("SSL_CERT_FILE", &cert).output().unwrap();
    assert_exit(&output, 0);
    // Right certificate, wrong name.
    let output = run(&["get", &server.url("/file"), "-o", "-", "--ca", &cert]);
    assert_exit(&output, 6);
    assert!(stderr(&output).contains("another name"), "{output:?}");
    let output = get(&["--ca", &key]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("no certificate"), "{output:?}");
}

#[test]
fn missing_file_is_reported_and_leaves_no_part() {
    let (served, target) = directories(b"x");
    let inner = served.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("ok"), "ok").unwrap();
    let server = Server::start(&inner, &[]);
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    for path in ["/missing", "/../file", "/%2e%2e/file", "//file", "/inner"] {
        let output = server.get(path, &["-o", file]);
        assert_exit(&output, 7);
        assert!(stderr(&output).contains("not found"), "{path}: {output:?}");
        assert_eq!(names(target.path()), [""; 0]);
    }
    // One failure among several: the others are fetched, and the exit code tells.
    let directory = target.path().to_str().unwrap();
    let second = server.url("/ok");
    let output = server.get("/missing", &[&second, "--output-dir", directory]);
    assert_exit(&output, 7);
    assert_eq!(names(target.path()), ["ok"]);
}

#[test]
fn usage_errors_list_valid_values() {
    let url = "https://127.0.0.1:1/file";
    let cases: [(&[&str], &[&str]); 16] = [
        (&[], &["Usage"]),
        (&["get"], &["URL"]),
        (&["get", "http://a/b"], &["https://"]),
        (
            &["get", url, "--scheduler", "best"],
            &["best", "lrf", "round-robin", "backup"],
        ),
        (
            &["get", url, "--cc", "best"],
            &["best", "olia", "cubic", "newreno"],
        ),
        (
            &["get", url, "--quic-version", "v3"],
            &["v3", "v1 and v2", "--quic-version"],
        ),
        (
            &["get", url, "--local", "no/pe0"],
            &["no/pe0", "127.0.0.1", "lo"],
        ),
        (
            &["get", url, "--local", "224.0.0.1"],
            &["not an address of one machine", "127.0.0.1"],
        ),
        (
            &["get", url, "--pin", "sha256:12"],
            &["64 hexadecimal digits"],
        ),
        (&["get", url, "--pin", "x", "--insecure"], &["sha256:"]),
        (
            &["serve", "--preferred-address", "0.0.0.0:443"],
            &["--preferred-address is 0.0.0.0:443, but must be one address"],
        ),
        (
            &["serve", "--announce", "0.0.0.0:443"],
            &["--announce is 0.0.0.0:443, but must be one address"],
        ),
        (
            &["serve", "--max-paths", "65"],
            &["65", "--max-paths", "0..=64"],
        ),
        (
            &["get", url, "--qlog-max-size", "0"],
            &["0", "--qlog-max-size", "1..=16777216"],
        ),
        (&["get", "https://127.0.0.1:1/"], &["-o"]),
        (&["serve", "/nonexistent"], &["/nonexistent"]),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        assert_exit(&output, 2);
        let told = stderr(&output);
        for expected in expected {
            assert!(told.contains(expected), "{arguments:?}: {told}");
        }
    }
}

#[test]
fn a_server_without_multipath_is_used_over_one_path() {
    let (served, _) = directories(b"x");
    let server = Server::start(served.path(), &["--max-paths", "0"]);
    let output = server.get(
        "/file",
        &["-o", "-", "--local", "127.0.0.1", "--local", "127.0.0.2"],
    );
    assert_exit(&output, 0);
    assert_eq!(output.stdout, b"x");
    assert!(
        stderr(&output).contains("does not support multipath"),
        "{output:?}"
    );
}

#[test]
fn tls_secrets_are_logged_on_request() {
    let (served, target) = directories(b"x");
    let server = Server::start(served.path(), &[]);
    let log = target.path().join("keys");
    let url = server.url("/file");
    let output = mpquic(&["get", "--pin", &server.pin, &url, "-o", "-"])
        .env("SSLKEYLOGFILE", &log)
        .output()
        .unwrap();
    assert_exit(&output, 0);
    let keys = fs::read_to_string(log).unwrap();
    assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0"), "{keys}");
}

#[test]
fn the_lists_name_their_sources() {
    let schedulers = stdout(&run(&["schedulers"]));
    // The descriptions begin one below the other.
    let columns = schedulers.lines().map(|line| {
        let (name, rest) = line.split_once("  ").unwrap();
        name.len() + rest.len() - rest.trim_start().len()
    });
    let columns: BTreeSet<_> = columns.collect();
    assert_eq!(columns.len(), 1, "{schedulers}");
    for name in ["lrf", "round-robin", "backup"] {
        assert!(
            schedulers.lines().any(|line| line.starts_with(name)),
            "{schedulers}"
        );
    }
    let controllers = reports(&run(&["controllers", "--json"]));
    for name in ["olia", "cubic", "newreno"] {
        let named = controllers.iter().find(|listed| listed["name"] == name);
        assert!(named.unwrap()["source"].is_string(), "{controllers:?}");
    }
}
