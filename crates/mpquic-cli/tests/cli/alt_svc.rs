//! The files of `mpquic serve` over TCP, where browsers learn of HTTP/3.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mpquic_core::crypto::rustls::{PinVerifier, provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[cfg(unix)]
use crate::ending::signal;
use crate::http3;
use crate::{Server, assert_exit, data, directories, run, stderr, wait_until};

/// Where a server listens on TCP.
fn tcp_address(server: &Server) -> &str {
    let mut lines = server.lines.iter();
    let address = lines.find_map(|line| line.strip_prefix("https on "));
    address.expect("an address")
}

fn pin(server: &Server) -> [u8; 32] {
    let digits = server.pin.strip_prefix("sha256:").unwrap();
    std::array::from_fn(|index| u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap())
}

async fn connect(server: &Server, alpn: &str) -> TlsStream<tokio::net::TcpStream> {
    connect_as(server, alpn, None).await
}

/// [`connect`] with a certificate.
async fn connect_as(
    server: &Server,
    alpn: &str,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> TlsStream<tokio::net::TcpStream> {
    let provider = provider();
    let verifier = PinVerifier::new(pin(server), &provider);
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own {
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.into()];
    let stream = tokio::net::TcpStream::connect(tcp_address(server)).await;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream.unwrap()).await.unwrap()
}

/// A client of one of the two versions.
enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Client {
    async fn new(server: &Server, alpn: &str) -> Self {
        let stream = TokioIo::new(connect(server, alpn).await);
        if alpn == "h2" {
            let (client, connection) = http2::handshake(TokioExecutor::new(), stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            return Self::Http2(client);
        }
        let (client, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self::Http1(client)
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &'static str,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::builder().method(method);
        request = match self {
            Self::Http1(_) => request.uri(path).header("host", "localhost"),
            Self::Http2(_) => request.uri(format!("https://localhost{path}")),
        };
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).unwrap();
        // The connection takes a request once the one before it has ended.
        match self {
            Self::Http1(client) => {
                client.ready().await?;
                client.send_request(request).await
            }
            Self::Http2(client) => {
                client.ready().await?;
                client.send_request(request).await
            }
        }
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> (Response<()>, Vec<u8>) {
        let (head, body) = self
            .send(method, path, fields, "")
            .await
            .unwrap()
            .into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (Response::from_parts(head, ()), body.to_vec())
    }
}

/// Every answer is that of HTTP/3, and says where HTTP/3 is.
#[tokio::test]
async fn answers_over_tcp_are_those_of_http3() {
    let content = data(1_000_000);
    let (served, state) = directories(&content);
    fs::create_dir(served.path().join("sub")).unwrap();
    let log = state.path().join("log");
    let options = ["--alt-svc=127.0.0.1:0", "--access-log"];
    let options = [&options[..], &[log.to_str().unwrap()]].concat();
    let server = Server::start(served.path(), &options);
    let alternative = format!("h3=\":{}\"; ma=86400", server.address.port());
    let mut over_quic = http3::Client::new(&server).await;
    type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
    let asked: [Asked<'_>; 9] = [
        ("GET", "/file", &[]),
        ("HEAD", "/file", &[]),
        ("GET", "/file", &[("range", "bytes=700000-")]),
        ("GET", "/file", &[("range", "bytes=2000000-")]),
        ("GET", "/", &[]),
        ("GET", "/sub", &[]),
        ("GET", "/missing", &[]),
        ("GET", "/%zz", &[]),
        ("POST", "/file", &[]),
    ];
    for (alpn, protocol) in [("http/1.1", "HTTP/1.1"), ("h2", "HTTP/2")] {
        let mut client = Client::new(&server, alpn).await;
        for (method, path, fields) in asked {
            let (mut expected, expected_body) = over_quic.ask(method, path, fields).await;
            let (mut response, body) = client.ask(method, path, fields).await;
            let told = response.headers_mut().remove("alt-svc").unwrap();
            assert_eq!(told, alternative);
            assert_eq!(response.status(), expected.status(), "{method} {path}");
            response.headers_mut().remove("date").unwrap();
            expected.headers_mut().remove("date").unwrap();
            assert_eq!(response.headers(), expected.headers(), "{method} {path}");
            assert!(body == expected_body, "{method} {path}");
        }
        let (known, _) = client.ask("GET", "/file", &[]).await;
        let etag = known.headers()["etag"].to_str().unwrap();
        let (same, body) = client.ask("GET", "/file", &[("if-none-match", etag)]).await;
        assert_eq!((same.status().as_u16(), body.len()), (304, 0));
        let line = format!("\"GET /file {protocol}\" 206 300000");
        let lines = || fs::read_to_string(&log).unwrap();
        wait_until("a line", || lines().contains(&line));
    }
    // RFC 9112 section 3.2
    for (alpn, request, begins) in [
        (
            "http/1.1",
            "GET /file HTTP/1.1\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 400",
        ),
        (
            "http/1.1",
            "GET /file HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 400",
        ),
        ("http/1.0", "GET /file HTTP/1.0\r\n\r\n", "HTTP/1.0 200"),
    ] {
        let mut stream = connect(&server, alpn).await;
        let mut answer = Vec::new();
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
            .await
            .unwrap();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
        let answer = String::from_utf8_lossy(&answer[..12]);
        assert_eq!(answer, begins, "{request}");
    }
}

/// One address has a part of the connections only, whatever it does with them.
#[tokio::test]
async fn silent_connections_of_one_address_leave_room_for_others() {
    let (served, _) = directories(b"x");
    let server = Server::start(served.path(), &["--alt-svc=127.0.0.1:0"]);
    let address: std::net::SocketAddr = tcp_address(&server).parse().unwrap();
    let from_another = || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(address)
    };
    let mut silent = Vec::new();
    for _ in 0..520 {
        silent.push(from_another().await.unwrap());
    }
    let mut client = Client::new(&server, "http/1.1").await;
    let response = client.send("GET", "/file", &[], "").await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn files_are_taken_over_tcp() {
    let (served, _) = directories(b"");
    let server = Server::start(served.path(), &["--alt-svc=127.0.0.1:0", "--allow-put"]);
    for alpn in ["http/1.1", "h2"] {
        let mut client = Client::new(&server, alpn).await;
        for (path, status) in [("/new", 201), ("/new", 204), ("/none/new", 409)] {
            let response = client.send("PUT", path, &[], alpn).await.unwrap();
            assert_eq!(response.status(), status, "{path}");
        }
        let new = served.path().join("new");
        assert_eq!(fs::read(&new).unwrap(), alpn.as_bytes());
        fs::remove_file(new).unwrap();
    }
}

/// Whoever sends nothing, or little by little, is not waited for.
#[tokio::test]
async fn slow_clients_are_turned_away() {
    let (served, _) = directories(&data(30_000_000));
    let options = ["--alt-svc=127.0.0.1:0", "--stall-timeout", "1"];
    let server = Server::start(served.path(), &options);
    let mut silent = TcpStream::connect(tcp_address(&server)).unwrap();
    let mut dripping = connect(&server, "http/1.1").await;
    let silent = tokio::task::spawn_blocking(move || silent.read(&mut [0]).ok());
    let drip = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut read, mut write) = tokio::io::split(&mut dripping);
        let drips = async {
            write.write_all(b"GET / HTTP/1.1\r\nX: ").await?;
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                write.write_all(b"x").await?;
                write.flush().await?;
            }
        };
        let end = async { read.read(&mut [0]).await };
        tokio::select! {
            failed = drips => { let _: std::io::Result<()> = failed; }
            _ = end => {}
        }
    };
    // One that reads nothing of an answer.
    let greedy = async {
        let mut client = Client::new(&server, "h2").await;
        let mut body = client
            .send("GET", "/file", &[], "")
            .await
            .unwrap()
            .into_body();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut is_cut = false;
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                is_cut = true;
                break;
            }
        }
        // What waits for it would take memory: the connection is over.
        let again = client.send("GET", "/", &[], "").await;
        (is_cut, again.is_err())
    };
    // One that has got an answer, and asks for nothing else.
    let idle = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = connect(&server, "http/1.1").await;
        let request = b"HEAD /file HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        let _may_be_cut = stream.read_to_string(&mut answer).await;
        answer
    };
    let all = async { tokio::join!(silent, drip, greedy, idle) };
    let (closed, (), over, answer) = tokio::time::timeout(Duration::from_secs(20), all)
        .await
        .expect("an end");
    assert!(matches!(closed, Ok(Some(0) | None)), "{closed:?}");
    assert_eq!(over, (true, true));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// What is open may finish; then the server ends, and waits for nobody who asks for nothing.
#[cfg(unix)]
#[tokio::test]
async fn the_end_waits_for_answers_over_tcp() {
    let content = data(4_000_000);
    let (served, _) = directories(&content);
    // An answer that comes slowly is no pause, however long it takes.
    let options = ["--client-rate", "20M", "--stall-timeout", "1"];
    let options = [&["--alt-svc=127.0.0.1:0"], &options[..]].concat();
    let mut server = Server::start(served.path(), &options);
    let _idle = Client::new(&server, "http/1.1").await;
    let mut client = Client::new(&server, "h2").await;
    let response = client.send("GET", "/file", &[], "").await.unwrap();
    signal(&server.child, "-TERM");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body == content);
    let status = server.child.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// Nobody waits for a client that does not even begin with TLS.
#[cfg(unix)]
#[test]
fn half_open_tls_holds_no_end() {
    let (served, _) = directories(b"x");
    let waits = ["--stall-timeout", "3600", "--drain-timeout", "3600"];
    let options = [&["--alt-svc=127.0.0.1:0"], &waits[..]].concat();
    let mut server = Server::start(served.path(), &options);
    let silent = TcpStream::connect(tcp_address(&server)).unwrap();
    // The server has accepted the connection before this answer.
    assert_exit(&server.get("/file", &["-o", "-", "-q"]), 0);
    signal(&server.child, "-TERM");
    wait_until("the end", || server.child.try_wait().unwrap().is_some());
    drop(silent);
}

/// A certificate that was replaced is used once the server is told, over TCP and QUIC; one that
/// cannot be used changes nothing.
#[cfg(unix)]
#[tokio::test]
async fn certificates_are_read_again() {
    let (served, state) = directories(b"x");
    let at = |name: &str| state.path().join(name);
    let directory = at("state").to_str().unwrap().to_owned();
    let options = ["--state", &directory, "--alt-svc=127.0.0.1:0"];
    let other = ["--state", at("other").to_str().unwrap()].map(str::to_owned);
    let other = other.each_ref().map(String::as_str);
    let new = Server::start(served.path(), &other).pin.clone();
    let mut server = Server::start(served.path(), &options);
    let kept = at("state/serve.pem");
    assert_exit(&server.get("/file", &["-o", "-", "-q"]), 0);

    fs::write(&kept, "nothing").unwrap();
    signal(&server.child, "-HUP");
    assert_exit(&server.get("/file", &["-o", "-", "-q"]), 0);
    fs::copy(at("other/serve.pem"), &kept).unwrap();
    let old = server.pin.clone();
    signal(&server.child, "-HUP");
    server.pin = new;
    let get = |server: &Server| server.get("/file", &["-o", "-", "-q"]).status.code();
    wait_until("the new certificate", || get(&server) == Some(0));
    Client::new(&server, "h2").await;
    server.pin = old;
    assert_eq!(get(&server), Some(6));
}

/// Over TCP as over QUIC, with each protocol.
#[tokio::test]
async fn client_without_a_certificate_gets_nothing_over_tcp() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (served, _) = directories(b"for alice");
    let [state, stranger] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    crate::client_cert::issue(state.path());
    crate::client_cert::issue(stranger.path());
    let authority = state.path().join("ca.pem");
    let authority = authority.to_str().unwrap();
    let options = ["--alt-svc=127.0.0.1:0", "--allow-put", "--client-ca"];
    let server = Server::start(served.path(), &[&options[..], &[authority]].concat());
    let own = |directory: &std::path::Path| {
        let certificate = CertificateDer::from_pem_file(directory.join("alice.pem"));
        let key = PrivateKeyDer::from_pem_file(directory.join("alice.key"));
        (certificate.unwrap(), key.unwrap())
    };
    let others = [None, Some(own(stranger.path()))];
    let shown = others.into_iter().chain([Some(own(state.path()))]);
    let mut answers = Vec::new();
    for own in shown {
        for request in ["GET /file", "PUT /new"] {
            let own = own
                .as_ref()
                .map(|(own, key)| (own.clone(), key.clone_key()));
            let mut stream = connect_as(&server, "http/1.1", own).await;
            let request = format!(
                "{request} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            // The server may have ended the connection.
            let _ = stream.write_all(request.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let text = String::from_utf8(answer).unwrap();
            answers.push(text.get(..12).unwrap_or(&text).to_owned());
        }
    }
    let expected = ["", "", "", "", "HTTP/1.1 200", "HTTP/1.1 201"];
    assert_eq!(answers, expected);
}

#[test]
fn invalid_announcements_are_refused() {
    let (served, _) = directories(b"");
    let directory = served.path().to_str().unwrap();
    let output = run(&["serve", directory, "--alt-svc", "--alpn", "hq-interop"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("add h3"), "{output:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let option = format!("--alt-svc={address}");
    let output = run(&["serve", directory, "--listen", "127.0.0.1:0", &option]);
    assert_exit(&output, 1);
    let told = stderr(&output);
    assert!(told.contains(&format!("{address} for --alt-svc")), "{told}");
}
