//! One file over one connection, watched while it arrives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::Uri;
use mpquic_core::PathStats;
use mpquic_tokio::Connection;
use tokio::time::MissedTickBehavior;

use crate::args::Alpn;
use crate::clients::AnyClient;
use crate::failure::Failure;
use crate::progress::{Progress, REFRESH};
use crate::protocol::{Body, Client, RequestError, Response};
use crate::report::{self, Report};
use crate::sink::{Destination, Received, Sink};

/// The most pieces taken from the stream in one call.
const PIECES: usize = 64;

/// A download that has begun.
pub(crate) struct Download<'a> {
    url: &'a Uri,
    destination: &'a Destination,
    quiet: bool,
    sink: Sink,
    started: Instant,
    /// The paths' counters when it began; empty for a new connection.
    pub(crate) before: Vec<PathStats>,
    /// Length of the file, if it is known beforehand.
    pub(crate) length: Option<u64>,
}

impl<'a> Download<'a> {
    /// Starts the clock, and makes sure that the destination can be written to.
    pub(crate) fn start(
        url: &'a Uri,
        destination: &'a Destination,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let sink = Sink::create(destination).map_err(|error| cannot_write(destination, &error))?;
        Ok(Self {
            url,
            destination,
            quiet,
            sink,
            started: crate::clock::now(),
            before: Vec::new(),
            length: None,
        })
    }

    /// Fetches the file.
    pub(crate) async fn run(
        self,
        connection: &Connection,
        client: AnyClient,
    ) -> Result<Report, Failure> {
        match client {
            AnyClient::Http(client) => self.run_with(client, connection, Alpn::H3).await,
            AnyClient::Hq(client) => self.run_with(client, connection, Alpn::HqInterop).await,
        }
    }

    async fn run_with(
        mut self,
        client: impl Client,
        connection: &Connection,
        protocol: Alpn,
    ) -> Result<Report, Failure> {
        let response = client.get(self.url).await.map_err(Failure::other)?;
        let length = self.length.or(response.length);
        let title = self
            .url
            .path()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut progress = Progress::new(title, length, self.started, self.quiet, &self.before);
        let received = AtomicU64::new(0);
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let result = {
            let transfer = transfer(response, &mut self.sink, &received);
            tokio::pin!(transfer);
            loop {
                tokio::select! {
                    result = &mut transfer => break result,
                    _ = ticks.tick() => {
                        let received = received.load(Ordering::Relaxed);
                        progress.update(crate::clock::now(), received, &connection.path_stats());
                    }
                }
            }
        };
        let seconds = (crate::clock::now() - self.started).as_secs_f64();
        progress.clear();
        let after = connection.path_stats();
        let written = |error| cannot_write(self.destination, &error);
        match result {
            Ok(()) => {}
            Err(TransferError::Request(error)) => return Err(Failure::other(error)),
            Err(TransferError::Write(error)) => return Err(written(error)),
        }
        let whole = self.sink.finish().await.map_err(written)?;
        let file = match self.destination {
            Destination::File(path) => Some(path.display().to_string()),
            Destination::Stdout | Destination::Nowhere => None,
        };
        Ok(Report {
            url: self.url.to_string(),
            bytes: whole.bytes,
            seconds,
            sha256: hex(&whole),
            paths: report::paths(&self.before, &after),
            multipath: connection.is_multipath(),
            early_data: false,
            quic_version: connection.version().to_string(),
            protocol: String::from_utf8_lossy(protocol.bytes()).into_owned(),
            file,
        })
    }
}

fn hex(received: &Received) -> String {
    crate::sink::hex(&received.sha256)
}

enum TransferError {
    Request(RequestError),
    Write(std::io::Error),
}

/// Moves the body into the sink, counting.
async fn transfer<B: Body>(
    mut response: Response<B>,
    sink: &mut Sink,
    received: &AtomicU64,
) -> Result<(), TransferError> {
    let mut pieces: [Bytes; PIECES] = [const { Bytes::new() }; PIECES];
    while let Some(count) = response
        .body
        .read(&mut pieces)
        .await
        .map_err(TransferError::Request)?
    {
        for piece in pieces.iter_mut().take(count) {
            let piece = std::mem::take(piece);
            let length = piece.len() as u64;
            let so_far = received.fetch_add(length, Ordering::Relaxed) + length;
            if let Some(length) = response.length.filter(|length| so_far > *length) {
                return Err(TransferError::Request(RequestError::TooLong(length)));
            }
            sink.write(piece).await.map_err(TransferError::Write)?;
        }
    }
    let received = received.load(Ordering::Relaxed);
    match response.length {
        Some(length) if length != received => {
            Err(TransferError::Request(RequestError::Truncated {
                length,
                received,
            }))
        }
        _ => Ok(()),
    }
}

fn cannot_write(destination: &Destination, error: &std::io::Error) -> Failure {
    let name = match destination {
        Destination::File(path) => path.display().to_string(),
        Destination::Stdout => "standard output".to_owned(),
        Destination::Nowhere => "nowhere".to_owned(),
    };
    Failure::other(format!("cannot write {name}: {error}"))
}
