//! PUT: a file from a client (RFC 9110 section 9.3.4). MKCOL: a directory for some.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap};
use http::{HeaderValue, Method, Request, StatusCode};

use crate::delivery::{Refusal, Session};
use crate::files::{OpenContent, OpenError};
use crate::selection::{Selection, Version};
use crate::upload::UploadError;

/// Bytes collected before a thread writes them.
const BATCH: usize = 256 << 10;

/// What follows a request.
pub(crate) trait RequestBody: Send {
    /// Some of it, or `None` at its end.
    fn data(&mut self) -> impl Future<Output = Result<Option<Bytes>, Refusal>> + Send;
}

/// What became of a file.
pub(crate) enum Taken {
    Stored {
        /// There was no file of this name before.
        is_new: bool,
        etag: Option<HeaderValue>,
    },
    Refused(StatusCode, &'static str),
}

impl Taken {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Stored { is_new: true, .. } => StatusCode::CREATED,
            Self::Stored { is_new: false, .. } => StatusCode::NO_CONTENT,
            Self::Refused(status, _) => *status,
        }
    }

    /// What people are told.
    pub(crate) fn told(&self) -> Option<&'static str> {
        match self {
            Self::Stored { is_new, .. } => is_new.then_some("stored\n"),
            Self::Refused(_, told) => Some(told),
        }
    }

    fn too_large() -> Self {
        Self::Refused(StatusCode::PAYLOAD_TOO_LARGE, "the file is too large\n")
    }
}

/// Receives the file that follows a request, and stores it.
pub(crate) async fn take(
    session: &Session,
    request: &Request<()>,
    body: &mut impl RequestBody,
) -> Result<Taken, Refusal> {
    let fields = request.headers();
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
    let source = session.source.clone();
    let begun = blocking(move || source.upload(&path)).await;
    let mut upload = match begun {
        Ok(upload) => upload,
        Err(error) => return refused(error),
    };
    let (mut received, mut is_over) = (0, false);
    while !is_over {
        let mut batch = Vec::new();
        while batch.len() < BATCH && !is_over {
            match session.limits.progress(body.data()).await?? {
                Some(data) => {
                    received += data.len() as u64;
                    if received > most {
                        return Ok(Taken::too_large());
                    }
                    batch.extend_from_slice(&data);
                }
                None => is_over = true,
            }
        }
        let write = move || {
            upload
                .write(&batch)
                .map(|()| upload)
                .map_err(UploadError::Io)
        };
        upload = match blocking(write).await {
            Ok(upload) => upload,
            Err(error) => return refused(error),
        };
    }
    if announced.is_some_and(|announced| announced != received) {
        let told = "the file has another length than was announced\n";
        return Ok(Taken::Refused(StatusCode::BAD_REQUEST, told));
    }
    match blocking(move || upload.finish().map_err(UploadError::Io)).await {
        Ok((metadata, is_new)) => Ok(Taken::Stored {
            is_new,
            etag: Version::new(metadata.len(), metadata.modified().ok()).etag(),
        }),
        Err(error) => refused(error),
    }
}

/// Makes a directory (MKCOL, RFC 4918 section 9.3).
pub(crate) async fn make_directory(
    session: &Session,
    request: &Request<()>,
) -> Result<Taken, Refusal> {
    let (source, path) = (session.source.clone(), request.uri().path().to_owned());
    match blocking(move || source.make_directory(&path)).await {
        Ok(()) => Ok(Taken::Stored {
            is_new: true,
            etag: None,
        }),
        Err(error) => refused(error),
    }
}

/// The length that a client announces.
fn announced(fields: &HeaderMap) -> Result<Option<u64>, Taken> {
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => return Ok(None),
        (Some(length), None) => length.to_str().ok().and_then(|digits| digits.parse().ok()),
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
    let opened = OpenContent::open(session.source.clone(), path.to_owned()).await;
    let version = match opened {
        Ok(content) => Some(Version::new(content.length, content.modified)),
        Err(OpenError::NotFound) => None,
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
        // RFC 4918 section 9.3.1.
        UploadError::Exists => (StatusCode::METHOD_NOT_ALLOWED, "something has that name\n"),
        UploadError::Io(error) if error.kind() == ErrorKind::StorageFull => {
            tracing::warn!(%error, "writing a file");
            (
                StatusCode::INSUFFICIENT_STORAGE,
                "there is no room for it\n",
            )
        }
        UploadError::Io(error) => {
            tracing::warn!(%error, "writing a file");
            (StatusCode::INTERNAL_SERVER_ERROR, "cannot write it\n")
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

    use super::*;
    use crate::files::Directory;
    use crate::limits::{Client, Limits, Shared};
    use crate::observer::Observer;

    /// A body that comes in these pieces.
    struct Pieces(VecDeque<Bytes>);

    impl RequestBody for Pieces {
        async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
            Ok(self.0.pop_front())
        }
    }

    /// A directory that takes files of up to a megabyte.
    fn session(directory: &tempfile::TempDir) -> Session {
        let address = [192, 0, 2, 1].into();
        let source = Directory::new(directory.path(), false).unwrap();
        Session {
            source: Arc::new(source.max_upload(Some(MOST as u64))),
            limits: Client::new(Shared::new(Limits::default()), address).unwrap(),
            observer: Observer::new(None),
            client: address,
        }
    }

    const MOST: usize = 1 << 20;

    /// Status and text of the answer to a file in pieces of these sizes.
    async fn put(session: &Session, fields: &[(&str, &str)], sizes: &[usize]) -> (u16, String) {
        let mut request = Request::put("/file");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let pieces = sizes.iter().map(|size| vec![b'x'; *size].into());
        let mut body = Pieces(pieces.collect());
        let request = request.body(()).unwrap();
        let taken = take(session, &request, &mut body).await.unwrap();
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
    async fn what_is_there_must_be_what_the_client_expects() {
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

    #[tokio::test]
    async fn directories_are_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&directory);
        let make = async |path: &str| {
            let request = Request::get(path).body(()).unwrap();
            let taken = make_directory(&session, &request).await.unwrap();
            taken.status().as_u16()
        };
        assert_eq!(make("/new").await, 201);
        assert_eq!(make("/new").await, 405);
        assert_eq!(make("/a/b").await, 409);
        assert_eq!(make("/.new").await, 403);
        let full = refused(io::Error::from(ErrorKind::StorageFull).into()).unwrap();
        assert_eq!(full.status().as_u16(), 507);
        let broken = refused(io::Error::other("x").into()).unwrap();
        assert_eq!(broken.status().as_u16(), 500);
    }
}
