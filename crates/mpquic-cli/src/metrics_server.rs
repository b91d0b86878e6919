//! Figures and health over HTTP/1 and TCP, for those who watch a server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// The longest that a request may be, bytes, and may take.
const MAX_REQUEST: usize = 8 << 10;
const MAX_TIME: Duration = Duration::from_secs(5);
/// Requests answered at a time.
const MAX_OPEN: usize = 32;

/// Answers until it is dropped. `metrics` makes the text.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
    is_ending: watch::Receiver<bool>,
) {
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
        let metrics = metrics.clone();
        let ending = *is_ending.borrow();
        tokio::spawn(async move {
            // Who reads or writes too slowly gets nothing.
            let _ = tokio::time::timeout(MAX_TIME, answer(stream, &*metrics, ending)).await;
            drop(permit);
        });
    }
}

async fn answer(
    mut stream: TcpStream,
    metrics: &(dyn Fn() -> String + Send + Sync),
    ending: bool,
) -> io::Result<()> {
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
    let path = target.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => (
            "200 OK",
            "text/plain; version=0.0.4; charset=utf-8",
            metrics(),
        ),
        ("GET" | "HEAD", "/health") if ending => {
            ("503 Service Unavailable", plain, "ending\n".to_owned())
        }
        ("GET" | "HEAD", "/health") => ("200 OK", plain, "ok\n".to_owned()),
        ("GET" | "HEAD", _) => {
            let told = "see /metrics and /health\n".to_owned();
            ("404 Not Found", plain, told)
        }
        _ => (
            "405 Method Not Allowed",
            plain,
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
