//! `--tun` in a hostile local network: routes that lead past the tunnel, and the kill switch.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::*;

/// An address that only a default route leads to, and what answers DHCP in a local network could
/// route.
const ELSEWHERE: [&str; 2] = ["198.51.100.9", "2001:db8:99::9"];
/// Bytes of a payload that no packet of QUIC has.
const SHORT: &[u8] = b"x";

pub(super) fn nft(namespace: &str, rules: &str) -> String {
    let words = ["netns", "exec", namespace, "nft", rules];
    let output = Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "{rules}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Counters of packets that arrive in a namespace by a device.
struct Leaks<'a> {
    namespace: &'a str,
}

/// Kinds of packets, as a counter is named and `nft` chooses them. Each packet counts once, for the
/// first that fits.
const KINDS: [(&str, &str); 6] = [
    ("stranger", "udp length 9 ip daddr 10.77.0.1"),
    ("dns", "meta l4proto { tcp, udp } th dport 53"),
    ("ipv6", "meta nfproto ipv6"),
    ("udp4", "meta l4proto udp"),
    ("tcp4", "meta l4proto tcp"),
    ("rest", "meta nfproto ipv4"),
];

impl<'a> Leaks<'a> {
    /// Counts all packets except for paths to this proxy, neighbour discovery and reports of
    /// groups.
    fn count(namespace: &'a str, device: &str, proxy: &Server) -> Self {
        let port = proxy.address.port();
        let paths = format!("udp length > 9 ip daddr 10.77.0.1 udp dport {port}");
        Self::count_except(namespace, device, &paths)
    }

    fn count_except(namespace: &'a str, device: &str, allowed: &str) -> Self {
        let mut rules = String::from("table inet leaks {\n");
        for (name, _) in KINDS {
            rules += &format!("counter {name} {{ }}\n");
        }
        rules += &format!(
            "chain arriving {{
            type filter hook prerouting priority raw;
            iifname != {device} accept
            {allowed} accept
            icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }} accept
            icmpv6 type {{ mld-listener-report, mld-listener-done, mld2-listener-report }} accept\n"
        );
        for (name, packets) in KINDS {
            rules += &format!("{packets} counter name {name} accept\n");
        }
        nft(namespace, &(rules + "}\n}\n"));
        Self { namespace }
    }

    /// The packets of each kind since the last look.
    fn take(&self) -> Vec<(&'static str, u64)> {
        let counters = nft(self.namespace, "reset counters table inet leaks\n");
        let packets = |name: &str| -> u64 {
            let (_, after) = counters.split_once(&format!("counter {name} {{")).unwrap();
            let mut words = after
                .split_whitespace()
                .skip_while(|word| *word != "packets");
            words.nth(1).unwrap().parse().unwrap()
        };
        KINDS.map(|(name, _)| (name, packets(name))).to_vec()
    }

    #[track_caller]
    fn are_none(&self, when: &str) {
        let leaks = self.take();
        assert!(
            leaks.iter().all(|(_, packets)| *packets == 0),
            "{when}: {leaks:?}"
        );
    }

    /// Counters do count: each kind has packets, except for `rest`.
    #[track_caller]
    fn are_of_all_kinds(&self, when: &str) {
        let leaks = self.take();
        assert!(
            leaks[..5].iter().all(|(_, packets)| *packets > 0),
            "{when}: {leaks:?}"
        );
    }
}

/// Sends by TCP and UDP, to name servers and others, with addresses chosen by the system and by the
/// program. Fails nowhere: there may be no route, and no permission.
fn send_everywhere(proxy: SocketAddr) {
    let near: [IpAddr; 2] = [
        "10.77.0.2".parse().unwrap(),
        "2001:db8:77::2".parse().unwrap(),
    ];
    let any: [IpAddr; 2] = [[0; 4].into(), [0; 16].into()];
    for from in near.into_iter().chain(any) {
        let Ok(socket) = UdpSocket::bind((from, 0)) else {
            continue;
        };
        let elsewhere = ELSEWHERE
            .into_iter()
            .chain(TARGETS)
            .chain(["10.77.0.1", "2001:db8:77::1"]);
        for target in elsewhere.map(|target| target.parse::<IpAddr>().unwrap()) {
            for port in [53, 9] {
                let _ = socket.send_to(b"leak", (target, port));
            }
        }
    }
    for target in ELSEWHERE {
        for port in [53, 80] {
            let target = SocketAddr::new(target.parse().unwrap(), port);
            let _ = TcpStream::connect_timeout(&target, Duration::from_millis(50));
        }
    }
    // To the proxy itself, as another user.
    let script = format!("printf x > /dev/udp/{}/{}", proxy.ip(), proxy.port());
    let _ = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", "bash", "-c", &script])
        .stderr(Stdio::null())
        .status();
}

/// Asks again and again, for some seconds.
fn soon(mut condition: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        condition()
    })
}

/// With IPv6 and addresses that anybody could have, also for the neighbour.
fn network() -> Network {
    let network = Network::new();
    let (client, server) = (&network.client, &network.server);
    ip(&format!(
        "-n {client} address add 2001:db8:77::2/64 dev near nodad"
    ));
    ip(&format!(
        "-n {server} address add 2001:db8:77::1/64 dev far nodad"
    ));
    default_routes(&network);
    network
}

fn default_routes(network: &Network) {
    let client = &network.client;
    ip(&format!(
        "-n {client} route replace default via 10.77.0.1 dev near"
    ));
    ip(&format!(
        "-n {client} route replace default via 2001:db8:77::1 dev near"
    ));
}

impl Network {
    /// The client's programs and the neighbour send everywhere.
    fn send_everywhere(&self, server: &Server) {
        let address = server.address;
        Self::within(&self.client, || send_everywhere(address));
        Self::within(&self.neighbour, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let _ = socket.send_to(b"leak", (ELSEWHERE[0], 53));
            let _ = socket.send_to(b"leak", (ELSEWHERE[0], 9));
        });
        // Packets are counted where they arrive.
        std::thread::sleep(Duration::from_millis(50));
    }

    /// The tunnel carries both IP versions.
    fn tunnel_works(&self, port: u16) {
        Self::within(&self.client, || {
            for target in TARGETS {
                let target = SocketAddr::new(target.parse().unwrap(), port);
                assert_eq!(exchange(target, b"hello"), b"hello");
                assert_eq!(ask(target, b"question"), b"question");
            }
        });
    }

    #[track_caller]
    fn down(&self) {
        let down = self.run(&["down"]);
        assert_exit(&down, 0);
        assert_eq!(down.stdout, b"undone: mpquic0\n");
    }
}

/// As by DHCP's option 121 (CVE-2024-3661), before the session and during it.
#[test]
#[ignore = "needs root, for network namespaces"]
fn routes_of_a_hostile_network_take_nothing_out_of_the_tunnel() {
    let network = network();
    let (server, port) = network.serve();
    let leaks = Leaks::count(&network.neighbour, "edge", &server);
    let add = |route: &str| {
        ip(&format!(
            "-n {} route add {route} proto dhcp",
            network.client
        ))
    };
    add("0.0.0.0/1 via 192.168.77.2 dev lan");
    add("128.0.0.0/1 via 192.168.77.2 dev lan");
    network.send_everywhere(&server);
    let taken = leaks.take();
    assert!(taken[3].1 > 0, "packets follow such routes: {taken:?}");

    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("socket");
    let socket = socket.to_str().unwrap();
    let client = network.start(
        &server,
        &["--dns", "203.0.113.1", "--status-socket", socket],
    );
    for route in ["0.0.0.0/1", "128.0.0.0/1"] {
        let way = "via 192.168.77.2, interface lan";
        client.logs(&[route, way, "is not used", &format!("--keep-route {route}")]);
    }
    leaks.take();
    network.tunnel_works(port);
    // A longer one, and one without a gateway.
    add("203.0.113.1/32 via 192.168.77.2 dev lan");
    add("203.0.113.0/24 dev lan scope link");
    client.logs(&[
        "lead 203.0.113.1/32 past",
        "via 192.168.77.2",
        "is not used",
    ]);
    client.logs(&["lead 203.0.113.0/24 past", "interface lan", "is not used"]);
    network.tunnel_works(port);
    leaks.are_none("the neighbour");
    let log = client.1.lock().unwrap().clone();
    for own in ["192.168.77.0/24", "10.77.0.0/24"] {
        assert!(!log.contains(own), "{log}");
    }
    let status = || {
        let status = network.run(&["status", "--json", socket]);
        String::from_utf8(status.stdout).unwrap()
    };
    let counted = r#""routes_refused":4,"routes_past":0"#;
    let is_counted = || status().replace([' ', '\n'], "").contains(counted);
    assert!(soon(is_counted), "{}", status());

    // A private network may be that of another router, which is told.
    add("10.99.0.0/16 via 192.168.77.2 dev lan");
    client.logs(&[
        "leads 10.99.0.0/16 past the tunnel",
        "via 192.168.77.2, interface lan",
    ]);
    Network::within(&network.client, || {
        // The neighbour has no answer, and the proxy neither.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"past", "10.99.0.1:9").unwrap();
        assert!(soon(|| leaks.take()[3].1 > 0), "private networks");
    });
    client.end(Signal::SIGTERM);
    leaks.take();
    network.send_everywhere(&server);
    let taken = leaks.take();
    assert!(
        taken[3].1 > 0,
        "packets follow such routes again: {taken:?}"
    );
}

/// Networks of `--keep-route` are left to the machine, also by the kill switch.
#[test]
#[ignore = "needs root, for network namespaces"]
fn kept_routes_are_used() {
    let network = network();
    let (server, port) = network.serve();
    let before = network.state();
    let leaks = Leaks::count(&network.server, "far", &server);
    let elsewhere = SocketAddr::new(ELSEWHERE[0].parse().unwrap(), 9);
    let arrives = |options: &[&str]| {
        let client = network.start(&server, options);
        network.tunnel_works(port);
        leaks.take();
        Network::within(&network.client, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(b"kept", elsewhere).unwrap();
        });
        std::thread::sleep(Duration::from_millis(50));
        client.end(Signal::SIGTERM);
        leaks.take()[3].1 > 0
    };
    assert!(!arrives(&[]));
    let kept = ["--keep-route", "198.51.100.0/24"];
    assert!(arrives(&kept));
    assert!(arrives(&[&kept[..], &["--kill-switch"]].concat()));
    network.down();
    assert_eq!(network.state(), before);
}

/// No packet leaves while the client runs, whatever happens, nor after any end of it.
#[test]
#[ignore = "needs root, for network namespaces"]
fn nothing_leaves_past_a_closed_kill_switch_until_it_is_opened() {
    let network = network();
    let (server, port) = network.serve();
    let before = network.state();
    let leaks = Leaks::count(&network.server, "far", &server);
    network.send_everywhere(&server);
    leaks.are_of_all_kinds("no client");
    let more = ["--kill-switch", "--dns", "203.0.113.1"];
    type End = fn(&Network, Client);
    let ends: [(&str, End); 5] = [
        ("SIGINT", |_, client| client.end(Signal::SIGINT)),
        ("SIGTERM", |_, client| client.end(Signal::SIGTERM)),
        ("SIGHUP", |_, client| client.end(Signal::SIGHUP)),
        ("SIGKILL", |_, client| client.end(Signal::SIGKILL)),
        ("no device", |network, mut client| {
            ip(&format!("-n {} link delete mpquic0", network.client));
            assert!(!client.0.wait().unwrap().success());
        }),
    ];
    for (name, end) in ends {
        let client = network.start(&server, &more);
        client.logs(&["the kill switch is closed", "`mpquic proxy down`"]);
        network.tunnel_works(port);
        Network::within(&network.neighbour, || {
            let target = SocketAddr::new(TARGETS[0].parse().unwrap(), port);
            assert_eq!(exchange(target, b"hello"), b"hello");
            assert_eq!(ask(target, b"question"), b"question");
        });
        network.send_everywhere(&server);
        leaks.are_none("a client");
        let log = client.1.clone();
        end(&network, client);
        if name != "SIGKILL" {
            wait_until("the last words", || {
                log.lock().unwrap().contains("the kill switch stays closed")
            });
        }
        network.send_everywhere(&server);
        leaks.are_none(name);
        // Nobody is taken by surprise.
        let open = network.run(&["client", &server.url(""), "--pin", &server.pin, "--tun"]);
        assert_exit(&open, 1);
        assert!(
            stderr(&open).contains("left the kill switch closed"),
            "{open:?}"
        );
        network.down();
        assert_eq!(network.state(), before, "{name}");
        network.send_everywhere(&server);
        leaks.are_of_all_kinds(name);
    }
}

fn sorted(text: String) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Links and the proxy may be away, and another program may remove all rules of the firewall.
#[test]
#[ignore = "needs root, for network namespaces"]
fn the_kill_switch_stays_closed_whatever_fails() {
    let network = network();
    let (server, port) = network.serve();
    let before = sorted(network.state());
    let leaks = Leaks::count(&network.server, "far", &server);
    let more = ["--kill-switch", "--dns", "203.0.113.1"];
    let client = network.start(&server, &more);
    network.tunnel_works(port);
    let near = |state| ip(&format!("-n {} link set near {state}", network.client));
    near("down");
    network.send_everywhere(&server);
    near("up");
    ip(&format!(
        "-n {} address replace 2001:db8:77::2/64 dev near nodad",
        network.client
    ));
    default_routes(&network);
    network.send_everywhere(&server);
    leaks.are_none("links were down");
    network.tunnel_works(port);

    nft(&network.client, "flush ruleset\n");
    client.logs(&["another program opened the kill switch", "closed again"]);
    leaks.take();
    network.send_everywhere(&server);
    leaks.are_none("the rules were removed");

    drop(server);
    let (server, _) = network.serve();
    network.send_everywhere(&server);
    leaks.are_none("the proxy is dead");
    client.end(Signal::SIGKILL);
    network.down();
    // The link's routes are back in another order.
    assert_eq!(sorted(network.state()), before);
}

/// From a kill to a client that works again no packet leaves, not even to look up the proxy's name.
#[test]
#[ignore = "needs root, for network namespaces"]
fn a_restarted_client_finds_its_proxy_behind_the_closed_kill_switch() {
    let network = network();
    let (server, port) = network.serve();
    let before = network.state();
    let leaks = Leaks::count(&network.server, "far", &server);
    let hosts = format!("{}/hosts", network.resolver);
    fs::write(&hosts, "10.77.0.1 proxy.example\n").unwrap();
    let url = format!("https://proxy.example:{}", server.address.port());
    let start = || {
        let words = [
            "client",
            &url,
            "--pin",
            &server.pin,
            "--tun",
            "--kill-switch",
        ];
        network.start_words(&words, "tun on mpquic0")
    };
    let client = start();
    network.tunnel_works(port);
    leaks.take();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if the test fails.
        let _end = End(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                network.send_everywhere(&server);
            }
        });
        client.end(Signal::SIGKILL);
        // Only what the first client knew leads to the proxy.
        fs::write(&hosts, "").unwrap();
        let client = start();
        network.tunnel_works(port);
        client.end(Signal::SIGTERM);
        let client = start();
        client.end(Signal::SIGTERM);
    });
    leaks.are_none("restarts");
    network.down();
    // A switch that nobody has a record of is opened too.
    start_and_forget(&network, &server);
    // The machine was open meanwhile.
    leaks.take();
    network.send_everywhere(&server);
    leaks.are_none("a forgotten kill switch");
    let down = network.run(&["down"]);
    assert_eq!(down.stdout, b"undone: the kill switch\n");
    assert_eq!(network.state(), before);
}

/// Tells a thread to end, when dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that ended, and whose record of its kill switch is lost.
fn start_and_forget(network: &Network, server: &Server) {
    network
        .start(server, &["--kill-switch"])
        .end(Signal::SIGTERM);
    let namespace = fs::File::open(format!("/run/netns/{}", network.client)).unwrap();
    let number = std::os::unix::fs::MetadataExt::ino(&namespace.metadata().unwrap());
    fs::remove_file(format!("/run/mpquic-tun/mpquic0.{number}.json")).unwrap();
}

/// With `--kill-switch=lan` private networks of interfaces are reached, also new ones, but not
/// their name servers.
#[test]
#[ignore = "needs root, for network namespaces"]
fn a_kill_switch_can_leave_the_lan_open() {
    let network = network();
    let (server, port) = network.serve();
    let before = network.state();
    let neighbour = &network.neighbour;
    ip(&format!("-n {neighbour} address add 10.98.0.2/24 dev edge"));
    ip(&format!("-n {neighbour} address add 8.8.8.2/24 dev edge"));
    // The link to the server is such a network too; what it leads to is not.
    let to_link = "ip daddr 10.77.0.0/24 udp dport != 53";
    let leaks = Leaks::count_except(&network.server, "far", to_link);
    let lan = Leaks::count(neighbour, "edge", &server);
    let client = network.start(&server, &["--kill-switch=lan"]);
    network.tunnel_works(port);
    network.send_everywhere(&server);
    leaks.are_none("the local networks are open");
    let reaches = |target: &str, port: u16| {
        lan.take();
        Network::within(&network.client, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let _ = socket.send_to(SHORT, (target, port));
        });
        std::thread::sleep(Duration::from_millis(50));
        lan.take().iter().map(|(_, packets)| packets).sum::<u64>() > 0
    };
    assert!(reaches("192.168.77.2", 9));
    assert!(!reaches("192.168.77.2", 53));
    assert!(!reaches("10.98.0.2", 9));
    ip(&format!(
        "-n {} address add 10.98.0.1/24 dev lan",
        network.client
    ));
    assert!(soon(|| reaches("10.98.0.2", 9)), "a new local network");
    // Anybody could give a local network public addresses (CVE-2023-36672).
    ip(&format!(
        "-n {} address add 8.8.8.1/24 dev lan",
        network.client
    ));
    client.logs(&["the local network 8.8.8.0/24 has public addresses"]);
    assert!(!reaches("8.8.8.2", 9));
    client.end(Signal::SIGKILL);
    assert!(reaches("192.168.77.2", 9));
    assert!(!reaches("8.8.8.2", 9));
    for address in ["10.98.0.1/24", "8.8.8.1/24"] {
        ip(&format!(
            "-n {} address delete {address} dev lan",
            network.client
        ));
    }
    network.down();
    assert_eq!(network.state(), before);
}

/// Public addresses of a local network do not count as targets, but its machines get their answers.
#[test]
#[ignore = "needs root, for network namespaces"]
fn neighbours_with_public_addresses_use_the_tunnel() {
    let network = network();
    let (server, port) = network.serve();
    let (client, neighbour) = (&network.client, &network.neighbour);
    ip(&format!(
        "-n {client} address add 2001:db8:78::1/64 dev lan nodad"
    ));
    ip(&format!(
        "-n {neighbour} address add 2001:db8:78::2/64 dev edge nodad"
    ));
    ip(&format!(
        "-n {neighbour} route add default via 2001:db8:78::1 dev edge"
    ));
    Network::within(client, || {
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
    for more in [&[][..], &["--kill-switch"]] {
        let running = network.start(&server, more);
        Network::within(neighbour, || {
            for target in TARGETS {
                let target = SocketAddr::new(target.parse().unwrap(), port);
                assert_eq!(ask(target, b"question"), b"question", "{more:?}");
                assert_eq!(exchange(target, b"hello"), b"hello", "{more:?}");
            }
        });
        running.end(Signal::SIGTERM);
    }
    network.down();
}

/// Without the program `nft`, one line names the program, and the machine stays as it was.
#[test]
#[ignore = "needs root, for network namespaces"]
fn a_missing_program_is_named() {
    let network = network();
    let before = network.state();
    // A directory of programs without `nft`.
    let programs = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap();
    let found = path.split(':').map(|place| Path::new(place).join("ip"));
    let program = found.into_iter().find(|program| program.exists()).unwrap();
    std::os::unix::fs::symlink(&program, programs.path().join("ip")).unwrap();
    let output = Command::new(program)
        .args([
            "netns",
            "exec",
            &network.client,
            env!("CARGO_BIN_EXE_mpquic"),
        ])
        .args(["proxy", "client", "https://10.77.0.1:1", "--insecure"])
        .args(["--tun", "--kill-switch"])
        .env("PATH", programs.path())
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    assert_exit(&output, 1);
    let said = stderr(&output);
    assert!(
        said.contains("--kill-switch needs the program `nft`"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(network.state(), before);
}
