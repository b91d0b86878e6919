//! Streams for reading and writing by `h3`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, StreamErrorIncoming, StreamId, WriteBuf};
use mpquic_tokio::Side;

use crate::body;
use crate::connect::{corrected, marked};
use crate::control::{Control, check_request_frame};
use crate::error::{self, MalformedMessage};
use crate::fields::Wrong;
use crate::message::{Asked, Message, Section};
use crate::priorities::Priorities;
use crate::units::{FrameTooLong, Unit, Units};

/// Pieces read under one lock of the connection. Few, because read data no longer waits in the
/// connection, which would copy waiting data some day to use memory well.
const PIECES: usize = 16;
/// Frame type of HEADERS (RFC 9114 section 7.2.2).
const HEADERS: u64 = 0x01;
/// Shorter pieces are copied if they wait, bytes.
const SHORT: usize = 512;

/// A stream for a request and its response.
#[derive(Debug)]
pub struct BidiStream<B> {
    send: SendStream<B>,
    recv: RecvStream,
}

/// The sending half of a stream.
pub struct SendStream<B> {
    stream: mpquic_tokio::SendStream,
    /// Data without room yet.
    writing: Option<Box<Writing<B>>>,
    /// The stream is for our own request, and has no data yet.
    begins_request: bool,
    /// Finished or reset, or of a kind that ends when it is dropped.
    ended: bool,
    /// After the halves are split: set if the other half received malformed data.
    is_malformed: Option<Arc<AtomicBool>>,
}

/// A write in progress.
enum Writing<B> {
    AsGiven(WriteBuf<B>),
    /// A frame that was looked at, and perhaps changed.
    Frame(Bytes),
    /// The header of a frame, and a body that is not copied.
    Shared([Bytes; 2]),
}

impl<B: Buf> Writing<B> {
    fn new(mut data: WriteBuf<B>) -> Self {
        body::take(&mut data).map_or(Self::AsGiven(data), Self::Shared)
    }

    /// Writes all of it.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut mpquic_tokio::SendStream,
    ) -> Poll<Result<(), StreamErrorIncoming>> {
        loop {
            let written = match self {
                Self::AsGiven(data) => ready!(stream.poll_copy_buf(cx, data)),
                Self::Frame(data) => ready!(stream.poll_copy_buf(cx, data)),
                Self::Shared(pieces) if pieces.iter().all(Bytes::is_empty) => Ok(0),
                Self::Shared(pieces) => {
                    let written = ready!(stream.poll_write_chunks(cx, pieces));
                    written.map(|written| written.bytes)
                }
            };
            if written.map_err(error::of_write)? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// The receiving half of a stream.
#[derive(Debug)]
pub struct RecvStream(Box<Receiving>);

/// In a place of its own, because futures move streams often.
#[derive(Debug)]
struct Receiving {
    connection: mpquic_tokio::Connection,
    stream: mpquic_tokio::RecvStream,
    units: Units,
    /// Bytes that were read and come after the units.
    arrived: [Bytes; PIECES],
    /// Pieces not handed out yet.
    waiting: Range<usize>,
    rules: Rules,
    /// Checked data that comes next.
    ahead: Option<Bytes>,
    /// The trailers are handed out at the end of the stream: no frame may follow them.
    trailers: Option<Bytes>,
    is_malformed: bool,
    /// Once the halves are apart: tells the other one.
    tells_malformed: Option<Arc<AtomicBool>>,
    /// Set if dropping has no effect.
    ended: bool,
}

/// The rules of a stream's content.
#[derive(Debug)]
enum Rules {
    Unidirectional(Control),
    Message(Message),
}

impl<B> BidiStream<B> {
    /// A stream that we opened, as a client.
    pub(crate) fn opened(
        connection: &mpquic_tokio::Connection,
        streams: (mpquic_tokio::SendStream, mpquic_tokio::RecvStream),
        max_frame_size: u64,
    ) -> Self {
        let mut stream = Self::new(connection, streams, max_frame_size, Message::answer());
        stream.send.begins_request = true;
        stream
    }

    /// A stream that the peer opened.
    pub(crate) fn accepted(
        connection: &mpquic_tokio::Connection,
        streams: (mpquic_tokio::SendStream, mpquic_tokio::RecvStream),
        max_frame_size: u64,
    ) -> Self {
        Self::new(connection, streams, max_frame_size, Message::request())
    }

    fn new(
        connection: &mpquic_tokio::Connection,
        (send, recv): (mpquic_tokio::SendStream, mpquic_tokio::RecvStream),
        max_frame_size: u64,
        message: Message,
    ) -> Self {
        let units = Units::of_request(max_frame_size);
        let rules = Rules::Message(message);
        Self {
            send: SendStream {
                stream: send,
                writing: None,
                begins_request: false,
                ended: false,
                is_malformed: None,
            },
            recv: RecvStream::new(connection, recv, units, rules),
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
            is_malformed: None,
        }
    }

    /// Ends the stream after malformed input.
    fn refuse(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.writing = None;
            let code = error::code(Code::H3_MESSAGE_ERROR.value());
            let _ = self.stream.reset(code);
        }
    }
}

impl<B: Buf> SendStream<B> {
    /// Writes the first frame of a request of ours, and tells how it asks.
    fn begin_request(&mut self, mut data: WriteBuf<B>) -> Result<Asked, StreamErrorIncoming> {
        let (frame, asked) = corrected(data.copy_to_bytes(data.remaining()));
        self.write(Writing::Frame(frame)).map(|()| asked)
    }

    fn write(&mut self, mut data: Writing<B>) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            let error = "data was given to a stream that was not ready for it";
            return Err(StreamErrorIncoming::Unknown(error.into()));
        }
        // Mostly there is room for all bytes. Otherwise, h3 asks again with the next room.
        let mut cx = Context::from_waker(Waker::noop());
        match data.poll_write(&mut cx, &mut self.stream) {
            Poll::Ready(written) => written,
            Poll::Pending => {
                self.writing = Some(Box::new(data));
                Ok(())
            }
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
        let is_malformed = self.is_malformed.as_ref();
        if is_malformed.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            self.refuse();
        }
        if !self.ended {
            // RFC 9114 section 4.1.1: a part must not look like the whole. A stream stopped by the
            // peer needs no reset.
            let code = error::code(Code::H3_REQUEST_CANCELLED.value());
            let _ = self.stream.reset(code);
        }
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(data) = &mut self.writing {
            let written = ready!(data.poll_write(cx, &mut self.stream));
            self.writing = None;
            written?;
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if std::mem::take(&mut self.begins_request) {
            return self.begin_request(data.into()).map(drop);
        }
        self.write(Writing::new(data.into()))
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
    fn new(
        connection: &mpquic_tokio::Connection,
        stream: mpquic_tokio::RecvStream,
        units: Units,
        rules: Rules,
    ) -> Self {
        Self(Box::new(Receiving {
            connection: connection.clone(),
            stream,
            units,
            waiting: 0..0,
            arrived: [const { Bytes::new() }; PIECES],
            rules,
            ahead: None,
            trailers: None,
            is_malformed: false,
            tells_malformed: None,
            ended: false,
        }))
    }

    pub(crate) fn unidirectional(
        connection: &mpquic_tokio::Connection,
        stream: mpquic_tokio::RecvStream,
        max_frame_size: u64,
        priorities: &Priorities,
    ) -> Self {
        let is_of_client = stream.id().initiator() == Side::Client;
        let priorities = is_of_client.then(|| priorities.clone());
        let units = Units::of_unidirectional(max_frame_size);
        let rules = Rules::Unidirectional(Control::new(priorities));
        Self::new(connection, stream, units, rules)
    }

    /// The type of a unidirectional stream; its bytes are still handed out. `None` if the stream
    /// ended before its type.
    pub(crate) fn poll_kind(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        let bytes = ready!(self.0.poll_data(cx));
        self.0.ahead = bytes.ok().flatten();
        match &self.0.rules {
            Rules::Unidirectional(control) => Poll::Ready(control.kind()),
            Rules::Message(_) => Poll::Ready(None),
        }
    }

    /// Leaves out the type.
    pub(crate) fn skip_kind(&mut self) {
        self.0.ahead = None;
    }

    /// The next bytes.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.0.poll_data(cx)
    }
}

impl Receiving {
    /// Closes the connection, for the peer broke the rules.
    fn fail(&self, code: Code, reason: &'static str) -> StreamErrorIncoming {
        StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: error::closed(&self.connection, code, reason),
        }
    }

    /// Ends the connection or the stream after a broken rule, and returns the error.
    fn wrong(&mut self, wrong: Wrong) -> StreamErrorIncoming {
        match wrong {
            Wrong::Connection(code) => self.fail(code, "a stream or frame is wrong"),
            Wrong::Message(reason) => {
                self.stop(Code::H3_MESSAGE_ERROR);
                self.is_malformed = true;
                if let Some(tells) = &self.tells_malformed {
                    tells.store(true, Ordering::Relaxed);
                }
                StreamErrorIncoming::Unknown(Box::new(MalformedMessage::new(reason)))
            }
        }
    }

    /// The part of a unit that is for h3.
    fn check(&mut self, unit: Unit) -> Result<Option<Bytes>, Wrong> {
        match (unit, &mut self.rules) {
            (Unit::Frame(frame), Rules::Unidirectional(control)) => {
                let is_for_h3 = control.on_frame(&frame).map_err(Wrong::Connection)?;
                Ok(is_for_h3.then_some(frame.bytes))
            }
            (Unit::StreamType { kind, bytes }, Rules::Unidirectional(control)) => {
                control.on_stream_type(kind).map_err(Wrong::Connection)?;
                Ok(Some(bytes))
            }
            (Unit::Frame(frame), Rules::Message(message)) if frame.kind == HEADERS => {
                match message.on_headers(frame.payload())? {
                    Section::Fields { is_special: true } => {
                        Ok(marked(frame.payload()).or(Some(frame.bytes)))
                    }
                    Section::Fields { is_special: false } => Ok(Some(frame.bytes)),
                    Section::Trailers => {
                        self.trailers = Some(frame.bytes);
                        Ok(None)
                    }
                }
            }
            (Unit::Frame(frame), Rules::Message(message)) => {
                check_request_frame(&frame, message.is_answer()).map_err(Wrong::Connection)?;
                Ok(Some(frame.bytes))
            }
            (Unit::Data { length, bytes }, Rules::Message(message)) => {
                message.on_data(length)?;
                // An empty one says nothing, but h3 would take it for the end of the body.
                Ok((length > 0).then_some(bytes))
            }
            (Unit::Bytes(bytes) | Unit::StreamType { bytes, .. } | Unit::Data { bytes, .. }, _) => {
                Ok(Some(bytes))
            }
        }
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if let Some(bytes) = self.ahead.take() {
            return Poll::Ready(Ok(Some(bytes)));
        }
        let was_wanted = self.wants_content();
        let bytes = ready!(self.poll_next(cx))?;
        if !was_wanted && self.wants_content() {
            self.look_ahead()?;
        }
        Poll::Ready(Ok(bytes))
    }

    /// True for a request of the peer's whose content has to follow.
    fn wants_content(&self) -> bool {
        match &self.rules {
            Rules::Message(message) => !message.is_answer() && message.wants_content(),
            Rules::Unidirectional(_) => false,
        }
    }

    /// A reader that ignores content would not notice missing or extra content: a request already
    /// known to be wrong is not handed out.
    fn look_ahead(&mut self) -> Result<(), StreamErrorIncoming> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_next(&mut cx) {
            Poll::Ready(next) => self.ahead = next?,
            Poll::Pending => {}
        }
        Ok(())
    }

    /// The next bytes for h3.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            match self.units.next() {
                Ok(Some(unit)) => match self.check(unit) {
                    Ok(Some(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                    Ok(None) => continue,
                    Err(wrong) => return Poll::Ready(Err(self.wrong(wrong))),
                },
                Ok(None) => {}
                Err(FrameTooLong) => return Poll::Ready(Err(self.refuse())),
            }
            match ready!(self.poll_arrived(cx))? {
                Some(bytes) => {
                    let unit = self.units.push(bytes);
                    if unit.is_some() {
                        return Poll::Ready(Ok(unit));
                    }
                }
                None => return Poll::Ready(self.finished()),
            }
        }
    }

    /// The next bytes of the stream.
    fn poll_arrived(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if let Some(bytes) = self.next_arrived() {
            return Poll::Ready(Ok(Some(bytes)));
        }
        let read = self.stream.poll_read_chunks(cx, &mut self.arrived);
        let read = ready!(read).map_err(error::of_read)?.unwrap_or_default();
        self.waiting = 0..read;
        // What waits here counts nowhere: short pieces do not keep the datagrams they came in.
        for piece in self.arrived.iter_mut().take(read).skip(1) {
            if piece.len() < SHORT {
                *piece = Bytes::copy_from_slice(piece);
            }
        }
        Poll::Ready(Ok(self.next_arrived()))
    }

    /// The next piece that was read and not handed out.
    fn next_arrived(&mut self) -> Option<Bytes> {
        let index = self.waiting.next()?;
        self.arrived.get_mut(index).map(std::mem::take)
    }

    /// The end of the stream: the trailers, if any.
    fn finished(&mut self) -> Result<Option<Bytes>, StreamErrorIncoming> {
        self.ended = true;
        if self.units.is_in_frame() {
            // RFC 9114 section 7.1. h3 would take missing data for the end, and the beginning of
            // another frame for the bytes before the trailers.
            return Err(self.fail(Code::H3_FRAME_ERROR, "a stream ended within a frame"));
        }
        if let Rules::Message(message) = &self.rules {
            message.on_end().map_err(|wrong| self.wrong(wrong))?;
        }
        Ok(self.trailers.take())
    }

    /// Ends the stream, for a frame is too long; with the control stream, the connection.
    fn refuse(&mut self) -> StreamErrorIncoming {
        let code = Code::H3_EXCESSIVE_LOAD;
        if let Rules::Unidirectional(_) = self.rules {
            return self.fail(code, "a frame is too long");
        }
        self.stop(code);
        StreamErrorIncoming::StreamTerminated {
            error_code: code.value(),
        }
    }

    fn stop(&mut self, code: Code) {
        self.ended = true;
        // A stream that ended before need not be stopped.
        let _ = self.stream.stop(error::code(code.value()));
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // A reader that expects no body does not read up to the end of the stream: with the end
        // already here, the peer need not be told to stop.
        let mut cx = Context::from_waker(Waker::noop());
        if !matches!(
            self.stream.poll_read_chunk(&mut cx, 1, true),
            Poll::Ready(Ok(None))
        ) {
            self.stop(match &self.rules {
                Rules::Message(message) if message.is_answer() => Code::H3_REQUEST_CANCELLED,
                // RFC 9114 section 4.1: a server may do without the rest of a request.
                _ => Code::H3_NO_ERROR,
            });
        }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.0.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.0.stop(Code::from(error_code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.0.stream.id())
    }
}

impl<B: Buf> quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if !std::mem::take(&mut self.send.begins_request) {
            return self.send.send_data(data);
        }
        let asked = self.send.begin_request(data.into())?;
        if let Rules::Message(message) = &mut self.recv.0.rules {
            message.on_asked(asked);
        }
        Ok(())
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
        let polled = self.recv.poll_data(cx);
        if self.recv.0.is_malformed {
            self.send.refuse();
        }
        polled
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

    fn split(mut self) -> (SendStream<B>, RecvStream) {
        let is_malformed = Arc::new(AtomicBool::new(self.recv.0.is_malformed));
        self.send.is_malformed = Some(is_malformed.clone());
        self.recv.0.tells_malformed = Some(is_malformed);
        (self.send, self.recv)
    }
}

fn stream_id(id: mpquic_tokio::StreamId) -> StreamId {
    // Both count up to 2^62 - 1.
    StreamId::try_from(u64::from(id)).unwrap_or_else(|_| unreachable!("{id} is a stream ID"))
}
