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
mod tests {
    use super::*;
    use crate::files::{Content, OpenError, Source};
    use crate::limits::Limits;
    use crate::screen::tests::Heard;
    use crate::session::Purpose;
    use crate::testing::{Served, soon};
    use crate::upload::{Upload, UploadError};

    /// Takes its time before it takes a file.
    struct Slow {
        time: Duration,
        directory: tempfile::TempDir,
    }

    impl Source for Slow {
        fn open(&self, _: &str) -> Result<Content, OpenError> {
            Err(OpenError::NotFound)
        }

        fn max_upload(&self) -> Option<u64> {
            Some(1000)
        }

        fn upload(&self, _: &str) -> Result<Upload, UploadError> {
            std::thread::sleep(self.time);
            Upload::create(self.directory.path(), "file")
        }
    }

    fn sending<'a>(sessions: &'a Sessions<'a>, stall: Duration) -> Sending<'a> {
        Sending {
            sessions,
            retry: Duration::from_secs(60),
            stall,
            quiet: false,
            pace: None,
            total: Total::default(),
        }
    }

    /// A server may be silent for a while, and then for too long.
    #[tokio::test]
    async fn a_silent_server_is_waited_for_as_long_as_was_said() {
        let source = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(source.path(), "content").unwrap();
        for (wait, stall, is_sent) in [(350, 20_000, true), (1500, 300, false)] {
            let slow = Slow {
                time: Duration::from_millis(wait),
                directory: tempfile::tempdir().unwrap(),
            };
            let there = slow.directory.path().join("file");
            let served = Served::start(slow, Limits::default(), Alpn::H3);
            let (url, reach) = (served.url("/file"), served.reach(&[]));
            let look = Purpose::look(&url, &[Alpn::H3]);
            let sessions = Sessions::new(&reach, look).unwrap().that_forget();
            let mut sending = sending(&sessions, Duration::from_millis(stall));
            sending.retry = Duration::ZERO;
            let item = Item {
                file: Some(source.path().to_owned()),
                url: url.clone(),
            };
            let sent = soon(sending.send_file(&item)).await;
            if is_sent {
                let report = sent.unwrap();
                assert_eq!((report.bytes, report.retries), (7, 0));
                assert_eq!(std::fs::read(there).unwrap(), b"content");
                assert_eq!(sending.total.bytes.load(Relaxed), 7);
            } else {
                let failure = sent.unwrap_err();
                assert_eq!(failure.message(), "the server sent nothing for 0 s");
                // It would have to be sent again.
                assert_eq!(sending.total.bytes.load(Relaxed), 0);
            }
        }
    }

    /// The first time it is said that it is tried again; and only what may go well the next time is.
    #[tokio::test(start_paused = true)]
    async fn only_what_may_help_is_tried_again() {
        let url = Uri::from_static("https://host/file");
        let reach = crate::testing::reach(&["--insecure"]);
        let look = Purpose::look(&url, &[Alpn::H3]);
        let sessions = Sessions::new(&reach, look).unwrap().that_forget();
        let mut sending = sending(&sessions, Duration::from_secs(1));
        let unsent = |is_temporary| Unsent {
            failure: Cause::Broken.failed("lost"),
            is_temporary,
        };
        let heard = Heard::begin();
        let mut tries = Tries::new(sending.retry);
        let next = sending.next_try(&mut tries, unsent(true), &url, true);
        assert_eq!(next.await.unwrap_err().message(), "lost", "never connected");
        tries.connected = true;
        for (is_temporary, may_repeat) in [(false, true), (true, false)] {
            let next = sending.next_try(&mut tries, unsent(is_temporary), &url, may_repeat);
            assert!(next.await.is_err());
        }
        assert_eq!(heard.take(), ["", ""]);
        let began = tokio::time::Instant::now();
        for (millis, said) in [
            (250, "mpquic: https://host/file: lost; trying again\n"),
            (750, ""),
        ] {
            let next = sending.next_try(&mut tries, unsent(true), &url, true);
            next.await.unwrap();
            assert_eq!(heard.take(), ["", said]);
            assert_eq!(began.elapsed().as_millis() / 10, millis / 10);
        }
        sending.quiet = true;
        let mut tries = Tries::new(sending.retry);
        tries.connected = true;
        let next = sending.next_try(&mut tries, unsent(true), &url, true);
        next.await.unwrap();
        assert_eq!(heard.take(), ["", ""]);
        assert_eq!(tries.retry.count, 1);
    }

    fn item(path: &Path) -> Item {
        Item {
            file: Some(path.to_owned()),
            url: Uri::from_static("https://host/file"),
        }
    }

    async fn read(input: &mut Input) -> Vec<usize> {
        let mut sizes = Vec::new();
        loop {
            let piece = input.read().await.unwrap();
            sizes.push(piece.len());
            if piece.is_empty() {
                return sizes;
            }
        }
    }

    #[tokio::test]
    async fn files_are_read_in_pieces_and_hashed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let data: Vec<u8> = (0..PIECE + 10).map(|index| index as u8).collect();
        for (length, sizes) in [
            (0, &[0][..]),
            (5, &[5, 0]),
            (PIECE, &[PIECE, 0]),
            (PIECE + 10, &[PIECE, 10, 0]),
        ] {
            std::fs::write(&path, &data[..length]).unwrap();
            let mut input = Input::open(&item(&path)).unwrap();
            assert_eq!(input.length, Some(length as u64));
            assert_eq!(read(&mut input).await, sizes);
            assert_eq!(input.bytes, length as u64);
            assert_eq!(input.hash.finalize(), Sha256::digest(&data[..length]));
        }
        // One that grows is read one byte further, which shows it.
        std::fs::write(&path, "123").unwrap();
        let mut input = Input::open(&item(&path)).unwrap();
        std::fs::write(&path, "123456789").unwrap();
        assert_eq!(input.read().await.unwrap(), "1234");
        assert!(input.length < Some(input.bytes));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), &directory.path().join("missing")] {
            let failure = Input::open(&item(path)).err().unwrap();
            let told = format!("cannot read {}: ", path.display());
            assert!(
                failure.message().starts_with(&told),
                "{}",
                failure.message()
            );
        }
        #[cfg(unix)]
        assert_eq!(
            Input::open(&item(Path::new("/dev/null"))).unwrap().length,
            None
        );
    }

    /// What is lost on the way may go well the next time; what the server refuses does not.
    #[test]
    fn some_failures_are_temporary() {
        for (cause, is_temporary) in [
            (Cause::Name, true),
            (Cause::Connect, true),
            (Cause::Broken, true),
            (Cause::Refused, false),
            (Cause::Trust, false),
            (Cause::File, false),
        ] {
            let unsent = Unsent::from(cause.failed("x"));
            assert_eq!(unsent.is_temporary, is_temporary, "{cause:?}");
            assert_eq!(unsent.failure.message(), "x");
        }
        let stalled = Unsent::from(RequestError::Stalled(7));
        assert!(stalled.is_temporary && stalled.failure.message().contains("7 s"));
        let refused = Unsent::from(RequestError::Status(StatusCode::FORBIDDEN));
        assert!(!refused.is_temporary && refused.failure.message().contains("403"));
    }
}
