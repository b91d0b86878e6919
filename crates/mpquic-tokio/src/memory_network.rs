//! [`MemoryNetwork`]: a network in memory, for tests.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mpquic_core::EcnCodepoint;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::datagram_socket::{DatagramSocket, ReceivedBatch, SentBatch};
use crate::memory_link::{MemoryLink, Way};

/// Datagrams that a single call can send.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// Bytes that wait for the reader; further datagrams are lost.
const BUFFER: usize = 32 << 20;
/// The first automatically chosen port.
const FIRST_PORT: u16 = 49152;

/// A network in memory. Datagrams between its sockets arrive in order after a delay. A datagram is
/// lost only at a socket that is cut off or does not read, or on a link with losses
/// ([`MemorySocket::set_link`]).
///
/// The network needs no addresses of this machine. The network needs tokio, even for an endpoint on
/// another runtime. With tokio's clock paused (`#[tokio::test(start_paused = true)]`), tests take
/// no time, and each run repeats the run before.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use mpquic_tokio::{ClientConfig, Endpoint, MemoryNetwork, ServerConfig};
/// use mpquic_tokio::certificate_fingerprint;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let network = MemoryNetwork::new(Duration::from_millis(5));
/// let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
/// let server = Endpoint::builder()
///     .abstract_socket(network.bind("10.0.0.1:443".parse()?)?)
///     .server(config)
///     .build()?;
/// let wifi = network.bind("192.168.1.2:0".parse()?)?;
/// let client = Endpoint::builder()
///     .abstract_socket(wifi.clone())
///     .abstract_socket(network.bind("100.64.0.2:0".parse()?)?)
///     .client(ClientConfig::with_pin(certificate_fingerprint(&certificate), &[b"test"])?)
///     .build()?;
/// let connecting = client.connect(server.local_addr()?, "localhost")?;
/// let incoming = server.accept().await.ok_or("closed")?;
/// let (connection, at_server) = tokio::try_join!(connecting, async { incoming.await })?;
/// connection.wait_for_paths(2).await?;
/// // One of the client's two links fails, and the connection goes on.
/// wifi.cut_off(true);
/// let mut stream = connection.open_uni().await?;
/// stream.write_all(b"by the other link").await?;
/// stream.finish()?;
/// assert_eq!(at_server.accept_uni().await?.read_to_end(100).await?, b"by the other link");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryNetwork(Arc<Shared>);

struct Shared {
    delay: Duration,
    sockets: Mutex<BTreeMap<SocketAddr, Weak<MemorySocket>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("delay", &self.delay)
            .field("sockets", &locked(&self.sockets).keys())
            .finish()
    }
}

impl MemoryNetwork {
    /// A network that delays each datagram by `delay`.
    pub fn new(delay: Duration) -> Self {
        Self(Arc::new(Shared {
            delay,
            sockets: Mutex::default(),
        }))
    }

    /// A socket with any address; port 0 chooses a free port. The drop of the socket frees the
    /// address.
    ///
    /// # Errors
    ///
    /// [`AddrInUse`](io::ErrorKind::AddrInUse) if a socket has this address.
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for the unspecified address: a socket has a
    /// single address.
    pub fn bind(&self, local: SocketAddr) -> io::Result<Arc<MemorySocket>> {
        if local.ip().is_unspecified() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sockets = locked(&self.0.sockets);
        sockets.retain(|_, socket| socket.strong_count() > 0);
        let mut ports = match local.port() {
            0 => FIRST_PORT..=u16::MAX,
            port => port..=port,
        };
        let free = |port: &u16| !sockets.contains_key(&SocketAddr::new(local.ip(), *port));
        let port = ports.find(free).ok_or(io::ErrorKind::AddrInUse)?;
        let socket = self.socket(SocketAddr::new(local.ip(), port));
        sockets.insert(socket.local, Arc::downgrade(&socket));
        Ok(socket)
    }

    /// Binds a socket; from now on, an earlier socket with the same address receives no datagram.
    #[cfg(test)]
    pub(crate) fn bind_instead(&self, local: SocketAddr) -> Arc<MemorySocket> {
        let socket = self.socket(local);
        locked(&self.0.sockets).insert(local, Arc::downgrade(&socket));
        socket
    }

    fn socket(&self, local: SocketAddr) -> Arc<MemorySocket> {
        Arc::new(MemorySocket {
            local,
            network: self.clone(),
            state: Mutex::default(),
        })
    }

    fn find(&self, address: SocketAddr) -> Option<Arc<MemorySocket>> {
        locked(&self.0.sockets).get(&address)?.upgrade()
    }
}

/// A socket of a [`MemoryNetwork`].
pub struct MemorySocket {
    local: SocketAddr,
    network: MemoryNetwork,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    arriving: VecDeque<Message>,
    /// Bytes of `arriving`.
    waiting: usize,
    is_cut_off: bool,
    /// The link, with its outgoing and its incoming direction.
    link: Option<(MemoryLink, [Way; 2])>,
    reader: Option<Waker>,
    /// Ends at the arrival of the first message.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The direction of a datagram, as seen from the socket.
#[derive(Clone, Copy)]
enum Direction {
    Out,
    In,
}

/// Datagrams that arrive together.
struct Message {
    at: Instant,
    source: SocketAddr,
    ecn: Option<EcnCodepoint>,
    contents: Vec<u8>,
    segment_size: usize,
}

impl fmt::Debug for MemorySocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySocket")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl MemorySocket {
    /// Cuts the socket off: its datagrams are lost in both directions, without an error, as if a
    /// cable was pulled out far away. `false` connects the socket again.
    pub fn cut_off(&self, is_cut_off: bool) {
        locked(&self.state).is_cut_off = is_cut_off;
    }

    /// Puts the socket behind a link, which carries all datagrams of the socket in both directions
    /// from now on. Give links to the sockets of one side only: if a datagram passes two links, the
    /// second link takes datagrams in the order of their sending.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use mpquic_tokio::{MemoryLink, MemoryNetwork};
    /// let network = MemoryNetwork::new(Duration::from_millis(1));
    /// let phone = network.bind("100.64.0.2:0".parse()?)?;
    /// let link = MemoryLink::default().rate(20_000_000).delay(Duration::from_millis(30));
    /// phone.set_link(link.loss(0.01).queue(100_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_link(&self, link: MemoryLink) {
        locked(&self.state).link = Some((link, Default::default()));
    }

    fn has_link(&self) -> bool {
        locked(&self.state).link.is_some()
    }

    /// The time at which a datagram that reaches the link at `at` leaves the link; `None` if the
    /// link loses the datagram.
    fn pass(&self, direction: Direction, at: Instant, bytes: usize) -> Option<Instant> {
        match &mut locked(&self.state).link {
            Some((link, ways)) => {
                let [out, inwards] = ways;
                let way = match direction {
                    Direction::Out => out,
                    Direction::In => inwards,
                };
                way.pass(link, self.local, at, bytes)
            }
            None => Some(at),
        }
    }

    fn arrive(&self, message: Message) {
        let mut state = locked(&self.state);
        if state.is_cut_off || state.waiting + message.contents.len() > BUFFER {
            return;
        }
        state.waiting += message.contents.len();
        let place = (state.arriving).partition_point(|other| other.at <= message.at);
        state.arriving.insert(place, message);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl DatagramSocket for MemorySocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()> {
        if !locked(&self.state).is_cut_off
            && let Some(other) = self.network.find(batch.destination)
        {
            let (now, delay) = (Instant::now(), self.network.0.delay);
            let segment_size = batch.segment_size.unwrap_or(batch.contents.len());
            let message = |at, contents: &[u8]| Message {
                at,
                source: self.local,
                ecn: batch.ecn,
                contents: contents.to_vec(),
                segment_size,
            };
            if !self.has_link() && !other.has_link() {
                other.arrive(message(now + delay, batch.contents));
                return Ok(());
            }
            for datagram in batch.contents.chunks(segment_size.max(1)) {
                let size = datagram.len();
                let sent = self.pass(Direction::Out, now, size);
                let at = sent.and_then(|at| other.pass(Direction::In, at + delay, size));
                if let Some(at) = at {
                    other.arrive(message(at, datagram));
                }
            }
        }
        Ok(())
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = locked(&self.state);
        let state = &mut *state;
        if let Some(first) = state.arriving.front() {
            let at = first.at;
            if at <= Instant::now() {
                state.sleep = None;
                return Poll::Ready(Ok(()));
            }
            let sleep = state.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            return sleep.as_mut().poll(cx).map(Ok);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize> {
        let now = Instant::now();
        let mut state = locked(&self.state);
        let mut count = 0;
        for (buffer, batch) in buffers.iter_mut().zip(batches) {
            let is_there = state.arriving.front().is_some_and(|first| first.at <= now);
            let Some(message) = is_there.then(|| state.arriving.pop_front()).flatten() else {
                break;
            };
            state.waiting -= message.contents.len();
            let length = message.contents.len().min(buffer.len());
            buffer[..length].copy_from_slice(&message.contents[..length]);
            *batch = ReceivedBatch::new(message.source, length);
            batch.destination = Some(self.local.ip());
            batch.ecn = message.ecn;
            batch.segment_size = message.segment_size;
            count += 1;
        }
        match count {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn max_segments(&self) -> usize {
        MAX_SEGMENTS
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unread_datagrams_wait_up_to_32_mebibytes() -> io::Result<()> {
        let network = MemoryNetwork::new(Duration::ZERO);
        let here = network.bind("10.0.0.1:1".parse().map_err(io::Error::other)?)?;
        let there = network.bind("10.0.0.2:1".parse().map_err(io::Error::other)?)?;
        let send = |contents: &[u8]| {
            here.try_send(&SentBatch {
                destination: there.local,
                source: None,
                ecn: None,
                contents,
                segment_size: None,
            })
        };
        assert_eq!(here.max_segments(), 64);
        let large = vec![7; 1 << 20];
        (0..31).try_for_each(|_| send(&large))?;
        send(&large[1..])?;
        send(&large[..2])?;
        assert_eq!(
            locked(&there.state).arriving.len(),
            32,
            "two bytes are too much"
        );
        send(&large[..1])?;
        send(&large[..1])?;
        assert_eq!(
            locked(&there.state).arriving.len(),
            33,
            "there was room for one"
        );
        Ok(())
    }

    /// Rate and delay apply to both directions, and to each datagram of a train. Other sockets do
    /// not wait for this link.
    #[tokio::test(start_paused = true)]
    async fn a_link_carries_what_its_socket_sends_and_receives() -> io::Result<()> {
        let ms = Duration::from_millis;
        let network = MemoryNetwork::new(ms(5));
        let bind = |last| network.bind(SocketAddr::from(([10, 0, 0, last], 1)));
        let (behind, there, other) = (bind(1)?, bind(2)?, bind(3)?);
        let link = MemoryLink::default().rate(8_000_000).delay(ms(20));
        behind.set_link(link);
        let began = Instant::now();
        let send = |from: &MemorySocket, to: &MemorySocket| {
            from.try_send(&SentBatch {
                destination: to.local,
                source: None,
                ecn: None,
                contents: &[7; 2500],
                segment_size: Some(1000),
            })
        };
        send(&behind, &there)?;
        send(&other, &there)?;
        send(&there, &behind)?;
        let arrivals = |socket: &MemorySocket| -> Vec<_> {
            let state = locked(&socket.state);
            let arriving = state.arriving.iter();
            arriving
                .map(|message| ((message.at - began).as_micros(), message.contents.len()))
                .collect()
        };
        let over_link = [(26_000, 1000), (27_000, 1000), (27_500, 500)];
        assert_eq!(arrivals(&there)[0], (5000, 2500));
        assert_eq!(arrivals(&there)[1..], over_link);
        assert_eq!(arrivals(&behind), over_link);
        Ok(())
    }
}
