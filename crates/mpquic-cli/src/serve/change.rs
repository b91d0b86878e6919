//! The parts of a request that changes something: its client, its body and its answer.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

use bytes::Bytes;
use http::header::ETAG;
use http::{HeaderValue, Request, StatusCode, response};

use crate::files::Sent;
use crate::files::attributes::Attributes;
use crate::files::resuming;
use crate::files::upload::UploadError;
use crate::serve::rights::{Deed, Since};
use crate::serve::send_file::{Refusal, Session};

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
    /// The users and rules that allowed the change.
    pub(crate) since: &'a Since,
}

impl Client<'_> {
    /// Attributes and owner of the file in a request.
    pub(crate) fn sent(&self, request: &Request<()>) -> Sent {
        Sent {
            attributes: Attributes::of_fields(request.headers()),
            taker: Some(self.session.limits.taker(self.user)),
            length: None,
            begun: resuming::age_of(request.headers()).map(|age| self.since.before(age)),
        }
    }

    /// True if the client still has the right to store the file of this request. Users may have
    /// been removed since the request began.
    pub(crate) fn may_store(&self, request: &Request<()>) -> bool {
        let Session {
            rights,
            caller,
            client,
            ..
        } = self.session;
        let asked = (Deed::Write, request.uri().path());
        rights.still_allow(self.since, caller, *client, request.headers(), asked)
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
    /// The server takes files of up to so many bytes.
    TooLarge(u64),
}

impl Taken {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Stored { is_new: true, .. } => StatusCode::CREATED,
            Self::Stored { is_new: false, .. } => StatusCode::NO_CONTENT,
            Self::Part(status, _) | Self::Refused(status, _) => *status,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
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
    pub(crate) fn told(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Stored { is_new, .. } => is_new.then_some("stored\n".into()),
            Self::Part(status, _) => (*status == StatusCode::CONFLICT)
                .then_some("another part of the file is wanted\n".into()),
            Self::Refused(_, told) => Some((*told).into()),
            Self::TooLarge(most) => {
                let (size, unit) = if most.is_multiple_of(1 << 20) {
                    (most >> 20, "MiB")
                } else {
                    (*most, "bytes")
                };
                Some(format!("the server takes files of up to {size} {unit}\n").into())
            }
        }
    }
}

/// The answer to a change that failed.
pub(crate) fn refused(error: UploadError) -> Result<Taken, Refusal> {
    let (status, told) = match error {
        UploadError::Forbidden => (StatusCode::FORBIDDEN, "that name cannot be written to\n"),
        UploadError::NoDirectory => (StatusCode::CONFLICT, "there is no such directory\n"),
        UploadError::IsDirectory => (StatusCode::CONFLICT, "a directory has that name\n"),
        UploadError::IsFile => (StatusCode::CONFLICT, "a file has that name\n"),
        // The target may be in the directory of another user.
        UploadError::IsLink => (
            StatusCode::FORBIDDEN,
            "a link has that name, and the target of a link keeps its time and permissions\n",
        ),
        UploadError::Unknown => (StatusCode::NOT_FOUND, "there is no such upload or file\n"),
        UploadError::OtherVersion => (
            StatusCode::PRECONDITION_FAILED,
            "another version is there\n",
        ),
        UploadError::Newer => (
            StatusCode::PRECONDITION_FAILED,
            "another version was stored since this upload began\n",
        ),
        UploadError::Stored => {
            return Ok(Taken::Stored {
                is_new: false,
                etag: None,
            });
        }
        UploadError::Unreadable => (
            StatusCode::FORBIDDEN,
            "the server cannot read the file that has that name\n",
        ),
        UploadError::Full => (
            StatusCode::INSUFFICIENT_STORAGE,
            "this would exceed the limit of your uploads (--put-quota) or of all uploads (--max-put-total)\n",
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
                ErrorKind::FileTooLarge => (
                    StatusCode::INSUFFICIENT_STORAGE,
                    "the server's system takes no file of this size\n",
                ),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
                    StatusCode::INSUFFICIENT_STORAGE,
                    "the disk of the server is full\n",
                ),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "cannot write it\n"),
            }
        }
    };
    Ok(Taken::Refused(status, told))
}

/// Runs what may block on a thread for that.
pub(crate) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, UploadError> + Send + 'static,
) -> Result<T, UploadError> {
    let result = tokio::task::spawn_blocking(run).await;
    result.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_errors_of_the_file_system_are_no_fault_of_the_server() {
        let status = |kind: ErrorKind| refused(io::Error::from(kind).into()).unwrap().status();
        assert_eq!(status(ErrorKind::PermissionDenied), 403);
        assert_eq!(status(ErrorKind::ReadOnlyFilesystem), 403);
        assert_eq!(status(ErrorKind::InvalidFilename), 414);
        assert_eq!(status(ErrorKind::StorageFull), 507);
        assert_eq!(status(ErrorKind::FileTooLarge), 507);
        assert_eq!(status(ErrorKind::QuotaExceeded), 507);
        assert_eq!(status(ErrorKind::Other), 500);
    }
}
