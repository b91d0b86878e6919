//! [`Sending`]: how the datagrams of one connection leave.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::config::TransportConfig;
use mpquic_core::sched::LocalQueue;
use mpquic_core::{Connection, PathId, Transmit};
use mpquic_paths::Managed;
use smallvec::SmallVec;

use crate::socket::{Sent, Socket};
use crate::sockets::Sockets;

/// Largest payload of a UDP datagram over IPv4, which also limits a train of datagrams for a single
/// call to the kernel.
const MAX_TRAIN: usize = 65_507;
/// The most trains before the connection's lock is free for other tasks.
const MAX_TRAINS: usize = 16;
/// A batch of trains leaves at this number of bytes. With several short trains in a batch, kernel
/// and driver alternate less often in the CPU's caches, and the receiver finds more work at each
/// wake-up.
const MAX_BATCH: usize = 1 << 17;
/// The most trains that wait for a socket with a full buffer. Further trains are lost, as in a full
/// queue of the network.
const MAX_UNSENT: usize = 8;
/// How long a path rests after the kernel had no route for the path.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    /// Memory for trains, shared by the connections of a thread so that idle connections need no
    /// memory.
    static BATCH: Cell<Batch> = const { Cell::new(Batch::new()) };
}

/// Hands the datagrams of a connection to sockets, and keeps datagrams for sockets without room.
pub(crate) struct Sending {
    /// The most datagrams in one train.
    pub(crate) max_datagrams: usize,
    unsent: VecDeque<Unsent>,
    /// Paths without a route in the kernel, and the times of their next try.
    unreachable: Vec<(PathId, Instant)>,
    /// The age of the scheduler's information about send queues: the time at which the kernel gave
    /// the information.
    queues_told: Option<Instant>,
    /// The result of [`header_of`] for the first datagram.
    first_header: SmallVec<[u8; 32]>,
}

/// The work that is left after a turn of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// No work.
    Done,
    /// More datagrams are due than a turn sends, or a socket had no room.
    More,
}

/// Trains between building and sending.
#[derive(Default)]
struct Batch {
    /// The trains' properties. Each train has the buffer with the same index.
    transmits: Vec<Transmit>,
    buffers: Vec<Vec<u8>>,
}

impl Batch {
    const fn new() -> Self {
        Self {
            transmits: Vec::new(),
            buffers: Vec::new(),
        }
    }

    /// Starts anew with the trains of `poll`, until `poll` has no train, the bytes are enough, or
    /// `left`, the number of trains, is used up.
    fn build(
        &mut self,
        left: &mut usize,
        mut poll: impl FnMut(&mut Vec<u8>) -> Option<Transmit>,
    ) -> Next {
        self.transmits.clear();
        let mut bytes = 0;
        while *left > 0 && bytes < MAX_BATCH {
            let index = self.transmits.len();
            if index == self.buffers.len() {
                self.buffers.push(Vec::new());
            }
            let Some(buffer) = self.buffers.get_mut(index) else {
                break;
            };
            buffer.clear();
            let Some(transmit) = poll(buffer) else {
                return Next::Done;
            };
            *left -= 1;
            bytes += transmit.size;
            self.transmits.push(transmit);
        }
        Next::More
    }

    /// The built trains in order, with their bytes.
    fn trains(&self) -> impl Iterator<Item = (&Transmit, &[u8])> {
        let trains = self.transmits.iter().zip(&self.buffers);
        trains.map(|(transmit, buffer)| {
            let contents = buffer.get(..transmit.size).unwrap_or(buffer);
            (transmit, contents)
        })
    }
}

/// Version and destination connection ID of a datagram with a long header (RFC 8999 section 5.1).
fn header_of(datagram: &[u8]) -> &[u8] {
    let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
    let length = datagram.get(5).filter(|_| is_long);
    let end = length.map_or(0, |length| 6 + usize::from(*length));
    datagram.get(1..end).unwrap_or_default()
}

/// Datagrams that wait for room in a socket.
struct Unsent {
    socket: Arc<Socket>,
    transmit: Transmit,
    contents: Vec<u8>,
}

impl Sending {
    /// The sending of a connection with this transport configuration. A train has as many datagrams
    /// of the largest size as a single call to the kernel can take.
    pub(crate) fn new(transport: &TransportConfig) -> Self {
        Self {
            max_datagrams: (MAX_TRAIN / usize::from(transport.max_mtu)).max(1),
            unsent: VecDeque::new(),
            unreachable: Vec::new(),
            queues_told: None,
            first_header: SmallVec::new(),
        }
    }

    /// True if `datagram` begins with the version and connection ID of the connection's first
    /// datagram. A client's first connection ID is random, so nobody else can name the ID.
    pub(crate) fn has_sent(&self, datagram: &[u8]) -> bool {
        !self.first_header.is_empty() && header_of(datagram) == &self.first_header[..]
    }

    /// Sends the due datagrams.
    pub(crate) fn transmit(
        &mut self,
        core: &mut Connection,
        (sockets, paths): (&Sockets, Option<&Managed>),
        now: Instant,
    ) -> Next {
        self.resume();
        if core.policies().needs_local_queues() {
            self.tell_queues(core, sockets, now);
        }
        let kept = self.unsent.len();
        let mut batch = BATCH.take();
        let mut next = Next::More;
        let mut trains = MAX_TRAINS;
        while trains > 0 && next == Next::More {
            next = batch.build(&mut trains, |train| {
                core.poll_transmit(now, self.max_datagrams, train)
            });
            if self.first_header.is_empty()
                && let Some((_, first)) = batch.trains().next()
            {
                self.first_header.extend_from_slice(header_of(first));
            }
            for (transmit, contents) in batch.trains() {
                let Some(socket) = sockets.sender(transmit.four_tuple.local) else {
                    continue; // Its interface is gone; the path plan hears of it on its own.
                };
                // The connection may have no other path.
                if paths.is_some_and(|paths| !paths.may_use(socket.at())) {
                    continue;
                }
                if self.send(socket, *transmit, contents) == Sent::Unreachable
                    && let Some(path) = transmit.path
                {
                    self.on_unreachable(core, path, now);
                }
            }
        }
        BATCH.set(batch);
        if self.unsent.len() > kept {
            next = Next::More;
        }
        next
    }

    /// Sends a train behind the trains that wait for the same socket.
    fn send(&mut self, socket: Arc<Socket>, transmit: Transmit, contents: &[u8]) -> Sent {
        let is_full = self
            .unsent
            .iter()
            .any(|unsent| Arc::ptr_eq(&unsent.socket, &socket));
        let sent = if is_full {
            Sent::Blocked { from: 0 }
        } else {
            socket.send(&transmit, contents)
        };
        if let Sent::Blocked { from } = sent {
            self.keep(socket, transmit, contents.get(from..).unwrap_or_default());
        }
        sent
    }

    fn keep(&mut self, socket: Arc<Socket>, transmit: Transmit, contents: &[u8]) {
        let same = |unsent: &&Unsent| Arc::ptr_eq(&unsent.socket, &socket);
        if self.unsent.iter().filter(same).count() < MAX_UNSENT {
            self.unsent.push_back(Unsent {
                socket,
                transmit,
                contents: contents.to_vec(),
            });
        }
    }

    /// Sends the waiting trains in order, as far as the sockets have room.
    fn resume(&mut self) {
        let mut blocked: SmallVec<[Arc<Socket>; 2]> = SmallVec::new();
        for _ in 0..self.unsent.len() {
            let Some(mut unsent) = self.unsent.pop_front() else {
                break;
            };
            if blocked
                .iter()
                .any(|socket| Arc::ptr_eq(socket, &unsent.socket))
            {
                self.unsent.push_back(unsent);
                continue;
            }
            if let Sent::Blocked { from } = unsent.socket.send(&unsent.transmit, &unsent.contents) {
                unsent.contents.drain(..from);
                blocked.push(unsent.socket.clone());
                self.unsent.push_back(unsent);
            }
        }
    }

    /// The sockets of waiting trains.
    pub(crate) fn full_sockets(&self) -> impl Iterator<Item = (SocketAddr, &Arc<Socket>)> {
        let sockets = self.unsent.iter().map(|unsent| &unsent.socket);
        sockets.map(|socket| (socket.local(), socket))
    }

    /// Tells the scheduler the queue behind each path's socket, after new information of the
    /// kernel.
    fn tell_queues(&mut self, core: &mut Connection, sockets: &Sockets, now: Instant) {
        let mut queues = sockets.send_queues();
        let asked = queues.refresh(now);
        if asked.is_none() || asked == self.queues_told {
            return;
        }
        self.queues_told = asked;
        let paths: SmallVec<[PathId; 8]> = core.paths().collect();
        for path in paths {
            let Some(stats) = core.path_stats(path) else {
                continue;
            };
            let Some(socket) = sockets.owner(stats.four_tuple.local) else {
                continue;
            };
            let unsent = self.unsent.iter();
            let unsent = unsent.filter(|unsent| Arc::ptr_eq(&unsent.socket, &socket));
            let unsent: usize = unsent.map(|unsent| unsent.contents.len()).sum();
            let bytes = queues.bytes(socket.local()) + unsent as u64;
            let queue = LocalQueue::new(bytes, None);
            tracing::trace!(path = path.0, bytes = queue.bytes, "local queue");
            // A closed path sends no more.
            if let Ok(mut path) = core.path_mut(path) {
                path.set_local_queue(Some(queue));
            }
        }
    }

    /// The kernel has no route for a path: the path's data moves to other paths at once instead of
    /// after a probe timeout.
    fn on_unreachable(&mut self, core: &mut Connection, path: PathId, now: Instant) {
        let is_known = self.unreachable.iter().any(|(id, _)| *id == path);
        if !is_known && core.set_path_usable(now, path, false).is_ok() {
            self.unreachable.push((path, now + UNREACHABLE_PAUSE));
        }
    }

    /// Lets the connection try unreachable paths again after their rest.
    pub(crate) fn retry_unreachable(&mut self, core: &mut Connection, now: Instant) {
        self.unreachable.retain(|(path, until)| {
            let is_due = *until <= now;
            if is_due {
                // Fails only for a path abandoned meanwhile.
                let _ = core.set_path_usable(now, *path, true);
            }
            !is_due
        });
    }

    /// Makes [`Self::retry_unreachable`] try all paths at once. False without an unreachable path.
    #[cfg(feature = "interfaces")]
    pub(crate) fn retry_at_once(&mut self, now: Instant) -> bool {
        for (_, until) in &mut self.unreachable {
            *until = now;
        }
        !self.unreachable.is_empty()
    }

    /// The time of the next work for [`Self::retry_unreachable`].
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.unreachable.iter().map(|(_, until)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_of_the_largest_datagrams_fit_one_call() {
        let of = |max_mtu| {
            let mut transport = crate::config::default_transport();
            transport.max_mtu = max_mtu;
            Sending::new(&transport.build().unwrap()).max_datagrams
        };
        assert_eq!((of(1452), of(9000), of(65527)), (45, 7, 1));
    }

    fn train(bytes: usize) -> Transmit {
        let any = SocketAddr::from(([127, 0, 0, 1], 1));
        Transmit {
            path: None,
            four_tuple: mpquic_core::FourTuple::new(any, any),
            ecn: None,
            size: bytes,
            segment_size: None,
        }
    }

    #[test]
    fn trains_are_built_up_to_the_batch_size() {
        let mut batch = Batch::default();
        let mut sizes = |bytes: usize, left: &mut usize| {
            let next = batch.build(left, |buffer| {
                assert!(buffer.is_empty());
                buffer.resize(bytes, 7);
                Some(train(bytes))
            });
            assert_eq!(next, Next::More);
            let sizes = batch.trains().map(|(transmit, contents)| {
                assert_eq!(contents.len(), transmit.size);
                contents.len()
            });
            Vec::from_iter(sizes)
        };
        let mut left = MAX_TRAINS;
        assert_eq!(sizes(14_520, &mut left), [14_520; 10]);
        assert_eq!(left, MAX_TRAINS - 10);
        assert_eq!(sizes(63_888, &mut left), [63_888; 3]);
        assert_eq!(left, MAX_TRAINS - 13);
        assert_eq!(sizes(1200, &mut left), vec![1200; MAX_TRAINS - 13]);
        assert_eq!(left, 0);
        assert!(sizes(1200, &mut left).is_empty());
    }

    #[test]
    fn built_trains_are_sent_when_no_data_is_left() {
        let mut batch = Batch::default();
        let mut polled = 0;
        let mut left = MAX_TRAINS;
        let next = batch.build(&mut left, |buffer| {
            polled += 1;
            buffer.resize(100 * polled, 7);
            (polled < 3).then(|| train(100 * polled))
        });
        assert_eq!((next, left), (Next::Done, MAX_TRAINS - 2));
        let sizes = batch.trains().map(|(_, contents)| contents.len());
        assert_eq!(Vec::from_iter(sizes), [100, 200]);
    }

    #[test]
    fn batches_end_with_the_train_that_fills_them() {
        for (bytes, expected) in [
            (MAX_BATCH / 2, 2),
            (MAX_BATCH / 2 - 1, 3),
            (MAX_BATCH / 2 + 1, 2),
        ] {
            let mut batch = Batch::default();
            batch.build(&mut 10, |_| Some(train(bytes)));
            assert_eq!(batch.transmits.len(), expected, "{bytes}");
        }
    }

    #[test]
    fn a_long_header_is_known_by_version_and_destination() {
        // Form, version, a connection ID of two bytes, and one more byte.
        let long = [0x80, 1, 2, 3, 4, 2, 7, 8, 9];
        assert_eq!(header_of(&long), [1, 2, 3, 4, 2, 7, 8]);
        assert_eq!(header_of(&long[..8]), [1, 2, 3, 4, 2, 7, 8]);
        let nothing: &[u8] = &[];
        assert_eq!(header_of(&long[..7]), nothing, "cut short");
        assert_eq!(header_of(&long[..5]), nothing, "cut shorter");
        let mut short = long;
        short[0] = 0x7f;
        assert_eq!(header_of(&short), nothing);
    }
}
