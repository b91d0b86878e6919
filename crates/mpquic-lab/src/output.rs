//! The files that a run writes.

use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use mpquic_sim::experiment::Results;

use crate::results::{self, json};
use crate::tell;
use crate::{Failure, report};

/// Returns the content of a file.
type Content = fn(&Results) -> Result<String, Failure>;

const PAGE: &str = "report.html";
const FILES: [(&str, Content); 5] = [
    ("traces.csv", |all| Ok(all.traces_csv())),
    (PAGE, |all| Ok(report::html(all))),
    (results::FILE, |all| Ok(json(all)? + "\n")),
    ("runs.csv", |all| Ok(all.runs_csv())),
    ("summary.csv", |all| Ok(all.summary_csv())),
];

/// Writes results in every form to a directory.
///
/// With all scenarios, each file takes a second or more, so the threads make the files in parallel.
pub(crate) fn write(directory: &Path, all: &Results) -> Result<(), Failure> {
    thread::scope(|scope| {
        let write = |(name, content): &(&str, Content)| {
            let (path, content) = (directory.join(name), *content);
            scope.spawn(move || {
                fs::write(&path, content(all)?).map_err(|error| Failure::in_file(&path, error))
            })
        };
        let writing: Vec<_> = FILES.iter().map(write).collect();
        let mut written = writing.into_iter().map(|thread| thread.join());
        written.try_for_each(|written| written.unwrap_or_else(|panic| resume_unwind(panic)))
    })?;
    tell::say(format_args!("written: {}", directory.join(PAGE).display()));
    Ok(())
}
