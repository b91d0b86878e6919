//! Requests of a hostile client, end to end: bytes of streams through QUIC, the rules of mpquic-h3,
//! and h3. What a server gets is what a naive reading of RFC 9114 finds in all bytes of the stream;
//! what is malformed ends its stream, and the connection only where the RFC says so; another
//! request is answered beside it.

#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::{Buf, Bytes};
use libfuzzer_sys::fuzz_target;
use mpquic_fuzz::http3::{
    Begun, Fault, Fields, MAX_FRAME, Message, Part, Stream, announced, are_fine, encode, of_map,
    pair, put_frame, put_line, read, sorted, write,
};
use mpquic_tokio::{Connection, VarInt};
use tokio::time::timeout;

/// Time for all that happens, of the paused clock.
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, Arbitrary)]
struct Input {
    streams: Vec<Stream>,
    control: Vec<Part>,
}

fuzz_target!(|input: Input| {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.unwrap().block_on(check(&input));
});

type Seen = Arc<Mutex<BTreeMap<u64, Message>>>;

async fn check(input: &Input) {
    let (client, server, _endpoints) = pair().await;
    let seen = Seen::default();
    let serving = tokio::spawn(serve(server, seen.clone()));
    let control = control_bytes(&input.control);
    let mut settings = client.open_uni().await.unwrap();
    let _ = settings.write_all(&control.0).await;
    let mut reads = BTreeMap::new();
    let mut streams = Vec::new();
    for stream in input.streams.iter().take(4) {
        let bytes = encode(&stream.parts);
        let is_ended = stream.is_ended();
        // A connection that has ended takes no more.
        let Ok((mut send, recv)) = client.open_bi().await else {
            break;
        };
        reads.insert(u64::from(send.id()), read(&bytes, is_ended, begin));
        write(&mut send, &bytes, stream).await;
        streams.push((send, recv));
    }
    let is_answered = timeout(LONG, ask(&client)).await.expect("an end");
    let may_close = control.1
        || reads
            .values()
            .any(|read| matches!(read.fault, Some(Fault::Connection | Fault::Either)));
    assert!(
        is_answered || may_close,
        "{:?} {reads:?}",
        client.close_reason()
    );
    for (send, mut recv) in streams {
        let id = u64::from(send.id());
        let answer = timeout(Duration::from_millis(20), recv.read_to_end(10_000)).await;
        let is_answered = matches!(&answer, Ok(Ok(bytes)) if bytes.starts_with(&[1]));
        let read = &reads[&id];
        let message = seen.lock().unwrap().get(&id).cloned();
        if is_answered && let Some(message) = &message {
            assert!(read.is_whole && read.fault.is_none(), "{read:?}");
            assert_eq!(*message, read.message);
        }
        // An ordinary request is taken.
        if read.is_whole && read.fault.is_none() && read.is_ordinary && !may_close {
            assert!(message.is_some() && is_answered, "{read:?} {answer:?}");
        }
    }
    client.close(VarInt::from_u32(0x100), b"");
    serving.abort();
}

/// A request without faults, and whether its answer comes.
async fn ask(client: &Connection) -> bool {
    let fields = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "host"),
        (":path", "/last"),
    ];
    let mut section = vec![0, 0];
    for (name, value) in fields {
        put_line(&mut section, name.as_bytes(), value.as_bytes());
    }
    let mut request = Vec::new();
    put_frame(&mut request, 1, &section);
    let Ok((mut send, mut recv)) = client.open_bi().await else {
        return false;
    };
    if send.write_all(&request).await.is_err() || send.finish().is_err() {
        return false;
    }
    matches!(recv.read_to_end(10_000).await, Ok(answer) if answer.starts_with(&[1]))
}

type Resolver = h3::server::RequestResolver<mpquic_h3::Connection, Bytes>;

/// Answers each request that is read to its end.
async fn serve(connection: Connection, seen: Seen) {
    let quic = mpquic_h3::Connection::new(connection).max_frame_size(MAX_FRAME as u32);
    let mut builder = h3::server::builder();
    builder.send_grease(false).enable_extended_connect(true);
    let Ok(mut requests) = builder.build::<_, Bytes>(quic).await else {
        return;
    };
    while let Ok(Some(resolver)) = requests.accept().await {
        let seen = seen.clone();
        tokio::spawn(async move {
            // What ends it is seen by the client.
            let _ = answer(resolver, &seen).await;
        });
    }
}

async fn answer(resolver: Resolver, seen: &Seen) -> Result<(), h3::error::StreamError> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let id = stream.id().into_inner();
    let mut message = Message {
        fields: of_request(&request),
        ..Message::default()
    };
    while let Some(mut data) = stream.recv_data().await? {
        message
            .body
            .extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    let trailers = stream.recv_trailers().await?;
    message.trailers = trailers.as_ref().map(of_map);
    seen.lock().unwrap().insert(id, message);
    stream.send_response(http::Response::new(())).await?;
    stream.finish().await
}

fn of_request(request: &http::Request<()>) -> Fields {
    let mut fields = of_map(request.headers());
    let method = request.method().as_str().as_bytes();
    fields.push((b":method".to_vec(), method.to_vec()));
    if let Some(target) = request.uri().path_and_query()
        && request.uri().scheme().is_some()
    {
        fields.push((b":path".to_vec(), target.as_str().as_bytes().to_vec()));
    }
    fields
}

/// RFC 9114 sections 4.1.2, 4.3.1 and 4.4; `None` for a malformed request.
fn begin(fields: &Fields) -> Option<Begun> {
    const PSEUDO: [&str; 5] = [":method", ":scheme", ":authority", ":path", ":protocol"];
    let all = |wanted: &str| {
        let named = fields.iter().filter(|(name, _)| name == wanted.as_bytes());
        named.map(|(_, value)| &value[..]).collect::<Vec<_>>()
    };
    let mut names = fields.iter().map(|(name, _)| &name[..]);
    let is_pseudo = |name: &[u8]| name.starts_with(b":");
    names.by_ref().find(|name| !is_pseudo(name));
    let is_in_order = !names.any(is_pseudo);
    let mut pseudo = fields.iter().filter(|(name, _)| is_pseudo(name));
    let are_known = pseudo.all(|(name, _)| PSEUDO.iter().any(|known| name == known.as_bytes()));
    let are_single = PSEUDO
        .iter()
        .chain(&["host"])
        .all(|name| all(name).len() <= 1);
    if !are_fine(fields, true) || !is_in_order || !are_known || !are_single {
        return None;
    }
    let one = |name: &str| all(name).first().copied();
    let is_host = |host: &[u8]| !host.is_empty() && !host.contains(&b'@');
    let hosts = [one(":authority"), one("host")];
    let are_hosts = hosts.iter().flatten().all(|host| is_host(host));
    let is_same = hosts[0]
        .zip(hosts[1])
        .is_none_or(|(one, other)| one == other);
    let method = one(":method")?;
    let is_connect = method == b"CONNECT";
    let is_extended = one(":protocol").is_some();
    let has_path = one(":scheme").is_some() && one(":path").is_some();
    let is_target = match (is_connect, is_extended) {
        (false, true) => false,
        (true, false) => one(":scheme").is_none() && one(":path").is_none() && hosts[0].is_some(),
        (true, true) => has_path && hosts[0].is_some(),
        (false, false) => has_path && (hosts[0].is_some() || hosts[1].is_some()),
    };
    let is_path = one(":path")
        .is_none_or(|path| path.starts_with(b"/") || path == b"*" && method == b"OPTIONS");
    let length = announced(fields)?;
    (are_hosts && is_same && is_target && is_path).then(|| Begun {
        is_interim: false,
        told: told(fields, has_path),
        is_tunnel: is_connect,
        length,
        is_ordinary: is_ordinary(fields),
    })
}

/// What a server is told of a request: fields, method and path.
fn told(fields: &Fields, has_path: bool) -> Fields {
    let one = |wanted: &[u8]| fields.iter().find(|(name, _)| name == wanted).cloned();
    // The mark of CONNECT-IP is never the peer's.
    let regular = fields
        .iter()
        .filter(|(name, _)| !name.starts_with(b":") && name != b"mpquic-protocol");
    let is_ip = one(b":protocol").is_some_and(|(_, protocol)| protocol == b"connect-ip");
    let mark = is_ip.then(|| (b"mpquic-protocol".to_vec(), b"connect-ip".to_vec()));
    let mut all = sorted(regular.cloned().chain(mark));
    all.extend(one(b":method"));
    if has_path {
        let path = one(b":path").map(|(name, path)| {
            // A fragment is for the client alone.
            let end = path.iter().position(|byte| *byte == b'#');
            (name, path[..end.unwrap_or(path.len())].to_vec())
        });
        all.extend(path);
    }
    all
}

/// A request that each server takes.
fn is_ordinary(fields: &Fields) -> bool {
    fields.iter().all(|(name, value)| match &name[..] {
        b":method" => [&b"GET"[..], b"POST", b"HEAD"].contains(&&value[..]),
        b":scheme" => value == b"https",
        b":authority" | b"host" => [&b"host"[..], b"host:443"].contains(&&value[..]),
        b":path" => [&b"/"[..], b"/a?b"].contains(&&value[..]),
        b"x-a" | b"x-b" | b"accept" | b"cookie" => value.iter().all(u8::is_ascii_alphanumeric),
        b"content-length" => true,
        _ => false,
    })
}

/// The control stream, and whether it may end the connection.
fn control_bytes(parts: &[Part]) -> (Vec<u8>, bool) {
    // The type of the stream, and empty settings.
    let mut out = vec![0, 4, 0];
    let more = encode(parts);
    out.extend_from_slice(&more);
    (out, !more.is_empty())
}
