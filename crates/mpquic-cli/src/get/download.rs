//! One file, watched while it arrives, over one connection or over several one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Uri};
use mpquic_core::{PathStats, PeerText};
use mpquic_tokio::{Connection, VarInt};
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;

use crate::client::backup;
use crate::client::knock;
use crate::client::protocol::{Ask, Body, Client, RequestError, Response};
use crate::client::requests::AnyClient;
use crate::client::retry::Reached;
use crate::files::attributes::Attributes;
use crate::get::count::Count;
use crate::get::json::JsonOutput;
use crate::get::left::Left;
use crate::get::note_key::NoteKey;
use crate::get::part_file::{Keep, Version};
use crate::get::sink::{Destination, Sink};
use crate::options::Alpn;
use crate::options::trust::Checked;
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::rate::pace::Pace;
use crate::report::progress::{Progress, REFRESH};
use crate::report::{self, Counters, Report, size};
use crate::text::hex::hex;
use crate::text::stamp::Stamp;

/// The most pieces taken from the stream in one call.
const PIECES: usize = 64;
/// Bytes of a piece, about.
const DATAGRAM: usize = 1400;

/// How a download is treated.
#[derive(Debug, Clone)]
pub(crate) struct Treatment {
    /// Show no progress, and say nothing that is no error.
    pub(crate) quiet: bool,
    /// Go on with what an earlier one left.
    pub(crate) resume: bool,
    /// Replace a file that has the name already.
    pub(crate) replace: bool,
    /// Only the owner may read the file until the file gets its permissions.
    pub(crate) private: bool,
    /// Take no more than this.
    pub(crate) pace: Option<Arc<Pace>>,
    /// Give a request up if nothing arrives for so long.
    pub(crate) stall: Duration,
    /// Counts what arrives of all files.
    pub(crate) total: Arc<AtomicU64>,
    /// Tells of it as JSON.
    pub(crate) json: Option<Arc<JsonOutput>>,
    /// Where parts are noted.
    pub(crate) left: Left,
    /// The key of the notes beside parts.
    pub(crate) key: Arc<NoteKey>,
    /// The check of servers.
    pub(crate) checked: Checked,
}

impl Treatment {
    /// Lets a server be ahead of the rate by so much as the paths need.
    fn make_room(&self, connection: &Connection, paths: &[PathStats]) {
        let round_trip = paths.iter().map(|path| path.min_rtt).max();
        if let Some(pace) = &self.pace {
            let window = pace.window(round_trip.unwrap_or_default());
            connection.set_receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX));
        }
    }
}

/// A download that has begun.
pub(crate) struct Download<'a> {
    url: &'a Uri,
    destination: &'a Destination,
    treatment: Treatment,
    pub(crate) count: Arc<Count>,
    sink: Sink,
    started: Instant,
    /// Bytes of the file that have arrived.
    have: u64,
    version: Version,
    /// The attributes in the last answer.
    pub(crate) attributes: Attributes,
    /// Bytes that were there at the beginning.
    resumed_at: u64,
    /// The user does not know yet whether the server goes on behind them.
    is_untold: bool,
    /// How much of the file was there at most.
    pub(crate) reached: Reached,
    /// The connection's protocol, and the counters of its paths when it began.
    protocol: Option<Alpn>,
    pub(crate) before: Counters,
    /// Length of the file, if it is known beforehand.
    pub(crate) length: Option<u64>,
}

/// Why a request did not bring the file to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    Request(RequestError),
    Failed(Failure),
}

impl From<RequestError> for Ended {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Request(error) => error.into(),
            Ended::Failed(failure) => failure,
        }
    }
}

impl<'a> Download<'a> {
    /// Starts the clock, and makes sure that the destination can be written to.
    pub(crate) async fn start(
        url: &'a Uri,
        destination: &'a Destination,
        treatment: Treatment,
    ) -> Result<Self, Failure> {
        let (named, to) = (url.to_string(), destination.clone());
        let Treatment {
            resume,
            replace,
            private,
            checked,
            ..
        } = treatment;
        let key = treatment.key.clone();
        // Reading a long part again takes minutes, in which the user may end the program.
        let created = spawn_blocking(move || {
            let keep = Keep {
                url: &named,
                resume,
                replace,
                private,
                key: &key,
                checked,
            };
            Sink::create(&to, &keep)
        });
        let (sink, begun) = created
            .await
            .map_err(Failure::other)?
            .map_err(|error| cannot_write(destination, &error))?;
        let started = clock::now();
        let have = begun.have;
        let download = Self {
            url,
            destination,
            treatment,
            count: Arc::default(),
            sink,
            started,
            have,
            version: begun.version,
            attributes: Attributes::default(),
            resumed_at: have,
            is_untold: have > 0,
            reached: Reached::new(have, started),
            protocol: None,
            before: Counters::default(),
            length: None,
        };
        download.treatment.left.add(download.sink.kept());
        download.count.received.store(have, Ordering::Relaxed);
        if let Some(json) = &download.treatment.json {
            json.add(url, &download.count, have);
        }
        if let Some(why) = begun.useless {
            download.say_restart(&format!("the existing part cannot be continued, {why}"));
        }
        Ok(download)
    }

    /// Tells the user once that the download goes on with an earlier one. Before the answer, the
    /// server may have another version of the file.
    fn say_continued(&mut self) {
        if std::mem::take(&mut self.is_untold) {
            let have = size(self.have);
            self.say(format_args!("continuing after the {have} that are there"));
        }
    }

    /// Tells the user, unless that is not wanted.
    pub(crate) fn say(&self, what: impl std::fmt::Display) {
        if !self.treatment.quiet {
            screen::say(format_args!("mpquic: {}: {what}", self.url));
        }
    }

    fn say_restart(&self, why: &str) {
        self.say(format_args!("{why}: starting over"));
        if let Some(json) = &self.treatment.json {
            json.restart(self.url, why);
        }
    }

    /// Ends the download early, and returns a hint for the user about the received bytes.
    pub(crate) async fn leave(self) -> Option<String> {
        self.sink.leave().await.hint()
    }

    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    /// Requests the missing bytes and receives them.
    pub(crate) async fn fetch(
        &mut self,
        ask: &Ask,
        connection: &Connection,
        client: AnyClient,
    ) -> Result<(), Ended> {
        match &client {
            AnyClient::Http(client) => {
                self.protocol = Some(Alpn::H3);
                self.fetch_all(ask, connection, client).await
            }
            AnyClient::Hq(client) => {
                self.protocol = Some(Alpn::HqInterop);
                self.fetch_all(ask, connection, client).await
            }
        }
    }

    /// Requests the rest until the whole file is received.
    async fn fetch_all(
        &mut self,
        ask: &Ask,
        connection: &Connection,
        client: &impl Client,
    ) -> Result<(), Ended> {
        let mut ask = ask.clone();
        loop {
            ask.have = self.gone_on_with();
            let ended = self.fetch_with(&ask, connection, client).await;
            if ask.have.is_none() {
                return ended;
            }
            match &ended {
                Err(Ended::Request(RequestError::PastEnd { length })) => {
                    if *length == Some(self.have) {
                        // All of it was there.
                        self.say_continued();
                        return Ok(());
                    }
                    self.restart("the file has changed on the server").await?;
                }
                Err(Ended::Request(RequestError::NotTheRest(why))) => self.restart(why).await?,
                // RFC 9110 section 15.3.7: the answer had less than the rest of the file, or no
                // length of the file.
                Ok(()) if self.version.length.is_none_or(|length| self.have < length) => {}
                _ => return ended,
            }
        }
    }

    /// Length and version of the received bytes, if a request can ask for the rest.
    fn gone_on_with(&self) -> Option<(u64, Stamp)> {
        let stamp = self.version.stamp.clone().filter(|_| self.have > 0)?;
        Some((self.have, stamp))
    }

    async fn restart(&mut self, why: &str) -> Result<(), Ended> {
        self.say_restart(why);
        self.have = 0;
        self.resumed_at = 0;
        self.is_untold = false;
        self.version = Version::default();
        let restarted = self.sink.restart().await;
        restarted.map_err(|error| self.cannot_write(&error))
    }

    fn cannot_write(&self, error: &std::io::Error) -> Ended {
        Ended::Failed(cannot_write(self.destination, error))
    }

    async fn fetch_with(
        &mut self,
        ask: &Ask,
        connection: &Connection,
        client: &impl Client,
    ) -> Result<(), Ended> {
        let stall = self.treatment.stall;
        let server = connection.remote_address();
        let response = tokio::select! {
            response = client.ask(ask) => response?,
            () = tokio::time::sleep(stall) => return Err(RequestError::Stalled(stall.as_secs()).into()),
            () = knock::until_gone(server) => return Err(RequestError::Gone.into()),
        };
        if ask.method == Method::HEAD {
            return self.show_head(&response).await;
        }
        let is_whole = response.start == 0;
        let is_same = response.stamp.is_some() && response.stamp == self.version.stamp;
        let known = self.version.length.filter(|_| is_same || !is_whole);
        let told = response.length.filter(|_| ask.have.is_some() && is_same);
        if known.zip(told).is_some_and(|(known, told)| known != told) {
            let told = "another length of the same version of the file";
            return Err(RequestError::NotTheRest(told).into());
        }
        if response.start != self.have {
            let why = match is_same {
                true => "the server sends no parts of files",
                false if self.version.stamp.is_none() => "the server sends no parts of this file",
                false => "the file has changed on the server",
            };
            self.restart(why).await?;
        }
        self.say_continued();
        if is_whole {
            self.version.stamp.clone_from(&response.stamp);
        }
        self.version.length = response.length.or(known);
        self.attributes = Attributes::of_fields(&response.fields);
        let told = self.sink.set_version(self.version.clone()).await;
        told.map_err(|error| self.cannot_write(&error))?;
        self.receive(response, connection).await?;
        self.check_length(is_whole)
    }

    /// Compares the received bytes with the length that an earlier answer told of this version.
    fn check_length(&mut self, is_whole: bool) -> Result<(), Ended> {
        let received = self.have;
        match self.version.length {
            Some(length) if is_whole && received < length => {
                return Err(RequestError::Truncated { length, received }.into());
            }
            Some(length) if received > length => {
                return Err(RequestError::TooLong(length).into());
            }
            // An answer with the whole file ends where the file ends.
            None if is_whole => self.version.length = Some(received),
            _ => {}
        }
        Ok(())
    }

    /// Status and fields, for people and scripts.
    async fn show_head<B: Body>(&mut self, response: &Response<B>) -> Result<(), Ended> {
        let mut text = format!("HTTP/3 {}\n", response.status.as_u16()).into_bytes();
        for (name, value) in &response.fields {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(PeerText(value.as_bytes()).to_string().as_bytes());
            text.push(b'\n');
        }
        text.push(b'\n');
        let written = self.sink.write(text.into()).await;
        written.map_err(|error| self.cannot_write(&error))
    }

    async fn receive<B: Body>(
        &mut self,
        response: Response<B>,
        connection: &Connection,
    ) -> Result<(), Ended> {
        let title = self.url.path().rsplit('/').next().unwrap_or_default();
        let length = self.length.or(response.length).or(self.version.length);
        let quiet = self.treatment.quiet;
        let mut progress = Progress::new(
            title.to_owned(),
            length,
            clock::now(),
            quiet,
            &self.before.paths,
        );
        progress.begin_at(self.have);
        let count = self.count.clone();
        count.received.store(self.have, Ordering::Relaxed);
        count.set_length(length);
        count.writing.store(false, Ordering::Relaxed);
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let stall = self.treatment.stall;
        let mut have = self.have;
        let mut moved = clock::now();
        let result = {
            let treatment = &self.treatment;
            let pace = treatment.pace.as_deref();
            let transfer = transfer(response, &mut self.sink, &count, &treatment.total, pace);
            tokio::pin!(transfer);
            let gone = knock::until_gone(connection.remote_address());
            tokio::pin!(gone);
            loop {
                tokio::select! {
                    result = &mut transfer => break result,
                    _ = ticks.tick() => {
                        let now = clock::now();
                        let received = count.received.load(Ordering::Relaxed);
                        let paths = connection.path_stats();
                        progress.update(now, received, &paths);
                        treatment.make_room(connection, &paths);
                        if received > have || count.writing.load(Ordering::Relaxed) {
                            have = received;
                            moved = now;
                            self.reached.note(received, now);
                            gone.set(knock::until_gone(connection.remote_address()));
                        } else if now >= moved + stall {
                            break Err(RequestError::Stalled(stall.as_secs()).into());
                        }
                    }
                    () = &mut gone => break Err(RequestError::Gone.into()),
                }
            }
        };
        let received = count.received.load(Ordering::Relaxed);
        self.reached.note(received, clock::now());
        self.have = received;
        progress.clear();
        result.map_err(|error| match error {
            TransferError::Request(error) => error.into(),
            TransferError::Write(error) => self.cannot_write(&error),
        })
    }

    /// Gives a file with the `expected` checksum its name, and reports the bytes of each path.
    pub(crate) async fn finish(
        self,
        connection: &Connection,
        expected: Option<[u8; 32]>,
    ) -> Result<Report, Failure> {
        let seconds = (clock::now() - self.started).as_secs_f64();
        let after = Counters::of(connection);
        let (extra_bytes_sent, extra_bytes_received) = after.extra_since(&self.before);
        let longest_gap = self.count.longest_gap();
        let destination = self.destination;
        let kept = self.sink.kept();
        let whole = self
            .sink
            .finish(expected)
            .await
            .map_err(|error| cannot_write(destination, &error).and(kept.hint()))?;
        if let Some(expected) = expected.filter(|_| !whole.is_expected) {
            return Err(Cause::Content.failed(format_args!(
                "its SHA-256 is {}, but {} was expected",
                hex(&whole.sha256),
                hex(&expected)
            )));
        }
        let mut paths = report::paths(&self.before.paths, &after.paths);
        backup::mark(&mut paths, connection);
        let file = match destination {
            Destination::File(path) | Destination::Within(path, _) => {
                Some(path.display().to_string())
            }
            Destination::Stdout | Destination::Nowhere | Destination::Memory(_) => None,
        };
        let protocol = self.protocol.map_or(&b""[..], Alpn::bytes);
        Ok(Report {
            url: self.url.to_string(),
            bytes: whole.bytes,
            seconds,
            sha256: hex(&whole.sha256),
            paths,
            links: vec![],
            extra_bytes_sent,
            extra_bytes_received,
            multipath: connection.is_multipath(),
            early_data: false,
            resumed_at: self.resumed_at,
            retries: 0,
            longest_gap_ms: Some(longest_gap.as_secs_f64() * 1e3),
            quic_version: connection.version().to_string(),
            key_exchange: report::key_exchange(connection),
            protocol: String::from_utf8_lossy(protocol).into_owned(),
            file,
            is_sent: false,
        })
    }
}

enum TransferError {
    Request(RequestError),
    Write(std::io::Error),
}

impl From<RequestError> for TransferError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

/// Moves the body into the sink, counting.
async fn transfer<B: Body>(
    mut response: Response<B>,
    sink: &mut Sink,
    count: &Count,
    total: &AtomicU64,
    pace: Option<&Pace>,
) -> Result<(), TransferError> {
    let mut pieces: [Bytes; PIECES] = [const { Bytes::new() }; PIECES];
    // What is read makes room for more: so much at a time as makes an even flow.
    let most = pace.map_or(PIECES, |pace| pace.piece() / DATAGRAM);
    let pieces = &mut pieces[..most.clamp(1, PIECES)];
    while let Some(filled) = response.body.read(pieces).await? {
        count.arrived(clock::now());
        if let Some(pace) = pace {
            let bytes = pieces.iter().take(filled).map(Bytes::len);
            pace.wait(bytes.sum()).await;
        }
        for piece in pieces.iter_mut().take(filled) {
            let piece = std::mem::take(piece);
            let length = piece.len() as u64;
            let so_far = count.received.load(Ordering::Relaxed) + length;
            if let Some(end) = response.end.filter(|end| so_far > *end) {
                return Err(RequestError::TooLong(end).into());
            }
            count.writing.store(true, Ordering::Relaxed);
            sink.write(piece).await.map_err(TransferError::Write)?;
            count.writing.store(false, Ordering::Relaxed);
            count.received.store(so_far, Ordering::Relaxed);
            total.fetch_add(length, Ordering::Relaxed);
        }
    }
    let received = count.received.load(Ordering::Relaxed);
    match response.end {
        Some(length) if length != received => {
            Err(RequestError::Truncated { length, received }.into())
        }
        _ => Ok(()),
    }
}

fn cannot_write(destination: &Destination, error: &std::io::Error) -> Failure {
    let name = match destination {
        Destination::File(path) | Destination::Within(path, _) => path.display().to_string(),
        Destination::Stdout => "standard output".to_owned(),
        Destination::Nowhere => "nowhere".to_owned(),
        Destination::Memory(_) => "the list of a directory".to_owned(),
    };
    Cause::File.failed(format_args!("cannot write {name}: {error}"))
}

#[cfg(test)]
mod tests;
