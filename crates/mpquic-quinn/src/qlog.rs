//! Logs of connections (qlog).

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mpquic_core::qlog::{ConnectionStart, Factory, Sink};
use mpquic_tokio::qlog::Writer;
use quinn_proto::{StdSystemTime, TimeSource};

/// Collects the settings of a log.
#[derive(Default)]
pub struct QlogConfig {
    writer: Option<Box<dyn Write + Send + Sync>>,
}

impl QlogConfig {
    /// Sets where the log goes.
    pub fn writer(&mut self, writer: Box<dyn Write + Send + Sync>) -> &mut Self {
        self.writer = Some(writer);
        self
    }

    /// No effect: mpquic's logs have no title.
    pub fn title(&mut self, title: Option<String>) -> &mut Self {
        drop(title);
        self
    }

    /// No effect: mpquic's logs have no description.
    pub fn description(&mut self, description: Option<String>) -> &mut Self {
        drop(description);
        self
    }

    /// No effect: the log of each connection counts from the start of that connection.
    pub fn start_time(&mut self, start_time: Instant) -> &mut Self {
        let _ = start_time;
        self
    }

    /// The log; `None` without a writer.
    pub fn into_stream(self) -> Option<QlogStream> {
        let writer = self.writer?;
        Some(QlogStream(Shared(Arc::new(Mutex::new(writer)))))
    }
}

/// A log for the connections of one transport configuration. Each connection begins with a header
/// of its own.
#[derive(Clone, Debug)]
pub struct QlogStream(Shared);

impl Factory for QlogStream {
    fn start(&self, connection: &ConnectionStart) -> Option<Box<dyn Sink>> {
        let writer = Writer::new(self.0.clone(), connection, StdSystemTime.now());
        Some(Box::new(writer))
    }
}

/// The writer of all connections.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Write + Send + Sync>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Records of several connections must not mix.
        writer.write_all(buf)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flush()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a writer")
    }
}
