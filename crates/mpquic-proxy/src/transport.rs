//! What connections of proxies need of the transport.

use mpquic_tokio::{Connection, TransportOptions};

/// Bytes of DATAGRAMs that may wait to be read.
const DATAGRAM_BUFFER: usize = 1 << 20;
/// Windows of this many flows that nobody reads leave room for the others.
const STALLED_FLOWS: u64 = 8;

/// Adapts a connection, on either side, to many flows that are read at different speeds: a flow that
/// is not read keeps no more than its own receive window, which is much less than that of the
/// connection, so that the others go on. `flows` is how many the peer may have open.
pub fn adapt(transport: &mut TransportOptions, flows: u32) {
    transport.datagram_receive_buffer = Some(DATAGRAM_BUFFER);
    transport.max_concurrent_bidi_streams = flows.into();
    transport.initial_receive_window = transport.max_receive_window;
    let share = transport.max_receive_window / STALLED_FLOWS;
    transport.max_stream_receive_window = Some(share);
    transport.initial_stream_receive_window = transport.initial_stream_receive_window.min(share);
}

/// Has a connection find out how large the packets of its paths may be, before there is anything to carry.
/// It would only begin with the first UDP payload, and all large ones would be lost until it is known.
pub(crate) fn seek_large_packets(connection: &Connection) {
    // Who asks wants to know, and so it is looked for.
    let _ = connection.max_datagram_size();
}
