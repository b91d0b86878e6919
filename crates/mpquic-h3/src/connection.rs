//! [`Connection`]: a connection for `h3`.

use std::task::{Context, Poll, ready};

use bytes::Buf;
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming};
use mpquic_tokio::{ConnectionError, WriteError, ZeroRtt};

use crate::error;
use crate::priorities::Priorities;
use crate::qpack_streams::QpackStreams;
use crate::streams::{BidiStream, RecvStream, SendStream};

/// Longest frame unless [`Connection::max_frame_size`] says otherwise, bytes.
const MAX_FRAME_SIZE: u64 = 64 << 10;

/// A connection for `h3::server::Connection` or `h3::client`.
///
/// Keep a clone of the [`mpquic_tokio::Connection`] to look at its paths, or to wait for its end.
#[derive(Debug)]
pub struct Connection {
    open: OpenStreams,
    priorities: Priorities,
    /// Unidirectional streams of the peer whose type has not arrived.
    arriving: Vec<RecvStream>,
    qpack: QpackStreams,
}

/// Opens streams on a connection.
#[derive(Debug, Clone)]
pub struct OpenStreams {
    connection: mpquic_tokio::Connection,
    max_frame_size: u64,
    request_priority: i32,
    requests_take_turns: bool,
    /// The connection is over if 0-RTT is rejected.
    early: bool,
}

impl OpenStreams {
    fn is_over(&self) -> bool {
        self.early && self.connection.zero_rtt() == ZeroRtt::Rejected
    }
}

impl Connection {
    /// Wraps a connection that negotiated [`ALPN`](crate::ALPN).
    pub fn new(connection: mpquic_tokio::Connection) -> Self {
        Self {
            priorities: Priorities::new(connection.clone()),
            arriving: Vec::new(),
            qpack: QpackStreams::default(),
            open: OpenStreams {
                connection,
                max_frame_size: MAX_FRAME_SIZE,
                request_priority: 0,
                requests_take_turns: true,
                early: false,
            },
        }
    }

    /// Sets the longest frame from the peer, in bytes, except for DATA frames: 64 KiB by default.
    /// Such frames stay in memory until they are whole. A longer frame ends its stream with
    /// `H3_EXCESSIVE_LOAD`; on the control stream, the connection.
    #[must_use]
    pub fn max_frame_size(mut self, bytes: u32) -> Self {
        self.open.max_frame_size = bytes.into();
        self
    }

    /// For a client: the priority of its request streams from their first byte on. Larger is more
    /// urgent; 0 by default.
    #[must_use]
    pub fn request_priority(mut self, priority: i32) -> Self {
        self.open.request_priority = priority;
        self
    }

    /// For a client: equally urgent requests leave one after the other, in the order of their
    /// streams, so that the first upload is complete as early as possible. By default, they take
    /// turns.
    #[must_use]
    pub fn requests_in_order(mut self) -> Self {
        self.open.requests_take_turns = false;
        self
    }

    /// For a client with 0-RTT: after a rejection, HTTP/3 must begin anew on the connection. This
    /// value then opens no more streams of its own, which the server would take for a second
    /// control stream, and no longer closes the connection.
    #[must_use]
    pub fn early(mut self) -> Self {
        self.open.early = true;
        self
    }

    /// For a server: the priorities of requests, which order the answers.
    pub fn priorities(&self) -> Priorities {
        self.priorities.clone()
    }

    /// Accepts all waiting unidirectional streams.
    fn accept_unidirectional(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        let OpenStreams {
            connection,
            max_frame_size,
            ..
        } = &mut self.open;
        while let Poll::Ready(stream) = connection.poll_accept_uni(cx) {
            let priorities = &self.priorities;
            let stream =
                RecvStream::unidirectional(connection, stream?, *max_frame_size, priorities);
            self.arriving.push(stream);
        }
        Ok(())
    }

    /// The next stream for h3. Streams of QPACK are read here.
    fn next_unidirectional(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Option<RecvStream>, (Code, &'static str)> {
        self.qpack.read(cx)?;
        let mut index = 0;
        while let Some(stream) = self.arriving.get_mut(index) {
            let Poll::Ready(kind) = stream.poll_kind(cx) else {
                index += 1;
                continue;
            };
            let stream = self.arriving.swap_remove(index);
            // A stream that ended before its type has no meaning (RFC 9114 section 6.2).
            let Some(kind) = kind else { continue };
            match self.qpack.take(kind, stream)? {
                None => self.qpack.read(cx)?,
                others => return Ok(others),
            }
        }
        Ok(None)
    }

    pub(crate) fn handle(&self) -> &mpquic_tokio::Connection {
        &self.open.connection
    }
}

/// Resets each later request with `H3_REQUEST_REJECTED`, until the connection has ended: the server
/// did no work for the request, and the client may ask again elsewhere.
///
/// For a server after `h3`'s `accept` has returned `None` on the client's GOAWAY: `h3` 0.0.8 then
/// takes no requests, and late requests would wait for the end of the connection. Keep the
/// connection of `h3` meanwhile: dropping it closes the connection.
pub async fn reject_requests(connection: &mpquic_tokio::Connection) {
    let code = error::code(Code::H3_REQUEST_REJECTED.value());
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        // The errors say that the stream has ended already.
        let _ = send.reset(code);
        let _ = recv.stop(code);
    }
}

impl From<mpquic_tokio::Connection> for Connection {
    fn from(connection: mpquic_tokio::Connection) -> Self {
        Self::new(connection)
    }
}

impl<B: Buf> quic::Connection<B> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = OpenStreams;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let accepted = self.accept_unidirectional(cx);
        match self.next_unidirectional(cx) {
            Ok(Some(stream)) => Poll::Ready(Ok(stream)),
            Ok(None) => match accepted {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error::of_connection(error))),
            },
            Err((code, reason)) => {
                Poll::Ready(Err(error::closed(&self.open.connection, code, reason)))
            }
        }
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, ConnectionErrorIncoming>> {
        let OpenStreams {
            connection,
            max_frame_size,
            ..
        } = &mut self.open;
        let accepted = connection.poll_accept_bi(cx);
        accepted
            .map_ok(|streams| {
                self.priorities.on_request(streams.0.id().into());
                BidiStream::accepted(connection, streams, *max_frame_size)
            })
            .map_err(error::of_connection)
    }

    fn opener(&self) -> OpenStreams {
        self.open.clone()
    }
}

impl<B: Buf> quic::OpenStreams<B> for OpenStreams {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        let opened = self.connection.poll_open_bi(cx);
        opened
            .map_ok(|streams| {
                // A new stream cannot be closed yet.
                let _ = streams.0.set_priority(self.request_priority);
                let _ = streams.0.set_incremental(self.requests_take_turns);
                BidiStream::opened(&self.connection, streams, self.max_frame_size)
            })
            .map_err(error::of_lost_connection)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        let opened = ready!(self.connection.poll_open_uni(cx));
        let stream = opened.map_err(error::of_lost_connection)?;
        // A stream dropped before its first byte has no meaning (RFC 9114 section 6.2).
        if self.is_over() {
            return Poll::Ready(Err(error::of_write(WriteError::ZeroRttRejected)));
        }
        Poll::Ready(Ok(SendStream::unidirectional(stream)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        if !self.is_over() {
            self.connection.close(error::code(code.value()), reason);
        }
    }
}

impl<B: Buf> quic::OpenStreams<B> for Connection {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        self.open.poll_open_bidi(cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        self.open.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        quic::OpenStreams::<B>::close(&mut self.open, code, reason);
    }
}
