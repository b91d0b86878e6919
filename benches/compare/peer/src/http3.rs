//! The same workloads over HTTP/3: each stream is a POST request. The bytes of the stream are the
//! body of the request and of the answer. The crate h3 carries them over every stack with h3's
//! traits.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::{client, quic, server};
use http::{Request, Response};
use tokio::sync::Mutex;

use crate::{Connection, Options, ReceiveStream, Result, SendStream, Stack, Workload};

/// A connection that h3 can drive.
pub trait Http3: Connection {
    /// The type of buffers with bodies to send.
    type Body: Buf + From<Bytes> + Send + 'static;
    /// A connection with the traits of h3.
    type Quic: quic::Connection<
            Self::Body,
            OpenStreams: Clone + Send + Sync + 'static,
            RecvStream: Send + 'static,
        > + quic::OpenStreams<
            Self::Body,
            SendStream: Send + 'static,
            BidiStream: quic::BidiStream<
                Self::Body,
                SendStream: Send + 'static,
                RecvStream: quic::RecvStream<Buf: Send> + Send + 'static,
            > + Send
                            + 'static,
        > + Send
        + 'static;

    /// The connection, for h3.
    fn quic(&self) -> Self::Quic;
}

type Body<C> = <C as Http3>::Body;
type Bidi<C> = <<C as Http3>::Quic as quic::OpenStreams<Body<C>>>::BidiStream;
type SendHalf<C> = <Bidi<C> as quic::BidiStream<Body<C>>>::SendStream;
type ReceiveHalf<C> = <Bidi<C> as quic::BidiStream<Body<C>>>::RecvStream;
type Opener<C> = <<C as Http3>::Quic as quic::Connection<Body<C>>>::OpenStreams;

/// A stack with HTTP/3 on top.
pub(crate) struct OverHttp3<S>(S);

impl<S: Stack<Connection: Http3>> Stack for OverHttp3<S> {
    type Connection = Session<S::Connection>;
    type Incoming = Pin<Box<dyn Future<Output = Result<Self::Connection>> + Send>>;

    fn lacks(workload: Workload) -> Option<&'static str> {
        match workload {
            Workload::Datagrams => Some("not over HTTP/3"),
            _ => S::lacks(workload),
        }
    }

    fn server(workload: Workload, options: &Options) -> Result<Self> {
        Ok(Self(S::server(workload, options)?))
    }

    fn client(workload: Workload, options: &Options) -> Result<Self> {
        Ok(Self(S::client(workload, options)?))
    }

    fn address(&self) -> Result<SocketAddr> {
        self.0.address()
    }

    async fn accept(&mut self) -> Result<Self::Incoming> {
        let incoming = self.0.accept().await?;
        Ok(Box::pin(async move {
            let connection = incoming.await?;
            let requests = server::Connection::new(connection.quic()).await?;
            Ok(Session {
                connection,
                role: Role::Server(Arc::new(Mutex::new(requests))),
            })
        }))
    }

    async fn connect(&self, server: SocketAddr) -> Result<Self::Connection> {
        let connection = self.0.connect(server).await?;
        // h3 has a grease frame in the first request of each clone of the sender.
        let mut builder = client::builder();
        let (mut driver, requests) = builder.send_grease(false).build(connection.quic()).await?;
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Session {
            connection,
            role: Role::Client(requests),
        })
    }
}

/// HTTP/3 with the other side.
pub(crate) struct Session<C: Http3> {
    connection: C,
    role: Role<C>,
}

enum Role<C: Http3> {
    Client(client::SendRequest<Opener<C>, Body<C>>),
    Server(Arc<Mutex<server::Connection<C::Quic, Body<C>>>>),
}

impl<C: Http3> Clone for Session<C> {
    fn clone(&self) -> Self {
        let role = match &self.role {
            Role::Client(requests) => Role::Client(requests.clone()),
            Role::Server(requests) => Role::Server(requests.clone()),
        };
        Self {
            connection: self.connection.clone(),
            role,
        }
    }
}

impl<C: Http3> Connection for Session<C> {
    type Send = Sending<C>;
    type Receive = Receiving<C>;

    async fn open(&self) -> Result<(Self::Send, Self::Receive)> {
        let Role::Client(requests) = &self.role else {
            return Err("servers send no requests".into());
        };
        let request = Request::post("https://localhost/").body(())?;
        let stream = requests.clone().send_request(request).await?;
        let (send, receive) = stream.split();
        Ok((
            Sending::Request(send),
            Receiving::Answer(receive, Begun(false)),
        ))
    }

    async fn accept(&self) -> Result<(Self::Send, Self::Receive)> {
        let Role::Server(requests) = &self.role else {
            return Err("clients get no requests".into());
        };
        let request = requests.lock().await.accept().await?.ok_or("the end")?;
        let (_, stream) = request.resolve_request().await?;
        let (send, receive) = stream.split();
        Ok((
            Sending::Answer(send, Begun(false)),
            Receiving::Request(receive),
        ))
    }

    async fn send_datagram(&self, _: Bytes) -> Result<()> {
        Err("not over HTTP/3".into())
    }

    async fn receive_datagram(&self) -> Result<Bytes> {
        Err("not over HTTP/3".into())
    }

    fn received_by_path(&self) -> Vec<u64> {
        self.connection.received_by_path()
    }

    fn close(&self) {
        self.connection.close();
    }
}

/// The fields of an answer were there.
pub(crate) struct Begun(bool);

pub(crate) enum Sending<C: Http3> {
    Request(client::RequestStream<SendHalf<C>, Body<C>>),
    Answer(server::RequestStream<SendHalf<C>, Body<C>>, Begun),
}

impl<C: Http3> SendStream for Sending<C> {
    async fn write(&mut self, piece: Bytes) -> Result<()> {
        let piece = piece.into();
        match self {
            Self::Request(stream) => stream.send_data(piece).await?,
            Self::Answer(stream, begun) => {
                if !std::mem::replace(&mut begun.0, true) {
                    stream.send_response(Response::new(())).await?;
                }
                stream.send_data(piece).await?;
            }
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        match self {
            Self::Request(stream) => stream.finish().await?,
            Self::Answer(stream, _) => stream.finish().await?,
        }
        Ok(())
    }
}

pub(crate) enum Receiving<C: Http3> {
    Request(server::RequestStream<ReceiveHalf<C>, Body<C>>),
    Answer(client::RequestStream<ReceiveHalf<C>, Body<C>>, Begun),
}

impl<C: Http3> ReceiveStream for Receiving<C> {
    async fn read(&mut self, pieces: &mut [Bytes]) -> Result<Option<usize>> {
        let piece = match self {
            Self::Request(stream) => stream.recv_data().await?.map(bytes),
            Self::Answer(stream, begun) => {
                if !std::mem::replace(&mut begun.0, true) {
                    stream.recv_response().await?;
                }
                stream.recv_data().await?.map(bytes)
            }
        };
        Ok(piece.map(|piece| {
            pieces[0] = piece;
            1
        }))
    }
}

fn bytes(mut piece: impl Buf) -> Bytes {
    piece.copy_to_bytes(piece.remaining())
}
