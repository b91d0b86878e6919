//! A server whose TLS can be held up, as a slow signature would.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpquic_core::crypto::rustls::{QuicServerConfig, provider};
use mpquic_tokio::{Endpoint, ServerConfig, default_transport};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::harness::{ALPN, Error, Net, TestResult, client, exchange, within};

/// How long TLS is held up at most, so that a failing test ends.
const LIMIT: Duration = Duration::from_secs(10);

/// Finds the server's certificate, but not before it is let go while it is held.
#[derive(Debug)]
struct Certificate {
    key: Arc<CertifiedKey>,
    is_held: AtomicBool,
    /// Set while somebody waits for the certificate.
    is_awaited: AtomicBool,
    begun: Mutex<Sender<()>>,
    let_go: Mutex<Receiver<()>>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if self.is_held.load(Ordering::SeqCst) {
            self.is_awaited.store(true, Ordering::SeqCst);
            self.begun.lock().ok()?.send(()).ok()?;
            let let_go = self.let_go.lock().ok()?.recv_timeout(LIMIT);
            self.is_awaited.store(false, Ordering::SeqCst);
            let_go.ok()?;
        }
        Some(self.key.clone())
    }
}

/// A server configuration, its certificate, and the ends of the certificate's channels.
type SlowServer = (ServerConfig, Arc<Certificate>, Receiver<()>, Sender<()>);

fn slow_server() -> Result<SlowServer, Error> {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(provider());
    let key = provider.key_provider.load_private_key(key.into())?;
    let (begin, begun) = channel();
    let (let_go, gone) = channel();
    let certificate = Arc::new(Certificate {
        key: Arc::new(CertifiedKey::new(vec![certified.cert.der().clone()], key)),
        is_held: AtomicBool::new(false),
        is_awaited: AtomicBool::new(false),
        begun: Mutex::new(begin),
        let_go: Mutex::new(gone),
    });
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(certificate.clone());
    tls.alpn_protocols = ALPN.iter().map(|protocol| protocol.to_vec()).collect();
    let config = ServerConfig::new(Arc::new(QuicServerConfig::new(Arc::new(tls))?))?;
    Ok((config, certificate, begun, let_go))
}

/// Whoever accepts a connection pays for its TLS; all others are served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_served_while_another_is_accepted() -> TestResult {
    let (config, certificate, begun, let_go) = slow_server()?;
    let net = Net {
        server: Endpoint::server(config, "127.0.0.1:0".parse()?)?,
        client: Endpoint::client("127.0.0.1:0".parse()?)?,
    };
    let client = client(default_transport())?;
    net.client.set_default_client_config(client);
    let (a, b) = net.connect().await?;

    certificate.is_held.store(true, Ordering::SeqCst);
    let to = net.server.local_addr()?;
    let connecting = net.client.connect(to, "localhost")?;
    let incoming = within("attempt", net.server.accept()).await?;
    let incoming = incoming.ok_or("closed")?;
    let accepted = tokio::task::spawn_blocking(move || incoming.accept());
    let begun = tokio::task::spawn_blocking(move || begun.recv());
    within("the start of TLS", begun).await???;
    exchange(&a, &b, 1 << 20).await?;
    assert!(certificate.is_awaited.load(Ordering::SeqCst));

    certificate.is_held.store(false, Ordering::SeqCst);
    let_go.send(())?;
    let accepted = within("acceptance", accepted).await???;
    let accepted = async { Ok::<_, Error>(accepted.await?) };
    let connected = async { Ok::<_, Error>(connecting.await?) };
    let (c, d) = within("handshake", async { tokio::try_join!(connected, accepted) }).await??;
    exchange(&c, &d, 1 << 20).await
}
