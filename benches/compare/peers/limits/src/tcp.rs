//! TCP, plain and with TLS.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use compare_peer::report::Meter;
use compare_peer::{Options, Program, Result, Role, Workload, ready, tls};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

/// Bytes written and read at a time.
const PIECE: usize = 256 << 10;

/// What is on top of TCP.
pub(crate) trait Layer {
    /// The server's end of a connection.
    fn accept(&self, stream: TcpStream) -> Result<impl Write>;

    /// The client's end of a connection.
    fn connect(&self, stream: TcpStream) -> Result<impl Read>;
}

/// Nothing.
pub(crate) struct Plain;

impl Layer for Plain {
    fn accept(&self, stream: TcpStream) -> Result<impl Write> {
        Ok(stream)
    }

    fn connect(&self, stream: TcpStream) -> Result<impl Read> {
        Ok(stream)
    }
}

/// TLS 1.3 with AES-128-GCM.
pub(crate) struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        Ok(Self {
            server: Arc::new(tls::server(Workload::Bulk, options)?),
            client: Arc::new(tls::client(Workload::Bulk, options)?),
        })
    }
}

impl Layer for Tls {
    fn accept(&self, mut stream: TcpStream) -> Result<impl Write> {
        let mut connection = ServerConnection::new(self.server.clone())?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        connection.set_buffer_limit(Some(PIECE));
        Ok(StreamOwned::new(connection, stream))
    }

    fn connect(&self, mut stream: TcpStream) -> Result<impl Read> {
        let name = ServerName::try_from(tls::SERVER_NAME)?;
        let mut connection = ClientConnection::new(self.client.clone(), name)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(connection, stream))
    }
}

/// One side of a download.
pub(crate) fn run(program: &Program, layer: impl Layer) -> Result<()> {
    let total = program.options.bytes();
    let mut buffer = vec![0x5a; PIECE];
    match program.role {
        Role::Server => {
            let listener = TcpListener::bind(program.options.server_socket())?;
            ready(listener.local_addr()?);
            loop {
                let mut stream = layer.accept(listener.accept()?.0)?;
                let mut left = total;
                while left > 0 {
                    let count = left.min(PIECE as u64);
                    stream.write_all(&buffer[..count as usize])?;
                    left -= count;
                }
                stream.flush()?;
            }
        }
        Role::Client { port } => {
            let stream = TcpStream::connect(program.options.server(port))?;
            let mut stream = layer.connect(stream)?;
            let meter = Meter::start()?;
            let mut received = 0;
            while received < total {
                match stream.read(&mut buffer)? {
                    0 => return Err("ended early".into()),
                    count => received += count as u64,
                }
            }
            meter.stop(received, "")
        }
    }
}
