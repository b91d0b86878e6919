//! [`Worker`]: a part of a server with a thread, a socket and connections of its own.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mpquic_core::config::{ConnectionIds, EndpointConfig, InvalidOption};
use mpquic_core::{ConnectionId, ConnectionIdGenerator};

use crate::builder::{self, Common, EndpointBuilder, refused};
use crate::config::{ServerConfig, random};
use crate::endpoint::Endpoint;
use crate::runtime::TokioRuntime;
use crate::socket::{self, Socket};
use crate::worker_socket::{Group, Place, worker_of};

/// The most workers: a byte of the connection ID names the worker.
const MAX_WORKERS: usize = 128;
/// Attempts to draw a connection ID for a worker. With 128 workers, all attempts miss a worker with
/// probability 10^-14, so a generator without a hit never makes an ID of the worker.
const ATTEMPTS: usize = 4096;

/// A part of a server, for one thread: [`EndpointBuilder::workers`] makes workers.
#[derive(Debug)]
#[must_use = "call start"]
pub struct Worker {
    number: usize,
    config: EndpointConfig,
    server: ServerConfig,
    socket_buffer: usize,
    sockets: Vec<(UdpSocket, Place)>,
}

impl EndpointBuilder {
    /// Binds the sockets of a server with `count` workers, 1 to 128. Each worker has a socket for
    /// each address of [`Self::bind`], and becomes an endpoint of its own ([`Worker::start`]), best
    /// in a single-threaded runtime: workers share no state that makes a worker wait. All workers
    /// use one server configuration with its tokens and TLS sessions. Each worker has a part of
    /// [`Self::memory_limit`]; other limits count for each worker.
    ///
    /// A connection stays with its worker, which its connection IDs name. The server draws
    /// connection IDs until an ID names the worker. So a generator of your own must vary the last
    /// byte, and makes on average as many IDs for each used ID as the server has workers. On Linux
    /// the kernel gives datagrams to the right socket; on other systems workers hand over datagrams
    /// of other workers. After the drop of a worker or its endpoint, other workers take new
    /// connections. Workers are servers: build another endpoint for connections as a client.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::build`]. Also [`InvalidInput`](io::ErrorKind::InvalidInput) without a
    /// server or an address, with other sockets or roles that workers cannot have, or for a
    /// generator without a connection ID for one of the workers.
    ///
    /// # Examples
    ///
    /// ```
    /// use mpquic_tokio::{Endpoint, ServerConfig};
    /// use tokio::runtime::Builder;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"hello"])?;
    /// let builder = Endpoint::builder().bind("127.0.0.1:0".parse()?).server(config);
    /// let mut threads = Vec::new();
    /// for worker in builder.workers(2)? {
    ///     threads.push(std::thread::spawn(move || {
    ///         let runtime = Builder::new_current_thread().enable_all().build()?;
    ///         runtime.block_on(async {
    ///             let endpoint = worker.start()?;
    /// #           endpoint.close(0u32.into(), b"");
    ///             while let Some(incoming) = endpoint.accept().await {
    ///                 tokio::spawn(async move { incoming.await?.closed().await; Ok::<_, mpquic_tokio::ConnectionError>(()) });
    ///             }
    ///             Ok::<(), std::io::Error>(())
    ///         })
    ///     }));
    /// }
    /// # for thread in threads { thread.join().map_err(|_| "panicked")??; }
    /// # Ok(())
    /// # }
    /// ```
    pub fn workers(self, count: usize) -> io::Result<Vec<Worker>> {
        if !(1..=MAX_WORKERS).contains(&count) {
            let error = InvalidOption::new("workers", count, "from 1 to 128");
            return Err(refused(error));
        }
        let Common {
            server,
            addresses,
            mut options,
            socket_buffer,
        } = self.into_common()?;
        options.memory_limit /= count as u64;
        let all = options.connection_ids;
        let mut workers = Vec::new();
        for number in 0..count {
            options.connection_ids = ids_of(all.clone(), number, count)?;
            workers.push(Worker {
                number,
                config: options.clone().build().map_err(refused)?,
                server: server.clone(),
                socket_buffer,
                sockets: Vec::new(),
            });
        }
        for address in &addresses {
            let mut address = *address;
            let group = Arc::new(Group::new(count, all.length()));
            for worker in &mut workers {
                let socket = socket::bind_shared(address, &addresses, socket_buffer)?;
                // The sockets of all workers share the first socket's port.
                address = socket.local_addr()?;
                let place = Place::new(group.clone(), worker.number);
                worker.sockets.push((socket, place));
            }
            #[cfg(target_os = "linux")]
            if let Some((socket, _)) = workers.first().and_then(|worker| worker.sockets.last())
                && let Err(error) = group.steer(socket)
            {
                tracing::debug!(%error, "the kernel does not steer, workers do");
            }
        }
        Ok(workers)
    }
}

impl Worker {
    /// The addresses that all workers share, in the order of [`EndpointBuilder::bind`].
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let sockets = self.sockets.iter();
        sockets.map(|(socket, _)| socket.local_addr()).collect()
    }

    /// Begins to read from the worker's sockets. Must be called within the tokio runtime that is to
    /// run this worker's connections.
    ///
    /// # Errors
    ///
    /// If an option of the server has an impossible value, or the system provides no randomness.
    pub fn start(self) -> io::Result<Endpoint> {
        let sockets = self.sockets.into_iter();
        let sockets = sockets.map(|(socket, place)| Socket::of_worker(socket, place));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let server = Some(&self.server);
        let state = builder::state(
            self.config,
            server,
            None,
            self.socket_buffer,
            Arc::new(TokioRuntime),
        )?;
        builder::read(&state, sockets);
        Ok(Endpoint::new(state))
    }
}

/// Connection IDs of one worker.
fn ids_of(all: ConnectionIds, number: usize, count: usize) -> io::Result<ConnectionIds> {
    let made = all.generator(random().map_err(io::Error::other)?);
    let mut trial = Own {
        made,
        number,
        count,
        attempts: ATTEMPTS,
    };
    if worker_of(&trial.generate_cid(), count) != Some(number) {
        let error = format!(
            "connection_ids makes none of which the last byte, divided by {count}, leaves {number}"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    let ids = ConnectionIds::new(move |seed| Own {
        made: all.generator(seed),
        number,
        count,
        attempts: ATTEMPTS,
    });
    ids.map_err(refused)
}

/// Draws until a connection ID belongs to the worker. Without a hit, gives an empty ID: the
/// endpoint never uses an empty ID, because of the wrong length.
struct Own {
    made: Box<dyn ConnectionIdGenerator>,
    number: usize,
    count: usize,
    /// The number of draws for the next ID. After a failure, a single draw until the next hit: the
    /// endpoint asks several times for a connection ID.
    attempts: usize,
}

impl ConnectionIdGenerator for Own {
    fn generate_cid(&mut self) -> ConnectionId {
        let own = (0..self.attempts)
            .map(|_| self.made.generate_cid())
            .find(|id| worker_of(id, self.count) == Some(self.number));
        self.attempts = if own.is_some() { ATTEMPTS } else { 1 };
        own.unwrap_or_else(|| ConnectionId::new(&[]))
    }

    fn cid_len(&self) -> usize {
        self.made.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        self.made.cid_lifetime()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Makes IDs with 1 in the last byte for the draws with these numbers, and with 0 for other
    /// draws.
    struct Rare(Arc<AtomicUsize>, &'static [usize]);

    impl ConnectionIdGenerator for Rare {
        fn generate_cid(&mut self) -> ConnectionId {
            let draw = self.0.fetch_add(1, Ordering::Relaxed);
            ConnectionId::new(&[0, 0, 0, u8::from(self.1.contains(&draw))])
        }

        fn cid_len(&self) -> usize {
            4
        }

        fn cid_lifetime(&self) -> Option<Duration> {
            None
        }
    }

    #[test]
    fn workers_are_numbered_and_share_the_memory() -> crate::testing::TestResult {
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        for count in [1, 4, MAX_WORKERS] {
            let builder = crate::Endpoint::builder()
                .bind("127.0.0.1:0".parse()?)
                .memory_limit(256_000_000)
                .server(config.clone());
            let workers = builder.workers(count)?;
            let address = workers[0].local_addrs()?;
            for (number, worker) in workers.iter().enumerate() {
                assert_eq!(worker.number, number);
                let limit = worker.config.options().memory_limit;
                assert_eq!(limit, 256_000_000 / count as u64);
                assert_eq!(worker.local_addrs()?, address, "they have the same address");
            }
            assert_eq!(workers.len(), count);
        }
        Ok(())
    }

    /// A worker issues no connection ID of another worker, and does not look for its own ID for
    /// ever.
    #[test]
    fn no_connection_id_is_of_another_worker() -> io::Result<()> {
        let draws = Arc::new(AtomicUsize::new(0));
        let counted = draws.clone();
        // The first draw is the trial.
        const OWN: &[usize] = &[0, 1, 5, ATTEMPTS + 9];
        let all = ConnectionIds::new(move |_| Rare(counted.clone(), OWN)).map_err(refused)?;
        let mut own = ids_of(all, 1, 2)?.generator([0; 32]);
        let mut next = || {
            let id = own.generate_cid();
            (id.to_vec(), draws.load(Ordering::Relaxed))
        };
        assert_eq!(next(), (vec![0, 0, 0, 1], 2));
        assert_eq!(next(), (vec![0, 0, 0, 1], 6));
        assert_eq!(next(), (vec![], 6 + ATTEMPTS));
        // Later calls get an answer at once, until a draw hits again.
        for more in 1..=3 {
            assert_eq!(next(), (vec![], 6 + ATTEMPTS + more));
        }
        assert_eq!(next(), (vec![0, 0, 0, 1], ATTEMPTS + 10));
        assert_eq!(next(), (vec![], 2 * ATTEMPTS + 10));
        Ok(())
    }
}
