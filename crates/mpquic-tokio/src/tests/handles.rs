//! Programs hand handles to other tasks and threads, and keep copies.

use crate::{
    ClientConfig, ConnectToError, Connecting, Connection, ConnectionError, Endpoint,
    EndpointBuilder, Incoming, IncomingFuture, MemoryNetwork, MemorySocket, Path, PathEvents,
    ReadError, RecvStream, SendStream, ServerConfig, StreamWatch, Worker, WriteError,
    ZeroRttAccepted,
};

fn is_sent<T: Send + 'static>() {}
fn is_shared<T: Send + Sync + Clone + Unpin + 'static>() {}
fn is_awaited<T: Future + Send + Unpin + 'static>() {}

/// The compiler checks the bounds; the test only has to compile.
#[test]
fn handles_go_to_other_threads() {
    is_shared::<Endpoint>();
    is_shared::<Connection>();
    is_shared::<ClientConfig>();
    is_shared::<ServerConfig>();
    is_shared::<MemoryNetwork>();
    is_shared::<ConnectionError>();
    is_shared::<ReadError>();
    is_shared::<WriteError>();
    is_sent::<ConnectToError>();
    is_sent::<EndpointBuilder>();
    is_sent::<Incoming>();
    is_sent::<MemorySocket>();
    is_sent::<Path>();
    is_sent::<PathEvents>();
    is_sent::<RecvStream>();
    is_sent::<SendStream>();
    is_sent::<StreamWatch>();
    is_sent::<Worker>();
    is_awaited::<Connecting>();
    is_awaited::<IncomingFuture>();
    is_awaited::<ZeroRttAccepted>();
    // Streams go by reference, without a copy.
    fn is_lent<T: Sync>() {}
    is_lent::<SendStream>();
    is_lent::<RecvStream>();
    is_lent::<Path>();
    is_lent::<Incoming>();
    is_lent::<Connecting>();
}
