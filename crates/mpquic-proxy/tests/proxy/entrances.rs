//! Entrances for applications, byte by byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mpquic_proxy::Entrance;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Error, Setup, TestResult, echo, loopback, open, target, within};

/// What an entrance answers to these bytes, up to its end.
async fn all(address: SocketAddr, request: &[u8]) -> Result<Vec<u8>, Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    within("answer", stream.read_to_end(&mut answer)).await??;
    Ok(answer)
}

#[tokio::test]
async fn socks_connects_as_rfc_1928_says() -> TestResult {
    let setup = Setup::new(open()).await?;
    let target = target(echo).await?;
    let socks = setup.listen(Entrance::Socks).await?;
    let mut stream = TcpStream::connect(socks.address()).await?;
    // Version, one method: none.
    stream.write_all(b"\x05\x01\x00").await?;
    let mut method = [0; 2];
    within("method", stream.read_exact(&mut method)).await??;
    assert_eq!(&method, b"\x05\x00");
    // CONNECT to a name, and the first bytes at once.
    let name = b"localhost.test";
    let request = [
        &b"\x05\x01\x00\x03\x0e"[..],
        name,
        &target.port().to_be_bytes(),
        b"hello",
    ];
    stream.write_all(&request.concat()).await?;
    let mut reply = [0; 10];
    within("reply", stream.read_exact(&mut reply)).await??;
    assert_eq!(&reply, b"\x05\x00\x00\x01\0\0\0\0\0\0");
    let mut echoed = [0; 5];
    within("echo", stream.read_exact(&mut echoed)).await??;
    assert_eq!(&echoed, b"hello");
    Ok(())
}

/// Programs that come in and say nothing keep nobody out.
#[tokio::test]
async fn silent_programs_keep_nobody_out() -> TestResult {
    let setup = Setup::new(open()).await?;
    let target = target(echo).await?;
    let entrance = setup.listen(Entrance::Socks).await?;
    let mut silent = Vec::new();
    for _ in 0..1025 {
        silent.push(TcpStream::connect(entrance.address()).await?);
    }
    let first = within("the end of the first", silent[0].read(&mut [0])).await?;
    assert!(matches!(first, Ok(0) | Err(_)), "{first:?}");
    let port = target.port().to_be_bytes();
    let request = [
        b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01",
        &port[..],
        b"hello",
    ];
    let mut stream = TcpStream::connect(entrance.address()).await?;
    stream.write_all(&request.concat()).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    within("answer", stream.read_to_end(&mut answer)).await??;
    assert!(answer.ends_with(b"hello"), "{}", answer.escape_ascii());
    Ok(())
}

#[tokio::test]
async fn socks_tells_why_not() -> TestResult {
    let setup = Setup::new(open()).await?;
    let entrance = setup.listen(Entrance::Socks).await?;
    let socks = entrance.address();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await?
        .local_addr()?;
    let closed = [
        &b"\x05\x01\x00\x01\x7f\0\0\x01"[..],
        &closed.port().to_be_bytes(),
    ]
    .concat();
    for (request, reply) in [
        (&b"\x05\x01\x00\x01\x0a\0\0\x01\0\x50"[..], 2),
        (b"\x05\x01\x00\x03\x0cmissing.test\0\x50", 4),
        (&closed, 5),
        (b"\x05\x02\x00\x01\x0a\0\0\x01\0\x50", 7),
        (b"\x05\x01\x00\x02", 8),
    ] {
        let answer = all(socks, &[&b"\x05\x01\x00"[..], request].concat()).await?;
        assert_eq!(answer[..2], *b"\x05\x00");
        assert_eq!(answer[2..4], [5, reply], "{}", request.escape_ascii());
    }
    // A password is not asked for, another protocol is not spoken.
    assert_eq!(all(socks, b"\x05\x01\x02").await?, b"\x05\xff");
    assert_eq!(
        all(socks, b"GET / HTTP/1.1\r\n\r\n")
            .await
            .unwrap_or_default(),
        b""
    );
    setup.connection.close(0u32.into(), b"");
    let without = async {
        loop {
            let answer = all(socks, b"\x05\x01\x00\x05\x01\x00\x01\x7f\0\0\x01\0\x01").await?;
            if answer[3] == 3 {
                return TestResult::Ok(());
            }
        }
    };
    within("no connection", without).await?
}

#[tokio::test]
async fn an_http_proxy_connects_and_fetches() -> TestResult {
    let setup = Setup::new(open()).await?;
    let proxy = setup.listen(Entrance::Http).await?;
    let target = target(|mut stream: TcpStream| async move {
        let mut request = vec![0; 1000];
        let length = stream.read(&mut request).await?;
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        stream
            .write_all(&[head, &request[..length]].concat())
            .await?;
        stream.shutdown().await
    })
    .await?;
    let get = format!("GET http://{target}/a HTTP/1.1\r\nProxy-Connection: x\r\n\r\n");
    let answer = String::from_utf8(all(proxy.address(), get.as_bytes()).await?)?;
    let seen = format!("GET /a HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n");
    assert_eq!(
        answer,
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{seen}")
    );
    let connect = format!("CONNECT {target} HTTP/1.1\r\n\r\nhello");
    let answer = String::from_utf8(all(proxy.address(), connect.as_bytes()).await?)?;
    assert!(answer.starts_with("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK\r\n"));
    assert!(answer.ends_with("hello"), "{answer}");
    for (request, status) in [
        ("CONNECT 10.0.0.1:1 HTTP/1.1\r\n\r\n", "403 Forbidden"),
        ("CONNECT missing.test:1 HTTP/1.1\r\n\r\n", "502 Bad Gateway"),
        ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = String::from_utf8(all(proxy.address(), request.as_bytes()).await?)?;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
            "{answer}"
        );
    }
    Ok(())
}

/// A server that never closes, and says `name` to each request; what it was asked.
async fn keeper(name: &'static str) -> Result<(SocketAddr, Arc<Mutex<String>>), Error> {
    let listener = TcpListener::bind(loopback()).await?;
    let address = listener.local_addr()?;
    let seen = Arc::<Mutex<String>>::default();
    let heard = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heard = heard.clone();
            tokio::spawn(async move {
                let mut piece = vec![0; 10_000];
                let mut last = 0;
                while let Ok(length @ 1..) = stream.read(&mut piece).await {
                    let heads = {
                        let mut heard = heard.lock().unwrap();
                        *heard += &String::from_utf8_lossy(&piece[..length]);
                        heard.matches("\r\n\r\n").count()
                    };
                    for _ in last..heads {
                        let length = name.len();
                        let answer = format!(
                            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\
                             Content-Length: {length}\r\nKeep-Alive: x\r\n\r\n{name}"
                        );
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                    last = heads;
                }
            });
        }
    });
    Ok((address, seen))
}

/// The next request of the same connection may be for another server, and carry what is for it
/// alone.
#[tokio::test]
async fn a_server_sees_the_requests_that_are_for_it() -> TestResult {
    let setup = Setup::new(open()).await?;
    let proxy = setup.listen(Entrance::Http).await?;
    let (first, seen) = keeper("first").await?;
    let (second, unseen) = keeper("second").await?;
    let next = format!("GET http://{second}/secret HTTP/1.1\r\nCookie: of-second\r\n\r\n");
    for (method, fields, body) in [
        ("GET", "", ""),
        ("POST", "Content-Length: 4\r\n", "body"),
        (
            "POST",
            "Transfer-Encoding: chunked\r\n",
            "4\r\nbody\r\n0\r\n\r\n",
        ),
    ] {
        let request = format!("{method} http://{first}/a HTTP/1.1\r\n{fields}\r\n{body}{next}");
        let answer = String::from_utf8(all(proxy.address(), request.as_bytes()).await?)?;
        let expected = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\
            Content-Length: 5\r\nConnection: close\r\n\r\nfirst";
        assert_eq!(answer, expected, "{method} {fields}");
        let told = format!(
            "{method} /a HTTP/1.1\r\nHost: {first}\r\n{fields}Connection: close\r\n\r\n{body}"
        );
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), told);
    }
    // In a moment of its own, when the answer was read.
    let mut stream = TcpStream::connect(proxy.address()).await?;
    let request = format!("GET http://{first}/a HTTP/1.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    within("answer", stream.read_to_end(&mut answer)).await??;
    stream.write_all(next.as_bytes()).await?;
    stream.shutdown().await?;
    within("the end of the flow", async {
        while setup.client.stats().open_tcp > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await?;
    assert!(!seen.lock().unwrap().contains("Cookie"));
    assert_eq!(*unseen.lock().unwrap(), "");
    Ok(())
}

/// WebSocket, as RFC 6455 begins it.
#[tokio::test]
async fn an_http_proxy_leads_on_to_another_protocol() -> TestResult {
    let setup = Setup::new(open()).await?;
    let proxy = setup.listen(Entrance::Http).await?;
    let target = target(|mut stream: TcpStream| async move {
        let mut request = vec![0; 1000];
        let length = stream.read(&mut request).await?;
        let asked = String::from_utf8_lossy(&request[..length]).to_lowercase();
        if asked.contains("connection: upgrade\r\n") && asked.contains("upgrade: websocket\r\n") {
            let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                Upgrade: websocket\r\n\r\nhello ";
            stream.write_all(switch).await?;
        }
        echo(stream).await
    })
    .await?;
    let mut stream = TcpStream::connect(proxy.address()).await?;
    let request = format!(
        "GET ws://{target}/chat HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    within("the other protocol", async {
        while !answer.ends_with(b"hello ") {
            if stream.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        Ok::<_, Error>(())
    })
    .await??;
    let answer = String::from_utf8(answer)?;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    stream.write_all(b"GET http://x/ HTTP/1.1\r\n\r\n").await?;
    stream.shutdown().await?;
    let mut echoed = String::new();
    within("echo", stream.read_to_string(&mut echoed)).await??;
    assert_eq!(echoed, "GET http://x/ HTTP/1.1\r\n\r\n");
    Ok(())
}
