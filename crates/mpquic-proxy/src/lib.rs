//! A proxy over multipath QUIC: carries the TCP connections and UDP flows of any application, each
//! over all links at once.
//!
//! The protocol is plain HTTP/3: a TCP connection is a CONNECT request (RFC 9114 section 4.4), a
//! UDP flow a CONNECT-UDP request (RFC 9298) with HTTP datagrams (RFC 9297), and `ping` needs
//! CONNECT-IP (RFC 9484). So both sides also work with other implementations. TCP ends at the near
//! side, and its bytes travel as a stream. The transport spreads the stream over all paths and
//! restores the order, so a single TCP connection gets the sum of the links.
//!
//! - [`Server`] answers such requests, for the clients in [`Access`] and to the targets in
//!   [`Rules`]. Access has no default, and targets without a public address are forbidden unless a
//!   rule allows them.
//! - [`Client`] opens flows over a connection, which may be lost and replaced. Applications come in
//!   by an [`Entrance`]: SOCKS 5, an HTTP proxy, or a forwarded port. On Linux, the feature `tun`
//!   adds a network device, which takes all packets routed there (`Tun`).
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use mpquic_proxy::{
//!     Access, Client, ClientOptions, Credential, Credentials, Entrance, Server, ServerOptions,
//! };
//! use mpquic_tokio::{
//!     ClientConfig, Endpoint, ServerConfig, certificate_fingerprint, default_transport,
//! };
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let mut transport = default_transport();
//! mpquic_proxy::adapt_server(&mut transport);
//! let transport = transport.build()?;
//! let credential: Credential = "basic alice:wonderland".parse()?;
//!
//! // A proxy, which may connect to this machine itself here.
//! let mut options = ServerOptions::new(Access::Users(Credentials::new([credential.clone()])));
//! options.rules.allow.push("127.0.0.0/8".parse()?);
//! let proxy = Server::new(options);
//! let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
//! let any = SocketAddr::from(([127, 0, 0, 1], 0));
//! let endpoint = Endpoint::server(config.transport_config(transport.clone()), any)?;
//! let address = endpoint.local_addr()?;
//! tokio::spawn(async move {
//!     let connection = endpoint.accept().await.ok_or("closed")?.await?;
//!     let requests = proxy.connection(&connection);
//!     let connection = mpquic_h3::Connection::new(connection);
//!     let mut http = Server::http().build(connection).await?;
//!     while let Some(request) = http.accept().await? {
//!         let requests = requests.clone();
//!         tokio::spawn(async move { requests.answer(request).await });
//!     }
//!     Ok::<_, Error>(())
//! });
//!
//! // A client with two local addresses, and so with two paths. Its port leads to an echo server.
//! let pin = certificate_fingerprint(&certificate);
//! let endpoint = Endpoint::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .bind("127.0.0.2:0".parse()?)
//!     .client(ClientConfig::with_pin(pin, &[mpquic_h3::ALPN])?.transport_config(transport))
//!     .build()?;
//! let mut options = ClientOptions::new(address.to_string().parse()?);
//! options.credential = Some(credential);
//! let client = Client::new(options);
//! let connection = endpoint.connect(address, "localhost")?.await?;
//! tokio::spawn({
//!     let client = client.clone();
//!     async move { client.run(connection).await }
//! });
//! client.connected().await;
//! let echo = TcpListener::bind(any).await?;
//! let entrance = Entrance::Tcp(echo.local_addr()?.into());
//! let entrance = client.listen(entrance, any).await?;
//! tokio::spawn(async move {
//!     let (mut stream, _) = echo.accept().await?;
//!     let (mut read, mut write) = stream.split();
//!     tokio::io::copy(&mut read, &mut write).await
//! });
//!
//! let mut application = TcpStream::connect(entrance.address()).await?;
//! application.write_all(b"over every path").await?;
//! application.shutdown().await?;
//! let mut answer = String::new();
//! application.read_to_string(&mut answer).await?;
//! assert_eq!(answer, "over every path");
//! # Ok(())
//! # }
//! ```
//!
//! # Ends and failures
//!
//! | One side | The other side |
//! |---|---|
//! | TCP's FIN | the end of the stream; the other direction stays open |
//! | TCP's RST, or another failure | the stream is reset with H3_CONNECT_ERROR |
//! | the stream is reset or stopped, or its connection is lost | TCP's RST |
//! | a side reads slowly | windows fill, and the other side's writes wait; nothing grows |
//! | a UDP payload that fits no packet | a capsule on the flow's stream |
//! | a UDP payload without room in the queue | it is lost |

mod arrivals;
mod bound;
mod capsule;
mod class;
mod client;
mod copies;
mod credential;
mod credentials;
mod datagrams;
mod flow_table;
mod gate;
mod giving_way;
mod hashed_password;
#[cfg_attr(
    not(all(feature = "tun", target_os = "linux")),
    allow(dead_code, reason = "devices need all of it")
)]
mod ip;
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "IP packets are carried on Linux")
)]
mod ip_capsule;
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "IP packets are carried on Linux")
)]
mod ip_scope;
mod kernel_queue;
mod listening;
mod order_window;
mod peers;
mod relay;
mod reverse;
mod rules;
mod server;
pub mod shares;
mod strangers;
mod streams;
mod target;
mod transport;

pub use bound::{Filtering, InvalidFiltering};
pub use class::{Class, ClassRule, FlowKind, InvalidClass, InvalidClassRule};
#[cfg(all(feature = "tun", target_os = "linux"))]
pub use client::{Carrier, Tun};
pub use client::{
    Client, ClientOptions, ClientStats, Entrance, Listener, NoFlow, Reverse, TcpFlow,
};
pub use credential::{Credential, InvalidCredential};
pub use credentials::Credentials;
pub use flow_table::{FlowStats, UserStats};
pub use gate::{Gate, Known, NotLetIn};
pub use hashed_password::HashedPassword;
pub use listening::listen_tcp;
pub use reverse::{InvalidReverseRule, ReverseRule};
pub use rules::{InvalidNat64Prefix, InvalidRule, Nat64Prefix, Rule, Rules};
pub use server::{
    Access, MAX_FIELDS, Observe, Over, Resolve, Resolving, Server, ServerConnection, ServerOptions,
    ServerStats, SystemResolver,
};
pub use target::{Host, InvalidTarget, Target};
pub use transport::{STREAMS_OF_STRANGERS, adapt, adapt_server};
