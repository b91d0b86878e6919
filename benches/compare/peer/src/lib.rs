//! One side of a measurement: the parts that are the same for every stack.
//!
//! A peer is a program with two roles. A server prints `ready` and its port, and serves until the
//! process is ended. A client does one workload, prints `start` and `stop` around the measured
//! part, and ends. Stacks on tokio implement [`Stack`] and call [`run`]; others bring their own
//! loop, call [`Program::parse`] and keep to the same lines and the same application protocol
//! ([`request`]).

use std::error::Error;
use std::net::SocketAddr;

use clap::{Parser, Subcommand};

use http3::OverHttp3;

mod client;
pub mod event;
mod http3;
pub mod options;
pub mod report;
pub mod request;
mod server;
mod socket;
mod stack;
pub mod tls;

pub use http3::Http3;
pub use options::{Options, Workload};
pub use socket::socket;
pub use stack::{Connection, ReceiveStream, SendStream, Stack};

/// Any error.
pub type Failure = Box<dyn Error + Send + Sync>;
/// A result with [`Failure`] as the error.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The command line of every peer.
#[derive(Debug, Parser)]
pub struct Program {
    /// The work to measure
    pub workload: Workload,
    /// Options of the measurement
    #[command(flatten)]
    pub options: Options,
    /// The side of this process
    #[command(subcommand)]
    pub role: Role,
}

/// The side of a process.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum Role {
    /// Serves until the process is ended
    Server,
    /// Does the workload with a server
    Client {
        /// The server's port
        port: u16,
    },
}

impl Program {
    /// The command line; ends the process if the stack lacks what the workload needs.
    pub fn parse(lacks: impl FnOnce(Workload, &Options) -> Option<&'static str>) -> Self {
        let program = <Self as Parser>::parse();
        if let Some(reason) = lacks(program.workload, &program.options) {
            println!("{}{reason}", report::LACKS);
            std::process::exit(0);
        }
        program
    }
}

/// Prints that a server is ready.
pub fn ready(address: SocketAddr) {
    println!("{}{}", report::READY, address.port());
}

/// Runs a peer on tokio: one thread for tasks, sockets and timers.
pub fn run<S: Stack>() -> Result<()> {
    run_program::<S>(Program::parse(|workload, options| {
        if options.http3 {
            Some("no HTTP/3")
        } else {
            S::lacks(workload)
        }
    }))
}

/// Runs a peer on tokio, over HTTP/3 if the options ask for HTTP/3.
pub fn run_with_http3<S: Stack<Connection: Http3>>() -> Result<()> {
    let lacks = |workload, options: &Options| {
        if options.http3 {
            OverHttp3::<S>::lacks(workload)
        } else {
            S::lacks(workload)
        }
    };
    let program = Program::parse(lacks);
    if program.options.http3 {
        run_program::<OverHttp3<S>>(program)
    } else {
        run_program::<S>(program)
    }
}

fn run_program<S: Stack>(program: Program) -> Result<()> {
    let Program {
        workload,
        options,
        role,
    } = program;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match role {
            Role::Server => {
                let stack = S::server(workload, &options)?;
                ready(stack.address()?);
                server::serve(stack).await
            }
            Role::Client { port } => {
                let stack = S::client(workload, &options)?;
                let server = options.server(port);
                client::run(stack, server, workload, &options).await
            }
        }
    })
}
