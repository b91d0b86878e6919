//! [`InterfaceChanges`]: when to look at the network interfaces again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::Runtime;

/// Interval of checks where the system reports no changes, and while a failed bind may succeed
/// later.
const INTERVAL: Duration = Duration::from_secs(1);
/// The least time from one check to the next: changes come in flocks.
#[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd"))]
const LEAST: Duration = Duration::from_millis(20);

/// Waits for changes of links, addresses and routes. Linux, Apple's systems and FreeBSD report
/// changes. On other systems, outside of tokio, and where the system forbids a program to listen, a
/// second passes instead.
#[derive(Debug)]
pub(crate) struct InterfaceChanges {
    #[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd"))]
    events: Option<events::Events>,
    looked: Instant,
    runtime: Arc<dyn Runtime>,
}

impl InterfaceChanges {
    /// Changes from now on.
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            #[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd"))]
            events: events::Events::new()
                .inspect_err(|error| tracing::debug!(%error, "interfaces are polled"))
                .ok(),
            looked: runtime.now(),
            runtime,
        }
    }

    /// Waits for the next check. If `all_done` is false, the check comes after a second even
    /// without a change. Not cancel-safe.
    pub(crate) async fn next(&mut self, all_done: bool) {
        let later = self.looked + INTERVAL;
        #[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd"))]
        if let Some(events) = &self.events {
            let told = async {
                let told = events.told().await;
                self.runtime.timer(self.looked + LEAST).await;
                // The coming check sees changes from the time of the wait.
                told.and_then(|()| events.forget())
            };
            let told = if all_done {
                told.await
            } else {
                tokio::select! {
                    biased;
                    told = told => told,
                    () = self.runtime.timer(later) => Ok(()),
                }
            };
            if let Err(error) = told {
                tracing::debug!(%error, "no news of interfaces, they are polled");
                self.events = None;
            }
            self.looked = self.runtime.now();
            return;
        }
        let _ = all_done;
        self.runtime.timer(later).await;
        self.looked = self.runtime.now();
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple", target_os = "freebsd"))]
mod events {
    use std::io;

    use socket2::Socket;
    use tokio::net::UdpSocket;
    use tokio::runtime::Handle;

    /// Messages that are thrown away at a time.
    const MOST: usize = 1024;
    /// ENOBUFS, which has no `ErrorKind`.
    const NO_BUFFERS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };

    /// The kernel writes a message to this socket at each change. The messages are discarded: the
    /// list of interfaces has more information, even after a lost message.
    ///
    /// The socket is not UDP, but waiting and receiving work alike for all sockets.
    #[derive(Debug)]
    pub(super) struct Events(UdpSocket);

    impl Events {
        pub(super) fn new() -> io::Result<Self> {
            // Only tokio waits for sockets of this kind.
            Handle::try_current().map_err(io::Error::other)?;
            let socket = open()?;
            socket.set_nonblocking(true)?;
            Ok(Self(UdpSocket::from_std(socket.into())?))
        }

        /// Messages come from this socket.
        #[cfg(test)]
        pub(super) fn of(socket: std::net::UdpSocket) -> io::Result<Self> {
            socket.set_nonblocking(true)?;
            Ok(Self(UdpSocket::from_std(socket)?))
        }

        /// Waits for a message.
        pub(super) async fn told(&self) -> io::Result<()> {
            self.0.readable().await
        }

        /// Discards the messages so far.
        pub(super) fn forget(&self) -> io::Result<()> {
            let mut message = [0; 4096];
            for _ in 0..MOST {
                match self.0.try_recv(&mut message) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => return Ok(()),
                        io::ErrorKind::Interrupted => {}
                        // Some messages did not fit.
                        _ if error.raw_os_error() == Some(NO_BUFFERS) => {}
                        _ => return Err(error),
                    },
                }
            }
            Ok(())
        }
    }

    /// `rtnetlink(7)`: links, addresses and routes of both IP versions.
    #[cfg(target_os = "linux")]
    fn open() -> io::Result<Socket> {
        use std::os::fd::AsRawFd as _;

        use nix::sys::socket::{
            AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
        };

        /// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR`,
        /// `RTMGRP_IPV6_ROUTE`.
        const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

        let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
        let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(socket.into())
    }

    /// `route(4)`: a message at any change.
    #[cfg(not(target_os = "linux"))]
    fn open() -> io::Result<Socket> {
        /// `PF_ROUTE`, the same number on Apple's systems and FreeBSD.
        const ROUTE: i32 = 17;
        Socket::new(ROUTE.into(), socket2::Type::RAW, None)
    }
}

#[cfg(all(
    test,
    any(target_os = "linux", target_vendor = "apple", target_os = "freebsd")
))]
mod tests {
    use std::net::UdpSocket;

    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::runtime::TokioRuntime;
    use crate::testing::TestResult;

    const LONG: Duration = Duration::from_secs(100);

    /// Changes of which a socket tells.
    fn changes() -> std::io::Result<(InterfaceChanges, UdpSocket)> {
        let (kernel, here) = (
            UdpSocket::bind("127.0.0.1:0")?,
            UdpSocket::bind("127.0.0.1:0")?,
        );
        kernel.connect(here.local_addr()?)?;
        let mut changes = InterfaceChanges::new(Arc::new(TokioRuntime));
        changes.events = Some(events::Events::of(here)?);
        Ok((changes, kernel))
    }

    #[tokio::test(start_paused = true)]
    async fn a_flock_of_changes_is_one() -> TestResult {
        let (mut changes, kernel) = changes()?;
        let start = Instant::now();
        for _ in 0..100 {
            kernel.send(b"changed")?;
        }
        changes.next(true).await;
        let after = start.elapsed();
        assert!((LEAST..2 * LEAST).contains(&after), "{after:?}");
        assert!(
            timeout(LONG, changes.next(true)).await.is_err(),
            "nothing changed"
        );
        Ok(())
    }

    /// The next check is at once if the last one was long ago.
    #[tokio::test(start_paused = true)]
    async fn a_change_after_a_long_time_is_told_at_once() -> TestResult {
        let (mut changes, kernel) = changes()?;
        tokio::time::sleep(LONG).await;
        let start = Instant::now();
        kernel.send(b"changed")?;
        changes.next(true).await;
        assert!(start.elapsed() < LEAST, "{:?}", start.elapsed());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn failed_change_is_retried_after_a_second() -> TestResult {
        let (mut changes, _kernel) = changes()?;
        for _ in 0..3 {
            let start = Instant::now();
            changes.next(false).await;
            let after = start.elapsed();
            assert!((INTERVAL..2 * INTERVAL).contains(&after), "{after:?}");
        }
        Ok(())
    }

    /// An empty message stands for the end of the socket.
    #[tokio::test(start_paused = true)]
    async fn without_news_interfaces_are_looked_at_each_second() -> TestResult {
        let (mut changes, kernel) = changes()?;
        kernel.send(b"")?;
        changes.next(true).await;
        for _ in 0..3 {
            let start = Instant::now();
            changes.next(true).await;
            let after = start.elapsed();
            assert!((INTERVAL..2 * INTERVAL).contains(&after), "{after:?}");
        }
        Ok(())
    }
}
