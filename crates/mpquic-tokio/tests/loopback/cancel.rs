//! What is said of futures: that they may be dropped, and that they may be sent to other threads.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::{
    ClientConfig, Connecting, Connection, DatagramSocket, Endpoint, Incoming, MemoryNetwork, Path,
    PathEvent, PathEvents, RecvStream, SendStream, ServerConfig, StreamWatch, VarInt,
    default_transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{ALPN, Error, TestResult, client};

/// A server that allows one stream of each kind at a time, and takes 10,000 bytes of a stream.
async fn connected() -> Result<(Endpoint, Endpoint, Connection, Connection), Error> {
    let network = MemoryNetwork::new(Duration::from_millis(1));
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let mut transport = default_transport();
    transport.max_concurrent_uni_streams = 1;
    transport.max_concurrent_bidi_streams = 1;
    transport.initial_stream_receive_window = 10_000;
    transport.initial_receive_window = 10_000;
    transport.max_receive_window = 10_000;
    let server = Endpoint::builder()
        .abstract_socket(network.bind("10.0.0.1:443".parse()?)?)
        .server(config.transport_config(transport.build()?))
        .build()?;
    let mut transport = default_transport();
    transport.datagram_send_buffer = 1000;
    let endpoint = Endpoint::builder()
        .abstract_socket(network.bind("10.0.0.2:1".parse()?)?)
        .client(client(transport)?)
        .build()?;
    let connecting = endpoint.connect(server.local_addr()?, "localhost")?;
    let incoming = server.accept().await.ok_or("closed")?;
    let (a, b) = tokio::try_join!(connecting, async { incoming.await })?;
    a.handshake_confirmed().await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok((server, endpoint, a, b))
}

/// Begins something that cannot be done now, and drops it.
fn begin_and_drop<T>(future: impl Future<Output = T>) {
    let poll = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Pending), "it was to wait");
}

#[tokio::test(start_paused = true)]
async fn dropped_waiting_futures_had_no_effect() -> TestResult {
    let (server, endpoint, a, b) = connected().await?;
    begin_and_drop(server.accept());
    begin_and_drop(endpoint.wait_idle());
    begin_and_drop(a.closed());
    begin_and_drop(b.accept_uni());
    begin_and_drop(b.accept_bi());
    begin_and_drop(b.read_datagram());
    let mut events = a.path_events();
    begin_and_drop(events.next());

    let mut stream = a.open_uni().await?;
    begin_and_drop(a.open_uni());
    stream.write_all(&[1; 4]).await?;
    let mut incoming = b.accept_uni().await?;
    let mut buffer = [0; 4];
    incoming.read_exact(&mut buffer).await?;
    begin_and_drop(incoming.read(&mut buffer));
    begin_and_drop(incoming.read_chunk(10, true));
    begin_and_drop(incoming.received_reset());
    begin_and_drop(AsyncReadExt::read(&mut incoming, &mut buffer));
    // As much as the peer takes; then writes wait, and what is dropped then was not written.
    let mut written = 4;
    while written < 10_000 {
        written += stream.write(&[2; 10_000]).await?;
    }
    assert_eq!(written, 10_000);
    begin_and_drop(stream.write(&[3; 100]));
    begin_and_drop(stream.write_chunk(bytes::Bytes::from_static(b"3333")));
    begin_and_drop(stream.writable());
    begin_and_drop(stream.stopped());
    begin_and_drop(AsyncWriteExt::write(&mut stream, b"3333"));
    begin_and_drop(a.watch_stream(stream.id()).stopped());
    let mut rest = Vec::new();
    while rest.len() < 9_996 {
        let chunk = incoming
            .read_chunk(usize::MAX, true)
            .await?
            .ok_or("the end")?;
        rest.extend_from_slice(&chunk.bytes);
    }
    stream.write_all(&[4; 10]).await?;
    stream.finish()?;
    rest.extend(incoming.read_to_end(100).await?);
    assert!(
        rest[..9_996].iter().all(|byte| *byte == 2),
        "once and in order"
    );
    assert_eq!(rest[9_996..], [4; 10]);
    // The stream that was asked for was not opened in secret: its place is free.
    let next = a.open_uni().await?;
    assert_eq!(next.id().index(), 1);

    let datagram = bytes::Bytes::from(vec![5; 900]);
    a.send_datagram(datagram.clone())?;
    begin_and_drop(a.send_datagram_wait(bytes::Bytes::from(vec![6; 900])));
    assert_eq!(b.read_datagram().await?, datagram);
    begin_and_drop(b.read_datagram());
    a.close(VarInt::from_u32(1), b"");
    Ok(())
}

/// Everything can be moved to another thread, futures included.
#[test]
fn everything_is_send() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Send + Sync>() {}
    fn future_is_send<T>(_: &impl Fn(T)) {}
    fn sends<F: Future + Send>(_: F) {}
    is_sync::<Endpoint>();
    is_sync::<Connection>();
    is_sync::<Path>();
    is_sync::<SendStream>();
    is_sync::<RecvStream>();
    is_sync::<StreamWatch>();
    is_sync::<ClientConfig>();
    is_sync::<ServerConfig>();
    is_sync::<Box<dyn DatagramSocket>>();
    is_send::<Connecting>();
    is_send::<Incoming>();
    is_send::<PathEvents>();
    is_send::<PathEvent>();
    // Never called: it is enough that it compiles.
    let all = |(endpoint, connection, mut send, mut recv, mut events, watch): (
        Endpoint,
        Connection,
        SendStream,
        RecvStream,
        PathEvents,
        StreamWatch,
    )| {
        sends(endpoint.accept());
        sends(endpoint.wait_idle());
        sends(endpoint.wait_all_draining());
        sends(endpoint.connect_to("localhost", 443));
        sends(connection.open_bi());
        sends(connection.open_uni());
        sends(connection.accept_bi());
        sends(connection.accept_uni());
        sends(connection.handshake_confirmed());
        sends(connection.wait_for_paths(1));
        sends(connection.send_datagram_wait(Bytes::new()));
        sends(connection.read_datagram());
        sends(connection.closed());
        let any = std::net::SocketAddr::from(([0; 4], 0));
        sends(connection.open_path(any, any));
        sends(send.write_all(&[]));
        sends(send.write(&[]));
        sends(send.write_chunk(Bytes::new()));
        sends(send.write_chunks(&mut []));
        sends(send.write_all_chunks(&mut []));
        sends(send.writable());
        sends(send.stopped());
        sends(watch.writable());
        sends(watch.stopped());
        sends(recv.read(&mut []));
        sends(recv.read_exact(&mut []));
        sends(recv.read_chunk(0, true));
        sends(recv.read_chunks(&mut []));
        sends(recv.read_to_end(0));
        sends(recv.received_reset());
        sends(events.next());
    };
    future_is_send(&all);
}

/// The public `async` methods in a source file, each with its documentation.
fn documented(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut docs = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            docs.push_str(text);
        } else if let Some(rest) = line.strip_prefix("pub async fn ") {
            let name = rest
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            found.push((
                name.unwrap_or_default().to_owned(),
                std::mem::take(&mut docs),
            ));
        } else if !line.starts_with('#') {
            docs.clear();
        }
    }
    found
}

/// What is between backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Each method says whether its future may be dropped, and the page for embedders lists those that
/// may not.
#[test]
fn the_page_and_the_methods_say_the_same_of_futures() -> TestResult {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut says = [BTreeSet::new(), BTreeSet::new()];
    for file in fs::read_dir(root.join("src"))? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        for (name, docs) in documented(&fs::read_to_string(&path)?) {
            let is_unsafe = docs.contains("Not cancel-safe");
            let is_told = is_unsafe || docs.contains("Cancel-safe");
            assert!(is_told, "{}: {name}", path.display());
            says[usize::from(is_unsafe)].insert(name);
        }
    }
    let [safe, unsafe_ones] = says;
    assert!(safe.len() > 20, "{safe:?}");
    let page = fs::read_to_string(root.join("../../docs/embedding.md"))?;
    let (_, rest) = page.split_once("with these exceptions:").ok_or("no list")?;
    let (list, _) = rest.split_once(". ").ok_or("the list has no end")?;
    assert_eq!(quoted(list), unsafe_ones);
    Ok(())
}
