//! Uploads over HTTP/2 that the server refuses.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::serve::limits::{Limits, Shared};
use crate::serve::rest_of_body::{MOST, WAIT};
use crate::testing::{Anything, soon};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// The end of a stream, or the acknowledgement of a PING.
const END: u8 = 1;

/// Bytes of a piece of a body.
const PIECE: usize = 16 << 10;

/// A frame of HTTP/2 (RFC 9113 section 4.1) of stream 1, or of the connection.
fn frame(kind: u8, flags: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    let stream = u8::from(matches!(kind, DATA | HEADERS));
    let head = [
        length[1], length[2], length[3], kind, flags, 0, 0, 0, stream,
    ];
    [&head[..], content].concat()
}

/// The kind, the flags, the stream and the content of the next frame.
async fn next(client: &mut DuplexStream) -> (u8, u8, u8, Vec<u8>) {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut content = vec![0; length as usize];
    client.read_exact(&mut content).await.unwrap();
    (head[3], head[4], head[8], content)
}

/// A client that has begun a PUT beside `open` requests, and a server that takes no files.
async fn refused(open: usize) -> DuplexStream {
    let address = std::net::IpAddr::from([192, 0, 2, 1]);
    let session = Arc::new(Session {
        source: Arc::new(Anything::new(1)),
        limits: limits::Client::new(Shared::new(Limits::default()), address).unwrap(),
        observer: Observer::new(None),
        client: address,
        rights: Arc::new(Rights::open()),
        caller: Caller::default(),
    });
    let (activity, _) = watch::channel(Activity {
        open,
        is_over: false,
    });
    let service = service_fn(move |request: Request<Incoming>| {
        let announced = HeaderValue::from_static("h3");
        answer(session.clone(), request, announced, activity.clone())
    });
    let (mut client, server) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let _ = builder(16)
            .serve_connection(TokioIo::new(server), service)
            .await;
    });
    client
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    client.write_all(&frame(SETTINGS, 0, b"")).await.unwrap();
    // RFC 7541: the method PUT, the scheme https, the path /, the authority a.
    let fields = b"\x02\x03PUT\x87\x84\x01\x01a";
    client.write_all(&frame(HEADERS, 4, fields)).await.unwrap();
    client.write_all(&frame(DATA, 0, &[0; 1000])).await.unwrap();
    let answered = async {
        loop {
            match next(&mut client).await {
                (DATA, END, ..) => return,
                (kind, ..) => assert_ne!(kind, RST_STREAM, "before the answer"),
            }
        }
    };
    soon(answered).await;
    client
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_refused_may_end_its_body() {
    let mut client = refused(0).await;
    for flags in [0, 0, END] {
        let piece = frame(DATA, flags, &[0; 16 << 10]);
        client.write_all(&piece).await.unwrap();
    }
    client.write_all(&frame(PING, 0, &[7; 8])).await.unwrap();
    let answered = async {
        loop {
            match next(&mut client).await {
                (PING, END, ..) => return,
                (kind, ..) => assert_ne!(kind, RST_STREAM),
            }
        }
    };
    soon(answered).await;
}

/// A body without an end costs the server some memory for a second.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_on_is_reset() {
    for pieces in [0, 56] {
        let mut client = refused(0).await;
        let mut read = 0;
        for _ in 0..pieces {
            let piece = frame(DATA, 0, &[0; PIECE]);
            client.write_all(&piece).await.unwrap();
            // The server reads this piece before the next one arrives.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        let reset = async {
            loop {
                match next(&mut client).await {
                    (RST_STREAM, ..) => return,
                    // The server gives the stream leave for as many bytes as the server has read.
                    (WINDOW_UPDATE, _, 1, more) => {
                        read += u32::from_be_bytes(more.try_into().unwrap())
                    }
                    _ => {}
                }
            }
        };
        soon(reset).await;
        assert!(read as usize <= MOST + PIECE, "{read} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_many_bodies_wait() {
    let most = Limits::default().files_per_client;
    for (open, waits) in [(most - 1, true), (most, false)] {
        let began = tokio::time::Instant::now();
        let mut client = refused(open).await;
        let reset = async { while next(&mut client).await.0 != RST_STREAM {} };
        soon(reset).await;
        assert_eq!(began.elapsed() >= WAIT, waits, "beside {open}");
    }
}
