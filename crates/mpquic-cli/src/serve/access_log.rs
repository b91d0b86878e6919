//! The access log: a line for each request.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use mpquic_core::PeerText;
use serde::Serialize;

use crate::process::clock;
use crate::text::count::count;
use crate::text::json;
use crate::text::times;

/// Lines that may wait for the disk. Further lines are counted and dropped, because requests do not
/// wait.
const MAX_WAITING: usize = 10_000;

/// How long the end of the server waits until waiting lines are written: who reads standard output
/// may have stopped reading.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks at whether they are written.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How the lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The Common Log Format of web servers
    Common,
    /// A JSON object
    Json,
}

/// A request that was answered, or given up.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// When it was over.
    #[serde(serialize_with = "iso")]
    pub(crate) time: SystemTime,
    pub(crate) client: IpAddr,
    /// Absent if users need no credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    pub(crate) method: String,
    /// The path, with the query.
    pub(crate) target: String,
    pub(crate) protocol: &'static str,
    /// Absent if the answer had no status.
    pub(crate) status: Option<u16>,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// The answer began, and did not come to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cut: bool,
    /// How long it took.
    #[serde(serialize_with = "seconds")]
    pub(crate) seconds: Duration,
}

/// Writes entries on a thread of its own.
#[derive(Debug)]
pub(crate) struct AccessLog {
    /// `None` after the end.
    writer: Mutex<Option<Writer>>,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    sender: SyncSender<Message>,
    thread: thread::JoinHandle<()>,
}

#[derive(Debug)]
enum Message {
    Line(Box<Entry>),
    /// The file was given another name, and lines to come belong into a new one.
    Reopen,
}

/// Where lines go.
struct Target {
    /// `None` for standard output.
    path: Option<PathBuf>,
    file: io::BufWriter<Box<dyn Write + Send>>,
}

impl Target {
    fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let file: Box<dyn Write + Send> = match &path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(File::options().append(true).create(true).open(path)?),
        };
        let file = io::BufWriter::new(file);
        Ok(Self { path, file })
    }

    /// Continues in the file that now has the name; in the old file if the new one cannot be
    /// opened.
    fn reopen(&mut self) -> io::Result<()> {
        self.file.flush()?;
        match Self::open(self.path.clone()) {
            Ok(target) => *self = target,
            Err(error) => tracing::error!(%error, "the access log stays where it was"),
        }
        Ok(())
    }
}

impl AccessLog {
    /// Appends to a file; `-` is standard output.
    pub(crate) fn open(path: &Path, format: Format) -> io::Result<Self> {
        let path = (path != Path::new("-")).then(|| path.to_owned());
        let to = Target::open(path)?;
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let thread = thread::Builder::new()
            .name("access log".to_owned())
            .spawn(move || write_all(&receiver, to, format))?;
        Ok(Self {
            writer: Mutex::new(Some(Writer { sender, thread })),
            lost: AtomicU64::new(0),
        })
    }

    pub(crate) fn add(&self, entry: Entry) {
        if !self.tell(Message::Line(Box::new(entry))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines to come are written to the file that has the name then.
    pub(crate) fn reopen(&self) {
        if !self.tell(Message::Reopen) {
            tracing::error!("the access log stays where it was: too many lines wait");
        }
    }

    fn tell(&self, message: Message) -> bool {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = writer.as_ref().map(|writer| &writer.sender);
        sender.is_some_and(|sender| sender.try_send(message).is_ok())
    }

    /// Writes the waiting lines, for [`PATIENCE`] at most. Later lines are only counted.
    pub(crate) fn finish(&self) {
        self.finish_within(PATIENCE);
    }

    fn finish_within(&self, patience: Duration) {
        let writer = self.writer.lock();
        let writer = writer.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Writer { sender, thread }) = writer {
            drop(sender);
            let until = clock::now() + patience;
            while !thread.is_finished() && clock::now() < until {
                thread::sleep(LOOK_EVERY);
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!("nobody reads the access log: its last lines are not written");
            }
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let lines = count(lost, "line");
            tracing::warn!("not written to the access log: {lines}");
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.finish();
    }
}

fn write_all(messages: &Receiver<Message>, mut to: Target, format: Format) {
    while let Ok(first) = messages.recv() {
        // Waiting lines are written together.
        let more = std::iter::from_fn(|| messages.try_recv().ok());
        let all = std::iter::once(first).chain(more).take(MAX_WAITING);
        let written = all
            .into_iter()
            .try_for_each(|message| match message {
                Message::Line(entry) => writeln!(to.file, "{}", line(&entry, format)),
                Message::Reopen => to.reopen(),
            })
            .and_then(|()| to.file.flush());
        if let Err(error) = written {
            tracing::warn!(%error, "the access log ends");
            return;
        }
    }
}

fn line(entry: &Entry, format: Format) -> String {
    match format {
        Format::Json => json::line(entry),
        Format::Common => {
            let status = entry
                .status
                .map_or("-".to_owned(), |status| status.to_string());
            format!(
                "{} - {} [{}] \"{} {} {}\" {status} {}",
                entry.client,
                quoted(entry.user.as_deref().unwrap_or("-")),
                common_date(entry.time),
                quoted(&entry.method),
                quoted(&entry.target),
                entry.protocol,
                entry.bytes
            )
        }
    }
}

/// Without what would end the quotes or the line.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if !PeerText::is_plain(c) => c.escape_default().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Day, month, year and time of `Sun, 06 Nov 1994 08:49:37 GMT`; `None` where the clock is off by
/// centuries.
fn parts(time: SystemTime) -> Option<[String; 4]> {
    let text = times::http_date(time)?;
    let mut words = text.split(' ').skip(1).map(str::to_owned);
    Some(std::array::from_fn(|_| words.next().unwrap_or_default()))
}

/// `06/Nov/1994:08:49:37 +0000`
fn common_date(time: SystemTime) -> String {
    let date = |[day, month, year, time]: [String; 4]| format!("{day}/{month}/{year}:{time} +0000");
    parts(time).map_or("-".to_owned(), date)
}

/// `1994-11-06T08:49:37Z`
fn iso_date(time: SystemTime) -> Option<String> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let [day, month, year, time] = parts(time)?;
    let month = MONTHS.find(&month).unwrap_or_default() / 3 + 1;
    Some(format!("{year}-{month:02}-{day}T{time}Z"))
}

fn iso<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    iso_date(*time).serialize(serializer)
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged;

    fn entry(target: &str) -> Entry {
        Entry {
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
            client: "192.0.2.1".parse().unwrap(),
            user: None,
            method: "GET".to_owned(),
            target: target.to_owned(),
            protocol: "HTTP/3",
            status: Some(200),
            bytes: 17,
            cut: false,
            seconds: Duration::from_millis(250),
        }
    }

    #[test]
    fn lines() {
        assert_eq!(
            line(&entry("/a?b"), Format::Common),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/3\" 200 17"
        );
        assert_eq!(
            line(&entry("/a?b"), Format::Json),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"client\":\"192.0.2.1\",\"method\":\"GET\",\
             \"target\":\"/a?b\",\"protocol\":\"HTTP/3\",\"status\":200,\"bytes\":17,\
             \"seconds\":0.25}"
        );
    }

    #[test]
    fn log_lines_cannot_be_forged() {
        let entry = entry("/\"\n\\x");
        let common = line(&entry, Format::Common);
        assert!(common.contains("\"GET /\\\"\\n\\\\x HTTP/3\""), "{common}");
        assert_eq!(common.lines().count(), 1);
        assert_eq!(line(&entry, Format::Json).lines().count(), 1);
    }

    #[test]
    fn lines_are_appended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for target in ["/1", "/2"] {
            let log = AccessLog::open(&path, Format::Common).unwrap();
            log.add(entry(target));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let targets: Vec<_> = text
            .lines()
            .filter_map(|line| line.split(' ').nth(6))
            .collect();
        assert_eq!(targets, ["/1", "/2"]);
        assert!(AccessLog::open(directory.path(), Format::Json).is_err());
    }

    /// A full pipe takes no lines, and the end of the server does not wait for its reader.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_reader_that_stopped_reading_holds_nothing_up() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut options = File::options();
        let _reader = options.read(true).write(true).open(&path).unwrap();
        let log = AccessLog::open(&path, Format::Common).unwrap();
        // More than pipe and buffer take.
        log.add(entry(&"/x".repeat(200_000)));
        let told = logged(|| log.finish_within(Duration::from_millis(50)));
        let expected = "nobody reads the access log: its last lines are not written";
        assert!(told.contains(expected), "{told}");
    }

    #[cfg(unix)]
    #[test]
    fn after_a_rotation_lines_go_into_the_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
        let log = AccessLog::open(&path, Format::Common).unwrap();
        log.add(entry("/1"));
        std::fs::rename(&path, &old).unwrap();
        log.reopen();
        log.add(entry("/2"));
        drop(log);
        for (path, target) in [(old, "/1"), (path, "/2")] {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                text.contains(&format!(" {target} ")) && text.lines().count() == 1,
                "{text}"
            );
        }
    }

    /// The end waits until all lines are written.
    #[test]
    fn waiting_lines_are_written_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = AccessLog::open(&path, Format::Json).unwrap();
        for _ in 0..MAX_WAITING - 1 {
            log.add(entry("/"));
        }
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), MAX_WAITING - 1);
    }

    #[test]
    fn dropped_log_lines_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let told = |lost: u64| {
            let log = AccessLog::open(&directory.path().join("log"), Format::Json).unwrap();
            logged(|| {
                log.finish();
                for _ in 0..lost {
                    log.add(entry("/"));
                }
                log.finish();
            })
        };
        assert_eq!(told(0), "");
        for (lost, lines) in [(1, "1 line\n"), (2, "2 lines\n")] {
            let expected = format!("not written to the access log: {lines}");
            assert!(told(lost).contains(&expected), "{}", told(lost));
        }
    }

    /// Requests do not wait for the disk, and what cannot be written is counted.
    #[test]
    fn lines_after_the_end_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = AccessLog::open(&path, Format::Common).unwrap();
        let lost = |log: &AccessLog| log.lost.load(Ordering::Relaxed);
        log.add(entry("/1"));
        assert_eq!(lost(&log), 0);
        log.finish();
        log.add(entry("/2"));
        log.add(entry("/3"));
        assert_eq!(lost(&log), 2);
        log.finish();
        assert_eq!(lost(&log), 0, "it was told");
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn without_a_status_there_is_a_dash_and_users_are_named() {
        let entry = Entry {
            status: None,
            cut: true,
            user: Some("a\"b".to_owned()),
            time: SystemTime::UNIX_EPOCH,
            ..entry("/")
        };
        assert_eq!(
            line(&entry, Format::Common),
            "192.0.2.1 - a\\\"b [01/Jan/1970:00:00:00 +0000] \"GET / HTTP/3\" - 17"
        );
        let json = line(&entry, Format::Json);
        let begins =
            "{\"time\":\"1970-01-01T00:00:00Z\",\"client\":\"192.0.2.1\",\"user\":\"a\\\"b\",";
        assert!(json.starts_with(begins), "{json}");
        let cut = "\"status\":null,\"bytes\":17,\"cut\":true,";
        assert!(json.contains(cut), "{json}");
        let december = SystemTime::UNIX_EPOCH + Duration::from_secs(364 * 86_400);
        assert_eq!(iso_date(december).unwrap(), "1970-12-31T00:00:00Z");
        // A clock that is off by centuries.
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!((iso_date(before), &*common_date(before)), (None, "-"));
    }
}
