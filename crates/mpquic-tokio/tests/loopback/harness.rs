//! A client and a server over real sockets, and what both of them do in most tests.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportOptions,
    default_transport,
};
use sha2::{Digest, Sha256};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type TestResult = Result<(), Error>;

pub(crate) const ALPN: &[&[u8]] = &[b"test"];
const LIMIT: Duration = Duration::from_secs(30);

/// A server with listening addresses, a client with local ones, and how to connect them.
pub(crate) struct Net {
    pub(crate) server: Endpoint,
    pub(crate) client: Endpoint,
}

impl Net {
    pub(crate) fn new(
        server: &[&str],
        client: &[&str],
        config: ClientConfig,
    ) -> Result<Self, Error> {
        Self::with_server(default_transport(), server, client, config)
    }

    pub(crate) fn with_server(
        transport: TransportOptions,
        server: &[&str],
        client: &[&str],
        config: ClientConfig,
    ) -> Result<Self, Error> {
        let (server_config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let mut builder =
            Endpoint::builder().server(server_config.transport_config(transport.build()?));
        for ip in server {
            builder = builder.bind(address_like(ip)?);
        }
        let server = builder.build()?;
        let addresses = server.local_addrs();
        let mut builder = Endpoint::builder().client(config.server_addresses(addresses));
        for ip in client {
            builder = builder.bind(address_like(ip)?);
        }
        let client = builder.build()?;
        Ok(Self { server, client })
    }

    /// One server address, two client addresses, defaults.
    pub(crate) fn two_paths() -> Result<Self, Error> {
        Self::new(
            &["127.0.0.1"],
            &["127.0.0.1", "127.0.0.2"],
            client(default_transport())?,
        )
    }

    pub(crate) async fn connect(&self) -> Result<(Connection, Connection), Error> {
        let connecting = self
            .client
            .connect(self.server.local_addr()?, "localhost")?;
        let accept = async {
            let incoming = self.server.accept().await.ok_or("closed")?;
            Ok::<_, Error>(incoming.await?)
        };
        let connect = async { Ok::<_, Error>(connecting.await?) };
        tokio::try_join!(connect, accept)
    }
}

/// An address to bind, with this IP address or, where the system does not have it, with another
/// port of 127.0.0.1: that makes another path as well.
pub(crate) fn address_like(ip: &str) -> Result<SocketAddr, Error> {
    let address = SocketAddr::new(ip.parse()?, 0);
    let has_it = UdpSocket::bind(address).is_ok();
    let ip = if has_it {
        address.ip()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    Ok(SocketAddr::new(ip, 0))
}

/// For tests that tell IP addresses apart: an address to bind with this one.
pub(crate) fn address_with(ip: &str) -> Result<SocketAddr, Error> {
    let address = SocketAddr::new(ip.parse::<IpAddr>()?, 0);
    let bound = UdpSocket::bind(address);
    bound.map(|_| address).map_err(|error| {
        let how = format!("`sudo ifconfig lo0 alias {ip}` adds it on macOS");
        format!("this test needs the loopback address {ip} ({error}): {how}").into()
    })
}

pub(crate) fn client(transport: TransportOptions) -> Result<ClientConfig, Error> {
    Ok(ClientConfig::dangerous_insecure(ALPN)?.transport_config(transport.build()?))
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Error> {
    let result = tokio::time::timeout(LIMIT, future).await;
    result.map_err(|_| format!("{what} took too long").into())
}

/// Waits until something is true of which no event tells.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) -> TestResult {
    let reached = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    within(what, reached).await
}

/// Waits until something is true of a connection's paths.
pub(crate) async fn until(connection: &Connection, is_so: impl Fn() -> bool) -> TestResult {
    let mut events = connection.path_events();
    let reached = async {
        while !is_so() {
            events.next().await.ok_or("closed")?;
        }
        Ok(())
    };
    within("a change of paths", reached).await?
}

pub(crate) async fn until_active(connection: &Connection, count: usize) -> TestResult {
    Ok(within("so many paths", connection.wait_for_paths(count)).await??)
}

/// Bytes that differ at every position, cheap to make.
pub(crate) fn pattern(length: usize, seed: u32) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next)
        .flatten()
        .take(length)
        .collect()
}

pub(crate) fn sha256(data: &[u8]) -> Vec<u8> {
    Sha256::digest(data).to_vec()
}

pub(crate) async fn send_all(mut stream: SendStream, data: Bytes) -> TestResult {
    for start in (0..data.len()).step_by(256 << 10) {
        let end = data.len().min(start + (256 << 10));
        stream.write_chunk(data.slice(start..end)).await?;
    }
    stream.finish()?;
    Ok(())
}

pub(crate) async fn receive_hash(mut stream: RecvStream) -> Result<Vec<u8>, Error> {
    let mut hash = Sha256::new();
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        hash.update(&chunk.bytes);
    }
    Ok(hash.finalize().to_vec())
}

/// Sends data both ways at once and checks that it arrives.
pub(crate) async fn exchange(a: &Connection, b: &Connection, length: usize) -> TestResult {
    let (there, back) = (pattern(length, 1), pattern(length, 2));
    let (a_send, a_recv) = a.open_bi().await?;
    let ours = async { tokio::try_join!(send_all(a_send, there.clone()), receive_hash(a_recv)) };
    let theirs = async {
        let (send, recv) = b.accept_bi().await?;
        tokio::try_join!(send_all(send, back.clone()), receive_hash(recv))
    };
    let ((_, at_a), (_, at_b)) =
        within("exchange", async { tokio::try_join!(ours, theirs) }).await??;
    assert!(at_a == sha256(&back) && at_b == sha256(&there));
    Ok(())
}
