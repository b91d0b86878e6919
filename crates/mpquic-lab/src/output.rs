//! What a run leaves on disk.

use std::fs;
use std::path::Path;

use mpquic_sim::experiment::Results;

use crate::results::{self, json};
use crate::{Failure, report};

/// Writes results in every form to a directory.
pub(crate) fn write(directory: &Path, all: &Results) -> Result<(), Failure> {
    let files = [
        (results::FILE, json(all)? + "\n"),
        ("runs.csv", all.runs_csv()),
        ("summary.csv", all.summary_csv()),
        ("traces.csv", all.traces_csv()),
        ("report.html", report::html(all)),
    ];
    for (name, content) in files {
        let path = directory.join(name);
        fs::write(&path, content).map_err(|error| Failure::in_file(&path, error))?;
    }
    let page = directory.join("report.html");
    eprintln!("written: {}", page.display());
    Ok(())
}
