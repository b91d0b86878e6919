//! Options of `mpquic perf`, as a server of another program sees their effect.

use std::net::SocketAddr;
use std::process::Output;
use std::sync::{Arc, Mutex};

use mpquic_tokio::{
    Connection, Endpoint, RecvStream, SendStream, ServerConfig, certificate_fingerprint,
};

use crate::{assert_exit, run};

/// A client asks for this many bytes if its download has no end.
const WITHOUT_END: u64 = u64::MAX;
/// An upload has more bytes than any small request.
const UPLOAD: usize = 100_000;

/// A request, as the server saw it: bytes wanted, and bytes received.
type Seen = Arc<Mutex<Vec<(u64, usize)>>>;

/// A server of the QUIC performance protocol that writes down all requests.
struct Other {
    address: SocketAddr,
    pin: String,
    seen: Seen,
    _endpoint: Endpoint,
}

impl Other {
    fn start() -> Self {
        let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"perf"]).unwrap();
        let digits = certificate_fingerprint(&certificate);
        let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::server(config, any).unwrap();
        let seen = Seen::default();
        tokio::spawn({
            let (endpoint, seen) = (endpoint.clone(), seen.clone());
            async move {
                while let Some(incoming) = endpoint.accept().await {
                    tokio::spawn(serve(incoming.await.unwrap(), seen.clone()));
                }
            }
        });
        Self {
            address: endpoint.local_addr().unwrap(),
            pin: format!("sha256:{digits}"),
            seen,
            _endpoint: endpoint,
        }
    }

    /// What the server saw of a measurement of this kind.
    fn measured(&self, test: &str, more: &[&str]) -> Vec<(u64, usize)> {
        let address = self.address.to_string();
        let fixed = ["perf", &address, "--pin", &self.pin, "--local", "127.0.0.1"];
        let test = ["--test", test, "--time", "0.3", "--interval", "0"];
        let arguments = [&fixed[..], &test, more].concat();
        let output: Output = tokio::task::block_in_place(|| run(&arguments));
        assert_exit(&output, 0);
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

async fn serve(connection: Connection, seen: Seen) {
    while let Ok((send, recv)) = connection.accept_bi().await {
        tokio::spawn(answer(send, recv, seen.clone()));
    }
}

async fn answer(mut send: SendStream, mut recv: RecvStream, seen: Seen) {
    let mut head = [0; 8];
    if recv.read_exact(&mut head).await.is_err() {
        return;
    }
    let wanted = u64::from_be_bytes(head);
    let index = {
        let mut seen = seen.lock().unwrap();
        seen.push((wanted, head.len()));
        seen.len() - 1
    };
    while let Ok(Some(chunk)) = recv.read_chunk(usize::MAX, true).await {
        if let Some(seen) = seen.lock().unwrap().get_mut(index) {
            seen.1 += chunk.bytes.len();
        }
    }
    let mut left = wanted;
    let piece = [0; 10_000];
    while left > 0 {
        let count = left.min(piece.len() as u64);
        if send.write_all(&piece[..count as usize]).await.is_err() {
            return;
        }
        left -= count;
    }
    let _ = send.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_answers_have_the_sizes_of_the_options() {
    let server = Other::start();
    let sizes = ["--request-size", "3000", "--response-size", "50000"];
    let seen = server.measured("requests", &sizes);
    let asked = |seen: &[(u64, usize)], request| seen.iter().filter(|one| **one == request).count();
    assert!(asked(&seen, (50_000, 3000)) > 0, "{seen:?}");
    // The last requests may be cut short by the end of the test.
    assert!(
        seen.iter()
            .all(|(wanted, sent)| *wanted == 50_000 && *sent <= 3000)
    );
    let seen = server.measured("requests", &[]);
    assert!(asked(&seen, (1024, 8)) > 0, "{seen:?}");
    assert_eq!(asked(&seen, (50_000, 3000)), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_have_as_many_streams_as_the_option_says() {
    let server = Other::start();
    for streams in [1, 3] {
        let option = streams.to_string();
        let option = ["--streams", &option];
        let seen = server.measured("download", &option);
        let downloads = seen.iter().filter(|(wanted, _)| *wanted == WITHOUT_END);
        assert_eq!(downloads.count(), streams, "{seen:?}");
        let seen = server.measured("upload", &option);
        let uploads = seen.iter().filter(|(_, sent)| *sent > UPLOAD);
        assert_eq!(uploads.count(), streams, "{seen:?}");
        let seen = server.measured("both", &option);
        let downloads = seen.iter().filter(|(wanted, _)| *wanted == WITHOUT_END);
        let uploads = seen.iter().filter(|(_, sent)| *sent > UPLOAD);
        assert_eq!(
            [downloads.count(), uploads.count()],
            [streams; 2],
            "{seen:?}"
        );
    }
}
