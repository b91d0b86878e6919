//! [`serve`]: takes the place of `axum::serve`, over HTTP/3.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::{Buf, Bytes};
use futures_util::stream;
use http::{Request, Response};
use http_body_util::BodyExt;
use mpquic_h3::h3::error::{Code, StreamError};
use mpquic_h3::h3::server::{self, RequestResolver, RequestStream};
use mpquic_h3::{BidiStream, Priorities, Priority, RecvStream};
use mpquic_tokio::{Connection, Endpoint, Incoming, VarInt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::Failure;

/// Most bytes of the fields of a request.
const MAX_FIELDS: u64 = 16 << 10;

/// Answers the requests of all clients until `end`. Then unfinished requests are answered for at
/// most `grace`. Each request has the client's [`Connection`] as an extension.
pub(crate) async fn serve(
    endpoint: Endpoint,
    service: Router,
    end: impl Future<Output = ()>,
    grace: Duration,
) {
    let ending = watch::Sender::new(false);
    let mut clients = JoinSet::new();
    tokio::pin!(end);
    loop {
        tokio::select! {
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                clients.spawn(serve_client(incoming, service.clone(), ending.subscribe()));
            }
            // A client that broke the rules has got an error, and a client that went away needs
            // nothing.
            Some(_) = clients.join_next() => {}
            () = &mut end => break,
        }
    }
    ending.send_replace(true);
    let ended = async { while clients.join_next().await.is_some() {} };
    let _unfinished_answers_are_cut_off = timeout(grace, ended).await;
    endpoint.close(code(Code::H3_NO_ERROR), b"the service ends");
    endpoint.wait_all_draining().await;
}

/// Answers one client until the client goes away, or until the service ends and all its answers
/// have arrived.
async fn serve_client(
    incoming: Incoming,
    service: Router,
    mut ending: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let connection = incoming.await?;
    let quic = mpquic_h3::Connection::new(connection.clone());
    let priorities = quic.priorities();
    let mut http = server::builder();
    let mut http = http.max_field_section_size(MAX_FIELDS).build(quic).await?;
    // The drop of this set stops the answers to a client that has gone away.
    let mut answers = JoinSet::new();
    let mut is_ending = false;
    loop {
        tokio::select! {
            request = http.accept() => {
                let Some(request) = request? else { break };
                let client = (connection.clone(), priorities.clone());
                answers.spawn(answer(client, service.clone(), request));
            }
            answered = answers.join_next(), if is_ending || !answers.is_empty() => {
                if answered.is_none() {
                    return Ok(());
                }
            }
            _ = async { ending.wait_for(|is| *is).await.is_ok() }, if !is_ending => {
                is_ending = true;
                // GOAWAY names the requests that came too late, so the client can send them to
                // another server.
                http.shutdown(0).await?;
            }
        }
    }
    // The client sends no further requests, and waits for answers.
    while answers.join_next().await.is_some() {}
    Ok(())
}

/// Answers a request, until the client has the whole answer. A failed answer is reset, so that no
/// client takes a part for the whole.
async fn answer(
    (connection, priorities): (Connection, Priorities),
    service: Router,
    request: RequestResolver<mpquic_h3::Connection, Bytes>,
) -> Result<(), Failure> {
    let (mut request, stream) = request.resolve_request().await?;
    let id = stream.id();
    priorities.set(id, Priority::of_request(request.headers()));
    let sending = connection.watch_stream(VarInt::from_u64(id.into_inner())?.into());
    request.extensions_mut().insert(connection);
    exchange(service, request, stream).await?;
    sending.stopped().await?;
    Ok(())
}

async fn exchange(
    service: Router,
    request: Request<()>,
    stream: RequestStream<BidiStream<Bytes>, Bytes>,
) -> Result<(), Failure> {
    let (mut send, recv) = stream.split();
    let Ok(response) = service.oneshot(request.map(|()| body(recv))).await;
    let (head, mut body) = response.into_parts();
    send.send_response(Response::from_parts(head, ())).await?;
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => send.send_data(data).await?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    send.send_trailers(trailers).await?;
                }
            }
        }
    }
    send.finish().await?;
    Ok(())
}

/// The body of a request. Bytes are read from the connection when the service asks for them.
fn body(recv: RequestStream<RecvStream, Bytes>) -> Body {
    Body::from_stream(stream::try_unfold(recv, async |mut recv| {
        let data = recv.recv_data().await?;
        let data = data.map(|mut data| data.copy_to_bytes(data.remaining()));
        Ok::<_, StreamError>(data.map(|data| (data, recv)))
    }))
}

fn code(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}
