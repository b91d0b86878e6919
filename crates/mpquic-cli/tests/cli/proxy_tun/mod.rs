//! `mpquic proxy client --tun`: programs that know nothing of a proxy, and what is left on the
//! machine. Needs root, for network namespaces, so it is not run unless asked for: `-- --ignored
//! proxy_tun`.

mod forged;
mod hostile;
mod lan_dns;
mod resolver_links;
mod udp_mapping;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType};
use nix::unistd::Pid;

use crate::{PROGRAM, Server, assert_exit, data, stderr, wait_until};

/// Where the proxy is, for the client.
const PROXY: &str = "10.77.0.1:0";
/// Where targets are. They answer nobody but the proxy, which is on the same machine.
const TARGETS: [&str; 2] = ["203.0.113.1", "2001:db8:113::1"];

#[track_caller]
fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Namespaces of a client and a server with a link between them, and of a machine that reaches
/// others by way of the client; gone when dropped.
struct Network {
    client: String,
    server: String,
    neighbour: String,
    resolver: String,
}

impl Network {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test needs root, for network namespaces"
        );
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |side: &str| format!("mpquic-{}-{number}-{side}", std::process::id());
        let network = Self {
            resolver: format!("/etc/netns/{}", name("c")),
            client: name("c"),
            server: name("s"),
            neighbour: name("n"),
        };
        let (client, server) = (&network.client, &network.server);
        let neighbour = &network.neighbour;
        for namespace in [client, server, neighbour] {
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
        }
        ip(&format!(
            "-n {client} link add near type veth peer name far netns {server}"
        ));
        ip(&format!("-n {client} address add 10.77.0.2/24 dev near"));
        ip(&format!("-n {server} address add 10.77.0.1/24 dev far"));
        ip(&format!(
            "-n {client} link add lan type veth peer name edge netns {neighbour}"
        ));
        ip(&format!("-n {client} address add 192.168.77.1/24 dev lan"));
        ip(&format!(
            "-n {neighbour} address add 192.168.77.2/24 dev edge"
        ));
        let devices = [
            (client, "near"),
            (server, "far"),
            (client, "lan"),
            (neighbour, "edge"),
        ];
        for (namespace, device) in devices {
            // No address appears later by itself.
            ip(&format!(
                "-n {namespace} link set {device} addrgenmode none up"
            ));
        }
        ip(&format!(
            "-n {neighbour} route add default via 192.168.77.1"
        ));
        Self::within(client, || {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            // As strict as it gets, also for the device.
            for name in ["all", "default", "near", "lan"] {
                fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "1").unwrap();
            }
        });
        ip(&format!("-n {client} route add default via 10.77.0.1"));
        for (target, at_once) in TARGETS.into_iter().zip(["", " nodad"]) {
            ip(&format!("-n {server} address add {target} dev lo{at_once}"));
        }
        fs::create_dir_all(&network.resolver).unwrap();
        fs::write(network.resolver_file(), "nameserver 10.77.0.1\n").unwrap();
        network
    }

    /// The same, with IPv6 between the client's machine and its neighbour.
    fn with_ipv6_neighbour() -> Self {
        let network = Self::new();
        let (client, neighbour) = (&network.client, &network.neighbour);
        ip(&format!(
            "-n {client} address add fd77:77::1/64 dev lan nodad"
        ));
        ip(&format!(
            "-n {neighbour} address add fd77:77::2/64 dev edge nodad"
        ));
        ip(&format!("-n {neighbour} route add default via fd77:77::1"));
        network
    }

    fn resolver_file(&self) -> String {
        format!("{}/resolv.conf", self.resolver)
    }

    /// All that a client may change.
    fn state(&self) -> String {
        let client = &self.client;
        let mut state = fs::read_to_string(self.resolver_file()).unwrap();
        for what in ["rule", "route show table all", "address"] {
            for version in [4, 6] {
                state += &ip(&format!("-{version} -n {client} {what}"));
            }
        }
        state + &ip(&format!("netns exec {client} nft list ruleset"))
    }

    /// What a function gives in a namespace: sockets it makes stay there.
    fn within<T: Send>(namespace: &str, run: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{namespace}");
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                run()
            });
            running.join().unwrap()
        })
    }

    /// A proxy, and behind it targets that say back what they hear once that has ended, and UDP's
    /// at once; the port is the same for all of them.
    fn serve(&self) -> (Server, u16) {
        Self::within(&self.server, || {
            let listener = TcpListener::bind((TARGETS[0], 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let second = TcpListener::bind((TARGETS[1], port)).unwrap();
            for listener in [listener, second] {
                let socket = UdpSocket::bind(listener.local_addr().unwrap()).unwrap();
                std::thread::spawn(move || echo(&listener));
                std::thread::spawn(move || echo_datagrams(&socket));
            }
            let allow = ["--allow", "203.0.113.0/24", "--allow", "2001:db8:113::/48"];
            let listen = ["proxy", "server", "--open", "--listen", PROXY];
            (Server::launch(&[&listen[..], &allow].concat()), port)
        })
    }

    /// The command in the client's namespace, with its own resolver.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.client])
            .args(PROGRAM)
            .arg("proxy")
            .args(arguments)
            .env_remove("RUST_LOG");
        command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A client; it has changed what it changes.
    fn start(&self, server: &Server, more: &[&str]) -> Client {
        let more = [&["--tun"], more].concat();
        self.start_with(server, &more, "tun on mpquic0")
    }

    /// A client that has said this.
    fn start_with(&self, server: &Server, more: &[&str], says: &str) -> Client {
        let url = server.url("");
        let fixed = ["client", &url, "--pin", &server.pin];
        self.start_words(&[&fixed[..], more].concat(), says)
    }

    /// The same with all words after `mpquic proxy`.
    fn start_words(&self, words: &[&str], says: &str) -> Client {
        let mut client = Client::of(self.command(words));
        let lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
        let (said, hears) = std::sync::mpsc::channel();
        // The client says more, and ends if nobody can hear it.
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| drop(said.send(line)));
        });
        let first = hears.recv_timeout(Duration::from_secs(20));
        assert_eq!(first.as_deref(), Ok(says), "{}", client.1.lock().unwrap());
        client
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in [&self.client, &self.server, &self.neighbour] {
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .status();
        }
        let _ = fs::remove_dir_all(&self.resolver);
    }
}

/// A client with its log, told to end when dropped.
struct Client(Child, Arc<Mutex<String>>);

impl Client {
    /// A client that begins.
    fn of(mut command: Command) -> Self {
        let mut child = (command.stdout(Stdio::piped()).stderr(Stdio::piped()))
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let told = log.clone();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| *told.lock().unwrap() += &(line + "\n"));
        });
        Self(child, log)
    }

    /// Ends it, and waits until it has.
    fn end(mut self, signal: Signal) {
        // `ip netns exec` becomes the command.
        self.signal(signal);
        self.0.wait().unwrap();
    }

    /// Waits for a line of the log with all of these words.
    fn logs(&self, words: &[&str]) {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        wait_until(&format!("{words:?} in the log"), || {
            self.1.lock().unwrap().lines().any(has_all)
        });
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal(Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

fn echo(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut heard = Vec::new();
            let is_proxy = stream.peer_addr()?.ip() == stream.local_addr()?.ip();
            if is_proxy && stream.read_to_end(&mut heard).is_ok() {
                stream.write_all(&heard)?;
            }
            std::io::Result::Ok(())
        });
    }
}

fn echo_datagrams(socket: &UdpSocket) {
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        if from.ip() == socket.local_addr().unwrap().ip() {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// Asks a target by UDP, as a resolver does: again, if nothing comes.
fn ask(target: SocketAddr, question: &[u8]) -> Vec<u8> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.connect(target).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut buffer = vec![0; 65_536];
    for _ in 0..10 {
        socket.send(question).unwrap();
        if let Ok(length) = socket.recv(&mut buffer) {
            return buffer[..length].to_vec();
        }
    }
    panic!("no answer from {target}");
}

/// Asks whether a host is there, as `ping` does, until it says so.
fn ping(target: &str) {
    ping_with(target, 0);
}

/// A `ping` with this number of zeros, which the checksum of IPv4 does not see.
fn ping_with(target: &str, zeros: usize) {
    let target: IpAddr = target.parse().unwrap();
    // Types of a question and of its answer, and where that begins: behind the header of IPv4.
    let (family, protocol, question, answer, begin) = match target {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8, 0, 20),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128, 129, 0),
    };
    let socket = socket::socket(family, SockType::Raw, SockFlag::empty(), protocol).unwrap();
    let socket = UdpSocket::from(socket);
    (socket.set_read_timeout(Some(Duration::from_secs(1)))).unwrap();
    let mut message = vec![question, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.resize(8 + zeros, 0);
    if target.is_ipv4() {
        let sum = !(0x0800u16 + 0x1234 + 1);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let mut buffer = vec![0; 65_536];
    for _ in 0..10 {
        socket.send_to(&message, (target, 0)).unwrap();
        // Such a socket hears all messages.
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let heard = &buffer[begin..length];
            if from.ip() == target && heard[0] == answer && heard[4..] == message[4..] {
                return;
            }
        }
    }
    panic!("{target} does not answer");
}

/// What a target says back by TCP, after our end.
fn exchange(target: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let stream = TcpStream::connect(target).unwrap();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        (&stream).read_to_end(&mut answer).unwrap();
    });
    answer
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn tun_serves_all_programs_and_leaves_no_trace() {
    let network = Network::new();
    let (server, port) = network.serve();
    let before = network.state();
    let client = network.start(&server, &["--dns", "203.0.113.1"]);
    let resolver = fs::read_to_string(network.resolver_file()).unwrap();
    assert!(resolver.contains("nameserver 203.0.113.1\n"), "{resolver}");
    assert!(!resolver.contains("10.77.0.1"), "{resolver}");
    // A DHCP client writes the name servers of a new network.
    fs::write(network.resolver_file(), "nameserver 10.77.0.9\n").unwrap();
    wait_until("the name server of --dns", || {
        fs::read_to_string(network.resolver_file()).unwrap() == resolver
    });
    let content = data(4 << 20);
    Network::within(&network.client, || {
        for target in TARGETS {
            let target = SocketAddr::new(target.parse().unwrap(), port);
            assert!(exchange(target, &content) == content, "{target}");
            assert_eq!(ask(target, b"question"), b"question");
            assert_eq!(ask(target, &content[..1300]), content[..1300]);
        }
        TARGETS.into_iter().for_each(ping);
        // As if the target were connected with us.
        let refused = TcpStream::connect((TARGETS[0], 1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let denied = TcpStream::connect("198.51.100.1:80").unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::HostUnreachable);
    });

    // The second is told, and the first goes on; nor does it lose anything to `down`.
    let second = network.run(&["client", &server.url(""), "--pin", &server.pin, "--tun"]);
    assert_exit(&second, 1);
    assert!(stderr(&second).contains("mpquic0 is in use"), "{second:?}");
    let down = network.run(&["down"]);
    assert_exit(&down, 1);
    assert!(stderr(&down).contains("in use by process"), "{down:?}");
    let target = SocketAddr::new(TARGETS[0].parse().unwrap(), port);
    Network::within(&network.client, || {
        assert_eq!(exchange(target, b"hello"), b"hello");
    });

    // An application whose connection breaks off learns that it did.
    let mut open = Network::within(&network.client, || TcpStream::connect(target).unwrap());
    open.write_all(b"hello").unwrap();
    client.end(Signal::SIGTERM);
    let error = open.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let [old, new] = ["10.77.0.1", "10.77.0.9"].map(|server| format!("nameserver {server}\n"));
    assert_eq!(network.state(), before.replacen(&old, &new, 1));
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn a_user_routes_into_the_device_alone() {
    let network = Network::new();
    let (server, port) = network.serve();
    let before = network.state();
    let client = network.start(&server, &["--route", "none"]);
    // Addresses of the device bring their own routes, and nothing else is new. The system may add a
    // link-local address; the network's other devices have none.
    let name = &network.client;
    let state = network.state();
    // The table against forged packets is the last of nftables.
    let (with_device, guard) = state.split_once("table inet mpquic_device_").unwrap();
    assert_eq!(guard.matches(" drop\n").count(), 2, "{guard}");
    for line in with_device.lines().filter(|line| !before.contains(*line)) {
        let is_of_device = [
            "mpquic0",
            "198.18.0.1",
            "fd6d:7071:7569:63a4",
            "inet6 fe80:",
        ];
        let is_lifetime = line.trim_start().starts_with("valid_lft");
        assert!(
            is_lifetime || is_of_device.iter().any(|word| line.contains(word)),
            "{line}"
        );
    }
    assert!(!ip(&format!("-n {name} rule")).contains("32001"));
    // Routes of the user lead into the device, and they are longer than the network's default
    // route.
    for half in ["0.0.0.0/1", "128.0.0.0/1"] {
        ip(&format!("-n {name} route add {half} dev mpquic0"));
    }
    let content = data(1 << 20);
    let target = SocketAddr::new(TARGETS[0].parse().unwrap(), port);
    Network::within(name, || {
        assert!(exchange(target, &content) == content);
        assert_eq!(ask(target, b"question"), b"question");
    });
    client.end(Signal::SIGTERM);
    assert_eq!(network.state(), before);
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn tun_routes_neighbours_and_keeps_earlier_connections() {
    let network = Network::new();
    let (server, port) = network.serve();
    let listener = Network::within(&network.server, || {
        TcpListener::bind((TARGETS[0], 0)).unwrap()
    });
    let direct = listener.local_addr().unwrap();
    let mut before = Network::within(&network.client, || TcpStream::connect(direct).unwrap());
    let (mut far, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "10.77.0.2", "not by the proxy");
    let _client = network.start(&server, &[]);
    before.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    far.read_exact(&mut heard).unwrap();
    far.write_all(&heard).unwrap();
    before.read_exact(&mut heard).unwrap();
    assert_eq!(heard, *b"hello");
    let target = SocketAddr::new(TARGETS[0].parse().unwrap(), port);
    Network::within(&network.neighbour, || {
        let content = data(1 << 20);
        assert!(exchange(target, &content) == content);
        assert_eq!(ask(target, b"question"), b"question");
        ping(TARGETS[0]);
        let refused = TcpStream::connect((TARGETS[0], 1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

/// Packets above the MTU of the neighbour's network, which is smaller than the device's, in both
/// directions.
#[test]
#[ignore = "needs root, for network namespaces"]
fn neighbours_of_a_tun_get_packets_of_all_sizes() {
    let network = Network::with_ipv6_neighbour();
    let (client, neighbour) = (&network.client, &network.neighbour);
    // The neighbour does not know, so segments to the neighbour are too large.
    for network in ["192.168.77.0/24", "fd77:77::/64 metric 256"] {
        ip(&format!(
            "-n {client} route replace {network} dev lan mtu lock 1300"
        ));
    }
    Network::within(client, || {
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
    let (server, port) = network.serve();
    for (option, expected) in [(&["--mtu", "1400"][..], 1400), (&[], 1500)] {
        let started = network.start(&server, option);
        let mtu = ip(&format!("-n {client} link show mpquic0"));
        assert!(mtu.contains(&format!(" mtu {expected} ")), "{mtu}");
        drop(started);
    }
    let _client = network.start(&server, &[]);
    Network::within(neighbour, || {
        for text in TARGETS {
            let target = SocketAddr::new(text.parse().unwrap(), port);
            for size in [0, 1232, 1233, 1272, 1273, 1452, 1473, 2000, 9000, 60_000] {
                let content = data(size);
                assert!(ask(target, &content) == content, "{size} to {text}");
                ping_with(text, size);
            }
            let content = data(1 << 20);
            assert!(exchange(target, &content) == content, "{text}");
        }
    });
}

/// What a router diverts reaches its target by way of the proxy, and what is sent to the entrance
/// itself does not.
#[test]
#[ignore = "needs root, for network namespaces"]
fn diverted_connections_reach_their_targets() {
    let network = Network::new();
    let (server, port) = network.serve();
    let client = &network.client;
    let entrances = [
        "--tproxy",
        "192.168.77.1:1082",
        "--tproxy",
        "[fd77::1]:1082",
    ];
    ip(&format!("-n {client} address add fd77::1/64 dev lan nodad"));
    let neighbour = &network.neighbour;
    ip(&format!(
        "-n {neighbour} address add fd77::2/64 dev edge nodad"
    ));
    ip(&format!("-n {neighbour} route add default via fd77::1"));
    for version in [4, 6] {
        ip(&format!(
            "-{version} -n {client} rule add fwmark 1 lookup 100"
        ));
        ip(&format!(
            "-{version} -n {client} route add local default dev lo table 100"
        ));
    }
    let rules = "table inet mpquic {
        chain divert {
            type filter hook prerouting priority mangle;
            iifname lan ip daddr 203.0.113.0/24 meta l4proto tcp tproxy ip to 192.168.77.1:1082 meta mark set 1
            iifname lan ip6 daddr 2001:db8:113::/48 meta l4proto tcp tproxy ip6 to [fd77::1]:1082 meta mark set 1
        }
    }";
    let nft = ["netns", "exec", client, "nft", rules];
    let divert = Command::new("ip").args(nft).output().unwrap();
    assert!(divert.status.success(), "{divert:?}");
    let _client = network.start_with(&server, &entrances, "tproxy on 192.168.77.1:1082");
    let content = data(1 << 20);
    Network::within(&network.neighbour, || {
        for target in TARGETS {
            let target = SocketAddr::new(target.parse().unwrap(), port);
            // Without a connection to the proxy yet, it is reset.
            wait_until("an answer", || {
                let mut stream = TcpStream::connect(target).unwrap();
                let _ = stream.write_all(b"hello");
                let _ = stream.shutdown(Shutdown::Write);
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).is_ok() && answer == b"hello"
            });
            assert!(exchange(target, &content) == content, "{target}");
        }
        let mut itself = TcpStream::connect("192.168.77.1:1082").unwrap();
        let error = itself.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

/// Without the privilege there is one line that says what it takes.
#[test]
#[ignore = "needs root, for network namespaces"]
fn missing_privileges_are_named() {
    let without = ["--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let output = Command::new("setpriv")
        .args(without)
        .args([env!("CARGO_BIN_EXE_mpquic"), "proxy", "client"])
        .args(["https://127.0.0.1:1", "--insecure", "--tun"])
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    assert_exit(&output, 1);
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("device mpquic0") && said.contains("CAP_NET_ADMIN"),
        "{said}"
    );
}

/// As a modem has none while there is no signal.
#[test]
#[ignore = "needs root, for network namespaces"]
fn interface_without_an_address_does_not_block_the_start() {
    let network = Network::new();
    let (server, port) = network.serve();
    ip(&format!(
        "-n {} link add idle type veth peer name nobody",
        network.client
    ));
    let more = ["--local", "near", "--local", "idle", "--backup", "idle"];
    let client = network.start(&server, &more);
    let target = SocketAddr::new(TARGETS[0].parse().unwrap(), port);
    Network::within(&network.client, || {
        assert_eq!(exchange(target, b"hello"), b"hello");
    });
    client.end(Signal::SIGINT);
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn proxy_down_undoes_a_killed_client() {
    let network = Network::new();
    let (server, port) = network.serve();
    let before = network.state();
    let more = ["--dns", "203.0.113.1", "--route", "203.0.113.0/24"];
    let client = network.start(&server, &more);
    let target = SocketAddr::new(TARGETS[0].parse().unwrap(), port);
    Network::within(&network.client, || {
        assert_eq!(exchange(target, b"hello"), b"hello");
    });
    // Nothing else is led into the device.
    let elsewhere = ip(&format!("-n {} route get 198.51.100.1", network.client));
    assert!(elsewhere.contains("dev near"), "{elsewhere}");
    client.end(Signal::SIGKILL);
    assert_ne!(network.state(), before);

    let down = network.run(&["down"]);
    assert_exit(&down, 0);
    assert_eq!(down.stdout, b"undone: mpquic0\n");
    assert_eq!(network.state(), before);
    let again = network.run(&["down"]);
    assert_exit(&again, 0);
    assert_eq!(again.stdout, b"nothing to undo\n");

    // The next one does it by itself,
    network.start(&server, &more).end(Signal::SIGKILL);
    network.start(&server, &more).end(Signal::SIGINT);
    assert_eq!(network.state(), before);

    // also while the proxy's name has no address yet,
    network.start(&server, &more).end(Signal::SIGKILL);
    let words = ["client", "https://proxy.invalid", "--tun"];
    let client = Client::of(network.command(&words));
    client.logs(&["the changes of a killed client are undone"]);
    client.logs(&["proxy.invalid", "trying again"]);
    assert_eq!(network.state(), before);
    client.end(Signal::SIGTERM);

    // and where somebody else has put things right.
    let client = network.start(&server, &["--route", "203.0.113.0/24"]);
    client.end(Signal::SIGKILL);
    for rule in ["32000", "32001", "32001", "32001"] {
        let delete = format!("rule delete priority {rule}");
        ip(&format!("-n {} {delete}", network.client));
    }
    for guard in network.guards() {
        hostile::nft(&network.client, &format!("delete table inet {guard}"));
    }
    assert_eq!(network.state(), before);

    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let client = network.start(&server, &["--route", "203.0.113.0/24"]);
        client.end(signal);
        assert_eq!(network.state(), before);
    }
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn resets_and_ends_are_told_from_each_other() {
    let network = Network::new();
    let (server, _) = network.serve();
    let _client = network.start(&server, &[]);
    let (listener, target) = Network::within(&network.server, || {
        let listener = TcpListener::bind((TARGETS[0], 0)).unwrap();
        let target = listener.local_addr().unwrap();
        (listener, target)
    });
    let connect = || {
        let near = Network::within(&network.client, || TcpStream::connect(target).unwrap());
        let (far, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), target.ip(), "the proxy's machine");
        (near, far)
    };
    for is_near in [true, false] {
        let (near, far) = connect();
        let (mut here, mut there) = if is_near { (near, far) } else { (far, near) };
        there.write_all(b"unread").unwrap();
        // With bytes that were not read, closing is a reset.
        here.peek(&mut [0]).unwrap();
        drop(here);
        let error = there.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        // An end leaves the other direction open.
        let (near, far) = connect();
        let (there, mut last) = if is_near { (near, far) } else { (far, near) };
        there.shutdown(Shutdown::Write).unwrap();
        assert_eq!(last.read(&mut [0; 8]).unwrap(), 0);
        last.write_all(b"still").unwrap();
        drop(last);
        here = there;
        let mut heard = Vec::new();
        here.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"still");
    }
    // What nobody takes waits at its sender.
    let (near, far) = connect();
    near.set_nonblocking(true).unwrap();
    let mut written = 0;
    wait_until("back-pressure", || {
        let before = written;
        while let Ok(count) = (&near).write(&[0; 64 << 10]) {
            written += count;
        }
        std::thread::sleep(Duration::from_millis(50));
        before == written
    });
    let mut heard = 0;
    let mut buffer = vec![0; 1 << 20];
    near.shutdown(Shutdown::Write).unwrap();
    loop {
        match (&far).read(&mut buffer).unwrap() {
            0 => break,
            count => heard += count,
        }
    }
    assert_eq!(heard, written);
}
