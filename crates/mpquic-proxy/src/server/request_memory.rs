//! The memory that the open requests of all clients may take.

use std::time::Duration;

use crate::shares::{Pool, Rules};

/// Bytes for open requests of all clients.
const ALL: u64 = 512 << 20;
/// Bytes for requests that one client may always hold.
const FLOOR: u64 = 1 << 20;
/// Bytes of a request: its header fields, its task and its stream.
pub(super) const REQUEST: u64 = 8 << 10;

/// The account, in bytes, without requests.
pub(super) fn pool() -> Pool {
    Pool::new(Rules {
        capacity: ALL,
        floor: FLOOR,
        grace: Duration::ZERO,
        window: Duration::MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Taker;

    #[tokio::test(start_paused = true)]
    async fn requests_of_one_client_leave_memory_for_others() {
        let memory = pool();
        let begun = |name: &str| -> Vec<_> {
            let taker = Taker::User(name.into());
            std::iter::from_fn(|| memory.try_take(&taker, REQUEST)).collect()
        };
        let all = ALL / REQUEST;
        let [first, second] = ["a", "b"].map(begun);
        assert_eq!(first.len() as u64, all / 2);
        assert_eq!(second.len() as u64, all / 4);
        assert_eq!(memory.used(), ALL / 4 * 3);
    }
}
