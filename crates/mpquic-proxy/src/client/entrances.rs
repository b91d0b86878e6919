//! [`Entrance`]: the ways in for applications.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::association::Association;
use super::flows::{Client, NoFlow};
use super::http_exchange::Exchange;
use super::knocking::{Knock, Knocking};
use super::socks::{self, Command, Reply};
use super::{forward, http_proxy, transparent};
use crate::datagrams::with_room;
use crate::kernel_queue;
use crate::listening::{self, listen_tcp};
use crate::target::Target;

/// Open connections of one entrance. Further connections wait.
const MOST: usize = 4096;
/// Open connections whose application has not named a target.
const MOST_KNOCKING: usize = 1024;
/// Longest time until an application has named its target.
const PATIENCE: Duration = Duration::from_secs(30);
/// Stands for an unknown address.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A way in for applications.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entrance {
    /// SOCKS 5 (RFC 1928) without authentication: CONNECT and UDP ASSOCIATE.
    Socks,
    /// An HTTP/1 proxy: CONNECT, and other methods for `http` URLs.
    Http,
    /// A TCP port that leads to this target.
    Tcp(Target),
    /// A UDP port that leads to this target.
    Udp(Target),
    /// TCP connections to any address that the system diverts here (Linux, TPROXY). Each connection
    /// leads to its application's target. Opening this entrance takes the capability
    /// `CAP_NET_ADMIN`, and an address of its own. Connections to this address itself are reset,
    /// because they would lead in a circle.
    Transparent,
}

/// An open entrance. Dropping this closes the entrance, and its accepted connections go on.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    /// The address of the entrance.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// Opens an entrance. Everybody who reaches the address may come in, so use a loopback address
    /// unless other machines need the entrance.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen(&self, entrance: Entrance, address: SocketAddr) -> io::Result<Listener> {
        self.listen_beside(entrance, address, &[]).await
    }

    /// Like [`Self::listen`], beside entrances at `all` addresses: `[::]` includes all IPv4
    /// addresses, unless `all` has `0.0.0.0` with the same port.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn listen_beside(
        &self,
        entrance: Entrance,
        address: SocketAddr,
        all: &[SocketAddr],
    ) -> io::Result<Listener> {
        let client = self.clone();
        if let Entrance::Udp(target) = entrance {
            let socket = with_room(listening::bind_udp(address, all)?);
            let address = socket.local_addr()?;
            let task = tokio::spawn(forward::udp(socket, target, client));
            return Ok(Listener { address, task });
        }
        let listener = match entrance {
            Entrance::Transparent => transparent::listen(address)?,
            _ => listen_tcp(address, all)?,
        };
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, Arc::new(entrance), client));
        Ok(Listener { address, task })
    }
}

/// The SOCKS reply for a missing flow (RFC 1928 section 6).
fn code(reason: NoFlow) -> Reply {
    match reason {
        NoFlow::Unconnected => Reply::NetworkUnreachable,
        NoFlow::ConnectionRefused => Reply::ConnectionRefused,
        NoFlow::Refused(StatusCode::FORBIDDEN) => Reply::NotAllowed,
        NoFlow::Refused(StatusCode::BAD_GATEWAY) => Reply::HostUnreachable,
        NoFlow::Refused(StatusCode::GATEWAY_TIMEOUT) => Reply::TtlExpired,
        NoFlow::NoUdp | NoFlow::NoBinding | NoFlow::NoReverse => Reply::CommandNotSupported,
        NoFlow::Refused(_) | NoFlow::Broken => Reply::GeneralFailure,
    }
}

/// The HTTP status for a missing flow. A 407 of the proxy becomes a 502: applications would ask
/// their user for a password that only this client can have.
fn status(reason: NoFlow) -> StatusCode {
    match reason {
        NoFlow::Unconnected => StatusCode::SERVICE_UNAVAILABLE,
        NoFlow::Refused(StatusCode::PROXY_AUTHENTICATION_REQUIRED) => StatusCode::BAD_GATEWAY,
        NoFlow::Refused(status) => status,
        NoFlow::ConnectionRefused
        | NoFlow::NoUdp
        | NoFlow::NoBinding
        | NoFlow::NoReverse
        | NoFlow::Broken => StatusCode::BAD_GATEWAY,
    }
}

async fn accept(listener: TcpListener, entrance: Arc<Entrance>, client: Client) {
    kernel_queue::prepare(&listener);
    let own = listener.local_addr().ok();
    let open = Arc::new(Semaphore::new(MOST));
    let knocking = Knocking::new(MOST_KNOCKING);
    loop {
        let Ok(permit) = open.clone().acquire_owned().await else {
            return;
        };
        let Ok((tcp, _)) = listener.accept().await else {
            // Out of descriptors, for example: a descriptor becomes free soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (entrance, client, knocking) = (entrance.clone(), client.clone(), knocking.clone());
        tokio::spawn(async move {
            let served = match &*entrance {
                Entrance::Socks | Entrance::Http => {
                    let (knock, gone) = knocking.begin();
                    let begun = Begun::new(tcp, knock);
                    let serving = async {
                        match *entrance {
                            Entrance::Socks => serve_socks(begun, &client).await,
                            _ => serve_http(begun, &client).await,
                        }
                    };
                    tokio::select! {
                        served = serving => served,
                        () = gone => Err(io::ErrorKind::TimedOut.into()),
                    }
                }
                Entrance::Tcp(target) => serve_forward(tcp, target, &client).await,
                Entrance::Transparent => serve_diverted(tcp, own, &client).await,
                // A UDP entrance has no listener.
                Entrance::Udp(_) => Ok(()),
            };
            if let Err(error) = served {
                tracing::debug!(%error, "an application");
            }
            drop(permit);
        });
    }
}

/// A connection with bytes that were read and not used yet.
struct Begun {
    tcp: TcpStream,
    bytes: Vec<u8>,
    /// Held until the application has named its target.
    knock: Option<Knock>,
}

impl Begun {
    fn new(tcp: TcpStream, knock: Knock) -> Self {
        Self {
            tcp,
            bytes: Vec::new(),
            knock: Some(knock),
        }
    }

    /// Reads until `parse` finds a message within `most` bytes, and removes the message. `None`
    /// after an early end of the application, or after too many bytes.
    async fn read<T, E>(
        &mut self,
        most: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> io::Result<Option<Result<T, E>>> {
        let reading = async {
            loop {
                match parse(&self.bytes) {
                    Ok(Some((found, length))) => {
                        self.bytes.drain(..length);
                        return Ok(Some(Ok(found)));
                    }
                    Ok(None) if self.bytes.len() > most => return Ok(None),
                    Ok(None) => {}
                    Err(error) => return Ok(Some(Err(error))),
                }
                if self.tcp.read_buf(&mut self.bytes).await? == 0 {
                    return Ok(None);
                }
            }
        };
        timeout(PATIENCE, reading).await?
    }

    /// Sends a last message and waits for the application's end: an immediate close could send a
    /// reset, which destroys the message on its way.
    async fn end(mut self, word: &[u8]) -> io::Result<()> {
        self.tcp.write_all(word).await?;
        self.tcp.shutdown().await?;
        let mut rest = [0; 1024];
        let reading = async {
            while self.tcp.read(&mut rest).await? > 0 {}
            Ok(())
        };
        timeout(PATIENCE, reading).await?
    }
}

async fn serve_forward(tcp: TcpStream, target: &Target, client: &Client) -> io::Result<()> {
    match client.connect(target).await {
        Ok(flow) => flow.join(tcp, Bytes::new()).await,
        // A forwarded port has no message for the reason. The reset looks like a target without a
        // listener.
        Err(reason) => {
            tracing::info!("no TCP to {target}: {reason}");
            tcp.set_zero_linger()?;
        }
    }
    Ok(())
}

/// The local address of a diverted connection is the application's target.
async fn serve_diverted(
    tcp: TcpStream,
    own: Option<SocketAddr>,
    client: &Client,
) -> io::Result<()> {
    let target = tcp.local_addr()?;
    if Some(target) == own {
        return tcp.set_zero_linger();
    }
    serve_forward(tcp, &target.into(), client).await
}

async fn serve_socks(mut begun: Begun, client: &Client) -> io::Result<()> {
    let greeting = begun.read(socks::MAX_MESSAGE, socks::greeting).await?;
    let Some(Ok(can)) = greeting else {
        return Ok(());
    };
    if !can {
        return begun.end(&socks::method(can)).await;
    }
    begun.tcp.write_all(&socks::method(can)).await?;
    let request = begun.read(socks::MAX_MESSAGE, socks::request).await?;
    let (command, target) = match request {
        Some(Ok(request)) => request,
        Some(Err(socks::Refused::With(reply))) => {
            return begun.end(&socks::reply(reply, NOWHERE)).await;
        }
        Some(Err(socks::Refused::Silently)) | None => return Ok(()),
    };
    begun.knock = None;
    match (command, target) {
        (Command::Connect, Some(target)) => match client.connect(&target).await {
            Ok(flow) => {
                let reply = socks::reply(Reply::Succeeded, NOWHERE);
                begun.tcp.write_all(&reply).await?;
                flow.join(begun.tcp, begun.bytes.into()).await;
                Ok(())
            }
            Err(reason) => {
                tracing::info!("no TCP to {target}: {reason}");
                begun.end(&socks::reply(code(reason), NOWHERE)).await
            }
        },
        (Command::Connect, None) => Ok(()),
        (Command::UdpAssociate, announced) => associate(begun, announced, client).await,
    }
}

/// A UDP association lasts as long as its TCP connection.
async fn associate(mut begun: Begun, announced: Option<Target>, client: &Client) -> io::Result<()> {
    let (ours, theirs) = (begun.tcp.local_addr()?, begun.tcp.peer_addr()?.ip());
    let port = socks::sending_port(announced, theirs);
    let bound = Association::bind(ours.ip(), (theirs, port)).await;
    let Ok((association, address)) = bound.and_then(|bound| Ok((bound.clone(), bound.address()?)))
    else {
        let reply = socks::reply(Reply::GeneralFailure, NOWHERE);
        return begun.end(&reply).await;
    };
    let reply = socks::reply(Reply::Succeeded, address);
    begun.tcp.write_all(&reply).await?;
    let mut rest = [0; 1024];
    let until_closed = async {
        while begun.tcp.read(&mut rest).await? > 0 {}
        Ok(())
    };
    tokio::select! {
        closed = until_closed => closed,
        () = association.run(client) => Ok(()),
    }
}

async fn serve_http(mut begun: Begun, client: &Client) -> io::Result<()> {
    let parse = |bytes: &[u8]| {
        let asked = http_proxy::head(bytes)?;
        Ok(asked.map(|asked| {
            let length = asked.length;
            (asked, length)
        }))
    };
    let asked = match begun.read(http_proxy::MAX_HEAD, parse).await? {
        Some(Ok(asked)) => asked,
        Some(Err(status)) => {
            let status: StatusCode = status;
            let answer = http_proxy::answer(status, "this is an HTTP proxy");
            return begun.end(&answer).await;
        }
        None => return Ok(()),
    };
    begun.knock = None;
    let target = asked.target;
    match client.connect(&target).await {
        Ok(flow) => {
            let Some(fetched) = asked.fetched else {
                let done = b"HTTP/1.1 200 Connection established\r\n\r\n";
                begun.tcp.write_all(done).await?;
                flow.join(begun.tcp, begun.bytes.into()).await;
                return Ok(());
            };
            let (exchange, head) = match Exchange::begin(fetched, &begun.bytes) {
                Ok(begin) => begin,
                Err(status) => {
                    let answer = http_proxy::answer(status, "the request has no such body");
                    return begun.end(&answer).await;
                }
            };
            flow.join_by(begun.tcp, head.into(), &exchange).await;
            Ok(())
        }
        Err(reason) => {
            tracing::info!("no TCP to {target}: {reason}");
            let answer = http_proxy::answer(status(reason), &reason.to_string());
            begun.end(&answer).await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// The two ends of an application's connection.
    async fn begun() -> io::Result<(TcpStream, Begun)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let connecting = TcpStream::connect(listener.local_addr()?);
        let (near, far) = tokio::try_join!(connecting, listener.accept())?;
        let (knock, _) = Knocking::new(1).begin();
        Ok((near, Begun::new(far.0, knock)))
    }

    /// A message that never ends.
    fn unfinished(_: &[u8]) -> Result<Option<((), usize)>, ()> {
        Ok(None)
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_minute_is_enough_to_say_something() -> io::Result<()> {
        let (_application, mut begun) = begun().await?;
        let begin = Instant::now();
        let read = begun.read(socks::MAX_MESSAGE, unfinished).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed().as_secs(), 30);
        Ok(())
    }

    #[tokio::test]
    async fn a_message_without_an_end_is_read_up_to_its_limit() -> io::Result<()> {
        for most in [socks::MAX_MESSAGE, http_proxy::MAX_HEAD] {
            let (mut application, mut begun) = begun().await?;
            let pouring = async { while application.write_all(&[0; 4096]).await.is_ok() {} };
            let read = tokio::select! {
                read = begun.read(most, unfinished) => read?,
                () = pouring => None,
            };
            assert_eq!(read, None);
            let length = begun.bytes.len();
            assert!(most < length && length < 2 * most + 4096, "{length}");
        }
        Ok(())
    }
}
