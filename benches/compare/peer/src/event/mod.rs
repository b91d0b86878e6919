//! For stacks that bring no event loop and no tasks: sockets, and the workloads as state machines.
//!
//! The stack's program owns the loop. It hands datagrams to the stack, tells its [`Application`]
//! what happened on which connection, lets each connection send, and sleeps in [`Udp::wait`].

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
    /// Whether the handshake was resumed with a session ticket.
    fn resumed(&self) -> bool;

    /// Opens a bidirectional stream.
    fn open(&mut self) -> Result<u64>;

    /// Reads from a stream: bytes read, and whether the stream ends after them; `None` if there is
    /// nothing to read now.
    fn read(&mut self, stream: u64, buffer: &mut [u8]) -> Result<Option<(usize, bool)>>;

    /// Writes to a stream, and ends it after the last of `data` if asked to. Returns how many bytes
    /// the stack took.
    fn write(&mut self, stream: u64, data: Bytes, end: bool) -> Result<usize>;

    /// Queues a DATAGRAM frame; false if the queue is full.
    fn send_datagram(&mut self, data: &[u8]) -> Result<bool>;

    /// Takes a DATAGRAM frame that was received; its length.
    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>>;

    /// Closes the connection.
    fn close(&mut self);
}

/// What runs on connections. They are named by numbers that the program gives them.
pub trait Application {
    /// The handshake is complete.
    fn established(&mut self, connection: u64, link: &mut dyn Link) -> Result<()>;

    /// A stream has data or has ended.
    fn readable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()>;

    /// A stream takes data again.
    fn writable(&mut self, connection: u64, link: &mut dyn Link, stream: u64) -> Result<()>;

    /// DATAGRAM frames may have come in, or there may be room for more.
    fn datagrams(&mut self, connection: u64, link: &mut dyn Link) -> Result<()>;

    /// The connection is gone.
    fn closed(&mut self, connection: u64);

    /// Whether another connection should be made now; counts it as made.
    fn connect(&mut self) -> bool;

    /// When to call [`is_done`](Self::is_done) even if nothing happens.
    fn deadline(&self) -> Option<Instant>;

    /// Whether the program should end.
    fn is_done(&mut self) -> Result<bool>;
}
