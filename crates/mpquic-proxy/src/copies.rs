//! UDP payloads that travel twice, on two paths, and are delivered once.
//!
//! Such a payload has its own context ID (RFC 9298 section 4), and a number in front. The client
//! offers copies with a field of its request, and a proxy with this extension answers with the
//! field.

use std::sync::Arc;

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
const FIELD: HeaderName = HeaderName::from_static("mpquic-udp-copies");
/// A structured field that says yes.
const TRUE: HeaderValue = HeaderValue::from_static("?1");
/// The context ID; clients have even ones.
const NUMBERED: u64 = 2;
/// Remembered numbers. A payload later than this many others is lost.
const SPAN: u64 = 1024;

/// Offers copies, or accepts them.
pub(crate) fn offer(fields: &mut HeaderMap) {
    fields.insert(FIELD, TRUE);
}

/// True if the other side accepts copies.
pub(crate) fn are_offered(fields: &HeaderMap) -> bool {
    fields.get(FIELD) == Some(&TRUE)
}

/// Number and payload of an HTTP datagram of this kind.
pub(crate) fn numbered_payload(datagram: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = datagram;
    (take_varint(&mut rest)? == NUMBERED).then_some(())?;
    let number = take_varint(&mut rest)?;
    Some((number, rest))
}

/// Sends the UDP payloads of a flow, twice those of a flow in real time.
pub(crate) struct UdpSender {
    datagrams: DatagramSender,
    connection: Connection,
    flow: Arc<Flow>,
    /// The other side delivers once what comes twice.
    are_taken: bool,
}

impl UdpSender {
    pub(crate) fn new(
        connection: &Connection,
        stream: StreamId,
        flow: Arc<Flow>,
        are_taken: bool,
    ) -> Self {
        let datagrams = DatagramSender::new(connection, stream);
        Self {
            datagrams,
            connection: connection.clone(),
            flow,
            are_taken,
        }
    }

    /// The largest payload; `None` if the other side takes no DATAGRAMs.
    pub(crate) fn max_size(&self) -> Option<usize> {
        self.datagrams.max_size()
    }

    /// Bytes of payloads that may wait for the flow's stream at the present rate of the paths: half of those that may wait as
    /// DATAGRAMs, because a stream has a queue of its own.
    pub(crate) fn most_waiting(&self) -> usize {
        most_now(&self.connection.path_stats()) / 2
    }

    /// Sends a payload, behind a byte that is 0: its context ID otherwise.
    pub(crate) fn send(&self, framed: &[u8]) -> Result<(), SendDatagramError> {
        let payload = framed.get(1..).unwrap_or_default();
        self.flow.on_payload(payload.len(), Instant::now());
        if !has_room(
            &self.connection,
            self.flow.class(),
            self.datagrams.waiting(),
        ) {
            return Err(SendDatagramError::Blocked);
        }
        if self.are_taken && self.flow.class() == Class::RealTime {
            let mut numbered = BytesMut::with_capacity(payload.len() + 16);
            put_varint(&mut numbered, NUMBERED);
            put_varint(&mut numbered, self.flow.next_number());
            numbered.extend_from_slice(payload);
            let options = DatagramOptions::default().with_copy();
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

    use super::*;

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

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 63, 64, 16_384, 1 << 30, (1 << 62) - 1] {
            let mut datagram = BytesMut::new();
            put_varint(&mut datagram, NUMBERED);
            put_varint(&mut datagram, number);
            datagram.extend_from_slice(b"payload");
            assert_eq!(numbered_payload(&datagram), Some((number, &b"payload"[..])));
        }
        for wrong in [&b""[..], b"\x02", b"\x00\x01x", b"\x02\x40"] {
            assert_eq!(numbered_payload(wrong), None);
        }
    }
}
