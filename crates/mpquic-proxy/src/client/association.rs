//! UDP ASSOCIATE (RFC 1928 section 7): a UDP socket for one client of SOCKS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::net::UdpSocket;

use super::datagram_flow::Wanted;
use super::datagram_flows::{DatagramFlows, MOST};
use super::flows::Client;
use super::socks::{udp_header, udp_packet};
use crate::bound::put_datagram;
use crate::datagrams::{Deliver, with_room};
use crate::target::{DNS, Host, Target};

/// The largest packet that a client sends.
const LARGEST: usize = 64 << 10;

/// The socket of an association.
pub(crate) struct Association {
    socket: UdpSocket,
    /// The address of accepted packets, and their port after an announcement of the client.
    client: (IpAddr, Option<u16>),
    /// The source of the accepted packets, after the first one.
    from: OnceLock<SocketAddr>,
}

/// Answers of one target, for the client.
struct Answers {
    association: Arc<Association>,
    header: usize,
    /// The header, and behind it the last payload.
    packet: Mutex<Vec<u8>>,
}

impl Deliver for Answers {
    fn deliver(&self, payload: &[u8]) {
        let Some(to) = self.association.from.get() else {
            return;
        };
        let mut packet = self.packet.lock().unwrap_or_else(PoisonError::into_inner);
        packet.truncate(self.header);
        packet.extend_from_slice(payload);
        // A packet without room in the socket is lost.
        let _ = self.association.socket.try_send_to(&packet, *to);
    }
}

/// Answers of many peers, for the client.
struct AnswersOfPeers {
    association: Arc<Association>,
    packet: Mutex<Vec<u8>>,
}

impl Deliver for AnswersOfPeers {
    /// Payloads of a binding have a peer.
    fn deliver(&self, _: &[u8]) {}

    fn deliver_from(&self, peer: SocketAddr, payload: &[u8]) {
        let Some(to) = self.association.from.get() else {
            return;
        };
        let mut packet = self.packet.lock().unwrap_or_else(PoisonError::into_inner);
        *packet = udp_header(&peer.into());
        packet.extend_from_slice(payload);
        // A packet without room in the socket is lost.
        let _ = self.association.socket.try_send_to(&packet, *to);
    }
}

impl Association {
    /// For a client at this address, perhaps with an announced port. The socket has our address
    /// that the client knows.
    pub(crate) async fn bind(ours: IpAddr, client: (IpAddr, Option<u16>)) -> io::Result<Arc<Self>> {
        let socket = with_room(UdpSocket::bind((ours, 0)).await?);
        Ok(Arc::new(Self {
            socket,
            client,
            from: OnceLock::new(),
        }))
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// A packet from this source belongs to the client. Without an announced port, the source of
    /// the first packet is the client.
    fn is_client(&self, from: SocketAddr) -> bool {
        let (ip, port) = self.client;
        from.ip() == ip
            && port.is_none_or(|port| port == from.port())
            && *self.from.get_or_init(|| from) == from
    }

    /// Carries packets until dropped.
    pub(crate) async fn run(self: Arc<Self>, proxy: &Client) {
        let flows = DatagramFlows::<Target>::new(proxy.clone(), MOST);
        let binding = DatagramFlows::<()>::new(proxy.clone(), 1);
        let mut datagram = Vec::new();
        let mut buffer = vec![0; LARGEST];
        loop {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else {
                tokio::task::yield_now().await;
                continue;
            };
            if !self.is_client(from) {
                continue;
            }
            let Some((target, start)) = udp_packet(&buffer[..length]) else {
                continue;
            };
            if let Some(peer) = bound_peer(proxy, &target) {
                put_datagram(&mut datagram, peer, &buffer[start..length]);
                binding.send(&(), &datagram, || {
                    let answers = AnswersOfPeers {
                        association: self.clone(),
                        packet: Mutex::default(),
                    };
                    (Wanted::Bound(target.clone(), None), Arc::new(answers))
                });
                continue;
            }
            // The last byte of the header makes room for the context ID.
            buffer[start - 1] = 0;
            flows.send(&target, &buffer[start - 1..length], || {
                let header = udp_header(&target);
                let answers = Answers {
                    association: self.clone(),
                    header: header.len(),
                    packet: Mutex::new(header),
                };
                (Wanted::Udp(target.clone(), None), Arc::new(answers))
            });
        }
    }
}

/// The peer, if payloads to this target leave by the association's own port at the proxy. The proxy
/// looks up names for flows of their own only, and questions to DNS end after ten seconds.
fn bound_peer(proxy: &Client, target: &Target) -> Option<SocketAddr> {
    match target.host() {
        Host::Address(ip) if target.port() != DNS && proxy.binds() => {
            Some(SocketAddr::new(*ip, target.port()))
        }
        _ => None,
    }
}
