//! One measurement: a server and a client, processes of their own on CPUs of their own.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::Args;
use compare_peer::report::{LACKS, READY, Report, START};
use compare_peer::{Options, Result, Workload};
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::contestant::Contestant;

/// Time without packets before the server's memory is read, so that its connections are idle.
const SETTLE: Duration = Duration::from_secs(5);
/// A process that takes longer counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// CPUs, priorities and network namespaces of processes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Placement {
    /// CPU of the servers
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// CPU of the clients
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// Leave the scheduling class alone; without it, servers and clients run with real-time
    /// priority (as root), so that other processes of the machine do not disturb them
    #[arg(long)]
    fair: bool,
    /// Network namespace of the servers
    #[arg(long)]
    server_namespace: Option<String>,
    /// Network namespace of the clients
    #[arg(long)]
    client_namespace: Option<String>,
}

/// CPU and network namespace of the processes of one side.
struct Side<'a> {
    cpu: usize,
    namespace: Option<&'a str>,
}

impl Placement {
    /// Gives this process a higher priority than the measured processes, so that it reads their
    /// lines in time.
    pub(crate) fn prepare(&self) -> Result<()> {
        if self.fair {
            return Ok(());
        }
        let pid = std::process::id().to_string();
        let status = Command::new("chrt")
            .args(["-r", "-p", "2", &pid])
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err("no right to real-time priority: run as root or with --fair".into())
        }
    }

    fn server(&self) -> Side<'_> {
        Side {
            cpu: self.server_cpu,
            namespace: self.server_namespace.as_deref(),
        }
    }

    fn client(&self) -> Side<'_> {
        Side {
            cpu: self.client_cpu,
            namespace: self.client_namespace.as_deref(),
        }
    }

    /// A command that runs the program in its further arguments.
    fn command(&self, side: &Side<'_>) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &side.cpu.to_string()]);
        if !self.fair {
            command.args(["chrt", "-r", "1"]);
        }
        if let Some(namespace) = side.namespace {
            command.args(["ip", "netns", "exec", namespace]);
        }
        command
    }
}

/// The result of one run of a workload.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) report: Report,
    /// CPU time of the server, seconds.
    pub(crate) server_cpu: f64,
    /// How often a thread of the server went to sleep.
    pub(crate) server_sleeps: u64,
    /// Growth of the server's memory, bytes.
    pub(crate) memory: u64,
}

impl Sample {
    /// CPU time of the busier side, seconds: the time of a run in which this side never waits.
    pub(crate) fn busier(&self) -> f64 {
        self.server_cpu.max(self.report.cpu)
    }
}

/// A sample, or the reason why the contestant cannot do the workload.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Sample(Sample),
    Lacks(String),
}

/// Runs a workload once.
pub(crate) fn measure(
    contestant: Contestant,
    workload: Workload,
    options: &Options,
    placement: &Placement,
) -> Result<Outcome> {
    let mut options = options.clone();
    options.variant = contestant.variant();
    options.http3 = contestant.is_http3();
    let start = |side: Side<'_>, role: &[&str]| {
        let mut command = placement.command(&side);
        command.arg(program(contestant)?);
        command.arg(workload.to_string()).args(options.arguments());
        Process::start(command.args(role))
    };
    let mut server = start(placement.server(), &["server"])?;
    let _server_limit = Limit::new(&server);
    let line = server.line()?;
    if let Some(reason) = line.strip_prefix(LACKS) {
        return Ok(Outcome::Lacks(reason.to_owned()));
    }
    let port = line.strip_prefix(READY).ok_or("a server is not ready")?;
    let memory = server.memory()?;
    let mut client = start(placement.client(), &["client", port])?;
    let _client_limit = Limit::new(&client);
    if client.line()? != START {
        return Err("a client does not start".into());
    }
    let (cpu, sleeps) = (server.cpu()?, server.sleeps()?);
    let report: Report = client.line()?.parse()?;
    let server_cpu = server.cpu()? - cpu;
    let server_sleeps = server.sleeps()?.saturating_sub(sleeps);
    if workload == Workload::Memory {
        thread::sleep(SETTLE);
    } else {
        client.end()?;
    }
    Ok(Outcome::Sample(Sample {
        report,
        server_cpu,
        server_sleeps,
        memory: server.memory()?.saturating_sub(memory),
    }))
}

/// The program of a contestant, beside this program.
fn program(contestant: Contestant) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(contestant.package()))
}

/// Ends a process that is stuck.
struct Limit {
    /// The drop of this sender tells the waiting thread that the process has ended.
    _over: Sender<()>,
}

impl Limit {
    fn new(process: &Process) -> Self {
        let (over, receiver) = mpsc::channel::<()>();
        let pid = process.pid();
        thread::spawn(move || {
            if receiver.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = kill(pid, Signal::SIGKILL);
            }
        });
        Self { _over: over }
    }
}

/// A child process, and the lines that it prints. The drop of this value ends the process.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let lines = BufReader::new(output).lines();
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().ok_or("a process ended early")??)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// CPU time so far, seconds.
    fn cpu(&self) -> Result<f64> {
        let clock = clock_getcpuclockid(self.pid())?;
        Ok(Duration::from(clock_gettime(clock)?).as_secs_f64())
    }

    /// How often its threads, as far as they live, went to sleep so far.
    fn sleeps(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // A thread may have ended since the list was read.
            let Ok(status) = fs::read_to_string(thread?.path().join("status")) else {
                continue;
            };
            let mut lines = status.lines();
            let number = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum += number
                .ok_or("no count of switches")?
                .trim()
                .parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Resident memory, bytes.
    fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kib: u64 = number.ok_or("no figure of memory")?.parse()?;
        Ok(kib << 10)
    }

    /// Waits until the process ends.
    fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("a process failed: {status}").into())
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
