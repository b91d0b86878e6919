//! Streams: both halves, flow control, and what is sent next.

mod application;
pub(crate) mod assembler;
mod budget;
mod counts;
pub(crate) mod crypto_stream;
mod datagram_sender;
mod datagram_turns;
pub(crate) mod datagrams;
mod deadlines;
mod delivery_choices;
mod egress;
mod error;
mod event;
pub(crate) mod flow;
mod ingress;
pub(crate) mod pending;
pub(crate) mod piece;
pub(crate) mod queue;
mod ready;
mod receive_windows;
pub(crate) mod recv;
mod runs;
pub(crate) mod send;
pub(crate) mod send_buffer;
mod send_queue;
pub(crate) mod send_window;
pub(crate) mod set;
pub(crate) mod table;
mod tables;
#[cfg(test)]
mod tests;
mod window_target;
mod writers;

pub use application::{RecvStream, SendStream, Streams, WrittenChunks};
pub use datagram_sender::DatagramOptions;
pub(crate) use datagram_sender::SentDatagram;
pub use error::{ReadStreamError, ResetAtError};
pub use event::StreamEvent;
