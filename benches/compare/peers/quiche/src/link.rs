//! A connection as the application sees it.

use std::time::Instant;

use crate::http3::Http3;
use bytes::Bytes;
use compare_peer::Result;
use compare_peer::event::Link;
use quiche::{BufFactory, BufSplit, Connection, ConnectionId, Error};

/// Hands buffers to quiche without copying them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers;

/// Part of what the application wrote.
#[derive(Debug, Clone)]
pub(crate) struct Buffer(pub(crate) Bytes);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl BufSplit for Buffer {
    fn split_at(&mut self, at: usize) -> Self {
        Self(self.0.split_off(at))
    }
}

impl BufFactory for Buffers {
    type Buf = Buffer;
    type DgramBuf = Vec<u8>;

    fn buf_from_slice(data: &[u8]) -> Buffer {
        Buffer(Bytes::copy_from_slice(data))
    }

    fn dgram_buf_from_slice(data: &[u8]) -> Vec<u8> {
        data.to_vec()
    }
}

/// A connection, with the application's state of the connection.
pub(crate) struct Peer {
    pub(crate) connection: Connection<Buffers>,
    /// The connection ID of datagrams to the connection.
    pub(crate) ids: Vec<ConnectionId<'static>>,
    /// The application knows that the handshake is complete.
    pub(crate) established: bool,
    /// True after an event that the loop has not handled yet.
    pub(crate) touched: bool,
    /// The time at which the connection's timer expires.
    pub(crate) armed: Option<Instant>,
    http3: Option<Http3>,
    next_stream: u64,
}

impl Peer {
    pub(crate) fn new(connection: Connection<Buffers>, ids: Vec<ConnectionId<'static>>) -> Self {
        Self {
            connection,
            ids,
            established: false,
            touched: false,
            armed: None,
            http3: None,
            next_stream: 0,
        }
    }

    /// Begins HTTP/3; the handshake is complete.
    pub(crate) fn begin_http3(&mut self) -> Result<()> {
        self.http3 = Some(Http3::new(&mut self.connection)?);
        Ok(())
    }

    /// The next stream that takes data again.
    pub(crate) fn writable(&mut self) -> Result<Option<u64>> {
        match &mut self.http3 {
            Some(http3) => http3.writable(&mut self.connection),
            None => Ok(self.connection.stream_writable_next()),
        }
    }

    /// The next stream with something to read.
    pub(crate) fn readable(&mut self) -> Result<Option<u64>> {
        match &mut self.http3 {
            Some(http3) => http3.readable(&mut self.connection),
            None => Ok(self.connection.stream_readable_next()),
        }
    }
}

impl Link for Peer {
    fn resumed(&self) -> bool {
        self.connection.is_resumed()
    }

    fn open(&mut self) -> Result<u64> {
        if let Some(http3) = &mut self.http3 {
            return http3.open(&mut self.connection);
        }
        let stream = self.next_stream;
        self.next_stream += 4;
        Ok(stream)
    }

    fn read(&mut self, stream: u64, buffer: &mut [u8]) -> Result<Option<(usize, bool)>> {
        if let Some(http3) = &mut self.http3 {
            return http3.read(&mut self.connection, stream, buffer);
        }
        match self.connection.stream_recv(stream, buffer) {
            Ok(read) => Ok(Some(read)),
            Err(Error::Done) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self, stream: u64, data: Bytes, end: bool) -> Result<usize> {
        if let Some(http3) = &mut self.http3 {
            return http3.write(&mut self.connection, stream, data, end);
        }
        match self.connection.stream_send_zc(stream, Buffer(data), end) {
            Ok((taken, _)) => Ok(taken),
            Err(Error::Done) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn send_datagram(&mut self, data: &[u8]) -> Result<bool> {
        match self.connection.dgram_send(data) {
            Ok(()) => Ok(true),
            Err(Error::Done) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match self.connection.dgram_recv(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Error::Done) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn close(&mut self) {
        // Fails only if the connection is closed.
        let _ = self.connection.close(true, 0, b"");
    }
}
