//! Tests of the list of addresses.

use clap::Parser;
use futures_util::future::join;
use mpquic_tokio::LeftOutReason;

use super::*;
use crate::options::Alpn;
use crate::process::screen::tests::Heard;
use crate::serve::limits::Limits;
use crate::testing::{Anything, Served, end_of_first, pair, reach, soon};

#[test]
fn a_path_is_watched_until_nothing_changes() {
    let is = |before: &[u16], ecn| is_settled(before, 1400, ecn);
    assert!(is(&[1200, 1300, 1400], EcnValidation::Capable));
    assert!(is(&[1400, 1400, 1400, 1400], EcnValidation::Failed));
    assert!(!is(&[1400, 1400], EcnValidation::Capable), "too soon");
    assert!(!is(&[1400, 1400, 1300], EcnValidation::Capable), "it grows");
    assert!(!is(&[], EcnValidation::Capable));
    let smallest = is_settled(&[1200; 4], 1200, EcnValidation::Capable);
    assert!(!smallest, "the search for larger datagrams goes on");
    for untold in [EcnValidation::Testing, EcnValidation::Unknown] {
        assert!(!is(&[1400, 1400, 1400], untold));
    }
    assert_eq!(millis(Duration::from_micros(1500)), 1.5);
}

/// What goes over a path to see what it carries is of a kind that servers ignore.
#[tokio::test]
async fn noise_means_nothing_to_a_server() {
    let pair = pair(Alpn::H3).await;
    for (protocol, start) in [(&b"h3"[..], &[0x21][..]), (b"perf", &[0; 8])] {
        let mut noise = soon(Noise::begin(&pair.client, protocol)).await;
        noise.send().await;
        drop(noise);
        let mut stream = soon(pair.server.accept_uni()).await.unwrap();
        let read = soon(stream.read_to_end(10_000)).await.unwrap();
        assert_eq!(read, [start, &[0; NOISE]].concat());
    }
    let mut none = Noise::begin(&pair.client, b"hq-interop").await;
    none.send().await;
    assert!(none.0.is_none());
}

#[tokio::test]
async fn paths_shows_findings_of_a_server() {
    let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
    let (url, reach) = (served.url("/"), served.reach(&["--local", "127.0.0.2"]));
    let look = Purpose::look(&url, &[Alpn::H3, Alpn::Perf]);
    let sessions = Sessions::new(&reach, look).unwrap().that_forget();
    let start = starts(&reach, listed(), &[served.address]).remove(0);
    let servers = ["[::1]:1".parse().unwrap(), served.address];
    let mut tries = 0..5;
    let reached = loop {
        tries
            .next()
            .expect("it takes all of the time that there is, whatever shows");
        let began = Instant::now();
        let reached = soon(try_from(&sessions, &url, &start, (&servers, &[]))).await;
        let took = began.elapsed();
        assert!(took >= LOOKS as u32 * LOOK, "{took:?}");
        if took < SETTLE {
            break reached.unwrap();
        }
    };
    assert_eq!(reached.server, served.address);
    assert_eq!((reached.ecn, &*reached.protocol), ("capable", "perf"));
    assert!(reached.multipath && reached.mtu >= 1200);
    assert_eq!(reached.quic_version, "v1");
    for time in [reached.handshake_ms, reached.min_rtt_ms, reached.rtt_ms] {
        assert!((0.01..1000.0).contains(&time), "{time} ms");
    }
    let none = try_from(&sessions, &url, &start, (&servers[..1], &[])).await;
    let failure = none.err().unwrap();
    assert_eq!(
        failure.message(),
        "the server has no address of this IP version"
    );
}

#[tokio::test]
async fn a_server_hears_when_the_look_is_over() {
    let (served, observer) = Served::observed(Alpn::Perf);
    let (url, reach) = (served.url("/"), served.reach(&["--local", "127.0.0.1"]));
    let look = Purpose::look(&url, &[Alpn::Perf]);
    let sessions = Sessions::new(&reach, look).unwrap().that_forget();
    let start = starts(&reach, listed(), &[served.address]).remove(0);
    let servers = [served.address];
    let looked = try_from(&sessions, &url, &start, (&servers, &[]));
    let (reached, close) = soon(join(looked, end_of_first(&observer))).await;
    assert_eq!(reached.unwrap().protocol, "perf");
    let close = (close.error_code, &close.reason[..]);
    assert_eq!(close, (0u32.into(), &b"done"[..]));
}

/// Only packets with data carry ECN marks, so without an answer the observation takes its full
/// time.
#[tokio::test(start_paused = true)]
async fn paths_observes_until_settled_or_timeout() {
    for (alpn, times) in [
        (Alpn::Perf, 4 * LOOK..8 * LOOK),
        (Alpn::HqInterop, SETTLE..SETTLE + LOOK),
    ] {
        let served = Served::start(Anything::new(1), Limits::default(), alpn);
        let (url, reach) = (served.url("/"), served.reach(&["--local", "127.0.0.1"]));
        let alpn = [alpn];
        let sessions = Sessions::new(&reach, Purpose::look(&url, &alpn));
        let sessions = sessions.unwrap().that_forget();
        let start = starts(&reach, listed(), &[served.address]).remove(0);
        let began = Instant::now();
        let servers = [served.address];
        try_from(&sessions, &url, &start, (&servers, &[]))
            .await
            .unwrap();
        let took = began.elapsed();
        assert!(times.contains(&took), "{took:?}");
    }
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    paths: Paths,
}

/// Without a server, its place is unknown.
#[tokio::test]
async fn all_addresses_are_listed_without_a_server() {
    let args = Line::try_parse_from(["x"]).unwrap().paths;
    let heard = Heard::begin();
    look(&args, None).await.unwrap();
    let [printed, said] = heard.take();
    let count = crate::options::origin::listed().unwrap().len();
    assert_eq!((printed.lines().count(), &*said), (count + 1, ""));
    assert!(!printed.contains("on this machine"), "{printed}");
}

fn one(name: &str, ip: &str, left_out: Option<LeftOutReason>) -> InterfaceAddress {
    // Every machine has at least one to begin with.
    let mut one = mpquic_tokio::interface_addresses().unwrap().remove(0);
    (one.name, one.ip, one.left_out) = (name.to_owned(), ip.parse().unwrap(), left_out);
    one
}

fn listed() -> Vec<InterfaceAddress> {
    vec![
        one("lo", "127.0.0.1", Some(LeftOutReason::Loopback)),
        one("eth0", "192.0.2.1", None),
        one("wlan0", "2001:db8::1", None),
    ]
}

/// Servers on another machine and on this machine.
const THERE: &str = "198.51.100.1:443";
const HERE: &str = "127.0.0.1:443";

/// Names of the used places, and the reasons for the others.
fn told(named: &[&str], server: &str) -> Vec<String> {
    let mut reach = reach(&[]);
    let named = named.iter().map(|named| named.parse().unwrap());
    reach.local = named.map(Local::Address).collect();
    let starts = starts(&reach, listed(), &[server.parse().unwrap()]).into_iter();
    let told = starts.map(|start| match &start.left_out {
        None => format!("{}: {:?}", start.name(), start.interface),
        Some(why) => format!("{}: {why}", start.name()),
    });
    told.collect()
}

#[test]
fn paths_start_where_the_user_says_or_where_it_makes_sense() {
    let lo = format!("lo: {}", LeftOutReason::Loopback);
    let used = ["eth0: Some(\"eth0\")", "wlan0: Some(\"wlan0\")"];
    assert_eq!(told(&[], THERE), [&lo, used[0], used[1]]);
    let here = "the server is on this machine";
    let expected = [
        lo,
        format!("eth0: {here}"),
        format!("wlan0: {here}"),
        "any: None".into(),
    ];
    assert_eq!(told(&[], HERE), expected);
    // A named address counts for its interface.
    let named = told(&["192.0.2.1", "127.0.0.1"], HERE);
    assert_eq!(
        named,
        ["192.0.2.1: Some(\"eth0\")", "127.0.0.1: Some(\"lo\")"]
    );
    assert_eq!(told(&["192.0.2.9"], THERE), ["192.0.2.9: None"]);
}

/// `get` lets the system choose; here, each address of the link is tried.
#[cfg(target_os = "linux")]
#[test]
fn a_link_local_server_is_reached_from_its_link() {
    // Each machine has this link, with the number 1.
    let (link_local, other) = (Some(LeftOutReason::LinkLocal), "eth7");
    let listed = vec![
        one("lo", "2001:db8::1", None),
        one("lo", "fe80::1", link_local),
        one("lo", "fe80::3", Some(LeftOutReason::Tentative)),
        one(other, "fe80::1", link_local),
        one(other, "192.0.2.1", None),
    ];
    let of = |servers: &[&str]| {
        let servers: Vec<_> = servers.iter().map(|it| it.parse().unwrap()).collect();
        let starts = starts(&reach(&[]), listed.clone(), &servers).into_iter();
        let told = starts.map(|start| match &start.left_out {
            Some(why) => why.clone(),
            None => {
                let reached = servers.iter().filter(|it| start.reaches(**it, &listed));
                format!("{}: {}", start.name(), reached.count())
            }
        });
        told.collect::<Vec<_>>()
    };
    let elsewhere = "the server has a link-local address";
    let expected = [
        elsewhere,
        "fe80::1%lo: 1",
        "tentative",
        "link-local",
        elsewhere,
    ];
    assert_eq!(of(&["[fe80::9%1]:443"]), expected);
    let both = of(&["[fe80::9%1]:443", THERE]);
    assert_eq!((&*both[1], &*both[4]), ("fe80::1%lo: 1", "eth7: 1"));
    assert_eq!(of(&[THERE])[1], "link-local");
}

#[test]
fn an_address_reaches_its_own_version() {
    let start = |address: Option<&str>| Start {
        interface: None,
        address: address.map(|address| address.parse().unwrap()),
        local: None,
        left_out: None,
    };
    let reaches = |address| {
        let servers = ["192.0.2.1:1", "[2001:db8::1]:1"];
        servers.map(|server| start(address).reaches(server.parse().unwrap(), &[]))
    };
    assert_eq!(reaches(Some("192.0.2.7")), [true, false]);
    assert_eq!(reaches(Some("::1")), [false, true]);
    assert_eq!(reaches(None), [true, true]);
    assert_eq!(start(Some("::1")).name(), "::1");
}

fn rows(round: Option<u64>) -> Vec<Row> {
    let start = |name: Option<&str>, address: Option<&str>, left_out: Option<&str>| Start {
        interface: name.map(str::to_owned),
        address: address.map(|address| address.parse().unwrap()),
        local: None,
        left_out: left_out.map(str::to_owned),
    };
    let reached = Reached {
        server: "192.0.2.9:443".parse().unwrap(),
        handshake_ms: 1.25,
        min_rtt_ms: 0.5,
        rtt_ms: 0.75,
        mtu: 1452,
        ecn: "capable",
        multipath: true,
        quic_version: "v1".to_owned(),
        key_exchange: Some("x25519".to_owned()),
        protocol: "h3".to_owned(),
    };
    let failed = Cause::Connect.failed("no answer\nat all");
    vec![
        start(Some("lo"), Some("::1"), Some("loopback")).row(round, None),
        start(Some("eth0"), Some("192.0.2.1"), None).row(round, Some(Ok(reached))),
        start(None, None, None).row(round, Some(Err(failed))),
        start(Some("a"), Some("192.0.2.7"), None).row(round, None),
    ]
}

#[test]
fn a_line_for_each_address() {
    let expected = "\
interface  address
lo         ::1        left out: loopback
eth0       192.0.2.1  reached 192.0.2.9:443 in 1.25 ms: rtt 0.50 ms, mtu 1452, ECN capable, multipath, QUIC v1, h3
any        any        not reached: no answer at all
a          192.0.2.7  usable
";
    assert_eq!(table(&rows(None)), expected);
    assert_eq!(table(&rows(Some(0))), expected);
    // The rounds stand apart.
    assert_eq!(table(&rows(Some(1))), format!("\n{expected}"));
    assert_eq!(table(&[]), "interface  address\n");
}

#[test]
fn an_object_for_each_address() {
    let objects: Vec<_> = rows(Some(3))
        .iter()
        .map(|row| serde_json::to_string(row).unwrap())
        .collect();
    assert_eq!(
        objects,
        [
            r#"{"round":3,"interface":"lo","address":"::1","left_out":"loopback"}"#,
            r#"{"round":3,"interface":"eth0","address":"192.0.2.1","left_out":null,"server":"192.0.2.9:443","handshake_ms":1.25,"min_rtt_ms":0.5,"rtt_ms":0.75,"mtu":1452,"ecn":"capable","multipath":true,"quic_version":"v1","key_exchange":"x25519","protocol":"h3"}"#,
            r#"{"round":3,"interface":null,"address":null,"left_out":null,"error":"no answer at all"}"#,
            r#"{"round":3,"interface":"a","address":"192.0.2.7","left_out":null}"#,
        ]
    );
}

/// An option that cannot help is not named.
#[test]
fn without_an_address_the_options_that_help_are_named() {
    let none = "no interface has an address that can reach the server";
    let exclude = "--exclude leaves an interface out";
    let local = "--local names a tunnel or a bridge that leads to the server";
    for (left_out, expected) in [
        (&[][..], none.to_owned()),
        (&["loopback", "down", "link-local"], none.to_owned()),
        (&["loopback", "--exclude"], format!("{none}; {exclude}")),
        (&["tunnel"], format!("{none}; {local}")),
        (
            &["bridge", "--exclude"],
            format!("{none}; {exclude}; {local}"),
        ),
    ] {
        assert_eq!(none_left(left_out.iter().copied()), expected);
    }
}
