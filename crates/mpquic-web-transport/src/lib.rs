//! Connections of [`mpquic_tokio`] as sessions of the crate [`web_transport_trait`]. Protocols
//! written for any transport with streams and datagrams, such as media over QUIC, then use all
//! paths.
//!
//! The transport is QUIC itself, with the negotiated application protocol, not WebTransport over
//! HTTP/3 for browsers. This crate implements the asynchronous traits, without
//! [`web_transport_trait::poll`].
//!
//! ```
//! use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, certificate_fingerprint};
//! use mpquic_web_transport::Session;
//! use web_transport_trait::{RecvStream as _, SendStream as _, Session as _};
//!
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"media"])?;
//! let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
//! let address = server.local_addr()?;
//! tokio::spawn(async move {
//!     let connection = server.accept().await.ok_or("closed")?.await?;
//!     let mut picture = Session::new(connection.clone()).open_uni().await?;
//!     picture.write_all(b"over every path").await?;
//!     picture.finish()?;
//!     connection.closed().await;
//!     Ok::<_, Error>(())
//! });
//!
//! let client = Endpoint::client("127.0.0.1:0".parse()?)?;
//! let config = ClientConfig::with_pin(certificate_fingerprint(&certificate), &[b"media"])?;
//! let connection = client.connect_with(config, address, "localhost")?.await?;
//! let session = Session::new(connection);
//! assert_eq!(session.protocol(), Some("media"));
//! let picture = session.accept_uni().await?.read_all().await?;
//! assert_eq!(picture, "over every path");
//! session.close(0, "seen");
//! client.wait_idle().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Dropped streams
//!
//! A [`SendStream`] dropped before [`finish`](web_transport_trait::SendStream::finish) is reset
//! with code 0: the peer must not take a part for the whole. A dropped [`RecvStream`] asks the peer
//! to stop, with code 0.
//!
//! # Paths, copies and deadlines
//!
//! The trait does not know paths. [`Session::connection`] has the paths; [`SendStream::get_ref`]
//! binds a stream to a path, sends the stream twice, or gives the stream a deadline.

mod error;
mod session;
mod streams;

pub use error::Error;
pub use session::Session;
pub use streams::{RecvStream, SendStream};
pub use web_transport_trait;
