//! Transport options for connections of proxies.

use std::time::Duration;

use mpquic_tokio::{Connection, PathState, PathStats, TransportOptions};

use crate::class::Class;

/// Most bytes of received DATAGRAMs that wait for a reader.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// This number of bytes of DATAGRAMs may wait for sending at any rate of the paths.
const ALWAYS: usize = 64 << 10;
/// The same while no path has found its rate.
const AT_FIRST: usize = 1 << 20;
/// Largest number of waiting bytes of DATAGRAMs at any rate.
const AT_MOST: usize = 4 << 20;
/// The whole queue: payloads of flows other than bulk flows find room in the last part, so that a
/// flood does not drop them, and so do payloads of flows with less than their share.
const BUFFER: usize = 2 * AT_MOST;
/// Between both limits, the paths' traffic of this time may wait: a path takes this time to empty
/// itself and measure its round trip, and another path takes this time to start. A longer queue
/// would make all payloads behind it late.
const AWHILE: Duration = Duration::from_millis(200);
/// Stream bytes of this time may wait to be sent, besides those of a round trip.
const SEND_QUEUE: Duration = Duration::from_millis(100);
/// The connection's window has room for this number of flows with full windows.
const STALLED_FLOWS: u64 = 8;

/// Idle timeout of a proxy's connection: flows outlive an outage of all links of this length.
const OUTAGE: Duration = Duration::from_secs(15 * 60);

/// Adapts a connection, on either side, to many flows with readers of different speeds: an unread
/// flow keeps no more than its own receive window, far below the connection's window, so other
/// flows go on. Bytes that wait to be sent are those of 100 ms, unless `send_queue_time` is set
/// already, so a sender learns early how fast the paths are, and no class of flows starves. `flows`
/// is the number of flows that the peer may open at first. A server passes
/// [`STREAMS_OF_STRANGERS`](crate::STREAMS_OF_STRANGERS), and later allows more to a known client.
///
/// The idle timeout becomes 15 minutes, so that flows outlive an outage of all links. The smaller
/// timeout of both sides counts (RFC 9000 section 10.1).
pub fn adapt(transport: &mut TransportOptions, flows: u32) {
    transport.max_idle_timeout = Some(OUTAGE);
    transport.datagram_receive_buffer = Some(DATAGRAM_BUFFER);
    transport.datagram_send_buffer = BUFFER;
    transport.send_queue_time.get_or_insert(SEND_QUEUE);
    transport.priority_floor = true;
    transport.max_concurrent_bidi_streams = flows.into();
    transport.initial_receive_window = transport.max_receive_window;
    let share = transport.max_receive_window / STALLED_FLOWS;
    transport.max_stream_receive_window = Some(share);
    transport.initial_stream_receive_window = transport.initial_stream_receive_window.min(share);
}

/// Streams of a client before the proxy knows its user, and streams besides its flows afterwards.
/// Where clients show credentials, use [`adapt_server`]. The proxy allows
/// more streams after the first right credential.
pub const STREAMS_OF_STRANGERS: u32 = 16;

/// Windows of a client's connection before the proxy knows its user, and of further connections of
/// a user without memory left, in bytes.
pub(crate) const FIRST_WINDOW: u64 = 1 << 20;

/// [`adapt`] for the connections of a proxy's server. Receive window and send window begin with 1
/// MiB, or with a larger window of one stream. For a known user the server raises both windows, by
/// the option `user_memory`.
pub fn adapt_server(transport: &mut TransportOptions) {
    adapt(transport, STREAMS_OF_STRANGERS);
    let first = FIRST_WINDOW.max(transport.initial_stream_receive_window);
    let first = first.min(transport.max_receive_window);
    transport.max_receive_window = first;
    transport.initial_receive_window = first;
    transport.send_window = transport.send_window.min(first);
}

/// True if another DATAGRAM of a flow of this class may wait. `own` has the waiting bytes of the
/// flow, and the number of waiting flows with this one.
pub(crate) fn has_room(connection: &Connection, class: Class, own: (usize, usize)) -> bool {
    let waiting = BUFFER.saturating_sub(connection.datagram_send_buffer_space());
    let most = || most_of(class, most_now(&connection.path_stats()));
    waiting < ALWAYS || may_wait(waiting, own, most())
}

/// True if fewer than `most` bytes wait, or if the flow has fewer waiting bytes than its equal
/// share of `most`: a flood takes no room from other flows.
fn may_wait(waiting: usize, (own, flows): (usize, usize), most: usize) -> bool {
    waiting < most || own < most / flows.max(1)
}

/// Bytes that may wait for these paths.
pub(crate) fn most_now(paths: &[PathStats]) -> usize {
    let active = || paths.iter().filter(|path| path.state == PathState::Active);
    let least = if active().any(|path| path.slow_start_threshold.is_some()) {
        ALWAYS
    } else {
        AT_FIRST
    };
    most_waiting(active().map(rate).fold(0, u64::saturating_add), least)
}

/// Bytes that may wait for paths with this total rate, and at least `least`.
fn most_waiting(rate: u64, least: usize) -> usize {
    let bytes = (rate as f64 * AWHILE.as_secs_f64()) as usize;
    bytes.clamp(least, AT_MOST)
}

/// The part of `most` bytes for a flow of this class.
fn most_of(class: Class, most: usize) -> usize {
    match class {
        Class::Bulk => most,
        Class::Interactive | Class::RealTime => most + most / 2,
    }
}

/// The rate of a path, in bytes per second.
fn rate(path: &PathStats) -> u64 {
    let per_round_trip = || path.window as f64 / path.rtt.as_secs_f64().max(1e-6);
    path.pacing_rate.unwrap_or_else(|| per_round_trip() as u64)
}

/// Starts MTU discovery on all paths before any traffic. Otherwise, discovery would begin with the
/// first UDP payload, and large payloads would be lost until its end.
pub(crate) fn seek_large_packets(connection: &Connection) {
    // The call itself starts the discovery; its result has no use.
    let _ = connection.max_datagram_size();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_bytes_are_a_fifth_of_a_second_within_bounds() {
        for (mbit, kilobytes) in [(1, 64), (4, 97), (40, 976), (160, 3906), (1000, 4 << 10)] {
            assert_eq!(
                most_waiting(mbit * 125_000, ALWAYS) >> 10,
                kilobytes,
                "{mbit}"
            );
        }
        assert_eq!(most_waiting(0, AT_FIRST), AT_FIRST);
    }

    #[test]
    fn a_flow_has_room_for_its_share_beside_a_flood() {
        assert!(may_wait(999, (999, 1), 1000));
        assert!(!may_wait(1000, (1000, 1), 1000));
        assert!(!may_wait(1000, (1000, 2), 1000), "the flood");
        assert!(may_wait(1000, (0, 2), 1000), "its neighbour");
        assert!(may_wait(1400, (400, 2), 1000));
        assert!(!may_wait(1500, (500, 2), 1000));
        assert!(may_wait(1 << 20, (0, 999), 1000), "one payload at least");
    }

    #[test]
    fn a_flood_leaves_room_for_others() {
        let most = most_waiting(u64::MAX, ALWAYS);
        assert_eq!(most_of(Class::Bulk, most), AT_MOST);
        assert_eq!(most_of(Class::RealTime, most), AT_MOST + AT_MOST / 2);
        assert_eq!(most_of(Class::Interactive, most), AT_MOST + AT_MOST / 2);
    }
}
