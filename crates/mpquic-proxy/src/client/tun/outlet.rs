//! [`Outlet`]: the device, as the writers of packets see it.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::Instant;
use tun_rs::AsyncDevice;

use super::cutting::cut;
use super::too_big::Narrow;

thread_local! {
    /// Takes one packet at a time. A buffer of each flow would keep memory for a packet of any
    /// size.
    static FRAME: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes packets into a device.
pub(super) struct Outlet {
    device: Arc<AsyncDevice>,
    /// The MTU of the device.
    mtu: usize,
    /// The ways to neighbours that are narrower than the device.
    pub(super) narrow: Narrow,
    /// The next identification of a packet that may come in fragments.
    identification: AtomicU32,
}

impl Outlet {
    pub(super) fn new(device: Arc<AsyncDevice>) -> Self {
        // Without a known MTU, all large packets of IPv6 are cut.
        let mtu = device.mtu().unwrap_or(0).into();
        // Strangers must not guess the numbers of fragments (RFC 7739).
        let first = RandomState::new().hash_one(()) as u32;
        Self {
            device,
            mtu,
            narrow: Narrow::default(),
            identification: AtomicU32::new(first),
        }
    }

    pub(super) async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.device.recv(buffer).await
    }

    /// Writes a frame as it is.
    pub(super) fn write(&self, frame: &[u8]) {
        // A packet without room in the device's queue is lost, as on every network.
        let _ = self.device.try_send(frame);
    }

    /// Writes a packet that may be larger than the networks behind this router. `put` writes the
    /// frame into an empty buffer.
    pub(super) fn write_of_any_size(&self, put: impl FnOnce(&mut Vec<u8>)) {
        FRAME.with_borrow_mut(|frame| {
            frame.clear();
            put(frame);
            let next = || self.identification.fetch_add(1, Ordering::Relaxed);
            let mtu = |neighbour| self.narrow.mtu(neighbour, self.mtu, Instant::now());
            cut(frame, mtu, next, |frame| self.write(frame));
        });
    }
}
