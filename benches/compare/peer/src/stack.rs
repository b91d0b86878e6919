//! The traits that a QUIC stack on tokio implements for the workloads.

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::{Options, Result, Workload};

/// An endpoint of a stack.
pub trait Stack: Sized + Send + Sync + 'static {
    /// A connection of this stack.
    type Connection: Connection;
    /// A connection whose handshake is not complete.
    type Incoming: Future<Output = Result<Self::Connection>> + Send + 'static;

    /// The reason why the stack cannot do a workload; `None` for a workload that it can do.
    fn lacks(workload: Workload) -> Option<&'static str>;

    /// A server on [`Options::server_socket`].
    fn server(workload: Workload, options: &Options) -> Result<Self>;

    /// A client with a local address for each path of the workload.
    fn client(workload: Workload, options: &Options) -> Result<Self>;

    /// The server's address.
    fn address(&self) -> Result<SocketAddr>;

    /// The next connection to the server.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Incoming>> + Send;

    /// A connection to a server, its handshake complete.
    fn connect(&self, server: SocketAddr) -> impl Future<Output = Result<Self::Connection>> + Send;
}

/// A connection of a stack.
pub trait Connection: Clone + Send + Sync + 'static {
    /// Sending part of its streams.
    type Send: SendStream;
    /// Receiving part of its streams.
    type Receive: ReceiveStream;

    /// Opens a bidirectional stream.
    fn open(&self) -> impl Future<Output = Result<(Self::Send, Self::Receive)>> + Send;

    /// Waits for a bidirectional stream of the peer; an error when the connection has ended.
    fn accept(&self) -> impl Future<Output = Result<(Self::Send, Self::Receive)>> + Send;

    /// Sends a DATAGRAM frame, after the frames sent before.
    fn send_datagram(&self, data: Bytes) -> impl Future<Output = Result<()>> + Send;

    /// Waits for a DATAGRAM frame.
    fn receive_datagram(&self) -> impl Future<Output = Result<Bytes>> + Send;

    /// Bytes received so far over each path; empty if the stack has only one path.
    fn received_by_path(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Closes the connection.
    fn close(&self);
}

/// Sending part of a stream.
pub trait SendStream: Send + 'static {
    /// Writes all of a piece.
    fn write(&mut self, piece: Bytes) -> impl Future<Output = Result<()>> + Send;

    /// Ends the stream.
    fn finish(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// Receiving part of a stream.
pub trait ReceiveStream: Send + 'static {
    /// Waits for data, and takes all received pieces that fit; `None` at the end of the stream.
    fn read(&mut self, pieces: &mut [Bytes]) -> impl Future<Output = Result<Option<usize>>> + Send;
}
