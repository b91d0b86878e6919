//! Builds the tests of packages, and runs them.

#![expect(
    clippy::disallowed_methods,
    reason = "how long tests take is measured by the clock"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A test binary.
pub(crate) struct Binary {
    pub(crate) name: String,
    path: PathBuf,
    /// Where tests expect to run: the directory of their package.
    directory: PathBuf,
    /// It runs no tests whose names contain one of these.
    pub(crate) skip: Vec<String>,
    /// How long it takes when nothing is changed.
    pub(crate) takes: Duration,
    /// The changes that it reaches.
    pub(crate) reaches: BTreeSet<u32>,
}

/// Where the compiler found an error.
pub(crate) struct Error {
    pub(crate) file: PathBuf,
    pub(crate) bytes: Vec<Range<usize>>,
    pub(crate) text: String,
}

/// What became of a build.
pub(crate) enum Built {
    Binaries(Vec<Binary>),
    Errors(Vec<Error>),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    Failed,
    TimedOut,
}

/// Builds the tests of packages.
pub(crate) fn build(workspace: &Path, target: &Path, packages: &[String]) -> Built {
    let mut command = Command::new("cargo");
    command.args(["test", "--no-run", "--message-format=json"]);
    for package in packages {
        command.args(["--package", package]);
    }
    command
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", target);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.expect("cargo can be started");
    let (mut binaries, mut errors) = (Vec::new(), Vec::new());
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        binaries.extend(binary(&message));
        errors.extend(error(workspace, &message));
    }
    match output.status.success() {
        true => Built::Binaries(binaries),
        false => Built::Errors(errors),
    }
}

fn binary(message: &Value) -> Option<Binary> {
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let kind = message["target"]["kind"][0].as_str()?;
    let name = message["target"]["name"].as_str()?;
    Some(Binary {
        name: format!("{name} ({kind})"),
        path: message["executable"].as_str()?.into(),
        directory: manifest.parent()?.into(),
        skip: Vec::new(),
        takes: Duration::ZERO,
        reaches: BTreeSet::new(),
    })
}

fn error(workspace: &Path, message: &Value) -> Option<Error> {
    let message = &message["message"];
    if message["level"].as_str()? != "error" {
        return None;
    }
    let spans = message["spans"].as_array()?;
    let primary = spans.iter().filter(|it| it["is_primary"] == true);
    let first = primary.clone().next()?;
    let range = |span: &Value| {
        let byte = |name: &str| usize::try_from(span[name].as_u64()?).ok();
        Some(byte("byte_start")?..byte("byte_end")?)
    };
    Some(Error {
        file: workspace.join(first["file_name"].as_str()?),
        bytes: primary.filter_map(range).collect(),
        text: message["rendered"].as_str().unwrap_or_default().into(),
    })
}

impl Binary {
    /// Runs it unchanged, to see how long it takes and what it reaches. False if tests fail.
    pub(crate) fn measure(&mut self, trace: &Path) -> bool {
        let _may_not_exist = std::fs::remove_file(trace);
        let start = Instant::now();
        let end = self.run(None, Some(trace), Duration::from_secs(3600));
        self.takes = start.elapsed();
        let reached = std::fs::read_to_string(trace).unwrap_or_default();
        self.reaches = reached.lines().filter_map(|it| it.parse().ok()).collect();
        end == End::Passed
    }

    /// Runs it with a change, until the first test fails.
    pub(crate) fn run_with(&self, change: u32) -> End {
        let limit = 5 * self.takes + Duration::from_secs(10);
        self.run(Some(change), None, limit)
    }

    fn run(&self, change: Option<u32>, trace: Option<&Path>, limit: Duration) -> End {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env_remove("MUTANT");
        for name in &self.skip {
            command.args(["--skip", name]);
        }
        // What is found by a change is no discovery to be kept.
        command.env("PROPTEST_FAILURE_PERSISTENCE", "off");
        command.env("RUST_BACKTRACE", "0");
        if let Some(change) = change {
            command.env("MUTANT", change.to_string());
        }
        if let Some(trace) = trace {
            command.env("MUTANT_TRACE", trace);
        }
        let command = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the test binary can be started");
        let output = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let deadline = Instant::now() + limit;
        let end = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) if line.ends_with(b"... FAILED") => break End::Failed,
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => break End::TimedOut,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return match child.wait().is_ok_and(|status| status.success()) {
                        true => End::Passed,
                        false => End::Failed,
                    };
                }
            }
        };
        let _may_be_over = child.kill();
        let _is_over = child.wait();
        end
    }
}
