//! PUT: a file from a client (RFC 9110 section 9.3.4). MKCOL: a directory for some.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};

use crate::files::attributes::ATTRIBUTES;
use crate::files::resuming;
use crate::files::unfinished::Token;
use crate::files::upload::UploadError;
use crate::files::{Sent, Source};
use crate::serve::change::{Client, RequestBody, Taken, blocking, refused};
use crate::serve::limits::OpenFile;
use crate::serve::receiving::{resume, take, take_rest};
use crate::serve::rights::Deed;
use crate::serve::send_file::{Exchange, Refusal};

/// The method that makes a directory.
const MKCOL: &str = "MKCOL";

/// A request that changes something.
pub(crate) enum Change {
    /// PUT
    File,
    /// MKCOL
    Directory,
    /// PATCH: the rest of a file.
    Rest(Token),
    /// PATCH: time and permissions of what is there.
    Attributes,
    /// HEAD: nothing changes, but whoever sends the file has broken off.
    Look(Token),
}

impl Change {
    /// What a request changes; `None` if it only reads.
    pub(crate) fn of(request: &Request<()>) -> Option<Self> {
        let token = || resuming::token_of(request.uri());
        let kind = request.headers().get(CONTENT_TYPE);
        let has_attributes = kind.is_some_and(|kind| kind.as_bytes() == ATTRIBUTES.as_bytes());
        match *request.method() {
            Method::PUT => Some(Self::File),
            Method::PATCH if has_attributes => Some(Self::Attributes),
            Method::PATCH => token().map(Self::Rest),
            Method::HEAD => token().map(Self::Look),
            ref method => (method.as_str() == MKCOL).then_some(Self::Directory),
        }
    }

    /// The right that the change needs.
    pub(crate) fn deed(&self) -> Deed {
        match self {
            Self::Directory => Deed::Make,
            Self::File | Self::Rest(_) | Self::Attributes | Self::Look(_) => Deed::Write,
        }
    }

    pub(crate) async fn run(
        &self,
        client: Client<'_>,
        request: &Request<()>,
        (exchange, body): (&mut impl Exchange, &mut impl RequestBody),
        open: &OpenFile,
    ) -> Result<Taken, Refusal> {
        let body = &mut Counted { body, open };
        match self {
            Self::File => take(client, request, exchange, body).await,
            // RFC 4918 section 9.3
            Self::Directory => {
                client.session.limits.progress(exchange.present()).await??;
                at_once(client, request, true, Source::make_directory).await
            }
            Self::Attributes => {
                client.session.limits.progress(exchange.present()).await??;
                at_once(client, request, false, Source::set_attributes).await
            }
            Self::Rest(token) => take_rest(client, request, token, (exchange, body)).await,
            Self::Look(token) => match resume(client, request, token).await {
                Ok(upload) if upload.is_kept() => {
                    Ok(Taken::Part(StatusCode::NO_CONTENT, upload.length()))
                }
                Ok(_) => refused(UploadError::Unknown),
                Err(error) => refused(error),
            },
        }
    }
}

/// A body that counts as use of an open file, and ends when other clients need the file more.
struct Counted<'a, B> {
    body: &'a mut B,
    open: &'a OpenFile,
}

impl<B: RequestBody> RequestBody for Counted<'_, B> {
    async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
        let data = self.open.keep(self.body.data()).await?;
        self.open.on_bytes(data.as_ref().map_or(0, Bytes::len));
        Ok(data)
    }
}

/// Makes or changes something that needs no body. `is_new` tells whether it was not there before.
async fn at_once(
    client: Client<'_>,
    request: &Request<()>,
    is_new: bool,
    change: fn(&(dyn Source + 'static), &str, Sent) -> Result<(), UploadError>,
) -> Result<Taken, Refusal> {
    let (source, path) = (
        client.session.source.clone(),
        request.uri().path().to_owned(),
    );
    let sent = client.sent(request);
    match blocking(move || change(&*source, &path, sent)).await {
        Ok(()) => Ok(Taken::Stored { is_new, etag: None }),
        Err(error) => refused(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs;
    use std::sync::Arc;

    use std::io::{self, ErrorKind};

    use http::header::{AUTHORIZATION, IF_MATCH, IF_NONE_MATCH};
    use http::{HeaderValue, Response, Uri};
    use tokio::sync::oneshot;

    use super::*;
    use crate::files::resuming::PARTIAL;
    use crate::files::upload::Upload;
    use crate::files::{Directory, OpenError};
    use crate::serve::limits::{self, Limits, Shared};
    use crate::serve::observer::Observer;
    use crate::serve::receiving::BATCH;
    use crate::serve::rights::{Caller, Rights, RightsArgs, Since, Table};
    use crate::serve::send_file::{Outlet, Session};

    /// A body that comes in these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl RequestBody for Pieces {
        async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
            Ok(self.0.pop_front())
        }
    }

    /// A body that breaks off.
    struct Broken(Pieces);

    impl RequestBody for Broken {
        async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
            let data = self.0.data().await?;
            data.map(Some).ok_or(Refusal::Gone)
        }
    }

    /// What is said before the answer.
    #[derive(Default)]
    struct Interim(Vec<Response<()>>);

    impl Outlet for Interim {
        async fn writable(&mut self) -> Result<usize, Refusal> {
            Ok(1)
        }

        async fn stopped(&mut self) -> Refusal {
            std::future::pending().await
        }

        fn is_cancelled(&mut self) -> bool {
            false
        }

        async fn write_some(&mut self, _: &mut Bytes) -> Result<(), Refusal> {
            Err(Refusal::Failed)
        }
    }

    impl Exchange for Interim {
        fn protocol(&self) -> &'static str {
            "HTTP/9"
        }

        fn has_interim(&self) -> bool {
            true
        }

        async fn head(&mut self, head: Response<()>) -> Result<(), Refusal> {
            self.0.push(head);
            Ok(())
        }

        async fn finish(&mut self) -> Result<(), Refusal> {
            Ok(())
        }

        async fn present(&mut self) -> Result<(), Refusal> {
            Ok(())
        }
    }

    /// A directory that takes files of up to a megabyte.
    fn session(directory: &tempfile::TempDir) -> Session {
        let address = [192, 0, 2, 1].into();
        let source = Directory::new(directory.path(), false).unwrap();
        Session {
            source: Arc::new(source.max_upload(Some(MOST as u64))),
            limits: limits::Client::new(Shared::new(Limits::default()), address).unwrap(),
            observer: Observer::new(None),
            client: address,
            rights: Arc::new(Rights::open()),
            caller: Caller::default(),
        }
    }

    const MOST: usize = 1 << 20;

    /// A client without a user.
    fn stranger<'a>(session: &'a Session, since: &'a Since) -> Client<'a> {
        Client {
            session,
            user: None,
            since,
        }
    }

    /// A body of four bytes, with a wait before the first byte.
    struct Held {
        begun: Option<oneshot::Sender<()>>,
        go_on: Option<oneshot::Receiver<()>>,
    }

    impl RequestBody for Held {
        async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
            let Some(go_on) = self.go_on.take() else {
                return Ok(None);
            };
            let _ = self.begun.take().map(|begun| begun.send(()));
            let _ = go_on.await;
            Ok(Some("late".into()))
        }
    }

    /// Status of the answer to a file whose upload begins before `meanwhile` and ends after it.
    async fn put_around<T>(
        session: &Session,
        (name, value): (&str, &HeaderValue),
        meanwhile: impl Future<Output = T>,
    ) -> (u16, T) {
        let request = Request::put("/file").header(name, value).body(()).unwrap();
        let (begun, has_begun) = oneshot::channel();
        let (go, go_on) = oneshot::channel();
        let mut body = Held {
            begun: Some(begun),
            go_on: Some(go_on),
        };
        let (since, mut interim) = (session.rights.now(), Interim::default());
        let client = stranger(session, &since);
        let (taken, done) = tokio::join!(take(client, &request, &mut interim, &mut body), async {
            has_begun.await.unwrap();
            let done = meanwhile.await;
            go.send(()).unwrap();
            done
        });
        (taken.unwrap().status().as_u16(), done)
    }

    /// Status and text of the answer to a file in pieces of these sizes.
    async fn put(session: &Session, fields: &[(&str, &str)], sizes: &[usize]) -> (u16, String) {
        let mut request = Request::put("/file");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let pieces = sizes.iter().map(|size| vec![b'x'; *size].into());
        let mut body = Pieces(pieces.collect());
        let request = request.body(()).unwrap();
        let (since, mut interim) = (session.rights.now(), Interim::default());
        let taken = take(stranger(session, &since), &request, &mut interim, &mut body)
            .await
            .unwrap();
        assert!(interim.0.is_empty());
        (
            taken.status().as_u16(),
            taken.told().unwrap_or_default().into_owned(),
        )
    }

    #[tokio::test]
    async fn files_are_taken_whole_and_up_to_a_size() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let length = || fs::metadata(directory.path().join("file")).map_or(0, |file| file.len());
        let most = MOST.to_string();
        let stored = |told: &str| told.to_owned();
        // The sizes of pieces do not matter, nor whether the length is known before.
        let answer = put(&session, &[], &[1, BATCH - 2, 1, 5, 7]).await;
        assert_eq!(
            (answer, length()),
            ((201, stored("stored\n")), BATCH as u64 + 12)
        );
        let answer = put(&session, &[("content-length", &most)], &[MOST]).await;
        assert_eq!((answer, length()), ((204, String::new()), MOST as u64));
        assert_eq!(put(&session, &[], &[]).await.0, 204);
        assert_eq!(length(), 0);

        let larger = (MOST + 1).to_string();
        for (fields, sizes, status, told) in [
            (
                &[("content-length", &*larger)][..],
                &[1][..],
                413,
                "the server takes files of up to 1 MiB\n",
            ),
            (
                &[],
                &[MOST, 1],
                413,
                "the server takes files of up to 1 MiB\n",
            ),
            (
                &[("content-length", "3")],
                &[2],
                400,
                "the file has another length than was announced\n",
            ),
            (
                &[("content-length", "3")],
                &[4],
                400,
                "the file has another length than was announced\n",
            ),
            (
                &[("content-length", "x")],
                &[1],
                400,
                "the length makes no sense\n",
            ),
            (
                &[("content-length", "1"), ("content-length", "1")],
                &[1],
                400,
                "the length makes no sense\n",
            ),
            (
                &[("content-range", "bytes 0-0/1")],
                &[1],
                400,
                "parts of files are not taken\n",
            ),
        ] {
            let answer = put(&session, fields, sizes).await;
            assert_eq!(answer, (status, told.to_owned()), "{fields:?}");
        }
        assert_eq!(length(), 0, "the one before is still there");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn parts_are_not_stored_as_files() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        for (fields, status) in [
            (&[("content-range", "bytes 0-0/1")][..], 400),
            (&[("upload-complete", "?1"), ("upload-offset", "1")], 400),
            (&[("upload-complete", "?0")], 501),
            (&[("upload-complete", "?0"), ("upload-length", "3")], 501),
            (&[("upload-length", "4")], 400),
            (&[("upload-length", "4"), ("content-length", "3")], 400),
            (&[("upload-length", "3"), ("upload-length", "3")], 400),
        ] {
            let answer = put(&session, fields, &[3]).await;
            assert_eq!(answer.0, status, "{fields:?}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        let whole = [
            ("upload-complete", "?1"),
            ("upload-offset", "0"),
            ("upload-length", "3"),
        ];
        assert_eq!(put(&session, &whole, &[3]).await.0, 201);
    }

    #[tokio::test]
    async fn upload_preconditions_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let new = (IF_NONE_MATCH.as_str(), "*");
        let known = (IF_MATCH.as_str(), "*");
        assert_eq!(put(&session, &[known], &[1]).await.0, 412);
        assert_eq!(put(&session, &[new], &[1]).await.0, 201);
        let refused = put(&session, &[new], &[1]).await;
        assert_eq!(refused, (412, "another version is there\n".to_owned()));
        assert_eq!(put(&session, &[known], &[1]).await.0, 204);
        let other = (IF_MATCH.as_str(), "\"other\"");
        assert_eq!(put(&session, &[other], &[1]).await.0, 412);
    }

    /// Of two uploads for one version of a file, the server stores the first upload.
    #[tokio::test]
    async fn conditions_hold_when_the_file_gets_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let there = || fs::read(directory.path().join("file")).unwrap();
        let any = HeaderValue::from_static("*");
        let new = (IF_NONE_MATCH.as_str(), &any);
        let other = [(IF_NONE_MATCH.as_str(), "*")];
        let other = put(&session, &other, &[3]);
        let (late, early) = put_around(&session, new, other).await;
        assert_eq!((late, early.0), (412, 201));
        assert_eq!(there(), b"xxx");

        let version = fs::metadata(directory.path().join("file")).unwrap();
        let version = crate::files::file_state::FileState::of(&version);
        let tag = crate::files::selection::Version::new(&version)
            .etag()
            .unwrap();
        let known = (IF_MATCH.as_str(), &tag);
        let other = [(IF_MATCH.as_str(), tag.to_str().unwrap())];
        let (late, early) = put_around(&session, known, put(&session, &other, &[5])).await;
        assert_eq!((late, early.0), (412, 204));
        assert_eq!(there(), b"xxxxx");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        // Without another upload, the version is still there.
        let (alone, ()) = put_around(&session, (IF_MATCH.as_str(), &any), async {}).await;
        assert_eq!((alone, &*there()), (204, &b"late"[..]));
    }

    #[tokio::test]
    async fn a_removed_user_stores_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let users = tempfile::NamedTempFile::new().unwrap();
        fs::write(users.path(), "basic alice:wonderland\nbasic bob:builder").unwrap();
        let args = RightsArgs {
            credentials: Some(users.path().to_owned()),
            ..RightsArgs::default()
        };
        let session = Session {
            rights: Arc::new(Rights::new(Table::read(&args, true).unwrap())),
            ..session(&directory)
        };
        let bob: mpquic_proxy::Credential = "basic bob:builder".parse().unwrap();
        let (name, bob) = (AUTHORIZATION.as_str(), bob.to_field());
        let read_again = async || session.rights.set(Table::read_again(&args).unwrap());
        let (kept, ()) = put_around(&session, (name, &bob), read_again()).await;
        assert_eq!(kept, 201);
        fs::write(users.path(), "basic alice:wonderland").unwrap();
        let (removed, ()) = put_around(&session, (name, &bob), read_again()).await;
        assert_eq!(removed, 403);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// A directory whose files the server's user may write, and not read.
    struct Unreadable(Directory);

    impl Source for Unreadable {
        fn open(&self, _: &str) -> Result<crate::files::Content, OpenError> {
            Err(io::Error::from(ErrorKind::PermissionDenied).into())
        }

        fn max_upload(&self) -> Option<u64> {
            Source::max_upload(&self.0)
        }

        fn upload(
            &self,
            path: &str,
            sent: Sent,
            token: Option<Token>,
        ) -> Result<Upload, UploadError> {
            self.0.upload(path, sent, token)
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let source = Directory::new(directory.path(), false).unwrap();
        let source = source.max_upload(Some(MOST as u64));
        let session = Session {
            source: Arc::new(Unreadable(source)),
            ..session(&directory)
        };
        fs::write(directory.path().join("file"), "old").unwrap();
        assert_eq!(put(&session, &[], &[5]).await.0, 204);
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"xxxxx");
        for name in [IF_MATCH, IF_NONE_MATCH] {
            let refused = put(&session, &[(name.as_str(), "\"1\"")], &[1]).await;
            let told = "the server cannot read the file that has that name\n";
            assert_eq!(refused, (403, told.to_owned()));
        }
    }

    /// The body is not read: nobody sends a large file in vain.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_name_that_is_too_long_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let path = format!("/{}", "x".repeat(300));
        let request = Request::put(&path).body(()).unwrap();
        let mut body = Pieces(VecDeque::from([vec![b'x'; 5].into()]));
        let (since, mut interim) = (session.rights.now(), Interim::default());
        let client = stranger(&session, &since);
        let taken = take(client, &request, &mut interim, &mut body).await;
        assert_eq!(taken.unwrap().status(), 414);
        assert_eq!(body.0.len(), 1);
        let made = at_once(client, &request, true, Source::make_directory).await;
        assert_eq!(made.unwrap().status(), 414);
    }

    #[tokio::test]
    async fn mkcol_makes_a_directory_once() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let make = async |path: &str| {
            let request = Request::get(path).body(()).unwrap();
            let since = session.rights.now();
            let client = stranger(&session, &since);
            let made = at_once(client, &request, true, Source::make_directory);
            let taken = made.await.unwrap();
            taken.status().as_u16()
        };
        assert_eq!(make("/new").await, 201);
        assert_eq!(make("/new").await, 405);
        assert_eq!(make("/a/b").await, 409);
        assert_eq!(make("/.new").await, 403);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn existing_files_get_other_attributes() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        for name in ["file", "other"] {
            fs::write(directory.path().join(name), "1").unwrap();
        }
        let before = fs::metadata(directory.path().join("other")).unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        for (path, status) in [
            ("/file", 204),
            ("/other/", 409),
            ("/sub/", 204),
            ("/none", 404),
            ("/", 403),
            ("/.hidden", 403),
            ("/..%2fout", 403),
            ("/../out", 409),
        ] {
            let request = Request::patch(path)
                .header(CONTENT_TYPE, ATTRIBUTES)
                .header("file-mode", "4753")
                .header("file-modified", "5.5");
            let request = request.body(()).unwrap();
            let change = Change::of(&request).unwrap();
            let open = session.limits.open_file(None).await.unwrap();
            let mut body = Pieces(VecDeque::new());
            let through = (&mut Interim::default(), &mut body);
            let since = session.rights.now();
            let taken = change.run(stranger(&session, &since), &request, through, &open);
            assert_eq!(taken.await.unwrap().status(), status, "{path}");
        }
        let after = fs::metadata(directory.path().join("other")).unwrap();
        assert_eq!(after.permissions(), before.permissions());
        assert_eq!(after.modified().ok(), before.modified().ok());
        for name in ["file", "sub"] {
            let there = fs::metadata(directory.path().join(name)).unwrap();
            assert_eq!(there.permissions().mode() & 0o7777, 0o753);
            let modified = crate::text::times::of_seconds("5.5");
            assert_eq!(there.modified().ok(), modified);
        }
        let other = Request::patch("/file").body(()).unwrap();
        assert!(Change::of(&other).is_none());
    }

    /// The client asks how much there is, and sends the rest.
    #[tokio::test]
    async fn interrupted_upload_is_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let run = async |request: Request<()>, interim: &mut Interim, body: &mut Broken| {
            let change = Change::of(&request).unwrap();
            let open = session.limits.open_file(None).await.unwrap();
            let since = session.rights.now();
            let client = stranger(&session, &since);
            change.run(client, &request, (interim, body), &open).await
        };
        let pieces = |sizes: &[usize]| {
            let pieces = sizes.iter().map(|size| vec![b'x'; *size].into());
            Broken(Pieces(pieces.collect()))
        };
        let begin = || {
            let request = Request::put("/file").header("upload-complete", "?1");
            request.header("content-length", MOST).body(()).unwrap()
        };
        let mut interim = Interim::default();
        let sent = run(begin(), &mut interim, &mut pieces(&[BATCH, 10])).await;
        assert_eq!(sent.err(), Some(Refusal::Gone));
        let url: Uri = "https://host/file".parse().unwrap();
        let upload = resuming::offered(&url, &interim.0[0]).unwrap();
        assert!(!directory.path().join("file").exists());
        let there = BATCH as u64 + 10;
        let look = || Request::head(upload.clone()).body(()).unwrap();
        let looked = run(look(), &mut interim, &mut pieces(&[])).await.unwrap();
        assert!(matches!(looked, Taken::Part(StatusCode::NO_CONTENT, length) if length == there));
        let rest = |upload: &Uri, offset: u64| {
            let request = Request::patch(upload.clone()).header("content-type", PARTIAL);
            let request = request.header("upload-offset", offset);
            request.header("upload-complete", "?1").body(()).unwrap()
        };
        let other = run(rest(&upload, 1), &mut interim, &mut pieces(&[]))
            .await
            .unwrap();
        assert!(matches!(other, Taken::Part(StatusCode::CONFLICT, length) if length == there));
        // A rest that is too short completes no file.
        let mut short = rest(&upload, there);
        short.headers_mut().insert("content-length", 5.into());
        let short = run(short, &mut interim, &mut pieces(&[5])).await.unwrap();
        assert_eq!(short.status(), StatusCode::BAD_REQUEST);
        assert!(!directory.path().join("file").exists());
        let left = MOST - BATCH - 10;
        let mut body = Pieces(VecDeque::from([vec![b'y'; left].into()]));
        let (request, change) = (
            rest(&upload, there),
            Change::of(&rest(&upload, there)).unwrap(),
        );
        let open = session.limits.open_file(None).await.unwrap();
        let through = (&mut interim, &mut body);
        let since = session.rights.now();
        let client = stranger(&session, &since);
        let taken = change.run(client, &request, through, &open).await;
        assert_eq!(taken.unwrap().status(), StatusCode::CREATED);
        let stored = fs::read(directory.path().join("file")).unwrap();
        assert_eq!(stored.len(), MOST);
        assert!(stored[BATCH + 10..].iter().all(|byte| *byte == b'y'));
        let gone = run(look(), &mut interim, &mut pieces(&[])).await.unwrap();
        assert_eq!(gone.status(), StatusCode::NOT_FOUND);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);

        // Of an upload that broke off at once, nothing is kept.
        let sent = run(begin(), &mut interim, &mut pieces(&[10])).await;
        assert_eq!(sent.err(), Some(Refusal::Gone));
        let upload = resuming::offered(&url, &interim.0[1]).unwrap();
        let look = Request::head(upload).body(()).unwrap();
        let gone = run(look, &mut interim, &mut pieces(&[])).await.unwrap();
        assert_eq!(gone.status(), StatusCode::NOT_FOUND);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);

        // A rest that announces no length must have the length of the first request.
        let sent = run(begin(), &mut interim, &mut pieces(&[BATCH, 10])).await;
        assert_eq!(sent.err(), Some(Refusal::Gone));
        let upload = resuming::offered(&url, &interim.0[2]).unwrap();
        let rest = rest(&upload, there);
        let mut body = Pieces(VecDeque::from([vec![b'z'; 5].into()]));
        let through = (&mut interim, &mut body);
        let change = Change::of(&rest).unwrap();
        let short = change.run(client, &rest, through, &open).await;
        assert_eq!(short.unwrap().status(), StatusCode::BAD_REQUEST);
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), stored);
    }
}
