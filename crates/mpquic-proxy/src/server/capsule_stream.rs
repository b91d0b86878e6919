//! The stream of a UDP or IP flow: capsules from the client, and payloads that no DATAGRAM carries.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use mpquic_h3::h3::error::Code;
use mpquic_tokio::{SendDatagramError, StreamWatch};

use crate::capsule::Capsules;
use crate::class::Class;
use crate::flow_table::Flow;
use crate::streams::{Incoming, Outgoing};

/// Waits for bytes from the client, and adds them to `capsules`. False at the end of the stream.
///
/// # Errors
///
/// If the connection or the stream failed, or the stream ended within a capsule.
pub(super) async fn receive(
    recv: &mut impl Incoming,
    capsules: &mut Capsules,
) -> Result<bool, Code> {
    match recv.recv().await.map_err(|_| Code::H3_CONNECT_ERROR)? {
        Some(piece) => {
            capsules.push(piece);
            Ok(true)
        }
        None if capsules.may_end() => Ok(false),
        // RFC 9297 section 3.3
        None => Err(Code::H3_MESSAGE_ERROR),
    }
}

/// Payloads on their way to the client.
pub(super) struct ToClient<'a, S> {
    send: &'a mut S,
    watch: &'a StreamWatch,
    flow: &'a Flow,
    /// Lost payloads.
    dropped: &'a AtomicU64,
    /// The class that the stream's priority stands for.
    class: Option<Class>,
}

impl<'a, S: Outgoing> ToClient<'a, S> {
    pub(super) fn new(
        (send, watch): (&'a mut S, &'a StreamWatch),
        flow: &'a Flow,
        dropped: &'a AtomicU64,
    ) -> Self {
        Self {
            send,
            watch,
            flow,
            dropped,
            class: None,
        }
    }

    /// Sends a capsule that carries no payload.
    ///
    /// # Errors
    ///
    /// If the connection or the stream is gone.
    pub(super) async fn answer(&mut self, capsule: Bytes) -> Result<(), Code> {
        let sent = self.send.send(capsule).await;
        sent.map_err(|_| Code::H3_CONNECT_ERROR)
    }

    /// Counts a payload of `count` bytes that was `sent` as a DATAGRAM. Sends `capsule`, if there is
    /// one, in place of the DATAGRAM.
    ///
    /// # Errors
    ///
    /// If the connection or the stream is gone.
    pub(super) async fn pass(
        &mut self,
        count: usize,
        sent: Result<(), SendDatagramError>,
        capsule: Option<Bytes>,
    ) -> Result<(), Code> {
        let sent = match capsule {
            Some(capsule) => {
                // Large payloads take turns with the data of streams of the flow's class.
                let now = self.flow.class();
                if self.class.replace(now) != Some(now) {
                    let _ = self.watch.set_priority(now.priority());
                }
                self.answer(capsule).await?;
                Ok(())
            }
            None => sent,
        };
        match sent {
            Ok(()) => {
                (self.flow.carried.to_stream).fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(SendDatagramError::ConnectionLost(_)) => return Err(Code::H3_CONNECT_ERROR),
            Err(_) => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
        Ok(())
    }
}
