//! [`ServerAddresses`]: further addresses of a server, which it announces to clients that want to
//! know them (draft-munizaga-quic-alternative-server-address-01). Whether paths lead there is not
//! decided here.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::{Fault, TransportError};
use crate::ids::PathStatus;
use crate::packet::delivery::{Delivery, Fate, Progress};
use crate::packet::writer::FrameWriter;
use crate::rate::TokenBucket;
use crate::server_address::{AnnounceError, ServerAddress, is_usable};
use crate::wire::frame::{AddressEntry, AlternativeAddress, Frame};

/// A client is told of this many unknown addresses in a burst, and of one more per interval: a
/// server cannot make its client probe a long list of strangers' addresses.
const BURST: u32 = 2 * ServerAddress::MAX as u32;
const INTERVAL: Duration = Duration::from_secs(10);

/// The announced further addresses of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerAddresses {
    /// Server: the newest set, once there is one.
    announced: Option<Box<Announced>>,
    /// Client that has said that it wants to know.
    received: Option<Box<Received>>,
}

#[derive(Debug)]
struct Announced {
    frame: AlternativeAddress,
    progress: Progress,
    /// The handshake is complete, and the client wants to know.
    is_wanted: bool,
}

#[derive(Debug)]
struct Received {
    /// The largest sequence number, if there was a frame.
    sequence_number: Option<u64>,
    addresses: Vec<ServerAddress>,
    new_addresses: TokenBucket,
}

impl ServerAddresses {
    /// `is_wanted` is true for a client that announces interest.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let received = || {
            Box::new(Received {
                sequence_number: None,
                addresses: Vec::new(),
                new_addresses: TokenBucket::new(BURST, INTERVAL),
            })
        };
        Self {
            announced: None,
            received: is_wanted.then(received),
        }
    }

    /// Bytes of memory besides itself.
    pub(super) fn memory(&self) -> usize {
        let announced = self.announced.as_ref().map_or(0, |announced| {
            let AlternativeAddress {
                preferred, backup, ..
            } = &announced.frame;
            let entries = preferred.capacity() + backup.capacity();
            size_of::<Announced>() + entries * size_of::<AddressEntry>()
        });
        let received = self.received.as_ref().map_or(0, |received| {
            let addresses = received.addresses.capacity() * size_of::<ServerAddress>();
            size_of::<Received>() + addresses
        });
        announced + received
    }

    /// Server: sets the list of its further addresses, the best first. The frame leaves once the
    /// client `is_ready`.
    pub(super) fn announce(
        &mut self,
        addresses: &[ServerAddress],
        is_ready: bool,
    ) -> Result<(), AnnounceError> {
        ServerAddress::check_all(addresses)?;
        let before = self.announced.as_ref().map(|announced| &announced.frame);
        let entries = |status| {
            let entries = addresses.iter().filter(|server| server.status == status);
            let entries = (0..)
                .zip(entries)
                .map(|(priority_hint, server)| AddressEntry {
                    priority_hint,
                    address: server.address,
                });
            entries.collect()
        };
        let frame = AlternativeAddress {
            // Section 5: a larger one for each set.
            sequence_number: before.map_or(0, |before| before.sequence_number + 1),
            preferred: entries(PathStatus::Available),
            backup: entries(PathStatus::Backup),
        };
        let is_same = |before: &AlternativeAddress| {
            before.preferred == frame.preferred && before.backup == frame.backup
        };
        if before.map_or(addresses.is_empty(), is_same) {
            return Ok(());
        }
        self.announced = Some(Box::new(Announced {
            frame,
            progress: Progress::Queued,
            is_wanted: is_ready,
        }));
        Ok(())
    }

    /// Server: the handshake is complete, and the client wants to know.
    pub(super) fn on_wanted(&mut self) {
        if let Some(announced) = &mut self.announced {
            announced.is_wanted = true;
        }
    }

    pub(super) fn wants_to_send(&self) -> bool {
        // Section 3: only to clients that said so.
        self.announced
            .as_ref()
            .is_some_and(|announced| announced.progress.is_queued() && announced.is_wanted)
    }

    pub(super) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        if self.wants_to_send()
            && let Some(announced) = &mut self.announced
        {
            let delivery = Delivery::AlternativeAddress(announced.frame.sequence_number);
            let frame = Frame::AlternativeAddress(announced.frame.clone());
            if writer.try_write(&frame, delivery) {
                announced.progress = Progress::Sent;
            }
        }
    }

    /// A frame was acknowledged or lost. Only the newest is sent again.
    pub(crate) fn on_delivery(&mut self, sequence: u64, fate: Fate) {
        if let Some(announced) = &mut self.announced
            && announced.frame.sequence_number == sequence
        {
            announced.progress.on_fate(fate);
        }
    }

    /// Client: ALTERNATIVE_ADDRESS arrived, from a server at `known`. Returns all further addresses
    /// after a change.
    pub(super) fn on_alternative_address(
        &mut self,
        now: Instant,
        frame: &AlternativeAddress,
        known: SocketAddr,
    ) -> Result<Option<&[ServerAddress]>, TransportError> {
        // RFC 9000 section 12.4: without our parameter, the frame is unknown.
        let received = self.received.as_mut();
        let received = received.ok_or(Fault::AlternativeAddressNotAnnounced)?;
        // Section 5
        if Some(frame.sequence_number) <= received.sequence_number {
            return Ok(None);
        }
        received.sequence_number = Some(frame.sequence_number);
        let announced = |entries: &[AddressEntry], status| -> Vec<ServerAddress> {
            let addresses = entries.iter().map(|entry| entry.address);
            let usable = addresses.filter(|address| is_usable(*address, known));
            let servers = usable.map(|address| ServerAddress { address, status });
            servers.take(ServerAddress::MAX).collect()
        };
        let mut addresses = announced(&frame.preferred, PathStatus::Available);
        addresses.extend(announced(&frame.backup, PathStatus::Backup));
        addresses.truncate(ServerAddress::MAX);
        let before = std::mem::take(&mut received.addresses);
        addresses.retain(|server| {
            let mut known = before.iter().map(|before| before.address);
            known.any(|known| known == server.address) || received.new_addresses.take(now)
        });
        received.addresses = addresses;
        Ok((received.addresses != before).then_some(received.addresses.as_slice()))
    }
}

#[cfg(test)]
mod tests;
