//! PUT: a file from a client (RFC 9110 section 9.3.4). MKCOL: a directory for some.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap};
use http::{HeaderValue, Method, Request, StatusCode, response};

use crate::files::attributes::{ATTRIBUTES, Attributes};
use crate::files::file_state::FileState;
use crate::files::resuming::{self, PARTIAL};
use crate::files::selection::{Selection, Version};
use crate::files::unfinished::Token;
use crate::files::upload::{Upload, UploadError};
use crate::files::{OpenContent, OpenError, Sent, Source};
use crate::serve::limits::OpenFile;
use crate::serve::send_file::{Exchange, Refusal, Session};

/// The method that makes a directory.
const MKCOL: &str = "MKCOL";
/// Bytes collected before a thread writes them.
const BATCH: usize = 256 << 10;

/// What follows a request.
pub(crate) trait RequestBody: Send {
    /// Some of it, or `None` at its end.
    fn data(&mut self) -> impl Future<Output = Result<Option<Bytes>, Refusal>> + Send;
}

/// The client of a change.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) session: &'a Session,
    /// The user, if known.
    pub(crate) user: Option<&'a str>,
}

impl Client<'_> {
    /// Attributes and owner of the file in a request.
    fn sent(&self, request: &Request<()>) -> Sent {
        Sent {
            attributes: Attributes::of_fields(request.headers()),
            taker: Some(self.session.limits.taker(self.user)),
        }
    }
}

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
            Self::Directory => at_once(client, request, true, Source::make_directory).await,
            Self::Attributes => at_once(client, request, false, Source::set_attributes).await,
            Self::Rest(token) => take_rest(client, request, token, body).await,
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

/// What became of a file.
pub(crate) enum Taken {
    Stored {
        /// There was no file of this name before.
        is_new: bool,
        etag: Option<HeaderValue>,
    },
    /// So many bytes of it are there.
    Part(StatusCode, u64),
    Refused(StatusCode, &'static str),
}

impl Taken {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Stored { is_new: true, .. } => StatusCode::CREATED,
            Self::Stored { is_new: false, .. } => StatusCode::NO_CONTENT,
            Self::Part(status, _) | Self::Refused(status, _) => *status,
        }
    }

    pub(crate) fn add_fields(&self, response: response::Builder) -> response::Builder {
        match self {
            Self::Stored {
                etag: Some(etag), ..
            } => response.header(ETAG, etag),
            Self::Part(_, length) => resuming::add_offset(response, *length),
            _ => response,
        }
    }

    /// What people are told.
    pub(crate) fn told(&self) -> Option<&'static str> {
        match self {
            Self::Stored { is_new, .. } => is_new.then_some("stored\n"),
            Self::Part(status, _) => {
                (*status == StatusCode::CONFLICT).then_some("another part of the file is wanted\n")
            }
            Self::Refused(_, told) => Some(told),
        }
    }

    fn too_large() -> Self {
        Self::Refused(StatusCode::PAYLOAD_TOO_LARGE, "the file is too large\n")
    }
}

/// Receives the file that follows a request, and stores it.
async fn take(
    client: Client<'_>,
    request: &Request<()>,
    exchange: &mut impl Exchange,
    body: &mut impl RequestBody,
) -> Result<Taken, Refusal> {
    let (session, fields) = (client.session, request.headers());
    if fields.contains_key(CONTENT_RANGE) {
        // RFC 9110 section 14.5: it must not be taken for the whole.
        let told = "parts of files are not taken\n";
        return Ok(Taken::Refused(StatusCode::BAD_REQUEST, told));
    }
    let announced = match announced(fields) {
        Ok(announced) => announced,
        Err(refused) => return Ok(refused),
    };
    let most = session.source.max_upload().unwrap_or_default();
    if announced.is_some_and(|announced| announced > most) {
        return Ok(Taken::too_large());
    }
    let path = request.uri().path().to_owned();
    if let Some(refused) = precondition(session, &path, fields).await? {
        return Ok(refused);
    }
    let is_resumable = exchange.has_interim() && resuming::is_wanted(fields, announced);
    let token = is_resumable.then(Token::new).transpose()?;
    let (source, sent) = (session.source.clone(), client.sent(request));
    let (at, named) = (path.clone(), token.clone());
    let begun = blocking(move || source.upload(&at, sent, named)).await;
    let upload = match begun {
        Ok(upload) => upload,
        Err(error) => return refused(error),
    };
    if let Some(token) = token {
        let offer = resuming::offer(&path, &token).ok_or(Refusal::Failed)?;
        session.limits.progress(exchange.head(offer)).await??;
    }
    receive(session, body, upload, announced, most).await
}

/// Receives the rest of a file.
async fn take_rest(
    client: Client<'_>,
    request: &Request<()>,
    token: &Token,
    body: &mut impl RequestBody,
) -> Result<Taken, Refusal> {
    let (session, fields) = (client.session, request.headers());
    let kind = fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind != Some(PARTIAL.as_bytes()) {
        let told = "the rest of a file is application/partial-upload\n";
        return Ok(Taken::Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, told));
    }
    let Some(offset) = resuming::offset_of(fields).filter(|_| resuming::is_complete(fields)) else {
        let told = "Upload-Offset and Upload-Complete: ?1 are wanted\n";
        return Ok(Taken::Refused(StatusCode::BAD_REQUEST, told));
    };
    let announced = match announced(fields) {
        Ok(announced) => announced.map(|announced| announced.saturating_add(offset)),
        Err(refused) => return Ok(refused),
    };
    let most = session.source.max_upload().unwrap_or_default();
    let upload = match resume(client, request, token).await {
        Ok(upload) => upload,
        Err(error) => return refused(error),
    };
    if upload.length() != offset {
        return Ok(Taken::Part(StatusCode::CONFLICT, upload.length()));
    }
    if announced.is_some_and(|announced| announced > most) {
        upload.forget();
        return Ok(Taken::too_large());
    }
    receive(session, body, upload, announced, most).await
}

/// Takes an unfinished file from whoever writes it.
async fn resume(
    client: Client<'_>,
    request: &Request<()>,
    token: &Token,
) -> Result<Upload, UploadError> {
    let (source, path) = (
        client.session.source.clone(),
        request.uri().path().to_owned(),
    );
    let (sent, token) = (client.sent(request), token.clone());
    blocking(move || source.resume(&path, sent, &token)).await
}

/// Writes what comes, and gives the file its name at the end.
async fn receive(
    session: &Session,
    body: &mut impl RequestBody,
    mut upload: Upload,
    announced: Option<u64>,
    most: u64,
) -> Result<Taken, Refusal> {
    let mut ended = Ok(false);
    while let Ok(false) = ended {
        let mut batch = Vec::new();
        while batch.len() < BATCH && matches!(ended, Ok(false)) {
            let data = tokio::select! {
                data = session.limits.progress(body.data()) => data.unwrap_or_else(|stalled| Err(stalled.into())),
                // Its client goes on in another request.
                () = upload.taken() => Err(Refusal::Gone),
            };
            match data {
                Ok(Some(data)) => batch.extend_from_slice(&data),
                Ok(None) => ended = Ok(true),
                Err(refusal) => ended = Err(refusal),
            }
            if upload.length() + batch.len() as u64 > most {
                upload.forget();
                return Ok(Taken::too_large());
            }
        }
        let write = move || match upload.write(&batch) {
            Ok(()) => Ok(upload),
            Err(error) => {
                upload.forget();
                Err(error)
            }
        };
        upload = match blocking(write).await {
            Ok(upload) => upload,
            Err(error) => return refused(error),
        };
    }
    ended?;
    if announced.is_some_and(|announced| announced != upload.length()) {
        upload.forget();
        let told = "the file has another length than was announced\n";
        return Ok(Taken::Refused(StatusCode::BAD_REQUEST, told));
    }
    match blocking(move || upload.finish().map_err(UploadError::Io)).await {
        Ok((metadata, is_new)) => Ok(Taken::Stored {
            is_new,
            etag: Version::new(&FileState::of(&metadata)).etag(),
        }),
        Err(error) => refused(error),
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

/// The length that a client announces.
fn announced(fields: &HeaderMap) -> Result<Option<u64>, Taken> {
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => return Ok(None),
        (Some(length), None) => resuming::number(length),
        (Some(_), Some(_)) => None,
    };
    let told = "the length makes no sense\n";
    length
        .map(Some)
        .ok_or(Taken::Refused(StatusCode::BAD_REQUEST, told))
}

/// RFC 9110 section 13: what is there must be what the client expects.
async fn precondition(
    session: &Session,
    path: &str,
    fields: &HeaderMap,
) -> Result<Option<Taken>, Refusal> {
    // The server may be able to replace a file that it cannot read.
    if !Version::is_conditional(fields) {
        return Ok(None);
    }
    let opened = OpenContent::open(session.source.clone(), path.to_owned()).await;
    let version = match opened {
        Ok(content) => Some(Version::new(&content.state)),
        Err(OpenError::NotFound) => None,
        Err(OpenError::Io(error)) if error.kind() == ErrorKind::PermissionDenied => {
            let told = "the server cannot read the file that has that name\n";
            return Ok(Some(Taken::Refused(StatusCode::FORBIDDEN, told)));
        }
        Err(OpenError::Io(error)) => return Err(error.into()),
    };
    let holds = match version {
        Some(version) => matches!(version.select(&Method::PUT, fields), Selection::Whole),
        None => !fields.contains_key(http::header::IF_MATCH),
    };
    let told = "another version is there\n";
    Ok((!holds).then_some(Taken::Refused(StatusCode::PRECONDITION_FAILED, told)))
}

fn refused(error: UploadError) -> Result<Taken, Refusal> {
    let (status, told) = match error {
        UploadError::Forbidden => (StatusCode::FORBIDDEN, "that name cannot be written to\n"),
        UploadError::NoDirectory => (StatusCode::CONFLICT, "there is no such directory\n"),
        UploadError::IsDirectory => (StatusCode::CONFLICT, "a directory has that name\n"),
        UploadError::Unknown => (StatusCode::NOT_FOUND, "there is no such upload or file\n"),
        UploadError::Full => (
            StatusCode::INSUFFICIENT_STORAGE,
            "clients have stored as much as they may\n",
        ),
        // RFC 4918 section 9.3.1.
        UploadError::Exists => (StatusCode::METHOD_NOT_ALLOWED, "something has that name\n"),
        UploadError::Io(error) if error.kind() == ErrorKind::InvalidFilename => {
            (StatusCode::URI_TOO_LONG, "the name is too long\n")
        }
        UploadError::Io(error) => {
            tracing::warn!(%error, "writing a file");
            match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    (StatusCode::FORBIDDEN, "the server may not write there\n")
                }
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
                    StatusCode::INSUFFICIENT_STORAGE,
                    "there is no room for it\n",
                ),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "cannot write it\n"),
            }
        }
    };
    Ok(Taken::Refused(status, told))
}

/// Runs what may block on a thread for that.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, UploadError> + Send + 'static,
) -> Result<T, UploadError> {
    let result = tokio::task::spawn_blocking(run).await;
    result.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs;
    use std::sync::Arc;

    use http::header::{IF_MATCH, IF_NONE_MATCH};
    use http::{Response, Uri};

    use super::*;
    use crate::files::Directory;
    use crate::serve::limits::{self, Limits, Shared};
    use crate::serve::observer::Observer;
    use crate::serve::send_file::Outlet;

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
            rights: Arc::new(crate::serve::rights::Rights::open()),
            caller: crate::serve::rights::Caller::default(),
        }
    }

    const MOST: usize = 1 << 20;

    /// A client without a user.
    fn stranger(session: &Session) -> Client<'_> {
        Client {
            session,
            user: None,
        }
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
        let mut interim = Interim::default();
        let taken = take(stranger(session), &request, &mut interim, &mut body)
            .await
            .unwrap();
        assert!(interim.0.is_empty());
        (
            taken.status().as_u16(),
            taken.told().unwrap_or_default().to_owned(),
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
                "the file is too large\n",
            ),
            (&[], &[MOST, 1], 413, "the file is too large\n"),
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

    #[test]
    fn ordinary_errors_of_the_file_system_are_no_fault_of_the_server() {
        let status = |kind: ErrorKind| refused(io::Error::from(kind).into()).unwrap().status();
        assert_eq!(status(ErrorKind::PermissionDenied), 403);
        assert_eq!(status(ErrorKind::ReadOnlyFilesystem), 403);
        assert_eq!(status(ErrorKind::InvalidFilename), 414);
        assert_eq!(status(ErrorKind::StorageFull), 507);
        assert_eq!(status(ErrorKind::QuotaExceeded), 507);
        assert_eq!(status(ErrorKind::Other), 500);
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
        let (client, mut interim) = (stranger(&session), Interim::default());
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
            let made = at_once(stranger(&session), &request, true, Source::make_directory);
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
    async fn what_is_there_gets_other_attributes() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        fs::write(directory.path().join("file"), "1").unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        for (path, status) in [
            ("/file", 204),
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
            let taken = change.run(stranger(&session), &request, through, &open);
            assert_eq!(taken.await.unwrap().status(), status, "{path}");
        }
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
            let client = stranger(&session);
            change.run(client, &request, (interim, body), &open).await
        };
        let pieces = |sizes: &[usize]| {
            let pieces = sizes.iter().map(|size| vec![b'x'; *size].into());
            Broken(Pieces(pieces.collect()))
        };
        let request = Request::put("/file")
            .header("upload-complete", "?1")
            .header("content-length", MOST)
            .body(());
        let mut interim = Interim::default();
        let sent = run(request.unwrap(), &mut interim, &mut pieces(&[BATCH, 10])).await;
        assert_eq!(sent.err(), Some(Refusal::Gone));
        let url: Uri = "https://host/file".parse().unwrap();
        let upload = resuming::offered(&url, &interim.0[0]).unwrap();
        assert!(!directory.path().join("file").exists());
        let there = BATCH as u64 + 10;
        let look = || Request::head(upload.clone()).body(()).unwrap();
        let looked = run(look(), &mut interim, &mut pieces(&[])).await.unwrap();
        assert!(matches!(looked, Taken::Part(StatusCode::NO_CONTENT, length) if length == there));
        let rest = |offset: u64| {
            let request = Request::patch(upload.clone()).header("content-type", PARTIAL);
            let request = request.header("upload-offset", offset);
            request.header("upload-complete", "?1").body(()).unwrap()
        };
        let other = run(rest(1), &mut interim, &mut pieces(&[])).await.unwrap();
        assert!(matches!(other, Taken::Part(StatusCode::CONFLICT, length) if length == there));
        let mut body = Pieces(VecDeque::from([vec![b'y'; 5].into()]));
        let (request, change) = (rest(there), Change::of(&rest(there)).unwrap());
        let open = session.limits.open_file(None).await.unwrap();
        let through = (&mut interim, &mut body);
        let taken = change
            .run(stranger(&session), &request, through, &open)
            .await;
        assert_eq!(taken.unwrap().status(), StatusCode::CREATED);
        let stored = fs::read(directory.path().join("file")).unwrap();
        assert_eq!(
            (stored.len() as u64, &stored[BATCH + 10..]),
            (there + 5, &b"yyyyy"[..])
        );
        let gone = run(look(), &mut interim, &mut pieces(&[])).await.unwrap();
        assert_eq!(gone.status(), StatusCode::NOT_FOUND);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);

        // Of an upload that broke off at once, nothing is kept.
        let request = Request::put("/file")
            .header("upload-complete", "?1")
            .header("content-length", MOST)
            .body(());
        let sent = run(request.unwrap(), &mut interim, &mut pieces(&[10])).await;
        assert_eq!(sent.err(), Some(Refusal::Gone));
        let upload = resuming::offered(&url, &interim.0[1]).unwrap();
        let look = Request::head(upload).body(()).unwrap();
        let gone = run(look, &mut interim, &mut pieces(&[])).await.unwrap();
        assert_eq!(gone.status(), StatusCode::NOT_FOUND);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
