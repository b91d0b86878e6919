//! Where received bytes go: to a file that appears only once it is complete, or to standard output.
//! A separate thread writes and hashes, so that the network does not wait.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

/// Bytes collected before they are handed to the thread.
const BATCH: usize = 256 << 10;
/// Batches that may wait for the disk before the network is held back.
const MAX_WAITING: usize = 32;

/// Where to put a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    File(PathBuf),
    /// Nowhere; the bytes are only counted and hashed.
    Nowhere,
}

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
}

enum Message {
    Data(Vec<Bytes>),
    Finish,
}

/// Takes the bytes of one download. Dropped before [`Sink::finish`], it leaves no file behind.
pub(crate) struct Sink {
    sender: Option<mpsc::Sender<Message>>,
    thread: Option<thread::JoinHandle<io::Result<Received>>>,
    batch: Vec<Bytes>,
    batch_bytes: usize,
}

impl Sink {
    pub(crate) fn create(destination: &Destination) -> io::Result<Self> {
        let output = Output::create(destination)?;
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let thread = thread::Builder::new()
            .name("sink".to_owned())
            .spawn(move || drain(receiver, output))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
            batch: Vec::new(),
            batch_bytes: 0,
        })
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
        self.join().map(|_| ())?;
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until everything is written, and gives the file its name.
    pub(crate) async fn finish(mut self) -> io::Result<Received> {
        self.flush().await?;
        self.send(Message::Finish).await?;
        tokio::task::spawn_blocking(move || self.join())
            .await
            .map_err(io::Error::other)?
    }

    fn join(&mut self) -> io::Result<Received> {
        self.sender = None;
        match self.thread.take().map(thread::JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err(io::Error::other("the writing thread ended early")),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // An unfinished file is removed before the process may end.
            let _ = self.join();
        }
    }
}

fn drain(mut receiver: mpsc::Receiver<Message>, mut output: Output) -> io::Result<Received> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    while let Some(message) = receiver.blocking_recv() {
        let batch = match message {
            Message::Data(batch) => batch,
            Message::Finish => {
                output.finish()?;
                let sha256 = hash.finalize().into();
                return Ok(Received { bytes, sha256 });
            }
        };
        for chunk in batch {
            hash.update(&chunk);
            bytes += chunk.len() as u64;
            output.write(&chunk)?;
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

enum Output {
    Stdout(io::Stdout),
    File(File),
    Part(PartFile),
    Nowhere,
}

impl Output {
    fn create(destination: &Destination) -> io::Result<Self> {
        let path = match destination {
            Destination::Stdout => return Ok(Self::Stdout(io::stdout())),
            Destination::Nowhere => return Ok(Self::Nowhere),
            Destination::File(path) => path,
        };
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            // Devices and pipes are written to, never replaced.
            Ok(metadata) if !metadata.is_file() => {
                Ok(Self::File(File::options().write(true).open(path)?))
            }
            _ => Ok(Self::Part(PartFile::create(path)?)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.write_all(bytes),
            Self::File(file) => file.write_all(bytes),
            Self::Part(part) => part.file.write_all(bytes),
            Self::Nowhere => Ok(()),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout(mut stdout) => stdout.flush(),
            Self::Part(part) => part.finish(),
            Self::File(_) | Self::Nowhere => Ok(()),
        }
    }
}

/// `FILE.part`, which is renamed to `FILE` once it is complete, or removed.
struct PartFile {
    file: File,
    part: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl PartFile {
    fn create(path: &Path) -> io::Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        Ok(Self {
            file: File::create(&part)?,
            part,
            path: path.to_owned(),
            finished: false,
        })
    }

    fn finish(mut self) -> io::Result<()> {
        fs::rename(&self.part, &self.path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.finished {
            // If it cannot be removed there is nothing more to do about it.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let part = directory.path().join("file.part");
        let mut sink = Sink::create(&Destination::File(path.clone())).unwrap();
        for _ in 0..3 {
            sink.write(Bytes::from(vec![b'a'; 200_000])).await.unwrap();
        }
        assert!(!path.exists() && part.exists());
        let received = sink.finish().await.unwrap();
        assert_eq!(received.bytes, 600_000);
        assert_eq!(received.sha256[..], Sha256::digest(vec![b'a'; 600_000])[..]);
        assert_eq!(fs::read(&path).unwrap().len(), 600_000);
        assert!(!part.exists());
    }

    #[tokio::test]
    async fn an_unfinished_file_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old").unwrap();
        let mut sink = Sink::create(&Destination::File(path.clone())).unwrap();
        sink.write(Bytes::from(vec![0; 1 << 20])).await.unwrap();
        drop(sink);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Linux has a device that is always full.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn the_reason_of_a_failed_write_is_told() {
        assert!(Sink::create(&Destination::File("/".into())).is_err());
        assert!(Path::new("/dev/full").exists(), "no device to write to");
        let mut sink = Sink::create(&Destination::File("/dev/full".into())).unwrap();
        let mut result = Ok(());
        for _ in 0..100 {
            result = sink.write(Bytes::from(vec![0; BATCH])).await;
            if result.is_err() {
                break;
            }
        }
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn digits_of_a_hash() {
        assert_eq!(hex(&[0, 0x0f, 0xff]), "000fff");
    }
}
