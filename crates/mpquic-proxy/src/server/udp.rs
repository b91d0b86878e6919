//! A UDP socket joined to a CONNECT-UDP request (RFC 9298).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use mpquic_h3::h3::error::Code;
use mpquic_tokio::{SendDatagramError, StreamWatch};
use tokio::net::UdpSocket;

use super::capsule_stream::{ToClient, receive};
use crate::arrivals::Arrivals;
use crate::capsule::{Capsules, udp_capsule, udp_payload};
use crate::copies::{Purpose, UdpSender};
use crate::datagrams::Deliver;
use crate::flow_table::Flow;
use crate::relay::until_idle;
use crate::streams::{Incoming, Outgoing, end};

/// RFC 9297 section 3.4
pub(super) const CAPSULE_PROTOCOL: HeaderName = HeaderName::from_static("capsule-protocol");
/// The structured field value `true`.
pub(super) const TRUE: HeaderValue = HeaderValue::from_static("?1");
/// The largest UDP payload, and a byte before it.
const BUFFER: usize = 1 + 65_527;

thread_local! {
    /// Takes one payload at a time. A buffer of each flow would keep memory for a payload of any
    /// size.
    static PAYLOAD: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// The socket of a flow.
pub(super) struct Joined {
    socket: UdpSocket,
    flow: Arc<Flow>,
    arrivals: Arrivals,
}

impl Deliver for Joined {
    fn deliver(&self, payload: &[u8]) {
        // A payload is lost without room in the socket, or after a refusal of the target.
        if self.socket.try_send(payload).is_ok() {
            let bytes = payload.len() as u64;
            (self.flow.carried.from_stream).fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn deliver_numbered(&self, purpose: Purpose, number: u64, payload: &[u8]) {
        let deliver = |payload: &[u8]| self.deliver(payload);
        (self.arrivals).on_payload((purpose, number), payload, deliver);
    }
}

impl Joined {
    pub(super) fn new(socket: UdpSocket, flow: Arc<Flow>) -> Arc<Self> {
        Arc::new(Self {
            socket,
            flow,
            arrivals: Arrivals::default(),
        })
    }

    /// Carries payloads both ways until the client ends the request, or until the idle timeout.
    pub(super) async fn run(
        &self,
        sender: &UdpSender,
        (mut send, mut recv): (impl Outgoing, impl Incoming),
        watch: &StreamWatch,
        idle: Duration,
        dropped: &AtomicU64,
    ) {
        let ended = tokio::select! {
            ended = self.read_target(sender, (&mut send, watch), dropped) => ended,
            ended = self.read_client(&mut recv) => ended,
            _ = watch.stopped() => Ok(()),
            () = self.arrivals.run(|payload| self.deliver(payload)) => Ok(()),
            () = until_idle(idle, &self.flow.carried) => Ok(()),
        };
        end(ended, send, recv).await;
    }

    async fn read_target(
        &self,
        sender: &UdpSender,
        (send, watch): (&mut impl Outgoing, &StreamWatch),
        dropped: &AtomicU64,
    ) -> Result<(), Code> {
        let mut to_client = ToClient::new((send, watch), &self.flow, dropped);
        let takes_datagrams = sender.max_size().is_some();
        loop {
            let from_target = self.socket.readable().await.and_then(|()| {
                PAYLOAD.with_borrow_mut(|buffer| {
                    // The first byte is the context ID of UDP payloads, 0.
                    let count = self.socket.try_recv(&mut buffer[1..])?;
                    let payload = &buffer[..=count];
                    let sent = if takes_datagrams {
                        sender.send(payload)
                    } else {
                        Err(SendDatagramError::TooLarge)
                    };
                    // RFC 9297 section 3.5: the payload is too large for a packet of the paths, or
                    // the client takes no DATAGRAMs.
                    let is_large = matches!(sent, Err(SendDatagramError::TooLarge));
                    let capsule = is_large.then(|| udp_capsule(&payload[1..]));
                    Ok((count, sent, capsule))
                })
            });
            let Ok((count, sent, capsule)) = from_target else {
                // An ICMP message reports an earlier payload, and UDP promises no delivery anyway.
                tokio::task::yield_now().await;
                continue;
            };
            to_client.pass(count, sent, capsule).await?;
        }
    }

    /// Reads capsules until the client ends its side.
    async fn read_client(&self, recv: &mut impl Incoming) -> Result<(), Code> {
        let mut capsules = Capsules::default();
        while receive(recv, &mut capsules).await? {
            while let Some(datagram) = capsules.next() {
                if let Some(payload) = udp_payload(&datagram) {
                    self.deliver(payload);
                }
            }
        }
        Ok(())
    }
}
