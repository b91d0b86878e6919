//! Options of the proxy that decide which flows there are, how long they last, and how urgent they
//! are: each test looks at the effect for a program.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use crate::proxy::{Client, target};
use crate::{Server, assert_exit, run, wait_until};

const SERVER: [&str; 7] = [
    "proxy",
    "server",
    "--listen",
    "127.0.0.1:0",
    "--open",
    "--target-timeout",
    "2",
];
const ALLOW: [&str; 2] = ["--allow", "127.0.0.0/8"];

/// A server with these options besides, and a client with an HTTP entrance.
fn start(server: &[&str], client: &[&str]) -> (Server, Client) {
    let server = Server::launch(&[&SERVER[..], server].concat());
    let client = [&["--http", "0"], client].concat();
    let entrances = 1 + client.iter().filter(|word| **word == "-L").count();
    let client = Client::start_at(server.address, &server, entrances, &client);
    (server, client)
}

/// A request for a target at the client's HTTP entrance, and the status of the answer.
fn ask(client: &Client, target: &str) -> (TcpStream, u16) {
    let ask = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    let mut asked = None;
    // The entrance is there before the connection to the proxy.
    wait_until("an answer of the proxy", || {
        let mut stream = TcpStream::connect(client.entrances[0]).unwrap();
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        let mut answer = [0; 12];
        let sent = stream.write_all(ask.as_bytes());
        let read = sent.and_then(|()| stream.read_exact(&mut answer));
        let text = str::from_utf8(&answer).unwrap_or_default();
        let status = text
            .strip_prefix("HTTP/1.1 ")
            .and_then(|text| text.parse().ok());
        let status = status.filter(|status| read.is_ok() && *status != 503);
        asked = status.map(|status| (stream, status));
        asked.is_some()
    });
    asked.unwrap()
}

/// The status of the answer; a flow ends.
fn status(client: &Client, target: &str) -> u16 {
    ask(client, target).1
}

#[test]
fn denied_targets_are_refused_although_their_network_is_allowed() {
    let (open, closed) = (target(), target());
    let port = format!(":{}", closed.port());
    let (_server, client) = start(&[&ALLOW[..], &["--deny", &port]].concat(), &[]);
    assert_eq!(status(&client, &closed.to_string()), 403);
    assert_eq!(status(&client, &open.to_string()), 200);
    // A name does not lead around the rule.
    assert_eq!(
        status(&client, &format!("localhost:{}", closed.port())),
        403
    );
}

/// The target is a public address, which is a target without the option. It has no route.
#[test]
fn only_allowed_targets_are_reached() {
    let (_server, client) = start(&[&ALLOW[..], &["--only-allowed"]].concat(), &[]);
    assert_eq!(status(&client, "[2a00::1]:9"), 403);
    assert_eq!(status(&client, &target().to_string()), 200);
}

/// An IPv6 address may lead to a private IPv4 address, here to 10.0.0.1.
#[test]
fn rules_hold_behind_the_prefix_of_a_translator() {
    let prefix = ["--nat64", "2a00:64::/96"];
    let (_server, client) = start(&prefix, &[]);
    assert_eq!(status(&client, "[2a00:64::a00:1]:9"), 403);
}

#[test]
fn a_user_has_as_many_flows_as_the_operator_says() {
    let (_server, client) = start(&[&ALLOW[..], &["--max-flows", "2"]].concat(), &[]);
    let target = target().to_string();
    assert_eq!(status(&client, &target), 200);
    let held: Vec<_> = (0..2).map(|_| held_flow(&client, &target)).collect();
    assert_eq!(status(&client, &target), 429);
    drop(held);
    wait_until("room for a flow", || status(&client, &target) == 200);
}

/// An open flow to a target. A flow of a request before may not have ended yet.
fn held_flow(client: &Client, target: &str) -> TcpStream {
    let mut flow = None;
    wait_until("a flow", || {
        let (stream, status) = ask(client, target);
        flow = (status == 200).then_some(stream);
        flow.is_some()
    });
    flow.unwrap()
}

/// A side's status.
#[cfg(unix)]
fn told(socket: &str) -> Value {
    let output = run(&["proxy", "status", socket, "--json"]);
    assert_exit(&output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// By default a UDP flow stays for two minutes, which is longer than the test waits.
#[cfg(unix)]
#[test]
fn an_idle_udp_flow_ends_when_either_side_says() {
    let directory = tempfile::tempdir().unwrap();
    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let forward = format!("udp:127.0.0.1:0:{}", echo.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 100];
        while let Ok((length, from)) = echo.recv_from(&mut buffer) {
            echo.send_to(&buffer[..length], from).unwrap();
        }
    });
    let idle: &[&str] = &["--udp-idle", "1"];
    for (number, of_server, of_client) in [(0, idle, &[][..]), (1, &[], idle)] {
        let there = directory.path().join(format!("server{number}"));
        let there = there.to_str().unwrap();
        let server = [&ALLOW[..], &["--status-socket", there], of_server].concat();
        let client = [&["-L", &forward][..], of_client].concat();
        let (_server, client) = start(&server, &client);
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        own.set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        wait_until("an answer", || {
            own.send_to(b"question", client.entrances[1]).unwrap();
            own.recv(&mut [0; 100]).is_ok()
        });
        let has_flow = || {
            told(there)["flows"]
                .as_array()
                .is_some_and(|flows| !flows.is_empty())
        };
        assert!(has_flow(), "{number}");
        wait_until("the end of the flow", || !has_flow());
    }
}

/// The system lists 127.0.0.1 alone as an address of the interface: its path is closed at the quota,
/// the other two stay.
#[cfg(target_os = "linux")]
#[test]
fn an_interface_closes_at_its_quota() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (here, book) = (at("client"), at("book"));
    let quota = ["--local", "lo", "--quota", "lo=1M", "--quota-file", &book];
    let (_server, client) = start(&ALLOW, &[&quota[..], &["--status-socket", &here]].concat());
    let mut flow = held_flow(&client, &target().to_string());
    let is_open = || {
        let told = told(&here);
        let paths = told["connections"][0]["paths"].as_array();
        let local = |path: &Value| path["local"].as_str().unwrap().starts_with("127.0.0.1:");
        paths.is_some_and(|paths| paths.iter().any(local))
    };
    wait_until("a path from the interface", is_open);
    std::thread::spawn(move || while flow.write_all(&[0; 100_000]).is_ok() {});
    wait_until("the quota", || !is_open());
    let told = told(&here);
    assert_eq!(told["interfaces"][0]["quota"]["used_up"], true, "{told}");
    let paths = told["connections"][0]["paths"].as_array();
    assert_eq!(paths.map(Vec::len), Some(2), "{told}");
}

/// The class of the only flow, as a side tells it.
#[cfg(unix)]
fn class(socket: &str) -> String {
    let mut class = String::new();
    wait_until("a flow", || {
        let told = told(socket);
        let told = told["flows"][0]["class"].as_str();
        class = told.unwrap_or_default().to_owned();
        told.is_some()
    });
    class
}

/// The operator's rule is for the server's side of a flow, the user's rule for both: the client
/// tells the server the class. Without a rule, a flow on any port is interactive at first.
#[cfg(unix)]
#[test]
fn rules_of_either_side_give_a_flow_its_class() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for (number, of_server, of_client, expected) in [
        (0, None, None, ["interactive", "interactive"]),
        (1, Some("bulk"), None, ["bulk", "interactive"]),
        (2, None, Some("real-time"), ["real-time", "real-time"]),
        (3, Some("bulk"), Some("real-time"), ["bulk", "real-time"]),
    ] {
        let target = target();
        let rule = |class: Option<&str>| -> Vec<String> {
            let rule = class.map(|class| format!("{class}=:{}", target.port()));
            rule.map_or(Vec::new(), |rule| vec!["--class".to_owned(), rule])
        };
        let (there, here) = (
            at(&format!("server{number}")),
            at(&format!("client{number}")),
        );
        let (of_server, of_client) = (rule(of_server), rule(of_client));
        let server = words(&of_server, &["--status-socket", &there]);
        let client = words(&of_client, &["--status-socket", &here]);
        let (_server, client) = start(&[&ALLOW[..], &server].concat(), &client);
        let _flow = held_flow(&client, &target.to_string());
        assert_eq!([class(&there), class(&here)], expected, "{number}");
    }
}

fn words<'a>(first: &'a [String], rest: &[&'a str]) -> Vec<&'a str> {
    first
        .iter()
        .map(String::as_str)
        .chain(rest.iter().copied())
        .collect()
}

/// Either side ends a flow that carries nothing.
#[test]
fn flows_without_data_end_after_the_idle_time_of_either_side() {
    let short = ["--tcp-idle", "1"];
    for (of_server, of_client) in [(&short[..], &[][..]), (&[], &short)] {
        let (_server, client) = start(&[&ALLOW[..], of_server].concat(), of_client);
        let mut flow = held_flow(&client, &target().to_string());
        // The rest of the answer, and the end of the flow.
        let ended = flow.read_to_end(&mut Vec::new());
        let reset = ended.expect_err("the end is no orderly one").kind();
        assert_eq!(reset, std::io::ErrorKind::ConnectionReset, "{of_server:?}");
    }
}
