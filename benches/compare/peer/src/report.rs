//! A client's report about its measurement, in lines on its standard output.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::{Failure, Result};

/// The line of a program that cannot do a workload; the reason follows.
pub const LACKS: &str = "lacks ";
/// The line of a server that is ready; its port follows.
pub const READY: &str = "ready ";
/// The line of a client whose measurement begins.
pub const START: &str = "start";

/// Measures time and the CPU time of this process.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    used: f64,
    sleeps: u64,
}

impl Meter {
    /// Begins to measure, and prints a line, at which the CPU time of the server is read.
    pub fn start() -> Result<Self> {
        println!("{START}");
        Ok(Self {
            used: used()?,
            sleeps: sleeps()?,
            start: Instant::now(),
        })
    }

    /// Ends the measurement of `count` units of work, and prints a line.
    pub fn stop(self, count: u64, remark: &str) -> Result<()> {
        let report = Report {
            count,
            seconds: self.start.elapsed().as_secs_f64(),
            cpu: used()? - self.used,
            sleeps: sleeps()? - self.sleeps,
            remark: remark.to_owned(),
        };
        println!("{report}");
        Ok(())
    }
}

/// Ends a measurement whose time and CPU seconds the program took itself.
pub fn stop(count: u64, time: Duration, cpu: f64, remark: &str) {
    let report = Report {
        count,
        seconds: time.as_secs_f64(),
        cpu,
        sleeps: 0,
        remark: remark.to_owned(),
    };
    println!("{report}");
}

/// A client's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Units of work: bytes, requests, handshakes, connections.
    pub count: u64,
    /// Time of the measurement, seconds.
    pub seconds: f64,
    /// CPU time of the measurement, seconds.
    pub cpu: f64,
    /// How often a thread went to sleep to wait for work, and was woken; 0 if the program did not
    /// count.
    pub sleeps: u64,
    /// A remark for the table.
    pub remark: String,
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            count,
            seconds,
            cpu,
            sleeps,
            remark,
        } = self;
        write!(f, "stop {count} {seconds} {cpu} {sleeps} {remark}")
    }
}

impl FromStr for Report {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.splitn(6, ' ');
        let mut word = || words.next().ok_or_else(|| format!("not a report: {line}"));
        if word()? != "stop" {
            return Err(format!("not a report: {line}").into());
        }
        Ok(Self {
            count: word()?.parse()?,
            seconds: word()?.parse()?,
            cpu: word()?.parse()?,
            sleeps: word()?.parse()?,
            remark: word()?.to_owned(),
        })
    }
}

/// CPU time of this process so far, seconds.
fn used() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// How often a thread of this process went to sleep so far.
fn sleeps() -> Result<u64> {
    let count = getrusage(UsageWho::RUSAGE_SELF)?.voluntary_context_switches();
    Ok(count.unsigned_abs())
}

fn seconds(time: TimeVal) -> f64 {
    let whole = Duration::from_secs(time.tv_sec().unsigned_abs());
    let part = Duration::from_micros(time.tv_usec().unsigned_abs());
    (whole + part).as_secs_f64()
}
