//! Figures, health and a page of paths over HTTP/1 and TCP, for those who watch a server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::pages;

/// The longest that a request may be, bytes, and may take.
const MAX_REQUEST: usize = 8 << 10;
const MAX_TIME: Duration = Duration::from_secs(5);
/// Requests answered at a time.
const MAX_OPEN: usize = 32;

/// Makes what is told.
pub(crate) type Tell = Box<dyn Fn() -> String + Send + Sync>;

/// What is told.
pub(crate) struct Told {
    /// Figures, in the text format of Prometheus.
    pub(crate) metrics: Tell,
    /// Paths, as JSON for the page; without it there is no page.
    pub(crate) paths: Option<Tell>,
}

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, told: Told, is_ending: watch::Receiver<bool>) {
    let told = Arc::new(told);
    let open = Arc::new(Semaphore::new(MAX_OPEN));
    loop {
        let Ok(permit) = open.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, for example: there will be some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let told = told.clone();
        let ending = *is_ending.borrow();
        tokio::spawn(async move {
            // Who reads or writes too slowly gets nothing.
            let _ = tokio::time::timeout(MAX_TIME, answer(stream, &told, ending)).await;
            drop(permit);
        });
    }
}

async fn answer(mut stream: TcpStream, told: &Told, ending: bool) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < MAX_REQUEST {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (status, kind, body) = match method {
        "GET" | "HEAD" => found(target, told, ending),
        _ => (
            "405 Method Not Allowed",
            PLAIN,
            "only GET and HEAD\n".to_owned(),
        ),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method != "HEAD" {
        answer += &body;
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// Status, type and text of what is asked for.
fn found(target: &str, told: &Told, ending: bool) -> (&'static str, &'static str, String) {
    let ok = "200 OK";
    match (target.split('?').next().unwrap_or_default(), &told.paths) {
        ("/metrics", _) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            (ok, kind, (told.metrics)())
        }
        ("/health", _) if ending => ("503 Service Unavailable", PLAIN, "ending\n".to_owned()),
        ("/health", _) => (ok, PLAIN, "ok\n".to_owned()),
        ("/paths", Some(_)) => (ok, "text/html; charset=utf-8", pages::LIVE.with("")),
        ("/paths.json", Some(paths)) => (ok, "application/json", paths()),
        (_, paths) => {
            let page = if paths.is_some() { ", and /paths" } else { "" };
            let text = format!("see /metrics and /health{page}\n");
            ("404 Not Found", PLAIN, text)
        }
    }
}
