//! A probe whether a program listens on a server's UDP port.

use std::future::pending;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

/// Silence of a server before its port is probed.
const PATIENCE: Duration = Duration::from_millis(300);
/// Longest wait for the answer to a probe.
const ANSWER: Duration = Duration::from_secs(1);
/// Number of probes after this short silence. Each further pause is twice as long as the pause
/// before, up to [`LONGEST_PAUSE`].
const QUICK_TRIES: u32 = 3;
/// Longest pause between probes. Linux sends about one ICMP message a second to a client, and the
/// packets of the dead connection ask for most of them at first.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Becomes ready when the server's system reports by ICMP that no program listens on the port, and
/// stays pending otherwise. Sends probes after some silence; QUIC servers ignore a datagram this
/// short. On Linux, a client learns of a closed port without a probe while it connects. On other
/// systems, and for a server that answered before, only a probe detects the closed port.
pub(crate) async fn until_closed(server: SocketAddr) {
    let mut pause = PATIENCE;
    for number in 1.. {
        tokio::time::sleep(pause).await;
        if is_closed(server).await {
            return;
        }
        if number >= QUICK_TRIES {
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// Like [`until_closed`] for the peer of a connection, if its address is known.
pub(crate) async fn until_gone(server: Option<SocketAddr>) {
    match server {
        Some(server) => until_closed(server).await,
        None => pending().await,
    }
}

/// True if the system knows a route from one of these local addresses to a server. Sends no packet.
pub(crate) fn has_route(locals: &[IpAddr], server: SocketAddr) -> bool {
    let any = unspecified(server);
    // An unspecified IPv6 address may also stand for IPv4 addresses.
    let mut locals = locals
        .iter()
        .map(|ip| if ip.is_unspecified() { any } else { *ip });
    locals.any(|local| {
        if local.is_ipv4() != server.is_ipv4() {
            return false;
        }
        let connected = std::net::UdpSocket::bind((local, 0))
            .and_then(|socket| socket.connect(server))
            .map_err(|error| error.kind());
        !matches!(
            connected,
            // InvalidInput: a loopback address, with a route to the server from other addresses.
            Err(ErrorKind::NetworkUnreachable
                | ErrorKind::HostUnreachable
                | ErrorKind::InvalidInput)
        )
    })
}

/// The address from which the system would send to a server; `None` without a route. Sends no
/// packet.
pub(crate) fn source_to(server: SocketAddr) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind((unspecified(server), 0)).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

async fn is_closed(server: SocketAddr) -> bool {
    is_closed_from(SocketAddr::new(unspecified(server), 0), server).await
}

/// No address in particular, of a server's IP version.
fn unspecified(server: SocketAddr) -> IpAddr {
    match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Sends a probe from a local address, with any port if the port is 0, and waits for up to a
/// second. True if the server's system reports by ICMP that no program listens on the port.
pub(crate) async fn is_closed_from(local: SocketAddr, server: SocketAddr) -> bool {
    let asked = async {
        let socket = UdpSocket::bind(local).await?;
        socket.connect(server).await?;
        socket.send(&[0]).await?;
        socket.recv(&mut [0]).await
    };
    match tokio::time::timeout(ANSWER, asked).await {
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_now_and_then() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let waited = timeout(Duration::from_secs(60), until_closed(address)).await;
        assert!(waited.is_err(), "it may be alive");
        let (mut buffer, mut asked) = ([7; 8], 0);
        while let Ok(length) = socket.try_recv(&mut buffer) {
            // Too short for a QUIC packet.
            assert_eq!(buffer[..length], [0]);
            asked += 1;
        }
        assert_eq!(
            asked, 18,
            "three, two with longer pauses, and one each four seconds"
        );
        let waited = timeout(Duration::from_secs(60), until_gone(None)).await;
        assert!(waited.is_err(), "nobody knows whom to ask");
        drop(socket);
        let v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await;
        // Not every machine has IPv6.
        let v6 = v6.ok().map(|socket| socket.local_addr().unwrap());
        for address in std::iter::once(address).chain(v6) {
            let began = Instant::now();
            until_gone(Some(address)).await;
            let took = began.elapsed();
            assert!((PATIENCE..2 * PATIENCE).contains(&took), "{took:?}");
        }
    }

    /// For many seconds no answer arrives, as from a system that limits its ICMP messages.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_heard() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut closed = std::pin::pin!(until_closed(address));
        let soon = Duration::from_secs(20);
        assert!(timeout(soon, &mut closed).await.is_err());
        drop(socket);
        timeout(LONGEST_PAUSE + ANSWER, closed).await.unwrap();
    }

    #[test]
    fn loopback_addresses_have_no_route_to_others() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let away = SocketAddr::from(([192, 0, 2, 1], 443));
        assert!(!has_route(&[loopback], away));
        assert!(!has_route(&[Ipv6Addr::LOCALHOST.into()], away));
        assert!(!has_route(&[], away));
        let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        for local in [loopback].into_iter().chain(any) {
            assert!(has_route(&[local], SocketAddr::new(loopback, 443)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closed_ports_are_told_from_silent_ones() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let began = Instant::now();
        assert!(!is_closed(address).await);
        assert_eq!(began.elapsed(), ANSWER);
        drop(socket);
        assert!(is_closed(address).await);
    }
}
