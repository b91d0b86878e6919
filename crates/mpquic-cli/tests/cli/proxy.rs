//! `mpquic proxy`: other programs' connections through both commands.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::{Server, assert_exit, mpquic, run, stderr, wait_until};

/// `mpquic proxy client`, killed when dropped.
pub(crate) struct Client {
    pub(crate) child: Child,
    /// Where its entrances are, in the order of its lines.
    pub(crate) entrances: Vec<SocketAddr>,
}

impl Client {
    fn start(server: &Server, entrances: usize, more: &[&str]) -> Self {
        Self::start_at(server.address, server, entrances, more)
    }

    /// A client of a server that is reached at this address.
    pub(crate) fn start_at(
        address: SocketAddr,
        server: &Server,
        entrances: usize,
        more: &[&str],
    ) -> Self {
        Self::start_logging(address, server, entrances, more, Stdio::null())
    }

    /// The same, with a place for its log.
    fn start_logging(
        address: SocketAddr,
        server: &Server,
        entrances: usize,
        more: &[&str],
        log: Stdio,
    ) -> Self {
        let url = format!("https://{address}");
        let fixed = ["proxy", "client", &url, "--pin", &server.pin];
        let paths = ["--local", "127.0.0.2", "--local", "127.0.0.3"];
        let mut child = mpquic(&[&fixed[..], &paths, more].concat())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let entrances = lines.take(entrances).map(|line| {
            let line = line.unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        });
        let entrances = entrances.collect();
        Self { child, entrances }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A TCP server that reads a connection to its end, and answers with the same bytes.
pub(crate) fn target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut heard = Vec::new();
            if stream.read_to_end(&mut heard).is_ok() {
                let _ = stream.write_all(&heard);
            }
        }
    });
    address
}

/// What comes back for these bytes and their end: nothing where the entrance
/// hangs up before it has heard them, as it does while it has no proxy.
fn exchange(entrance: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(entrance).unwrap();
    let mut answer = Vec::new();
    let sent = stream.write_all(bytes);
    let _ = sent.and_then(|()| stream.shutdown(Shutdown::Write));
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// What a proxy tells of itself when nothing is open.
const FIGURES: [&str; 9] = [
    "mpquic_proxy_flows{kind=\"tcp\"} 0\n",
    "method=\"CONNECT\",status=\"407\"}",
    "mpquic_proxy_flows{kind=\"udp\"} 0\n",
    "mpquic_proxy_flows{kind=\"ip\"} 0\n",
    "# TYPE mpquic_proxy_flows gauge\n",
    "# TYPE mpquic_proxy_bytes_total counter\n",
    "mpquic_proxy_bytes_total{direction=\"to_targets\"} ",
    "mpquic_proxy_bytes_total{direction=\"from_targets\"} ",
    "mpquic_proxy_dropped_payloads_total 0\n",
];

#[test]
fn programs_reach_targets_and_the_log_names_users() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("users"), "basic alice:secret\nbasic bob:secret\n").unwrap();
    fs::write(at("me"), "basic alice:secret\n").unwrap();
    let (users, log) = (at("users"), at("log"));
    let server = [
        "proxy",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        "127.0.0.0/8",
    ];
    let more = [
        "--credentials",
        &users,
        "--access-log",
        &log,
        "--metrics",
        "127.0.0.1:0",
    ];
    let server = Server::launch(&[&server[..], &more].concat());
    let target = target();
    let forward = format!("127.0.0.1:0:{target}");
    let entrances = ["--http", "0", "-L", &forward];
    let client = Client::start(
        &server,
        2,
        &[&entrances[..], &["--credentials", &at("me")]].concat(),
    );
    // The entrances are there before the connection to the proxy.
    wait_until("an answer", || {
        exchange(client.entrances[1], b"hello") == b"hello"
    });
    let ask = format!("CONNECT {target} HTTP/1.1\r\n\r\nhello");
    let answer = exchange(client.entrances[0], ask.as_bytes());
    assert!(
        answer.ends_with(b"\r\n\r\nhello"),
        "{}",
        answer.escape_ascii()
    );

    // Another client has no credentials, and its log says so once.
    let said = fs::File::create(at("said")).unwrap();
    let stranger = Client::start_logging(server.address, &server, 1, &["--http", "0"], said.into());
    for _ in 0..2 {
        wait_until("a refusal", || {
            exchange(stranger.entrances[0], ask.as_bytes()).starts_with(b"HTTP/1.1 502")
        });
    }
    let said = fs::read_to_string(at("said")).unwrap();
    let told = "the proxy wants a name and a password, and this client has none (407)";
    assert_eq!(said.matches(told).count(), 1, "{said}");
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    let expected = [
        format!(" - alice [{{}}] \"CONNECT {target} HTTP/3\" 200 5"),
        format!(" - - [{{}}] \"CONNECT {target} HTTP/3\" 407 0"),
    ];
    for line in expected {
        let (begin, end) = line.split_once("{}").unwrap();
        wait_until(&line, || {
            lines()
                .lines()
                .any(|line| line.contains(begin) && line.ends_with(end))
        });
    }
    let metrics = server.lines.iter();
    let metrics = metrics.filter_map(|line| line.strip_prefix("metrics on http://"));
    let metrics = metrics
        .filter_map(|line| line.strip_suffix("/metrics"))
        .next()
        .unwrap();
    let mut stream = TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut figures = String::new();
    stream.read_to_string(&mut figures).unwrap();
    for figure in FIGURES {
        assert!(figures.contains(figure), "{figure}\n{figures}");
    }
}

/// A program takes the orderly end of a connection without a length for the end of its download.
#[cfg(unix)]
#[test]
fn a_killed_client_resets_downloads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let server = [
        "proxy",
        "server",
        "--listen",
        "127.0.0.1:0",
        "--allow",
        "127.0.0.0/8",
        "--open",
    ];
    let server = Server::launch(&server);
    let forward = format!("127.0.0.1:0:{target}");
    let mut client = Client::start(&server, 1, &["-L", &forward]);
    let (mut near, mut far) = loop {
        let near = TcpStream::connect(client.entrances[0]).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut tried = (0..100).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            listener.accept().ok()
        });
        if let Some((far, _)) = tried.find_map(|far| far) {
            break (near, far);
        }
    };
    far.set_nonblocking(false).unwrap();
    far.write_all(b"half").unwrap();
    let mut half = [0; 4];
    near.read_exact(&mut half).unwrap();
    client.child.kill().unwrap();
    let ended = near.read(&mut half);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// What the file says is read again when that is asked for.
#[cfg(unix)]
#[test]
fn a_file_has_the_options() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (config, users) = (at("proxy.toml"), at("users"));
    fs::write(&users, "basic alice:secret\n").unwrap();
    fs::write(at("me"), "basic alice:other\n").unwrap();
    let text = format!("credentials = {users:?}\nallow = [\"127.0.0.0/8\"]\nmax-flows = 8\n");
    fs::write(&config, &text).unwrap();
    let command = ["proxy", "server", "--listen", "127.0.0.1:0", "--config"];
    let server = Server::launch(&[&command[..], &[&config]].concat());
    let target = target();
    let forward = format!("127.0.0.1:0:{target}");
    let more = ["--http", "0", "-L", &forward, "--credentials", &at("me")];
    let client = Client::start(&server, 2, &more);
    let ask = format!("CONNECT {target} HTTP/1.1\r\n\r\nhello");
    let answer = || exchange(client.entrances[0], ask.as_bytes());
    wait_until("a refusal", || answer().starts_with(b"HTTP/1.1 502"));
    // What cannot be used changes nothing, and ends nothing.
    let hangup = || {
        let pid = server.child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-HUP", &pid]).status().unwrap().success());
    };
    fs::write(&config, "credentials = 1").unwrap();
    hangup();
    assert!(answer().starts_with(b"HTTP/1.1 502"));
    fs::write(&users, "basic alice:other\n").unwrap();
    fs::write(&config, text).unwrap();
    hangup();
    wait_until("an answer", || {
        exchange(client.entrances[1], b"hello") == b"hello"
    });
}

/// A certificate that was replaced is shown once the server is told; one that cannot be used
/// changes nothing.
#[cfg(unix)]
#[test]
fn a_certificate_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let launch = |state: &str| {
        let command = ["proxy", "server", "--listen", "127.0.0.1:0", "--open"];
        Server::launch(&[&command[..], &["--state", &at(state)]].concat())
    };
    let new = launch("other").pin.clone();
    let server = launch("own");
    let kept = at("own/serve.pem");
    // GET is refused by who is trusted.
    let code = |pin: &str| {
        let output = run(&["get", "--pin", pin, &server.url("/x"), "-o", "-", "-q"]);
        output.status.code()
    };
    let hangup = || {
        let pid = server.child.id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-HUP", &pid]).status().unwrap().success());
    };
    assert_eq!((code(&server.pin), code(&new)), (Some(7), Some(6)));
    fs::write(&kept, "nothing").unwrap();
    hangup();
    assert_eq!(code(&server.pin), Some(7));
    fs::copy(at("other/serve.pem"), &kept).unwrap();
    hangup();
    wait_until("the new certificate", || code(&new) == Some(7));
    assert_eq!(code(&server.pin), Some(6));
}

/// Both sides tell what they have open, and only to their user.
#[cfg(unix)]
#[test]
fn proxy_status_lists_open_flows() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (here, there) = (at("client"), at("server"));
    let command = ["proxy", "server", "--listen", "127.0.0.1:0", "--open"];
    let more = ["--allow", "127.0.0.0/8", "--status-socket", &there];
    let server = Server::launch(&[&command[..], &more].concat());
    let target = target();
    let forward = format!("127.0.0.1:0:{target}");
    let client = Client::start(&server, 1, &["-L", &forward, "--status-socket", &here]);
    wait_until("an answer", || {
        exchange(client.entrances[0], b"hello") == b"hello"
    });
    let mut open = TcpStream::connect(client.entrances[0]).unwrap();
    open.write_all(b"12345").unwrap();
    for (socket, role, sent) in [(&here, "client", 5), (&there, "server", 0)] {
        let mode = fs::metadata(socket).unwrap().permissions().mode();
        // Nobody else may connect.
        assert_eq!(mode & 0o077, 0);
        let mut told = serde_json::Value::Null;
        wait_until("two paths and the flow", || {
            let output = run(&["proxy", "status", socket, "--json"]);
            assert_exit(&output, 0);
            told = serde_json::from_slice(&output.stdout).unwrap();
            let paths = told["connections"][0]["paths"].as_array();
            // A path may be suspect for a moment, where its process did not run for a while.
            paths.map_or(0, Vec::len) == 2
                && paths.is_some_and(|paths| paths[0]["state"] == "active")
                && told["flows"][0]["bytes_sent"] == sent
                && told["flows"][0]["bytes_received"] == 5 - sent
        });
        assert_eq!(told["role"], role);
        // As `mpquic get --json` has them.
        let path = &told["connections"][0]["paths"][0];
        assert!(path["cwnd"].as_u64() > Some(0), "{told}");
        assert_eq!(told["flows"][0]["target"], target.to_string());
        assert_eq!(told["flows"][0]["class"], "interactive");
        let output = run(&["proxy", "status", socket]);
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains(&target.to_string()), "{table}");
    }
    // Each second, until it is interrupted or nobody answers any more: rates besides, the busiest
    // flow first.
    let mut live = mpquic(&["proxy", "status", &here, "--live"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut busy = TcpStream::connect(client.entrances[0]).unwrap();
    std::thread::spawn(move || {
        while busy.write_all(&[0; 1000]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut lines = BufReader::new(live.stdout.take().unwrap()).lines();
    let shown = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("tcp")));
    let shown = shown.unwrap().unwrap();
    let mut rates = shown
        .split("  ")
        .map(str::trim)
        .filter(|cell| cell.ends_with("bit/s"));
    assert!(
        rates.next().is_some_and(|sends| sends != "0 kbit/s"),
        "{shown}"
    );
    assert_eq!(rates.next(), Some("0 kbit/s"), "{shown}");
    // A second one is not let in, and does not break the first.
    let more = ["--open", "--status-socket", &there];
    let output = run(&[&command[..4], &more].concat());
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("--status-socket"), "{output:?}");
    assert_exit(&run(&["proxy", "status", &there]), 0);
    drop(server);
    let output = run(&["proxy", "status", &there]);
    assert_exit(&output, 5);
    drop(client);
    lines.for_each(drop);
    assert_exit(&live.wait_with_output().unwrap(), 5);
}

/// `mpquic proxy ctl`, on a client whose paths have addresses of the loopback interface.
#[cfg(unix)]
#[test]
fn a_running_client_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (here, there) = (at("client"), at("server"));
    let server = ["proxy", "server", "--listen", "127.0.0.1:0", "--open"];
    let more = ["--allow", "127.0.0.0/8", "--status-socket", &there];
    let server = Server::launch(&[&server[..], &more].concat());
    let forward = format!("127.0.0.1:0:{}", target());
    let more = ["-L", &forward, "--status-socket", &here];
    let client = Client::start(&server, 1, &more);
    let entrance = client.entrances[0];
    let ctl = |words: &[&str]| run(&[&["proxy", "ctl", "--socket", &here], words].concat());
    let paths = || {
        let output = run(&["proxy", "status", &here, "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let paths = told["connections"][0]["paths"].as_array().cloned();
        let paths = paths.unwrap_or_default().into_iter();
        let local = |path: &serde_json::Value| {
            let text = path["local"].as_str().unwrap();
            format!(
                "{} {}",
                text.split(':').next().unwrap(),
                path["state"].as_str().unwrap()
            )
        };
        paths.map(|path| local(&path)).collect::<Vec<_>>()
    };
    let both = || paths().len() == 2;
    wait_until("two paths", both);
    for words in [&["pause", "127.0.0.3"][..], &["backup", "127.0.0.2", "on"]] {
        assert_exit(&ctl(words), 0);
    }
    wait_until("one path", || {
        let paths = paths();
        paths.len() == 1 && paths[0].starts_with("127.0.0.2 ")
    });
    assert_eq!(exchange(entrance, b"hello"), b"hello");
    assert_exit(&ctl(&["resume", "127.0.0.3"]), 0);
    wait_until("both paths again, one of them a backup", || {
        both() && paths().contains(&"127.0.0.2 backup".to_owned())
    });
    assert_exit(&ctl(&["scheduler", "lrf"]), 0);
    assert_exit(&ctl(&["controller", "cubic"]), 0);
    assert_eq!(exchange(entrance, b"hello"), b"hello");
    let shown = ctl(&["show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["scheduler"], "lrf");
    assert_eq!(shown["backups"][0], "127.0.0.2");
    for (words, code, told) in [
        (
            &["pause", "absent0"][..],
            2,
            "absent0: no path starts there; there are: 127.0.0.2, 127.0.0.3;",
        ),
        (&["scheduler", "fast"], 2, "round-robin"),
        (&["cost", "lo"], 2, "expected IFACE=N or ADDR=N"),
        (&["quota", "eth0=5"], 2, "such as 500M, 20G or 1.5T"),
    ] {
        let output = ctl(words);
        assert_exit(&output, code);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
    let refused = run(&["proxy", "ctl", "--socket", &there, "show"]);
    assert_exit(&refused, 2);
    assert!(stderr(&refused).contains("only a client can be changed"));
    assert_exit(&run(&["proxy", "ctl", "--socket", &at("none"), "show"]), 5);
    assert_exit(&ctl(&["show"]), 0);
}

/// Commands without an end of their own succeed when a signal ends them.
#[cfg(unix)]
#[test]
fn a_signal_is_a_right_end_of_commands_without_another() {
    use crate::ending::signal;

    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let socket = socket.to_str().unwrap();
    let server = ["proxy", "server", "--listen", "127.0.0.1:0", "--open"];
    let server = Server::launch(&server);
    for name in ["-TERM", "-INT"] {
        let more = ["--socks", "0", "--status-socket", socket];
        let mut client = Client::start(&server, 1, &more);
        wait_until("the socket", || std::path::Path::new(socket).exists());
        for command in [
            &["proxy", "status", socket, "--live"][..],
            &["paths", "--watch"],
        ] {
            let mut watch = mpquic(command)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
            assert!(lines.next().is_some());
            signal(&watch, name);
            let output = watch.wait_with_output().unwrap();
            assert_exit(&output, 0);
            assert_eq!(stderr(&output), "");
        }
        signal(&client.child, name);
        assert_eq!(client.child.wait().unwrap().code(), Some(0));
        assert!(!std::path::Path::new(socket).exists());
    }
}

#[test]
fn errors_of_a_config_file_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("proxy.toml");
    let config = config.to_str().unwrap();
    for (text, told) in [
        ("open = true\nmax-flow = 1", "unknown key `max-flow`"),
        ("open = true\nmax-flows = 0", "--max-flows"),
        ("open = true\ncredentials = \"x\"", "cannot be used with"),
    ] {
        fs::write(config, text).unwrap();
        let output = run(&["proxy", "server", "--config", config]);
        assert_exit(&output, 2);
        let told_us = stderr(&output);
        assert!(
            told_us.contains(told) && told_us.contains(config),
            "{told_us}"
        );
    }
}

/// A certificate of an authority that the server trusts for its clients is enough, and it names the
/// user.
#[test]
fn certificates_let_clients_in() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    crate::client_cert::issue(directory.path());
    let (ca, log) = (at("ca.pem"), at("log"));
    let command = ["proxy", "server", "--listen", "127.0.0.1:0"];
    let more = [
        "--allow",
        "127.0.0.0/8",
        "--client-ca",
        &ca,
        "--access-log",
        &log,
    ];
    let server = Server::launch(&[&command[..], &more].concat());
    let target = target();
    let forward = format!("127.0.0.1:0:{target}");
    let (cert, key) = (at("alice.pem"), at("alice.key"));
    let own = ["-L", &forward, "--client-cert", &cert, "--client-key", &key];
    let client = Client::start(&server, 1, &own);
    wait_until("an answer", || {
        exchange(client.entrances[0], b"hello") == b"hello"
    });
    wait_until("the user's name", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.contains(" - certificate-")
    });
    // Another client shows none, and gets no connection.
    let stranger = Client::start(&server, 1, &["--http", "0"]);
    let ask = format!("CONNECT {target} HTTP/1.1\r\n\r\nhello");
    // A client of TLS 1.3 is done before the server looks at certificates: what it asks meanwhile
    // gets no answer (502).
    wait_until("a refusal", || {
        let answer = exchange(stranger.entrances[0], ask.as_bytes());
        assert!(
            answer.starts_with(b"HTTP/1.1 50"),
            "{}",
            answer.escape_ascii()
        );
        answer.starts_with(b"HTTP/1.1 503")
    });
}

#[test]
fn proxy_without_credentials_needs_open() {
    let output = run(&["proxy", "server", "--listen", "127.0.0.1:0"]);
    assert_exit(&output, 2);
    for option in ["--credentials", "--client-ca", "--open"] {
        assert!(stderr(&output).contains(option), "{output:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    fs::write(&path, "alice:secret\n").unwrap();
    let path = path.to_str().unwrap();
    for (more, code, told) in [
        (&["--credentials", path][..], 2, "line 1"),
        (&["--credentials", "/nowhere/users"], 3, "/nowhere/users"),
        (&["--open", "--allow", "10.0.0.0/33"], 2, "--allow"),
    ] {
        let output = run(&[&["proxy", "server", "--listen", "127.0.0.1:0"], more].concat());
        assert_exit(&output, code);
        let told_us = stderr(&output);
        assert!(
            told_us.contains(told) && !told_us.contains("secret"),
            "{output:?}"
        );
    }
    let output = run(&["proxy", "client", "https://127.0.0.1:1", "-L", "80:a"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("PORT:HOST:PORT"), "{output:?}");
}

/// What systemd waits for, with `Type=notify`.
#[cfg(target_os = "linux")]
#[test]
fn a_service_manager_is_told_when_it_may_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let patience = Some(Duration::from_secs(30));
    manager.set_read_timeout(patience).unwrap();
    let server = ["proxy", "server", "--listen", "127.0.0.1:0", "--open"];
    let client = [
        "proxy",
        "client",
        "https://127.0.0.1:1",
        "--socks",
        "127.0.0.1:0",
    ];
    for command in [&server[..], &client] {
        let mut started = mpquic(command)
            .env("NOTIFY_SOCKET", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut told = [0; 100];
        let length = manager.recv(&mut told);
        let _may_be_over = started.kill();
        started.wait().unwrap();
        assert!(
            told[..length.unwrap()].starts_with(b"READY=1"),
            "{command:?}"
        );
    }
}
