//! Streams as `h3` reads and writes them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use mpquic_tokio::Side;

use crate::connect::{corrected, is_headers, marked};
use crate::control::{Control, is_priority_update};
use crate::error;
use crate::priorities::Priorities;
use crate::units::{Frame, FrameTooLong, Unit, Units};

/// A stream for a request and its response.
#[derive(Debug)]
pub struct BidiStream<B> {
    send: SendStream<B>,
    recv: RecvStream,
}

/// The sending half of a stream.
pub struct SendStream<B> {
    stream: mpquic_tokio::SendStream,
    /// What is being written.
    writing: Option<Writing<B>>,
    /// Nothing was given to a stream for a request of ours yet.
    begins_request: bool,
    /// Finished or reset, or of a kind that ends when it is dropped.
    ended: bool,
}

/// Something that is being written.
enum Writing<B> {
    AsGiven(WriteBuf<B>),
    /// A frame that was looked at, and perhaps changed.
    Frame(Bytes),
}

impl<B: Buf> Writing<B> {
    /// Writes what the stream takes; false at the end.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut mpquic_tokio::SendStream,
    ) -> Poll<Result<bool, StreamErrorIncoming>> {
        let written = match self {
            Self::AsGiven(data) if data.has_remaining() => stream.poll_write(cx, data.chunk()),
            Self::Frame(data) if data.has_remaining() => stream.poll_write(cx, data),
            Self::AsGiven(_) | Self::Frame(_) => return Poll::Ready(Ok(false)),
        };
        let written = ready!(written).map_err(error::of_write)?;
        match self {
            Self::AsGiven(data) => data.advance(written),
            Self::Frame(data) => data.advance(written),
        }
        Poll::Ready(Ok(true))
    }
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct RecvStream {
    connection: mpquic_tokio::Connection,
    stream: mpquic_tokio::RecvStream,
    units: Units,
    /// Of a unidirectional stream.
    control: Option<Control>,
    /// The peer's request was not handed out yet.
    begins_request: bool,
    /// What the peer is told if the stream is dropped before its end.
    on_drop: Code,
    /// Nothing need be said on drop.
    ended: bool,
}

impl<B> BidiStream<B> {
    /// A stream that we opened, as a client.
    pub(crate) fn opened(
        connection: &mpquic_tokio::Connection,
        streams: (mpquic_tokio::SendStream, mpquic_tokio::RecvStream),
        max_frame_size: u64,
    ) -> Self {
        let mut stream = Self::new(
            connection,
            streams,
            max_frame_size,
            Code::H3_REQUEST_CANCELLED,
        );
        stream.send.begins_request = true;
        stream
    }

    /// A stream that the peer opened.
    pub(crate) fn accepted(
        connection: &mpquic_tokio::Connection,
        streams: (mpquic_tokio::SendStream, mpquic_tokio::RecvStream),
        max_frame_size: u64,
    ) -> Self {
        // RFC 9114 section 4.1: a server may do without the rest of a request.
        let mut stream = Self::new(connection, streams, max_frame_size, Code::H3_NO_ERROR);
        stream.recv.begins_request = true;
        stream
    }

    fn new(
        connection: &mpquic_tokio::Connection,
        (send, recv): (mpquic_tokio::SendStream, mpquic_tokio::RecvStream),
        max_frame_size: u64,
        on_drop: Code,
    ) -> Self {
        Self {
            send: SendStream {
                stream: send,
                writing: None,
                begins_request: false,
                ended: false,
            },
            recv: RecvStream {
                connection: connection.clone(),
                stream: recv,
                units: Units::of_request(max_frame_size),
                control: None,
                begins_request: false,
                on_drop,
                ended: false,
            },
        }
    }
}

impl<B> SendStream<B> {
    pub(crate) fn unidirectional(stream: mpquic_tokio::SendStream) -> Self {
        Self {
            stream,
            writing: None,
            begins_request: false,
            ended: true,
        }
    }
}

impl<B> fmt::Debug for SendStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendStream").field(&self.stream).finish()
    }
}

impl<B> Drop for SendStream<B> {
    fn drop(&mut self) {
        if !self.ended {
            // RFC 9114 section 4.1.1: a part must not look like the whole. If the peer has stopped
            // the stream, there is nothing to reset.
            let code = error::code(Code::H3_REQUEST_CANCELLED.value());
            let _ = self.stream.reset(code);
        }
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = &mut self.writing {
            if !ready!(data.poll_write(cx, &mut self.stream))? {
                self.writing = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            let error = "data was given to a stream that was not ready for it";
            return Err(StreamErrorIncoming::Unknown(error.into()));
        }
        let mut data = data.into();
        let is_first = std::mem::take(&mut self.begins_request);
        self.writing = Some(match is_first {
            true => Writing::Frame(corrected(data.copy_to_bytes(data.remaining()))),
            false => Writing::AsGiven(data),
        });
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(cx))?;
        let finished = self.stream.finish();
        self.ended = true;
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, reset_code: u64) {
        self.ended = true;
        self.writing = None;
        // A stream that ended before needs no reset.
        let _ = self.stream.reset(error::code(reset_code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> quic::SendStreamUnframed<B> for SendStream<B> {
    fn poll_send<D: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut D,
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        ready!(quic::SendStream::<B>::poll_ready(self, cx))?;
        let written = self.stream.poll_write_buf(cx, buf);
        written.map_err(error::of_write)
    }
}

impl RecvStream {
    pub(crate) fn unidirectional(
        connection: &mpquic_tokio::Connection,
        stream: mpquic_tokio::RecvStream,
        max_frame_size: u64,
        priorities: &Priorities,
    ) -> Self {
        let is_of_client = stream.id().initiator() == Side::Client;
        Self {
            connection: connection.clone(),
            stream,
            units: Units::of_unidirectional(max_frame_size),
            control: Some(Control::new(is_of_client.then(|| priorities.clone()))),
            begins_request: false,
            on_drop: Code::H3_NO_ERROR,
            ended: false,
        }
    }

    /// A unit of a stream whose request was not handed out yet. Frames of reserved types may come before it.
    fn first(&mut self, unit: Bytes) -> Bytes {
        self.begins_request = !is_headers(&unit);
        marked(unit)
    }

    /// Closes the connection, for the peer broke the rules.
    fn fail(&self, code: Code, reason: &'static str) -> StreamErrorIncoming {
        let code = error::code(code.value());
        self.connection.close(code, reason.as_bytes());
        StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: ConnectionErrorIncoming::Undefined(Arc::new(io::Error::new(
                io::ErrorKind::InvalidData,
                reason,
            ))),
        }
    }

    /// What of a unit is for h3.
    fn check(&mut self, unit: Unit) -> Result<Option<Bytes>, StreamErrorIncoming> {
        let checked = match (&unit, &mut self.control) {
            (Unit::Frame(frame), Some(control)) => control.on_frame(frame),
            (Unit::Frame(frame), None) if is_priority_update(frame) => {
                Err(Code::H3_FRAME_UNEXPECTED)
            }
            (Unit::StreamType { kind, .. }, Some(control)) => {
                control.on_stream_type(*kind).map(|()| true)
            }
            _ => Ok(true),
        };
        let is_for_h3 = checked.map_err(|code| self.fail(code, "a stream or frame is wrong"))?;
        let (Unit::Bytes(bytes)
        | Unit::StreamType { bytes, .. }
        | Unit::Frame(Frame { bytes, .. })) = unit;
        Ok(is_for_h3.then_some(bytes))
    }

    fn stop(&mut self, code: Code) {
        self.ended = true;
        // A stream that ended before need not be stopped.
        let _ = self.stream.stop(error::code(code.value()));
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // Who does not expect a body does not read as far as the end of the stream: if it is there,
        // the peer need not be told anything.
        let mut cx = Context::from_waker(Waker::noop());
        if !matches!(
            self.stream.poll_read_chunk(&mut cx, 1, true),
            Poll::Ready(Ok(None))
        ) {
            self.stop(self.on_drop);
        }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            match self.units.next() {
                Ok(Some(unit)) => match self.check(unit)? {
                    Some(bytes) if self.begins_request => {
                        return Poll::Ready(Ok(Some(self.first(bytes))));
                    }
                    Some(bytes) => return Poll::Ready(Ok(Some(bytes))),
                    None => continue,
                },
                Ok(None) => {}
                Err(FrameTooLong) => {
                    self.stop(Code::H3_EXCESSIVE_LOAD);
                    return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                        error_code: Code::H3_EXCESSIVE_LOAD.value(),
                    }));
                }
            }
            match ready!(self.stream.poll_read_chunk(cx, usize::MAX, true)) {
                Ok(Some(chunk)) => self.units.push(chunk.bytes),
                Ok(None) => {
                    self.ended = true;
                    return Poll::Ready(match self.units.is_in_data() {
                        // RFC 9114 section 7.1: something was lost. h3 would take it for the end.
                        true => {
                            Err(self.fail(Code::H3_FRAME_ERROR, "a stream ended within a frame"))
                        }
                        false => Ok(self.units.end()),
                    });
                }
                Err(error) => return Poll::Ready(Err(error::of_read(error))),
            }
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.stop(Code::from(error_code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> quic::SendStreamUnframed<B> for BidiStream<B> {
    fn poll_send<D: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut D,
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        self.send.poll_send(cx, buf)
    }
}

impl<B> quic::RecvStream for BidiStream<B> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl<B: Buf> quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream<B>, RecvStream) {
        (self.send, self.recv)
    }
}

fn stream_id(id: mpquic_tokio::StreamId) -> StreamId {
    // Both count up to 2^62 - 1.
    StreamId::try_from(u64::from(id)).unwrap_or_else(|_| unreachable!("{id} is a stream ID"))
}
