//! [`Directory`]: writes one file for each connection.

use std::fs::{self, File};
use std::io::ErrorKind::AlreadyExists;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use mpquic_core::Side;
use mpquic_core::qlog::{ConnectionStart, Factory, Sink};

use crate::writer::{DEFAULT_LIMIT, Writer};

/// Size of the write buffer, bytes.
const BUFFER: usize = 64 << 10;

/// Writes a file for each connection, named `<original destination connection ID>_client.sqlog` or
/// `..._server.sqlog`. Client and server may share the directory.
///
/// A file is complete once its connection is closed. A server sends Retry and Version Negotiation
/// packets before a connection exists, so they are in `endpoint_server.sqlog`. Existing files are
/// not overwritten.
///
/// A file ends early when it reaches 1 GiB, or the size set with [`Self::max_file_size`]. After
/// that, only the reason why the connection ended is added.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    limit: u64,
}

/// The largest number of endpoint files in one directory. Endpoints beyond this number write no
/// file.
const MAX_ENDPOINTS: u32 = 1000;

impl Directory {
    /// Uses a directory, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// The operating system's error if the directory cannot be made.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        Ok(Self {
            path,
            limit: DEFAULT_LIMIT,
        })
    }

    /// Sets the number of bytes after which a file ends early.
    #[must_use]
    pub fn max_file_size(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Factory for Directory {
    fn start(&self, connection: &ConnectionStart) -> Option<Box<dyn Sink>> {
        let role = match connection.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let name = format!("{}_{role}.sqlog", connection.original_dcid);
        let path = self.path.join(name);
        match File::create_new(&path) {
            Ok(file) => {
                let file = BufWriter::with_capacity(BUFFER, file);
                let writer = Writer::new(file, connection, wall_clock());
                Some(Box::new(writer.limit(self.limit)))
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot log this connection");
                None
            }
        }
    }

    fn start_endpoint(&self, now: Instant) -> Option<Box<dyn Sink>> {
        let names = (1..=MAX_ENDPOINTS).map(|count| match count {
            1 => "endpoint_server.sqlog".to_owned(),
            _ => format!("endpoint_server_{count}.sqlog"),
        });
        let file = names
            .map(|name| File::create_new(self.path.join(name)))
            .find(|file| !matches!(file, Err(error) if error.kind() == AlreadyExists))?;
        match file {
            Ok(file) => {
                let file = BufWriter::with_capacity(BUFFER, file);
                let writer = Writer::for_endpoint(file, now, wall_clock());
                Some(Box::new(writer.limit(self.limit)))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot log what is sent without a connection");
                None
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a log says when it was begun; nothing depends on it"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
