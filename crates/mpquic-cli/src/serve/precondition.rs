//! Conditions of an upload (RFC 9110 section 13): the server has the version of the file that the
//! client expects.

use std::io::ErrorKind;
use std::sync::Arc;

use http::header::{HeaderMap, IF_MATCH};
use http::{Method, Request};

use crate::files::selection::{Selection, Version};
use crate::files::upload::UploadError;
use crate::files::{OpenError, Source};

/// The conditions of a request with a file.
#[derive(Clone)]
pub(crate) struct Precondition {
    source: Arc<dyn Source>,
    path: String,
    fields: HeaderMap,
}

impl Precondition {
    /// The conditions of this request; `None` for a request without any. The server may be able to
    /// replace a file that it cannot read, and only conditions need the file's version.
    pub(crate) fn of(source: &Arc<dyn Source>, request: &Request<()>) -> Option<Self> {
        let fields = request.headers();
        Version::is_conditional(fields).then(|| Self {
            source: source.clone(),
            path: request.uri().path().to_owned(),
            fields: fields.clone(),
        })
    }

    /// True if no file may have the name.
    pub(crate) fn wants_new(&self) -> bool {
        Version::is_for_new(&self.fields)
    }

    /// Checks the version of the file that has the name now. May block.
    pub(crate) fn look(&self) -> Result<(), UploadError> {
        let holds = match self.source.open(&self.path) {
            Ok(content) => {
                let version = Version::new(&content.state);
                matches!(version.select(&Method::PUT, &self.fields), Selection::Whole)
            }
            Err(OpenError::NotFound) => !self.fields.contains_key(IF_MATCH),
            Err(OpenError::Io(error)) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(UploadError::Unreadable);
            }
            Err(OpenError::Io(error)) => return Err(error.into()),
        };
        holds.then_some(()).ok_or(UploadError::OtherVersion)
    }
}
