//! A second process of the same program; memory and processor time of processes.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Any error.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Clock ticks of `/proc` in a second, on every Linux.
const TICKS: f64 = 100.0;

/// A second process of this program. The drop of this value ends the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The standard input of the process; `None` once closed.
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program with other arguments.
    ///
    /// # Errors
    /// If the process cannot be started.
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

    /// The next line that the process prints.
    ///
    /// # Errors
    /// If the process has ended, or prints bytes other than UTF-8.
    pub fn line(&mut self) -> Result<String, Failure> {
        Ok(self.output.next().ok_or("the other process ended")??)
    }

    /// Writes an empty line to the process.
    ///
    /// # Errors
    /// If the process has ended, or its input was closed.
    pub fn ask(&mut self) -> Result<(), Failure> {
        Ok(self.input.as_mut().ok_or("no input")?.write_all(b"\n")?)
    }

    /// Closes the input of the process, and waits for its end.
    ///
    /// # Errors
    /// If the system cannot wait for the process.
    pub fn end(mut self) -> Result<(), Failure> {
        self.input = None;
        self.child.wait()?;
        Ok(())
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
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
    // The name, in parentheses, may have any bytes. User and system time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = times.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS)
}
