//! `netlab`: emulates links between two network namespaces, so that programs run over paths with
//! the rates, delays, losses and outages of a scenario file. README.md describes the tool.

#![forbid(unsafe_code)]

mod forward;
mod lab;
mod link;
mod net;
mod options;
mod packet;
mod process;
mod report;
mod rng;
mod run;
mod scenario;

use std::path::Path;
use std::process::ExitCode;

use options::{Options, USAGE};
use scenario::Scenario;

/// The exit code when netlab itself failed.
const FAILED: u8 = 125;

fn load(options: &Options) -> Result<Scenario, String> {
    let file = &options.scenario;
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let stem = Path::new(file)
        .file_stem()
        .map_or("scenario".into(), |s| s.to_string_lossy());
    scenario::parse(&text, &stem, options.seed).map_err(|e| format!("{file}: {e}"))
}

fn command(args: &[String]) -> Result<u8, String> {
    let Some((name, rest)) = args.split_first() else {
        print!("{USAGE}");
        return Ok(0);
    };
    match name.as_str() {
        "check" => {
            print!("{}", load(&Options::parse(rest)?)?.describe());
            Ok(0)
        }
        "gc" => {
            println!("{} removed", net::gc());
            Ok(0)
        }
        "run" => {
            let options = Options::parse(rest)?;
            run::run(&options, load(&options)?)
        }
        "up" => {
            let options = Options::parse(rest)?;
            run::up(&options, load(&options)?)
        }
        process::LAUNCH => process::launch(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(0)
        }
        other => Err(format!("unknown command {other}\n{USAGE}")),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match command(&args) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("netlab: {e}");
            ExitCode::from(FAILED)
        }
    }
}
