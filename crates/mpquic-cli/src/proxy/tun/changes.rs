//! Reports changes of routes and of the firewall, as the kernel announces them.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use futures_util::future::select_all;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
};
use tokio::net::UdpSocket;

/// Groups of `rtnetlink(7)`: links, and addresses and routes of both IP versions.
const ROUTES: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Changes of nftables: group 7.
const FIREWALL: u32 = 1 << 6;
/// Interval of the checks without reports of the kernel.
const INTERVAL: Duration = Duration::from_secs(2);
/// Changes within this time count as one.
const FLOCK: Duration = Duration::from_millis(20);
/// Most messages to discard at a time.
const MOST: usize = 1024;

/// Sockets to which the kernel writes at each change.
#[derive(Debug)]
pub(crate) struct Changes {
    sockets: Vec<UdpSocket>,
    is_complete: bool,
}

impl Changes {
    /// Listens for changes of routes, and of the firewall with `of_firewall`.
    pub(crate) fn new(of_firewall: bool) -> Self {
        let routes = (SockProtocol::NetlinkRoute, ROUTES);
        let firewall = (SockProtocol::NetlinkNetFilter, FIREWALL);
        let wanted = std::iter::once(routes).chain(of_firewall.then_some(firewall));
        let opened: Vec<_> = wanted
            .map(|(protocol, groups)| listen(protocol, groups))
            .collect();
        let is_complete = opened.iter().all(Result::is_ok);
        Self {
            sockets: opened.into_iter().flatten().collect(),
            is_complete,
        }
    }

    /// Waits for the next change, or for two seconds without reports of the kernel.
    pub(crate) async fn next(&mut self) {
        self.told().await;
        tokio::time::sleep(FLOCK).await;
        let before = self.sockets.len();
        self.sockets.retain(|socket| forget(socket).is_ok());
        self.is_complete &= self.sockets.len() == before;
    }

    async fn told(&self) {
        let waits = self.sockets.iter();
        let waits: Vec<_> = waits.map(|socket| Box::pin(socket.readable())).collect();
        match (waits.is_empty(), self.is_complete) {
            (true, _) => tokio::time::sleep(INTERVAL).await,
            (false, true) => drop(select_all(waits).await),
            (false, false) => drop(tokio::time::timeout(INTERVAL, select_all(waits)).await),
        }
    }
}

/// A netlink socket is not a UDP socket, but waiting and receiving work alike for all sockets.
fn listen(protocol: SockProtocol, groups: u32) -> io::Result<UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    UdpSocket::from_std(socket.into())
}

/// Discards messages: the lists of `ip` and `nft` say more, even after a lost message.
fn forget(socket: &UdpSocket) -> io::Result<()> {
    /// ENOBUFS, which has no `ErrorKind`: some messages did not fit.
    const NO_BUFFERS: i32 = 105;
    let mut message = [0; 4096];
    for _ in 0..MOST {
        match socket.try_recv(&mut message) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(()),
                io::ErrorKind::Interrupted => {}
                _ if error.raw_os_error() == Some(NO_BUFFERS) => {}
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    /// A socket that gets messages from another socket in place of the kernel.
    async fn changes(is_complete: bool) -> (Changes, UdpSocket) {
        let here = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let kernel = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        kernel.connect(here.local_addr().unwrap()).await.unwrap();
        let changes = Changes {
            sockets: vec![here],
            is_complete,
        };
        (changes, kernel)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flock_of_changes_is_one() {
        let (mut changes, kernel) = changes(true).await;
        for _ in 0..10 {
            kernel.send(b"changed").await.unwrap();
        }
        changes.next().await;
        assert!(timeout(LONG, changes.next()).await.is_err());
    }

    /// An empty message stands for the end of the socket.
    #[tokio::test(start_paused = true)]
    async fn without_news_two_seconds_pass() {
        let (mut changes, kernel) = changes(true).await;
        kernel.send(b"").await.unwrap();
        changes.next().await;
        let start = Instant::now();
        changes.next().await;
        assert!((INTERVAL..2 * INTERVAL).contains(&start.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_too_few_costs_two_seconds() {
        let (mut changes, _kernel) = changes(false).await;
        let start = Instant::now();
        changes.next().await;
        assert!((INTERVAL..2 * INTERVAL).contains(&start.elapsed()));
    }

    /// The kernel reports changes to unprivileged programs, too.
    #[tokio::test]
    async fn the_kernel_is_heard() {
        let changes = Changes::new(false);
        assert!(changes.is_complete && changes.sockets.len() == 1);
    }
}
