//! UDP flows, from end to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpquic_proxy::{Class, ClientOptions, Entrance, NoFlow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use crate::harness::{Error, Setup, TestResult, Told, connect, loopback, open, pattern, within};

/// A socket that sends back what it gets.
async fn echo() -> Result<SocketAddr, Error> {
    let socket = UdpSocket::bind(loopback()).await?;
    let address = socket.local_addr()?;
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&buffer[..length], from).await?;
        }
        TestResult::Ok(())
    });
    Ok(address)
}

async fn ask(socket: &UdpSocket, payload: &[u8]) -> Result<Vec<u8>, Error> {
    socket.send(payload).await?;
    let mut buffer = vec![0; 65_536];
    let length = within("answer", socket.recv(&mut buffer)).await??;
    buffer.truncate(length);
    Ok(buffer)
}

#[tokio::test]
async fn payloads_go_both_ways_and_senders_are_told_apart() -> TestResult {
    let setup = Setup::new(open()).await?;
    let entrance = setup.listen(Entrance::Udp(echo().await?.into())).await?;
    let mut applications = Vec::new();
    for _ in 0..3 {
        let socket = UdpSocket::bind(loopback()).await?;
        socket.connect(entrance.address()).await?;
        applications.push(socket);
    }
    for length in [0, 1, 1000] {
        for (number, application) in applications.iter().enumerate() {
            let payload = pattern(length, number as u32);
            assert_eq!(ask(application, &payload).await?, payload);
        }
    }
    assert_eq!(setup.client.stats().open_udp, 3);
    assert_eq!(setup.server.stats().open_udp, 3);
    // Payloads that no packet holds go over the flow's stream, the first one as well.
    for length in [5000, 1800, 9000, 60_000] {
        let payload = pattern(length, 9);
        assert_eq!(ask(&applications[0], &payload).await?, payload);
    }
    assert_eq!(setup.client.stats().dropped_payloads, 0);
    assert_eq!(setup.server.stats().dropped_payloads, 0);
    Ok(())
}

/// How large packets may be is found out before there is anything to carry: the first payloads of a
/// flow are as large as all others.
#[tokio::test]
async fn the_first_payload_may_be_large() -> TestResult {
    let setup = Setup::new(open()).await?;
    setup.until_two_paths().await?;
    let large = async {
        while !(setup.connection.path_stats().iter()).all(|path| path.mtu > 1400) {
            tokio::task::yield_now().await;
        }
    };
    within("large packets", large).await?;
    let entrance = setup.listen(Entrance::Udp(echo().await?.into())).await?;
    let application = UdpSocket::bind(loopback()).await?;
    application.connect(entrance.address()).await?;
    application.send(&pattern(1300, 1)).await?;
    let received = async {
        while !(setup.server.flows().iter()).any(|flow| flow.received == 1300) {
            tokio::task::yield_now().await;
        }
    };
    within("the payload", received).await?;
    assert_eq!(setup.client.stats().dropped_payloads, 0);
    Ok(())
}

/// Payloads of a call travel on both paths, and the application gets each of them once.
#[tokio::test]
async fn calls_are_sent_twice_and_delivered_once() -> TestResult {
    for class in [Class::RealTime, Class::Bulk] {
        let target = echo().await?;
        let rule = format!("{class}=:{}", target.port()).parse()?;
        let of_client = |options: &mut ClientOptions| options.classes = vec![rule];
        let setup = Setup::with(open(), of_client, |_| {}).await?;
        setup.until_two_paths().await?;
        let entrance = setup.listen(Entrance::Udp(target.into())).await?;
        let application = UdpSocket::bind(loopback()).await?;
        application.connect(entrance.address()).await?;
        for number in 0..50 {
            let payload = pattern(172, number);
            assert_eq!(ask(&application, &payload).await?, payload);
        }
        // Some are lost to a path that is new, and some of anything are sent again.
        let is_copied = class == Class::RealTime;
        let copied = setup.connection.stats().bytes_repeated;
        assert_eq!(copied > 25 * 172, is_copied, "{class}: {copied}");
        // Copies that come late, too, are heard before this answer.
        let flows = [setup.client.flows(), setup.server.flows()].concat();
        let [here, there] = &flows[..] else {
            panic!("{flows:?}");
        };
        assert_eq!((here.class, there.class), (class, class));
        assert_eq!((here.sent, here.received), (50 * 172, 50 * 172));
        assert_eq!((there.sent, there.received), (50 * 172, 50 * 172));
    }
    Ok(())
}

#[tokio::test]
async fn refused_target_is_not_requested_with_each_payload() -> TestResult {
    let mut options = open();
    let told = Arc::new(Told::default());
    options.observer = Some(told.clone());
    let count = || told.0.lock().unwrap().len();
    let setup = Setup::new(options).await?;
    let denied = "192.168.0.1:9".parse()?;
    let entrance = setup.listen(Entrance::Udp(denied)).await?;
    let application = UdpSocket::bind(loopback()).await?;
    application.connect(entrance.address()).await?;
    let begin = Instant::now();
    application.send(b"first").await?;
    let refused = async {
        while count() == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("refusal", refused).await?;
    let elsewhere = setup.listen(Entrance::Udp(echo().await?.into())).await?;
    let other = UdpSocket::bind(loopback()).await?;
    other.connect(elsewhere.address()).await?;
    for _ in 0..20 {
        // Before it is answered, the refusal is known.
        assert_eq!(ask(&other, b"elsewhere").await?, b"elsewhere");
        application.send(b"more").await?;
    }
    // On a machine that stood still it may be asked for again.
    assert!(count() == 1 || begin.elapsed() > Duration::from_millis(900));
    Ok(())
}

/// RFC 1928 section 7, byte by byte.
#[tokio::test]
async fn socks_associates() -> TestResult {
    let setup = Setup::new(open()).await?;
    let entrance = setup.listen(Entrance::Socks).await?;
    let mut control = TcpStream::connect(entrance.address()).await?;
    control
        .write_all(b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0")
        .await?;
    let mut reply = [0; 12];
    within("reply", control.read_exact(&mut reply)).await??;
    assert_eq!(reply[..10], *b"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01");
    let port = u16::from_be_bytes([reply[10], reply[11]]);
    // Nobody at another address takes the association, not even with the first packet.
    let target = UdpSocket::bind(loopback()).await?;
    let to_target = |payload: &[u8]| -> Result<Vec<u8>, Error> {
        let port = target.local_addr()?.port().to_be_bytes();
        Ok([b"\0\0\0\x01\x7f\0\0\x01", &port[..], payload].concat())
    };
    let stranger = UdpSocket::bind("127.0.0.4:0").await?;
    let packet = to_target(b"stranger")?;
    stranger.send_to(&packet, ("127.0.0.1", port)).await?;
    let socket = UdpSocket::bind(loopback()).await?;
    socket.connect(("127.0.0.1", port)).await?;
    let [one, two] = [echo().await?, echo().await?];
    let by_address = [&b"\0\0\0\x01\x7f\0\0\x01"[..], &one.port().to_be_bytes()].concat();
    let by_name = [
        &b"\0\0\0\x03\x0elocalhost.test"[..],
        &two.port().to_be_bytes(),
    ]
    .concat();
    for header in [&by_address, &by_name, &by_address] {
        let packet = [&header[..], b"payload"].concat();
        assert_eq!(ask(&socket, &packet).await?, packet);
    }
    // Nor does another port of the client's address get anything through; a fragment is dropped.
    let neighbour = UdpSocket::bind(loopback()).await?;
    let packet = to_target(b"neighbour")?;
    neighbour.send_to(&packet, ("127.0.0.1", port)).await?;
    let fragment = [b"\0\0\x01", &by_address[3..], b"x"].concat();
    socket.send(&fragment).await?;
    let packet = [&by_address[..], b"last"].concat();
    assert_eq!(ask(&socket, &packet).await?, packet);
    assert_eq!(setup.server.stats().open_udp, 2);
    socket.send(&to_target(b"client")?).await?;
    let mut buffer = [0; 64];
    let length = within("a payload", target.recv(&mut buffer)).await??;
    assert_eq!(buffer[..length], *b"client");
    // The association ends with the TCP connection, and so do its flows.
    drop(control);
    let ended = async {
        while setup.server.stats().open_udp > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the end", ended).await
}

/// RFC 1928 section 6: a program names its sending port in advance. Another program of the same
/// machine sends first.
#[tokio::test]
async fn an_association_is_for_the_port_that_its_program_names() -> TestResult {
    let setup = Setup::new(open()).await?;
    let entrance = setup.listen(Entrance::Socks).await?;
    let echo = echo().await?;
    let header = [&b"\0\0\0\x01\x7f\0\0\x01"[..], &echo.port().to_be_bytes()].concat();
    for address in [[127, 0, 0, 1], [0; 4]] {
        let socket = UdpSocket::bind(loopback()).await?;
        let named = socket.local_addr()?.port().to_be_bytes();
        let mut control = TcpStream::connect(entrance.address()).await?;
        let request = [&b"\x05\x01\x00\x05\x03\x00\x01"[..], &address, &named].concat();
        control.write_all(&request).await?;
        let mut reply = [0; 12];
        within("reply", control.read_exact(&mut reply)).await??;
        let relay = ("127.0.0.1", u16::from_be_bytes([reply[10], reply[11]]));
        let thief = UdpSocket::bind(loopback()).await?;
        thief
            .send_to(&[&header[..], b"thief"].concat(), relay)
            .await?;
        socket.connect(relay).await?;
        let packet = [&header[..], b"payload"].concat();
        assert_eq!(ask(&socket, &packet).await?, packet);
        assert!(thief.try_recv(&mut [0; 64]).is_err());
    }
    Ok(())
}

/// Applications need not notice that the connection to the proxy was lost and made anew.
#[tokio::test]
async fn another_connection_takes_over() -> TestResult {
    let setup = Setup::new(open()).await?;
    let entrance = setup.listen(Entrance::Udp(echo().await?.into())).await?;
    let application = UdpSocket::bind(loopback()).await?;
    application.connect(entrance.address()).await?;
    assert_eq!(ask(&application, b"before").await?, b"before");
    setup.connection.close(0u32.into(), b"");
    let target = "127.0.0.1:1".parse()?;
    let lost = async {
        while setup.client.connect(&target).await.err() != Some(NoFlow::Unconnected) {
            tokio::task::yield_now().await;
        }
    };
    within("loss", lost).await?;
    assert_eq!(setup.client.stats().open_udp, 0);
    let _new = connect(&setup.endpoint, setup.address, &setup.client).await?;
    assert_eq!(ask(&application, b"after").await?, b"after");
    Ok(())
}
