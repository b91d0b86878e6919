//! [`StreamTables`]: from a stream ID to the two halves of the stream.

use quinn_proto::{Dir, Side, StreamId};

use super::counts::slot;
use super::table::{Halves, StreamTable};

/// The tables of a connection's streams: one for each initiator and direction.
#[derive(Debug)]
pub(super) struct StreamTables {
    side: Side,
    /// By initiator (ours first) and direction.
    tables: [[StreamTable; 2]; 2],
}

impl StreamTables {
    /// No streams.
    pub(super) fn new(side: Side) -> Self {
        Self {
            side,
            tables: Default::default(),
        }
    }

    /// True if the stream is one that we open.
    #[inline]
    pub(super) fn is_local(&self, id: StreamId) -> bool {
        id.initiator() == self.side
    }

    fn of(&self, id: StreamId) -> &StreamTable {
        &self.tables[usize::from(!self.is_local(id))][slot(id.dir())]
    }

    fn of_mut(&mut self, id: StreamId) -> &mut StreamTable {
        &mut self.tables[usize::from(!self.is_local(id))][slot(id.dir())]
    }

    /// The stream with this index that we open.
    pub(super) fn local(&self, dir: Dir, index: u64) -> StreamId {
        StreamId::new(self.side, dir, index)
    }

    /// The stream with this index that the peer opens.
    pub(super) fn remote(&self, dir: Dir, index: u64) -> StreamId {
        StreamId::new(!self.side, dir, index)
    }

    /// How many streams we have opened.
    pub(super) fn opened_local(&self, dir: Dir) -> u64 {
        self.of(self.local(dir, 0)).opened()
    }

    /// How many streams the peer has opened.
    pub(super) fn opened_remote(&self, dir: Dir) -> u64 {
        self.of(self.remote(dir, 0)).opened()
    }

    /// True if the stream was opened, by either side.
    pub(super) fn was_opened(&self, id: StreamId) -> bool {
        id.index() < self.of(id).opened()
    }

    /// We open the next stream: `id`.
    pub(super) fn open_local(&mut self, id: StreamId, halves: Halves) {
        self.of_mut(id).push(halves);
    }

    /// The peer opens all its streams up to `id`.
    pub(super) fn open_remote(&mut self, id: StreamId, halves: Halves) {
        let table = self.of_mut(id);
        while table.opened() <= id.index() {
            table.push(halves);
        }
    }

    /// The halves of a stream, closed for a stream that does not exist.
    #[inline]
    pub(super) fn halves(&self, id: StreamId) -> Halves {
        self.of(id).halves(id.index())
    }

    /// The halves of an open stream, to be changed but not closed.
    pub(super) fn halves_mut(&mut self, id: StreamId) -> Option<&mut Halves> {
        self.of_mut(id).halves_mut(id.index())
    }

    /// Key of an open sending half that was used.
    #[inline]
    pub(super) fn send_key(&self, id: StreamId) -> Option<u32> {
        self.halves(id).send.key()
    }

    /// Key of an open receiving half that was used.
    #[inline]
    pub(super) fn recv_key(&self, id: StreamId) -> Option<u32> {
        self.halves(id).recv.key()
    }

    /// Closes the sending half; true if that closed the stream.
    pub(super) fn close_send(&mut self, id: StreamId) -> bool {
        self.of_mut(id).close_send(id.index())
    }

    /// Closes the receiving half; true if that closed the stream.
    pub(super) fn close_recv(&mut self, id: StreamId) -> bool {
        self.of_mut(id).close_recv(id.index())
    }

    /// Forgets all streams that we have opened: they never existed for the peer.
    pub(super) fn forget_local(&mut self) {
        self.tables[0] = Default::default();
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let tables = self.tables.as_flattened().iter();
        tables.map(StreamTable::memory).sum()
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        for table in self.tables.as_flattened_mut() {
            table.trim();
        }
    }
}
