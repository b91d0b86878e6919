//! A service written for axum, over HTTP/3 and all paths of its clients.
//!
//! ```text
//! cargo run -- 127.0.0.1:4433 [CHAIN.pem KEY.pem]
//! ```
//!
//! Without a certificate, the service makes a self-signed certificate, and prints a command line of
//! `mpquic get` that trusts it. After SIGINT or SIGTERM, the service answers the requests that have
//! begun, and ends.

mod serve;

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http_body_util::BodyExt;
use mpquic_tokio::{Connection, Endpoint, PathState, ServerConfig, certificate_fingerprint};
use serde::Serialize;

type Failure = Box<dyn Error + Send + Sync>;

/// The longest time for requests that have begun when the service ends.
const GRACE: Duration = Duration::from_secs(10);

/// The routes of the service.
fn service() -> Router {
    Router::new()
        .route("/hello/{name}", get(hello))
        .route("/length", post(length))
        .route("/paths", get(paths))
}

async fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!\n")
}

#[derive(Serialize)]
struct Length {
    bytes: usize,
}

/// Answers with the length of a body. The body is never in memory as a whole.
async fn length(mut body: Body) -> Result<Json<Length>, StatusCode> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        bytes += frame.data_ref().map_or(0, |data| data.len());
    }
    Ok(Json(Length { bytes }))
}

/// A path from the client, as the server sees it.
#[derive(Serialize)]
struct ClientPath {
    id: u32,
    /// The client's address.
    remote: SocketAddr,
    is_active: bool,
    rtt_ms: f64,
    bytes_sent: u64,
    bytes_received: u64,
}

/// Answers with the paths of the request's connection, which [`serve::serve`] adds to each request.
async fn paths(Extension(connection): Extension<Connection>) -> Json<Vec<ClientPath>> {
    let paths = connection.path_stats().into_iter();
    let paths = paths.map(|path| ClientPath {
        id: path.id.0,
        remote: path.four_tuple.remote,
        is_active: path.state == PathState::Active,
        rtt_ms: path.rtt.as_secs_f64() * 1e3,
        bytes_sent: path.bytes_sent,
        bytes_received: path.bytes_received,
    });
    Json(paths.collect())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let alpn = [mpquic_h3::ALPN];
    let (address, config, pin) = match words[..] {
        [address] => {
            let (config, certificate) = ServerConfig::self_signed(&["localhost"], &alpn)?;
            (address, config, Some(certificate_fingerprint(&certificate)))
        }
        [address, chain, key] => {
            let config = ServerConfig::with_pem(&fs::read(chain)?, &fs::read(key)?, &alpn)?;
            (address, config, None)
        }
        _ => return Err("usage: axum-service ADDRESS:PORT [CHAIN.pem KEY.pem]".into()),
    };
    let endpoint = Endpoint::server(config, address.parse()?)?;
    let trust = match pin {
        Some(pin) => format!(
            "--pin sha256:{} ",
            pin.map(|byte| format!("{byte:02x}")).concat()
        ),
        None => String::new(),
    };
    println!(
        "mpquic get {trust}-o - https://{}/paths",
        endpoint.local_addr()?
    );
    serve::serve(endpoint, service(), told_to_end()?, GRACE).await;
    Ok(())
}

/// Waits for SIGINT or SIGTERM.
fn told_to_end() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests;
