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
    let most = session.source.max_upload().unwrap_or(0);
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
