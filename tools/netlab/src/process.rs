//! Processes: the commands that netlab starts, signals, and processor time.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, getpid, getppid};
use serde_json::{Value, json};

/// How long a command has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// The first argument of netlab as the process that becomes a command.
pub(crate) const LAUNCH: &str = "launch";

/// SIGINT, SIGTERM, SIGHUP and SIGCHLD are blocked and only received by `wait`, so that netlab
/// always removes its namespaces.
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// To be called before any thread is started, as threads inherit the blocked signals.
    pub(crate) fn block() -> Result<Signals, String> {
        let set: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGCHLD,
        ]
        .into_iter()
        .collect();
        set.thread_block().map_err(|e| format!("signals: {e}"))?;
        SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map(Signals)
            .map_err(|e| format!("signalfd: {e}"))
    }

    /// The next signal, or `None` if none came within the limit.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Signal> {
        let limit = limit.try_into().ok()?;
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&limit)).ok()?;
        let received = self.0.read_signal().ok()??;
        Signal::try_from(i32::try_from(received.ssi_signo).ok()?).ok()
    }
}

/// Tells the main thread, which waits for signals, that netlab has to end.
pub(crate) fn end_netlab() {
    let _ = rustix::process::kill_process(getpid(), rustix::process::Signal::TERM);
}

/// A process number that text or the standard library gave.
pub(crate) fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

/// A running command. A command that is dropped is ended.
pub(crate) struct Running {
    child: Child,
    /// Whether the child leads a process group of its own.
    group: bool,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts the command.
    pub(crate) fn start(command: &mut Command, group: bool) -> io::Result<Running> {
        if group {
            command.process_group(0);
        }
        Ok(Running {
            child: command.spawn()?,
            group,
            status: None,
        })
    }

    /// How the command ended, or `None` while it runs.
    pub(crate) fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits for the end of the command.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, String> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        self.status = Some(status);
        Ok(status)
    }

    /// How the command ended, as far as `poll`, `wait` or `stop` saw.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = Pid::from_child(&self.child);
        let _ = if self.group {
            rustix::process::kill_process_group(pid, signal)
        } else {
            rustix::process::kill_process(pid, signal)
        };
    }

    /// Ends the command, with SIGKILL if it ignores SIGTERM.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command that ignores SIGTERM is killed by the clock"
    )]
    pub(crate) fn stop(&mut self) {
        if self.poll().is_some() {
            return;
        }
        self.signal(rustix::process::Signal::TERM);
        let end = Instant::now() + GRACE;
        while self.poll().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.poll().is_none() {
            self.signal(rustix::process::Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The exit code of a command as a shell says it; null while the command runs.
pub(crate) fn exit_code(status: Option<ExitStatus>) -> Value {
    match status {
        None => Value::Null,
        Some(s) => json!(s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0))),
    }
}

/// A command that dies with netlab. Between fork and exec no code may run without `unsafe`, so the
/// child is netlab once more, which prepares itself in `launch` and then becomes the command.
pub(crate) fn command(words: &[&str], nice: i32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(LAUNCH)
        .arg(std::process::id().to_string())
        .arg(nice.to_string())
        .args(words);
    command
}

/// Becomes the command that `command` described: with no blocked signal, a priority, and SIGKILL
/// when its parent dies. Arguments: the parent's process number, the priority, the command's words.
pub(crate) fn launch(args: &[String]) -> Result<u8, String> {
    let [parent, nice, name, rest @ ..] = args else {
        return Err("launch PARENT NICE COMMAND... is for netlab's own use".into());
    };
    SigSet::empty()
        .thread_set_mask()
        .map_err(|e| format!("signals: {e}"))?;
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill).map_err(|e| format!("prctl: {e}"))?;
    let nice: i32 = nice.parse().map_err(|_| format!("{nice}: no priority"))?;
    if nice != 0 {
        // Without the right to do so the command has the usual priority.
        let _ = rustix::process::setpriority_process(None, nice);
    }
    // A parent that died before the call above sends no signal any more.
    if getppid() != parent.parse().ok().and_then(pid) {
        return Ok(1);
    }
    Err(format!("{name}: {}", Command::new(name).args(rest).exec()))
}

/// A file that has no name, for the output of a command.
pub(crate) fn memory_file() -> Result<File, String> {
    memfd_create("client-output", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|e| format!("memfd_create: {e}"))
}

/// A second handle of netlab's standard error.
pub(crate) fn standard_error() -> Result<File, String> {
    let owned = io::stderr().as_fd().try_clone_to_owned();
    owned.map(File::from).map_err(|e| e.to_string())
}

/// Seconds of processor time since the start: the whole machine's busy and stolen time, this
/// process's, and its children's.
#[derive(Clone, Copy)]
pub(crate) struct Processor {
    busy: f64,
    steal: f64,
    own: f64,
    commands: f64,
}

impl Processor {
    /// The state of now.
    pub(crate) fn now() -> Processor {
        let tick = rustix::param::clock_ticks_per_second().max(1) as f64;
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<f64> = text
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .skip(1)
            .filter_map(|x| x.parse().ok())
            .collect();
        let at = |i: usize| fields.get(i).copied().unwrap_or(0.0) / tick;
        let usage = |who| {
            getrusage(who).map_or(0.0, |r| {
                [r.user_time(), r.system_time()]
                    .map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6)
                    .iter()
                    .sum()
            })
        };
        Processor {
            busy: at(0) + at(1) + at(2) + at(5) + at(6),
            steal: at(7),
            own: usage(UsageWho::RUSAGE_SELF),
            commands: usage(UsageWho::RUSAGE_CHILDREN),
        }
    }

    /// Seconds used since `before`. Much time of others, or stolen time, makes a run suspect.
    pub(crate) fn since(before: Processor) -> Value {
        let now = Processor::now();
        let round = |x: f64| (x * 100.0).round() / 100.0;
        let (own, commands) = (now.own - before.own, now.commands - before.commands);
        json!({
            "netlab_s": round(own),
            "commands_s": round(commands),
            "other_s": round((now.busy - before.busy - own - commands).max(0.0)),
            "steal_s": round(now.steal - before.steal),
        })
    }
}
