//! What operators of `mpquic serve` rely on: an identity that lasts, logs, figures, health.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
#[cfg(target_os = "linux")]
use std::time::Duration;

use mpquic_tokio::{ClientConfig, Endpoint, certificate_fingerprint};
use serde_json::Value;

use crate::{
    Server, assert_exit, data, directories, mpquic, run, stderr, wait_for_bytes, wait_until,
};

#[test]
fn the_pin_survives_a_restart() {
    let (served, state) = directories(b"x");
    let at = |name: &str| state.path().join(name).to_str().unwrap().to_owned();
    let start = |state: &str| {
        Server::start(served.path(), &["--state", state])
            .pin
            .clone()
    };
    let first = start(&at("a"));
    assert_eq!(start(&at("a")), first);
    assert_ne!(start(&at("b")), first);

    // What is asked for must work; what is not is left out.
    let file = state.path().join("file");
    fs::write(&file, "").unwrap();
    let output = run(&[
        "serve",
        served.path().to_str().unwrap(),
        "--state",
        file.to_str().unwrap(),
    ]);
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("cannot keep"), "{output:?}");
    fs::write(state.path().join("a/serve.pem"), "x").unwrap();
    let output = run(&[
        "serve",
        served.path().to_str().unwrap(),
        "--state",
        &at("a"),
    ]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("serve.pem"), "{output:?}");
}

/// A client learns of a restart from the first answer of the new server, long before it is idle for
/// too long: both have the same key for stateless resets. It asks by itself if it has nothing else
/// to send.
#[cfg(unix)]
#[test]
fn a_restart_is_noticed_soon() {
    let content = data(4_000_000);
    let (served, target) = directories(&content);
    // A port that is free.
    let address = Server::start(served.path(), &[]).address;
    let named = address.to_string();
    let mut server = Server::start_on(&named, served.path(), &["--client-rate", "8M"]);
    // While the server is away, the client must not hear from the system that nobody is there.
    let front = relay(address, usize::MAX);
    let file = target.path().join("copy");
    let url = format!("https://{front}/file");
    let get = crate::mpquic(&["get", &url, "--insecure", "-o", file.to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let part = target.path().join("copy.part");
    wait_for_bytes(&part, 500_000);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let _server = Server::start_on(&named, served.path(), &[]);
    let output = get.wait_with_output().unwrap();
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert!(told.contains("reset by the peer; trying again"), "{told}");
    assert!(fs::read(&file).unwrap() == content);
}

/// An address that carries the datagrams of one client to a server: of the client's, so many bytes,
/// and then nothing more in either direction.
pub(crate) fn relay(server: SocketAddr, most: usize) -> SocketAddr {
    let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let (front, back) = (bind(), bind());
    let address = front.local_addr().unwrap();
    let client = Arc::new(Mutex::new(None));
    let (from, to, origin) = (front.clone(), back.clone(), client.clone());
    thread::spawn(move || {
        let mut left = most;
        forward(&from, |datagram, source| {
            left = left.saturating_sub(datagram.len());
            *origin.lock().unwrap() = (left > 0).then_some(source);
            match left {
                0 => Ok(0),
                _ => to.send_to(datagram, server),
            }
        });
    });
    thread::spawn(move || {
        forward(&back, |datagram, _| match *client.lock().unwrap() {
            Some(client) => front.send_to(datagram, client),
            None => Ok(0),
        });
    });
    address
}

/// Gives on what arrives. What cannot be sent is lost, as in any network.
pub(crate) fn forward(
    socket: &UdpSocket,
    mut send: impl FnMut(&[u8], SocketAddr) -> io::Result<usize>,
) {
    let mut buffer = [0; 1 << 16];
    loop {
        if let Ok((length, source)) = socket.recv_from(&mut buffer) {
            let _may_be_lost = send(&buffer[..length], source);
        }
    }
}

/// Unless the user has asked for it, a server does not need a place for its certificate.
#[test]
fn without_a_place_for_its_certificate_a_server_makes_one_for_itself() {
    let (served, state) = directories(b"x");
    let file = state.path().join("file");
    fs::write(&file, "").unwrap();
    let directory = served.path().to_str().unwrap();
    let serve = ["serve", directory, "--listen", "127.0.0.1:0"];
    let mut child = mpquic(&serve)
        .env("XDG_STATE_HOME", &file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pin = lines
        .map(|line| line.unwrap())
        .find(|line| line.starts_with("certificate sha256:"));
    let _is_running = child.kill();
    let _is_over = child.wait();
    assert!(pin.is_some());
    let output = run(&[&serve[..], &["--state", file.to_str().unwrap()]].concat());
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("cannot keep "), "{output:?}");
}

/// Files of earlier runs save time, and nothing else depends on them.
#[test]
fn a_client_works_without_a_place_for_its_knowledge() {
    let (served, state) = directories(b"content");
    let server = Server::start(served.path(), &["--retry"]);
    let get = |state: &Path| {
        let url = server.url("/file");
        let mut client = mpquic(&["get", &url, "-o", "-", "--quiet", "--pin", &server.pin]);
        client.env("XDG_STATE_HOME", state).env("RUST_LOG", "warn");
        let output = client.output().unwrap();
        assert_exit(&output, 0);
        assert_eq!(output.stdout, b"content");
        stderr(&output)
    };
    let file = state.path().join("file");
    fs::write(&file, "").unwrap();
    let told = get(&file);
    assert!(told.contains("nothing is kept for the next run"), "{told}");
    let known = state.path().join("mpquic/known");
    fs::create_dir_all(&known).unwrap();
    let token = known.join("token-v1-127.0.0.1");
    fs::write(&token, "1 1000\ndamaged").unwrap();
    let told = get(state.path());
    assert!(told.contains("ignored a file of the store"), "{told}");
    assert!(told.contains("token-v1-127.0.0.1"), "{told}");
    // The token of this run takes the place of the damaged one.
    assert!(!fs::read(&token).unwrap().ends_with(b"damaged"));
    assert_eq!(get(state.path()), "");
}

#[test]
fn requests_are_logged() {
    let (served, state) = directories(b"content");
    let log = state.path().join("log");
    let path = log.to_str().unwrap();
    for (format, alpn) in [("common", "h3"), ("json", "hq-interop")] {
        let options = ["--access-log", path, "--access-log-format", format];
        let server = Server::start(served.path(), &options);
        let more = ["-o", "-", "--quiet", "--alpn", alpn];
        assert_exit(&server.get("/file?query", &more), 0);
        assert_exit(&server.get("/missing", &more), 7);
        let lines = || fs::read_to_string(&log).unwrap_or_default();
        wait_until("two lines", || lines().lines().count() == 2);
        let text = lines();
        let lines: Vec<_> = text.lines().collect();
        if format == "common" {
            assert!(lines[0].starts_with("127.0.0.1 - - ["), "{text}");
            assert!(
                lines[0].ends_with("+0000] \"GET /file?query HTTP/3\" 200 7"),
                "{text}"
            );
            assert!(
                lines[1].ends_with("\"GET /missing HTTP/3\" 404 10"),
                "{text}"
            );
        } else {
            let line: Value = serde_json::from_str(lines[0]).unwrap();
            assert_eq!(line["target"], "/file?query");
            assert_eq!(line["protocol"], "HTTP/0.9");
            assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &7.into()));
            let line: Value = serde_json::from_str(lines[1]).unwrap();
            assert_eq!((&line["status"], &line["bytes"]), (&404.into(), &0.into()));
        }
        drop(server);
        fs::remove_file(&log).unwrap();
    }
    let directory = state.path().to_str().unwrap();
    let output = run(&["serve", directory, "--access-log", directory]);
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("cannot write"), "{output:?}");
}

/// Status and body of an answer over TCP.
pub(crate) fn ask(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// All that a server tells of itself.
#[cfg(unix)]
const FAMILIES: [&str; 14] = [
    "mpquic_connections gauge",
    "mpquic_handshakes_total counter",
    "mpquic_retries_total counter",
    "mpquic_stateless_resets_total counter",
    "mpquic_datagrams_dropped_total counter",
    "mpquic_memory_bytes gauge",
    "mpquic_http_requests_total counter",
    "mpquic_http_response_bytes_total counter",
    "mpquic_sent_bytes_total counter",
    "mpquic_received_bytes_total counter",
    "mpquic_reinjected_bytes_total counter",
    "mpquic_paths gauge",
    "mpquic_path_rtt_seconds gauge",
    "mpquic_request_memory_bytes gauge",
];

#[cfg(unix)]
#[test]
fn figures_and_health_are_told() {
    let (served, target) = directories(&data(1_500_000));
    let server = Server::start(
        served.path(),
        &["--metrics", "127.0.0.1:0", "--client-rate", "8M"],
    );
    let url = server
        .lines
        .iter()
        .find_map(|line| line.strip_prefix("metrics on http://"));
    let address = url.unwrap().strip_suffix("/metrics").unwrap();
    let mut lines = server.lines.iter();
    assert!(
        !lines.any(|line| line.starts_with("paths on")),
        "not asked for"
    );
    assert_eq!(ask(address, "GET /health"), (200, "ok\n".to_owned()));
    assert_eq!(ask(address, "HEAD /health"), (200, String::new()));
    assert_eq!(ask(address, "GET /other").0, 404);
    assert_eq!(ask(address, "POST /metrics").0, 405);

    assert_exit(&server.get("/missing", &["-o", "-"]), 7);
    let url = server.url("/file");
    let file = target.path().join("copy");
    // One and a half seconds.
    let get = crate::mpquic(&[
        "get",
        &url,
        "--insecure",
        "-q",
        "-o",
        file.to_str().unwrap(),
    ])
    .spawn()
    .unwrap();
    let part = target.path().join("copy.part");
    wait_for_bytes(&part, 100_000);
    let (status, text) = ask(address, "GET /metrics");
    assert_eq!(status, 200);
    for expected in [
        "# TYPE mpquic_connections gauge\nmpquic_connections ",
        "mpquic_handshakes_total{result=\"accepted\"} 2\n",
        "mpquic_handshakes_total{result=\"dropped_at_max_attempt_lag\"} 0\n",
        "mpquic_http_requests_total{protocol=\"HTTP/3\",method=\"GET\",status=\"404\"} 1\n",
        "mpquic_paths{local=\"127.0.0.1\",state=\"active\"} ",
        "mpquic_path_rtt_seconds{local=\"127.0.0.1\",quantile=\"0.5\"} 0.",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(kinds.collect::<Vec<_>>(), FAMILIES, "{text}");
    let sent = text
        .lines()
        .find_map(|line| line.strip_prefix("mpquic_sent_bytes_total "));
    assert!(sent.unwrap().parse::<u64>().unwrap() > 100_000, "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }

    let id = server.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let ending = (503, "ending\n".to_owned());
    wait_until("the end", || ask(address, "GET /health") == ending);
    assert_exit(&get.wait_with_output().unwrap(), 0);
}

/// A server is trusted when it is met first, and then only with the same certificate.
#[test]
fn a_server_is_known_after_its_first_use() {
    let (served, state) = directories(b"x");
    let at = |name: &str| state.path().join(name).to_str().unwrap().to_owned();
    let server = Server::start(served.path(), &["--state", &at("a")]);
    let address = server.address.to_string();
    let url = server.url("/file");
    let known = at("known");
    let first_use = ["--first-use", "--known-hosts", &known];
    let get = || run(&[&["get", &url, "-o", "-"], &first_use[..]].concat());
    let output = get();
    assert_exit(&output, 0);
    assert!(stderr(&output).contains(&format!("{address} is new")));
    let line = format!("{address} {}\n", server.pin);
    assert_eq!(fs::read_to_string(&known).unwrap(), line);
    let output = get();
    assert_exit(&output, 0);
    assert!(!stderr(&output).contains("is new"), "{output:?}");

    drop(server);
    let other = Server::start_on(&address, served.path(), &["--state", &at("b")]);
    let output = get();
    assert_exit(&output, 6);
    let told = stderr(&output);
    for expected in [&line[address.len() + 1..line.len() - 1], &other.pin, &known] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!(fs::read_to_string(&known).unwrap(), line);
    // Only one way to trust at a time, and no file without need.
    for more in [
        &["--first-use", "--insecure"][..],
        &["--known-hosts", &known],
    ] {
        let output = run(&[&["get", &url], more].concat());
        assert_exit(&output, 2);
    }
}

/// A server with this key and a certificate of its own, and the certificate's fingerprint.
fn of_a_fleet(
    directory: &Path,
    key: &rcgen::KeyPair,
    id: &str,
    is_alone: bool,
) -> (Server, [u8; 32]) {
    let names = ["localhost".to_owned(), id.to_owned()];
    let params = rcgen::CertificateParams::new(names).unwrap();
    let made = params.self_signed(key).unwrap();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cert = write("cert.pem", made.pem());
    let key = write("key.pem", key.serialize_pem());
    let place = format!("server_id = \"{id}\"\nrotation = 0\nnonce_length = 6\n");
    let place = write("place.toml", place);
    let mut options = vec!["--cert", &cert, "--key", &key];
    if !is_alone {
        options.extend(["--quic-lb", &place]);
    }
    let fingerprint = certificate_fingerprint(made.der());
    (Server::start(directory, &options), fingerprint)
}

/// Who pins the first server's certificate gets to another one only with a session of the first.
#[tokio::test]
async fn a_session_is_resumed_at_another_server_with_the_key() {
    let (directory, _) = directories(b"x");
    let key = rcgen::KeyPair::generate().unwrap();
    let start = |id, is_alone| of_a_fleet(directory.path(), &key, id, is_alone);
    let (one, pin) = start("01", false);
    let (other, _) = start("02", false);
    let (alone, _) = start("03", true);
    let config = || ClientConfig::with_pin(pin, &[mpquic_h3::ALPN]).unwrap();
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connect = async |config: &ClientConfig, server: &Server| {
        let connecting = client.connect_with(config.clone(), server.address, "localhost");
        // 0-RTT data is not offered: each of the servers would take it.
        let connecting = connecting.unwrap().into_0rtt().err().unwrap();
        let connection = connecting.await.map_err(|error| error.to_string())?;
        // Tickets have come by then.
        let confirmed = connection.handshake_confirmed().await;
        connection.close(0u32.into(), b"");
        confirmed.map_err(|error| error.to_string())
    };
    let refused = |result: Result<(), String>| {
        let told = result.unwrap_err();
        assert!(told.ends_with("not the pinned one"), "{told}");
    };
    refused(connect(&config(), &other).await);
    let known = config();
    connect(&known, &one).await.unwrap();
    connect(&known, &other).await.unwrap();
    connect(&known, &one).await.unwrap();
    // Servers that say nothing of a fleet keep their sessions to themselves.
    refused(connect(&known, &alone).await);
}

/// With `Type=notify`, systemd waits for it.
#[cfg(target_os = "linux")]
#[test]
fn a_service_manager_is_told_that_the_server_is_up() {
    let (served, other) = directories(b"x");
    let socket = other.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let directory = served.path().to_str().unwrap();
    let mut child = mpquic(&["serve", directory, "--listen", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut heard = [0; 20];
    let told = manager.recv(&mut heard);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(&heard[..told.unwrap()], b"READY=1\n");
}
