//! Tests of answers to requests.

use std::fs;
use std::sync::Arc;

use http::header::{IF_NONE_MATCH, RANGE};

use super::*;
use crate::files::file_state::FileState;
use crate::files::{Content, Directory, OpenError, Source};
use crate::serve::access_log::{AccessLog, Format};
use crate::serve::limits::{self, Limits, Shared};
use crate::serve::observer::Observer;
use crate::serve::rights::{Caller, Rights, RightsArgs, Table};
use crate::serve::send_file::Outlet;

/// What became of an answer.
#[derive(Default)]
struct Sent {
    head: Option<Response<()>>,
    body: Vec<u8>,
    /// The client wants no more after the head and so many bytes.
    unwanted_after: Option<usize>,
    is_finished: bool,
}

impl Outlet for Sent {
    async fn writable(&mut self) -> Result<usize, Refusal> {
        Ok(1000)
    }

    async fn stopped(&mut self) -> Refusal {
        std::future::pending().await
    }

    fn is_cancelled(&mut self) -> bool {
        let unwanted_after = self.unwanted_after.unwrap_or(usize::MAX);
        self.head.is_some() && self.body.len() >= unwanted_after
    }

    async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
        self.body.extend_from_slice(&piece.split_off(0));
        Ok(())
    }
}

impl Exchange for Sent {
    fn protocol(&self) -> &'static str {
        "HTTP/9"
    }

    async fn head(&mut self, head: Response<()>) -> Result<(), Refusal> {
        self.head = Some(head);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        self.is_finished = true;
        Ok(())
    }

    async fn present(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
}

struct Body(Option<Bytes>);

impl RequestBody for Body {
    async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
        Ok(self.0.take())
    }
}

/// A server of a directory that takes files, and its log.
fn session(directory: &std::path::Path, log: &std::path::Path) -> Session {
    let address = [192, 0, 2, 1].into();
    let source = Directory::new(directory, false).unwrap();
    let log = AccessLog::open(log, Format::Common).unwrap();
    Session {
        source: Arc::new(source.max_upload(Some(1000))),
        limits: limits::Client::new(Shared::new(Limits::default()), address).unwrap(),
        observer: Observer::new(Some(log)),
        client: address,
        rights: Arc::new(Rights::open()),
        caller: Caller::default(),
    }
}

fn request(method: &str, target: &str, fields: &[(http::HeaderName, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(name, *value);
    }
    request.body(()).unwrap()
}

/// What a line says behind the date, of each request.
fn lines(session: &Session, log: &std::path::Path) -> Vec<String> {
    session.observer.finish();
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| line.split_once("] ").unwrap().1);
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn status_and_sent_bytes_are_logged() {
    let directory = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    fs::write(directory.path().join("file"), "12345").unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    let session = session(directory.path(), log.path());
    let tag = {
        let file = fs::metadata(directory.path().join("file")).unwrap();
        Version::new(&FileState::of(&file)).etag().unwrap()
    };
    let same = [(IF_NONE_MATCH, tag.to_str().unwrap())];
    let listed = [(ACCEPT, "text/html, application/json;q=1")];
    let all = [
        ("GET", "/file?query", &[][..], 200, "12345", 5),
        ("HEAD", "/file", &[], 200, "", 0),
        ("GET", "/file", &same, 304, "", 0),
        ("GET", "/file", &[(RANGE, "bytes=1-2")], 206, "23", 2),
        (
            "GET",
            "/file",
            &[(RANGE, "bytes=5-")],
            416,
            "the file is shorter\n",
            20,
        ),
        ("GET", "/sub/", &listed, 200, "[]", 2),
        ("HEAD", "/sub/", &listed, 200, "", 0),
        (
            "GET",
            "/sub",
            &[],
            301,
            "see the same path with a slash\n",
            31,
        ),
        ("GET", "/none", &[], 404, "not found\n", 10),
        ("GET", "/%zz", &[], 400, "the path is not valid\n", 22),
        ("PUT", "/new", &[], 201, "stored\n", 7),
        ("PUT", "/new", &[], 204, "", 0),
        ("MKCOL", "/made", &[], 201, "stored\n", 7),
        (
            "BREW",
            "/file",
            &[],
            405,
            "only GET, HEAD, PUT, PATCH and MKCOL\n",
            37,
        ),
    ];
    let mut expected = Vec::new();
    for (method, target, fields, status, body, bytes) in all {
        let (mut sent, mut upload) = (Sent::default(), Body(Some("content".into())));
        let request = request(method, target, fields);
        answer(&session, &request, &mut sent, &mut upload)
            .await
            .unwrap();
        let head = sent.head.unwrap();
        let told = (
            head.status().as_u16(),
            String::from_utf8(sent.body).unwrap(),
        );
        assert_eq!(told, (status, body.to_owned()), "{method} {target}");
        assert!(sent.is_finished && head.headers().contains_key(DATE));
        expected.push(format!("\"{method} {target} HTTP/9\" {status} {bytes}"));
    }
    // A cancelled answer has no status, and the bytes of its beginning.
    fs::write(directory.path().join("file"), [0; 40_000]).unwrap();
    for (unwanted_after, bytes) in [(0, 0), (1, 16 << 10)] {
        let mut unwanted = Sent {
            unwanted_after: Some(unwanted_after),
            ..Sent::default()
        };
        let request = request("GET", "/file", &[]);
        let answered = answer(&session, &request, &mut unwanted, &mut Body(None)).await;
        let told = (answered, unwanted.is_finished, unwanted.body.len());
        assert_eq!(told, (Err(Refusal::Cancelled), false, bytes));
        expected.push(format!("\"GET /file HTTP/9\" - {bytes}"));
    }
    assert_eq!(lines(&session, log.path()), expected);
}

#[tokio::test]
async fn users_have_rights_and_others_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let users = directory.path().join("users");
    fs::write(&users, "basic alice:wonderland\nbasic bob:builder").unwrap();
    fs::create_dir(directory.path().join("alice")).unwrap();
    let mut session = session(directory.path(), log.path());
    let rules = ["users:r:/", "alice:rw:/alice/"];
    let args = RightsArgs {
        credentials: Some(users),
        allow: rules.map(|rule| rule.parse().unwrap()).to_vec(),
        has_certificates: false,
    };
    session.rights = Arc::new(Rights::new(Table::read(&args, true).unwrap()));
    let shown = |text: &str| {
        let credential: mpquic_proxy::Credential = text.parse().unwrap();
        credential.to_field().to_str().unwrap().to_owned()
    };
    let [alice, bob, wrong] = [
        "basic alice:wonderland",
        "basic bob:builder",
        "basic bob:guess",
    ]
    .map(shown);
    for (method, shown, expected) in [
        ("PUT", &alice, 201),
        ("GET", &alice, 200),
        ("GET", &bob, 200),
        ("PUT", &bob, 403),
        ("GET", &wrong, 401),
        ("PUT", &String::new(), 401),
    ] {
        let (mut sent, mut upload) = (Sent::default(), Body(Some("content".into())));
        let fields = [(http::header::AUTHORIZATION, shown.as_str())];
        let fields = if shown.is_empty() { &[][..] } else { &fields };
        let request = request(method, "/alice/file", fields);
        answer(&session, &request, &mut sent, &mut upload)
            .await
            .unwrap();
        let head = sent.head.unwrap();
        assert_eq!(head.status().as_u16(), expected, "{method} {shown}");
        let asked = head.headers().get_all(WWW_AUTHENTICATE).iter().count();
        assert_eq!(asked, if expected == 401 { 2 } else { 0 });
    }
    session.observer.finish();
    let text = fs::read_to_string(log.path()).unwrap();
    let users: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    assert_eq!(users, ["alice", "alice", "bob", "bob", "-", "-"]);
}

/// Files that the server's user may not read.
struct Private;

impl Source for Private {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        Err(OpenError::Io(std::io::ErrorKind::PermissionDenied.into()))
    }
}

#[tokio::test]
async fn a_file_that_the_server_may_not_read_is_forbidden() {
    let directory = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut session = session(directory.path(), log.path());
    session.source = Arc::new(Private);
    let (mut sent, mut upload) = (Sent::default(), Body(None));
    let request = request("GET", "/file", &[]);
    answer(&session, &request, &mut sent, &mut upload)
        .await
        .unwrap();
    assert_eq!(sent.head.unwrap().status(), StatusCode::FORBIDDEN);
}

/// A page from a client must not act for its readers on the server's other pages.
#[tokio::test]
async fn browsers_open_files_of_clients_in_a_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    for name in ["page.html", "index.html", "picture.svg", "paper.pdf"] {
        fs::write(directory.path().join(name), "<script>").unwrap();
    }
    let mut session = session(directory.path(), log.path());
    for (takes_files, target, expected) in [
        (true, "/page.html", Some("sandbox")),
        (true, "/", Some("sandbox")),
        (true, "/picture.svg", Some("sandbox")),
        (true, "/paper.pdf", None),
        (false, "/page.html", None),
        (false, "/", None),
    ] {
        let source = Directory::new(directory.path(), false).unwrap();
        session.source = Arc::new(source.max_upload(takes_files.then_some(1000)));
        let (mut sent, mut upload) = (Sent::default(), Body(None));
        let request = request("GET", target, &[]);
        answer(&session, &request, &mut sent, &mut upload)
            .await
            .unwrap();
        let head = sent.head.unwrap();
        let policy = head.headers().get(CONTENT_SECURITY_POLICY);
        let policy = policy.map(|policy| policy.to_str().unwrap());
        assert_eq!(policy, expected, "{takes_files} {target}");
        assert_eq!(head.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}

#[test]
fn a_slash_is_added_and_no_other_host_is_named() {
    for (path, expected) in [
        ("/a", "/a/"),
        ("//example.com", "/example.com/"),
        ("/a%20b//c", "/a%20b/c/"),
        ("/%2f%2fx", "/%2F%2Fx/"),
    ] {
        assert_eq!(with_slash(path), expected);
    }
}

#[test]
fn media_types_of_names() {
    for (path, expected) in [
        ("/a.html", "text/html; charset=utf-8"),
        ("/", "text/html; charset=utf-8"),
        ("/x/A.TXT", "text/plain; charset=utf-8"),
        ("/a%2ejson", "application/json"),
        ("/a.png", "image/png"),
        ("/video.mp4", "video/mp4"),
        ("/none", "application/octet-stream"),
        ("/.html", "application/octet-stream"),
    ] {
        assert_eq!(media_type(path), expected, "{path}");
    }
}

/// The field and the words name the same methods, and each of these methods has another answer.
#[tokio::test]
async fn a_refused_method_is_told_which_methods_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let users = directory.path().join("users");
    fs::write(&users, "basic alice:wonderland").unwrap();
    for name in ["alice", "alice/sub"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    fs::write(directory.path().join("alice/file"), "").unwrap();
    let mut session = session(directory.path(), log.path());
    let ask = async |session: &Session, method, target: &str, fields: &[_]| {
        let (mut sent, mut body) = (Sent::default(), Body(Some("content".into())));
        let request = request(method, target, fields);
        answer(session, &request, &mut sent, &mut body)
            .await
            .unwrap();
        let head = sent.head.unwrap();
        let field = |name| {
            head.headers()
                .get(name)
                .map(|it| it.to_str().unwrap().to_owned())
        };
        let told = String::from_utf8(sent.body).unwrap();
        (
            head.status().as_u16(),
            field(ALLOW),
            field(ACCEPT_PATCH),
            told,
        )
    };
    let (status, allowed, _, told) = ask(&session, "BREW", "/new", &[]).await;
    assert_eq!(status, 405);
    let allowed = allowed.unwrap();
    let (most, last) = allowed.rsplit_once(", ").unwrap();
    assert_eq!(told, format!("only {most} and {last}\n"));
    for method in allowed.split(", ") {
        let (status, ..) = ask(&session, method, &format!("/{method}"), &[]).await;
        assert_ne!(status, 405, "{method}");
    }
    let (status, allowed, kinds, _) = ask(&session, "PATCH", "/alice/file", &[]).await;
    assert_eq!((status, allowed), (415, None));
    assert_eq!(kinds.unwrap(), format!("{ATTRIBUTES}, {PARTIAL}"));
    let changes = [(CONTENT_TYPE, ATTRIBUTES)];
    assert_eq!(ask(&session, "PATCH", "/alice/file", &changes).await.0, 204);

    // MKCOL is not for what is there already, and the other methods need rights.
    let args = RightsArgs {
        credentials: Some(users),
        allow: vec!["alice:rw:/alice/".parse().unwrap()],
        ..RightsArgs::default()
    };
    session.rights = Arc::new(Rights::new(Table::read(&args, true).unwrap()));
    let alice: mpquic_proxy::Credential = "basic alice:wonderland".parse().unwrap();
    let alice = alice.to_field();
    let alice = [(http::header::AUTHORIZATION, alice.to_str().unwrap())];
    for (target, expected) in [
        ("/alice/file", "GET, HEAD, PUT, PATCH"),
        ("/alice/sub/", "GET, HEAD, PATCH"),
        ("/alice/", "GET, HEAD"),
    ] {
        let (status, allowed, ..) = ask(&session, "MKCOL", target, &alice).await;
        assert_eq!(
            (status, allowed.as_deref()),
            (405, Some(expected)),
            "{target}"
        );
    }
}
