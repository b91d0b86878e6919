//! `mpquic put`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use http::{Method, Uri};
use mpquic_tokio::Connection;
use sha2::{Digest, Sha256};
use tokio::time::MissedTickBehavior;

use crate::clients::AnyClient;
use crate::clock;
use crate::directory_page::percent_encode;
use crate::failure::{Cause, Failure};
use crate::hex::hex;
use crate::http_client;
use crate::options::{Alpn, parse_url};
use crate::pace::Pace;
use crate::progress::{Progress, REFRESH};
use crate::protocol::{Ask, RequestError};
use crate::rate::Rate;
use crate::reach::{Patience, Reach};
use crate::report::{self, Counters, Report};
use crate::retry::Retry;
use crate::session::{Purpose, Sessions};

/// Bytes read from the file at a time.
const PIECE: usize = 256 << 10;

/// Send a file over all paths at once
///
/// By PUT of HTTP/3: `mpquic serve --allow-put` takes it, and other servers that know the method. It
/// has its name there once it is whole.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// Where to, as https://HOST[:PORT]/FILE; after a slash at its end follows the name of the file
    #[arg(value_name = "URL", value_parser = parse_url)]
    url: Uri,
    /// What to send; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    patience: Patience,
    /// Send at this rate at most, in bits per second with a unit, such as 800k, 20M or 1.5G
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Print a JSON object when done
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Sends the file, again if the connection is lost.
pub(crate) async fn run(args: Put) -> Result<(), Failure> {
    let is_stdin = args.file == Path::new("-");
    let url = target(&args.url, &args.file, is_stdin)?;
    let mut body = Input::open(&args.file, is_stdin)?;
    let urls = [url];
    let [url] = &urls;
    let sessions = Sessions::new(
        &args.reach,
        Purpose {
            urls: &urls,
            alpn: &[Alpn::H3],
            early_data: false,
            quiet: args.quiet,
            datagrams: false,
            rate: args.rate,
        },
    )?;
    let started = clock::now();
    let mut retry = Retry::new(Duration::from_secs(args.patience.retry_time), started);
    let mut put = Sending {
        args: &args,
        url,
        advanced: started,
        connected: false,
        pace: args.rate.map(Pace::new),
    };
    let connection = loop {
        let failure = match put.attempt(&sessions, &mut body).await {
            Ok(connection) => break connection,
            Err(failure) => failure,
        };
        let next = match failure.is_temporary && put.connected && !is_stdin {
            true => retry.next(put.advanced, clock::now()),
            false => None,
        };
        let Some((pause, is_first)) = next else {
            return Err(failure.failure.about(url));
        };
        if is_first && !args.quiet {
            eprintln!("mpquic: {url}: {}; trying again", failure.failure.message());
        }
        sessions.give_up().await;
        tokio::time::sleep(pause).await;
        body = Input::open(&args.file, is_stdin)?;
    };
    let after = Counters::new(connection.path_stats(), &connection.stats());
    let (extra_bytes_sent, extra_bytes_received) = after.extra_since(&Counters::default());
    let report = Report {
        url: url.to_string(),
        bytes: body.bytes,
        seconds: (clock::now() - started).as_secs_f64(),
        sha256: hex(&body.hash.finalize()),
        paths: report::paths(&[], &after.paths),
        extra_bytes_sent,
        extra_bytes_received,
        multipath: connection.is_multipath(),
        early_data: false,
        resumed_at: 0,
        retries: retry.count.into(),
        longest_gap_ms: None,
        quic_version: connection.version().to_string(),
        protocol: String::from_utf8_lossy(Alpn::H3.bytes()).into_owned(),
        file: (!is_stdin).then(|| args.file.display().to_string()),
        is_sent: true,
    };
    sessions.close().await;
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&report).map_err(Failure::other)?
        );
    } else if !args.quiet {
        eprintln!("{url}: {}", report.summary());
        eprint!("{}", report.table());
    }
    Ok(())
}

/// Where the file goes.
fn target(url: &Uri, file: &Path, is_stdin: bool) -> Result<Uri, Failure> {
    if !url.path().ends_with('/') {
        return Ok(url.clone());
    }
    let name = file.file_name().filter(|_| !is_stdin);
    let name = name.and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::usage(format!(
            "{url} names no file, and {} none to add",
            file.display()
        ))
    })?;
    let text = url.to_string();
    let without_query = text.split('?').next().unwrap_or_default();
    let text = format!("{without_query}{}", percent_encode(name));
    text.parse().map_err(Failure::usage)
}

/// What is sent.
struct Input {
    reader: Option<Box<dyn Read + Send>>,
    /// Its length, if that is known before.
    length: Option<u64>,
    bytes: u64,
    hash: Sha256,
}

impl Input {
    fn open(path: &Path, is_stdin: bool) -> Result<Self, Failure> {
        let cannot_read = |error: io::Error| cannot_read(path, &error);
        let (reader, length): (Box<dyn Read + Send>, _) = if is_stdin {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(cannot_read)?;
            let metadata = file.metadata().map_err(cannot_read)?;
            if metadata.is_dir() {
                return Err(cannot_read(io::ErrorKind::IsADirectory.into()));
            }
            // Devices and pipes have none.
            let length = metadata.is_file().then_some(metadata.len());
            (Box::new(file), length)
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
        let run = move || {
            let mut piece = vec![0; PIECE];
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

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Cause::File.failed(format_args!("cannot read {}: {error}", path.display()))
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

/// The tries to send one file.
struct Sending<'a> {
    args: &'a Put,
    url: &'a Uri,
    /// When something was sent last.
    advanced: Instant,
    /// There was a connection once.
    connected: bool,
    pace: Option<Pace>,
}

impl Sending<'_> {
    async fn attempt(
        &mut self,
        sessions: &Sessions<'_>,
        body: &mut Input,
    ) -> Result<Connection, Unsent> {
        let connected = sessions.connection(self.url).await?;
        self.connected = true;
        let AnyClient::Http(client) = connected.clients.established().await? else {
            return Err(Failure::other("the server does not speak HTTP/3").into());
        };
        let connection = connected.connection;
        let ask = Ask {
            method: Method::PUT,
            ..Ask::get(self.url)
        };
        let title = self.url.path().rsplit('/').next().unwrap_or_default();
        let now = clock::now();
        let quiet = self.args.quiet;
        let progress = Progress::new(title.to_owned(), body.length, now, quiet, &[]);
        let mut progress = progress.of_sending();
        let mut request = client.put(&ask, body.length).await?;
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let stall = self.args.patience.stall.limit();
        self.advanced = now;
        let mut seen = None;
        let sent = Sent::default();
        let result = {
            let flow = Flow {
                file: &self.args.file,
                pace: self.pace.as_ref(),
                sent: &sent,
            };
            let send = flow.send(&mut request, body);
            tokio::pin!(send);
            loop {
                tokio::select! {
                    result = &mut send => break result,
                    _ = ticks.tick() => {
                        let now = clock::now();
                        let stats = connection.path_stats();
                        let bytes = sent.bytes.load(std::sync::atomic::Ordering::Relaxed);
                        progress.update(now, bytes, &stats);
                        // What was taken into the send buffer says less than what was acknowledged.
                        let heard: u64 = stats.iter().map(|path| path.bytes_received).sum();
                        let reading = sent.reading.load(std::sync::atomic::Ordering::Relaxed);
                        if reading || seen != Some((bytes, heard)) {
                            seen = Some((bytes, heard));
                            self.advanced = now;
                        } else if now >= self.advanced + stall {
                            break Err(RequestError::Stalled(stall.as_secs()).into());
                        }
                    }
                }
            }
        };
        progress.clear();
        result.map(|()| connection)
    }
}

/// What a try tells about itself while it runs.
#[derive(Default)]
struct Sent {
    bytes: std::sync::atomic::AtomicU64,
    /// It waits for the disk, or for whoever writes standard input.
    reading: std::sync::atomic::AtomicBool,
}

/// How a body is sent.
struct Flow<'a> {
    file: &'a Path,
    pace: Option<&'a Pace>,
    sent: &'a Sent,
}

impl Flow<'_> {
    /// Sends the body, and waits for the answer.
    async fn send(&self, request: &mut http_client::Put, body: &mut Input) -> Result<(), Unsent> {
        use std::sync::atomic::Ordering::Relaxed;
        let most = self.pace.map_or(usize::MAX, Pace::piece);
        loop {
            self.sent.reading.store(true, Relaxed);
            let piece = body.read().await;
            let mut piece = piece.map_err(|error| cannot_read(self.file, &error))?;
            self.sent.reading.store(false, Relaxed);
            if piece.is_empty() {
                break;
            }
            if body.length.is_some_and(|length| body.bytes > length) {
                let name = self.file.display();
                let changed = Cause::File.failed(format_args!("{name} grew while it was read"));
                return Err(changed.into());
            }
            while !piece.is_empty() {
                let part = piece.split_to(most.min(piece.len()));
                if let Some(pace) = self.pace {
                    pace.wait(part.len()).await;
                }
                if !request.send(part).await? {
                    // The server has its answer already.
                    return Ok(request.finish().await?);
                }
                let sent = body.bytes - piece.len() as u64;
                self.sent.bytes.store(sent, Relaxed);
            }
        }
        Ok(request.finish().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_go() {
        let to = |url: &str, file: &str, is_stdin| {
            let target = target(&url.parse().unwrap(), Path::new(file), is_stdin);
            target.map(|url| url.to_string()).ok()
        };
        let plain = Some("https://host/a".to_owned());
        assert_eq!(to("https://host/a", "x", false), plain);
        assert_eq!(to("https://host/a", "-", true), plain);
        let named = Some("https://host/d/b%20c".to_owned());
        assert_eq!(to("https://host/d/?q", "a/b c", false), named);
        assert_eq!(to("https://host/", "-", true), None);
        assert_eq!(to("https://host/", "..", false), None);
    }
}
