//! Packets that a host of the local network forges for the addresses of the device
//! (CVE-2019-14899).

use super::hostile::nft;
use super::*;

/// The addresses of the first device, in the order of [`TARGETS`].
const DEVICE: [&str; 2] = ["198.18.0.1", "fd6d:7071:7569:63a4::1"];

/// Routes to the targets alone.
const SOME: [&str; 4] = ["--route", "203.0.113.0/24", "--route", "2001:db8:113::/48"];

/// A network whose client machine takes packets with any source address, and whose neighbour has
/// the targets' addresses, too.
fn network() -> Network {
    let network = Network::with_ipv6_neighbour();
    let client = &network.client;
    Network::within(client, || {
        for name in ["all", "default", "near", "lan"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
        }
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
    network
}

impl Network {
    /// The neighbour takes the addresses of the targets, or gives them back.
    fn forge(&self, verb: &str) {
        for (target, at_once) in TARGETS.into_iter().zip(["", " nodad"]) {
            let neighbour = &self.neighbour;
            ip(&format!(
                "-n {neighbour} address {verb} {target} dev lo{at_once}"
            ));
        }
    }

    /// A program whose socket is connected with a target through the tunnel.
    fn program(&self, target: IpAddr, port: u16) -> UdpSocket {
        let any: IpAddr = match target {
            IpAddr::V4(_) => [0; 4].into(),
            IpAddr::V6(_) => [0; 16].into(),
        };
        let socket = Self::within(&self.client, || {
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.connect((target, port)).unwrap();
            socket
        });
        let patience = Some(Duration::from_millis(300));
        socket.set_read_timeout(patience).unwrap();
        socket
    }

    /// True if a program gets a payload that the neighbour sends in the name of a target.
    fn is_deceived(&self, program: &UdpSocket) -> bool {
        let (target, own) = (program.peer_addr().unwrap(), program.local_addr().unwrap());
        let forger = Self::within(&self.neighbour, || UdpSocket::bind(target).unwrap());
        forger.send_to(b"forged", own).unwrap();
        let mut buffer = [0; 64];
        match program.recv(&mut buffer) {
            Ok(length) => {
                assert_eq!(&buffer[..length], b"forged");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }

    /// The tables that drop forged packets.
    pub(super) fn guards(&self) -> Vec<String> {
        let tables = nft(&self.client, "list tables");
        let names = tables.lines().filter_map(|line| line.split(' ').nth(2));
        let ours = names.filter(|name| name.starts_with("mpquic_device_"));
        ours.map(str::to_owned).collect()
    }

    /// The tunnel carries traffic of this machine and of the neighbour.
    fn serves_all(&self, port: u16) {
        for target in TARGETS {
            let target = SocketAddr::new(target.parse().unwrap(), port);
            for side in [&self.client, &self.neighbour] {
                Self::within(side, || {
                    assert_eq!(exchange(target, b"hello"), b"hello");
                    assert_eq!(ask(target, b"question"), b"question");
                });
            }
        }
    }
}

/// A payload between two sockets of this machine, at the address of the device.
fn speaks_to_itself(network: &Network, address: &str) {
    Network::within(&network.client, || {
        let [here, there] = [0; 2].map(|_| UdpSocket::bind((address, 0)).unwrap());
        let patience = Some(Duration::from_secs(5));
        there.set_read_timeout(patience).unwrap();
        here.send_to(b"own", there.local_addr().unwrap()).unwrap();
        assert_eq!(there.recv(&mut [0; 8]).unwrap(), 3, "{address}");
    });
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn packets_forged_for_the_device_are_dropped() {
    let network = network();
    let (server, port) = network.serve();
    for options in [&[][..], &["--kill-switch"], &SOME] {
        let client = network.start(&server, options);
        network.serves_all(port);
        let programs: Vec<_> = TARGETS
            .into_iter()
            .zip(DEVICE)
            .map(|(target, own)| {
                let program = network.program(target.parse().unwrap(), port);
                assert_eq!(program.local_addr().unwrap().ip().to_string(), own);
                speaks_to_itself(&network, own);
                program
            })
            .collect();
        network.forge("add");
        for program in &programs {
            assert!(!network.is_deceived(program), "{options:?} {program:?}");
        }
        // Without the table, the same packets arrive. Another program removes the table, and the
        // client is too slow.
        client.signal(Signal::SIGSTOP);
        for guard in network.guards() {
            nft(&network.client, &format!("delete table inet {guard}"));
        }
        for program in &programs {
            assert!(network.is_deceived(program), "{options:?} {program:?}");
        }
        client.signal(Signal::SIGCONT);
        client.logs(&["another program removed", "forge"]);
        for program in &programs {
            assert!(!network.is_deceived(program), "{options:?} {program:?}");
        }
        network.forge("delete");
        network.serves_all(port);
        client.end(Signal::SIGTERM);
        assert!(network.guards().is_empty());
        network.run(&["down"]);
    }
}

/// Addresses and rules of a killed client stop no later client.
#[test]
#[ignore = "needs root, for network namespaces"]
fn rules_against_forged_packets_end_with_their_device() {
    let network = network();
    let (server, port) = network.serve();
    let before = network.state();
    let kill = || {
        network.start(&server, &SOME).end(Signal::SIGKILL);
        assert_eq!(network.guards().len(), 1);
    };
    kill();
    assert_exit(&network.run(&["down"]), 0);
    assert_eq!(network.state(), before);
    for device in ["mpquic0", "other"] {
        kill();
        let (url, tun) = (server.url(""), format!("--tun={device}"));
        let words = ["client", &url, "--pin", &server.pin, &tun];
        let words = [&words[..], &SOME].concat();
        let client = network.start_words(&words, &format!("tun on {device}"));
        assert_eq!(network.guards().len(), 1);
        network.serves_all(port);
        client.end(Signal::SIGTERM);
        assert!(network.guards().is_empty());
        network.run(&["down"]);
        assert_eq!(network.state(), before, "{device}");
    }
    let mut client = network.start(&server, &["--route", "none"]);
    assert_eq!(network.guards().len(), 1);
    ip(&format!("-n {} link delete mpquic0", network.client));
    assert!(!client.0.wait().unwrap().success());
    assert_eq!(network.state(), before);
}

/// Without the program `nft`, a warning names the program and the consequence.
#[test]
#[ignore = "needs root, for network namespaces"]
fn a_client_without_nft_warns_and_goes_on() {
    let network = network();
    let (server, port) = network.serve();
    // A directory of programs without `nft`.
    let programs = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap();
    let found = path
        .split(':')
        .map(|place| std::path::Path::new(place).join("ip"));
    let program = found.into_iter().find(|program| program.exists()).unwrap();
    std::os::unix::fs::symlink(&program, programs.path().join("ip")).unwrap();
    let url = server.url("");
    let mut command = Command::new(program);
    command
        .args([
            "netns",
            "exec",
            &network.client,
            env!("CARGO_BIN_EXE_mpquic"),
        ])
        .args(["proxy", "client", &url, "--pin", &server.pin, "--tun"])
        .env("PATH", programs.path())
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("RUST_LOG");
    let client = Client::of(command);
    client.logs(&["`nft`", "forge", "mpquic0", "install nftables"]);
    wait_until("the rules of the client", || {
        ip(&format!("-n {} rule", network.client)).contains("32001")
    });
    network.serves_all(port);
    let told = client.1.lock().unwrap().matches("nftables").count();
    assert_eq!(told, 1);
    client.end(Signal::SIGTERM);
}
