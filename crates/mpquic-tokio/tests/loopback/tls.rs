//! What rustls' own configuration gives: certificates by name and protocol, those of clients, key logs,
//! session stores.

use std::sync::{Arc, Mutex};

use mpquic_tokio::crypto::rustls::{QuicClientConfig, QuicServerConfig, provider};
use mpquic_tokio::rustls::client::{ClientSessionMemoryCache, Resumption};
use mpquic_tokio::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use mpquic_tokio::rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, StoresServerSessions,
    WebPkiClientVerifier,
};
use mpquic_tokio::rustls::sign::CertifiedKey;
use mpquic_tokio::rustls::{self, KeyLog, RootCertStore};
use mpquic_tokio::{ClientConfig, ConnectionError, Endpoint, ServerConfig};

use crate::harness::{Error, TestResult};

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
