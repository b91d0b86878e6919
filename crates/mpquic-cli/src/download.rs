//! One file, watched while it arrives, over one connection or over several one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Uri};
use mpquic_core::PathStats;
use mpquic_tokio::{Connection, VarInt};
use tokio::time::MissedTickBehavior;

use crate::backup;
use crate::clients::AnyClient;
use crate::clock;
use crate::count::Count;
use crate::failure::{Cause, Failure};
use crate::hex::hex;
use crate::json_output::JsonOutput;
use crate::knock;
use crate::options::Alpn;
use crate::pace::Pace;
use crate::progress::{Progress, REFRESH};
use crate::protocol::{Ask, Body, Client, RequestError, Response};
use crate::report::{self, Counters, Report, size};
use crate::retry::Reached;
use crate::screen;
use crate::sink::{Destination, Keep, Sink};
use crate::stamp::Stamp;

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
    /// Take no more than this.
    pub(crate) pace: Option<Arc<Pace>>,
    /// Give a request up if nothing arrives for so long.
    pub(crate) stall: Duration,
    /// Counts what arrives of all files.
    pub(crate) total: Arc<AtomicU64>,
    /// Tells of it as JSON.
    pub(crate) json: Option<Arc<JsonOutput>>,
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
    /// Bytes of the file that are there, and of which version.
    have: u64,
    stamp: Option<Stamp>,
    /// Bytes that were there at the beginning.
    resumed_at: u64,
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
    pub(crate) fn start(
        url: &'a Uri,
        destination: &'a Destination,
        treatment: Treatment,
    ) -> Result<Self, Failure> {
        let keep = Keep {
            url: &url.to_string(),
            resume: treatment.resume,
        };
        let (sink, begun) =
            Sink::create(destination, &keep).map_err(|error| cannot_write(destination, &error))?;
        let started = clock::now();
        let (have, stamp) = begun.have.unzip();
        let have = have.unwrap_or(0);
        let download = Self {
            url,
            destination,
            treatment,
            count: Arc::default(),
            sink,
            started,
            have,
            stamp,
            resumed_at: have,
            reached: Reached::new(have, started),
            protocol: None,
            before: Counters::default(),
            length: None,
        };
        download.count.received.store(have, Ordering::Relaxed);
        if let Some(json) = &download.treatment.json {
            json.add(url, &download.count, have);
        }
        if let Some(why) = begun.useless {
            download.say_restart(&format!("what is there cannot be gone on with, {why}"));
        } else if have > 0 {
            download.say(format_args!(
                "going on behind the {} that are there",
                size(have)
            ));
        }
        Ok(download)
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

    /// Ends it as it is, and tells what the user can do with what is there, if anything.
    pub(crate) fn leave(self) -> Option<String> {
        let kept = self.sink.kept();
        drop(self.sink);
        rest(self.destination, &kept)
    }

    pub(crate) fn have(&self) -> u64 {
        self.have
    }

    /// Asks for what is not there yet, and takes what comes.
    pub(crate) async fn fetch(
        &mut self,
        ask: &Ask,
        connection: &Connection,
        client: AnyClient,
    ) -> Result<(), Ended> {
        let mut ask = ask.clone();
        ask.have = self
            .stamp
            .clone()
            .map(|stamp| (self.have, stamp))
            .filter(|_| self.have > 0);
        let ended = match client.clone() {
            AnyClient::Http(client) => {
                self.protocol = Some(Alpn::H3);
                self.fetch_with(&ask, connection, &client).await
            }
            AnyClient::Hq(client) => {
                self.protocol = Some(Alpn::HqInterop);
                self.fetch_with(&ask, connection, &client).await
            }
        };
        let Err(Ended::Request(RequestError::PastEnd { length })) = &ended else {
            return ended;
        };
        if ask.have.is_none() {
            return ended;
        }
        if *length == Some(self.have) {
            // All of it was there.
            return Ok(());
        }
        self.restart("the file has changed on the server").await?;
        Box::pin(self.fetch(&ask, connection, client)).await
    }

    async fn restart(&mut self, why: &str) -> Result<(), Ended> {
        self.say_restart(why);
        self.have = 0;
        self.resumed_at = 0;
        self.stamp = None;
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
        if response.start != self.have {
            let why = match response.stamp.is_some() && response.stamp == self.stamp {
                true => "the server sends no parts of files",
                false if self.stamp.is_none() => "the server sends no parts of this file",
                false => "the file has changed on the server",
            };
            self.restart(why).await?;
        }
        if response.start == 0 {
            self.stamp.clone_from(&response.stamp);
            let told = self.sink.set_stamp(response.stamp.clone()).await;
            told.map_err(|error| self.cannot_write(&error))?;
        }
        self.receive(response, connection).await
    }

    /// Status and fields, for people and scripts.
    async fn show_head<B: Body>(&mut self, response: &Response<B>) -> Result<(), Ended> {
        let mut text = format!("HTTP/3 {}\n", response.status.as_u16()).into_bytes();
        for (name, value) in &response.fields {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
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
        let length = self.length.or(response.length);
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

    /// Gives the file its name, if it is what is `expected`, and tells what the paths did.
    pub(crate) async fn finish(
        self,
        connection: &Connection,
        expected: Option<[u8; 32]>,
    ) -> Result<Report, Failure> {
        let seconds = (clock::now() - self.started).as_secs_f64();
        let after = Counters::new(connection.path_stats(), &connection.stats());
        let (extra_bytes_sent, extra_bytes_received) = after.extra_since(&self.before);
        let longest_gap = self.count.longest_gap();
        let destination = self.destination;
        let kept = self.sink.kept();
        let whole = self
            .sink
            .finish(expected)
            .await
            .map_err(|error| cannot_write(destination, &error).and(rest(destination, &kept)))?;
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
            Destination::File(path) => Some(path.display().to_string()),
            Destination::Stdout | Destination::Nowhere | Destination::Memory(_) => None,
        };
        let protocol = self.protocol.map_or(&b""[..], Alpn::bytes);
        Ok(Report {
            url: self.url.to_string(),
            bytes: whole.bytes,
            seconds,
            sha256: hex(&whole.sha256),
            paths,
            extra_bytes_sent,
            extra_bytes_received,
            multipath: connection.is_multipath(),
            early_data: false,
            resumed_at: self.resumed_at,
            retries: 0,
            longest_gap_ms: Some(longest_gap.as_secs_f64() * 1e3),
            quic_version: connection.version().to_string(),
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
            if let Some(length) = response.length.filter(|length| so_far > *length) {
                return Err(RequestError::TooLong(length).into());
            }
            count.writing.store(true, Ordering::Relaxed);
            sink.write(piece).await.map_err(TransferError::Write)?;
            count.writing.store(false, Ordering::Relaxed);
            count.received.store(so_far, Ordering::Relaxed);
            total.fetch_add(length, Ordering::Relaxed);
        }
    }
    let received = count.received.load(Ordering::Relaxed);
    match response.length {
        Some(length) if length != received => {
            Err(RequestError::Truncated { length, received }.into())
        }
        _ => Ok(()),
    }
}

/// What the user can do with so many bytes that are left of a file.
fn rest(destination: &Destination, kept: &AtomicU64) -> Option<String> {
    let kept = kept.load(Ordering::Acquire);
    match destination {
        Destination::File(path) if kept > 0 => Some(format!(
            "{} are in {}.part, and --continue goes on behind them",
            size(kept),
            path.display()
        )),
        _ => None,
    }
}

fn cannot_write(destination: &Destination, error: &std::io::Error) -> Failure {
    let name = match destination {
        Destination::File(path) => path.display().to_string(),
        Destination::Stdout => "standard output".to_owned(),
        Destination::Nowhere => "nowhere".to_owned(),
        Destination::Memory(_) => "the list of a directory".to_owned(),
    };
    Cause::File.failed(format_args!("cannot write {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use http::{HeaderMap, HeaderValue, StatusCode};
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::limits::Limits;
    use crate::sink::Memory;
    use crate::testing::{Anything, Served, soon};

    /// A body of these reads, each of which gives some pieces.
    struct Reads {
        left: VecDeque<Result<Vec<&'static [u8]>, RequestError>>,
        /// How many pieces were asked for.
        asked: Arc<Mutex<Vec<usize>>>,
    }

    impl Body for Reads {
        async fn read(&mut self, chunks: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
            self.asked.lock().unwrap().push(chunks.len());
            let Some(pieces) = self.left.pop_front() else {
                return Ok(None);
            };
            let pieces = pieces?;
            for (chunk, piece) in chunks.iter_mut().zip(&pieces) {
                *chunk = Bytes::from_static(piece);
            }
            Ok(Some(pieces.len()))
        }
    }

    type Answer = Response<Reads>;

    fn answer(start: u64, length: Option<u64>, tag: &str, reads: &[&[&'static [u8]]]) -> Answer {
        Response {
            start,
            length,
            stamp: Some(Stamp::Etag(tag.to_owned())),
            status: StatusCode::OK,
            fields: HeaderMap::new(),
            body: Reads {
                left: reads.iter().map(|pieces| Ok(pieces.to_vec())).collect(),
                asked: Arc::default(),
            },
        }
    }

    /// What came of a transfer of which so much is there already: the end, the bytes in all and of this
    /// transfer, and what was written.
    async fn transferred(answer: Answer, have: u64) -> (Result<(), String>, u64, u64, Vec<u8>) {
        let memory = Memory::new(100);
        let keep = Keep {
            url: "",
            resume: false,
        };
        let destination = Destination::Memory(memory.clone());
        let (mut sink, _) = Sink::create(&destination, &keep).unwrap();
        let (count, total) = (Count::default(), AtomicU64::new(0));
        count.received.store(have, Ordering::Relaxed);
        let end = transfer(answer, &mut sink, &count, &total, None).await;
        let end = end.map_err(|error| match error {
            TransferError::Request(error) => error.to_string(),
            TransferError::Write(error) => panic!("{error}"),
        });
        assert!(!count.writing.load(Ordering::Relaxed));
        sink.finish(None).await.unwrap();
        let total = total.load(Ordering::Relaxed);
        (end, count.received(), total, memory.take())
    }

    #[tokio::test]
    async fn a_body_is_as_long_as_was_announced() {
        let reads: [&[&[u8]]; 2] = [&[b"abc", b"de"], &[b"fghij"]];
        let all = b"abcdefghij".to_vec();
        let of = |length| answer(0, length, "\"1\"", &reads);
        for length in [Some(10), None] {
            let done = (Ok(()), 10, 10, all.clone());
            assert_eq!(transferred(of(length), 0).await, done);
        }
        let rest = (Ok(()), 15, 10, all.clone());
        assert_eq!(transferred(of(Some(15)), 5).await, rest);
        let long = "the answer is longer than the 4 bytes that were announced";
        let end = transferred(of(Some(4)), 0).await;
        assert_eq!(end, (Err(long.to_owned()), 3, 3, b"abc".to_vec()));
        let cut = "the answer ended after 10 of 11 bytes";
        let end = transferred(of(Some(11)), 0).await;
        assert_eq!(end, (Err(cut.to_owned()), 10, 10, all));
    }

    /// What is read makes room for more.
    #[tokio::test(start_paused = true)]
    async fn at_a_rate_less_is_read_at_a_time() {
        for (rate, most) in [
            (None, PIECES),
            (Some("8M"), 7),
            // What the pace gives is a whole number of datagrams of 1400 bytes.
            (Some("11.2M"), 10),
            (Some("10k"), 1),
            (Some("1G"), PIECES),
        ] {
            let answer = answer(0, None, "", &[&[b"abc"]]);
            let asked = answer.body.asked.clone();
            let pace = rate.map(|rate| Pace::new(rate.parse().unwrap()));
            let keep = Keep {
                url: "",
                resume: false,
            };
            let (mut sink, _) = Sink::create(&Destination::Nowhere, &keep).unwrap();
            let (count, total) = (Count::default(), AtomicU64::new(0));
            let end = transfer(answer, &mut sink, &count, &total, pace.as_ref()).await;
            assert!(end.is_ok());
            assert_eq!(*asked.lock().unwrap(), [most; 2], "{rate:?}");
        }
    }

    /// So much is written at once: what is less is not yet there if it is cut.
    static BEGINNING: [u8; 256 << 10] = [7; 256 << 10];
    const FIRST: u64 = 256 << 10;

    /// A client whose answers are known before.
    struct Known(Mutex<VecDeque<Answer>>);

    impl Client for Known {
        type Body = Reads;

        async fn ask(&self, _: &Ask) -> Result<Answer, RequestError> {
            self.0
                .lock()
                .unwrap()
                .pop_front()
                .ok_or(RequestError::NotFound)
        }
    }

    fn treatment() -> Treatment {
        Treatment {
            quiet: true,
            resume: true,
            pace: None,
            stall: Duration::from_secs(20),
            total: Arc::default(),
            json: None,
        }
    }

    async fn fetched(
        download: &mut Download<'_>,
        connection: &Connection,
        method: Method,
        answer: Answer,
    ) -> Result<(), Failure> {
        let client = Known(Mutex::new(VecDeque::from([answer])));
        let ask = Ask {
            method,
            ..Ask::get(download.url)
        };
        let ended = download.fetch_with(&ask, connection, &client).await;
        ended.map_err(Failure::from)
    }

    #[tokio::test]
    async fn what_is_there_is_gone_on_with_if_it_is_the_same() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let connection = served.connect(1 << 20).await;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let destination = Destination::File(path.clone());
        let url = Uri::from_static("https://host/file");
        let begin = || Download::start(&url, &destination, treatment()).unwrap();
        let whole = [&BEGINNING[..], b"456789"].concat();

        let mut download = begin();
        assert_eq!(
            (download.have(), download.reached.at),
            (0, download.started)
        );
        let mut cut = answer(0, Some(FIRST + 6), "\"1\"", &[&[&BEGINNING]]);
        cut.body.left.push_back(Err(RequestError::Cancelled));
        let failure = fetched(&mut download, &connection, Method::GET, cut).await;
        assert_eq!(failure.unwrap_err().message(), "the request was cancelled");
        assert_eq!(download.have(), FIRST);
        let told = format!(
            "256.0 KiB are in {}.part, and --continue goes on behind them",
            path.display()
        );
        assert_eq!(download.leave(), Some(told));

        let mut download = begin();
        assert_eq!((download.have(), download.count.received()), (FIRST, FIRST));
        let rest = answer(FIRST, Some(FIRST + 6), "\"1\"", &[&[b"456"], &[b"789"]]);
        fetched(&mut download, &connection, Method::GET, rest)
            .await
            .unwrap();
        assert_eq!(download.treatment.total.load(Ordering::Relaxed), 6);
        assert_eq!(download.count.length(), Some(FIRST + 6));
        assert!(download.reached.at > download.started, "it came on");
        let last = clock::now();
        for pause in [0, 7500] {
            download.count.arrived(last + Duration::from_millis(pause));
        }
        let report = download.finish(&connection, None).await.unwrap();
        assert_eq!(
            (report.bytes, report.resumed_at, report.retries),
            (FIRST + 6, FIRST, 0)
        );
        assert_eq!(report.sha256, hex(&Sha256::digest(&whole)));
        assert_eq!(report.file, Some(path.display().to_string()));
        assert_eq!((report.url, report.paths.len()), (url.to_string(), 1));
        assert!(!report.early_data && !report.is_sent);
        assert_eq!(report.longest_gap_ms, Some(7500.0));
        assert!(std::fs::read(&path).unwrap() == whole);
    }

    /// A body of which nothing comes.
    struct Silent;

    impl Body for Silent {
        async fn read(&mut self, _: &mut [Bytes]) -> Result<Option<usize>, RequestError> {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a_body_of_which_nothing_comes_is_given_up() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let connection = served.connect(1 << 20).await;
        let url = Uri::from_static("https://host/file");
        let treatment = Treatment {
            stall: Duration::ZERO,
            ..treatment()
        };
        let mut download = Download::start(&url, &Destination::Nowhere, treatment).unwrap();
        // The request before was given up while it wrote.
        download.count.writing.store(true, Ordering::Relaxed);
        let Response {
            start,
            length,
            stamp,
            status,
            fields,
            ..
        } = answer(0, None, "", &[]);
        let silent = Response {
            start,
            length,
            stamp,
            status,
            fields,
            body: Silent,
        };
        let ended = soon(download.receive(silent, &connection)).await;
        let Err(Ended::Request(error)) = ended else {
            panic!("{ended:?}");
        };
        assert_eq!(error.to_string(), "the server sent nothing for 0 s");
    }

    #[tokio::test]
    async fn another_version_begins_anew() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let connection = served.connect(1 << 20).await;
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::File(directory.path().join("file"));
        let url = Uri::from_static("https://host/file");
        let mut download = Download::start(&url, &destination, treatment()).unwrap();
        let mut cut = answer(0, Some(10), "\"1\"", &[&[b"0123"]]);
        cut.body.left.push_back(Err(RequestError::Gone));
        let cut = fetched(&mut download, &connection, Method::GET, cut).await;
        assert_eq!(cut.unwrap_err().cause(), Some(Cause::Broken));
        let other = answer(0, Some(3), "\"2\"", &[&[b"abc"]]);
        fetched(&mut download, &connection, Method::GET, other)
            .await
            .unwrap();
        assert_eq!((download.have, download.resumed_at), (3, 0));
        assert_eq!(download.stamp, Some(Stamp::Etag("\"2\"".to_owned())));
        let expected = Sha256::digest(b"other").into();
        let failure = download
            .finish(&connection, Some(expected))
            .await
            .unwrap_err();
        assert_eq!(failure.cause(), Some(Cause::Content));
        let told = format!("its SHA-256 is {}, but ", hex(&Sha256::digest(b"abc")));
        assert!(
            failure.message().starts_with(&told),
            "{}",
            failure.message()
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn of_a_head_the_fields_are_shown() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let connection = served.connect(1 << 20).await;
        let memory = Memory::new(100);
        let destination = Destination::Memory(memory.clone());
        let url = Uri::from_static("https://host/file");
        let mut download = Download::start(&url, &destination, treatment()).unwrap();
        let mut head = answer(0, Some(10), "", &[]);
        head.fields.insert("x-a", HeaderValue::from_static("b"));
        fetched(&mut download, &connection, Method::HEAD, head)
            .await
            .unwrap();
        let report = download.finish(&connection, None).await.unwrap();
        assert_eq!(
            (memory.take(), report.file),
            (b"HTTP/3 200\nx-a: b\n\n".to_vec(), None)
        );
    }

    #[test]
    fn what_is_left_and_what_cannot_be_written_is_named() {
        let file = Destination::File("a/b".into());
        let kept = |bytes| rest(&file, &AtomicU64::new(bytes));
        assert_eq!(kept(0), None);
        let told = "1 B are in a/b.part, and --continue goes on behind them";
        assert_eq!(kept(1).as_deref(), Some(told));
        assert_eq!(rest(&Destination::Stdout, &AtomicU64::new(5)), None);
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        for (destination, name) in [(&file, "a/b"), (&Destination::Stdout, "standard output")] {
            let failure = cannot_write(destination, &full);
            let told = format!("cannot write {name}: ");
            assert!(failure.message().starts_with(&told));
            assert_eq!(failure.cause(), Some(Cause::File));
        }
    }
}
