//! From a target to addresses, and to a connection. The proxy looks up the name, applies the rules
//! to the found addresses, and tries the addresses as in RFC 8305.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::StatusCode;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::accounts::Counted;
use super::refusal::Refused;
use crate::datagrams::with_room;
use crate::rules::Rules;
use crate::target::{Host, Target};

/// Most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;
/// Without an answer from an address after this time, the next address is tried, too (RFC 8305
/// section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The future of a lookup.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Looks up names.
pub trait Resolve: Send + Sync {
    /// The addresses of a host, with this port. An unknown name gives an error or an empty list.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a>;
}

/// Asks the operating system in threads of its own: a lookup blocks its thread until the answer,
/// and other tasks need the threads of the runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

/// Threads for lookups by the operating system. Further lookups wait for a thread.
static THREADS: Semaphore = Semaphore::const_new(256);

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a> {
        let name = name.to_owned();
        Box::pin(async move {
            let thread = THREADS.acquire().await.map_err(io::Error::other)?;
            let (answer, answered) = oneshot::channel();
            std::thread::Builder::new()
                .name("name lookup".to_owned())
                .spawn(move || {
                    let found = (&*name, port).to_socket_addrs();
                    // The receiver may have gone after its timeout.
                    let _ = answer.send(found.map(Iterator::collect));
                    drop(thread);
                })?;
            answered.await.map_err(io::Error::other)?
        })
    }
}

/// The lookups of one client.
pub(crate) struct Names<'a> {
    pub(crate) resolver: Arc<dyn Resolve>,
    /// The flow whose client needs a turn for the lookup.
    pub(crate) flow: &'a Counted,
    /// No lookup is waited for after this time.
    pub(crate) deadline: Instant,
}

impl Names<'_> {
    /// Looks up a name in the client's turn. The operating system cannot cancel a lookup, so the
    /// lookup keeps its turn to the end, long after the deadline perhaps.
    async fn look_up(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, Refused> {
        let (turn, resolver) = (self.flow.lookup(), self.resolver.clone());
        let name = name.to_owned();
        let found = async move {
            let turn = turn.await;
            let looking = tokio::spawn(async move {
                let found = resolver.resolve(&name, port).await;
                drop(turn);
                found
            });
            looking.await.map_err(io::Error::other)?
        };
        let found = timeout_at(self.deadline, found).await;
        let found = found.map_err(|_| Refused::DNS_TIMEOUT)?;
        found.map_err(|_| Refused::DNS_ERROR)
    }
}

/// The addresses of a target that the rules permit, IPv6 and IPv4 in turn.
pub(crate) async fn addresses(
    target: &Target,
    names: &Names<'_>,
    rules: &Rules,
) -> Result<Vec<SocketAddr>, Refused> {
    let found = match target.host() {
        Host::Address(address) => vec![SocketAddr::new(*address, target.port())],
        Host::Name(name) => names.look_up(name, target.port()).await?,
    };
    if found.is_empty() {
        return Err(Refused::DNS_ERROR);
    }
    // An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) becomes the IPv4 address before the rules.
    let found = (found.into_iter())
        .map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
    let (mut first, mut second): (Vec<_>, Vec<_>) = found
        .filter(|address| rules.allow(address))
        .partition(SocketAddr::is_ipv6);
    first.reverse();
    second.reverse();
    let mut allowed = Vec::new();
    while allowed.len() < MOST_ADDRESSES {
        match first.pop().or_else(|| second.pop()) {
            Some(address) => allowed.push(address),
            None => break,
        }
        std::mem::swap(&mut first, &mut second);
    }
    if allowed.is_empty() {
        Err(Refused::DENIED)
    } else {
        Ok(allowed)
    }
}

/// Connects to the first address with an answer.
pub(crate) async fn connect(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, Refused> {
    let mut waiting = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = None;
    let mut next_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            Some(connected) = attempts.next() => match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    failure.get_or_insert_with(|| refused(&error));
                    next_at = Instant::now();
                }
            },
            () = sleep_until(deadline) => return Err(Refused::CONNECTION_TIMEOUT),
            () = sleep_until(next_at), if waiting.len() > 0 => {
                attempts.extend(waiting.next().map(|address| TcpStream::connect(*address)));
                next_at = Instant::now() + ATTEMPT_DELAY;
            }
        }
        if attempts.is_empty() && waiting.len() == 0 {
            return Err(failure.unwrap_or(Refused::UNREACHABLE));
        }
    }
}

/// A socket connected to the first address with a route.
pub(crate) async fn udp_socket(addresses: &[SocketAddr]) -> Result<UdpSocket, Refused> {
    let mut failure = None;
    for address in addresses {
        match connected_socket(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => drop(failure.get_or_insert_with(|| refused(&error))),
        }
    }
    Err(failure.unwrap_or(Refused::UNREACHABLE))
}

async fn connected_socket(address: &SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = with_room(UdpSocket::bind(any).await?);
    socket.connect(address).await?;
    Ok(socket)
}

/// The refusal that tells an error of the system.
pub(crate) fn refused(error: &io::Error) -> Refused {
    match error.kind() {
        ErrorKind::ConnectionRefused => Refused::CONNECTION_REFUSED,
        ErrorKind::TimedOut => Refused::CONNECTION_TIMEOUT,
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => Refused::UNREACHABLE,
        // Out of descriptors or ports, for example.
        _ => Refused::new(StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::FlowKind;
    use crate::server::accounts::{Accounts, Turns};
    use crate::shares::Taker;

    struct Fixed(Vec<SocketAddr>);

    impl Resolve for Fixed {
        fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Resolving<'a> {
            Box::pin(async { Ok(self.0.clone()) })
        }
    }

    fn counted(name: &str) -> Counted {
        let accounts = Accounts::new(1000);
        let taker = Taker::User(name.into());
        accounts
            .begin(&taker, (FlowKind::Tcp, Turns::Other), 1000)
            .unwrap()
    }

    async fn found(answers: &[&str]) -> Result<Vec<String>, Refused> {
        let answers = answers.iter().map(|text| text.parse().unwrap()).collect();
        let target = "name.example:1".parse().unwrap();
        let flow = counted("a");
        let names = Names {
            resolver: Arc::new(Fixed(answers)),
            flow: &flow,
            deadline: Instant::now() + ATTEMPT_DELAY,
        };
        let found = addresses(&target, &names, &Rules::default()).await?;
        Ok(found.iter().map(SocketAddr::to_string).collect())
    }

    /// Never answers for the name `silent.example`.
    struct Silent;

    impl Resolve for Silent {
        fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a> {
            Box::pin(async move {
                match name {
                    "silent.example" => std::future::pending().await,
                    _ => Ok(vec![SocketAddr::from(([1, 1, 1, 1], port))]),
                }
            })
        }
    }

    /// Lookups of a vanished client count until their end.
    #[tokio::test(start_paused = true)]
    async fn a_client_has_a_share_of_the_lookups() {
        let accounts = Accounts::new(1000);
        let flow = |name: &str| {
            let taker = Taker::User(name.into());
            accounts
                .begin(&taker, (FlowKind::Tcp, Turns::Other), 1000)
                .unwrap()
        };
        let [one, other] = ["a", "b"].map(flow);
        let ask = async |flow: &Counted, name: &str| {
            let names = Names {
                resolver: Arc::new(Silent),
                flow,
                deadline: Instant::now() + ATTEMPT_DELAY,
            };
            let target = format!("{name}.example:1").parse().unwrap();
            addresses(&target, &names, &Rules::default())
                .await
                .map(|found| found.len())
        };
        assert_eq!(ask(&one, "name").await, Ok(1));
        for _ in 0..16 {
            assert_eq!(ask(&one, "silent").await, Err(Refused::DNS_TIMEOUT));
        }
        assert_eq!(ask(&one, "name").await, Err(Refused::DNS_TIMEOUT));
        assert_eq!(ask(&other, "name").await, Ok(1));
    }

    #[tokio::test]
    async fn the_system_finds_names_without_the_threads_of_the_runtime() {
        let found = SystemResolver.resolve("127.0.0.1", 80).await.unwrap();
        assert_eq!(found, ["127.0.0.1:80".parse().unwrap()]);
        // A thread returns its permit after the answer.
        let all = tokio::time::timeout(Duration::from_secs(60), THREADS.acquire_many(256));
        assert!(all.await.is_ok());
    }

    /// DNS rebinding: a public name leads to the address of an internal host.
    #[tokio::test]
    async fn rules_are_for_what_a_name_leads_to() {
        for denied in [
            "127.0.0.1:1",
            "[::ffff:10.0.0.1]:1",
            "[::1]:1",
            "169.254.169.254:1",
        ] {
            assert_eq!(found(&[denied]).await, Err(Refused::DENIED), "{denied}");
        }
        let mixed = found(&["10.0.0.1:1", "1.1.1.1:1", "127.0.0.1:1"]).await;
        assert_eq!(mixed, Ok(vec!["1.1.1.1:1".to_owned()]));
        assert_eq!(found(&[]).await, Err(Refused::DNS_ERROR));
    }

    #[tokio::test]
    async fn families_take_turns() {
        let answers = [
            "1.1.1.1:1",
            "1.1.1.2:1",
            "[2606::1]:1",
            "[2606::2]:1",
            "1.1.1.3:1",
        ];
        let expected = [
            "[2606::1]:1",
            "1.1.1.1:1",
            "[2606::2]:1",
            "1.1.1.2:1",
            "1.1.1.3:1",
        ];
        assert_eq!(
            found(&answers).await,
            Ok(expected.map(str::to_owned).to_vec())
        );
        let many: Vec<_> = (0..100).map(|n| format!("1.1.1.{n}:1")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(found(&many).await.unwrap().len(), MOST_ADDRESSES);
    }

    #[tokio::test]
    async fn the_next_address_is_tried_when_one_refuses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refusing = closed.local_addr().unwrap();
        drop(closed);
        let deadline = Instant::now() + Duration::from_secs(30);
        let addresses = [refusing, listener.local_addr().unwrap()];
        let connected = connect(&addresses, deadline).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap(), addresses[1]);
        let none = connect(&addresses[..1], deadline).await;
        assert_eq!(none.unwrap_err(), Refused::CONNECTION_REFUSED);
    }
}
