//! The file of counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::state::{create_private, make_directory, open_private};
use crate::proxy::quota::month::Month;
use crate::text::json;

/// The most bytes of a file that are read. A month takes less than 200.
const MOST: u64 = 1 << 20;

/// The months of interfaces by name.
pub(crate) type Months = BTreeMap<String, Month>;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    interfaces: Months,
}

/// A file of counts, which several clients may share.
#[derive(Debug)]
pub(crate) struct Book {
    path: PathBuf,
}

impl Book {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The counts. A file with a fault counts as empty, and the log names the fault.
    pub(crate) fn read(&self) -> Months {
        match self.try_read() {
            Ok(months) => months,
            Err(told) => {
                tracing::warn!(
                    "{}: {told}; all interfaces are counted anew from 0",
                    self.path.display()
                );
                Months::new()
            }
        }
    }

    fn try_read(&self) -> Result<Months, String> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Months::new()),
            Err(error) => return Err(error.to_string()),
        };
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, MOST), &mut text)
            .map_err(|error| error.to_string())?;
        let content: Content = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        match content
            .interfaces
            .iter()
            .find(|(_, month)| !month.is_sound())
        {
            Some((name, _)) => Err(format!("the month of {name} has a wrong value")),
            None => Ok(content.interfaces),
        }
    }

    /// Changes the counts. No other client changes them at the same time, and a crash leaves the
    /// old file or the new file.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Months)) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            make_directory(directory)?;
        }
        let lock = open_private(&self.beside("lock"))?;
        #[cfg(unix)]
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
        // Elsewhere, only one client counts.
        #[cfg(not(unix))]
        let _ = &lock;
        let mut interfaces = self.read();
        change(&mut interfaces);
        let new = self.beside("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = create_private(&new)?;
        file.write_all(json::line(&Content { interfaces }).as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// A file with another ending.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged;

    fn month(used: u64) -> Month {
        Month {
            used,
            ..Month::new(15)
        }
    }

    #[test]
    fn counts_are_kept_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let book = Book::new(directory.path().join("state/quota.json"));
        assert_eq!(book.read(), Months::new());
        for used in [1, u64::MAX] {
            book.change(|months| months.extend([("wwan0".to_owned(), month(used))]))
                .unwrap();
            let read = Book::new(book.path.clone()).read();
            assert_eq!(read, Months::from([("wwan0".to_owned(), month(used))]));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&book.path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
        let text = fs::read_to_string(&book.path).unwrap();
        let expected = r#"{"interfaces":{"wwan0":{"used":18446744073709551615,"until":null,"reset":15,"doubted":0}}}"#;
        assert_eq!(text, format!("{expected}\n"));
        // A crash left a half-written file.
        fs::write(book.beside("new"), "{").unwrap();
        book.change(Months::clear).unwrap();
        assert_eq!(book.read(), Months::new());
    }

    #[test]
    fn a_faulty_file_is_told_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let book = Book::new(directory.path().join("quota.json"));
        let huge = " ".repeat(2 << 20) + "{}";
        for content in [
            &b""[..],
            b"{",
            b"[]",
            b"\xff\xfe",
            br#"{"interfaces":{"a":{"used":-1,"until":null,"reset":1}}}"#,
            br#"{"interfaces":{"a":{"used":1,"until":5,"reset":1}}}"#,
            br#"{"interfaces":{"a":{"used":1,"until":null,"reset":77}}}"#,
            huge.as_bytes(),
        ] {
            fs::write(&book.path, content).unwrap();
            let told = logged(|| assert_eq!(book.read(), Months::new()));
            assert!(told.contains("counted anew"), "{told}");
            book.change(|months| months.extend([("b".to_owned(), month(3))]))
                .unwrap();
            assert_eq!(book.read().len(), 1);
        }
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Book::new(file.join("quota.json")).change(|_| {}).is_err());
    }
}
