//! Where received bytes go: to a file that appears only once it is complete, or to standard output.
//! A separate thread writes and hashes, so that the network does not wait.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};

use crate::get::beside::Beside;
use crate::get::part_file::{Begun, Keep, PartFile, Version};
use crate::get::pieces::write_pieces;
use crate::report::size;

/// Bytes collected before they are handed to the thread.
const BATCH: usize = 256 << 10;
/// Batches that may wait for the disk before the network is held back.
const MAX_WAITING: usize = 32;

/// Where to put a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    File(PathBuf),
    /// A file of a fetched directory: nothing is followed or opened in its place.
    Within(PathBuf, Beside),
    /// Nowhere; the bytes are only counted and hashed.
    Nowhere,
    Memory(Memory),
}

/// Bytes kept in memory.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    most: usize,
}

impl Memory {
    /// Takes so many bytes; more are an error.
    pub(crate) fn new(most: usize) -> Self {
        let bytes = Arc::default();
        Self { bytes, most }
    }

    /// What was written.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut kept = self.lock();
        if kept.len() + bytes.len() > self.most {
            let told = format!("it is longer than {} bytes", self.most);
            return Err(io::Error::other(told));
        }
        kept.extend_from_slice(bytes);
        Ok(())
    }

    fn sum(&self) -> (u64, [u8; 32]) {
        let kept = self.lock();
        (kept.len() as u64, Sha256::digest(&*kept).into())
    }
}

impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }
}

impl Eq for Memory {}

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
    /// False if the checksum differs; the file is then removed.
    pub(crate) is_expected: bool,
}

enum Message {
    Data(Vec<Bytes>),
    Version(Version),
    Restart,
    /// Finish, with the expected SHA-256.
    Finish(Option<[u8; 32]>),
}

/// Takes the bytes of one download. Dropped before [`Sink::finish`], it leaves no file that looks
/// whole: a part at most, if a later download can go on with it.
pub(crate) struct Sink {
    sender: Option<mpsc::Sender<Message>>,
    thread: Option<thread::JoinHandle<()>>,
    /// The result, once the thread ends; `None` after it was returned.
    end: Option<oneshot::Receiver<io::Result<Received>>>,
    /// Writes may block for ever, for a reader of a pipe.
    is_stream: bool,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    kept: Kept,
}

/// The rest of an incomplete file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// So many bytes a later download can go on with.
    pub(crate) bytes: Arc<AtomicU64>,
    /// The file that has the bytes.
    pub(crate) part: PathBuf,
}

impl Kept {
    /// True until all that arrived is written.
    pub(crate) fn is_being_written(&self) -> bool {
        Arc::strong_count(&self.bytes) > 1
    }

    /// What the user can do with the part; nothing if another program has removed it.
    pub(crate) fn hint(&self) -> Option<String> {
        let bytes = self.bytes.load(Ordering::Acquire);
        (bytes > 0 && self.part.exists()).then(|| {
            let part = self.part.display();
            format!(
                "{} are in {part}, and --continue fetches the rest",
                size(bytes)
            )
        })
    }
}

impl Sink {
    /// Checks that the destination can be written, and returns what exists. May block.
    pub(crate) fn create(destination: &Destination, keep: &Keep<'_>) -> io::Result<(Self, Begun)> {
        let (output, begun) = Output::create(destination, keep)?;
        let kept = match &output {
            Output::Part(part) => Kept {
                bytes: part.kept(),
                part: part.part().to_owned(),
            },
            Output::Stream(_) | Output::Memory(_) => Kept::default(),
        };
        let is_stream = matches!(output, Output::Stream(_));
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let (tell, end) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("sink".to_owned())
            // No task has to wait for it.
            .spawn(move || drop(tell.send(drain(receiver, output))))?;
        let sink = Self {
            sender: Some(sender),
            thread: Some(thread),
            end: Some(end),
            is_stream,
            batch: Vec::new(),
            batch_bytes: 0,
            kept,
        };
        Ok((sink, begun))
    }

    /// The rest after this is dropped or finished.
    pub(crate) fn kept(&self) -> Kept {
        self.kept.clone()
    }

    /// Accepts the next bytes; waits while too many are waiting for the disk.
    pub(crate) async fn write(&mut self, chunk: Bytes) -> io::Result<()> {
        self.batch_bytes += chunk.len();
        self.batch.push(chunk);
        if self.batch_bytes >= BATCH {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.send(Message::Data(batch)).await
    }

    async fn send(&mut self, message: Message) -> io::Result<()> {
        let sent = match &self.sender {
            Some(sender) => sender.send(message).await.is_ok(),
            None => false,
        };
        if sent {
            return Ok(());
        }
        // The thread ended early, which it does only with an error.
        self.end().await.map(|_| ())?;
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// The following bytes belong to this version.
    pub(crate) async fn set_version(&mut self, version: Version) -> io::Result<()> {
        self.flush().await?;
        self.send(Message::Version(version)).await
    }

    /// Forgets what is there: something else follows.
    pub(crate) async fn restart(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.send(Message::Restart).await
    }

    /// Waits until everything is written, and renames the file if it is the `expected` one.
    pub(crate) async fn finish(mut self, expected: Option<[u8; 32]>) -> io::Result<Received> {
        self.flush().await?;
        self.send(Message::Finish(expected)).await?;
        self.end().await
    }

    /// Ends the file here, after all received bytes are written, and returns the rest.
    pub(crate) async fn leave(mut self) -> Kept {
        // If this fails, nobody needs the rest.
        drop(self.flush().await);
        drop(self.end().await);
        self.kept.clone()
    }

    async fn end(&mut self) -> io::Result<Received> {
        self.sender = None;
        let early = || io::Error::other("the writing thread ended early");
        // Kept even if the waiting future is dropped.
        let ended = self.end.as_mut().ok_or_else(early)?.await;
        self.end = None;
        self.thread = None;
        ended.unwrap_or_else(|_| Err(early()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take().filter(|_| !self.is_stream) {
            // What is left of an unfinished file is in order before the process may end.
            let _ = thread.join();
        }
    }
}

fn drain(mut receiver: mpsc::Receiver<Message>, mut output: Output) -> io::Result<Received> {
    if let Output::Stream(stream) = &mut output {
        stream.open()?;
    }
    while let Some(message) = receiver.blocking_recv() {
        match message {
            Message::Data(batch) => {
                let now = crate::process::clock::now();
                output.write(&batch, now)?;
            }
            Message::Version(version) => {
                if let Output::Part(part) = &mut output {
                    part.set_version(version);
                }
            }
            Message::Restart => output.restart()?,
            Message::Finish(expected) => return output.finish(expected),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

enum Output {
    Part(Box<PartFile>),
    /// A stream cannot start over.
    Stream(Stream),
    Memory(Memory),
}

struct Stream {
    to: Box<dyn Write + Send>,
    /// What is still to be opened, and takes the place of `to`: a pipe waits for its other end.
    path: Option<PathBuf>,
    hash: Sha256,
    bytes: u64,
}

impl Stream {
    fn open(&mut self) -> io::Result<()> {
        if let Some(path) = self.path.take() {
            self.to = Box::new(File::options().write(true).open(path)?);
        }
        Ok(())
    }

    fn write(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        for piece in pieces {
            self.hash.update(piece);
            self.bytes += piece.len() as u64;
        }
        write_pieces(&mut self.to, pieces)
    }
}

impl Output {
    fn create(destination: &Destination, keep: &Keep<'_>) -> io::Result<(Self, Begun)> {
        let stream = |to, path: Option<&PathBuf>| {
            let stream = Stream {
                to,
                path: path.cloned(),
                hash: Sha256::new(),
                bytes: 0,
            };
            Ok((Self::Stream(stream), Begun::default()))
        };
        let path = match destination {
            Destination::Stdout => return stream(Box::new(io::stdout()), None),
            Destination::Nowhere => return stream(Box::new(io::sink()), None),
            Destination::Memory(memory) => {
                return Ok((Self::Memory(memory.clone()), Begun::default()));
            }
            Destination::Within(path, beside) => {
                if beside.metadata(path).is_ok_and(|there| there.is_dir()) {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                let (part, begun) = PartFile::open_in(beside.clone(), path, keep)?;
                return Ok((Self::Part(Box::new(part)), begun));
            }
            Destination::File(path) => path,
        };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            // Devices and pipes are written to, never replaced.
            Ok(metadata) if !metadata.is_file() => stream(Box::new(io::sink()), Some(path)),
            _ => {
                let (part, begun) = PartFile::open(path, keep)?;
                Ok((Self::Part(Box::new(part)), begun))
            }
        }
    }

    fn write(&mut self, batch: &[Bytes], now: Instant) -> io::Result<()> {
        match self {
            Self::Part(part) => part.write(batch, now),
            Self::Stream(stream) => stream.write(batch),
            Self::Memory(memory) => batch.iter().try_for_each(|bytes| memory.write(bytes)),
        }
    }

    fn restart(&mut self) -> io::Result<()> {
        match self {
            Self::Part(part) => part.restart(),
            Self::Memory(memory) => {
                drop(memory.take());
                Ok(())
            }
            Self::Stream(Stream { bytes: 0, .. }) => Ok(()),
            Self::Stream(_) => Err(io::Error::other(
                "the download has to start over, which standard output cannot do",
            )),
        }
    }

    fn finish(mut self, expected: Option<[u8; 32]>) -> io::Result<Received> {
        let (bytes, sha256) = match &mut self {
            Self::Part(part) => part.sum()?,
            Self::Memory(memory) => memory.sum(),
            Self::Stream(stream) => (stream.bytes, stream.hash.clone().finalize().into()),
        };
        let is_expected = expected.is_none_or(|expected| expected == sha256);
        match self {
            Self::Part(mut part) if is_expected => part.finish()?,
            Self::Part(mut part) => part.discard(),
            Self::Stream(mut stream) => stream.to.flush()?,
            Self::Memory(_) => {}
        }
        Ok(Received {
            bytes,
            sha256,
            is_expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::note_key::NoteKey;
    use crate::options::trust::Checked;
    use crate::text::stamp::Stamp;

    fn keep() -> Keep<'static> {
        Keep {
            url: "https://host/file",
            resume: false,
            replace: true,
            private: false,
            key: NoteKey::known(),
            checked: Checked::Nothing,
        }
    }

    fn version() -> Version {
        Version {
            stamp: Some(Stamp::Etag("\"1\"".to_owned())),
            length: None,
        }
    }

    fn create(destination: &Destination) -> Sink {
        Sink::create(destination, &keep()).unwrap().0
    }

    #[tokio::test]
    async fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let part = directory.path().join("file.part");
        let mut sink = create(&Destination::File(path.clone()));
        for _ in 0..3 {
            sink.write(Bytes::from(vec![b'a'; 200_000])).await.unwrap();
        }
        assert!(!path.exists() && part.exists());
        let received = sink.finish(None).await.unwrap();
        assert_eq!(received.bytes, 600_000);
        assert_eq!(received.sha256[..], Sha256::digest(vec![b'a'; 600_000])[..]);
        assert_eq!(fs::read(&path).unwrap().len(), 600_000);
        assert!(!part.exists());
    }

    /// Whoever makes a link in a directory that others can write to does not choose which file is
    /// written.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_link_to_a_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("target"), "old").unwrap();
        for to in ["target", "nothing"] {
            std::os::unix::fs::symlink(to, path("link")).unwrap();
            let mut sink = create(&Destination::File(path("link")));
            sink.write(Bytes::from_static(b"new")).await.unwrap();
            sink.finish(None).await.unwrap();
            assert!(!path("link").is_symlink());
            assert_eq!(fs::read(path("link")).unwrap(), b"new");
            assert_eq!(fs::read(path("target")).unwrap(), b"old");
            assert!(!path("nothing").exists());
            fs::remove_file(path("link")).unwrap();
        }
    }

    #[tokio::test]
    async fn an_unfinished_file_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old").unwrap();
        let mut sink = create(&Destination::File(path.clone()));
        sink.write(Bytes::from(vec![0; 1 << 20])).await.unwrap();
        drop(sink);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Linux has a device that is always full.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn the_reason_of_a_failed_write_is_told() {
        assert!(Sink::create(&Destination::File("/".into()), &keep()).is_err());
        assert!(
            std::path::Path::new("/dev/full").exists(),
            "no device to write to"
        );
        let mut sink = create(&Destination::File("/dev/full".into()));
        let mut result = Ok(());
        for _ in 0..100 {
            result = sink.write(Bytes::from(vec![0; BATCH])).await;
            if result.is_err() {
                break;
            }
        }
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
        // Later bytes are not accepted either.
        for _ in 0..2 {
            assert!(sink.write(Bytes::from(vec![0; BATCH])).await.is_err());
        }
    }

    #[tokio::test]
    async fn sink_passes_bytes_in_batches() {
        let mut sink = create(&Destination::Nowhere);
        for (bytes, waiting, chunks) in [
            (BATCH - 1, BATCH - 1, 1),
            (1, 0, 0),
            (5, 5, 1),
            (7, 12, 2),
            (BATCH, 0, 0),
        ] {
            sink.write(Bytes::from(vec![0; bytes])).await.unwrap();
            assert_eq!((sink.batch_bytes, sink.batch.len()), (waiting, chunks));
        }
        let received = sink.finish(None).await.unwrap();
        assert_eq!(received.bytes, 2 * BATCH as u64 + 12);
    }

    #[tokio::test]
    async fn a_file_with_another_sum_does_not_appear() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let expected = Sha256::digest(b"right").into();
        for (data, is_right) in [(&b"wrong"[..], false), (b"right", true)] {
            let mut sink = create(&Destination::File(path.clone()));
            sink.write(Bytes::from_static(data)).await.unwrap();
            let received = sink.finish(Some(expected)).await.unwrap();
            assert_eq!((received.is_expected, path.exists()), (is_right, is_right));
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn only_files_can_start_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (destination, can) in [
            (Destination::File(path.clone()), true),
            (Destination::Nowhere, false),
        ] {
            let mut sink = create(&destination);
            sink.restart().await.unwrap();
            sink.write(Bytes::from_static(b"old")).await.unwrap();
            sink.restart().await.unwrap();
            let written = sink.write(Bytes::from_static(b"new")).await.is_ok();
            let finished = sink.finish(None).await;
            assert_eq!(written && finished.is_ok(), can, "{finished:?}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[tokio::test]
    async fn a_list_is_kept_in_memory_up_to_a_limit() {
        let memory = Memory::new(10);
        let destination = Destination::Memory(memory.clone());
        assert_eq!(destination, Destination::Memory(memory.clone()));
        assert_ne!(destination, Destination::Memory(Memory::new(10)));
        let mut sink = create(&destination);
        sink.write(Bytes::from_static(b"old")).await.unwrap();
        sink.restart().await.unwrap();
        for part in [&b"01234"[..], b"56789"] {
            sink.write(Bytes::copy_from_slice(part)).await.unwrap();
        }
        let received = sink.finish(None).await.unwrap();
        assert_eq!(received.bytes, 10);
        assert_eq!(received.sha256[..], Sha256::digest(b"0123456789")[..]);
        assert_eq!(
            (memory.take(), memory.take()),
            (b"0123456789".to_vec(), vec![])
        );

        let mut sink = create(&destination);
        sink.write(Bytes::from_static(b"0123456789x"))
            .await
            .unwrap();
        let error = sink.finish(None).await.unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 10 bytes");
    }

    /// A pipe without a reader blocks nobody: dropping the sink continues.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_pipe_without_a_reader_is_given_up() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let directory = tempfile::tempdir().unwrap();
        let pipe = |name| {
            let path = directory.path().join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
            path
        };
        let mut sink = create(&Destination::File(pipe("unread")));
        sink.write(Bytes::from_static(b"word")).await.unwrap();
        let finished = sink.finish(None);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), finished).await;
        assert!(waited.is_err());

        // A reader that appears gets the data. The thread of the sink above still waits for a
        // reader of its pipe. In a common pipe, this reader could see the end of the sink above.
        let path = pipe("read");
        let mut sink = create(&Destination::File(path.clone()));
        sink.write(Bytes::from_static(b"word")).await.unwrap();
        let read = tokio::task::spawn_blocking(move || fs::read(path).unwrap());
        let (received, read) = tokio::join!(sink.finish(None), read);
        assert_eq!(received.unwrap().bytes, 4);
        assert_eq!(read.unwrap(), b"word");
    }

    /// Discarded data is hashed as well.
    #[tokio::test]
    async fn discarded_bytes_are_counted() {
        let mut sink = create(&Destination::Nowhere);
        for part in [&b"a"[..], b"bc"] {
            sink.write(Bytes::copy_from_slice(part)).await.unwrap();
        }
        let received = sink.finish(None).await.unwrap();
        assert_eq!((received.bytes, received.is_expected), (3, true));
        assert_eq!(received.sha256[..], Sha256::digest(b"abc")[..]);
    }

    #[tokio::test]
    async fn a_part_of_a_known_version_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::File(directory.path().join("file"));
        let mut sink = create(&destination);
        sink.set_version(version()).await.unwrap();
        sink.write(Bytes::from_static(b"half")).await.unwrap();
        sink.flush().await.unwrap();
        let kept = sink.kept();
        drop(sink);
        assert_eq!(kept.bytes.load(std::sync::atomic::Ordering::Acquire), 4);
        assert_eq!(kept.part, directory.path().join("file.part"));
        let keep = Keep {
            resume: true,
            ..keep()
        };
        let (sink, begun) = Sink::create(&destination, &keep).unwrap();
        assert_eq!((begun.have, begun.version), (4, version()));
        let received = sink.finish(None).await.unwrap();
        assert_eq!(received.sha256[..], Sha256::digest(b"half")[..]);
    }

    /// Somebody on the way to an unchecked server can send any bytes, with the version of the true
    /// file. A part that a download with a weaker check has continued is a part of this weaker
    /// check.
    #[tokio::test]
    async fn a_part_of_a_server_with_a_weaker_check_is_begun_anew() {
        use Checked::{Certificate, FirstUse, Nothing};
        let unchecked = "it is of a server whose certificate was not checked";
        let met = "the certificate of its server was checked by --first-use only";
        for (checks, useless) in [
            (&[Nothing, Nothing][..], None),
            (&[Nothing, FirstUse], Some(unchecked)),
            (&[Nothing, Certificate], Some(unchecked)),
            (&[FirstUse, Nothing], None),
            (&[FirstUse, FirstUse], None),
            (&[FirstUse, Certificate], Some(met)),
            (&[Certificate, Nothing], None),
            (&[Certificate, FirstUse], None),
            (&[Certificate, Certificate], None),
            (&[Certificate, Nothing, Certificate], Some(unchecked)),
            (&[Certificate, FirstUse, Certificate], Some(met)),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let destination = Destination::File(directory.path().join("file"));
            let (last, before) = checks.split_last().unwrap();
            let open = |checked: &Checked| {
                let keep = Keep {
                    resume: true,
                    checked: *checked,
                    ..keep()
                };
                Sink::create(&destination, &keep).unwrap()
            };
            for checked in before {
                let (mut sink, begun) = open(checked);
                assert_eq!(begun.useless, None);
                sink.set_version(version()).await.unwrap();
                sink.write(Bytes::from_static(b"half")).await.unwrap();
                sink.leave().await;
            }
            let (sink, begun) = open(last);
            assert_eq!(begun.useless, useless, "{checks:?}");
            let have = if useless.is_some() {
                0
            } else {
                4 * before.len()
            };
            assert_eq!(begun.have, have as u64);
            let received = sink.finish(None).await.unwrap();
            assert_eq!(received.bytes, have as u64);
        }
    }

    /// Without a key, notes of this user and forged notes look alike.
    #[tokio::test]
    async fn without_a_key_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let destination = Destination::File(path.clone());
        let none = NoteKey::at(None);
        let keep = Keep {
            key: &none,
            ..keep()
        };
        for is_whole in [false, true] {
            let (mut sink, _) = Sink::create(&destination, &keep).unwrap();
            sink.set_version(version()).await.unwrap();
            sink.write(Bytes::from_static(b"whole")).await.unwrap();
            sink.flush().await.unwrap();
            let kept = sink.kept();
            if is_whole {
                sink.finish(None).await.unwrap();
            } else {
                drop(sink);
            }
            assert_eq!(kept.bytes.load(std::sync::atomic::Ordering::Acquire), 0);
            let there = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!((there, path.exists()), (is_whole.into(), is_whole));
        }
    }
}
