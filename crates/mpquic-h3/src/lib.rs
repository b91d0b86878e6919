//! HTTP/3 over multipath QUIC: the traits of [`h3`] and [`h3_datagram`] over [`mpquic_tokio`].
//!
//! `h3` speaks HTTP/3 (RFC 9114) over any QUIC that implements its traits. [`Connection`]
//! implements them, so servers and clients written for `h3` run over several paths unchanged. Offer
//! the protocol [`ALPN`].
//!
//! ```
//! use bytes::{Buf, Bytes};
//! use http::{Request, Response};
//! use mpquic_h3::h3;
//! use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, certificate_fingerprint};
//!
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! // A server that answers every request.
//! let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[mpquic_h3::ALPN])?;
//! let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
//! let address = server.local_addr()?;
//! tokio::spawn(async move {
//!     let connection = server.accept().await.ok_or("closed")?.await?;
//!     let connection = mpquic_h3::Connection::new(connection);
//!     let mut requests = h3::server::Connection::<_, Bytes>::new(connection).await?;
//!     while let Some(request) = requests.accept().await? {
//!         let (request, mut stream) = request.resolve_request().await?;
//!         stream.send_response(Response::new(())).await?;
//!         let text = format!("{} over every path", request.uri().path());
//!         stream.send_data(text.into()).await?;
//!         stream.finish().await?;
//!     }
//!     Ok::<_, Error>(())
//! });
//!
//! // A client with two local addresses, and so with two paths.
//! let pin = certificate_fingerprint(&certificate);
//! let client = Endpoint::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .bind("127.0.0.2:0".parse()?)
//!     .client(ClientConfig::with_pin(pin, &[mpquic_h3::ALPN])?)
//!     .build()?;
//! let connection = client.connect(address, "localhost")?.await?;
//! let connection = mpquic_h3::Connection::new(connection);
//! let (mut driver, mut requests) = h3::client::new(connection).await?;
//! let driving = tokio::spawn(async move { driver.wait_idle().await });
//!
//! let request = Request::get("https://localhost/hello").body(())?;
//! let mut stream = requests.send_request(request).await?;
//! stream.finish().await?;
//! assert_eq!(stream.recv_response().await?.status(), 200);
//! let mut body = Vec::new();
//! while let Some(mut data) = stream.recv_data().await? {
//!     body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
//! }
//! assert_eq!(body, b"/hello over every path");
//!
//! drop(requests); // The last one closes the connection.
//! driving.await?;
//! client.wait_idle().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes of bytes
//!
//! Received bodies are slices of the datagrams they came in: [`bytes::Bytes`], never copied. Other
//! frames are copied if they arrive in parts: a small frame then does not keep much memory. Sent
//! bodies are copied once, into the send buffer, because `h3` shows them only as slices; a [`Body`]
//! is not copied. Of data through [`SendStreamUnframed`](h3::quic::SendStreamUnframed), only
//! `Bytes` are not copied.
//!
//! # What becomes of errors
//!
//! | mpquic | h3 |
//! |---|---|
//! | the peer's application closed the connection | `ConnectionErrorIncoming::ApplicationClose` with its code |
//! | nothing was heard for the idle timeout; the handshake took too long | `ConnectionErrorIncoming::Timeout` |
//! | another end of the connection | `ConnectionErrorIncoming::Undefined`, around a [`mpquic_tokio::ConnectionError`] |
//! | the peer reset a stream, or asked us to stop | `StreamErrorIncoming::StreamTerminated` with its code |
//! | misuse of a stream, 0-RTT rejected | `StreamErrorIncoming::Unknown`, around the error of [`mpquic_tokio`] |
//!
//! # What becomes of requests that are dropped
//!
//! A request or response dropped before `finish` is reset with `H3_REQUEST_CANCELLED`: the peer
//! must not take a part for the whole. A client that drops an unread response cancels it with the
//! same code; a server asks for no more of the request, with `H3_NO_ERROR`.
//!
//! # What becomes of priorities
//!
//! Streams have the priority that a client tells with PRIORITY_UPDATE (RFC 9218 section 7.2),
//! before or after its request, without any work of a server. [`Priorities::set`] is for the fields
//! of a request: call it with each request.
//!
//! ```
//! # use bytes::Bytes;
//! # use mpquic_h3::{Priority, h3};
//! # type Error = Box<dyn std::error::Error + Send + Sync>;
//! # async fn serve(connection: mpquic_tokio::Connection) -> Result<(), Error> {
//! let quic = mpquic_h3::Connection::new(connection);
//! let priorities = quic.priorities();
//! let mut requests = h3::server::Connection::<_, Bytes>::new(quic).await?;
//! while let Some(request) = requests.accept().await? {
//!     let (request, stream) = request.resolve_request().await?;
//!     let priority = Priority::of_request(request.headers());
//!     priorities.set(stream.id(), priority);
//!     // The answer follows.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Clients say it in a request, with a [`Priority`] as the value of the field `priority`. They send
//! no PRIORITY_UPDATE: `h3` 0.0.8 keeps the control stream to itself.
//!
//! # What becomes of CONNECT
//!
//! `h3` 0.0.8 writes `:scheme` and `:path` into every request. This crate removes both from plain
//! CONNECT requests, as RFC 9114 section 4.4 demands. `h3` does not know `connect-ip` (RFC 9484)
//! either: [`CONNECT_IP`] tells how such requests are sent and recognised.
//!
//! # What peers may not do
//!
//! A peer that breaks a rule of RFC 9114 learns which rule from the code at the end of the stream
//! or connection. The rules that `h3` 0.0.8 does not check stand here.
//!
//! Of connections: frames before the settings, the length of GOAWAY, CANCEL_PUSH and MAX_PUSH_ID
//! and their IDs, push streams of clients, and pushes of servers, which no client allows. Of
//! QPACK's two streams (RFC 9204 section 4): instructions for a dynamic table, which we never
//! allow, acknowledgements of one, and the end of such a stream.
//!
//! In requests and responses, fields, trailers and DATA frames, each on arrival, before `h3` sees
//! them:
//!
//! | Rule | RFC 9114 | What breaks it ends |
//! |---|---|---|
//! | no `connection`, `keep-alive`, `proxy-connection`, `transfer-encoding`, `upgrade`; `te` says `trailers` at most, in requests | 4.2 | the stream |
//! | names have no upper-case letters and values no control characters | 4.2, 10.3 | the stream |
//! | pseudo-fields are known, before all others, there once, and never in trailers; those of requests are in no response, and the other way round | 4.3 | the stream |
//! | `:method`, `:scheme`, `:path` and a host are there, `:status` is one of HTTP/3 | 4.3.1, 4.3.2, 4.5 | the stream |
//! | `host` is there once and says what `:authority` says; neither is empty or has a user | 4.3.1 | the stream |
//! | CONNECT has `:authority` alone; with `:protocol` (RFC 9220), all of them | 4.4 | the stream |
//! | `content-length` is a number of digits, one and the same, and what DATA frames have in them | 4.1.2 | the stream |
//! | a response comes before the end of its stream | 4.1 | the stream |
//! | nothing follows trailers; DATA alone follows CONNECT | 4.1, 4.4 | the connection, with `H3_FRAME_UNEXPECTED` |
//! | fields refer to no dynamic table; Huffman's code is filled up with ones | RFC 9204 | the connection, with `QPACK_DECOMPRESSION_FAILED` |
//!
//! The stream ends with `H3_MESSAGE_ERROR` in both directions, and its reader gets a
//! [`MalformedMessage`]. Trailers are handed out after the end of their stream. A reader notices
//! missing content at the end of a request; a request whose end has arrived with its fields is
//! refused at once.
//!
//! # Limits
//!
//! Frames other than DATA stay in memory until they are complete; [`Connection::max_frame_size`]
//! limits their length. `h3` gets one frame at a time, and never reads ahead of the application.
//! Give `h3`'s builders a `max_field_section_size` too: it bounds the size of a decoded field
//! section.
//!
//! # Closing
//!
//! `h3` closes a connection when its `Connection` is dropped, or its last `SendRequest`.
//! Unacknowledged data is lost then. A server that shuts down after its last answer should wait
//! until the client has closed the connection, with [`closed`](mpquic_tokio::Connection::closed) on
//! a clone that it kept.
//!
//! A client may close its side first, with GOAWAY. [`reject_requests`] answers its late requests,
//! and also waits for the end of the connection.

mod body;
mod connect;
mod connection;
mod control;
mod datagrams;
mod error;
mod fields;
mod huffman;
mod message;
mod priorities;
mod priority;
mod qpack;
mod qpack_streams;
mod static_table;
mod streams;
mod units;
mod varint;
mod words;

pub use body::Body;
pub use connect::{CONNECT_IP, TCP_ACCEPT, TCP_LISTEN};
pub use connection::{Connection, OpenStreams, reject_requests};
pub use datagrams::{DatagramSender, RecvDatagrams, SendDatagrams};
pub use error::MalformedMessage;
pub use fields::is_host;
pub use h3;
pub use h3_datagram;
pub use priorities::Priorities;
pub use priority::Priority;
pub use streams::{BidiStream, RecvStream, SendStream};
pub use words::{describe_connection_error, describe_stream_error};

/// The name of HTTP/3 for application-layer protocol negotiation.
pub const ALPN: &[u8] = b"h3";
