//! Entrances for applications, byte by byte.

use std::net::SocketAddr;

use mpquic_proxy::Entrance;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Error, Setup, TestResult, echo, open, target, within};

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
