//! Answers of a hostile server, end to end: bytes of streams pass QUIC, the rules of mpquic-h3, and
//! h3. The client gets the message that a naive reading of RFC 9114 finds in all bytes of the
//! stream. The connection ends only where the RFC demands its end; otherwise another request gets
//! its answer.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::{Buf, Bytes};
use http::{Method, Request};
use libfuzzer_sys::fuzz_target;
use mpquic_fuzz::http3::{
    Begun, Fault, Fields, MAX_FRAME, Message, Part, Read, Stream, announced, are_fine, encode,
    of_map, pair, put_frame, put_line, read, write,
};
use mpquic_tokio::{Connection, VarInt};
use tokio::time::timeout;

/// The longest time of an input, on the paused clock.
const LONG: Duration = Duration::from_secs(60);
/// Interim answers that a client takes.
const MOST_INTERIM: usize = 16;

#[derive(Debug, Arbitrary)]
struct Input {
    streams: Vec<Stream>,
    control: Vec<Part>,
}

type Requests = h3::client::SendRequest<mpquic_h3::OpenStreams, Bytes>;

fuzz_target!(|input: Input| {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.unwrap().block_on(check(&input));
});

/// The method of the request that a stream answers.
fn method(stream: &Stream) -> Method {
    match stream.kind / 4 % 8 {
        0 => Method::HEAD,
        1 => Method::CONNECT,
        _ => Method::GET,
    }
}

async fn check(input: &Input) {
    let (client, server, _endpoints) = pair().await;
    let streams: Vec<Sent> = (input.streams.iter().take(4))
        .map(|stream| (encode(&stream.parts), stream))
        .collect();
    let reads: Vec<Read> = streams
        .iter()
        .map(|(bytes, stream)| {
            let method = method(stream);
            read(bytes, stream.is_ended(), |fields| begin(&method, fields))
        })
        .collect();
    let control = encode(&input.control);
    let may_close = !control.is_empty()
        || reads
            .iter()
            .any(|read| matches!(read.fault, Some(Fault::Connection | Fault::Either)));
    let quic = mpquic_h3::Connection::new(client.clone()).max_frame_size(MAX_FRAME as u32);
    let mut builder = h3::client::builder();
    let built = builder.send_grease(false).build::<_, _, Bytes>(quic).await;
    let (mut driver, requests) = built.unwrap();
    let driving = tokio::spawn(async move {
        driver.wait_idle().await;
    });
    let asking = async {
        for ((_, stream), read) in streams.iter().zip(&reads) {
            let found = timeout(
                Duration::from_millis(100),
                ask(requests.clone(), method(stream)),
            )
            .await;
            check_found(found.ok().flatten(), read, may_close);
        }
        let last = timeout(LONG, ask(requests.clone(), Method::GET)).await;
        let is_answered = last.expect("an end").is_some();
        assert!(
            is_answered || may_close,
            "{:?} {reads:?}",
            client.close_reason()
        );
    };
    tokio::select! {
        () = asking => {}
        () = answer(&server, &control, &streams) => unreachable!("it waits for the end"),
    }
    client.close(VarInt::from_u32(0x100), b"");
    driving.abort();
}

type Sent<'a> = (Vec<u8>, &'a Stream);

fn check_found(found: Option<Message>, read: &Read, may_close: bool) {
    let is_right = read.is_whole && read.fault.is_none();
    match found {
        Some(message) => {
            assert!(is_right, "{message:?} {read:?}");
            assert_eq!(message, read.message);
        }
        // An ordinary answer is taken.
        None => assert!(!is_right || !read.is_ordinary || may_close, "{read:?}"),
    }
}

/// Answers requests with these streams in turn, and one more request correctly.
async fn answer(server: &Connection, control: &[u8], streams: &[Sent<'_>]) {
    let mut settings = server.open_uni().await.unwrap();
    let _ = settings.write_all(&[&[0, 4, 0], control].concat()).await;
    let mut kept = Vec::new();
    let mut last = Vec::new();
    let mut section = vec![0, 0];
    put_line(&mut section, b":status", b"200");
    put_frame(&mut last, 1, &section);
    let mut streams = streams.iter();
    while let Ok((mut send, recv)) = server.accept_bi().await {
        match streams.next() {
            Some((bytes, stream)) => write(&mut send, bytes, stream).await,
            None => {
                let _ = send.write_all(&last).await;
                let _ = send.finish();
            }
        }
        kept.push((send, recv));
    }
    std::future::pending().await
}

/// The whole answer to a request; `None` for a fault.
async fn ask(mut requests: Requests, method: Method) -> Option<Message> {
    let target = match method {
        Method::CONNECT => "host:443",
        _ => "https://host/",
    };
    let request = Request::builder().method(method).uri(target).body(());
    let mut stream = requests.send_request(request.unwrap()).await.ok()?;
    stream.finish().await.ok()?;
    let mut answer = stream.recv_response().await.ok()?;
    for _ in 0..MOST_INTERIM {
        if !answer.status().is_informational() {
            break;
        }
        answer = stream.recv_response().await.ok()?;
    }
    let mut message = Message {
        fields: of_map(answer.headers()),
        ..Message::default()
    };
    let status = answer.status().as_str().as_bytes().to_vec();
    message.fields.push((b":status".to_vec(), status));
    while let Some(mut data) = stream.recv_data().await.ok()? {
        let data = data.copy_to_bytes(data.remaining());
        message.body.extend_from_slice(&data);
    }
    let trailers = stream.recv_trailers().await.ok()?;
    message.trailers = trailers.as_ref().map(of_map);
    Some(message)
}

/// RFC 9114 section 4.3.2; `None` for a malformed answer.
fn begin(method: &Method, fields: &Fields) -> Option<Begun> {
    let is_pseudo = |name: &[u8]| name.starts_with(b":");
    let pseudo: Vec<_> = (fields.iter())
        .take_while(|(name, _)| is_pseudo(name))
        .collect();
    let (first, rest) = fields.split_first()?;
    let (name, status) = first;
    let is_single = pseudo.len() == 1 && !rest.iter().any(|(name, _)| is_pseudo(name));
    let is_status = status.len() == 3 && status.iter().all(u8::is_ascii_digit);
    if !are_fine(fields, false) || !is_single || name != b":status" || !is_status {
        return None;
    }
    let length = announced(fields)?;
    let number: u16 = std::str::from_utf8(status).ok()?.parse().ok()?;
    // HTTP/3 has no 101 (RFC 9114 section 4.5).
    let is_of_http = number >= 100 && number != 101;
    let has_none = *method == Method::HEAD || [204, 304].contains(&number);
    let is_simple = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let names = [&b"x-a"[..], b"x-b", b"accept", b"cookie", b"content-length"];
        names.contains(&&name[..]) && value.iter().all(u8::is_ascii_alphanumeric)
    };
    let mut told: Fields = mpquic_fuzz::http3::sorted(rest.iter().cloned());
    told.push(first.clone());
    is_of_http.then(|| Begun {
        is_interim: number < 200,
        told,
        is_tunnel: *method == Method::CONNECT && (200..300).contains(&number),
        length: if has_none { Some(0) } else { length },
        is_ordinary: *method != Method::CONNECT && rest.iter().all(is_simple),
    })
}
