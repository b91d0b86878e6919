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
    tests: Vec<Test>,
}

/// One of its tests.
struct Test {
    name: String,
    /// How long it takes alone when nothing is changed.
    takes: Duration,
    /// The changes that it reaches.
    reaches: BTreeSet<u32>,
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
    if output.status.success() {
        Built::Binaries(binaries)
    } else {
        Built::Errors(errors)
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
        tests: Vec::new(),
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
    /// Runs each test alone and unchanged, to see how long it takes and what it reaches, but for
    /// those whose names contain one of `skip`. Fails if a test does.
    pub(crate) fn measure(&mut self, skip: &[String], trace: &Path) -> Result<(), String> {
        for name in self.names()? {
            if skip.iter().any(|part| name.contains(part)) {
                continue;
            }
            let _may_not_exist = std::fs::remove_file(trace);
            let start = Instant::now();
            let mut command = self.command(&["--exact", &name]);
            command.env("MUTANT_TRACE", trace);
            if watch(command, Duration::from_secs(3600)) != End::Passed {
                return Err(format!("{}: {name} fails without any change", self.name));
            }
            let takes = start.elapsed();
            let reached = std::fs::read(trace).unwrap_or_default();
            let numbers = reached.chunks_exact(4).filter_map(|it| it.try_into().ok());
            self.tests.push(Test {
                name,
                takes,
                reaches: numbers.map(u32::from_le_bytes).collect(),
            });
        }
        Ok(())
    }

    /// The names of its tests.
    fn names(&self) -> Result<Vec<String>, String> {
        let output = self.command(&["--list", "--format", "terse"]).output();
        let output = output.map_err(|error| format!("{}: {error}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Tests, how long they take one after the other, and how many changes they reach.
    pub(crate) fn summary(&self) -> (usize, Duration, usize) {
        let reaches: BTreeSet<u32> = self
            .tests
            .iter()
            .flat_map(|it| &it.reaches)
            .copied()
            .collect();
        let takes = self.tests.iter().map(|test| test.takes).sum();
        (self.tests.len(), takes, reaches.len())
    }

    /// Runs those tests with a change that reach it and take as long as `takes` says, until the
    /// first one fails; `None` if there are none.
    pub(crate) fn run_with(&self, change: u32, takes: &Range<Duration>) -> Option<End> {
        let reach = |test: &&Test| test.reaches.contains(&change) && takes.contains(&test.takes);
        let tests: Vec<_> = self.tests.iter().filter(reach).collect();
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        if names.is_empty() {
            return None;
        }
        let mut command = self.command(&["--exact"]);
        command.args(&names).env("MUTANT", change.to_string());
        let longest = tests.iter().map(|test| test.takes).max()?;
        Some(watch(command, 5 * longest + Duration::from_secs(5)))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env_remove("MUTANT");
        command.args(arguments);
        // What is found by a change is no discovery to be kept.
        command.env("PROPTEST_FAILURE_PERSISTENCE", "off");
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Waits for tests until the first one fails, or none has ended for so long.
fn watch(mut command: Command, patience: Duration) -> End {
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
    let end = loop {
        match lines.recv_timeout(patience) {
            Ok(line) if line.ends_with(b"... FAILED") => break End::Failed,
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => break End::TimedOut,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return if child.wait().is_ok_and(|status| status.success()) {
                    End::Passed
                } else {
                    End::Failed
                };
            }
        }
    };
    let _may_be_over = child.kill();
    let _is_over = child.wait();
    end
}
