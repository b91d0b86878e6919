//! s2n-quic.

use std::fmt::Display;
use std::future::{Ready, poll_fn, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use compare_peer::options::{IDLE_TIMEOUT, MAX_STREAMS};
use compare_peer::tls::SERVER_NAME;
use compare_peer::{Connection, ReceiveStream, SendStream, Stack};
use compare_peer::{Options, Result, Workload};
use s2n_quic::client::Connect;
use s2n_quic::connection::{BidirectionalStreamAcceptor, Handle};
use s2n_quic::provider::congestion_controller::Cubic;
use s2n_quic::provider::datagram::default as datagram;
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::stream;
use s2n_quic::{Client, Server};
use tokio::sync::Mutex;

mod tls;

/// DATAGRAM frames queued in either direction: a megabyte of them.
const DATAGRAM_QUEUE: usize = 1000;
/// Bytes of IPv4 and UDP headers: s2n-quic limits the size of packets with these headers.
const HEADERS: u16 = 28;

fn main() -> Result<()> {
    compare_peer::run::<S2n>()
}

enum S2n {
    Server(Server),
    Client(Client),
}

fn limits(options: &Options) -> Result<Limits> {
    if options.defaults {
        return Ok(Limits::new());
    }
    let window = options.window_bytes();
    Ok(Limits::new()
        .with_data_window(window)?
        .with_bidirectional_local_data_window(window)?
        .with_bidirectional_remote_data_window(window)?
        .with_max_send_buffer_size(window.try_into()?)?
        .with_max_open_local_bidirectional_streams(MAX_STREAMS.into())?
        .with_max_open_remote_bidirectional_streams(MAX_STREAMS.into())?
        .with_max_idle_timeout(IDLE_TIMEOUT)?)
}

fn io(address: SocketAddr, options: &Options) -> Result<Io> {
    let builder = Io::builder().with_receive_address(address)?;
    if options.defaults {
        return Ok(builder.build()?);
    }
    Ok(builder
        .with_recv_buffer_size(options.buffer_bytes())?
        .with_send_buffer_size(options.buffer_bytes())?
        .with_max_mtu(options.datagram + HEADERS)?
        .build()?)
}

fn datagrams() -> Result<datagram::Endpoint> {
    Ok(datagram::Endpoint::builder()
        .with_send_capacity(DATAGRAM_QUEUE)?
        .with_recv_capacity(DATAGRAM_QUEUE)?
        .build()?)
}

impl Stack for S2n {
    type Connection = Peer;
    type Incoming = Ready<Result<Peer>>;

    fn lacks(workload: Workload) -> Option<&'static str> {
        (workload.paths() > 1).then_some("one path only")
    }

    fn server(workload: Workload, options: &Options) -> Result<Self> {
        let builder = Server::builder()
            .with_io(io(options.server_socket(), options)?)?
            .with_tls(tls::server(workload, options)?)?
            .with_limits(limits(options)?)?
            .with_congestion_controller(Cubic::default())?;
        Ok(Self::Server(match workload {
            Workload::Datagrams => builder.with_datagram(datagrams()?)?.start()?,
            _ => builder.start()?,
        }))
    }

    fn client(workload: Workload, options: &Options) -> Result<Self> {
        let builder = Client::builder()
            .with_io(io(options.client_socket(1), options)?)?
            .with_tls(tls::client(workload, options)?)?
            .with_limits(limits(options)?)?
            .with_congestion_controller(Cubic::default())?;
        Ok(Self::Client(match workload {
            Workload::Datagrams => builder.with_datagram(datagrams()?)?.start()?,
            _ => builder.start()?,
        }))
    }

    fn address(&self) -> Result<SocketAddr> {
        Ok(match self {
            Self::Server(server) => server.local_addr()?,
            Self::Client(client) => client.local_addr()?,
        })
    }

    async fn accept(&mut self) -> Result<Self::Incoming> {
        let Self::Server(server) = self else {
            return Err("not a server".into());
        };
        let connection = server.accept().await.ok_or("no endpoint")?;
        Ok(ready(Ok(Peer::new(connection))))
    }

    async fn connect(&self, server: SocketAddr) -> Result<Peer> {
        let Self::Client(client) = self else {
            return Err("not a client".into());
        };
        let connect = Connect::new(server).with_server_name(SERVER_NAME);
        Ok(Peer::new(client.connect(connect).await?))
    }
}

#[derive(Clone)]
struct Peer {
    handle: Handle,
    acceptor: Arc<Mutex<BidirectionalStreamAcceptor>>,
}

impl Peer {
    fn new(connection: s2n_quic::Connection) -> Self {
        let (handle, acceptor) = connection.split();
        let (acceptor, _) = acceptor.split();
        Self {
            handle,
            acceptor: Arc::new(Mutex::new(acceptor)),
        }
    }
}

fn split(stream: stream::BidirectionalStream) -> (Sending, Receiving) {
    let (stream, send) = stream.split();
    let ended = false;
    (Sending(send), Receiving { stream, ended })
}

impl Connection for Peer {
    type Send = Sending;
    type Receive = Receiving;

    async fn open(&self) -> Result<(Sending, Receiving)> {
        Ok(split(
            self.handle.clone().open_bidirectional_stream().await?,
        ))
    }

    async fn accept(&self) -> Result<(Sending, Receiving)> {
        let mut acceptor = self.acceptor.lock().await;
        let stream = acceptor.accept_bidirectional_stream().await?;
        Ok(split(stream.ok_or("the connection is closed")?))
    }

    async fn send_datagram(&self, mut data: Bytes) -> Result<()> {
        poll_fn(|cx| {
            let send = |sender: &mut datagram::Sender| sender.poll_send_datagram(&mut data, cx);
            let sent = self
                .handle
                .datagram_mut(send)
                .map_err(|error| error.to_string());
            sent.map_or_else(|error| Poll::Ready(Err(error)), described)
        })
        .await?;
        Ok(())
    }

    async fn receive_datagram(&self) -> Result<Bytes> {
        let received = poll_fn(|cx| {
            let receive = |receiver: &mut datagram::Receiver| receiver.poll_recv_datagram(cx);
            let received = self
                .handle
                .datagram_mut(receive)
                .map_err(|error| error.to_string());
            received.map_or_else(|error| Poll::Ready(Err(error)), described)
        });
        Ok(received.await?)
    }

    fn close(&self) {
        self.handle.close(0u32.into());
    }
}

/// Turns an error into words.
fn described<T, E: Display>(poll: Poll<Result<T, E>>) -> Poll<Result<T, String>> {
    poll.map_err(|error| error.to_string())
}

struct Sending(stream::SendStream);

impl SendStream for Sending {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        Ok(self.0.send(piece).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

struct Receiving {
    stream: stream::ReceiveStream,
    ended: bool,
}

impl ReceiveStream for Receiving {
    async fn read(&mut self, pieces: &mut [Bytes]) -> Result<Option<usize>> {
        if self.ended {
            return Ok(None);
        }
        let (count, open) = self.stream.receive_vectored(pieces).await?;
        self.ended = !open;
        Ok((count > 0 || open).then_some(count))
    }
}
