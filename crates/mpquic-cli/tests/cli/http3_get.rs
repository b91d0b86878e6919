//! `mpquic get` against servers of HTTP/3, good ones and bad ones.

use std::fs;
use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use mpquic_h3::h3::server::RequestStream;
use mpquic_h3::{BidiStream, h3};
use mpquic_tokio::crypto::rustls::{QuicServerConfig, provider};
use mpquic_tokio::{Connection, Endpoint, ServerConfig, certificate_fingerprint};
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::{Server, assert_exit, data, directories, names, reports, run, stderr};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A server of which each path is answered in a way of its own.
pub(crate) struct Peculiar {
    pub(crate) address: SocketAddr,
    pub(crate) pin: String,
    _endpoint: Endpoint,
}

impl Peculiar {
    pub(crate) fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let digits = certificate_fingerprint(&certificate);
        let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
        let config = move || {
            let key = made.signing_key.serialize_der();
            let crypto = QuicServerConfig::with_provider(
                Arc::new(provider()),
                vec![certificate.clone()],
                PrivatePkcs8KeyDer::from(key).into(),
                &[mpquic_h3::ALPN],
            );
            ServerConfig::new(Arc::new(crypto.unwrap())).unwrap()
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::server(config(), any).unwrap();
        tokio::spawn({
            let endpoint = endpoint.clone();
            async move {
                while let Some(incoming) = endpoint.accept().await {
                    tokio::spawn(async move { serve(incoming.await?).await });
                    // As if it had started anew: nothing is known of earlier connections.
                    endpoint.set_server_config(Some(config())).unwrap();
                }
            }
        });
        Self {
            address: endpoint.local_addr().unwrap(),
            pin: format!("sha256:{digits}"),
            _endpoint: endpoint,
        }
    }

    pub(crate) fn get(&self, path: &str, more: &[&str]) -> Output {
        let url = format!("https://{}{path}", self.address);
        let arguments = [&["get", "--pin", &self.pin, &url], more].concat();
        tokio::task::block_in_place(|| run(&arguments))
    }
}

async fn serve(connection: Connection) -> Result<(), Error> {
    let quic = mpquic_h3::Connection::new(connection.clone());
    let mut requests = h3::server::Connection::new(quic).await?;
    while let Some(request) = requests.accept().await? {
        let connection = connection.clone();
        tokio::spawn(async move {
            let (request, stream) = request.resolve_request().await?;
            answer(&connection, &request, stream).await
        });
    }
    Ok::<(), Error>(())
}

async fn answer(
    connection: &Connection,
    request: &Request<()>,
    mut stream: Stream,
) -> Result<(), Error> {
    let with_length = |length: &str| {
        Response::builder()
            .header("content-length", length)
            .body(())
    };
    let path = request.uri().path();
    if let Ok(status) = path.trim_start_matches('/').parse::<u16>() {
        let response = Response::builder().status(StatusCode::from_u16(status)?);
        let response = response.header("location", "/over\x09there");
        stream.send_response(response.body(())?).await?;
        return Ok(stream.finish().await?);
    }
    if let Some(hops) = path.strip_prefix("/hops/") {
        let left: u32 = hops.parse()?;
        let response = Response::builder().status(if left > 0 { 308 } else { 200 });
        let next = left.saturating_sub(1).to_string();
        stream
            .send_response(response.header("location", next).body(())?)
            .await?;
        stream.send_data(data(10).into()).await?;
        return Ok(stream.finish().await?);
    }
    if let Some(list) = list(path) {
        stream.send_response(Response::new(())).await?;
        stream.send_data(list.into()).await?;
        return Ok(stream.finish().await?);
    }
    if let Some(to) = location(request) {
        let response = Response::builder().status(307).header("location", to);
        stream.send_response(response.body(())?).await?;
        return Ok(stream.finish().await?);
    }
    let response = match path {
        "/moved" => Response::builder()
            .status(302)
            .header("location", "whole?to")
            .body(())?,
        "/loop" => Response::builder()
            .status(307)
            .header("location", "/loop")
            .body(())?,
        "/echo" => echo(request)?,
        "/unannounced" => Response::new(()),
        "/nonsense" => with_length("many")?,
        "/empty" => with_length("0")?,
        _ => with_length("1000")?,
    };
    if path == "/early-hints" {
        let hints = Response::builder().status(103).body(())?;
        stream.send_response(hints).await?;
    }
    stream.send_response(response).await?;
    let sent = match path {
        "/short" | "/reset" | "/closed" | "/dropped" => 999,
        "/long" => 1001,
        "/empty" => 0,
        _ => 1000,
    };
    stream.send_data(data(sent).into()).await?;
    match path {
        "/stalled" => std::future::pending().await,
        // Not before the beginning has arrived.
        "/reset" => {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
        }
        "/closed" => {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            connection.close(0x102u32.into(), b"no\nmore");
        }
        "/dropped" => {}
        _ => stream.finish().await?,
    }
    Ok(())
}

/// The target of a redirection.
fn location(request: &Request<()>) -> Option<String> {
    match request.uri().path() {
        "/here" => Some("/echo".to_owned()),
        // The address of the server is also that of localhost.
        "/elsewhere" => {
            let port = request.uri().port_u16()?;
            Some(format!("https://localhost:{port}/echo"))
        }
        _ => None,
    }
}

/// An answer that repeats the method and fields of a request.
fn echo(request: &Request<()>) -> http::Result<Response<()>> {
    let field = |name: &str| {
        let value = request.headers().get(name);
        value.map_or(&b"none"[..], |value| value.as_bytes())
    };
    Response::builder()
        .header("x-method", request.method().as_str())
        .header("x-field", field("x-field"))
        .header("x-authorization", field("authorization"))
        .body(())
}

/// What is said to be in directories.
fn list(path: &str) -> Option<&'static str> {
    match path {
        "/nasty/" => Some(
            r#"[{"name":"../file","type":"file","size":4},{"name":"/etc/file","type":"file"},
            {"name":"..","type":"directory"},{"name":"a\u0000","type":"file"},
            {"name":"good","type":"file","mtime":"never"},{"name":"link","type":"directory"},
            {"name":"tty","type":"device"},{"name":"","type":"more"}]"#,
        ),
        "/nasty/link/" => Some(r#"[{"name":"file","type":"file"}]"#),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_answers_are_taken() {
    let server = Peculiar::start();
    let target = tempfile::tempdir().unwrap();
    let directory = target.path().to_str().unwrap();
    for (path, length) in [
        ("/whole", 1000),
        ("/unannounced", 1000),
        ("/early-hints", 1000),
        ("/empty", 0),
    ] {
        let output = server.get(path, &["--output-dir", directory, "--json"]);
        assert_exit(&output, 0);
        let file = target.path().join(path.trim_start_matches('/'));
        assert_eq!(fs::read(file).unwrap(), data(length), "{path}");
        assert_eq!(reports(&output)[0]["protocol"], "h3");
    }
}

/// Each has one clear line and its exit code, and leaves no file that looks whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_answers_are_explained_errors() {
    let server = Peculiar::start();
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    for (path, code, expected) in [
        ("/short", 8, "there is less content than was announced"),
        ("/long", 8, "there is more content than was announced"),
        ("/nonsense", 8, "content-length is no number"),
        (
            "/reset",
            8,
            "the server could not read the file to its end; the file may have changed there",
        ),
        (
            "/dropped",
            7,
            "the server refused the request (code 0x10c, the server gave it up)",
        ),
        (
            "/closed",
            8,
            "connection lost: closed by the peer's application",
        ),
        ("/404", 7, "not found on the server"),
        ("/403", 7, "the server answered 403 Forbidden"),
        ("/500", 7, "the server answered 500 Internal Server Error"),
        ("/206", 8, "part of the file that was not requested"),
        (
            "/301",
            7,
            "the server redirects to /over there (301 Moved Permanently)",
        ),
    ] {
        // Some failures may be over later.
        let output = server.get(path, &["-o", file, "--retry-time", "0"]);
        assert_exit(&output, code);
        let told = stderr(&output);
        assert!(told.contains(expected), "{path}: {told}");
        let lines = told.lines().filter(|line| line.starts_with("mpquic: "));
        assert_eq!(lines.count(), 1, "{path}: {told}");
        assert_eq!(names(target.path()), [""; 0], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_are_followed() {
    let server = Peculiar::start();
    let output = server.get("/moved", &["-o", "-"]);
    assert_exit(&output, 0);
    assert!(output.stdout == data(1000));
    for (hops, most) in [("/hops/1", "1"), ("/hops/3", "3"), ("/hops/10", "10")] {
        let output = server.get(hops, &["-o", "-", "--max-redirects", most]);
        assert_exit(&output, 0);
        assert_eq!(output.stdout, data(10));
    }
    let output = server.get("/hops/3", &["-o", "-", "--max-redirects", "2"]);
    assert_exit(&output, 7);
    let told = "more than 2 redirections";
    assert!(stderr(&output).contains(told), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_choose_method_and_fields() {
    let server = Peculiar::start();
    let head = server.get("/echo", &["-X", "HEAD", "-H", "X-Field:  one"]);
    assert_exit(&head, 0);
    let text = String::from_utf8(head.stdout.clone()).unwrap();
    assert!(text.starts_with("HTTP/3 200\n"), "{text}");
    assert!(text.contains("x-method: HEAD\nx-field: one\n"), "{text}");
    assert_eq!(stderr(&head), "");
    // Another method may have another status, and is not tried again.
    let output = server.get("/204", &["--method", "DELETE", "-o", "-", "--quiet"]);
    assert_exit(&output, 0);
    assert_eq!(output.stdout, b"");
    // What may go well later is only asked for again if that does no harm.
    for (method, tries_again) in [("GET", true), ("POST", false)] {
        let more = ["-X", method, "-o", "-", "--retry-time", "1"];
        let output = server.get("/503", &more);
        assert_exit(&output, 7);
        let told = stderr(&output);
        assert_eq!(told.contains("trying again"), tries_again, "{told}");
        assert!(told.contains("503 Service Unavailable"), "{told}");
    }
    for (field, told) in [
        ("x-field", "NAME: VALUE"),
        ("Range: bytes=0-1", "the tool sets it"),
        ("x y: z", "the header name is not valid"),
    ] {
        let output = server.get("/echo", &["-H", field]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_the_right_sum_is_kept() {
    let server = Peculiar::start();
    let target = tempfile::tempdir().unwrap();
    let sum = crate::sha256(&data(1000));
    let directory = target.path().to_str().unwrap();
    let output = server.get("/whole", &["--sha256", &sum, "--output-dir", directory]);
    assert_exit(&output, 0);
    assert_eq!(names(target.path()), ["whole"]);
}

#[test]
fn the_protocol_is_negotiated() {
    let content = data(1_000_000);
    let (served, target) = directories(&content);
    let file = target.path().join("copy");
    let path = file.to_str().unwrap();
    for (server, client, spoken) in [
        (&[][..], &[][..], Some("h3")),
        (&["--alpn", "hq-interop"], &[], Some("hq-interop")),
        (&[], &["--alpn", "hq-interop"], Some("hq-interop")),
        (&["--alpn", "hq-interop,h3"], &["--alpn", "h3"], Some("h3")),
        (&["--alpn", "h3"], &["--alpn", "hq-interop"], None),
    ] {
        let server = Server::start(served.path(), server);
        let output = server.get("/file", &[&["-o", path, "--json"], client].concat());
        let Some(spoken) = spoken else {
            assert_exit(&output, 5);
            assert!(stderr(&output).contains("protocol"), "{output:?}");
            continue;
        };
        assert_exit(&output, 0);
        assert!(fs::read(&file).unwrap() == content);
        assert_eq!(reports(&output)[0]["protocol"], spoken);
    }
}

#[test]
fn requests_of_the_first_flight_share_a_connection_with_later_ones() {
    let (served, target) = directories(b"x");
    fs::write(served.path().join("other"), "y").unwrap();
    let server = Server::start(served.path(), &[]);
    let directory = target.path().to_str().unwrap();
    for alpn in ["h3", "hq-interop"] {
        let (again, other) = (server.url("/file"), server.url("/other"));
        let more = [
            &again,
            &other,
            "--reconnect=once",
            "--early-data",
            "--parallel",
            "3",
        ];
        let more = [
            &more[..],
            &["--alpn", alpn, "--json", "--output-dir", directory],
        ]
        .concat();
        let output = server.get("/file", &more);
        assert_exit(&output, 0);
        let reports = reports(&output);
        let early: Vec<_> = reports
            .iter()
            .map(|report| report["early_data"] == true)
            .collect();
        // One of the last two begins the connection; the other may come when the handshake is over.
        assert!(!early[0] && (early[1] || early[2]), "{alpn}: {early:?}");
        assert_eq!(fs::read(target.path().join("other")).unwrap(), b"y");
    }
}

/// A server that was restarted takes nothing of the first flight: it is sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_early_requests_are_sent_again() {
    let server = Peculiar::start();
    let target = tempfile::tempdir().unwrap();
    let directory = target.path().to_str().unwrap();
    let others = ["/2", "/3"].map(|path| format!("https://{}/whole{path}", server.address));
    let more = [
        &others[0],
        &others[1],
        "--reconnect=once",
        "--early-data",
        "--parallel",
        "3",
    ];
    let more = [&more[..], &["--json", "--output-dir", directory]].concat();
    let output = server.get("/whole", &more);
    assert_exit(&output, 0);
    let reports = reports(&output);
    assert_eq!(reports.len(), 3);
    for report in reports {
        assert_eq!(report.get("early_data"), None, "{report}");
    }
    for name in ["whole", "2", "3"] {
        assert_eq!(fs::read(target.path().join(name)).unwrap(), data(1000));
    }
}
