//! A second process of the same program, and what processes use.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Whatever went wrong.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Clock ticks of `/proc` in a second, on every Linux.
const TICKS: f64 = 100.0;

/// This program, run once more. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// `None` once it was closed.
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program with other arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(arguments: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    /// The next line that it prints.
    ///
    /// # Errors
    /// If it has ended, or prints what is not UTF-8.
    pub fn line(&mut self) -> Result<String, Failure> {
        Ok(self.output.next().ok_or("the other process ended")??)
    }

    /// Gives it an empty line.
    ///
    /// # Errors
    /// If it has ended, or its input was closed.
    pub fn ask(&mut self) -> Result<(), Failure> {
        Ok(self.input.as_mut().ok_or("no input")?.write_all(b"\n")?)
    }

    /// Closes its input, and waits until it ends by itself.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn end(mut self) -> Result<(), Failure> {
        self.input = None;
        self.child.wait()?;
        Ok(())
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of a process, bytes.
///
/// # Errors
/// If there is no such process.
pub fn resident(process: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.ok_or("no VmRSS")?.parse::<u64>()? << 10)
}

/// CPU time a process has used, seconds.
///
/// # Errors
/// If there is no such process.
pub fn cpu_seconds(process: u32) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, in parentheses, may hold anything. User and system time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS)
}
