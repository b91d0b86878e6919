//! The server's side of HTTP/3: files with conditions and ranges, and a page for each directory.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, DATE, ETAG, LAST_MODIFIED, LOCATION, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, response};
use mpquic_h3::h3::error::{Code, ConnectionError, StreamError};
use mpquic_h3::h3::server::{self, RequestResolver, RequestStream};
use mpquic_h3::{RecvStream, SendStream, h3};
use mpquic_tokio::{Connection, StoppedError, StreamId, StreamWatch, VarInt};
use tokio::sync::mpsc;

use crate::clock;
use crate::delivery::{Outlet, Over, Refusal, Session};
use crate::directory_page::{page, percent_encode};
use crate::drain::Draining;
use crate::drain::ENDS;
use crate::files::{Listing, OpenContent, Source, is_well_formed, path_of, percent_decode};
use crate::http_upload::{self, Taken};
use crate::limits::OpenFile;
use crate::selection::{Selection, Version};
use crate::urgency;

/// The method that makes a directory.
const MKCOL: &str = "MKCOL";
/// The longest wait for requests that were sent before the client heard of the server's end.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Longest request fields, bytes: as sent, and as `h3` counts them decoded.
const MAX_FIELDS: u32 = 16 << 10;
/// Most that is read of a request's body.
const MAX_BODY: usize = 8 << 10;
/// Most bytes of the header of a DATA frame.
const DATA_HEADER: usize = 9;
/// What a directory shows if it is there.
const INDEX: &str = "index.html";

type Connected = server::Connection<mpquic_h3::Connection, Bytes>;

/// Answers the requests of one client until the connection ends, and tells why it did.
pub(crate) async fn serve(session: Session, draining: Draining) -> String {
    let session = Arc::new(Session {
        too_many_cancelled: code(Code::H3_EXCESSIVE_LOAD),
        ..session
    });
    let quic = mpquic_h3::Connection::new(session.connection.clone()).max_frame_size(MAX_FIELDS);
    let mut builder = server::builder();
    builder.max_field_section_size(MAX_FIELDS.into());
    let ended = match builder.build(quic).await {
        Ok(mut connected) => {
            let ended = accept(&session, &mut connected, draining).await;
            if ended.is_ok() {
                // The client wants nothing more. It gets the end of the last answer only as long as
                // the connection is open.
                session.connection.closed().await;
            }
            ended
        }
        Err(error) => Err(error),
    };
    match (ended, session.connection.close_reason()) {
        (Err(error @ ConnectionError::Local { .. }), _) => error.to_string(),
        (_, Some(reason)) => reason.to_string(),
        (Err(error), None) => error.to_string(),
        (Ok(()), None) => "done".to_owned(),
    }
}

/// Accepts requests until the client wants nothing more, or the server is about to end and every
/// request is answered.
async fn accept(
    session: &Arc<Session>,
    connected: &mut Connected,
    mut draining: Draining,
) -> Result<(), ConnectionError> {
    // Every request has one of the senders until its answer has arrived.
    let (open, mut answered) = mpsc::channel::<Infallible>(1);
    let begin = |request| {
        let (session, open) = (session.clone(), open.clone());
        tokio::spawn(async move {
            receive(&session, request).await;
            drop(open);
        });
    };
    let mut is_first = true;
    loop {
        tokio::select! {
            request = connected.accept() => match request? {
                Some(request) => begin(request),
                None => {
                    // All that h3 knows of. Their end may still be on its way.
                    drop(open);
                    let _ = answered.recv().await;
                    return Ok(());
                }
            },
            () = draining.begun() => break,
        }
        is_first = false;
    }
    // RFC 9114 section 5.2: first a GOAWAY that shuts nothing out, for the requests that are on
    // their way. If there was none yet, h3 names the first one at once.
    connected.shutdown(usize::MAX).await?;
    if !is_first {
        let round_trip = session.connection.rtt().unwrap_or_default();
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
    session.connection.close(code(Code::H3_NO_ERROR), ENDS);
    Ok(())
}

/// Tells a client that nothing was done for its request, so that it may ask another server.
async fn reject(request: RequestResolver<mpquic_h3::Connection, Bytes>) {
    if let Ok((_, mut stream)) = request.resolve_request().await {
        stream.stop_sending(Code::H3_REQUEST_REJECTED);
        stream.stop_stream(Code::H3_REQUEST_REJECTED);
    }
}

/// Receives a request and answers it.
async fn receive(session: &Session, request: RequestResolver<mpquic_h3::Connection, Bytes>) {
    let (request, stream) = match session.limits.progress(request.resolve_request()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(StreamError::RemoteTerminate { .. })) => return session.on_cancelled(),
        // Dropped, and so reset. What else is wrong with it, the client was told by h3.
        Ok(Err(_)) | Err(_) => return,
    };
    let began = clock::now();
    let watch = watch(&session.connection, &stream);
    let priority = urgency::stream_priority(request.headers());
    if priority != 0 {
        // One that is closed needs none.
        let _ = watch.set_priority(priority);
    }
    let (send, mut recv) = stream.split();
    let mut answer = Answer {
        session,
        request: &request,
        send,
        watch: watch.clone(),
    };
    let outcome = answer.run(&mut recv).await;
    log(session, &request, &outcome, began);
    if let Err(refusal) = outcome {
        if matches!(refusal, Refusal::Failed | Refusal::BadRequest) {
            answer.send.stop_stream(Code::H3_INTERNAL_ERROR);
        }
        // What is dropped before its end is reset.
        drop(answer);
        if refusal == Refusal::Cancelled {
            session.on_cancelled();
        }
        return;
    }
    drop(answer);
    read_rest(session, &mut recv).await;
    drop(recv);
    // It may still be cancelled while it waits to be sent.
    if let Ok(Some(_)) = watch.stopped().await {
        session.on_cancelled();
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

fn log(
    session: &Session,
    request: &Request<()>,
    outcome: &Result<(StatusCode, u64), Refusal>,
    began: Instant,
) {
    let what: &dyn Display = match outcome {
        Ok((status, bytes)) => &format!("{}, {bytes} bytes", status.as_u16()),
        Err(Refusal::Stalled) => &"given up, the client reads nothing",
        Err(Refusal::Cancelled | Refusal::Gone) => &"not wanted to the end",
        Err(_) => &"failed",
    };
    let (method, path) = (request.method(), request.uri().path());
    tracing::info!("{method} {}: {what}", path.escape_debug());
    let answered = outcome.as_ref().ok();
    session.on_over(&Over {
        method: method.as_str(),
        target: request
            .uri()
            .path_and_query()
            .map_or(path, PathAndQuery::as_str),
        protocol: "HTTP/3",
        status: answered.map(|(status, _)| status.as_u16()),
        bytes: answered.map_or(0, |(_, bytes)| *bytes),
        began,
    });
}

/// Reads what follows a request, in most cases only the end of the stream. Dropping the stream
/// earlier would tell the client to stop sending, which some clients take for a failure.
async fn read_rest(session: &Session, recv: &mut RequestStream<RecvStream, Bytes>) {
    let mut room = MAX_BODY;
    while room > 0 {
        let Ok(Ok(Some(data))) = session.limits.progress(recv.recv_data()).await else {
            return;
        };
        room = room.saturating_sub(data.remaining());
    }
}

/// What a request's path leads to.
enum Found {
    File(OpenContent),
    Directory(Listing),
    /// A directory, but the path does not end with a slash: links on its page would lead astray.
    WithoutSlash,
}

/// The answer to a request.
struct Answer<'a> {
    session: &'a Session,
    request: &'a Request<()>,
    send: RequestStream<SendStream<Bytes>, Bytes>,
    watch: StreamWatch,
}

impl Outlet for Answer<'_> {
    async fn writable(&mut self) -> Result<usize, Refusal> {
        Ok(self.watch.writable().await?)
    }

    async fn stopped(&mut self) -> Result<Option<VarInt>, StoppedError> {
        self.watch.stopped().await
    }

    fn is_cancelled(&mut self) -> bool {
        // The request is complete, so only its answer can be cancelled.
        false
    }

    async fn write_some(&mut self, piece: &mut Bytes) -> Result<(), Refusal> {
        // h3 takes a piece whole, so it gets no more than there is room for: that is progress.
        let room = self.watch.writable().await?;
        let length = room.saturating_sub(DATA_HEADER).clamp(1, piece.len());
        let data = piece.split_to(length);
        self.send.send_data(data).await.map_err(refusal)
    }
}

impl Answer<'_> {
    /// Returns the status, and the length of the body that was sent.
    async fn run(
        &mut self,
        recv: &mut RequestStream<RecvStream, Bytes>,
    ) -> Result<(StatusCode, u64), Refusal> {
        if !self.session.limits.may_request() {
            let response = status(StatusCode::TOO_MANY_REQUESTS).header(RETRY_AFTER, 1);
            return self.text(response, "too many requests\n").await;
        }
        let method = self.request.method();
        let takes_files = self.session.source.max_upload().is_some();
        let is_directory = method.as_str() == MKCOL;
        let is_upload = (method == Method::PUT || is_directory) && takes_files;
        if !matches!(*method, Method::GET | Method::HEAD) && !is_upload {
            let (allowed, told) = match takes_files {
                true => ("GET, HEAD, PUT, MKCOL", "only GET, HEAD, PUT and MKCOL\n"),
                false => ("GET, HEAD", "only GET and HEAD\n"),
            };
            let response = status(StatusCode::METHOD_NOT_ALLOWED).header(ALLOW, allowed);
            return self.text(response, told).await;
        }
        if !is_well_formed(self.request.uri().path()) {
            let response = status(StatusCode::BAD_REQUEST);
            return self.text(response, "the path makes no sense\n").await;
        }
        let session = self.session;
        let open = session.admit(self).await?;
        if is_upload {
            let taken = match is_directory {
                true => http_upload::make_directory(session, self.request).await?,
                false => http_upload::take(session, self.request, recv).await?,
            };
            let mut response = status(taken.status());
            if let Taken::Stored {
                etag: Some(etag), ..
            } = &taken
            {
                response = response.header(ETAG, etag);
            }
            return match taken.told() {
                Some(told) => self.text(response, told).await,
                None => {
                    let code = self.head(response).await?;
                    self.finish(code, 0).await
                }
            };
        }
        match self.find().await {
            Ok(Found::File(content)) => self.file(content, open).await,
            Ok(Found::Directory(listing)) => {
                drop(open);
                let page = page(self.request.uri().path(), &listing);
                let response = status(StatusCode::OK)
                    .header(CONTENT_TYPE, "text/html; charset=utf-8")
                    .header(CACHE_CONTROL, "no-cache")
                    .header(
                        CONTENT_SECURITY_POLICY,
                        "default-src 'none'; style-src 'unsafe-inline'",
                    );
                self.page(response, page.into()).await
            }
            Ok(Found::WithoutSlash) => {
                let response = status(StatusCode::MOVED_PERMANENTLY);
                let response = response.header(LOCATION, with_slash(self.request.uri().path()));
                self.text(response, "see the same path with a slash\n")
                    .await
            }
            Err(Refusal::NotFound) => {
                self.text(status(StatusCode::NOT_FOUND), "not found\n")
                    .await
            }
            Err(Refusal::Failed) => {
                let response = status(StatusCode::INTERNAL_SERVER_ERROR);
                self.text(response, "cannot read it\n").await
            }
            Err(refusal) => Err(refusal),
        }
    }

    async fn find(&self) -> Result<Found, Refusal> {
        let path = self.request.uri().path();
        if !path.ends_with('/') {
            match self.session.open(path).await {
                Ok(content) => return Ok(Found::File(content)),
                Err(Refusal::NotFound) => {}
                Err(refusal) => return Err(refusal),
            }
            let (source, path) = (self.session.source.clone(), path.to_owned());
            let is_directory = move || source.is_directory(&path);
            return match tokio::task::spawn_blocking(is_directory).await {
                Ok(true) => Ok(Found::WithoutSlash),
                _ => Err(Refusal::NotFound),
            };
        }
        match self.session.open(&format!("{path}{INDEX}")).await {
            Ok(content) => Ok(Found::File(content)),
            Err(Refusal::NotFound) => list(&self.session.source, path).await.map(Found::Directory),
            Err(refusal) => Err(refusal),
        }
    }

    async fn file(
        &mut self,
        mut content: OpenContent,
        _open: OpenFile,
    ) -> Result<(StatusCode, u64), Refusal> {
        let whole = content.length;
        let version = Version::new(whole, content.modified);
        let selection = version.select(self.request.method(), self.request.headers());
        let (code, range) = match selection {
            Selection::Whole => (StatusCode::OK, 0..whole),
            Selection::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            Selection::NotModified => (StatusCode::NOT_MODIFIED, 0..0),
            Selection::PreconditionFailed => {
                let response = status(StatusCode::PRECONDITION_FAILED);
                return self.text(response, "it is another version\n").await;
            }
            Selection::Unsatisfiable => {
                let response = status(StatusCode::RANGE_NOT_SATISFIABLE)
                    .header(CONTENT_RANGE, format!("bytes */{whole}"));
                return self.text(response, "the file is shorter\n").await;
            }
        };
        let mut response = status(code).header(ACCEPT_RANGES, "bytes");
        for (name, value) in [
            (ETAG, version.etag()),
            (LAST_MODIFIED, version.last_modified()),
        ] {
            if let Some(value) = value {
                response = response.header(name, value);
            }
        }
        if code == StatusCode::NOT_MODIFIED {
            self.head(response).await?;
            return self.finish(code, 0).await;
        }
        if code == StatusCode::PARTIAL_CONTENT {
            let last = range.end.saturating_sub(1);
            let range = format!("bytes {}-{last}/{whole}", range.start);
            response = response.header(CONTENT_RANGE, range);
        }
        response = response
            .header(CONTENT_TYPE, media_type(self.request.uri().path()))
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff")
            .header(CONTENT_LENGTH, range.end - range.start);
        self.head(response).await?;
        if self.request.method() == Method::HEAD {
            return self.finish(code, 0).await;
        }
        if code == StatusCode::PARTIAL_CONTENT {
            content.select(range).await?;
        }
        // A file that grows meanwhile is sent as long as was announced.
        let session = self.session;
        let sent = session.send(self, &mut content).await?;
        self.finish(code, sent).await
    }

    /// A short answer for people.
    async fn text(
        &mut self,
        response: response::Builder,
        text: &'static str,
    ) -> Result<(StatusCode, u64), Refusal> {
        let response = response.header(CONTENT_TYPE, "text/plain; charset=utf-8");
        self.page(response, Bytes::from_static(text.as_bytes()))
            .await
    }

    async fn page(
        &mut self,
        response: response::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, u64), Refusal> {
        let response = response
            .header(CONTENT_LENGTH, body.len())
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff");
        let code = self.head(response).await?;
        if self.request.method() == Method::HEAD {
            return self.finish(code, 0).await;
        }
        let length = body.len() as u64;
        let session = self.session;
        session.write(self, body).await?;
        self.finish(code, length).await
    }

    /// Sends status and fields.
    async fn head(&mut self, response: response::Builder) -> Result<StatusCode, Refusal> {
        let date = httpdate::fmt_http_date(clock::time_of_day());
        // Every value was made here, of characters that may stand there.
        let response = response.header(DATE, date).body(());
        let response = response.map_err(|_| Refusal::Failed)?;
        let code = response.status();
        let limits = &self.session.limits;
        let sent = limits.progress(self.send.send_response(response)).await?;
        sent.map_err(refusal)?;
        Ok(code)
    }

    async fn finish(&mut self, code: StatusCode, sent: u64) -> Result<(StatusCode, u64), Refusal> {
        let limits = &self.session.limits;
        let finished = limits.progress(self.send.finish()).await?;
        finished.map_err(refusal)?;
        Ok((code, sent))
    }
}

async fn list(source: &Arc<dyn Source>, path: &str) -> Result<Listing, Refusal> {
    let (source, path) = (source.clone(), path.to_owned());
    let listed = tokio::task::spawn_blocking(move || source.list(&path)).await;
    Ok(listed.map_err(std::io::Error::other)??)
}

fn status(code: StatusCode) -> response::Builder {
    Response::builder().status(code)
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

/// What the name of a file says about its content.
fn media_type(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = match path.ends_with('/') {
        true => INDEX.to_owned(),
        false => percent_decode(name).unwrap_or_default(),
    };
    let guess = mime_guess::from_path(name).first_or_octet_stream();
    let is_text = guess.type_() == mime_guess::mime::TEXT && guess.params().next().is_none();
    let guess = match is_text {
        true => format!("{guess}; charset=utf-8"),
        false => guess.to_string(),
    };
    let unknown = HeaderValue::from_static("application/octet-stream");
    HeaderValue::try_from(guess).unwrap_or(unknown)
}

/// The path of the same directory with a slash at its end, and none too many: two at the beginning
/// would name another host.
fn with_slash(path: &str) -> String {
    let segments = path_of(path).split('/').filter(|part| !part.is_empty());
    let segments = segments.filter_map(percent_decode);
    segments.fold("/".to_owned(), |path, segment| {
        path + &percent_encode(&segment) + "/"
    })
}

#[cfg(test)]
mod tests;
