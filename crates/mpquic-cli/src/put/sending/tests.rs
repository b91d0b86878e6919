//! Tests of how a file is sent.

use std::io::{self, Read};
use std::path::Path;

use mpquic_tokio::{Endpoint, SendStream};

use super::*;
use crate::client::session::Purpose;
use crate::demo::relay::Relay;
use crate::files::unfinished::Token;
use crate::files::upload::{Place, Upload, UploadError};
use crate::files::{Content, Directory, OpenError, Sent, Source};
use crate::process::screen::tests::Heard;
use crate::rate::Rate;
use crate::serve::Service;
use crate::serve::limits::Limits;
use crate::testing::{Served, soon};

/// Takes its time before it takes a file.
struct Slow {
    time: Duration,
    directory: tempfile::TempDir,
}

impl Source for Slow {
    fn open(&self, _: &str) -> Result<Content, OpenError> {
        Err(OpenError::NotFound)
    }

    fn max_upload(&self) -> Option<u64> {
        Some(1000)
    }

    fn upload(&self, _: &str, _: Sent, _: Option<Token>) -> Result<Upload, UploadError> {
        std::thread::sleep(self.time);
        let place = Place::new(self.directory.path(), "file".as_ref())?;
        Upload::create(place, None)
    }
}

fn sending<'a>(sessions: &'a Sessions<'a>, stall: Duration) -> Sending<'a> {
    Sending {
        sessions,
        secrets: crate::client::secrets::Secrets::default(),
        retry: Duration::from_secs(60),
        stall,
        quiet: false,
        pace: None,
        notes: None,
        unfinished: Unfinished::default(),
        total: Total::default(),
        told: AtomicU64::new(0),
    }
}

/// A server may be silent for a while, and then for too long.
#[tokio::test]
async fn silent_server_is_awaited_for_the_stall_timeout() {
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), "content").unwrap();
    for (wait, stall, is_sent) in [(350, 20_000, true), (1500, 300, false)] {
        let slow = Slow {
            time: Duration::from_millis(wait),
            directory: tempfile::tempdir().unwrap(),
        };
        let there = slow.directory.path().join("file");
        let served = Served::start(slow, Limits::default(), Alpn::H3);
        let (url, reach) = (served.url("/file"), served.reach(&[]));
        let look = Purpose::look(&url, &[Alpn::H3]);
        let sessions = Sessions::new(&reach, look).unwrap().that_forget();
        let mut sending = sending(&sessions, Duration::from_millis(stall));
        sending.retry = Duration::ZERO;
        let item = Item {
            file: Some(source.path().into()),
            url: url.clone(),
            found: None,
        };
        let sent = soon(sending.send_file(&item)).await;
        if is_sent {
            let report = sent.unwrap();
            assert_eq!((report.bytes, report.retries), (7, 0));
            assert_eq!(std::fs::read(there).unwrap(), b"content");
            assert_eq!(sending.total.bytes.load(Relaxed), 7);
        } else {
            let failure = sent.unwrap_err();
            assert_eq!(failure.message(), "the server sent nothing for 0 s");
            // The file would have to be sent again.
            assert_eq!(sending.total.bytes.load(Relaxed), 0);
        }
    }
}

/// The first retry is reported; and only temporary failures are retried.
#[tokio::test(start_paused = true)]
async fn only_temporary_failures_are_retried() {
    let url = Uri::from_static("https://host/file");
    let reach = crate::testing::reach(&["--insecure"]);
    let look = Purpose::look(&url, &[Alpn::H3]);
    let sessions = Sessions::new(&reach, look).unwrap().that_forget();
    let mut sending = sending(&sessions, Duration::from_secs(1));
    let unsent = |is_temporary| Unsent {
        is_refused: false,
        status: None,
        failure: Cause::Broken.failed("lost"),
        is_temporary,
    };
    let heard = Heard::begin();
    let mut tries = Tries::new(sending.retry);
    let next = sending.next_try(&mut tries, unsent(true), &url, true);
    assert_eq!(next.await.unwrap_err().message(), "lost", "never connected");
    sessions.reached.note(url.authority().unwrap());
    tries.connection = 1;
    for (is_temporary, may_repeat) in [(false, true), (true, false)] {
        let next = sending.next_try(&mut tries, unsent(is_temporary), &url, may_repeat);
        assert!(next.await.is_err());
    }
    assert_eq!(heard.take(), ["", ""]);
    let began = tokio::time::Instant::now();
    for (millis, said) in [
        (250, "mpquic: https://host/file: lost; trying again\n"),
        (750, ""),
    ] {
        let next = sending.next_try(&mut tries, unsent(true), &url, true);
        next.await.unwrap();
        assert_eq!(heard.take(), ["", said]);
        assert_eq!(began.elapsed().as_millis() / 10, millis / 10);
    }
    sending.quiet = true;
    let mut tries = Tries::new(sending.retry);
    tries.connection = 1;
    let next = sending.next_try(&mut tries, unsent(true), &url, true);
    next.await.unwrap();
    assert_eq!(heard.take(), ["", ""]);
    assert_eq!(tries.retry.count, 1);
}

/// Requests of many files fail with their connection. An answer concerns its file alone.
#[tokio::test(start_paused = true)]
async fn the_break_of_a_connection_is_told_once() {
    let url = Uri::from_static("https://host/file");
    let reach = crate::testing::reach(&["--insecure"]);
    let look = Purpose::look(&url, &[Alpn::H3]);
    let sessions = Sessions::new(&reach, look).unwrap().that_forget();
    sessions.reached.note(url.authority().unwrap());
    let sending = sending(&sessions, Duration::from_secs(1));
    let lost = || Unsent::from(RequestError::Gone);
    let busy = || Unsent::from(RequestError::Status(StatusCode::SERVICE_UNAVAILABLE));
    let heard = Heard::begin();
    for (connection, failed, lines) in [
        (1, lost(), 1),
        (1, lost(), 0),
        (1, busy(), 1),
        (1, busy(), 1),
        (2, lost(), 1),
        // A request that began early fails late.
        (1, lost(), 0),
        (2, lost(), 0),
    ] {
        let mut tries = Tries::new(sending.retry);
        tries.connection = connection;
        let next = sending.next_try(&mut tries, failed, &url, true);
        next.await.unwrap();
        let [_, said] = heard.take();
        assert_eq!(said.lines().count(), lines, "{connection}: {said}");
    }
}

#[test]
fn an_answer_may_name_the_allowed_methods() {
    for (lists, expected) in [
        (&[][..], true),
        (&["GET, HEAD, PATCH"], true),
        (&["GET", "HEAD,PATCH"], true),
        (&["GET, HEAD"], false),
        (&[""], false),
        (&["GET, PATCHES"], false),
    ] {
        let mut fields = HeaderMap::new();
        for list in lists {
            fields.append(ALLOW, list.parse().unwrap());
        }
        assert_eq!(may_allow(&Method::PATCH, &fields), expected, "{lists:?}");
    }
}

/// Losses on the way are temporary; refusals are not.
#[test]
fn some_failures_are_temporary() {
    for (cause, is_temporary) in [
        (Cause::Name, true),
        (Cause::Connect, true),
        (Cause::Broken, true),
        (Cause::Refused, false),
        (Cause::Trust, false),
        (Cause::File, false),
    ] {
        let unsent = Unsent::from(cause.failed("x"));
        assert_eq!(unsent.is_temporary, is_temporary, "{cause:?}");
        assert_eq!(unsent.failure.message(), "x");
    }
    let stalled = Unsent::from(RequestError::Stalled(7));
    assert!(stalled.is_temporary && stalled.failure.message().contains("7 s"));
    let refused = Unsent::from(RequestError::Status(StatusCode::FORBIDDEN));
    assert!(!refused.is_temporary && refused.failure.message().contains("403"));
}

/// An answer of `mpquic serve` alone does not tell which option is missing.
#[test]
fn options_of_the_server_are_hinted_at() {
    let hinted = |status: u16, url: &'static str| {
        let status = StatusCode::from_u16(status).unwrap();
        hint(status, &Uri::from_static(url)).unwrap_or_default()
    };
    for url in [
        "https://host/a/.git/b",
        "https://host/.ssh",
        "https://host/...",
        "https://host/%2egit",
    ] {
        assert!(hinted(403, url).contains("--dot-files"), "{url}");
    }
    for url in [
        "https://host/a.b/c./..",
        "https://host/..%2fout",
        "https://host/.a%2fb",
        "https://host/.mpquic-put-1-2",
        "https://host/.git/.mpquic-put-1-2",
    ] {
        assert_eq!(hinted(403, url), "", "{url}");
    }
    assert!(hinted(409, "https://host/a/b").contains("put -r"));
    assert!(hinted(413, "https://host/a").contains("--max-put-size"));
    assert!(hinted(403, "https://host/a/b").contains("the server's user"));
    assert!(hinted(414, "https://host/a").contains("255 bytes"));
    assert!(hinted(405, "https://host/a").contains("--allow-put"));
    // The server's own words tell which limit it is.
    assert!(!hinted(413, "https://host/a").contains("1024"));
    assert_eq!(hinted(507, "https://host/.a"), "");
}

fn temporary(content: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

fn item_at(file: &Path, url: &Uri) -> Item {
    Item {
        file: Some(file.into()),
        url: url.clone(),
        found: None,
    }
}

/// A server's side of a connection, and of the request that came.
async fn request(server: &Endpoint) -> (Connection, SendStream, Vec<u8>) {
    let connection = server.accept().await.unwrap().await.unwrap();
    let (send, mut recv) = connection.accept_bi().await.unwrap();
    let request = recv.read_to_end(10_000).await.unwrap();
    (connection, send, request)
}

/// The first byte is progress, and so are bytes sent before a try fails at once: with a paused
/// clock nobody checks in between.
#[tokio::test(start_paused = true)]
async fn bytes_sent_before_a_failure_count() {
    let mut tries = Tries::new(Duration::ZERO);
    let later = tries.reached.at + Duration::from_secs(1);
    tries.reached.note(0, later);
    assert_ne!(tries.reached.at, later);
    tries.reached.note(1, later);
    assert_eq!(tries.reached.at, later);

    let (server, served, _) = Served::listen(Alpn::H3);
    let (url, reach) = (served.url("/file"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let sending = sending(&sessions, Duration::from_secs(20));
    let file = temporary(b"content");
    let item = item_at(file.path(), &url);
    let mut tries = Tries::new(Duration::ZERO);
    let began = tries.reached.at;
    let mut body = Input::open(&item).await.unwrap();
    let nothing = Remembered::new(None, &item.url, None, &sending.unfinished);
    let flow = Flow::new(&sending, &item, &nothing, &body);
    let lost = async {
        let (connection, _send, request) = request(&server).await;
        assert!(request.ends_with(b"content"));
        connection.close(0u32.into(), b"");
    };
    let tried = sending.attempt(&mut tries, &flow, &mut body);
    let (tried, ()) = soon(async { tokio::join!(tried, lost) }).await;
    assert!(tried.is_err_and(|unsent| unsent.is_temporary));
    assert!(tries.connection == 1 && tries.reached.at > began);
    assert_eq!(sending.total.bytes.load(Relaxed), 0);
}

/// After a failed try, the time of the last progress counts, not the time of the failure.
#[tokio::test]
async fn silence_is_no_step_forward() {
    let (server, served, _) = Served::listen(Alpn::H3);
    let (url, reach) = (served.url("/file"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let sending = sending(&sessions, Duration::from_millis(250));
    let file = temporary(b"content");
    let item = item_at(file.path(), &url);
    let mut tries = Tries::new(Duration::ZERO);
    let mut body = Input::open(&item).await.unwrap();
    let nothing = Remembered::new(None, &item.url, None, &sending.unfinished);
    let flow = Flow::new(&sending, &item, &nothing, &body);
    let silent = async {
        let _open = request(&server).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        tried = sending.attempt(&mut tries, &flow, &mut body) => {
            let told = tried.err().unwrap().failure;
            assert_eq!(told.message(), "the server sent nothing for 0 s");
        }
        () = silent => unreachable!("it does not end"),
    }
    let silence = clock::now() - tries.reached.at;
    assert!(silence >= sending.stall * 4 / 5, "{silence:?}");
}

/// A vanished server is given up long before a silent one.
#[tokio::test]
async fn vanished_server_is_noticed() {
    let (server, served, _) = Served::listen(Alpn::H3);
    let relay = Relay::start([127, 0, 0, 1].into(), served.address);
    let relay = relay.await.unwrap();
    let url: Uri = format!("https://{}/file", relay.address()).parse().unwrap();
    let reach = served.reach(&[]);
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let mut sending = sending(&sessions, Duration::from_secs(60));
    sending.retry = Duration::ZERO;
    let file = temporary(b"content");
    let item = item_at(file.path(), &url);
    let vanish = async {
        let _silent = request(&server).await;
        drop(relay);
        std::future::pending::<()>().await;
    };
    let sent = soon(async {
        tokio::select! {
            sent = sending.send_file(&item) => sent,
            () = vanish => unreachable!("it does not end"),
        }
    });
    let told = "the server is gone: nobody listens on its port";
    assert_eq!(sent.await.unwrap_err().message(), told);
}

/// A slow upload may take any time.
#[tokio::test]
async fn slow_upload_is_not_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let there = Directory::new(directory.path(), false).unwrap();
    let served = Served::start(there.max_upload(Some(1 << 20)), Limits::default(), Alpn::H3);
    let (url, reach) = (served.url("/file"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let mut sending = sending(&sessions, Duration::from_millis(300));
    sending.pace = Some(Pace::new(Rate::mbit(1)));
    let began = clock::now();
    let content = vec![7; 100_000];
    let file = temporary(&content);
    let sent = soon(sending.send_file(&item_at(file.path(), &url))).await;
    assert_eq!(sent.unwrap().retries, 0);
    assert!(clock::now() - began > 2 * sending.stall);
    assert_eq!(
        std::fs::read(directory.path().join("file")).unwrap(),
        content
    );
}

/// A slow reader.
struct Slowly(&'static [u8]);

impl Read for Slowly {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.0.is_empty() {
            std::thread::sleep(Duration::from_millis(700));
        }
        self.0.read(buf)
    }
}

#[tokio::test]
async fn waiting_for_input_notices_a_vanished_server() {
    let directory = tempfile::tempdir().unwrap();
    let there = Directory::new(directory.path(), false).unwrap();
    let served = Served::start(there.max_upload(Some(1000)), Limits::default(), Alpn::H3);
    let (url, reach) = (served.url("/file"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let sending = sending(&sessions, Duration::from_millis(350));
    let mut body = Input::of(Box::new(Slowly(b"content")));
    let item = Item {
        file: None,
        url: url.clone(),
        found: None,
    };
    let mut tries = Tries::new(Duration::ZERO);
    let nothing = Remembered::new(None, &item.url, None, &sending.unfinished);
    let flow = Flow::new(&sending, &item, &nothing, &body);
    let sent = soon(sending.attempt(&mut tries, &flow, &mut body)).await;
    assert!(
        sent.is_ok(),
        "{:?}",
        sent.err().map(|unsent| unsent.failure)
    );
    assert_eq!(
        std::fs::read(directory.path().join("file")).unwrap(),
        b"content"
    );
}

#[tokio::test]
async fn a_directory_is_asked_for_again_if_the_connection_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let there = Directory::new(directory.path(), false).unwrap();
    let service = Service::new(std::sync::Arc::new(there.max_upload(Some(1))));
    let (server, served, draining) = Served::listen(Alpn::H3);
    let (url, reach) = (served.url("/new/"), served.reach(&[]));
    let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
    let sessions = sessions.that_forget();
    let sending = sending(&sessions, Duration::from_secs(20));
    let serve = async {
        let (connection, _send, _) = request(&server).await;
        connection.close(0u32.into(), b"");
        service.accept(&served.endpoints, draining).await;
    };
    let new = crate::put::sources::Directory {
        depth: 0,
        url: url.clone(),
        here: None,
    };
    let heard = Heard::begin();
    let made = soon(async {
        tokio::select! {
            made = sending.make_directory(&new) => made,
            () = serve => unreachable!("it does not end"),
        }
    });
    assert_eq!(made.await.unwrap(), Made::New);
    assert!(directory.path().join("new").is_dir());
    let [_, said] = heard.take();
    assert!(said.ends_with("; trying again\n"), "{said}");
}
