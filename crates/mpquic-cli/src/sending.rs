//! One file that is sent: the requests for it, one after the other, until the server has it or there is
//! no hope.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, Uri};
use mpquic_tokio::Connection;
use sha2::{Digest, Sha256};
use tokio::time::MissedTickBehavior;

use crate::backup;
use crate::clients::AnyClient;
use crate::clock;
use crate::failure::{Cause, Failure};
use crate::hex::hex;
use crate::http_client;
use crate::knock;
use crate::options::Alpn;
use crate::outgoing::{Item, cannot_read};
use crate::pace::Pace;
use crate::progress::REFRESH;
use crate::protocol::{Ask, RequestError};
use crate::report::{self, Counters, Report};
use crate::retry::{Reached, Retry};
use crate::screen;
use crate::session::{Connected, Sessions};

/// Bytes read from a file at a time.
const PIECE: usize = 256 << 10;

/// What all files have in common.
pub(crate) struct Sending<'a> {
    pub(crate) sessions: &'a Sessions<'a>,
    /// How long to try again while nothing is sent.
    pub(crate) retry: Duration,
    /// Give a request up if nothing goes on for so long.
    pub(crate) stall: Duration,
    /// Say nothing that is no error.
    pub(crate) quiet: bool,
    pub(crate) pace: Option<Pace>,
    pub(crate) total: Total,
}

/// What was sent.
#[derive(Debug, Default)]
pub(crate) struct Total {
    /// Bytes of files, without those that have to be sent again.
    pub(crate) bytes: AtomicU64,
}

/// What is tried until it goes well.
struct Tries {
    retry: Retry,
    /// How much of the file was sent at most.
    reached: Reached,
    /// There was a connection once.
    connected: bool,
}

impl Tries {
    fn new(limit: Duration) -> Self {
        let now = clock::now();
        Self {
            retry: Retry::new(limit, now),
            reached: Reached::new(0, now),
            connected: false,
        }
    }
}

impl Sending<'_> {
    /// Sends a file, again if the connection is lost.
    pub(crate) async fn send_file(&self, item: &Item) -> Result<Report, Failure> {
        let started = clock::now();
        let mut tries = Tries::new(self.retry);
        loop {
            let mut body = Input::open(item)?;
            let failed = match self.attempt(&mut tries, item, &mut body).await {
                Ok((connected, before)) => {
                    let retries = tries.retry.count.into();
                    let report = report_of(&connected.connection, &before);
                    return Ok(Report {
                        url: item.url.to_string(),
                        bytes: body.bytes,
                        seconds: (clock::now() - started).as_secs_f64(),
                        sha256: hex(&body.hash.finalize()),
                        retries,
                        file: item.file.as_ref().map(|path| path.display().to_string()),
                        ..report
                    });
                }
                Err(failed) => failed,
            };
            // What was read from standard input is gone.
            let may_repeat = item.file.is_some();
            self.next_try(&mut tries, failed, &item.url, may_repeat)
                .await?;
        }
    }

    /// Makes a directory; it may be there already.
    pub(crate) async fn make_directory(&self, url: &Uri) -> Result<(), Failure> {
        let mut tries = Tries::new(self.retry);
        loop {
            let failed = match self.try_to_make(&mut tries, url).await {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            self.next_try(&mut tries, failed, url, true).await?;
        }
    }

    /// Waits for the next try, unless there is no hope.
    async fn next_try(
        &self,
        tries: &mut Tries,
        failed: Unsent,
        url: &Uri,
        may_repeat: bool,
    ) -> Result<(), Failure> {
        let next = match failed.is_temporary && tries.connected && may_repeat {
            true => tries.retry.next(tries.reached.at, clock::now()),
            false => None,
        };
        let (pause, is_first) = next.ok_or_else(|| failed.failure.clone())?;
        if is_first && !self.quiet {
            let why = failed.failure.message();
            screen::say(format_args!("mpquic: {url}: {why}; trying again"));
        }
        self.sessions.give_up().await;
        tokio::time::sleep(pause).await;
        Ok(())
    }

    async fn client(
        &self,
        tries: &mut Tries,
        url: &Uri,
    ) -> Result<(Connected, http_client::Client), Unsent> {
        let connected = self.sessions.connection(url).await?;
        tries.connected = true;
        match connected.clients.established().await? {
            AnyClient::Http(client) => Ok((connected, client)),
            AnyClient::Hq(_) => Err(Failure::other("the server does not speak HTTP/3").into()),
        }
    }

    async fn try_to_make(&self, tries: &mut Tries, url: &Uri) -> Result<(), Unsent> {
        let (_connected, client) = self.client(tries, url).await?;
        let method = Method::from_bytes(b"MKCOL").map_err(Failure::other)?;
        let ask = Ask {
            method,
            ..Ask::get(url)
        };
        let made = async {
            let mut request = client.put(&ask, None).await?;
            request.finish().await
        };
        let made = tokio::time::timeout(self.stall, made).await;
        match made.unwrap_or(Err(RequestError::Stalled(self.stall.as_secs()))) {
            // RFC 4918 section 9.3.1: it is there.
            Ok(()) | Err(RequestError::Status(StatusCode::METHOD_NOT_ALLOWED)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn attempt(
        &self,
        tries: &mut Tries,
        item: &Item,
        body: &mut Input,
    ) -> Result<(Connected, Counters), Unsent> {
        let (connected, client) = self.client(tries, &item.url).await?;
        let connection = &connected.connection;
        let before = match connected.is_old {
            true => Counters::new(connection.path_stats(), &connection.stats()),
            false => Counters::default(),
        };
        let ask = Ask {
            method: Method::PUT,
            ..Ask::get(&item.url)
        };
        let sent = Sent {
            bytes: AtomicU64::new(0),
            reading: AtomicBool::new(false),
            total: &self.total,
        };
        let flow = Flow {
            item,
            pace: self.pace.as_ref(),
            sent: &sent,
        };
        let result = {
            let send = async {
                let mut request = client.put(&ask, body.length).await?;
                flow.send(&mut request, body).await
            };
            tokio::pin!(send);
            tokio::select! {
                result = &mut send => result,
                error = self.until_hopeless(connection, &sent, &mut tries.reached) => {
                    Err(error.into())
                }
            }
        };
        if result.is_err() {
            let bytes = sent.bytes.load(Relaxed);
            tries.reached.note(bytes, clock::now());
            // It has to be sent again.
            self.total.bytes.fetch_sub(bytes, Relaxed);
        }
        result.map(|()| (connected, before))
    }

    /// Waits until the connection is lost, nobody listens on the server's port any more, or nothing has gone on for too
    /// long. While a read takes its time, as of standard input, nothing else would tell.
    async fn until_hopeless(
        &self,
        connection: &Connection,
        sent: &Sent<'_>,
        reached: &mut Reached,
    ) -> RequestError {
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let gone = knock::until_gone(connection.remote_address());
        tokio::pin!(gone);
        let (mut seen, mut moved) = ((0, 0), clock::now());
        loop {
            tokio::select! {
                error = connection.closed() => return error.into(),
                () = &mut gone => return RequestError::Gone,
                _ = ticks.tick() => {}
            }
            let now = clock::now();
            // What was taken into the send buffer says less than what was acknowledged.
            let heard = connection.stats().bytes_received;
            let bytes = sent.bytes.load(Relaxed);
            if heard != seen.1 {
                gone.set(knock::until_gone(connection.remote_address()));
            }
            if sent.reading.load(Relaxed) || seen != (bytes, heard) {
                seen = (bytes, heard);
                moved = now;
                reached.note(bytes, now);
            } else if now >= moved + self.stall {
                return RequestError::Stalled(self.stall.as_secs());
            }
        }
    }
}

/// What the paths did for a file.
fn report_of(connection: &Connection, before: &Counters) -> Report {
    let after = Counters::new(connection.path_stats(), &connection.stats());
    let (extra_bytes_sent, extra_bytes_received) = after.extra_since(before);
    let mut paths = report::paths(&before.paths, &after.paths);
    backup::mark(&mut paths, connection);
    Report {
        url: String::new(),
        bytes: 0,
        seconds: 0.0,
        sha256: String::new(),
        paths,
        extra_bytes_sent,
        extra_bytes_received,
        multipath: connection.is_multipath(),
        early_data: false,
        resumed_at: 0,
        retries: 0,
        longest_gap_ms: None,
        quic_version: connection.version().to_string(),
        protocol: String::from_utf8_lossy(Alpn::H3.bytes()).into_owned(),
        file: None,
        is_sent: true,
    }
}

/// What is read and sent.
struct Input {
    reader: Option<Box<dyn Read + Send>>,
    /// Its length, if that is known before.
    length: Option<u64>,
    bytes: u64,
    hash: Sha256,
}

impl Input {
    fn open(item: &Item) -> Result<Self, Failure> {
        let (reader, length): (Box<dyn Read + Send>, _) = match &item.file {
            None => (Box::new(io::stdin()), None),
            Some(path) => {
                let cannot_read = |error: io::Error| cannot_read(path, &error);
                let file = File::open(path).map_err(cannot_read)?;
                let metadata = file.metadata().map_err(cannot_read)?;
                if metadata.is_dir() {
                    return Err(cannot_read(io::ErrorKind::IsADirectory.into()));
                }
                // Devices and pipes have none.
                let length = metadata.is_file().then_some(metadata.len());
                (Box::new(file), length)
            }
        };
        Ok(Self {
            reader: Some(reader),
            length,
            bytes: 0,
            hash: Sha256::new(),
        })
    }

    /// The next bytes; none at the end.
    async fn read(&mut self) -> io::Result<Bytes> {
        let reader = self.reader.take();
        let mut reader = reader.ok_or_else(|| io::Error::other("a read was given up"))?;
        // Small files need no large buffers. One byte more shows whether it grew.
        let left = self
            .length
            .map(|length| length.saturating_sub(self.bytes) + 1);
        let size = left.map_or(PIECE, |left| {
            usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))
        });
        let run = move || {
            let mut piece = vec![0; size];
            let read = reader.read(&mut piece);
            (
                reader,
                read.map(|length| piece.truncate(length)).map(|()| piece),
            )
        };
        let (reader, piece) = tokio::task::spawn_blocking(run)
            .await
            .map_err(io::Error::other)?;
        self.reader = Some(reader);
        let piece = Bytes::from(piece?);
        self.hash.update(&piece);
        self.bytes += piece.len() as u64;
        Ok(piece)
    }
}

/// Why a try failed.
struct Unsent {
    failure: Failure,
    is_temporary: bool,
}

impl From<RequestError> for Unsent {
    fn from(error: RequestError) -> Self {
        Self {
            is_temporary: error.is_temporary(),
            failure: error.into(),
        }
    }
}

impl From<Failure> for Unsent {
    fn from(failure: Failure) -> Self {
        let cause = failure.cause();
        Self {
            is_temporary: matches!(cause, Some(Cause::Name | Cause::Connect | Cause::Broken)),
            failure,
        }
    }
}

/// What a try tells about itself while it runs.
struct Sent<'a> {
    bytes: AtomicU64,
    /// It waits for the disk, or for whoever writes standard input.
    reading: AtomicBool,
    total: &'a Total,
}

/// How a body is sent.
struct Flow<'a> {
    item: &'a Item,
    pace: Option<&'a Pace>,
    sent: &'a Sent<'a>,
}

impl Flow<'_> {
    /// Sends the body, and waits for the answer.
    async fn send(&self, request: &mut http_client::Put, body: &mut Input) -> Result<(), Unsent> {
        let most = self.pace.map_or(usize::MAX, Pace::piece);
        let name = self.item.file.as_deref().unwrap_or(Path::new("-"));
        loop {
            self.sent.reading.store(true, Relaxed);
            let piece = body.read().await;
            let mut piece = piece.map_err(|error| cannot_read(name, &error))?;
            self.sent.reading.store(false, Relaxed);
            if piece.is_empty() {
                break;
            }
            if body.length.is_some_and(|length| body.bytes > length) {
                let name = name.display();
                let changed = Cause::File.failed(format_args!("{name} grew while it was read"));
                return Err(changed.into());
            }
            while !piece.is_empty() {
                let part = piece.split_to(most.min(piece.len()));
                let bytes = part.len();
                if let Some(pace) = self.pace {
                    pace.wait(bytes).await;
                }
                if !request.send(part).await? {
                    // The server has its answer already.
                    return Ok(request.finish().await?);
                }
                self.sent.bytes.fetch_add(bytes as u64, Relaxed);
                self.sent.total.bytes.fetch_add(bytes as u64, Relaxed);
            }
        }
        Ok(request.finish().await?)
    }
}

#[cfg(test)]
mod tests;
