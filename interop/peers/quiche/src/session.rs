//! A connection and its HTTP/0.9 streams, on either side.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use mio::net::UdpSocket;
use mpquic_interop_peers::{Error, requested};
use quiche::{ConnectionId, RecvInfo, Shutdown};

/// Largest datagram taken or sent.
pub const MAX_DATAGRAM: usize = 1452;
const NOT_FOUND: u64 = 404;

/// A connection.
pub struct Session {
    pub connection: quiche::Connection,
    /// The bytes to send on each stream before its end.
    outgoing: HashMap<u64, (Vec<u8>, usize)>,
    /// The received bytes of each request at a server.
    requests: HashMap<u64, Vec<u8>>,
    /// The files to which a client writes answers.
    files: HashMap<u64, File>,
    /// Bytes that a client has received.
    pub received: u64,
}

/// Random bytes as a connection ID.
pub fn connection_id() -> Result<ConnectionId<'static>, Error> {
    let random = random_bytes()?;
    Ok(ConnectionId::from_vec(random.to_vec()))
}

pub fn random_bytes() -> Result<[u8; 16], Error> {
    let random = ring::rand::generate(&ring::rand::SystemRandom::new());
    Ok(random.map_err(|_| "no randomness")?.expose())
}

impl Session {
    pub fn new(connection: quiche::Connection) -> Self {
        Self {
            connection,
            outgoing: HashMap::new(),
            requests: HashMap::new(),
            files: HashMap::new(),
            received: 0,
        }
    }

    /// Requests a file on this stream.
    pub fn request(&mut self, stream: u64, name: &str, to: &Path) -> Result<(), Error> {
        self.files
            .insert(stream, File::create(to.join(name.trim_start_matches('/')))?);
        let request = format!("GET {name}\r\n").into_bytes();
        self.outgoing.insert(stream, (request, 0));
        self.send_streams();
        Ok(())
    }

    /// Takes a datagram; a malformed datagram counts as lost.
    pub fn receive(&mut self, data: &mut [u8], from: SocketAddr, to: SocketAddr) {
        if let Err(error) = self.connection.recv(data, RecvInfo { from, to }) {
            eprintln!("a datagram from {from}: {error:?}");
        }
    }

    /// Client: reads received bytes; returns the number of complete answers.
    pub fn read_answers(&mut self) -> Result<usize, Error> {
        let mut complete = 0;
        let mut buffer = [0; 1 << 16];
        for stream in self.connection.readable() {
            loop {
                match self.connection.stream_recv(stream, &mut buffer) {
                    Ok((length, fin)) => {
                        self.received += length as u64;
                        if let Some(file) = self.files.get_mut(&stream) {
                            file.write_all(&buffer[..length])?;
                        }
                        if fin {
                            self.files.remove(&stream);
                            complete += 1;
                            break;
                        }
                    }
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(format!("stream {stream}: {error:?}").into()),
                }
            }
        }
        Ok(complete)
    }

    /// Server: reads requests, and begins to answer them.
    pub fn read_requests(&mut self, directory: &Path) {
        let mut buffer = [0; mpquic_interop_peers::MAX_REQUEST];
        for stream in self.connection.readable() {
            while let Ok((length, fin)) = self.connection.stream_recv(stream, &mut buffer) {
                let request = self.requests.entry(stream).or_default();
                request.extend_from_slice(&buffer[..length]);
                if !fin {
                    continue;
                }
                let request = self.requests.remove(&stream).unwrap_or_default();
                match requested(&request, directory).and_then(|file| std::fs::read(file).ok()) {
                    Some(content) => {
                        self.outgoing.insert(stream, (content, 0));
                    }
                    None => {
                        let write = Shutdown::Write;
                        let _ = self.connection.stream_shutdown(stream, write, NOT_FOUND);
                    }
                }
            }
        }
    }

    /// Passes bytes to streams as far as their credit allows.
    pub fn send_streams(&mut self) {
        let connection = &mut self.connection;
        self.outgoing.retain(|&stream, (data, sent)| {
            match connection.stream_send(stream, &data[*sent..], true) {
                Ok(length) => {
                    *sent += length;
                    *sent < data.len()
                }
                Err(quiche::Error::Done) => true,
                Err(error) => {
                    eprintln!("stream {stream}: {error:?}");
                    false
                }
            }
        });
    }

    /// Sends all due datagrams, each from the socket of its path.
    pub fn transmit(&mut self, sockets: &[UdpSocket]) -> Result<(), Error> {
        // Peers need spare connection IDs to move.
        while self.connection.is_established() && self.connection.scids_left() > 0 {
            let reset_token = u128::from_be_bytes(random_bytes()?);
            if self
                .connection
                .new_scid(&connection_id()?, reset_token, false)
                .is_err()
            {
                break;
            }
        }
        self.send_streams();
        let mut packet = [0; MAX_DATAGRAM];
        loop {
            match self.connection.send(&mut packet) {
                Ok((length, info)) => {
                    let from = |socket: &&UdpSocket| socket.local_addr().ok() == Some(info.from);
                    let socket = sockets.iter().find(from).ok_or("no such socket")?;
                    // A send error loses the datagram, as a network would.
                    let _ = socket.send_to(&packet[..length], info.to);
                }
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(format!("sending: {error:?}").into()),
            }
        }
    }
}
