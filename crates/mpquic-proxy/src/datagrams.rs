//! HTTP datagrams of many requests on one connection: each payload goes to its flow at once,
//! without a queue or a task in between.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpquic_h3::h3::error::Code;
use mpquic_h3::h3::quic::StreamId;
use mpquic_tokio::{Connection, ConnectionError};
use socket2::SockRef;
use tokio::net::UdpSocket;

use crate::capsule::{take_varint, udp_payload};
use crate::copies::{Purpose, numbered_payload};

/// Takes the UDP payloads of a flow.
pub(crate) trait Deliver: Send + Sync {
    /// A payload arrived. The call must not wait: a payload without room is lost, as in UDP.
    fn deliver(&self, payload: &[u8]);

    /// A numbered payload arrived. Peers send numbered payloads only after our offer.
    fn deliver_numbered(&self, _purpose: Purpose, _number: u64, _payload: &[u8]) {}

    /// An HTTP datagram arrived. False if its content is unknown.
    fn on_datagram(&self, datagram: &[u8]) -> bool {
        match (udp_payload(datagram), numbered_payload(datagram)) {
            (Some(payload), _) => self.deliver(payload),
            (None, Some((purpose, number, payload))) => {
                self.deliver_numbered(purpose, number, payload);
            }
            (None, None) => return false,
        }
        true
    }

    /// A payload of one of many peers arrived, on a flow of bound UDP.
    fn deliver_from(&self, _peer: SocketAddr, _payload: &[u8]) {}

    /// A capsule arrived that is neither a datagram nor a capsule of CONNECT-IP.
    ///
    /// # Errors
    ///
    /// If the capsule is malformed: the flow ends.
    fn on_capsule(&self, _kind: u64, _value: &[u8]) -> Result<(), Code> {
        Ok(())
    }

    /// The bytes to send for a payload, which has one byte before it. `None` drops the payload.
    fn prepare<'a>(&self, payload: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        Some(Cow::Borrowed(payload))
    }

    /// Reports the assigned addresses. The proxy has withdrawn all other addresses.
    fn on_assigned(&self, _addresses: &[IpAddr]) {}
}

/// Receive buffer of our UDP sockets, if the system allows this size: for packets that arrive while
/// this process does not run. The default has room for about 90 large packets.
const ROOM: usize = 1 << 20;

/// Gives a socket room for bursts.
pub(crate) fn with_room(socket: UdpSocket) -> UdpSocket {
    // The socket works with a smaller buffer, and loses more packets.
    let _ = SockRef::from(&socket).set_recv_buffer_size(ROOM);
    socket
}

/// The flows of a connection that take datagrams, by their number in a datagram (RFC 9297 section
/// 2.1): a quarter of the stream ID.
#[derive(Default)]
pub(crate) struct Demux {
    flows: Mutex<BTreeMap<u64, Arc<dyn Deliver>>>,
    /// Number of datagrams without a flow, or with unknown content.
    pub(crate) strays: AtomicU64,
}

/// A registered flow. Dropping this ends the delivery of datagrams.
pub(crate) struct Registered {
    demux: Arc<Demux>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.demux.lock().remove(&self.number);
    }
}

impl Demux {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Deliver>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the datagrams of this request to `flow`.
    pub(crate) fn register(
        self: &Arc<Self>,
        stream: StreamId,
        flow: Arc<dyn Deliver>,
    ) -> Registered {
        let number = stream.into_inner() / 4;
        self.lock().insert(number, flow);
        Registered {
            demux: self.clone(),
            number,
        }
    }

    /// Hands out received datagrams until the connection ends.
    pub(crate) async fn run(&self, connection: &Connection) -> ConnectionError {
        loop {
            match connection.read_datagram().await {
                Ok(datagram) => self.on_datagram(&datagram),
                Err(error) => return error,
            }
        }
    }

    fn on_datagram(&self, datagram: &[u8]) {
        let mut rest = datagram;
        let number = take_varint(&mut rest);
        let flow = number.and_then(|number| self.lock().get(&number).cloned());
        // A datagram may come before its request, after the end of its request, or of an unknown
        // extension.
        if !flow.is_some_and(|flow| flow.on_datagram(rest)) {
            self.strays.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Taken(Mutex<Vec<Vec<u8>>>);

    impl Deliver for Taken {
        fn deliver(&self, payload: &[u8]) {
            self.0.lock().unwrap().push(payload.to_vec());
        }
    }

    #[test]
    fn each_flow_gets_its_own_while_it_is_there() {
        let demux = Arc::new(Demux::default());
        let taken = Arc::new(Taken::default());
        let stream = StreamId::try_from(4 * 0x1234).unwrap();
        let registered = demux.register(stream, taken.clone());
        demux.on_datagram(b"\x52\x34\x00abc");
        demux.on_datagram(b"\x52\x34\x00");
        // Of another flow, of another context, and cut.
        for stray in [
            &b"\x52\x35\x00x"[..],
            b"\x52\x34\x01x",
            b"\x52\x34",
            b"\x52",
            b"",
        ] {
            demux.on_datagram(stray);
        }
        drop(registered);
        demux.on_datagram(b"\x52\x34\x00late");
        assert_eq!(*taken.0.lock().unwrap(), [&b"abc"[..], b""]);
        assert_eq!(demux.strays.load(Ordering::Relaxed), 6);
    }
}
