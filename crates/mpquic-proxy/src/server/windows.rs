//! [`Windows`]: the memory that each client can make the proxy hold with flow control.
//!
//! A target that does not read fills the receive window of the connection, and a client that does not acknowledge fills
//! the send window. Credit cannot be taken back from a peer, so the account counts promised windows, not their content.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mpquic_tokio::{Connection, VarInt};

use crate::shares::{Holding, Pool, Rules, Taker};
use crate::transport::FIRST_WINDOW;

/// Memory of a connection for each byte of its windows: received data keeps its whole datagrams, which take up to twice
/// the size of the data, and sent data waits for acknowledgements.
const MEMORY: u64 = 3;
/// Divisor for the windows of a connection: a third of the user's free memory. Further connections get the rest.
const PART: u64 = 3;
/// The largest windows of a connection.
const LARGEST: u64 = 64 << 20;

/// The windows of all clients.
#[derive(Debug)]
pub(super) struct Windows(Pool);

/// What a connection has of the account. Dropping this gives the memory back to its user.
#[derive(Debug, Default)]
pub(super) struct Windowed(Mutex<Option<Holding>>);

impl Windows {
    /// No connections.
    pub(super) fn new() -> Self {
        Self(Pool::new(Rules {
            capacity: u64::MAX,
            floor: u64::MAX,
            grace: Duration::MAX,
            window: Duration::MAX,
        }))
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

    /// The size in bytes of each window of a further connection. `None` for a user without enough memory: the connection
    /// keeps the first windows.
    fn grant(&self, taker: &Taker, memory: u64) -> Option<(u64, Holding)> {
        let left = memory.saturating_sub(self.0.used_by(taker));
        let size = (left / PART / MEMORY).min(LARGEST);
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
        let windows = Windows::new();
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
}
