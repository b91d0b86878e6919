//! [`ConnectionRef`]: a reference that keeps a connection open.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use mpquic_core::{FourTuple, VarInt};

use crate::connection_state::{ConnectionState, LockedConnection};

/// Keeps a connection open: the drop of the last handle or stream closes the connection.
#[derive(Clone)]
pub(crate) struct ConnectionRef(Arc<CloseOnDrop>);

struct CloseOnDrop(Arc<ConnectionState>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close(VarInt::from_u32(0), Bytes::new());
    }
}

impl ConnectionRef {
    pub(crate) fn new(connection: Arc<ConnectionState>) -> Self {
        Self(Arc::new(CloseOnDrop(connection)))
    }

    /// Exclusive access for a call of the application: see [`ConnectionState::lock_for_call`].
    pub(crate) fn lock(&self) -> LockedConnection<'_> {
        self.0.0.lock_for_call()
    }

    /// The connection, for a task that does not keep the connection open.
    pub(crate) fn downgrade(&self) -> Weak<ConnectionState> {
        Arc::downgrade(&self.0.0)
    }

    /// The addresses of the first path.
    pub(crate) fn first_path(&self) -> Option<FourTuple> {
        let engine = self.lock();
        let first = engine.core.paths().next()?;
        engine.core.path_stats(first).map(|stats| stats.four_tuple)
    }

    /// Our IP address on the first path, if known.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        let local = self.first_path()?.local.ip();
        Some(local).filter(|ip| !ip.is_unspecified())
    }
}

impl Deref for ConnectionRef {
    type Target = ConnectionState;
    fn deref(&self) -> &ConnectionState {
        &self.0.0
    }
}

impl fmt::Debug for ConnectionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.handle.0).finish()
    }
}
