//! `mpquic serve` as clients of HTTP/3 see it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use http::{HeaderMap, Request, Response};
use mpquic_h3::h3::client::SendRequest;
use mpquic_h3::{OpenStreams, h3};
use mpquic_tokio::{ClientConfig, ConnectionError, Endpoint, TransportOptions};
use tokio::sync::Mutex;

use crate::{Server, assert_loopback, data, directories};

/// A client of a server, over two paths.
pub(crate) struct Client {
    requests: SendRequest<OpenStreams, Bytes>,
    _endpoint: Endpoint,
}

impl Client {
    pub(crate) async fn new(server: &Server) -> Self {
        Self::try_new(server).await.unwrap()
    }

    pub(crate) async fn try_new(server: &Server) -> Result<Self, ConnectionError> {
        Self::with_transport(server, mpquic_tokio::default_transport()).await
    }

    async fn with_transport(
        server: &Server,
        transport: TransportOptions,
    ) -> Result<Self, ConnectionError> {
        let digits = server.pin.strip_prefix("sha256:").unwrap();
        let pin = std::array::from_fn(|index| {
            u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap()
        });
        let config = ClientConfig::with_pin(pin, &[mpquic_h3::ALPN]).unwrap();
        let config = config.transport_config(transport.build().unwrap());
        assert_loopback(Ipv4Addr::new(127, 0, 0, 2));
        let endpoint = Endpoint::builder()
            .bind("127.0.0.1:0".parse().unwrap())
            .bind("127.0.0.2:0".parse().unwrap())
            .client(config)
            .build()
            .unwrap();
        let connecting = endpoint.connect(server.address, "localhost").unwrap();
        let connection = mpquic_h3::Connection::new(connecting.await?);
        let (mut driver, requests) = h3::client::new(connection).await.unwrap();
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Self {
            requests,
            _endpoint: endpoint,
        })
    }

    /// The answer to a request with these fields.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> (Response<()>, Vec<u8>) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let mut stream = self.requests.send_request(request).await.unwrap();
        stream.finish().await.unwrap();
        let response = stream.recv_response().await.unwrap();
        let mut body = Vec::new();
        while let Some(mut data) = stream.recv_data().await.unwrap() {
            body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        assert!(stream.recv_trailers().await.unwrap().is_none());
        (response, body)
    }

    async fn get(&mut self, path: &str) -> (Response<()>, Vec<u8>) {
        self.ask("GET", path, &[]).await
    }
}

#[track_caller]
fn field<'a>(fields: &'a HeaderMap, name: &str) -> &'a str {
    let field = fields.get(name).unwrap_or_else(|| panic!("no {name}"));
    field.to_str().unwrap()
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
#[track_caller]
fn assert_date(text: &str) {
    assert!(httpdate::parse_http_date(text).is_ok(), "{text}");
}

#[tokio::test]
async fn uploads_carry_time_and_permissions() {
    let content = data(3_000_000);
    let (served, _) = directories(&content);
    fs::write(served.path().join("a.html"), "<p>").unwrap();
    fs::write(served.path().join("empty"), "").unwrap();
    let server = Server::start(served.path(), &[]);
    let mut client = Client::new(&server).await;
    let (response, body) = client.get("/file").await;
    assert_eq!(response.status(), 200);
    assert!(body == content);
    let fields = response.headers();
    assert_eq!(field(fields, "content-length"), "3000000");
    assert_eq!(field(fields, "content-type"), "application/octet-stream");
    assert_eq!(field(fields, "x-content-type-options"), "nosniff");
    assert_eq!(field(fields, "accept-ranges"), "bytes");
    assert_date(field(fields, "date"));
    assert_date(field(fields, "last-modified"));
    assert!(field(fields, "etag").starts_with('"'));

    let (head, body) = client.ask("HEAD", "/file", &[("range", "bytes=0-9")]).await;
    assert_eq!((head.status().as_u16(), body.len()), (200, 0));
    for name in ["content-length", "content-type", "etag", "last-modified"] {
        assert_eq!(head.headers()[name], fields[name]);
    }
    let (response, body) = client.get("/a.html?query").await;
    let media_type = field(response.headers(), "content-type");
    assert_eq!(
        (media_type, &body[..]),
        ("text/html; charset=utf-8", &b"<p>"[..])
    );
    let (response, body) = client.get("/empty").await;
    assert_eq!(field(response.headers(), "content-length"), "0");
    assert!(body.is_empty());

    // Another version has another tag.
    fs::write(served.path().join("file"), "new").unwrap();
    let (changed, _) = client.get("/file").await;
    assert_ne!(changed.headers()["etag"], fields["etag"]);
}

#[tokio::test]
async fn parts_of_files_are_sent() {
    let content = data(2_000_000);
    let (served, _) = directories(&content);
    let server = Server::start(served.path(), &[]);
    let mut client = Client::new(&server).await;
    let (whole, _) = client.ask("HEAD", "/file", &[]).await;
    let etag = field(whole.headers(), "etag");
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=1000000-", 1_000_000..2_000_000),
        ("bytes=-5", 1_999_995..2_000_000),
        ("bytes=700000-1499999", 700_000..1_500_000),
    ] {
        for fields in [
            &[("range", range)][..],
            &[("range", range), ("if-range", etag)],
        ] {
            let (response, body) = client.ask("GET", "/file", fields).await;
            assert_eq!(response.status(), 206, "{fields:?}");
            assert!(body == content[expected.clone()], "{fields:?}");
            let (first, last) = (expected.start, expected.end - 1);
            let named = field(response.headers(), "content-range");
            assert_eq!(named, format!("bytes {first}-{last}/2000000"));
            let length = field(response.headers(), "content-length");
            assert_eq!(length, body.len().to_string());
        }
    }
    for fields in [
        [("range", "bytes=0-0"), ("if-range", "\"other\"")],
        [("range", "bytes=0-0,5-6"), ("accept", "*/*")],
    ] {
        let (response, body) = client.ask("GET", "/file", &fields).await;
        assert_eq!((response.status().as_u16(), body.len()), (200, 2_000_000));
    }
    let beyond = [("range", "bytes=2000000-")];
    let (response, _) = client.ask("GET", "/file", &beyond).await;
    assert_eq!(response.status(), 416);
    assert_eq!(
        field(response.headers(), "content-range"),
        "bytes */2000000"
    );
    for (name, value, expected) in [
        ("if-none-match", etag, 304),
        ("if-none-match", "\"other\"", 200),
        ("if-match", "\"other\"", 412),
        (
            "if-modified-since",
            field(whole.headers(), "last-modified"),
            304,
        ),
    ] {
        let (response, body) = client.ask("GET", "/file", &[(name, value)]).await;
        assert_eq!(response.status(), expected, "{name}: {value}");
        if expected == 304 {
            assert!(body.is_empty());
            assert_eq!(field(response.headers(), "etag"), etag);
        }
    }
}

/// A directory with secrets beside the one that is served, within it, and linked from it.
fn secrets() -> (tempfile::TempDir, std::path::PathBuf) {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("root");
    fs::create_dir_all(root.join("sub dir")).unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    for secret in ["secret", "root/.git/config", "root/.env"] {
        fs::write(outside.path().join(secret), "secret").unwrap();
    }
    fs::write(root.join("sub dir/b & c"), "b").unwrap();
    #[cfg(unix)]
    for (to, name) in [("../secret", "link"), ("..", "parent"), (".env", "shown")] {
        std::os::unix::fs::symlink(Path::new(to), root.join(name)).unwrap();
    }
    (outside, root)
}

#[tokio::test]
async fn nothing_else_is_found() {
    let (outside, root) = secrets();
    let server = Server::start(&root, &[]);
    let mut client = Client::new(&server).await;
    let absolute = format!("/{}/secret", outside.path().display());
    for path in [
        "/missing",
        "/sub%20dir/missing/",
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/sub%20dir/../../secret",
        "/..%5csecret",
        "//../secret",
        "/./secret",
        "/link",
        "/parent/secret",
        "/parent/",
        "/shown",
        "/.env",
        "/%2eenv",
        "/.git/",
        "/.git/config",
        "/..",
        "/../",
        &absolute,
    ] {
        for method in ["GET", "HEAD"] {
            let (response, body) = client.ask(method, path, &[]).await;
            assert_eq!(response.status(), 404, "{method} {path}");
            assert_eq!(
                &body[..],
                if method == "GET" {
                    &b"not found\n"[..]
                } else {
                    b""
                }
            );
        }
    }
    let server = Server::start(&root, &["--dot-files"]);
    let mut client = Client::new(&server).await;
    for (path, status) in [("/.env", 200), ("/.git/config", 200), ("/../secret", 404)] {
        assert_eq!(client.get(path).await.0.status(), status, "{path}");
    }
}

#[tokio::test]
async fn senseless_requests_are_refused() {
    let (served, _) = directories(b"x");
    let server = Server::start(served.path(), &[]);
    let mut client = Client::new(&server).await;
    for path in ["/%zz", "/%", "/file%00"] {
        let (response, body) = client.get(path).await;
        assert_eq!(response.status(), 400, "{path}");
        assert!(!body.is_empty());
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let (response, _) = client.ask(method, "/file", &[]).await;
        assert_eq!(response.status(), 405, "{method}");
        assert_eq!(field(response.headers(), "allow"), "GET, HEAD");
    }
    // A body that nobody wants.
    let request = Request::post("https://localhost/file").body(()).unwrap();
    let mut stream = client.requests.send_request(request).await.unwrap();
    let flood = async {
        loop {
            stream.send_data(Bytes::from_static(&[0; 10_000])).await?;
        }
    };
    let stopped: Result<(), h3::error::StreamError> = flood.await;
    assert!(matches!(
        stopped,
        Err(h3::error::StreamError::RemoteTerminate { code, .. })
            if code == h3::error::Code::H3_NO_ERROR
    ));
    assert_eq!(stream.recv_response().await.unwrap().status(), 405);
}

#[tokio::test]
async fn directories_have_pages() {
    let (_outside, root) = secrets();
    let server = Server::start(&root, &[]);
    let mut client = Client::new(&server).await;
    let (response, body) = client.get("/").await;
    assert_eq!(response.status(), 200);
    let fields = response.headers();
    assert_eq!(field(fields, "content-type"), "text/html; charset=utf-8");
    assert_eq!(field(fields, "content-length"), body.len().to_string());
    assert!(field(fields, "content-security-policy").contains("default-src 'none'"));
    let page = String::from_utf8(body).unwrap();
    assert!(page.contains("href=\"./sub%20dir/\""), "{page}");
    for hidden in ["secret", "link", "parent", "shown", ".env", ".git"] {
        assert!(!page.contains(&format!("./{hidden}")), "{hidden}: {page}");
    }
    // Nothing is looked up for it, so nobody knows how long it would be.
    let (head, body) = client.ask("HEAD", "/", &[]).await;
    assert_eq!(head.status(), 200);
    assert!(!head.headers().contains_key("content-length") && body.is_empty());

    for path in ["/sub%20dir", "//sub%20dir"] {
        let (response, _) = client.get(path).await;
        assert_eq!(response.status(), 301);
        assert_eq!(field(response.headers(), "location"), "/sub%20dir/");
    }
    let (response, body) = client.get("/sub%20dir/").await;
    assert_eq!(response.status(), 200);
    let page = String::from_utf8(body).unwrap();
    assert!(page.contains("href=\"./b%20%26%20c\""), "{page}");
    assert!(page.contains(">b &amp; c<"), "{page}");
    let (_, body) = client.get("/sub%20dir/b%20%26%20c").await;
    assert_eq!(body, b"b");

    fs::write(root.join("sub dir/index.html"), "welcome").unwrap();
    let (response, body) = client.get("/sub%20dir/").await;
    assert_eq!(body, b"welcome");
    let media_type = field(response.headers(), "content-type");
    assert_eq!(media_type, "text/html; charset=utf-8");
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    let (served, _) = directories(b"");
    for number in 0..200 {
        fs::write(served.path().join(number.to_string()), number.to_string()).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let mut client = Client::new(&server).await;
    let mut streams = Vec::new();
    for number in 0..200 {
        let request = Request::get(format!("https://localhost/{number}"));
        let request = request.body(()).unwrap();
        // The server allows a hundred at a time.
        if streams.len() == 100 {
            let mut stream: h3::client::RequestStream<_, _> = streams.remove(0);
            read(&mut stream, number - 100).await;
        }
        let mut stream = client.requests.send_request(request).await.unwrap();
        stream.finish().await.unwrap();
        streams.push(stream);
    }
    for (number, stream) in (100..).zip(&mut streams) {
        read(stream, number).await;
    }
}

async fn read(
    stream: &mut h3::client::RequestStream<mpquic_h3::BidiStream<Bytes>, Bytes>,
    number: u32,
) {
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await.unwrap() {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    assert_eq!(body, number.to_string().as_bytes());
}

/// A page of 60 objects, requested at once, the images first: what the page needs to be shown comes
/// before them (RFC 9218).
#[tokio::test]
async fn urgent_answers_arrive_first() {
    let kinds = [
        ("image", 40, 5),
        ("script", 15, 2),
        ("style", 4, 1),
        ("page", 1, 0),
    ];
    let (served, _) = directories(b"");
    // Each is read in one piece.
    let content = data(16 << 10);
    let mut objects = Vec::new();
    for (kind, count, urgency) in kinds {
        for number in 0..count {
            let name = format!("{kind}-{number}");
            fs::write(served.path().join(&name), &content).unwrap();
            objects.push((name, urgency));
        }
    }
    let server = Server::start(served.path(), &["--max-requests", "60"]);
    // Two images fit the window: the others wait until all requests were sent.
    let mut transport = mpquic_tokio::default_transport();
    transport.initial_receive_window = 32 << 10;
    transport.max_receive_window = 32 << 10;
    transport.initial_stream_receive_window = 32 << 10;
    let client = Client::with_transport(&server, transport).await.unwrap();
    let mut streams = Vec::new();
    for (name, urgency) in objects {
        let request = Request::get(format!("https://localhost/{name}"));
        let request = request.header("priority", format!("u={urgency}")).body(());
        let mut requests = client.requests.clone();
        let mut stream = requests.send_request(request.unwrap()).await.unwrap();
        stream.finish().await.unwrap();
        streams.push((stream, urgency));
    }
    // The client reads slowly, as over a link: a busy server has the time to open its files.
    let link = Mutex::new(());
    let received = streams.into_iter().map(|(mut stream, urgency)| {
        let (content, link) = (&content, &link);
        async move {
            assert_eq!(stream.recv_response().await.unwrap().status(), 200);
            let mut body = Vec::new();
            while let Some(mut data) = stream.recv_data().await.unwrap() {
                body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
                let _turn = link.lock().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(body == *content);
            urgency
        }
    });
    let received = futures_util::stream::iter(received).buffer_unordered(60);
    let order: Vec<_> = received.collect().await;
    // Without priorities, they would be the last 20.
    let first_half = order[..30].iter();
    let urgent = first_half.filter(|urgency| **urgency < 5).count();
    assert!(urgent >= 12, "{urgent} of 20 in {order:?}");
}
