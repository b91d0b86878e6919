//! [`Windows`]: the memory that each client can make the proxy hold with flow control.
//!
//! A target that does not read fills the receive window of the connection, and a client that does
//! not acknowledge fills the send window. Credit cannot be taken back from a peer, so the account
//! counts promised windows, not their content.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mpquic_tokio::{Connection, VarInt};

use crate::shares::{Holding, Pool, Rules, Taker};
use crate::transport::FIRST_WINDOW;

/// Memory of a connection for each byte of its windows: received data keeps its whole datagrams,
/// which take up to twice the size of the data, and sent data waits for acknowledgements.
const MEMORY: u64 = 3;
/// Divisor for the windows of a connection: a third of the user's free memory. Further connections
/// get the rest.
const PART: u64 = 3;
/// Divisor for the same, of the free memory of all users: some sixty users get more than the first
/// windows.
const PART_OF_ALL: u64 = 16;
/// The largest windows of a connection.
const LARGEST: u64 = 64 << 20;

/// The windows of all clients.
#[derive(Debug)]
pub(super) struct Windows(Pool);

/// What a connection has of the account. Dropping this gives the memory back to its user.
#[derive(Debug, Default)]
pub(super) struct Windowed(Mutex<Option<Holding>>);

impl Windows {
    /// No connections. `total` is the memory of all users, in bytes.
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

    /// Raises the windows of a connection once. `memory` is the whole memory of the user, in bytes.
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

    /// The size in bytes of each window of a further connection. `None` for a user without enough
    /// memory, or if other users have left too little: the connection keeps the first windows.
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
    async fn connections_of_a_user_share_its_memory() {
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
        let other = windows.grant(&b, 16 << 30).expect("memory of its own");
        assert_eq!(other.0, LARGEST);
        drop(many);
        assert_eq!(windows.memory(), 3 * LARGEST);
        let again = windows.grant(&a, memory).expect("given back");
        assert_eq!(again.0, sizes[0]);
    }
    #[tokio::test]
    async fn the_windows_of_all_users_have_a_total() {
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
        assert!(later.expect("more memory").0 > 56 << 20);
    }
}
