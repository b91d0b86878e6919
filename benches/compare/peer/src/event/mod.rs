//! Sockets, and the workloads as state machines, for stacks without an event loop and tasks.
//!
//! The stack's program owns the loop. The loop passes datagrams to the stack, tells its
//! [`Application`] about events of connections, lets each connection send, and sleeps in
//! [`Udp::wait`].

use std::time::Instant;

use bytes::Bytes;

use crate::Result;

mod client;
mod server;
mod stream;
mod udp;

pub use client::Client;
pub use server::Server;
pub use udp::{Train, Udp};

/// A connection of a stack.
pub trait Link {
    /// True if a session ticket resumed the handshake.
    fn resumed(&self) -> bool;

    /// Opens a bidirectional stream.
    fn open(&mut self) -> Result<u64>;

    /// Reads from a stream. Returns the number of bytes, and true at the end of the stream; `None`
    /// without received bytes.
    fn read(&mut self, stream: u64, buffer: &mut [u8]) -> Result<Option<(usize, bool)>>;

    /// Writes to a stream; with `end`, the stream ends after `data`. Returns the number of bytes
    /// that the stack took.
    fn write(&mut self, stream: u64, data: Bytes, end: bool) -> Result<usize>;

    /// Queues a DATAGRAM frame; false if the queue is full.
    fn send_datagram(&mut self, data: &[u8]) -> Result<bool>;

    /// Takes a received DATAGRAM frame; returns its length.
    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>>;

    /// Closes the connection.
    fn close(&mut self);
}

/// The application of connections. The program gives each connection a number as its name.
pub trait Application {
    /// The handshake is complete.
    fn established(&mut self, connection: u64, link: &mut dyn Link) -> Result<()>;

    /// A stream has data or has ended.
    fn readable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()>;

    /// A stream takes data again.
    fn writable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()>;

    /// New DATAGRAM frames have arrived, or the send queue has room again; a call may also come
    /// without either.
    fn datagrams(&mut self, connection: u64, link: &mut dyn Link) -> Result<()>;

    /// The connection is gone.
    fn closed(&mut self, connection: u64);

    /// True if another connection should be made now; counts the connection as made.
    fn connect(&mut self) -> bool;

    /// The time at which to call [`is_done`](Self::is_done) even without any event.
    fn deadline(&self) -> Option<Instant>;

    /// True if the program should end.
    fn is_done(&mut self) -> Result<bool>;
}
