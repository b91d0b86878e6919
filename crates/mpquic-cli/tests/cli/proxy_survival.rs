//! `mpquic proxy`: flows and programs while links are dark, and while the server is killed or
//! replaced.
#![expect(
    clippy::disallowed_methods,
    reason = "tests of a program measure its time"
)]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::proxy::Client;
use crate::{Server, wait_until};

/// How long a flow may take to answer.
const SOON: Duration = Duration::from_secs(5);

/// Links between clients and a server that can be replaced. Without a server, the links are dark.
#[derive(Clone)]
struct Links {
    front: SocketAddr,
    server: Arc<Mutex<Option<SocketAddr>>>,
}

impl Links {
    fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let links = Self {
            front: front.local_addr().unwrap(),
            server: Arc::new(Mutex::new(Some(server))),
        };
        let server = links.server.clone();
        thread::spawn(move || carry(&Arc::new(front), &server));
        links
    }

    fn lead(&self, server: Option<SocketAddr>) {
        *self.server.lock().unwrap() = server;
    }
}

/// Carries the datagrams of each client from a socket of the client's own.
fn carry(front: &Arc<UdpSocket>, server: &Arc<Mutex<Option<SocketAddr>>>) {
    let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut datagram = [0; 1 << 16];
    loop {
        let Ok((length, client)) = front.recv_from(&mut datagram) else {
            continue;
        };
        let way = ways.entry(client).or_insert_with(|| {
            let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            let (from, to, server) = (back.clone(), front.clone(), server.clone());
            thread::spawn(move || {
                let mut datagram = [0; 1 << 16];
                loop {
                    if let Ok((length, source)) = from.recv_from(&mut datagram)
                        && *server.lock().unwrap() == Some(source)
                    {
                        let _may_be_lost = to.send_to(&datagram[..length], client);
                    }
                }
            });
            back
        });
        if let Some(server) = *server.lock().unwrap() {
            let _may_be_lost = way.send_to(&datagram[..length], server);
        }
    }
}

/// Says back at once all that it hears.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut heard = [0; 1000];
                while let Ok(length @ 1..) = stream.read(&mut heard) {
                    if stream.write_all(&heard[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// True if a flow says a word back.
fn answers(flow: &mut TcpStream) -> bool {
    let mut heard = [0; 4];
    flow.set_read_timeout(Some(SOON)).unwrap();
    let said = flow.write_all(b"word");
    said.and_then(|()| flow.read_exact(&mut heard)).is_ok() && &heard == b"word"
}

/// A new flow, once there is one that answers.
fn new_flow(entrance: SocketAddr) -> TcpStream {
    let mut open = None;
    wait_until("a flow that answers", || {
        let flow = TcpStream::connect(entrance);
        open = flow
            .ok()
            .filter(|flow| answers(&mut flow.try_clone().unwrap()));
        open.is_some()
    });
    open.unwrap()
}

const SERVER: [&str; 7] = [
    "proxy",
    "server",
    "--listen",
    "127.0.0.1:0",
    "--open",
    "--allow",
    "127.0.0.0/8",
];

/// The client tries another connection meanwhile. It does not give up the flows of the first one.
#[test]
fn flows_outlive_links_that_are_dark() {
    let server = Server::launch(&SERVER);
    let links = Links::to(server.address);
    let forward = format!("127.0.0.1:0:{}", echo());
    let client = Client::start_at(links.front, &server, 1, &["-L", &forward]);
    let mut flow = new_flow(client.entrances[0]);
    links.lead(None);
    flow.write_all(b"said in the dark").unwrap();
    thread::sleep(Duration::from_secs(8));
    links.lead(Some(server.address));
    let mut heard = [0; 16];
    flow.set_read_timeout(Some(3 * SOON)).unwrap();
    flow.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"said in the dark");
    // The second connection was made and closed by now, if there was one.
    thread::sleep(SOON);
    assert!(answers(&mut flow));
}

/// The other server has the same certificate and another key for stateless resets, as after a
/// restart with `--cert`: nothing tells the client that the connection is unknown there.
#[test]
fn a_server_that_does_not_know_the_connection_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let state = ["--state", directory.path().to_str().unwrap()];
    let launch = || Server::launch(&[&SERVER[..], &state].concat());
    let (one, other) = (launch(), launch());
    assert_eq!(one.pin, other.pin);
    let links = Links::to(one.address);
    let forward = format!("127.0.0.1:0:{}", echo());
    let client = Client::start_at(links.front, &one, 1, &["-L", &forward]);
    let mut flow = new_flow(client.entrances[0]);
    links.lead(Some(other.address));
    let began = Instant::now();
    // An open flow learns of the loss.
    flow.set_read_timeout(Some(4 * SOON)).unwrap();
    flow.write_all(b"lost").unwrap();
    let mut heard = [0; 4];
    let lost = flow.read_exact(&mut heard).unwrap_err();
    assert_ne!(lost.kind(), ErrorKind::WouldBlock, "{lost}");
    new_flow(client.entrances[0]);
    let took = began.elapsed();
    assert!(took < 4 * SOON, "{took:?}");
}

/// The system of a killed server tells that its port is closed.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_server_is_noticed_at_once() {
    let mut server = Server::launch(&SERVER);
    let forward = format!("127.0.0.1:0:{}", echo());
    let client = Client::start_at(server.address, &server, 1, &["-L", &forward]);
    let mut flow = new_flow(client.entrances[0]);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let began = Instant::now();
    flow.set_read_timeout(Some(4 * SOON)).unwrap();
    flow.write_all(b"lost").unwrap();
    let lost = flow.read_exact(&mut [0; 4]).unwrap_err();
    let took = began.elapsed();
    assert!(
        lost.kind() != ErrorKind::WouldBlock && took < SOON,
        "{lost} after {took:?}"
    );
    // New flows end at once.
    let began = Instant::now();
    let mut flow = TcpStream::connect(client.entrances[0]).unwrap();
    assert!(!answers(&mut flow));
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// The target of a flow, and the flow's connection there.
#[cfg(target_os = "linux")]
fn target() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let forward = format!("127.0.0.1:0:{}", listener.local_addr().unwrap());
    (listener, forward)
}

/// The system of a killed client tells that its port is closed. The targets of its flows learn of
/// the end.
#[cfg(target_os = "linux")]
#[test]
fn the_flows_of_a_killed_client_end_at_their_targets() {
    let server = Server::launch(&SERVER);
    let (listener, forward) = target();
    let mut client = Client::start_at(server.address, &server, 1, &["-L", &forward]);
    listener.set_nonblocking(true).unwrap();
    let (mut flows, mut there) = (Vec::new(), None);
    wait_until("a flow", || {
        flows.extend(TcpStream::connect(client.entrances[0]));
        thread::sleep(Duration::from_millis(100));
        there = listener.accept().ok();
        there.is_some()
    });
    let (mut there, _) = there.unwrap();
    there.set_nonblocking(false).unwrap();
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    there.set_read_timeout(Some(6 * SOON)).unwrap();
    let lost = there.read_exact(&mut [0; 1]).unwrap_err();
    assert_ne!(lost.kind(), ErrorKind::WouldBlock, "{lost}");
}

/// A silent client with a flow holds the only connection of its address.
#[test]
fn a_silent_client_gives_way_to_a_new_one() {
    let server = Server::launch(&[&SERVER[..], &["--max-client-connections", "1"]].concat());
    let links = Links::to(server.address);
    let forward = format!("127.0.0.1:0:{}", echo());
    let silent = Client::start_at(links.front, &server, 1, &["-L", &forward]);
    let _flow = new_flow(silent.entrances[0]);
    links.lead(None);
    // Its address is that of the silent client.
    let others = Links::to(server.address);
    let other = Client::start_at(others.front, &server, 1, &["-L", &forward]);
    new_flow(other.entrances[0]);
}

/// A process that is killed when dropped.
#[cfg(target_os = "linux")]
struct Process(String);

#[cfg(target_os = "linux")]
impl Process {
    fn signal(&self, signal: &str) {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &self.0]).status().unwrap().success());
    }
}

#[cfg(target_os = "linux")]
impl Drop for Process {
    fn drop(&mut self) {
        let mut kill = std::process::Command::new("kill");
        let _may_be_over = kill.args(["-9", &self.0]).status();
    }
}

/// A server that waits for nobody's end, and the one that takes its place.
#[cfg(target_os = "linux")]
#[test]
fn an_upgraded_server_ends_its_flows_after_its_timeout() {
    use std::os::unix::net::UnixDatagram;
    use std::process::Stdio;

    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    manager.set_read_timeout(Some(6 * SOON)).unwrap();
    let mut named = Server::launch(&[&SERVER[..], &["--state", &at("state")]].concat());
    named.child.kill().unwrap();
    named.child.wait().unwrap();
    let (address, state) = (named.address.to_string(), at("state"));
    let mut words: Vec<&str> = SERVER.to_vec();
    words[3] = &address;
    words.extend(["--state", &state, "--upgrade-timeout", "1"]);
    let mut first = crate::mpquic(&words)
        .env("NOTIFY_SOCKET", at("notify"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let first_process = Process(first.id().to_string());
    let told = || {
        let mut message = [0; 100];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(told(), "READY=1\n");
    let forward = format!("127.0.0.1:0:{}", echo());
    let client = Client::start_at(named.address, &named, 1, &["-L", &forward]);
    let mut open = new_flow(client.entrances[0]);
    first_process.signal("-USR2");
    let main = told();
    let successor = main.strip_prefix("MAINPID=").unwrap().trim().to_owned();
    let successor = Process(successor);
    // The flow is still open: without the option, its server would stay for a day.
    wait_until("the end of the first server", || {
        first.try_wait().unwrap().is_some()
    });
    assert!(!answers(&mut open));
    assert!(answers(&mut new_flow(client.entrances[0])));
    drop(client);
    successor.signal("-TERM");
}

/// The next server takes new flows, and the first one keeps its own until they end. No flow is lost
/// or refused.
#[cfg(target_os = "linux")]
#[test]
fn an_upgrade_loses_no_flow() {
    use std::os::unix::net::UnixDatagram;
    use std::process::Stdio;

    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let state = ["--state", &at("state")];
    // All servers share a pin, and the first server's ports are free after its end.
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics_at = metrics.local_addr().unwrap().to_string();
    drop(metrics);
    let mut named = Server::launch(&[&SERVER[..], &state].concat());
    named.child.kill().unwrap();
    named.child.wait().unwrap();
    let manager = UnixDatagram::bind(at("notify")).unwrap();
    manager.set_read_timeout(Some(6 * SOON)).unwrap();
    let told = || {
        let mut message = [0; 100];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let (address, status) = (named.address.to_string(), at("status"));
    let mut words: Vec<&str> = SERVER.to_vec();
    words[3] = &address;
    words.extend(state);
    words.extend(["--metrics", &metrics_at, "--status-socket", &status]);
    let mut first = crate::mpquic(&words)
        .env("NOTIFY_SOCKET", at("notify"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let first_process = Process(first.id().to_string());
    assert_eq!(told(), "READY=1\n");
    let forward = format!("127.0.0.1:0:{}", echo());
    let client = Client::start_at(named.address, &named, 1, &["-L", &forward]);
    let mut before: Vec<_> = (0..10).map(|_| new_flow(client.entrances[0])).collect();

    first_process.signal("-USR2");
    let main = told();
    let successor = main.strip_prefix("MAINPID=").unwrap().trim().to_owned();
    let successor = Process(successor);
    // The very next flow is the first server's, or waits rather than fails.
    before.push(TcpStream::connect(client.entrances[0]).unwrap());
    assert!(before.iter_mut().all(answers));
    assert_eq!(told(), "READY=1\n");
    let mut after = new_flow(client.entrances[0]);
    assert!(before.iter_mut().all(answers));
    assert_eq!(first.try_wait().unwrap(), None);
    crate::assert_exit(&crate::run(&["proxy", "status", &status]), 0);
    assert!(TcpStream::connect(&metrics_at).is_ok());
    // The first server ends with its last flow, and the other one goes on.
    before.clear();
    wait_until("the end of the first server", || {
        first.try_wait().unwrap().is_some()
    });
    assert!(answers(&mut after));
    assert!(answers(&mut new_flow(client.entrances[0])));
    drop(client);
    successor.signal("-TERM");
}
