//! From a target to an address, and to a connection: names are looked up, rules are applied to what
//! was found, and the addresses are tried like RFC 8305 says.

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

/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;
/// The next address is tried if the one before has not answered by then (RFC 8305 section 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// What a lookup answers, some time later.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Looks up names.
pub trait Resolve: Send + Sync {
    /// The addresses of a host, with this port; an error, or none, if there are none.
    fn resolve<'a>(&'a self, name: &'a str, port: u16) -> Resolving<'a>;
}

/// Asks the operating system, by threads of its own: a lookup cannot be ended before it has an answer, and others
/// need those of the runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

/// Threads that wait for the operating system to find a name. More lookups wait for one.
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
                    // Nobody may wait any more.
                    let _ = answer.send(found.map(Iterator::collect));
                    drop(thread);
                })?;
            answered.await.map_err(io::Error::other)?
        })
    }
}

/// How the names of one client are looked up.
pub(crate) struct Names<'a> {
    pub(crate) resolver: Arc<dyn Resolve>,
    /// The flow that needs a turn.
    pub(crate) flow: &'a Counted,
    /// Nobody waits for longer.
    pub(crate) deadline: Instant,
}

impl Names<'_> {
    /// A lookup keeps its turn until it is over, which may be long after nobody waits for it any more.
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

/// The addresses of a target that flows may go to, those of the two families by turns.
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
    // An address that means an IPv4 address is treated, and reached, as one.
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
    match allowed.is_empty() {
        true => Err(Refused::DENIED),
        false => Ok(allowed),
    }
}

/// A connection to the first address that answers.
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

/// A socket that sends to, and receives from, the first address to which there is a route.
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

fn refused(error: &io::Error) -> Refused {
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
    use crate::server::accounts::Accounts;
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
        accounts.begin(&taker, FlowKind::Tcp, 1000).unwrap()
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

    /// `silent` is never answered.
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

    /// Lookups whose client has gone are counted until they end.
    #[tokio::test(start_paused = true)]
    async fn a_client_has_a_share_of_the_lookups() {
        let accounts = Accounts::new(1000);
        let flow = |name: &str| {
            let taker = Taker::User(name.into());
            accounts.begin(&taker, FlowKind::Tcp, 1000).unwrap()
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
        // A thread gives its permit back after its answer.
        let all = tokio::time::timeout(Duration::from_secs(60), THREADS.acquire_many(256));
        assert!(all.await.is_ok());
    }

    /// Rebinding: a public name with the address of an internal host.
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
