//! UDP with one port at the proxy for all targets of a program, from end to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpquic_proxy::{Class, ClientOptions, Filtering, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::harness::{Error, Setup, TestResult, Told, connect, loopback, open, pattern, within};

/// A SOCKS association.
struct Association {
    socket: UdpSocket,
    _control: TcpStream,
}

impl Association {
    async fn new(setup: &Setup) -> Result<Self, Error> {
        let entrance = setup.listen(mpquic_proxy::Entrance::Socks).await?;
        let mut control = TcpStream::connect(entrance.address()).await?;
        (control.write_all(b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0")).await?;
        let mut reply = [0; 12];
        within("reply", control.read_exact(&mut reply)).await??;
        let socket = UdpSocket::bind(loopback()).await?;
        let port = u16::from_be_bytes([reply[10], reply[11]]);
        socket.connect(("127.0.0.1", port)).await?;
        Ok(Self {
            socket,
            _control: control,
        })
    }

    fn header(target: SocketAddr) -> Vec<u8> {
        let mut header = b"\0\0\0\x01\x7f\0\0\x01".to_vec();
        if let SocketAddr::V4(v4) = target {
            header[4..8].copy_from_slice(&v4.ip().octets());
        }
        [&header[..], &target.port().to_be_bytes()].concat()
    }

    async fn send(&self, target: SocketAddr, payload: &[u8]) -> TestResult {
        let packet = [&Self::header(target)[..], payload].concat();
        self.socket.send(&packet).await?;
        Ok(())
    }

    /// The next payload, with its source; `None` if none comes.
    async fn recv(&self, patience: Duration) -> Result<Option<(SocketAddr, Vec<u8>)>, Error> {
        let mut buffer = vec![0; 65_536];
        let Ok(received) = timeout(patience, self.socket.recv(&mut buffer)).await else {
            return Ok(None);
        };
        let packet = &buffer[..received?];
        let ip: [u8; 4] = packet[4..8].try_into()?;
        let port = u16::from_be_bytes([packet[8], packet[9]]);
        Ok(Some(((ip, port).into(), packet[10..].to_vec())))
    }

    /// Sends a payload, and returns the address from which the target got the payload.
    async fn seen(&self, target: &UdpSocket, payload: &[u8]) -> Result<SocketAddr, Error> {
        self.send(target.local_addr()?, payload).await?;
        let mut buffer = vec![0; 65_536];
        let (length, from) = within("a payload", target.recv_from(&mut buffer)).await??;
        assert_eq!(&buffer[..length], payload);
        Ok(from)
    }

    async fn answered(
        &self,
        from: &UdpSocket,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<bool, Error> {
        from.send_to(payload, to).await?;
        let expected = (from.local_addr()?, payload.to_vec());
        // An answer that must not come is waited for, too.
        let came = self.recv(Duration::from_millis(500)).await?;
        assert!(came.is_none() || came.as_ref() == Some(&expected));
        Ok(came.is_some())
    }
}

fn bound(filtering: Filtering) -> impl FnOnce(&mut ClientOptions) {
    move |options| options.udp_binding = Some(filtering)
}

async fn peer() -> Result<UdpSocket, Error> {
    Ok(UdpSocket::bind(loopback()).await?)
}

#[tokio::test]
async fn one_port_serves_all_targets_of_a_program() -> TestResult {
    let mut options = open();
    let told = Arc::new(Told::default());
    options.observer = Some(told.clone());
    let setup = Setup::with(options, bound(Filtering::EndpointIndependent), |_| {}).await?;
    let association = Association::new(&setup).await?;
    let peers = [peer().await?, peer().await?, peer().await?];
    let port = association.seen(&peers[0], b"first").await?;
    for peer in &peers {
        // Few payloads travel with their peer, and more with a context of their own.
        for number in 0..30 {
            let payload = pattern(number * 20, number as u32);
            assert_eq!(association.seen(peer, &payload).await?, port);
            assert!(association.answered(peer, port, &payload).await?);
        }
        for length in [5000, 60_000] {
            let payload = pattern(length, 1);
            assert_eq!(association.seen(peer, &payload).await?, port);
            assert!(association.answered(peer, port, &payload).await?);
        }
    }
    // Somebody to whom the program has sent nothing.
    let stranger = UdpSocket::bind("127.0.0.7:0").await?;
    assert!(association.answered(&stranger, port, b"hello").await?);
    assert_eq!(setup.server.stats().open_udp, 1);
    assert_eq!(setup.client.stats().open_udp, 1);
    assert_eq!(setup.client.stats().dropped_payloads, 0);
    assert_eq!(setup.server.stats().dropped_payloads, 0);
    drop(association);
    let over = async {
        while told.0.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within("the end", over).await?;
    let lines = told.0.lock().unwrap().clone();
    assert_eq!(
        (&*lines[0].0, &*lines[0].1, lines[0].3),
        ("CONNECT-UDP", "*", 200)
    );
    Ok(())
}

#[tokio::test]
async fn strangers_are_let_in_by_address_or_all() -> TestResult {
    for (filtering, all) in [
        (Filtering::AddressDependent, false),
        (Filtering::EndpointIndependent, true),
    ] {
        let setup = Setup::with(open(), bound(filtering), |_| {}).await?;
        let association = Association::new(&setup).await?;
        let asked = peer().await?;
        let port = association.seen(&asked, b"question").await?;
        assert!(association.answered(&asked, port, b"answer").await?);
        let neighbour = peer().await?;
        assert!(
            association
                .answered(&neighbour, port, b"another port")
                .await?
        );
        let stranger = UdpSocket::bind("127.0.0.7:0").await?;
        let hello = b"another address";
        assert_eq!(association.answered(&stranger, port, hello).await?, all);
        // The proxy dropped the payload: it took no room of the links.
        let received = setup.server.flows()[0].sent;
        assert_eq!(received, 6 + 12 + if all { 15 } else { 0 });
    }
    Ok(())
}

/// Calls are sent twice, and bulk in order, on a port for all targets as well.
#[tokio::test]
async fn payloads_with_numbers_find_their_peers() -> TestResult {
    for class in [Class::RealTime, Class::Bulk] {
        let [one, two] = [peer().await?, peer().await?];
        let rule = format!("{class}=:{}", one.local_addr()?.port()).parse()?;
        let of_client = |options: &mut ClientOptions| {
            options.classes = vec![rule];
            options.udp_binding = Some(Filtering::AddressDependent);
        };
        let setup = Setup::with(open(), of_client, |_| {}).await?;
        setup.until_two_paths().await?;
        let association = Association::new(&setup).await?;
        let port = association.seen(&one, b"first").await?;
        for number in 0..50 {
            for peer in [&one, &two] {
                let payload = pattern(172, number);
                assert_eq!(association.seen(peer, &payload).await?, port);
                assert!(association.answered(peer, port, &payload).await?);
            }
        }
        let flows = [setup.client.flows(), setup.server.flows()].concat();
        let [here, there] = &flows[..] else {
            panic!("{flows:?}");
        };
        assert_eq!((here.class, there.class), (class, class));
        let copied = setup.connection.stats().bytes_repeated;
        assert_eq!(copied > 50 * 172, class == Class::RealTime, "{copied}");
        // No copy is left over.
        assert_eq!(association.recv(Duration::from_millis(50)).await?, None);
    }
    Ok(())
}

/// A proxy that refuses ports for many targets gets a flow for each target.
#[tokio::test]
async fn a_proxy_without_bindings_carries_udp_all_the_same() -> TestResult {
    let mut options: ServerOptions = open();
    options.udp_bindings = false;
    let setup = Setup::with(options, bound(Filtering::AddressDependent), |_| {}).await?;
    let association = Association::new(&setup).await?;
    let [one, two] = [peer().await?, peer().await?];
    let mut ports = Vec::new();
    for target in [&one, &two] {
        let address = target.local_addr()?;
        let mut buffer = [0; 64];
        // The first payload finds out, and is lost.
        let from = loop {
            association.send(address, b"question").await?;
            let received = timeout(Duration::from_millis(200), target.recv_from(&mut buffer));
            if let Ok(received) = received.await {
                break received?.1;
            }
        };
        assert!(association.answered(target, from, b"answer").await?);
        ports.push(from);
    }
    assert_ne!(ports[0], ports[1]);
    Ok(())
}

/// Applications go on after the loss of the connection to the proxy, as other flows do.
#[tokio::test]
async fn a_lost_connection_gets_another_port() -> TestResult {
    let setup = Setup::with(open(), bound(Filtering::AddressDependent), |_| {}).await?;
    let association = Association::new(&setup).await?;
    let target = peer().await?;
    association.seen(&target, b"before").await?;
    setup.connection.close(0u32.into(), b"");
    let lost = async {
        while setup.client.stats().open_udp > 0 {
            tokio::task::yield_now().await;
        }
    };
    within("loss", lost).await?;
    let _new = connect(&setup.endpoint, setup.address, &setup.client).await?;
    association.seen(&target, b"after").await?;
    Ok(())
}
