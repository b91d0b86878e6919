//! [`Directory`]: one file for each connection.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mpquic_core::Side;
use mpquic_core::qlog::{ConnectionStart, Factory, Sink};

use crate::writer::Writer;

/// Bytes collected before they are written.
const BUFFER: usize = 64 << 10;

/// Writes a file for each connection, named `<original destination connection ID>_client.sqlog` or
/// `.._server.sqlog`, so that both sides may share the directory. A file is complete once its
/// connection is closed. Existing files are left alone.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Uses a directory, which is made if need be.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    /// Where the files are.
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
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a log says when it was begun; nothing depends on it"
                )]
                let wall_clock = SystemTime::now();
                Some(Box::new(Writer::new(file, connection, wall_clock)))
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot log this connection");
                None
            }
        }
    }
}
