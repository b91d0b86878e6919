//! [`Datagrams`]: what the application does with DATAGRAM frames (RFC 9221).

use bytes::Bytes;

use crate::event::SendDatagramError;
use crate::ids::PathId;
use crate::path::set::Paths;
use crate::stream::datagrams::DatagramQueues;

/// The DATAGRAMs of a connection, lent by it. Which path carries one is the scheduler's choice.
pub struct Datagrams<'a> {
    queues: &'a mut DatagramQueues,
    paths: &'a Paths,
}

impl<'a> Datagrams<'a> {
    #[inline]
    pub(super) fn new(queues: &'a mut DatagramQueues, paths: &'a Paths) -> Self {
        Self { queues, paths }
    }

    /// Queues a DATAGRAM.
    ///
    /// # Errors
    ///
    /// If the peer takes none, `data` is larger than [`Self::max_size`], or the send buffer is full:
    /// an [`Event::DatagramsUnblocked`](crate::Event::DatagramsUnblocked) follows then.
    pub fn send(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        let max = self
            .max_size()
            .ok_or(SendDatagramError::UnsupportedByPeer)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge);
        }
        self.queues
            .send(data)
            .map_err(|_| SendDatagramError::Blocked)
    }

    /// The next received DATAGRAM.
    #[inline]
    pub fn recv(&mut self) -> Option<Bytes> {
        self.queues.recv()
    }

    /// Largest payload, in bytes, that fits the largest packet of every usable path; `None` if the
    /// peer takes none. Once asked for, paths look for larger packets even if none was ever full.
    pub fn max_size(&self) -> Option<usize> {
        self.queues.max_payload(self.paths.smallest_frame_room())
    }

    /// Largest payload, in bytes, that fits the largest packet of a path; `None` if the path is
    /// closed or the peer takes none.
    pub fn max_size_on(&self, path: PathId) -> Option<usize> {
        let room = self.paths.open(path)?.frame_room();
        self.queues.max_payload(room)
    }

    /// Bytes of the largest payload for which the send buffer has room now.
    pub fn send_buffer_space(&self) -> usize {
        self.queues.send_buffer_space()
    }
}
