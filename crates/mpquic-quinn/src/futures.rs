//! The named futures of connections.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use mpquic_tokio as mp;
use quinn_proto::ConnectionError;

use crate::convert::connection_error;
use crate::errors::{self, SendDatagramError};
use crate::streams::{RecvStream, SendStream};

/// Defines a future over a poll method of a connection. Each future polls a handle of its own, so
/// that several futures of one connection may wait in several tasks.
macro_rules! polls {
    ($($(#[$doc:meta])* $name:ident, $poll:ident, $output:ty, |$value:ident, $connection:ident| $made:expr;)*) => {$(
        $(#[$doc])*
        #[must_use = "futures do nothing unless they are awaited"]
        pub struct $name<'a> {
            connection: mp::Connection,
            lifetime: PhantomData<&'a mp::Connection>,
        }

        impl<'a> $name<'a> {
            pub(crate) fn new(connection: &'a mp::Connection) -> Self {
                Self {
                    connection: connection.clone(),
                    lifetime: PhantomData,
                }
            }
        }

        impl Future for $name<'_> {
            type Output = Result<$output, ConnectionError>;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let $connection = &mut self.connection;
                $connection
                    .$poll(cx)
                    .map_ok(|$value| $made)
                    .map_err(connection_error)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.connection).finish()
            }
        }
    )*};
}

polls! {
    /// The future of [`Connection::open_uni`](crate::Connection::open_uni).
    OpenUni, poll_open_uni, SendStream,
        |send, connection| SendStream::new(send, connection.clone());
    /// The future of [`Connection::open_bi`](crate::Connection::open_bi).
    OpenBi, poll_open_bi, (SendStream, RecvStream),
        |pair, connection| (SendStream::new(pair.0, connection.clone()), RecvStream::new(pair.1));
    /// The future of [`Connection::accept_uni`](crate::Connection::accept_uni).
    AcceptUni, poll_accept_uni, RecvStream,
        |receive, _connection| RecvStream::new(receive);
    /// The future of [`Connection::accept_bi`](crate::Connection::accept_bi).
    AcceptBi, poll_accept_bi, (SendStream, RecvStream),
        |pair, connection| (SendStream::new(pair.0, connection.clone()), RecvStream::new(pair.1));
    /// The future of [`Connection::read_datagram`](crate::Connection::read_datagram).
    ReadDatagram, poll_read_datagram, Bytes,
        |datagram, _connection| datagram;
}

/// A future in a box, for calls of mpquic without a poll method.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + Sync + 'a>>;

/// The future of [`Connection::send_datagram_wait`](crate::Connection::send_datagram_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct SendDatagram<'a>(Boxed<'a, Result<(), SendDatagramError>>);

impl<'a> SendDatagram<'a> {
    pub(crate) fn new(connection: &'a mp::Connection, data: Bytes) -> Self {
        Self(Box::pin(async move {
            match connection.send_datagram_wait(data).await {
                Ok(()) => Ok(()),
                Err(error) => errors::send_datagram(error).map_or(Ok(()), Err),
            }
        }))
    }
}

impl Future for SendDatagram<'_> {
    type Output = Result<(), SendDatagramError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for SendDatagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendDatagram")
    }
}
