//! [`Datagrams`]: the application's handle for DATAGRAM frames (RFC 9221).

use bytes::Bytes;

use crate::event::SendDatagramError;
use crate::ids::PathId;
use crate::path::Path;
use crate::path::set::Paths;
use crate::stream::DatagramOptions;
use crate::stream::datagrams::DatagramQueues;

/// The DATAGRAMs of a connection, borrowed from it. The scheduler chooses a path for each DATAGRAM,
/// unless the application has chosen one.
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
    /// [`SendDatagramError::UnsupportedByPeer`] for a peer without DATAGRAMs,
    /// [`SendDatagramError::TooLarge`] for `data` above [`Self::max_size`], and
    /// [`SendDatagramError::Blocked`] for a full send buffer:
    /// [`Event::DatagramsUnblocked`](crate::Event::DatagramsUnblocked) follows.
    #[inline]
    pub fn send(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_with(data, DatagramOptions::default())
    }

    /// Queues a DATAGRAM for a certain path, with a copy, or with a deadline.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::send`]; on a given path, the limit is [`Self::max_size_on`].
    /// [`SendDatagramError::ClosedPath`] for an unknown or abandoned path.
    pub fn send_with(
        &mut self,
        data: Bytes,
        options: DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        if options
            .path
            .is_some_and(|path| self.paths.open(path).is_none())
        {
            return Err(SendDatagramError::ClosedPath);
        }
        let max = options
            .path
            .map_or_else(|| self.max_size(), |path| self.max_size_on(path));
        let max = max.ok_or(SendDatagramError::UnsupportedByPeer)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge);
        }
        if self.queues.send(data, options) {
            Ok(())
        } else {
            Err(SendDatagramError::Blocked)
        }
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

    /// Largest payload, in bytes, for the largest packet of a path; `None` on a closed path, or for
    /// a peer without DATAGRAMs.
    pub fn max_size_on(&self, path: PathId) -> Option<usize> {
        let room = self.paths.open(path)?.frame_room();
        self.queues.max_payload(room)
    }

    /// Size of the largest payload for which the send buffer has room now, bytes.
    pub fn send_buffer_space(&self) -> usize {
        self.queues.send_buffer_space()
    }

    /// Waiting bytes of a flow ([`DatagramOptions::flow`]) for any path, with 64 bytes more for
    /// each DATAGRAM; and the number of waiting flows, `flow` included.
    pub fn flow_share(&self, flow: Option<u64>) -> (usize, usize) {
        self.queues.flow_share(flow)
    }
}

/// Drops queued DATAGRAMs that fit no packet any more.
pub(super) fn drop_oversized(queues: &mut DatagramQueues, paths: &Paths) {
    let room_on = |path| paths.open(path).map_or(0, Path::frame_room);
    queues.drop_oversized(paths.largest_frame_room(), room_on);
}
