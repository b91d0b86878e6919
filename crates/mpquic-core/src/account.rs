//! The memory of a connection, summed over its parts.

use crate::error::TransportError;
use crate::handshake::Handshake;
use crate::memory::MemoryUse;
use crate::outbox::Outbox;
use crate::path::set::Paths;
use crate::stream::datagrams::DatagramQueues;
use crate::stream::set::StreamSet;

/// An estimate of the memory of the scheduler, the congestion controller and the connection itself,
/// in bytes.
const CONNECTION: u64 = 6 << 10;

/// Datagrams between two reviews of the memory while there is enough. The first one counts, too.
pub(crate) const REVIEW_INTERVAL: u64 = 128;

/// Bytes of memory kept by these parts of a connection.
pub(crate) fn memory(
    handshake: &Handshake,
    paths: &Paths,
    streams: &StreamSet,
    datagrams: &DatagramQueues,
    outbox: &Outbox,
) -> MemoryUse {
    let mut used = MemoryUse {
        datagrams: datagrams.memory(),
        handshake: handshake.memory(),
        paths: paths.memory(),
        other: outbox.memory() + CONNECTION,
        ..MemoryUse::default()
    };
    streams.add_memory(&mut used);
    used
}

/// Keeps the connection within its memory limit. A function of its own: a datagram normally costs
/// only the question whether a review is due.
#[cold]
#[inline(never)]
pub(crate) fn review(
    handshake: &Handshake,
    paths: &Paths,
    streams: &mut StreamSet,
    datagrams: &mut DatagramQueues,
    outbox: &Outbox,
) -> Result<(), TransportError> {
    let used = memory(handshake, paths, streams, datagrams, outbox);
    let reviewed = streams.review_memory(&used);
    datagrams.set_refusing(streams.holds_credit());
    reviewed
}
