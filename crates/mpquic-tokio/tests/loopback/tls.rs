//! What rustls' own configuration gives: certificates by name and protocol, those of clients, key
//! logs, session stores.

use std::sync::{Arc, Mutex};

use mpquic_tokio::crypto::rustls::{QuicClientConfig, QuicServerConfig, SharedTickets, provider};
use mpquic_tokio::rustls::client::{ClientSessionMemoryCache, Resumption};
use mpquic_tokio::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use mpquic_tokio::rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, StoresServerSessions,
    WebPkiClientVerifier,
};
use mpquic_tokio::rustls::sign::CertifiedKey;
use mpquic_tokio::rustls::{self, KeyLog, RootCertStore};
use mpquic_tokio::{
    ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig, certificate_fingerprint,
};

use crate::harness::{Error, TestResult, within};

const ALPN: &[&[u8]] = &[b"test"];
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn certificate(name: &str) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Error> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    Ok((made.cert.der().clone(), key))
}

/// Chooses by server name and protocol, before anything is signed, and writes down what it saw.
#[derive(Debug)]
struct ByName {
    keys: Vec<(&'static str, Arc<CertifiedKey>)>,
    seen: Mutex<Vec<(String, Vec<Vec<u8>>)>>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_owned();
        let protocols = hello.alpn().into_iter().flatten().map(<[u8]>::to_vec);
        self.seen
            .lock()
            .ok()?
            .push((name.clone(), protocols.collect()));
        let key = self.keys.iter().find(|(known, _)| *known == name)?;
        Some(key.1.clone())
    }
}

/// Keeps the labels of secrets, and sessions that servers store.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl KeyLog for Notes {
    fn log(&self, label: &str, _: &[u8], _: &[u8]) {
        self.0.lock().unwrap().push(label.to_owned());
    }
}

impl StoresServerSessions for Notes {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.lock().unwrap().push("put".to_owned());
        NoServerSessionStorage {}.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        NoServerSessionStorage {}.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        NoServerSessionStorage {}.take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// For servers that want this certificate of a client, and choose their own.
fn server_tls(
    resolver: Arc<ByName>,
    client: CertificateDer<'static>,
) -> Result<rustls::ServerConfig, Error> {
    let mut clients = RootCertStore::empty();
    clients.add(client)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(clients.into(), Arc::new(provider()))
            .build()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider().into())
        .with_protocol_versions(VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    tls.alpn_protocols = vec![b"new".to_vec(), b"old".to_vec()];
    Ok(tls)
}

/// A name and a key for each, and what trusts them.
struct Hosts {
    keys: Vec<(&'static str, Arc<CertifiedKey>)>,
    leaves: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
}

impl Hosts {
    fn new(names: [&'static str; 2]) -> Result<Self, Error> {
        let (mut keys, mut leaves) = (Vec::new(), Vec::new());
        let mut roots = RootCertStore::empty();
        for name in names {
            let (leaf, key) = certificate(name)?;
            roots.add(leaf.clone())?;
            leaves.push(leaf.clone());
            let key = provider().key_provider.load_private_key(key)?;
            keys.push((name, Arc::new(CertifiedKey::new(vec![leaf], key))));
        }
        Ok(Self {
            keys,
            leaves,
            roots,
        })
    }
}

#[tokio::test]
async fn rustls_own_configuration_decides_all_of_tls() -> TestResult {
    let names = ["one.example", "two.example"];
    let Hosts {
        keys,
        leaves,
        roots,
    } = Hosts::new(names)?;
    let resolver = Arc::new(ByName {
        keys,
        seen: Mutex::default(),
    });
    let (client_leaf, client_key) = certificate("client")?;
    let (key_log, sessions) = (Arc::new(Notes::default()), Arc::new(Notes::default()));
    let mut tls = server_tls(resolver.clone(), client_leaf.clone())?;
    tls.key_log = key_log.clone();
    tls.session_storage = sessions.clone();
    let config = ServerConfig::new(Arc::new(QuicServerConfig::new(Arc::new(tls))?))?;
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    let accepting = tokio::spawn(async move {
        let mut identities = Vec::new();
        while let Some(incoming) = server.accept().await {
            let Ok(connection) = incoming.await else {
                return (identities, false);
            };
            let protocol = connection.handshake_data().and_then(|data| data.protocol);
            identities.push((connection.peer_certificates(), protocol));
            connection.closed().await;
        }
        (identities, true)
    });

    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let tls = rustls::ClientConfig::builder_with_provider(provider().into())
        .with_protocol_versions(VERSIONS)?
        .with_root_certificates(roots);
    let anonymous = tls.clone().with_no_client_auth();
    let mut known = tls.with_client_auth_cert(vec![client_leaf.clone()], client_key)?;
    known.alpn_protocols = vec![b"old".to_vec(), b"older".to_vec()];
    known.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(4)));
    let connect = |tls: &rustls::ClientConfig, name: &str| -> Result<_, Error> {
        let crypto = QuicClientConfig::new(Arc::new(tls.clone()))?;
        Ok(client.connect_with(ClientConfig::new(Arc::new(crypto)), address, name)?)
    };
    for (name, leaf) in names.iter().zip(&leaves) {
        let connection = connect(&known, name)?.await?;
        let chain = connection.peer_certificates().ok_or("no certificate")?;
        assert_eq!(chain, std::slice::from_ref(leaf));
        connection.handshake_confirmed().await?;
        connection.close(0u32.into(), b"");
    }
    let mut anonymous = anonymous;
    anonymous.alpn_protocols = vec![b"new".to_vec()];
    // The server refuses when the handshake is complete for the client.
    let refused = match connect(&anonymous, names[0])?.await {
        Ok(connection) => connection.closed().await,
        Err(error) => error,
    };
    let ConnectionError::ConnectionClosed(close) = &refused else {
        return Err(refused.into());
    };
    let text = close.to_string();
    assert!(text.contains("certificate"), "{text}");

    let (identities, _) = accepting.await?;
    let expected = (Some(vec![client_leaf]), Some(b"old".to_vec()));
    assert_eq!(identities, [expected.clone(), expected]);
    let seen = resolver.seen.lock().unwrap();
    let offered = vec![b"old".to_vec(), b"older".to_vec()];
    assert_eq!(
        seen[..2],
        names.map(|name| (name.to_owned(), offered.clone()))
    );
    let logged = key_log.0.lock().unwrap();
    for label in ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"] {
        assert!(logged.iter().any(|logged| logged == label), "{logged:?}");
    }
    assert!(sessions.0.lock().unwrap().iter().any(|note| note == "put"));
    Ok(())
}

/// A server that keeps each connection until its client closes it.
fn serve(config: ServerConfig) -> Result<Endpoint, Error> {
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let accepting = server.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move { Ok::<_, Error>(incoming.await?.closed().await) });
        }
    });
    Ok(server)
}

/// RFC 7250.
#[tokio::test]
async fn a_server_is_known_by_its_public_key_alone() -> TestResult {
    let key = || {
        let key = rcgen::KeyPair::generate()?;
        Ok::<_, Error>(PrivateKeyDer::try_from(key.serialize_der())?)
    };
    let (config, public) = ServerConfig::with_raw_public_key(key()?, ALPN)?;
    let (_, other) = ServerConfig::with_raw_public_key(key()?, ALPN)?;
    let server = serve(config)?;
    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let connect = |config| {
        let connecting = client.connect_with(config, server.local_addr()?, "any.name");
        Ok::<_, Error>(within("handshake", connecting?))
    };
    let knows = ClientConfig::with_raw_public_key(public.clone(), ALPN)?;
    let connection = connect(knows.clone())?.await??;
    connection.handshake_confirmed().await?;
    let shown = connection.peer_certificates().ok_or("no key")?;
    assert_eq!(shown, [CertificateDer::from(public.to_vec())]);
    connection.close(0u32.into(), b"");
    // Sessions are resumed as with certificates.
    let Ok((again, accepted)) = client
        .connect_with(knows, server.local_addr()?, "any.name")?
        .into_0rtt()
    else {
        return Err("no 0-RTT".into());
    };
    assert!(within("handshake", accepted).await?);
    again.close(0u32.into(), b"");

    let wrong = ClientConfig::with_raw_public_key(other, ALPN)?;
    let refused = connect(wrong)?.await?.err().ok_or("another key")?;
    let ConnectionError::TransportError(error) = &refused else {
        return Err(refused.into());
    };
    let told = "CRYPTO_ERROR (TLS alert 49): the certificate is not the pinned one";
    assert_eq!(error.to_string(), told);
    // One who wants a certificate gets none.
    let wants = ClientConfig::dangerous_insecure(ALPN)?;
    let refused = connect(wants)?.await?.err().ok_or("no certificate")?;
    assert!(refused.to_string().contains("TLS alert 40"), "{refused}");
    Ok(())
}

/// A server of a fleet: with a certificate of its own, so that clients of another one get here only
/// if they resume their session.
fn of_the_fleet(tickets: Arc<SharedTickets>) -> Result<(Endpoint, CertificateDer<'static>), Error> {
    let (leaf, key) = certificate("fleet")?;
    let crypto = QuicServerConfig::with_certificate(vec![leaf.clone()], key, ALPN)?;
    let crypto = crypto.with_shared_tickets(tickets);
    Ok((serve(ServerConfig::new(Arc::new(crypto))?)?, leaf))
}

/// The client wanted a certificate, and it was another one.
fn assert_is_not_pinned(result: Result<Connection, ConnectionError>) -> TestResult {
    let refused = result.err().ok_or("the session was resumed")?;
    assert!(
        refused
            .to_string()
            .ends_with("the certificate is not the pinned one"),
        "{refused}"
    );
    Ok(())
}

#[tokio::test]
async fn a_session_is_resumed_at_another_server_of_the_fleet() -> TestResult {
    let secret = [7; 32];
    let tickets = [0; 2].map(|_| Arc::new(SharedTickets::new(secret)));
    let (one, leaf) = of_the_fleet(tickets[0].clone())?;
    let (other, _) = of_the_fleet(tickets[1].clone())?;
    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    let config = ClientConfig::with_pin(certificate_fingerprint(&leaf), ALPN)?;
    let connect = |server: &Endpoint, config: &ClientConfig| {
        let connecting = client.connect_with(config.clone(), server.local_addr()?, "fleet")?;
        // 0-RTT is neither offered nor taken: each of the servers would take the same data.
        let connecting = connecting.into_0rtt().err().ok_or("0-RTT")?;
        Ok::<_, Error>(within("handshake", connecting))
    };
    let fresh = ClientConfig::with_pin(certificate_fingerprint(&leaf), ALPN)?;
    assert_is_not_pinned(connect(&other, &fresh)?.await?)?;
    for server in [&one, &other, &one] {
        let connection = connect(server, &config)?.await??;
        // Tickets have come by then.
        connection.handshake_confirmed().await?;
        connection.close(0u32.into(), b"");
    }
    tickets[1].change([8; 32], &[secret]);
    let connection = connect(&other, &config)?.await??;
    connection.handshake_confirmed().await?;
    connection.close(0u32.into(), b"");
    // What it has sealed since then is nothing to the first one, which gives new ones.
    let connection = connect(&one, &config)?.await??;
    connection.handshake_confirmed().await?;
    connection.close(0u32.into(), b"");
    tickets[1].change([8; 32], &[]);
    assert_is_not_pinned(connect(&other, &config)?.await?)
}
