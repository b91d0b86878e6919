//! A UDP port that leads to one target.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;

use super::datagram_flow::Wanted;
use super::datagram_flows::{DatagramFlows, MOST};
use super::flows::Client;
use crate::datagrams::Deliver;
use crate::target::Target;

/// The largest payload that an application sends.
const LARGEST: usize = 64 << 10;

/// Answers for one application.
struct Answers {
    socket: Arc<UdpSocket>,
    to: SocketAddr,
}

impl Deliver for Answers {
    fn deliver(&self, payload: &[u8]) {
        // A payload without room in the socket is lost.
        let _ = self.socket.try_send_to(payload, self.to);
    }
}

/// Carries packets of a socket, each sender's by its own flow, until the future is dropped.
pub(crate) async fn udp(socket: UdpSocket, target: Target, proxy: Client) {
    let socket = Arc::new(socket);
    let flows = DatagramFlows::<SocketAddr>::new(proxy, MOST);
    // The first byte is the context ID, 0.
    let mut buffer = vec![0; 1 + LARGEST];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer[1..]).await else {
            tokio::task::yield_now().await;
            continue;
        };
        flows.send(&from, &buffer[..=length], || {
            let socket = socket.clone();
            (
                Wanted::Udp(target.clone(), None),
                Arc::new(Answers { socket, to: from }),
            )
        });
    }
}
