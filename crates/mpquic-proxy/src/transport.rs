//! Transport options for connections of proxies.

use std::time::Duration;

use mpquic_tokio::{Connection, PathState, PathStats, TransportOptions};

/// Most bytes of received DATAGRAMs that wait for a reader.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// This number of bytes of DATAGRAMs may wait for sending at any rate of the paths.
const ALWAYS: usize = 1 << 20;
/// Largest number of waiting bytes of DATAGRAMs at any rate.
const AT_MOST: usize = 4 << 20;
/// Between both limits, the paths' traffic of this time may wait: a path takes this time to empty
/// itself and measure its round trip, and another path takes this time to start. A longer queue
/// would make all payloads behind it late.
const AWHILE: Duration = Duration::from_millis(200);
/// The connection's window has room for this number of flows with full windows.
const STALLED_FLOWS: u64 = 8;

/// Adapts a connection, on either side, to many flows with readers of different speeds: an unread
/// flow keeps no more than its own receive window, far below the connection's window, so other
/// flows go on. `flows` is the number of flows that the peer may open at first. A server passes
/// [`STREAMS_OF_STRANGERS`](crate::STREAMS_OF_STRANGERS), and later allows more to a known client.
pub fn adapt(transport: &mut TransportOptions, flows: u32) {
    transport.datagram_receive_buffer = Some(DATAGRAM_BUFFER);
    transport.datagram_send_buffer = AT_MOST;
    transport.max_concurrent_bidi_streams = flows.into();
    transport.initial_receive_window = transport.max_receive_window;
    let share = transport.max_receive_window / STALLED_FLOWS;
    transport.max_stream_receive_window = Some(share);
    transport.initial_stream_receive_window = transport.initial_stream_receive_window.min(share);
}

/// True if another DATAGRAM may wait.
pub(crate) fn has_room(connection: &Connection) -> bool {
    let waiting = AT_MOST.saturating_sub(connection.datagram_send_buffer_space());
    waiting < ALWAYS || waiting < most_waiting(sum_of_rates(&connection.path_stats()))
}

/// The rate of all active paths, in bytes per second.
fn sum_of_rates(paths: &[PathStats]) -> u64 {
    let active = paths.iter().filter(|path| path.state == PathState::Active);
    active.map(rate).fold(0, u64::saturating_add)
}

/// Bytes that may wait for paths with this total rate.
fn most_waiting(rate: u64) -> usize {
    let bytes = (rate as f64 * AWHILE.as_secs_f64()) as usize;
    bytes.clamp(ALWAYS, AT_MOST)
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
    fn what_waits_is_a_fifth_of_a_second_within_bounds() {
        for (mbit, kilobytes) in [(1, 1 << 10), (40, 1 << 10), (160, 3906), (1000, 4 << 10)] {
            assert_eq!(most_waiting(mbit * 125_000) >> 10, kilobytes, "{mbit}");
        }
    }
}
