//! `ping` by CONNECT-IP (RFC 9484). The proxy needs sockets for ICMP: root has them, and everybody
//! where `net.ipv4.ping_group_range` says so. As they are not everywhere, tests that need them are
//! not run unless asked for: `-- --ignored ip::`.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::select_all;
use http::{Method, Request, StatusCode};
use mpquic_h3::h3::client::RequestStream;
use mpquic_h3::h3::error::StreamError;
use mpquic_h3::h3::ext::Protocol;
use mpquic_h3::{BidiStream, CONNECT_IP, DatagramSender, h3};
use mpquic_tokio::{Connection, TransportOptions};
use tokio::time::timeout;

use crate::harness::{Error, Setup, TestResult, open, within};

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// The address that the proxy gives to everybody.
const OURS: [u8; 4] = [198, 19, 0, 1];
/// H3_MESSAGE_ERROR and H3_EXCESSIVE_LOAD (RFC 9114 section 8.1).
const MESSAGE_ERROR: u64 = 0x10e;
const EXCESSIVE_LOAD: u64 = 0x107;

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u32::from(word[0]) << 8 | u32::from(low)
    });
    let sum: u32 = words.sum();
    !(((sum >> 16) + (sum & 0xffff)) as u16)
}

/// A question as `ping` asks it, behind its context ID.
fn question(source: [u8; 4], target: [u8; 4], hops: u8, sequence: u8) -> Vec<u8> {
    question_with(b"abcdef", source, target, hops, sequence)
}

fn question_with(data: &[u8], source: [u8; 4], target: [u8; 4], hops: u8, sequence: u8) -> Vec<u8> {
    let mut icmp = [&[8, 0, 0, 0, 0x12, 0x34, 0, sequence][..], data].concat();
    let checksum = sum(&icmp).to_be_bytes();
    icmp[2..4].copy_from_slice(&checksum);
    let [high, low] = (20 + icmp.len() as u16).to_be_bytes();
    let mut ip = vec![0x45, 0, high, low, 0, 0, 0x40, 0, hops, 1, 0, 0];
    ip.extend([source, target].concat());
    let checksum = sum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    [&[0][..], &ip, &icmp].concat()
}

/// A request, and the status of its answer.
async fn ask(setup: &Setup, path: &str) -> Result<(StatusCode, Stream, Connection), Error> {
    let connecting = setup.endpoint.connect(setup.address, "localhost")?;
    let connection = within("connection", connecting).await??;
    let quic = mpquic_h3::Connection::new(connection.clone());
    let (mut driver, mut requests) = h3::client::builder()
        .enable_datagram(true)
        .enable_extended_connect(true)
        .build::<_, _, Bytes>(quic)
        .await?;
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("https://{}{path}", setup.address))
        .header("capsule-protocol", "?1")
        .header(CONNECT_IP.0, CONNECT_IP.1)
        .body(())?;
    request.extensions_mut().insert(Protocol::CONNECT_UDP);
    let mut stream = requests.send_request(request).await?;
    tokio::spawn(async move {
        let _requests = requests;
        driver.wait_idle().await
    });
    let response = within("answer", stream.recv_response()).await??;
    Ok((response.status(), stream, connection))
}

/// Bytes of the stream's capsules.
async fn read(stream: &mut Stream, length: usize) -> Result<Vec<u8>, Error> {
    let mut read = Vec::new();
    while read.len() < length {
        let data = within("capsules", stream.recv_data()).await??;
        let mut data = data.ok_or("the stream has ended")?;
        read.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(read)
}

#[tokio::test]
#[ignore = "needs sockets for ICMP"]
async fn echo_goes_there_and_back_and_nothing_else_does() -> TestResult {
    let mut options = open();
    options.rules.deny = vec!["127.0.0.2".parse()?];
    let setup = Setup::new(options).await?;
    let (status, mut stream, connection) = ask(&setup, "/.well-known/masque/ip/*/*/").await?;
    assert_eq!(status, 200);
    let told = read(&mut stream, 9).await?;
    // ADDRESS_ASSIGN: for no request, of IPv4, a single address.
    assert_eq!(told[0], 1);
    assert_eq!(told[2..9], [&[0, 4][..], &OURS, &[32]].concat());
    assert_eq!(setup.server.stats().open_ip, 1);

    let datagrams = DatagramSender::new(&connection, stream.id());
    let here = Ipv4Addr::LOCALHOST.octets();
    let mut broken = question(OURS, here, 64, 5);
    *broken.last_mut().unwrap() ^= 1;
    for wrong in [
        question([198, 19, 0, 2], here, 64, 1),
        question(OURS, [127, 0, 0, 2], 64, 2),
        question(OURS, here, 1, 3),
        question(OURS, [224, 0, 0, 1], 64, 4),
        broken,
        vec![0],
        vec![0, 0x45],
    ] {
        datagrams.send(&wrong)?;
    }
    datagrams.send(&question(OURS, here, 64, 9))?;
    let answer = within("answer", connection.read_datagram()).await??;
    // Behind the number of the request and the context.
    let ip = answer.get(2..).ok_or("cut")?;
    let expected = question(OURS, here, 64, 9);
    assert_eq!(ip[12..20], [here, OURS].concat());
    assert_eq!(sum(&ip[..20]), 0);
    assert_eq!((ip[20], sum(&ip[20..])), (0, 0), "a reply");
    assert_eq!(ip[24..], expected[25..], "identifier, number and data");
    let [flow] = &setup.server.flows()[..] else {
        panic!("one flow");
    };
    assert_eq!((flow.received, flow.sent, &flow.target), (34, 34, &None));

    // Asked for, there is the same address, and no second one.
    let asked: [&[u8]; 3] = [
        b"\x02\x0e",
        b"\x07\x04\x00\x00\x00\x00\x20",
        b"\x08\x04\x0a\x00\x00\x00\x08",
    ];
    stream.send_data(Bytes::from(asked.concat())).await?;
    let expected = [&[7, 4][..], &OURS, &[32], b"\x08\x04\x00\x00\x00\x00\x20"].concat();
    // Behind the routes.
    let mut told = Vec::new();
    while !told.windows(expected.len()).any(|part| part == expected) {
        told.extend(read(&mut stream, 1).await?);
    }
    stream.finish().await?;
    while within("end", stream.recv_data()).await??.is_some() {}
    Ok(())
}

/// A capsule of the type DATAGRAM.
fn capsule(datagram: &[u8]) -> Bytes {
    let length = (datagram.len() as u32 | 0x8000_0000).to_be_bytes();
    Bytes::from([&[0], &length[..], datagram].concat())
}

/// Also to who takes no DATAGRAM frames: capsules carry both, and what may leave is bounded.
#[tokio::test]
#[ignore = "needs sockets for ICMP"]
async fn capsules_carry_what_datagrams_do_not() -> TestResult {
    let without = |transport: &mut TransportOptions| transport.datagram_receive_buffer = None;
    let setup = Setup::with(open(), |_| {}, without).await?;
    let (_, mut stream, _connection) = ask(&setup, "/.well-known/masque/ip/*/1/").await?;
    let here = Ipv4Addr::LOCALHOST.octets();
    // The second is the largest packet.
    for (length, sequence) in [(2040, 1), (65_507, 2)] {
        let question = question_with(&vec![7; length], OURS, here, 64, sequence);
        stream.send_data(capsule(&question)).await?;
        let answer = [&here[..], &OURS, &[0, 0]].concat();
        let mut told = Vec::new();
        while !told.windows(answer.len()).any(|part| part == answer) {
            told.extend(read(&mut stream, 1).await?);
        }
        while !told.ends_with(&vec![7; length]) {
            told.extend(read(&mut stream, 1).await?);
        }
    }
    assert_eq!(setup.server.stats().dropped_payloads, 0);
    let [flow] = &setup.server.flows()[..] else {
        panic!("one flow");
    };
    let bytes = 2 * 28 + 2040 + 65_507;
    assert_eq!((flow.received, flow.sent), (bytes, bytes));
    Ok(())
}

#[tokio::test]
#[ignore = "needs sockets for ICMP"]
async fn broken_capsules_end_the_request() -> TestResult {
    let setup = Setup::new(open()).await?;
    for (capsule, expected) in [
        (&b"\x02\x00"[..], MESSAGE_ERROR),
        (b"\x01\x07\x00\x05\xc0\x00\x02\x01\x20", MESSAGE_ERROR),
        (b"\x03\x80\x00\x40\x01", EXCESSIVE_LOAD),
    ] {
        let (_, mut stream, _connection) = ask(&setup, "/.well-known/masque/ip/*/1/").await?;
        stream.send_data(Bytes::from_static(capsule)).await?;
        let ended = async {
            loop {
                match stream.recv_data().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error),
                }
            }
        };
        match within("end", ended).await? {
            Some(StreamError::RemoteTerminate { code, .. }) => assert_eq!(code.value(), expected),
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

/// Whether or not there are sockets for ICMP: none gets its turn here.
#[tokio::test]
async fn one_client_has_few_flows() -> TestResult {
    let mut options = open();
    options.flows_per_second = 0;
    let setup = Setup::new(options).await?;
    let path = "/.well-known/masque/ip/*/*/";
    let five = [(); 5].map(|()| Box::pin(ask(&setup, path)));
    // Sooner than their turn would be known not to come.
    let first = timeout(Duration::from_secs(10), select_all(five)).await?;
    let (status, _, _) = first.0?;
    assert_eq!(status, 429);
    Ok(())
}

#[tokio::test]
async fn invalid_scope_gets_the_right_status() -> TestResult {
    let setup = Setup::new(open()).await?;
    for (path, expected) in [
        ("/.well-known/masque/ip/*/256/", 400),
        ("/.well-known/masque/ip/10.0.0.1%2F8/*/", 400),
        ("/.well-known/masque/ip/*", 404),
        ("/.well-known/masque/ip/example.org/1/", 501),
    ] {
        let (status, _, _) = ask(&setup, path).await?;
        assert_eq!(status, expected, "{path}");
    }
    Ok(())
}
