//! `--udp-mapping`: a machine behind the router, whose UDP socket speaks with several targets.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::{Client, Network, ip};
use crate::{Server, wait_until};

/// Addresses of peers, in the server's namespace.
const PEERS: [&str; 3] = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];

struct Trial {
    network: Network,
    /// The socket of the machine behind the router.
    own: UdpSocket,
    peers: Vec<UdpSocket>,
    _server: Server,
    _client: Client,
}

fn socket(namespace: &str, address: &str) -> UdpSocket {
    let socket = Network::within(namespace, || UdpSocket::bind((address, 0)).unwrap());
    let patience = Some(Duration::from_secs(1));
    socket.set_read_timeout(patience).unwrap();
    socket
}

impl Trial {
    fn new(options: &[&str]) -> Self {
        let network = Network::new();
        for peer in &PEERS[1..] {
            ip(&format!("-n {} address add {peer} dev lo", network.server));
        }
        let (server, _) = network.serve();
        let client = network.start(&server, options);
        let peers = PEERS.map(|peer| socket(&network.server, peer));
        Self {
            own: socket(&network.neighbour, "192.168.77.2"),
            peers: peers.into(),
            network,
            _server: server,
            _client: client,
        }
    }

    /// The address from which a peer hears the machine behind the router.
    fn seen(&self, peer: usize) -> SocketAddr {
        let peer = &self.peers[peer];
        let mut seen = None;
        wait_until("a payload", || {
            let _ = self.own.send_to(b"question", peer.local_addr().unwrap());
            let mut buffer = [0; 64];
            seen = peer.recv_from(&mut buffer).ok().map(|(_, from)| from);
            seen.is_some()
        });
        seen.unwrap()
    }

    /// True if a payload of a peer to this port reaches the machine behind the router, from the
    /// peer.
    fn is_let_in(&self, peer: usize, port: u16) -> bool {
        let peer = &self.peers[peer];
        peer.send_to(b"answer", (PEERS[0], port)).unwrap();
        let mut buffer = [0; 64];
        match self.own.recv_from(&mut buffer) {
            Ok((length, from)) => {
                assert_eq!(buffer[..length], *b"answer");
                assert_eq!(from, peer.local_addr().unwrap());
                true
            }
            Err(_) => false,
        }
    }
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn a_neighbour_has_one_port_for_all_targets() {
    for (filtering, strangers) in [("address-dependent", false), ("endpoint-independent", true)] {
        let mapping = ["--udp-mapping", "endpoint-independent"];
        let options = [&mapping[..], &["--udp-filtering", filtering]].concat();
        let trial = Trial::new(&options);
        let port = trial.seen(0).port();
        for peer in [1, 0, 1, 0] {
            assert_eq!(trial.seen(peer).port(), port);
        }
        assert!(trial.is_let_in(0, port) && trial.is_let_in(1, port));
        assert_eq!(trial.is_let_in(2, port), strangers);
        // Many payloads, and large ones.
        for length in [1, 1200, 1400, 8000] {
            let (payload, peer) = (vec![7; length], &trial.peers[1]);
            let to = peer.local_addr().unwrap();
            let mut buffer = vec![0; 65_536];
            for _ in 0..10 {
                trial.own.send_to(&payload, to).unwrap();
                let (heard, from) = peer.recv_from(&mut buffer).unwrap();
                assert_eq!((from.port(), heard), (port, length));
                peer.send_to(&buffer[..heard], from).unwrap();
                let (heard, from) = trial.own.recv_from(&mut buffer).unwrap();
                assert_eq!((from, heard), (to, length));
            }
        }
        // Another socket has another port.
        let other = socket(&trial.network.neighbour, "192.168.77.2");
        let trial = Trial {
            own: other,
            ..trial
        };
        assert_ne!(trial.seen(0).port(), port);
    }
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn each_target_has_a_port_of_its_own_otherwise() {
    let trial = Trial::new(&[]);
    let ports = [0, 1].map(|peer| trial.seen(peer).port());
    assert_ne!(ports[0], ports[1]);
    assert!(trial.is_let_in(0, ports[0]) && !trial.is_let_in(1, ports[0]));
}
