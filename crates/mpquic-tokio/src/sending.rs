//! [`Sending`]: how the datagrams of one connection leave.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::config::TransportConfig;
use mpquic_core::sched::LocalQueue;
use mpquic_core::{Connection, PathId, Transmit};
use smallvec::SmallVec;

use crate::socket::{Sent, Socket};
use crate::sockets::Sockets;

/// Largest payload of a UDP datagram over IPv4, which also limits a train of datagrams handed to
/// the kernel in one call.
const MAX_TRAIN: usize = 65_507;
/// Trains of datagrams sent before the connection is unlocked for others.
const MAX_TRAINS: usize = 16;
/// Trains kept for a socket whose buffer is full. More are dropped, as a full queue in the network
/// would do.
const MAX_UNSENT: usize = 8;
/// How long a path is not used after the kernel had no route for it.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    /// Memory for the train being sent, shared so that idle connections need none.
    static TRAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Hands the datagrams of a connection to sockets, and keeps those for which a socket has no room.
pub(crate) struct Sending {
    /// The most datagrams in one train.
    pub(crate) max_datagrams: usize,
    unsent: VecDeque<Unsent>,
    /// Paths for which the kernel had no route, and when to try them again.
    unreachable: Vec<(PathId, Instant)>,
    /// When the kernel gave the information about send queues that the scheduler has.
    queues_told: Option<Instant>,
}

/// Whether anything is left to do after datagrams were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    Done,
    /// More is due than one turn sends, or a socket had no room for some of it.
    More,
}

/// Datagrams for which a socket had no room.
struct Unsent {
    socket: Arc<Socket>,
    transmit: Transmit,
    contents: Vec<u8>,
}

impl Sending {
    /// For a connection with this transport configuration. Trains have as many datagrams as one
    /// call to the kernel can take if all of them have the largest size.
    pub(crate) fn new(transport: &TransportConfig) -> Self {
        Self {
            max_datagrams: (MAX_TRAIN / usize::from(transport.max_mtu)).max(1),
            unsent: VecDeque::new(),
            unreachable: Vec::new(),
            queues_told: None,
        }
    }

    /// Sends what is due.
    pub(crate) fn transmit(
        &mut self,
        core: &mut Connection,
        sockets: &Sockets,
        now: Instant,
    ) -> Next {
        self.resume();
        if core.needs_local_queues() {
            self.tell_queues(core, sockets, now);
        }
        let kept = self.unsent.len();
        let mut train = TRAIN.take();
        let mut next = Next::More;
        for _ in 0..MAX_TRAINS {
            train.clear();
            let Some(transmit) = core.poll_transmit(now, self.max_datagrams, &mut train) else {
                next = Next::Done;
                break;
            };
            let Some(socket) = sockets.owner(transmit.four_tuple.local) else {
                continue; // Its interface is gone; the path plan hears of it on its own.
            };
            let contents = train.get(..transmit.size).unwrap_or(&train);
            if self.send(socket, transmit, contents) == Sent::Unreachable
                && let Some(path) = transmit.path
            {
                self.on_unreachable(core, path, now);
            }
        }
        TRAIN.set(train);
        if self.unsent.len() > kept {
            next = Next::More;
        }
        next
    }

    /// Sends a train after those that its socket had no room for.
    fn send(&mut self, socket: Arc<Socket>, transmit: Transmit, contents: &[u8]) -> Sent {
        let is_full = self
            .unsent
            .iter()
            .any(|unsent| Arc::ptr_eq(&unsent.socket, &socket));
        let sent = match is_full {
            true => Sent::Blocked { from: 0 },
            false => socket.send(&transmit, contents),
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

    /// Sends, in order, what sockets had no room for.
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

    /// The sockets for which datagrams are kept.
    pub(crate) fn full_sockets(&self) -> impl Iterator<Item = (SocketAddr, &Arc<Socket>)> {
        let sockets = self.unsent.iter().map(|unsent| &unsent.socket);
        sockets.map(|socket| (socket.local(), socket))
    }

    /// Tells the scheduler how much waits behind each path's socket, if there is something new.
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
            // A path that was closed sends nothing more.
            if let Ok(mut path) = core.path_mut(path) {
                path.set_local_queue(Some(queue));
            }
        }
    }

    /// The kernel has no route for a path: its data moves to other paths at once instead of after a
    /// probe timeout.
    fn on_unreachable(&mut self, core: &mut Connection, path: PathId, now: Instant) {
        let is_known = self.unreachable.iter().any(|(id, _)| *id == path);
        if !is_known && core.set_path_usable(now, path, false).is_ok() {
            self.unreachable.push((path, now + UNREACHABLE_PAUSE));
        }
    }

    /// Lets the connection try paths again that were unreachable a while ago.
    pub(crate) fn retry_unreachable(&mut self, core: &mut Connection, now: Instant) {
        self.unreachable.retain(|(path, until)| {
            let is_due = *until <= now;
            if is_due {
                // Fails only if the path was abandoned meanwhile.
                let _ = core.set_path_usable(now, *path, true);
            }
            !is_due
        });
    }

    /// When [`Self::retry_unreachable`] has something to do.
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
}
