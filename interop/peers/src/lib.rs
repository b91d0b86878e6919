//! HTTP/0.9 peers on several QUIC stacks. Here is what they have in common: the command line, HTTP/0.9
//! and TLS. A module for each stack implements [`Stack`] and [`Connection`].

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

mod args;
mod noq_stack;
mod quinn_stack;
mod tls;

pub use args::{Client, Command, Options, Server};
pub use noq_stack::Noq;
pub use quinn_stack::Quinn;

/// Any error; a peer only reports them.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Longest request line a server reads.
const MAX_REQUEST: usize = 4096;

/// A QUIC stack: an endpoint that accepts or makes connections.
pub trait Stack: Sized + Send + Sync + 'static {
    /// A connection of this stack.
    type Connection: Connection;

    /// An endpoint that listens.
    fn server(listen: SocketAddr, tls: rustls::ServerConfig) -> Result<Self, Error>;

    /// An endpoint that connects.
    fn client(tls: rustls::ClientConfig) -> Result<Self, Error>;

    /// The address listened on.
    fn local_address(&self) -> Result<SocketAddr, Error>;

    /// The next connection, still in its handshake; `None` if a client was sent a Retry instead.
    fn accept(
        &self,
        retry: bool,
    ) -> impl Future<Output = Result<Option<Self::Connection>, Error>> + Send;

    /// A new connection. Sends 0-RTT data if an earlier connection made it possible.
    fn connect(
        &self,
        remote: SocketAddr,
        host: &str,
    ) -> impl Future<Output = Result<Self::Connection, Error>> + Send;

    /// Resolves when all connections are gone.
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

    /// Opens a second path, if the stack and the peer can.
    fn open_second_path(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Closes path 0 as soon as a second path is validated.
    fn close_first_path(&self) -> impl Future<Output = Result<(), Error>> + Send;

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

/// Runs a peer; the whole of its `main`.
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

async fn serve<S: Stack>(args: Server) -> Result<(), Error> {
    let stack = S::server(args.listen, tls::server()?)?;
    println!("listening on {}", stack.local_address()?);
    let directory: Arc<Path> = args.directory.into();
    loop {
        if let Some(connection) = stack.accept(args.retry).await? {
            if args.close_first_path {
                let connection = connection.clone();
                tokio::spawn(async move {
                    if let Err(error) = connection.close_first_path().await {
                        eprintln!("path 0 stays open: {error}");
                    }
                });
            }
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
    let request = String::from_utf8_lossy(&request);
    let file = request
        .strip_prefix("GET /")
        .and_then(|rest| rest.split_whitespace().next())
        .filter(|name| !name.contains(".."))
        .map(|name| directory.join(name));
    let mut file = match file {
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

/// Fetches every URL over each of `args.connections` connections, one after the other, and prints
/// a JSON line with the statistics of the last.
async fn fetch<S: Stack>(args: Client) -> Result<(), Error> {
    let stack = S::client(tls::client()?)?;
    let mut zero_rtt = Vec::new();
    for number in 1..=args.connections {
        let connection = stack.connect(args.remote, &args.host).await?;
        if args.second_path {
            connection.open_second_path().await?;
        }
        if args.close_first_path {
            connection.close_first_path().await?;
        }
        let mut bytes = 0;
        let mut out = tokio::fs::File::create(&args.out).await?;
        for path in &args.paths {
            let (mut send, mut recv) = connection.open().await?;
            send.write_all(format!("GET {path}\r\n").as_bytes()).await?;
            send.shutdown().await?;
            bytes += tokio::io::copy(&mut recv, &mut out).await?;
        }
        out.flush().await?;
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
