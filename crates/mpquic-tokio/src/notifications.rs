//! [`Notifications`]: who waits for what on a connection.

use mpquic_core::Dir;
use tokio::sync::Notify;

/// Wakes those who wait for anything but a single stream.
#[derive(Default)]
pub(crate) struct Notifications {
    /// Changes of the connection as a whole, which are rare: its handshake, its paths, its end.
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

    /// We may open a stream.
    pub(crate) fn available(&self, dir: Dir) -> &Notify {
        of(&self.available, dir)
    }

    /// Wakes everybody, because the connection is over.
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
