//! Pairs of endpoints over the loopback interface.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use mpquic_quinn as quinn;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Any free port of the loopback interface.
pub(crate) const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A certificate for `localhost`, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub(crate) fn new() -> TestResult<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
        })
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    pub(crate) fn server(&self) -> TestResult<ServerConfig> {
        let chain = vec![self.certificate.clone()];
        Ok(ServerConfig::with_single_cert(chain, self.key())?)
    }

    pub(crate) fn client(&self) -> TestResult<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        Ok(ClientConfig::with_root_certificates(Arc::new(roots))?)
    }
}

/// Both ends of a connection, with their endpoints.
pub(crate) struct Pair {
    pub(crate) client_endpoint: Endpoint,
    pub(crate) server_endpoint: Endpoint,
    pub(crate) client: Connection,
    pub(crate) server: Connection,
}

impl Pair {
    pub(crate) async fn new() -> TestResult<Self> {
        Self::with(TransportConfig::default(), TransportConfig::default()).await
    }

    /// A pair with these configurations of the client and of the server.
    pub(crate) async fn with(client: TransportConfig, server: TransportConfig) -> TestResult<Self> {
        let identity = Identity::new()?;
        let mut server_config = identity.server()?;
        server_config.transport_config(Arc::new(server));
        let mut client_config = identity.client()?;
        client_config.transport_config(Arc::new(client));
        let server_endpoint = Endpoint::server(server_config, LOCAL)?;
        let mut client_endpoint = Endpoint::client(LOCAL)?;
        client_endpoint.set_default_client_config(client_config);
        Self::connect(client_endpoint, server_endpoint).await
    }

    /// A pair of these endpoints.
    pub(crate) async fn connect(client: Endpoint, server: Endpoint) -> TestResult<Self> {
        let connecting = client.connect(server.local_addr()?, "localhost")?;
        let accept = async {
            let incoming = server.accept().await.ok_or("no client came")?;
            Ok::<_, Box<dyn Error + Send + Sync>>(incoming.await?)
        };
        let (client_side, server_side) = tokio::join!(connecting, accept);
        Ok(Self {
            client: client_side?,
            server: server_side?,
            client_endpoint: client,
            server_endpoint: server,
        })
    }

    /// Sends bytes from the client to the server and back on one stream.
    pub(crate) async fn echo(&self, bytes: &[u8]) -> TestResult {
        echo(&self.client, &self.server, bytes).await
    }
}

/// Sends bytes there and back on a stream.
pub(crate) async fn echo(from: &Connection, to: &Connection, bytes: &[u8]) -> TestResult {
    let ask = async {
        let (mut send, mut recv) = from.open_bi().await?;
        send.write_all(bytes).await?;
        send.finish()?;
        let answer = recv.read_to_end(bytes.len() + 1).await?;
        assert!(answer == bytes, "{} bytes came back", answer.len());
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let answer = async {
        let (mut send, mut recv) = to.accept_bi().await?;
        while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
            send.write_chunk(chunk.bytes).await?;
        }
        send.finish()?;
        Ok::<_, Box<dyn Error + Send + Sync>>(send)
    };
    let (asked, answered) = tokio::join!(ask, answer);
    answered?;
    asked
}
