//! UDP payloads with numbers: payloads in real time travel twice, on two paths, and are delivered
//! once; payloads of bulk flows are delivered in the order in which they were sent.
//!
//! Each kind has a context ID (RFC 9298 section 4), and a number in front of its payloads. The
//! client offers a kind with a field of its request, and a proxy with this extension answers with
//! the field.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue};
use mpquic_h3::DatagramSender;
use mpquic_h3::h3::quic::StreamId;
use mpquic_tokio::{Connection, DatagramOptions, SendDatagramError};
use tokio::time::Instant;

use crate::capsule::{put_varint, take_varint};
use crate::class::Class;
use crate::flow_table::Flow;
use crate::transport::{has_room, most_now};

/// The field that offers and accepts copies.
const COPIES: HeaderName = HeaderName::from_static("mpquic-udp-copies");
/// The field that offers and accepts payloads in order.
const ORDER: HeaderName = HeaderName::from_static("mpquic-udp-order");
/// A structured field that says yes.
const TRUE: HeaderValue = HeaderValue::from_static("?1");
/// The context ID of copies; clients have even ones.
const COPY_CONTEXT: u64 = 2;
/// The context ID of payloads in order.
const ORDER_CONTEXT: u64 = 4;
/// Remembered numbers. A payload later than this many others is lost.
const SPAN: u64 = 1024;

/// The purpose of a payload's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A second copy may follow.
    Copies,
    /// The payload comes after payloads with smaller numbers.
    Order,
}

/// The kinds of numbers that the other side takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    copies: bool,
    order: bool,
}

impl Numbers {
    /// Both kinds.
    pub(crate) const ALL: Self = Self {
        copies: true,
        order: true,
    };

    /// Offers these kinds, or accepts them.
    pub(crate) fn offer(self, fields: &mut HeaderMap) {
        for (field, is_wanted) in [(COPIES, self.copies), (ORDER, self.order)] {
            if is_wanted {
                fields.insert(field, TRUE);
            }
        }
    }

    /// True if the other side takes payloads of this kind.
    pub(crate) fn takes(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Copies => self.copies,
            Purpose::Order => self.order,
        }
    }

    /// The kinds that the other side takes.
    pub(crate) fn offered(fields: &HeaderMap) -> Self {
        let takes = |field| fields.get(field) == Some(&TRUE);
        Self {
            copies: takes(COPIES),
            order: takes(ORDER),
        }
    }
}

/// Purpose, number and payload of an HTTP datagram of these kinds.
pub(crate) fn numbered_payload(datagram: &[u8]) -> Option<(Purpose, u64, &[u8])> {
    let mut rest = datagram;
    let purpose = match take_varint(&mut rest)? {
        COPY_CONTEXT => Purpose::Copies,
        ORDER_CONTEXT => Purpose::Order,
        _ => return None,
    };
    let number = take_varint(&mut rest)?;
    Some((purpose, number, rest))
}

/// Sends the UDP payloads of a flow: in real time, each twice, and of a bulk flow, with their
/// order.
pub(crate) struct UdpSender {
    datagrams: DatagramSender,
    connection: Connection,
    flow: Arc<Flow>,
    numbers: Numbers,
    /// The number of the next payload with an order.
    next: AtomicU64,
}

impl UdpSender {
    pub(crate) fn new(
        connection: &Connection,
        stream: StreamId,
        flow: Arc<Flow>,
        numbers: Numbers,
    ) -> Self {
        let datagrams = DatagramSender::new(connection, stream);
        Self {
            datagrams,
            connection: connection.clone(),
            flow,
            numbers,
            next: AtomicU64::new(0),
        }
    }

    /// The largest payload; `None` if the other side takes no DATAGRAMs.
    pub(crate) fn max_size(&self) -> Option<usize> {
        self.datagrams.max_size()
    }

    /// Bytes of payloads that may wait for the flow's stream at the present rate of the paths: half
    /// of the bytes that may wait as DATAGRAMs, because a stream has a queue of its own.
    pub(crate) fn most_waiting(&self) -> usize {
        most_now(&self.connection.path_stats()) / 2
    }

    /// Sends a payload, behind a byte that is 0: its context ID otherwise.
    pub(crate) fn send(&self, framed: &[u8]) -> Result<(), SendDatagramError> {
        self.send_either(framed.get(1..).unwrap_or_default(), framed)
    }

    /// Sends a datagram of bound UDP, which begins with its context ID. A number stands before the
    /// context ID.
    pub(crate) fn send_bound(&self, datagram: &[u8]) -> Result<(), SendDatagramError> {
        self.send_either(datagram, datagram)
    }

    /// Sends a payload behind a number, or a datagram without a number.
    fn send_either(&self, payload: &[u8], framed: &[u8]) -> Result<(), SendDatagramError> {
        self.flow.on_payload(payload.len(), Instant::now());
        if !has_room(
            &self.connection,
            self.flow.class(),
            self.datagrams.waiting(),
        ) {
            return Err(SendDatagramError::Blocked);
        }
        let numbered = match self.flow.class() {
            Class::RealTime if self.numbers.copies => {
                Some((COPY_CONTEXT, self.flow.next_number(), true))
            }
            Class::Bulk if self.numbers.order => Some((
                ORDER_CONTEXT,
                self.next.fetch_add(1, Ordering::Relaxed),
                false,
            )),
            _ => None,
        };
        if let Some((context, number, is_copied)) = numbered {
            let mut numbered = BytesMut::with_capacity(payload.len() + 16);
            put_varint(&mut numbered, context);
            put_varint(&mut numbered, number);
            numbered.extend_from_slice(payload);
            let options = DatagramOptions::default();
            let options = if is_copied {
                options.with_copy()
            } else {
                options
            };
            match self.datagrams.send_with(&numbered, options) {
                // The payload may fit without its number.
                Err(SendDatagramError::TooLarge) => {}
                sent => return sent,
            }
        }
        self.datagrams.send(framed)
    }
}

/// Which numbers were seen, of the last 1024.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// One above the largest number.
    end: u64,
    bits: [u64; SPAN as usize / 64],
}

impl Seen {
    /// True if this number comes for the first time, and not too late to tell.
    pub(crate) fn is_new(&mut self, number: u64) -> bool {
        if number >= self.end {
            match number - self.end {
                0..SPAN => (self.end..number).for_each(|skipped| {
                    self.set(skipped, false);
                }),
                _ => self.bits.fill(0),
            }
            self.end = number + 1;
            self.set(number, true);
            return true;
        }
        self.end - number <= SPAN && !self.set(number, true)
    }

    /// Sets a bit, and tells how it was.
    fn set(&mut self, number: u64, value: bool) -> bool {
        let place = number % SPAN;
        let (word, bit) = (&mut self.bits[place as usize / 64], 1 << (place % 64));
        let before = *word & bit != 0;
        *word = if value { *word | bit } else { *word & !bit };
        before
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddr;

    use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, default_transport};

    use super::*;
    use crate::class::FlowKind;
    use crate::flow_table::FlowTable;
    use crate::transport::adapt;

    #[test]
    fn each_number_is_new_once() {
        let mut seen = Seen::default();
        let mut model = BTreeSet::new();
        let mut state = 7u64;
        let mut largest = 0;
        for step in 0..20_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Around a number that grows, and now and then jumps far.
            let number = match step % 1000 {
                999 => largest + (state >> 60) * 500,
                _ => (step / 2).max(largest).saturating_sub(state >> 53),
            };
            let is_late = number + SPAN < largest + 1;
            let expected = !is_late && model.insert(number);
            largest = largest.max(number);
            assert_eq!(seen.is_new(number), expected, "{number} of {largest}");
        }
        assert!(seen.is_new((1 << 62) - 1));
        assert!(!seen.is_new((1 << 62) - 1));
        assert!(seen.is_new((1 << 62) - 2));
        assert!(!seen.is_new(0));
    }

    /// A full queue of DATAGRAMs would make each payload late that comes after the flood, whatever
    /// its flow. The test never waits in the flood, so no payload leaves meanwhile.
    #[tokio::test]
    async fn a_flood_is_refused_before_the_queue_is_full() {
        let mut transport = default_transport();
        adapt(&mut transport, 1);
        let room = transport.datagram_send_buffer;
        let transport = transport.build().unwrap();
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"]).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Endpoint::server(config.transport_config(transport.clone()), any).unwrap();
        let config = ClientConfig::dangerous_insecure(&[b"test"]).unwrap();
        let client = Endpoint::builder()
            .bind(any)
            .client(config.transport_config(transport))
            .build()
            .unwrap();
        let connecting = client.connect(server.local_addr().unwrap(), "localhost");
        let accepting = async { server.accept().await.unwrap().await };
        let (connection, accepted) = tokio::join!(connecting.unwrap(), accepting);
        let (connection, _accepted) = (connection.unwrap(), accepted.unwrap());
        for (class, free) in [
            (Class::Bulk, room / 2),
            (Class::Interactive, room / 4),
            (Class::RealTime, room / 4),
        ] {
            let flow = Arc::<FlowTable>::default().begin(FlowKind::Udp, None, None, Some(class));
            let stream = StreamId::try_from(0).unwrap();
            let sender = UdpSender::new(&connection, stream, flow.clone(), Numbers::ALL);
            let refused = (0..room / 500).find_map(|_| sender.send(&[0; 1001]).err());
            assert_eq!(refused, Some(SendDatagramError::Blocked), "{class}");
            let left = connection.datagram_send_buffer_space();
            assert!(left > free - 2000, "{class}: {left} of {room} bytes");
        }
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let contexts = [
            (COPY_CONTEXT, Purpose::Copies),
            (ORDER_CONTEXT, Purpose::Order),
        ];
        for (context, purpose) in contexts {
            for number in [0, 63, 64, 16_384, 1 << 30, (1 << 62) - 1] {
                let mut datagram = BytesMut::new();
                put_varint(&mut datagram, context);
                put_varint(&mut datagram, number);
                datagram.extend_from_slice(b"payload");
                let read = numbered_payload(&datagram);
                assert_eq!(read, Some((purpose, number, &b"payload"[..])));
            }
        }
        for wrong in [&b""[..], b"\x02", b"\x00\x01x", b"\x02\x40"] {
            assert_eq!(numbered_payload(wrong), None);
        }
    }
}
