//! Parts of files that a command leaves when the user interrupts it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::get::sink::Kept;
use crate::process::failure::Failure;
use crate::text::count::count;

/// The number of looks whether all arrived bytes are written.
const LOOKS: usize = 20;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The parts of the files that a command fetches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left(Arc<Mutex<Vec<Kept>>>);

impl Left {
    /// Another file is being fetched.
    pub(crate) fn add(&self, kept: Kept) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|kept| kept.is_being_written() || kept.hint().is_some());
        all.push(kept);
    }

    /// Adds to the failure of a command that the user interrupted what is kept.
    pub(crate) async fn told_with(&self, failure: Failure) -> Failure {
        if failure != Failure::interrupted() {
            return failure;
        }
        for _ in 0..LOOKS {
            if !self.is_being_written() {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        failure.and(self.hint())
    }

    fn is_being_written(&self) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(Kept::is_being_written)
    }

    fn hint(&self) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hints = all.iter().filter_map(Kept::hint);
        let first = hints.next()?;
        match hints.count() {
            0 => Some(first),
            more => Some(format!(
                "parts of {} are kept, and --continue fetches the rest",
                count(more + 1, "file")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn kept(directory: &tempfile::TempDir, bytes: u64, part: &str) -> Kept {
        let part = directory.path().join(part);
        std::fs::write(&part, "").unwrap();
        let kept = Kept {
            part,
            ..Kept::default()
        };
        kept.bytes.store(bytes, Ordering::Release);
        kept
    }

    #[tokio::test(start_paused = true)]
    async fn interrupted_command_names_the_kept_parts() {
        let told = async |left: &Left, failure| left.told_with(failure).await.message().to_owned();
        let directory = tempfile::tempdir().unwrap();
        let kept = |bytes, part| kept(&directory, bytes, part);
        let left = Left::default();
        assert_eq!(told(&left, Failure::interrupted()).await, "interrupted");
        left.add(kept(0, "none.part"));
        left.add(kept(1536, "one.part"));
        let one = format!(
            "interrupted; 1.5 KiB are in {}, and --continue fetches the rest",
            directory.path().join("one.part").display()
        );
        assert_eq!(told(&left, Failure::interrupted()).await, one);
        assert_eq!(told(&left, Failure::other("x")).await, "x");
        left.add(kept(7, "two.part"));
        let two = "interrupted; parts of 2 files are kept, and --continue fetches the rest";
        assert_eq!(told(&left, Failure::interrupted()).await, two);
        assert_eq!(
            left.0.lock().unwrap().len(),
            2,
            "what is whole is forgotten"
        );
        // A part that another program has removed is not named.
        std::fs::remove_file(directory.path().join("two.part")).unwrap();
        assert_eq!(told(&left, Failure::interrupted()).await, one);
    }

    /// Bytes on their way to the disk count, if the disk takes them within 0.2 s.
    #[tokio::test(start_paused = true)]
    async fn bytes_on_their_way_to_the_disk_are_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let left = Left::default();
        let writes = kept(&directory, 0, "file.part");
        left.add(writes.clone());
        let written = async {
            tokio::time::sleep(LOOK * 3).await;
            writes.bytes.store(9, Ordering::Release);
            drop(writes);
        };
        let (failure, ()) = tokio::join!(left.told_with(Failure::interrupted()), written);
        let told = format!(
            "interrupted; 9 B are in {}, and --continue fetches the rest",
            directory.path().join("file.part").display()
        );
        assert_eq!(failure.message(), told);
        let never = kept(&directory, 0, "never.part");
        left.add(never.clone());
        let failure = left.told_with(Failure::interrupted()).await;
        assert_eq!(failure.message(), told);
    }
}
