//! HTTP/0.9 peers on several QUIC stacks: the parts that all peers share, which are the command
//! line, HTTP/0.9 and TLS. A module for each stack implements [`Stack`] and [`Connection`].

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

mod args;
#[cfg(feature = "noq")]
mod noq_stack;
#[cfg(feature = "quinn")]
mod quinn_stack;
mod tls;

pub use args::{Client, Command, Options, Server, Step, USAGE, parse};
#[cfg(feature = "noq")]
pub use noq_stack::Noq;
#[cfg(feature = "quinn")]
pub use quinn_stack::Quinn;

/// Any error; a peer only reports them.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Longest request line that a server reads.
pub const MAX_REQUEST: usize = 4096;

/// Bytes, in both directions, before each step of a drill.
pub const BYTES_BETWEEN: u64 = 2 << 20;
/// Time between two looks of a drill at its connection.
const LOOK: Duration = Duration::from_millis(2);

/// A QUIC stack: an endpoint that accepts or makes connections.
pub trait Stack: Sized + Send + Sync + 'static {
    /// A connection of this stack.
    type Connection: Connection;

    /// An endpoint that listens.
    fn server(args: &Server, tls: rustls::ServerConfig) -> Result<Self, Error>;

    /// An endpoint that connects to servers of this address's family.
    fn client(remote: SocketAddr, tls: rustls::ClientConfig) -> Result<Self, Error>;

    /// The address listened on.
    fn local_address(&self) -> Result<SocketAddr, Error>;

    /// The next connection, still in its handshake; `None` if a client was sent a Retry instead.
    fn accept(&self) -> impl Future<Output = Result<Option<Self::Connection>, Error>> + Send;

    /// A new connection. Sends 0-RTT data if TLS and an earlier connection allow it.
    fn connect(
        &self,
        remote: SocketAddr,
        host: &str,
    ) -> impl Future<Output = Result<Self::Connection, Error>> + Send;

    /// Waits until all connections have ended.
    fn wait_idle(&self) -> impl Future<Output = ()> + Send;
}

/// A connection.
pub trait Connection: Clone + Send + Sync + 'static {
    /// The sending part of a stream.
    type Send: SendStream;
    /// The receiving part of a stream.
    type Recv: AsyncRead + Send + Unpin + 'static;

    /// Opens a bidirectional stream.
    fn open(&self) -> impl Future<Output = Result<(Self::Send, Self::Recv), Error>> + Send;

    /// The next bidirectional stream of the peer.
    fn accept(&self) -> impl Future<Output = Result<(Self::Send, Self::Recv), Error>> + Send;

    /// Opens paths from 127.0.0.2, 127.0.0.3 and so on, up to `count` paths.
    fn open_paths(&self, count: u8) -> impl Future<Output = Result<(), Error>> + Send {
        let result = match count {
            1 => Ok(()),
            _ => Err("this stack has a single path".into()),
        };
        async { result }
    }

    /// Does a step of a drill.
    fn step(&self, step: Step) -> impl Future<Output = Result<(), Error>> + Send {
        async move { Err(format!("this stack cannot do {step:?}").into()) }
    }

    /// Bytes of datagrams sent and received; `None` once the connection has ended.
    fn bytes(&self) -> Option<u64>;

    /// True if 0-RTT data was sent and accepted.
    fn zero_rtt_accepted(&self) -> impl Future<Output = bool> + Send;

    /// Closes the connection without an error.
    fn close(&self);

    /// Statistics of each path.
    fn paths(&self) -> Vec<Value>;
}

/// The sending part of a stream.
pub trait SendStream: AsyncWrite + Send + Unpin + 'static {
    /// Abandons the stream.
    fn reset(self, code: u32);
}

/// The wildcard address of `remote`'s IP version, with any port.
pub fn any_port(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Runs a peer: the `main` of every peer.
pub fn main<S: Stack>() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let command = match args::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(message) => {
            eprintln!("error: {message}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        match command {
            Command::Server(server) => serve::<S>(server).await,
            Command::Client(client) => fetch::<S>(client).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does the steps of a drill on a task of its own.
fn start_drill<C: Connection>(connection: &C, steps: &[Step]) {
    let (connection, steps) = (connection.clone(), steps.to_vec());
    tokio::spawn(async move {
        for step in steps {
            let enough = connection.bytes().map(|bytes| bytes + BYTES_BETWEEN);
            while connection.bytes().is_some_and(|bytes| Some(bytes) < enough) {
                tokio::time::sleep(LOOK).await;
            }
            match connection.step(step).await {
                Ok(()) => eprintln!("{step:?}: done"),
                Err(error) => eprintln!("{step:?}: not done: {error}"),
            }
        }
    });
}

async fn serve<S: Stack>(args: Server) -> Result<(), Error> {
    let stack = S::server(&args, tls::server(&args.certificate, &args.key)?)?;
    println!("listening on {}", stack.local_address()?);
    let directory: Arc<Path> = args.directory.into();
    loop {
        if let Some(connection) = stack.accept().await? {
            start_drill(&connection, &args.drill);
            tokio::spawn(serve_client(connection, directory.clone()));
        }
    }
}

/// Answers requests until the connection ends, then prints its statistics.
async fn serve_client<C: Connection>(connection: C, directory: Arc<Path>) {
    let end = loop {
        match connection.accept().await {
            Ok((send, recv)) => {
                let directory = directory.clone();
                tokio::spawn(async move { answer(send, recv, &directory).await });
            }
            Err(error) => break error,
        }
    };
    println!(
        "{}",
        json!({ "end": end.to_string(), "paths": connection.paths() })
    );
}

async fn answer(
    mut send: impl SendStream,
    mut recv: impl AsyncRead + Unpin,
    directory: &Path,
) -> Result<(), Error> {
    let mut request = Vec::new();
    while !request.ends_with(b"\n") && request.len() < MAX_REQUEST {
        if recv.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let mut file = match requested(&request, directory) {
        Some(file) => tokio::fs::File::open(file).await?,
        None => {
            send.reset(404);
            return Ok(());
        }
    };
    tokio::io::copy(&mut file, &mut send).await?;
    send.shutdown().await?;
    Ok(())
}

/// The file that a request line names.
pub fn requested(request: &[u8], directory: &Path) -> Option<PathBuf> {
    let request = std::str::from_utf8(request).ok()?;
    let name = request.strip_prefix("GET /")?.split_whitespace().next()?;
    (!name.contains("..")).then(|| directory.join(name))
}

/// Fetches every URL at once over each of `args.connections` connections, one after the other, and
/// prints a JSON line with the statistics of the last.
async fn fetch<S: Stack>(args: Client) -> Result<(), Error> {
    let stack = S::client(args.remote, tls::client(args.early_data)?)?;
    let mut zero_rtt = Vec::new();
    for number in 1..=args.connections {
        let connection = stack.connect(args.remote, &args.host).await?;
        connection.open_paths(args.path_count).await?;
        start_drill(&connection, &args.drill);
        let mut requests = JoinSet::new();
        for path in &args.paths {
            let file = args.out.join(path.trim_start_matches('/'));
            requests.spawn(request(connection.clone(), path.clone(), file));
        }
        let mut bytes = 0;
        while let Some(received) = requests.join_next().await {
            bytes += received??;
        }
        zero_rtt.push(connection.zero_rtt_accepted().await);
        let paths = connection.paths();
        connection.close();
        if number == args.connections {
            println!(
                "{}",
                json!({ "bytes": bytes, "zero_rtt": zero_rtt, "paths": paths })
            );
        }
    }
    stack.wait_idle().await;
    Ok(())
}

/// Fetches one file; returns its bytes.
async fn request<C: Connection>(connection: C, path: String, to: PathBuf) -> Result<u64, Error> {
    let (mut send, mut recv) = connection.open().await?;
    send.write_all(format!("GET {path}\r\n").as_bytes()).await?;
    send.shutdown().await?;
    let mut file = tokio::fs::File::create(to).await?;
    let bytes = tokio::io::copy(&mut recv, &mut file).await?;
    file.flush().await?;
    Ok(bytes)
}
