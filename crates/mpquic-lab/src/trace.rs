//! `mpquic lab trace`: prints a recorded trace as part of a scenario.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mpquic_sim::RateTrace;

use crate::Failure;
use crate::terminal::print;

/// Print a trace of Mahimahi as lines for a `[[path]]` of a scenario
///
/// The file is one of `mm-link`: a line for each packet that the link can carry, with the time in
/// milliseconds. The lines that are printed apply to both directions; with `dir = "s2c"` in
/// `trace`, to the one from the server.
#[derive(Debug, Args)]
pub(super) struct Trace {
    /// The trace
    file: PathBuf,
    /// Give a rate for every so many milliseconds
    #[arg(long, value_name = "MS", default_value = "200", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    every: u64,
}

pub(super) fn run(args: &Trace) -> Result<(), Failure> {
    let text =
        fs::read_to_string(&args.file).map_err(|error| Failure::in_file(&args.file, error))?;
    let trace = RateTrace::mahimahi(&text, Duration::from_millis(args.every))
        .map_err(|error| Failure::in_file(&args.file, error))?;
    print(&lines(&trace))
}

/// The fields of a `[[path]]` for a trace.
pub(crate) fn lines(trace: &RateTrace) -> String {
    let mean = trace.mbit.iter().sum::<f64>() / trace.mbit.len() as f64;
    let rates: Vec<_> = trace.mbit.iter().map(|rate| format!("{rate:.2}")).collect();
    format!(
        "rate_mbit = {mean:.2}\ntrace = {{ every_ms = {}, rate_mbit = [{}] }}\n",
        trace.every.as_millis(),
        rates.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trace of a drive, made as the comment in the scenario `trace-drive` describes.
    fn drive() -> String {
        let mut text = String::new();
        let mut bytes = 0.0;
        for time in 1..=16_000_u32 {
            let seconds = f64::from(time) / 1e3;
            let tunnel = (10.0..11.0).contains(&seconds);
            let wave = (std::f64::consts::TAU * seconds / 8.0).sin();
            let mbit = if tunnel { 0.0 } else { 15.0 + 12.0 * wave };
            bytes += mbit * 125.0;
            while bytes >= 1500.0 {
                bytes -= 1500.0;
                text += &format!("{time}\n");
            }
        }
        text
    }

    #[test]
    fn the_built_in_trace_of_a_drive_is_made_as_its_scenario_describes() {
        let trace = RateTrace::mahimahi(&drive(), Duration::from_millis(500)).unwrap();
        assert_eq!(trace.mbit.len(), 32);
        let mut all = mpquic_sim::scenario::built_in().iter();
        let file = all.find(|file| file.id == "trace-drive").unwrap();
        let expected = lines(&trace);
        assert!(file.text.contains(&expected), "{expected}");
    }
}
