//! A link that can be cut: datagrams pass through this process, or vanish.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The largest datagram.
const LARGEST: usize = 1 << 16;
/// Pause after an error.
const REST: Duration = Duration::from_millis(1);

/// A link between one client and a server. Dropping this ends the link.
#[derive(Debug)]
pub(crate) struct Relay {
    front: SocketAddr,
    state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug, Default)]
struct State {
    is_cut: AtomicBool,
    /// Datagrams lost to the cut.
    lost: AtomicU64,
}

impl State {
    /// True if a datagram must be dropped now.
    fn loses(&self) -> bool {
        let is_cut = self.is_cut.load(Ordering::Relaxed);
        if is_cut {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        is_cut
    }
}

impl Relay {
    /// A link to `server` for a client that sends to an address of this process.
    pub(crate) async fn start(local: IpAddr, server: SocketAddr) -> io::Result<Self> {
        let front = Arc::new(UdpSocket::bind((local, 0)).await?);
        let back = Arc::new(UdpSocket::bind((local, 0)).await?);
        back.connect(server).await?;
        let address = front.local_addr()?;
        let state = Arc::new(State::default());
        // The client's address for answers, known after its first datagram.
        let (client_is, client) = tokio::sync::watch::channel(None);
        let there = tokio::spawn({
            let (front, back, state) = (front.clone(), back.clone(), state.clone());
            async move {
                let mut datagram = vec![0; LARGEST];
                loop {
                    let Ok((length, from)) = front.recv_from(&mut datagram).await else {
                        tokio::time::sleep(REST).await;
                        continue;
                    };
                    client_is.send_if_modified(|client| client.replace(from) != Some(from));
                    if !state.loses() {
                        // Datagrams without room are lost, as on any link.
                        let _ = back.send(&datagram[..length]).await;
                    }
                }
            }
        });
        let and_back = tokio::spawn({
            let state = state.clone();
            async move {
                let mut datagram = vec![0; LARGEST];
                loop {
                    let Ok(length) = back.recv(&mut datagram).await else {
                        tokio::time::sleep(REST).await;
                        continue;
                    };
                    let to = *client.borrow();
                    if let Some(to) = to.filter(|_| !state.loses()) {
                        let _ = front.send_to(&datagram[..length], to).await;
                    }
                }
            }
        });
        Ok(Self {
            front: address,
            state,
            tasks: [there, and_back],
        })
    }

    /// The client's destination address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front
    }

    /// Cuts or restores the link.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.is_cut.store(is_cut, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_cut(&self) -> bool {
        self.state.is_cut.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers follow a client that moves; after the link's end, nothing is answered.
    #[tokio::test]
    async fn answers_go_where_the_client_is_until_the_link_is_gone() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let server = UdpSocket::bind((local, 0)).await.unwrap();
        let relay = Relay::start(local, server.local_addr().unwrap());
        let relay = relay.await.unwrap();
        let (mut buffer, link) = ([0; 10], relay.address());
        for said in [b"one", b"two"] {
            let client = UdpSocket::bind((local, 0)).await.unwrap();
            client.connect(link).await.unwrap();
            client.send(said).await.unwrap();
            let (length, from) = server.recv_from(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], said);
            server.send_to(&buffer[..length], from).await.unwrap();
            let length = client.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], said);
        }
        drop(relay);
        // The tasks end, and the port becomes free.
        while UdpSocket::bind(link).await.is_err() {
            tokio::time::sleep(REST).await;
        }
    }

    #[tokio::test]
    async fn cut_link_drops_everything() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let server = UdpSocket::bind((local, 0)).await.unwrap();
        let relay = Relay::start(local, server.local_addr().unwrap());
        let relay = relay.await.unwrap();
        let client = UdpSocket::bind((local, 0)).await.unwrap();
        client.connect(relay.address()).await.unwrap();
        let mut buffer = [0; 10];
        client.send(b"lost?").await.unwrap();
        let (length, link) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"lost?");
        server.send_to(b"no", link).await.unwrap();
        let length = client.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"no");

        relay.cut(true);
        client.send(b"lost").await.unwrap();
        server.send_to(b"lost", link).await.unwrap();
        while relay.state.lost.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(REST).await;
        }
        relay.cut(false);
        client.send(b"there").await.unwrap();
        let (length, _) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"there");
        server.send_to(b"here", link).await.unwrap();
        let length = client.recv(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"here");
    }
}
