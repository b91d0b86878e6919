//! The server's side of HTTP/3.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::Response;
use mpquic_h3::h3::error::{Code, ConnectionError, StreamError};
use mpquic_h3::h3::server::{self, RequestResolver, RequestStream};
use mpquic_h3::{
    Body, Priorities, Priority, RecvStream, SendStream, describe_connection_error, h3,
};
use mpquic_tokio::{Connection, StreamId, StreamWatch, VarInt};
use tokio::sync::mpsc;

use crate::serve::change::RequestBody;
use crate::serve::drain::Draining;
use crate::serve::drain::ENDS;
use crate::serve::http_service;
use crate::serve::presence;
use crate::serve::send_file::{Exchange, Outlet, QuicSession, Refusal, Session};

/// Longest wait for requests that left before the client learned of the server's end.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Longest request fields in bytes: as sent, and decoded as `h3` counts.
const MAX_FIELDS: u32 = 16 << 10;
/// Most bytes to read of a request's body.
const MAX_BODY: usize = 8 << 10;
/// Most bytes of the header of a DATA frame.
const DATA_HEADER: usize = 9;

/// HTTP/3 with one client, and one of its requests.
type Connected<B> = server::Connection<mpquic_h3::Connection, B>;
type Request<B> = RequestResolver<mpquic_h3::Connection, B>;

/// Answers the requests of one client until the connection ends. Returns the reason of the end.
pub(crate) async fn serve(session: QuicSession, draining: Draining) -> String {
    let session = Arc::new(session);
    let quic = mpquic_h3::Connection::new(session.connection.clone()).max_frame_size(MAX_FIELDS);
    let mut builder = server::builder();
    builder.max_field_section_size(MAX_FIELDS.into());
    let priorities = quic.priorities();
    let answer = |request| {
        let (session, priorities) = (session.clone(), priorities.clone());
        async move { receive(&session, &priorities, request).await }
    };
    serve_requests(&session.connection, builder.build(quic), answer, draining).await
}

/// Starts a task for each request of a client until the connection ends. Returns the reason of the
/// end.
pub(crate) async fn serve_requests<B, F>(
    connection: &Connection,
    begin: impl Future<Output = Result<Connected<B>, ConnectionError>>,
    answer: impl Fn(Request<B>) -> F,
    draining: Draining,
) -> String
where
    B: Buf + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let ended = match begin.await {
        Ok(mut connected) => {
            let ended = accept(connection, &mut connected, answer, draining).await;
            if ended.is_ok() {
                // The client sends no further requests. The connection stays open, because the end
                // of the last answer may still be on its way.
                connection.closed().await;
            }
            ended
        }
        Err(error) => Err(error),
    };
    match (ended, connection.close_reason()) {
        (Err(error @ ConnectionError::Local { .. }), _) => describe_connection_error(&error),
        (_, Some(reason)) => reason.to_string(),
        (Err(error), None) => describe_connection_error(&error),
        (Ok(()), None) => "done".to_owned(),
    }
}

/// Accepts requests until the client sends no more, or until the server ends and all requests are
/// answered.
async fn accept<B, F>(
    connection: &Connection,
    connected: &mut Connected<B>,
    answer: impl Fn(Request<B>) -> F,
    mut draining: Draining,
) -> Result<(), ConnectionError>
where
    B: Buf + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    // Every request holds a sender until its answer has arrived.
    let (open, mut answered) = mpsc::channel::<Infallible>(1);
    let begin = |request| {
        // The future is large, and the box avoids copies on its way to the task.
        let (answered, open) = (Box::pin(answer(request)), open.clone());
        tokio::spawn(async move {
            answered.await;
            drop(open);
        });
    };
    let mut is_first = true;
    loop {
        tokio::select! {
            request = connected.accept() => match request? {
                Some(request) => begin(request),
                None => {
                    // `h3` knows of no further requests. The connection stays open, because the end
                    // of the last answer may still be on its way.
                    mpquic_h3::reject_requests(connection).await;
                    return Ok(());
                }
            },
            () = draining.begun() => break,
        }
        is_first = false;
    }
    // RFC 9114 section 5.2: the first GOAWAY excludes no request, because requests may be on their
    // way. Before the first request, `h3` names the first stream, and no wait is needed.
    connected.shutdown(usize::MAX).await?;
    if !is_first {
        let round_trip = connection.rtt().unwrap_or_default();
        let over = tokio::time::sleep(round_trip.min(LONGEST_WAIT));
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => break,
                request = connected.accept() => match request? {
                    Some(request) => begin(request),
                    None => break,
                },
            }
        }
    }
    connected.shutdown(1).await?;
    drop(open);
    loop {
        tokio::select! {
            request = connected.accept() => match request? {
                Some(request) => drop(tokio::spawn(reject(request))),
                None => {
                    let _ = answered.recv().await;
                    break;
                }
            },
            _ = answered.recv() => break,
        }
    }
    connection.close(code(Code::H3_NO_ERROR), ENDS);
    Ok(())
}

/// Tells a client that the server did nothing for its request, so another server may get the
/// request.
async fn reject<B: Buf>(request: Request<B>) {
    if let Ok((_, mut stream)) = request.resolve_request().await {
        stream.stop_sending(Code::H3_REQUEST_REJECTED);
        stream.stop_stream(Code::H3_REQUEST_REJECTED);
    }
}

/// Receives a request and answers it.
async fn receive(session: &QuicSession, priorities: &Priorities, request: Request<Body>) {
    // Dropping a request resets its stream.
    if let Some(memory) = session.limits.request() {
        let answered = Box::pin(receive_with_memory(session, priorities, request));
        let _gave_way = memory.keep(answered).await;
    }
}

async fn receive_with_memory(
    session: &QuicSession,
    priorities: &Priorities,
    request: Request<Body>,
) {
    let _place = session.limits.place().await;
    let (request, stream) = match session.limits.progress(request.resolve_request()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(StreamError::RemoteTerminate { .. })) => {
            return session.on_cancelled(code(Code::H3_EXCESSIVE_LOAD));
        }
        // Dropping the request resets its stream. `h3` has told the client of other errors.
        Ok(Err(_)) | Err(_) => return,
    };
    let _in_use = session.limits.in_use();
    let watch = watch(&session.connection, &stream);
    priorities.set(stream.id(), Priority::of_request(request.headers()));
    let (send, mut recv) = stream.split();
    let mut answer = Answer {
        connection: &session.connection,
        send,
        watch: watch.clone(),
    };
    let answered = http_service::answer(session, &request, &mut answer, &mut recv).await;
    if let Err(refusal) = answered {
        if matches!(refusal, Refusal::Failed | Refusal::BadRequest) {
            answer.send.stop_stream(Code::H3_INTERNAL_ERROR);
        }
        // Dropping an unfinished stream resets the stream.
        drop(answer);
        if refusal == Refusal::Cancelled {
            session.on_cancelled(code(Code::H3_EXCESSIVE_LOAD));
        }
        return;
    }
    drop(answer);
    read_rest(session, &mut recv).await;
    drop(recv);
    // The client may cancel the request until its answer has arrived.
    if let Ok(Some(_)) = watch.stopped().await {
        session.on_cancelled(code(Code::H3_EXCESSIVE_LOAD));
    }
}

fn watch<S, B>(connection: &Connection, stream: &RequestStream<S, B>) -> StreamWatch
where
    S: h3::quic::SendStream<B>,
    B: Buf,
{
    let id = VarInt::from_u64(stream.send_id().into_inner()).unwrap_or(VarInt::MAX);
    connection.watch_stream(StreamId::from(id))
}

/// Reads the bytes after a request, in most cases only the end of the stream. Dropping the stream
/// earlier would tell the client to stop sending, which some clients take for a failure.
async fn read_rest(session: &Session, recv: &mut RequestStream<RecvStream, Body>) {
    let mut room = MAX_BODY;
    while room > 0 {
        let Ok(Ok(Some(data))) = session.limits.progress(recv.recv_data()).await else {
            return;
        };
        room = room.saturating_sub(data.remaining());
    }
}

/// The answer to a request.
struct Answer<'a> {
    connection: &'a Connection,
    send: RequestStream<SendStream<Body>, Body>,
    watch: StreamWatch,
}

impl Outlet for Answer<'_> {
    async fn writable(&mut self) -> Result<usize, Refusal> {
        Ok(self.watch.writable().await?)
    }

    async fn stopped(&mut self) -> Refusal {
        // An unfinished stream ends the wait only if the client stops the stream, or if the
        // connection is lost.
        let stopped = self.watch.stopped().await;
        stopped.map_or(Refusal::Gone, |_| Refusal::Cancelled)
    }

    fn is_cancelled(&mut self) -> bool {
        // The request is complete, so the client can cancel only the answer.
        false
    }

    async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
        // `h3` accepts whole pieces only, so a piece is no larger than the room. Then each piece is
        // progress.
        let room = self.watch.writable().await?;
        let length = room.saturating_sub(DATA_HEADER).clamp(1, piece.len());
        let data = piece.split_to(length);
        self.send.send_data(data.into()).await.map_err(refusal)
    }
}

impl Exchange for Answer<'_> {
    fn protocol(&self) -> &'static str {
        "HTTP/3"
    }

    fn has_interim(&self) -> bool {
        true
    }

    async fn head(&mut self, head: Response<()>) -> Result<(), Refusal> {
        if let Some(length) = http_service::content_length(&head) {
            // The size of the content, without the headers of frames. A closed stream needs no
            // size.
            let _ = self.watch.set_expected_size(length);
        }
        self.send.send_response(head).await.map_err(refusal)
    }

    async fn finish(&mut self) -> Result<(), Refusal> {
        self.send.finish().await.map_err(refusal)
    }

    async fn present(&mut self) -> Result<(), Refusal> {
        presence::sign_of(self.connection).await
    }
}

impl RequestBody for RequestStream<RecvStream, Body> {
    async fn data(&mut self) -> Result<Option<Bytes>, Refusal> {
        let data = self.recv_data().await.map_err(refusal)?;
        Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
    }
}

fn refusal(error: StreamError) -> Refusal {
    match error {
        StreamError::RemoteTerminate { .. } => Refusal::Cancelled,
        _ => Refusal::Gone,
    }
}

fn code(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests;
