//! Metrics, health and a page of paths over HTTP/1 and TCP, for monitoring.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::pages;

/// Largest request in bytes, and its longest time.
const MAX_REQUEST: usize = 8 << 10;
const MAX_TIME: Duration = Duration::from_secs(5);
/// Most open connections. The oldest gives way to a further one.
const MAX_OPEN: usize = 32;

/// Produces the text of an answer.
pub(crate) type Tell = Box<dyn Fn() -> String + Send + Sync>;

/// The answers of this server.
pub(crate) struct Told {
    /// Figures, in the text format of Prometheus.
    pub(crate) metrics: Tell,
    /// Paths as JSON for the page. Without this, the server has no page.
    pub(crate) paths: Option<Tell>,
}

/// Answers requests until dropped.
pub(crate) async fn serve(listener: TcpListener, told: Told, is_ending: watch::Receiver<bool>) {
    let told = Arc::new(told);
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, for example: a descriptor becomes free soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.retain(|answer| !answer.is_finished());
        if open.len() >= MAX_OPEN
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let told = told.clone();
        let ending = *is_ending.borrow();
        let answer = tokio::spawn(async move {
            // A client that reads or writes too slowly gets no answer.
            let _ = tokio::time::timeout(MAX_TIME, answer(stream, &told, ending)).await;
        });
        open.push_back(answer.abort_handle());
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
    // RFC 9110 section 15.5.6.
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
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

/// Status, media type and text for a target.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(has_page: bool) -> Told {
        let paths: Tell = Box::new(|| "{\"open\":1}".to_owned());
        Told {
            metrics: Box::new(|| "figure 5\n".to_owned()),
            paths: has_page.then_some(paths),
        }
    }

    #[test]
    fn metrics_answer_depends_on_the_target() {
        let found = |target: &str, has_page, ending| {
            let (status, kind, body) = found(target, &told(has_page), ending);
            (status, kind, body)
        };
        let figures = "text/plain; version=0.0.4; charset=utf-8";
        for target in ["/metrics", "/metrics?x=1"] {
            let expected = ("200 OK", figures, "figure 5\n".to_owned());
            assert_eq!(found(target, false, true), expected);
        }
        let healthy = ("200 OK", PLAIN, "ok\n".to_owned());
        assert_eq!(found("/health", true, false), healthy);
        let ending = ("503 Service Unavailable", PLAIN, "ending\n".to_owned());
        assert_eq!(found("/health", true, true), ending);
        let (status, kind, page) = found("/paths", true, false);
        assert_eq!((status, kind), ("200 OK", "text/html; charset=utf-8"));
        assert!(page.contains("</html>"));
        let json = ("200 OK", "application/json", "{\"open\":1}".to_owned());
        assert_eq!(found("/paths.json", true, false), json);
        for (has_page, told) in [
            (true, "see /metrics and /health, and /paths\n"),
            (false, "see /metrics and /health\n"),
        ] {
            let expected = ("404 Not Found", PLAIN, told.to_owned());
            assert_eq!(found("/", has_page, false), expected);
            assert_eq!(found("/paths", has_page, false) == expected, !has_page);
        }
    }

    /// A server and its address. The sender announces the server's end.
    async fn server() -> (std::net::SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ends, is_ending) = watch::channel(false);
        tokio::spawn(serve(listener, told(true), is_ending));
        (address, ends)
    }

    /// The answer to these bytes. With `is_over`, the client closes its side first.
    async fn answer_to(address: std::net::SocketAddr, bytes: &[u8], is_over: bool) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        if is_over {
            stream.shutdown().await.unwrap();
        }
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        crate::testing::soon(read).await.unwrap();
        text
    }

    #[tokio::test]
    async fn metrics_requests_get_their_answers() {
        let (address, ends) = server().await;
        let end = "\r\nHost: x\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
                    Content-Length: 3\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
        let get = format!("GET /health HTTP/1.1{end}");
        let answer = answer_to(address, get.as_bytes(), false).await;
        assert_eq!(answer, format!("{head}ok\n"));
        let request = format!("HEAD /health HTTP/1.1{end}");
        assert_eq!(answer_to(address, request.as_bytes(), false).await, head);
        let request = format!("POST /health HTTP/1.1{end}");
        let answer = answer_to(address, request.as_bytes(), false).await;
        assert!(answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
        assert!(answer.contains("\r\nAllow: GET, HEAD\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nonly GET and HEAD\n"), "{answer}");
        // A client that stops early gets an answer, and so does a client with too long a request.
        let answer = answer_to(address, b"GET /health", true).await;
        assert_eq!(answer, format!("{head}ok\n"));
        let mut long = b"GET /health HTTP/1.1\r\n".to_vec();
        long.resize(MAX_REQUEST, b'x');
        let answer = answer_to(address, &long, false).await;
        assert_eq!(answer, format!("{head}ok\n"));
        ends.send(true).unwrap();
        let answer = answer_to(address, get.as_bytes(), false).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }

    /// A request may arrive in parts: it is answered at its end.
    #[tokio::test]
    async fn half_a_request_is_not_answered() {
        let (address, _ends) = server().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buffer = [0; 8];
        for part in ["GET /hea", "lth HTTP/1.1\r", "\nHost: x\r\n"] {
            stream.write_all(part.as_bytes()).await.unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut buffer));
            assert!(wait.await.is_err(), "{part:?}");
        }
        stream.write_all(b"\r\n").await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"HTTP/1.1");
    }

    /// A limited number of clients may be silent, and silent clients keep no client out.
    #[tokio::test]
    async fn silent_metrics_clients_give_way() {
        let (address, _ends) = server().await;
        let mut silent = Vec::new();
        for _ in 0..2 * MAX_OPEN {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"G").await.unwrap();
            silent.push(stream);
        }
        let request = b"GET /health HTTP/1.1\r\n\r\n";
        let began = tokio::time::Instant::now();
        let answer = answer_to(address, request, false).await;
        assert!(answer.ends_with("ok\n"));
        assert!(began.elapsed() < MAX_TIME, "{:?}", began.elapsed());
        let mut ended = 0;
        for stream in &mut silent {
            let mut buffer = [0; 8];
            let read = stream.read(&mut buffer);
            let read = tokio::time::timeout(Duration::from_millis(10), read);
            ended += usize::from(read.await.is_ok());
        }
        assert_eq!(ended, MAX_OPEN + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_metrics_client_gets_no_answer() {
        let (address, _ends) = server().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let start = tokio::time::Instant::now();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
        let took = start.elapsed();
        assert!((MAX_TIME..MAX_TIME + Duration::from_millis(10)).contains(&took));
    }
}
