//! [`Priorities`]: which answers leave first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use h3::error::Code;
use h3::quic::StreamId;
use mpquic_tokio::{Connection, VarInt};

use crate::priority::Priority;
use crate::varint::Varint;

/// Most streams with a remembered update of the client.
const MAX_UPDATES: usize = 128;
/// The bits of a stream ID with its kind (RFC 9000 section 2.1). They are 0 for requests.
const KIND: u64 = 0b11;

/// Decides for a server which answers leave first (RFC 9218); see
/// [`Connection::priorities`](crate::Connection::priorities).
///
/// Clients send PRIORITY_UPDATE frames (section 7.2) with the priority of a present or future
/// answer. A stream has the last priority from frames or application, without further calls. The
/// fields of a request are for the application to read: only `h3` knows them. Streams without any
/// priority take turns.
///
/// Updates are remembered for 128 streams, those with the highest IDs.
#[derive(Debug, Clone)]
pub struct Priorities {
    connection: Connection,
    updates: Arc<Mutex<BTreeMap<u64, Priority>>>,
}

impl Priorities {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            updates: Arc::default(),
        }
    }

    /// Gives the stream of an answer the priority that its request asked for, or another one that
    /// the client told since. Returns what it is.
    pub fn set(&self, stream: StreamId, asked: Priority) -> Priority {
        let (updates, id) = (self.updates(), stream.into_inner());
        let told = updates.get(&id).copied();
        let priority = told.unwrap_or(asked);
        self.apply(id, priority);
        priority
    }

    /// A request has come.
    pub(crate) fn on_request(&self, id: u64) {
        if let Some(&priority) = self.updates().get(&id) {
            self.apply(id, priority);
        }
    }

    /// The client sends the priority of an answer. An error closes the connection.
    pub(crate) fn on_update(&self, is_of_push: bool, payload: &[u8]) -> Result<(), Code> {
        let (id, priority) = read(is_of_push, payload)?;
        let mut updates = self.updates();
        remember(&mut updates, id, priority);
        self.apply(id, priority);
        Ok(())
    }

    /// A future stream must wait for its priority, and a closed stream needs none.
    fn apply(&self, id: u64, priority: Priority) {
        if let Ok(id) = VarInt::from_u64(id) {
            let stream = self.connection.watch_stream(id.into());
            let _ = stream.set_priority(priority.of_stream());
            let _ = stream.set_incremental(priority.incremental());
        }
    }

    fn updates(&self) -> MutexGuard<'_, BTreeMap<u64, Priority>> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(updates: &mut BTreeMap<u64, Priority>, id: u64, priority: Priority) {
    updates.insert(id, priority);
    if updates.len() > MAX_UPDATES {
        updates.pop_first();
    }
}

/// The ID of a stream, and the priority of its answer.
fn read(is_of_push: bool, payload: &[u8]) -> Result<(u64, Priority), Code> {
    let (length, id) = Varint::default().read(payload);
    let id = id.ok_or(Code::H3_FRAME_ERROR)?;
    // Nothing is ever pushed.
    if is_of_push || id & KIND != 0 {
        return Err(Code::H3_ID_ERROR);
    }
    let value = payload.get(length..).unwrap_or_default();
    let value = std::str::from_utf8(value).unwrap_or_default();
    Ok((id, Priority::of_value(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_updates_are_kept_for_a_bounded_number_of_requests() {
        let mut updates = BTreeMap::new();
        for request in 0..10_000 {
            remember(&mut updates, 4 * request, Priority::default());
            assert!(updates.len() <= MAX_UPDATES);
        }
        assert!(updates.contains_key(&(4 * 9_999)));
    }
}
