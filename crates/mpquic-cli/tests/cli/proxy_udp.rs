//! `mpquic proxy client --udp-mapping`: the ports from which targets hear a program.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::proxy::Client;
use crate::{Server, assert_exit, run, stderr, wait_until};

const SERVER: [&str; 7] = [
    "proxy",
    "server",
    "--open",
    "--listen",
    "127.0.0.1:0",
    "--allow",
    "127.0.0.0/8",
];

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let patience = Some(Duration::from_millis(500));
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// The ports from which two targets hear one program, by a SOCKS association.
fn ports(server: &[&str], client: &[&str]) -> [u16; 2] {
    let server = Server::launch(&[&SERVER[..], server].concat());
    let client = [&["--socks", "0"], client].concat();
    let client = Client::start_at(server.address, &server, 1, &client);
    let mut control = TcpStream::connect(client.entrances[0]).unwrap();
    (control.write_all(b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0")).unwrap();
    let mut reply = [0; 12];
    control.read_exact(&mut reply).unwrap();
    let entrance: SocketAddr = ([127, 0, 0, 1], u16::from_be_bytes([reply[10], reply[11]])).into();
    let own = socket();
    [socket(), socket()].map(|target| {
        let port = target.local_addr().unwrap().port();
        let header = [&b"\0\0\0\x01\x7f\0\0\x01"[..], &port.to_be_bytes()].concat();
        let packet = [&header[..], b"question"].concat();
        let (mut buffer, mut heard) = ([0; 64], None);
        // The first payloads may come before the connection to the proxy.
        wait_until("a payload", || {
            own.send_to(&packet, entrance).unwrap();
            heard = target.recv_from(&mut buffer).ok();
            heard.is_some()
        });
        let (length, from) = heard.unwrap();
        assert_eq!(buffer[..length], *b"question");
        target.send_to(b"answer", from).unwrap();
        let (length, _) = own.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..length], [&header[..], b"answer"].concat());
        from.port()
    })
}

#[test]
fn a_program_has_one_udp_port_or_one_for_each_target() {
    let mapping = ["--udp-mapping", "endpoint-independent"];
    let [one, two] = ports(&[], &mapping);
    assert_eq!(one, two);
    let [one, two] = ports(&[], &[]);
    assert_ne!(one, two);
    // The operator may refuse.
    let [one, two] = ports(&["--no-udp-binding"], &mapping);
    assert_ne!(one, two);
}

#[test]
fn a_filter_needs_a_port_for_all_targets() {
    let filtering = ["--udp-filtering", "endpoint-independent"];
    let client = ["proxy", "client", "https://127.0.0.1:1"];
    let refused = run(&[&client[..], &filtering].concat());
    assert_exit(&refused, 2);
    assert!(
        stderr(&refused).contains("add --udp-mapping endpoint-independent"),
        "{refused:?}"
    );
}
