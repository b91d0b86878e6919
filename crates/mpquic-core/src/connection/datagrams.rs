//! [`Datagrams`]: what the application does with DATAGRAM frames (RFC 9221).

use bytes::Bytes;

use crate::event::SendDatagramError;
use crate::ids::PathId;
use crate::path::set::Paths;
use crate::stream::datagrams::DatagramQueues;

/// The DATAGRAMs of a connection, borrowed from it. The scheduler chooses the path of each.
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
    /// If the peer accepts none, `data` is larger than [`Self::max_size`], or the send buffer is
    /// full. In the last case, [`Event::DatagramsUnblocked`](crate::Event::DatagramsUnblocked) will
    /// follow.
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

    /// Copies received DATAGRAMs that nobody has read since the last call out of the datagrams they
    /// came in: see [`Streams::detach_waiting`](crate::Streams::detach_waiting).
    pub fn detach_waiting(&mut self) {
        self.queues.detach_waiting();
    }

    /// Largest payload, in bytes, that fits the largest packet of every usable path; `None` if the
    /// peer accepts none. After the first call, MTU discovery runs on all paths, even on those
    /// where no packet was ever full.
    pub fn max_size(&self) -> Option<usize> {
        self.queues.max_payload(self.paths.smallest_frame_room())
    }

    /// Largest payload, in bytes, that fits the largest packet of a path; `None` if the path is
    /// closed or the peer accepts none.
    pub fn max_size_on(&self, path: PathId) -> Option<usize> {
        let room = self.paths.open(path)?.frame_room();
        self.queues.max_payload(room)
    }

    /// Size of the largest payload for which the send buffer has room now, bytes.
    pub fn send_buffer_space(&self) -> usize {
        self.queues.send_buffer_space()
    }
}
