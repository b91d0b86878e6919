//! Compares a bulk download over loopback by mpquic and by quinn: the same TLS, windows, congestion
//! controller and buffers; server and client are processes of their own on CPUs of their own.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml
//! ```
//!
//! Rounds alternate between the stacks, so that whatever else the machine does hits all of them.

use std::error::Error;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use clap::{Args, Parser, Subcommand, ValueEnum};

use report::{Cost, Sample};

mod mpquic;
mod peer;
mod quinn_peer;
mod report;
mod tls;

type Failure = Box<dyn Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

#[derive(Debug, Parser)]
#[command(about = "Bulk download over loopback: mpquic next to quinn")]
struct Arguments {
    #[command(flatten)]
    transfer: Transfer,
    /// Rounds of all contestants
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Contestants, in order: name of the stack, then the number of paths
    #[arg(long, value_delimiter = ',', default_values = ["mpquic:1", "quinn:1", "mpquic:2"])]
    contestants: Vec<Contestant>,
    /// CPU of the servers
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// CPU of the clients
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What both sides of a transfer have to know.
#[derive(Debug, Clone, Args)]
struct Transfer {
    /// MiB to download
    #[arg(long, default_value_t = 1024, global = true)]
    size: u64,
    /// Receive window of the stream and send window of the server, in KiB
    #[arg(long, default_value_t = 8192, global = true)]
    window: u64,
    /// Buffer of each socket, in KiB
    #[arg(long, default_value_t = 8192, global = true)]
    buffer: usize,
    /// Congestion controller: cubic or newreno (of mpquic, any)
    #[arg(long, default_value = "cubic", global = true)]
    cc: String,
}

/// One of the two processes of a transfer; for internal use.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    Server { stack: Stack, cpu: usize },
    #[command(hide = true)]
    Client {
        stack: Stack,
        cpu: usize,
        paths: u8,
        port: u16,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stack {
    Mpquic,
    Quinn,
}

/// A stack and its number of paths.
#[derive(Debug, Clone, Copy)]
struct Contestant {
    stack: Stack,
    paths: u8,
}

impl std::str::FromStr for Contestant {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (stack, paths) = text.split_once(':').unwrap_or((text, "1"));
        let stack = Stack::from_str(stack, true)?;
        let paths = paths.parse().map_err(|_| "not a number of paths")?;
        match (stack, paths) {
            (Stack::Quinn, 1) | (Stack::Mpquic, 1..=8) => Ok(Self { stack, paths }),
            _ => Err(format!("{stack:?} cannot use {paths} paths")),
        }
    }
}

impl std::fmt::Display for Contestant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stack = match self.stack {
            Stack::Mpquic => "mpquic",
            Stack::Quinn => "quinn",
        };
        let plural = if self.paths == 1 { "" } else { "s" };
        write!(f, "{stack}, {} path{plural}", self.paths)
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let transfer = &arguments.transfer;
    match arguments.role {
        Some(Role::Server { stack, cpu }) => peer::serve(stack, cpu, transfer),
        Some(Role::Client {
            stack,
            cpu,
            paths,
            port,
        }) => peer::fetch((stack, paths), cpu, port, transfer),
        None => compare(&arguments),
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let mut samples = vec![Vec::new(); arguments.contestants.len()];
    for round in 1..=arguments.rounds {
        for (contestant, samples) in arguments.contestants.iter().zip(&mut samples) {
            let sample = measure(arguments, *contestant)?;
            println!("{round}: {contestant}: {sample}");
            samples.push(sample);
        }
    }
    let reference = arguments
        .contestants
        .iter()
        .position(|contestant| contestant.stack == Stack::Quinn);
    println!();
    print!(
        "{}",
        report::table(&arguments.contestants, &samples, reference)
    );
    Ok(())
}

/// One transfer by two new processes.
fn measure(arguments: &Arguments, contestant: Contestant) -> Result<Sample> {
    let Contestant { stack, paths } = contestant;
    let name = stack.to_possible_value().ok_or("no such stack")?;
    let name = name.get_name();
    let server_cpu = arguments.server_cpu.to_string();
    let mut server = Peer::start(&arguments.transfer, &["server", name, &server_cpu])?;
    let port = server.line()?;
    let client_cpu = arguments.client_cpu.to_string();
    let paths = paths.to_string();
    let words = ["client", name, &client_cpu, &paths, &port];
    let mut client = Peer::start(&arguments.transfer, &words)?;
    let seconds: f64 = client.line()?.parse()?;
    let client_cost: Cost = client.line()?.parse()?;
    client.end()?;
    let server_cost: Cost = server.line()?.parse()?;
    server.end()?;
    let bytes = arguments.transfer.size << 20;
    Ok(Sample::new(bytes, seconds, server_cost, client_cost))
}

/// A child process and what it prints.
struct Peer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(transfer: &Transfer, words: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--size", &transfer.size.to_string()])
            .args(["--window", &transfer.window.to_string()])
            .args(["--buffer", &transfer.buffer.to_string()])
            .args(["--cc", &transfer.cc])
            .args(words)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let lines = BufReader::new(output).lines();
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> Result<String> {
        let line = self.lines.next().ok_or("a process ended early")?;
        Ok(line?)
    }

    fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("a process failed: {status}").into())
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only of use when something went wrong before `end`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
