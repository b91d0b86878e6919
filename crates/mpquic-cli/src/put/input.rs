//! What is sent: a file, a pipe or standard input, read piece by piece.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::files::attributes::Attributes;
use crate::files::file_state::FileState;
use crate::process::failure::Failure;
use crate::put::sources::{Item, cannot_read};

/// Bytes read from a file at a time.
pub(crate) const PIECE: usize = 256 << 10;

/// The source of the data.
pub(crate) struct Input {
    pub(crate) reader: Option<Box<dyn Read + Send>>,
    /// Its length, if known before.
    pub(crate) length: Option<u64>,
    pub(crate) attributes: Attributes,
    /// The file and its state at the opening, until the last byte is read.
    pub(crate) watched: Option<(Arc<File>, FileState)>,
    /// The same data can be read once more.
    pub(crate) is_repeatable: bool,
    /// The first byte to send.
    pub(crate) start: u64,
    /// What was read.
    pub(crate) bytes: u64,
    pub(crate) hash: Sha256,
}

impl Input {
    /// A pipe may let us wait for long, and so may a disk: this is no reason not to listen to
    /// signals.
    pub(crate) async fn open(item: &Item) -> Result<Self, Failure> {
        let item = item.clone();
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&item)).await;
        opened.map_err(Failure::other)?
    }

    fn open_now(item: &Item) -> Result<Self, Failure> {
        let Some(local) = &item.file else {
            return Ok(Self::of(Box::new(io::stdin())));
        };
        let cannot_read = |error: io::Error| cannot_read(local.path(), &error);
        let file = local.open().map_err(cannot_read)?;
        let metadata = file.metadata().map_err(cannot_read)?;
        if metadata.is_dir() {
            return Err(cannot_read(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // Devices and pipes have no length. What came through a pipe is gone.
            return Ok(Self {
                is_repeatable: is_block_device(&metadata.file_type()),
                ..Self::of(Box::new(file))
            });
        }
        let watched = Arc::new(file.try_clone().map_err(cannot_read)?);
        Ok(Self {
            length: Some(metadata.len()),
            attributes: Attributes::of_file(&metadata),
            watched: Some((watched, FileState::of(&metadata))),
            is_repeatable: true,
            ..Self::of(Box::new(file))
        })
    }

    /// Data that comes once, of unknown length.
    pub(crate) fn of(reader: Box<dyn Read + Send>) -> Self {
        Self {
            reader: Some(reader),
            length: None,
            attributes: Attributes::default(),
            watched: None,
            is_repeatable: false,
            start: 0,
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    /// Reads the bytes that the server has: the checksum covers the whole file.
    pub(crate) async fn skip_to(&mut self, start: u64) -> io::Result<()> {
        while self.bytes < start {
            let left = usize::try_from(start - self.bytes).unwrap_or(PIECE);
            if self.read_some(left.min(PIECE)).await?.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.start = start;
        Ok(())
    }

    /// The next bytes; none at the end. In place of the last bytes of a file there is an error if
    /// somebody wrote to the file since it was opened: the bytes before may be of another version.
    pub(crate) async fn read(&mut self) -> io::Result<Bytes> {
        // Small files need no large buffers. One byte more shows whether the file grew.
        let left = self
            .length
            .map(|length| length.saturating_sub(self.bytes) + 1);
        let size = left.map_or(PIECE, |left| {
            usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))
        });
        let piece = self.read_some(size).await?;
        let changed = || {
            io::Error::other(match self.length {
                // Such as the files of /proc.
                Some(0) => {
                    "it has content although its length is 0; `mpquic put URL - <FILE` sends it"
                }
                _ => "it changed while it was read",
            })
        };
        match self.length {
            Some(length) if self.bytes > length => return Err(changed()),
            Some(length) if self.bytes < length && piece.is_empty() => return Err(changed()),
            Some(length) if self.bytes == length => {
                if let Some((file, opened)) = self.watched.take() {
                    let now = tokio::task::spawn_blocking(move || file.metadata());
                    let now = now.await.map_err(io::Error::other)??;
                    if !opened.is_unwritten(&FileState::of(&now)) {
                        return Err(changed());
                    }
                }
            }
            _ => {}
        }
        Ok(piece)
    }

    async fn read_some(&mut self, size: usize) -> io::Result<Bytes> {
        let reader = self.reader.take();
        let mut reader = reader.ok_or_else(|| io::Error::other("a read was given up"))?;
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

#[cfg(unix)]
fn is_block_device(kind: &FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(kind)
}

#[cfg(not(unix))]
fn is_block_device(_kind: &FileType) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use http::Uri;

    use super::*;

    fn item(path: &Path) -> Item {
        Item {
            file: Some(path.into()),
            url: Uri::from_static("https://host/file"),
            found: None,
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
            let mut input = Input::open(&item(&path)).await.unwrap();
            assert_eq!(input.length, Some(length as u64));
            assert_eq!(read(&mut input).await, sizes);
            assert_eq!(input.bytes, length as u64);
            assert_eq!(input.hash.finalize(), Sha256::digest(&data[..length]));
        }
        // Data of unknown length may be long.
        let mut endless = Input::of(Box::new(io::repeat(7)));
        assert_eq!(endless.read().await.unwrap().len(), PIECE);
    }

    /// The last bytes are not handed out, and so the server has no whole file.
    #[tokio::test]
    async fn a_file_that_changes_is_not_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let data = vec![1; PIECE + 10];
        for changed in [
            &[2; PIECE + 11][..],
            #[cfg(unix)]
            &[2; PIECE + 10],
            &[2; PIECE],
        ] {
            std::fs::write(&path, &data).unwrap();
            let mut input = Input::open(&item(&path)).await.unwrap();
            assert_eq!(input.read().await.unwrap().len(), PIECE);
            // The clock of the file system goes on.
            std::thread::sleep(std::time::Duration::from_millis(30));
            std::fs::write(&path, changed).unwrap();
            let told = input.read().await.unwrap_err().to_string();
            assert_eq!(told, "it changed while it was read");
        }
        std::fs::write(&path, "").unwrap();
        let mut input = Input::open(&item(&path)).await.unwrap();
        std::fs::write(&path, "x").unwrap();
        let told = input.read().await.unwrap_err().to_string();
        assert!(told.contains("its length is 0"), "{told}");
        // Another file takes its place: the old one is whole.
        std::fs::write(&path, &data).unwrap();
        let mut input = Input::open(&item(&path)).await.unwrap();
        let new = directory.path().join("new");
        std::fs::write(&new, "new").unwrap();
        if cfg!(unix) {
            std::fs::rename(&new, &path).unwrap();
        }
        assert_eq!(read(&mut input).await, [PIECE, 10, 0]);
    }

    #[tokio::test]
    async fn unreadable_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), &directory.path().join("missing")] {
            let failure = Input::open(&item(path)).await.err().unwrap();
            let told = format!("cannot read {}: ", path.display());
            let message = failure.message();
            assert!(message.starts_with(&told), "{message}");
        }
    }

    /// The owner of a directory may replace its files while another user sends the directory.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn no_file_outside_of_a_directory_is_read_after_a_swap() {
        use std::fs;
        use std::os::unix::fs::symlink;
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| inside.path().join("top").join(name);
        for name in ["deep/directory", "directory", "other"] {
            fs::create_dir_all(path(name)).unwrap();
            fs::write(path(name).join("file"), "inside").unwrap();
        }
        fs::write(path("pipe"), "inside").unwrap();
        fs::write(outside.path().join("file"), "secret").unwrap();
        // The path on the command line may lead through a link.
        let named = inside.path().join("link");
        symlink(path(""), &named).unwrap();
        let to = Uri::from_static("https://host/");
        let items = crate::put::sources::items(&to, &[named], true).unwrap();
        fs::rename(path("deep/directory"), path("away")).unwrap();
        symlink(outside.path(), path("deep/directory")).unwrap();
        fs::rename(path("directory"), path("gone")).unwrap();
        symlink(outside.path(), path("directory")).unwrap();
        fs::remove_file(path("pipe")).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), kind, mode, 0).unwrap();
        // One open descriptor holds both ends of the pipe.
        let pipe = fs::File::options()
            .read(true)
            .write(true)
            .open(path("pipe"));
        let mut read = Vec::new();
        for item in &items.files {
            if let Ok(input) = Input::open(item).await {
                let length = input.length;
                read.push((item.url.path(), length));
            }
        }
        let expected = vec![("/link/other/file", Some(6))];
        assert_eq!((items.files.len(), read), (4, expected));
        drop(pipe);
        fs::remove_file(path("other/file")).unwrap();
        symlink(outside.path().join("file"), path("other/file")).unwrap();
        for item in &items.files {
            let failure = Input::open(item).await.err().unwrap();
            let told = format!("cannot read {}: ", item.shown().display());
            assert!(failure.message().starts_with(&told), "{failure:?}");
        }
        let of_top = |name: &str| {
            let mut directories = items.directories.iter();
            let found = directories.find(|it| it.url.path().ends_with(name));
            found.unwrap().here.as_ref().unwrap().attributes()
        };
        assert!(of_top("/other/").mode.is_some() && of_top("/link/").mode.is_some());
        assert_eq!(of_top("/directory/"), Attributes::default());
    }

    /// What came through a pipe cannot be sent again.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn only_files_can_be_read_once_more() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "1").unwrap();
        let pipe = directory.path().join("pipe");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        // One descriptor for both ends: opening one end of a pipe waits for the other end.
        let both = File::options().read(true).write(true).open(&pipe).unwrap();
        for (path, length, is_repeatable) in [
            (&*file, Some(1), true),
            (&pipe, None, false),
            (Path::new("/dev/null"), None, false),
        ] {
            let input = Input::open(&item(path)).await.unwrap();
            assert_eq!(
                (input.length, input.is_repeatable),
                (length, is_repeatable),
                "{}",
                path.display()
            );
        }
        drop(both);
        let stdin = Item {
            file: None,
            ..item(&file)
        };
        assert!(!Input::open(&stdin).await.unwrap().is_repeatable);
    }
}
