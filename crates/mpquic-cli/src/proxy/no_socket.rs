//! Systems without Unix sockets.

use std::path::Path;

use crate::process::failure::Failure;
use crate::proxy::change::Reply;
use crate::proxy::status::{Role, Status, StatusSocket};

impl StatusSocket {
    /// A socket on a system without Unix sockets is an error.
    pub(crate) fn answer(
        &self,
        _: Role,
        _: impl Fn() -> Status + Send + Sync + 'static,
        _: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Result<Option<()>, Failure> {
        match self.status_socket {
            None => Ok(None),
            Some(_) => Err(Failure::usage(
                "--status-socket needs a system with Unix sockets",
            )),
        }
    }
}

pub(crate) fn ask(_: Option<&Path>) -> Result<Status, Failure> {
    Err(Failure::usage("this needs a system with Unix sockets"))
}

pub(crate) fn command(_: Option<&Path>, _: &str) -> Result<Reply, Failure> {
    Err(Failure::usage("this needs a system with Unix sockets"))
}
