//! [`Notifications`] and [`Pollers`]: the tasks that wait on a connection, by the awaited event.

use std::task::Waker;

use mpquic_core::Dir;
use tokio::sync::Notify;

/// Wakes tasks that wait for the connection as a whole, not for a single stream.
#[derive(Default)]
pub(crate) struct Notifications {
    /// Rare changes of the whole connection: its handshake, its paths, its end.
    pub(crate) connection: Notify,
    opened: [Notify; 2],
    available: [Notify; 2],
    pub(crate) datagram_received: Notify,
    pub(crate) datagrams_unblocked: Notify,
}

impl Notifications {
    /// The peer opened a stream.
    pub(crate) fn opened(&self, dir: Dir) -> &Notify {
        of(&self.opened, dir)
    }

    /// The application may open a stream.
    pub(crate) fn available(&self, dir: Dir) -> &Notify {
        of(&self.available, dir)
    }

    /// Wakes every task, because the connection is over.
    pub(crate) fn notify_everyone(&self) {
        let Self {
            connection,
            opened,
            available,
            datagram_received,
            datagrams_unblocked,
        } = self;
        for notify in [connection, datagram_received, datagrams_unblocked] {
            notify.notify_waiters();
        }
        for notify in opened.iter().chain(available) {
            notify.notify_waiters();
        }
    }
}

fn of(by_direction: &[Notify; 2], dir: Dir) -> &Notify {
    let [bi, uni] = by_direction;
    match dir {
        Dir::Bi => bi,
        Dir::Uni => uni,
    }
}

/// The events that a task can poll a handle for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The peer opens a stream.
    Opened(Dir),
    /// The application may open a stream.
    Available(Dir),
    DatagramReceived,
}

/// Identifies a polled handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollerId(u64);

/// Tasks that poll handles. A handle has at most one task for each awaited event, so the number of
/// tasks is bounded.
#[derive(Debug, Default)]
pub(crate) struct Pollers {
    next: u64,
    waiting: Vec<(PollerId, Awaited, Waker)>,
}

impl Pollers {
    /// A name for a handle.
    pub(crate) fn next_id(&mut self) -> PollerId {
        let id = PollerId(self.next);
        self.next += 1;
        id
    }

    /// A task waits, and takes the place of an earlier task with the same handle and event.
    pub(crate) fn wait(&mut self, id: PollerId, awaited: Awaited, waker: &Waker) {
        let same = |(of, what, _): &&mut (PollerId, Awaited, Waker)| (*of, *what) == (id, awaited);
        match self.waiting.iter_mut().find(same) {
            Some((_, _, before)) => before.clone_from(waker),
            None => self.waiting.push((id, awaited, waker.clone())),
        }
    }

    /// The tasks that waited for the event.
    pub(crate) fn take(&mut self, awaited: Awaited) -> impl Iterator<Item = Waker> {
        let taken = self
            .waiting
            .extract_if(.., move |(_, what, _)| *what == awaited);
        taken.map(|(_, _, waker)| waker)
    }

    /// All tasks that waited.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> {
        self.waiting.drain(..).map(|(_, _, waker)| waker)
    }

    /// A handle is gone.
    pub(crate) fn forget(&mut self, id: PollerId) {
        self.waiting.retain(|(of, ..)| *of != id);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
