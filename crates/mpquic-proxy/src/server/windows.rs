//! [`Windows`]: the flow control windows of clients' connections, and the account of the memory
//! that full windows would take.
//!
//! A target that does not read fills the receive window of the connection, and a client that does
//! not acknowledge fills the send window. The proxy cannot take credit back from a peer, so the
//! account counts promised windows, even while they are empty.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mpquic_tokio::{Connection, VarInt};

use crate::shares::{Holding, Pool, Rules, Taker};
use crate::transport::FIRST_WINDOW;

/// Memory for each byte of window size, bytes. Two are for the receive window, because received
/// data keeps its whole datagrams, which take up to twice the size of the data. The third is for
/// sent data that waits for acknowledgements.
const MEMORY: u64 = 3;
/// A connection gets this fraction of its user's free memory, and leaves the rest to the user's
/// further connections.
const PART: u64 = 3;
/// A connection gets at most this fraction of the free memory of all users. With 4 GiB for all, 50
/// to 100 users get more than the first windows.
const PART_OF_ALL: u64 = 16;
/// The largest size of a window, bytes.
const LARGEST: u64 = 64 << 20;

/// The memory account of the windows of all clients.
#[derive(Debug)]
pub(super) struct Windows(Pool);

/// The memory of one connection's windows in the account. The drop gives the memory back to the
/// user.
#[derive(Debug, Default)]
pub(super) struct Windowed(Mutex<Option<Holding>>);

impl Windows {
    /// An account without connections. `total` is the memory of all users, in bytes.
    pub(super) fn new(total: u64) -> Self {
        Self(Pool::new(Rules {
            capacity: total,
            floor: 0,
            grace: Duration::MAX,
            window: Duration::MAX,
        }))
    }

    /// Changes the memory of all users, in bytes. Connections keep their windows.
    pub(super) fn set_total(&self, total: u64) {
        self.0.set_capacity(total);
    }

    /// Raises the windows of a connection, at the first call for the connection. `memory` is the
    /// whole memory of the user, in bytes.
    pub(super) fn widen(
        &self,
        windowed: &Windowed,
        connection: &Connection,
        (taker, memory): (&Taker, u64),
    ) {
        let mut held = windowed.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return;
        }
        if let Some((size, holding)) = self.grant(taker, memory) {
            connection.set_receive_window(VarInt::from_u64(size).unwrap_or(VarInt::MAX));
            connection.set_send_window(size);
            *held = Some(holding);
        }
    }

    /// The size in bytes of each window of a further connection. `None` if the user's memory or the
    /// memory of all users is nearly used up: the connection keeps its first windows.
    fn grant(&self, taker: &Taker, memory: u64) -> Option<(u64, Holding)> {
        let left = memory.saturating_sub(self.0.used_by(taker));
        let part = (left / PART).min(self.0.left() / PART_OF_ALL);
        let size = (part / MEMORY).min(LARGEST);
        if size <= FIRST_WINDOW {
            return None;
        }
        let held = self.0.try_take_of(taker, size * MEMORY, memory)?;
        Some((size, held))
    }

    /// Bytes of memory in the account.
    pub(super) fn memory(&self) -> u64 {
        self.0.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn windows_of_a_user_shrink_with_each_connection_and_stay_within_its_memory() {
        let windows = Windows::new(64 << 30);
        let [a, b] = ["a", "b"].map(|name| Taker::User(name.into()));
        let memory = 512 << 20;
        let many: Vec<_> = (0..60).map(|_| windows.grant(&a, memory)).collect();
        let sizes: Vec<_> = many.iter().flatten().map(|(size, _)| *size).collect();
        assert!(sizes[0] > 56 << 20 && sizes[1] > 37 << 20, "{sizes:?}");
        assert!(
            sizes.is_sorted_by(|a, b| a >= b) && sizes.len() < 15,
            "{sizes:?}"
        );
        assert_eq!(windows.memory(), 3 * sizes.iter().sum::<u64>());
        assert!(windows.memory() <= memory);
        let other = windows
            .grant(&b, 16 << 30)
            .expect("another user has memory of its own");
        assert_eq!(other.0, LARGEST);
        drop(many);
        assert_eq!(windows.memory(), 3 * LARGEST);
        let again = windows
            .grant(&a, memory)
            .expect("dropped windows give memory back");
        assert_eq!(again.0, sizes[0]);
    }

    #[tokio::test]
    async fn windows_of_many_users_stay_within_the_memory_of_all() {
        let total = 4 << 30;
        let windows = Windows::new(total);
        let users = (0..1000).map(|number| Taker::User(format!("user {number}").into()));
        let granted: Vec<_> = users.map(|user| windows.grant(&user, 512 << 20)).collect();
        let sizes: Vec<_> = granted.iter().flatten().map(|(size, _)| *size).collect();
        assert!(
            sizes[0] > 56 << 20 && sizes.len() > 50 && sizes.len() < 100,
            "{sizes:?}"
        );
        assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        assert!(windows.memory() <= total);
        assert!(windows.memory() > total - total / 8);
        windows.set_total(2 * total);
        let later = windows.grant(&Taker::User("later".into()), 512 << 20);
        assert!(later.expect("a larger total leaves memory").0 > 56 << 20);
    }
}
