//! The endpoints of a server: one on all threads, or one for each worker with a thread of its own.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use mpquic_core::EndpointStats;
use mpquic_tokio::{ConfigError, Endpoint, ServerConfig, VarInt, Worker};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The endpoints of a server. Clones share the endpoints.
#[derive(Clone)]
pub(crate) struct Endpoints(Arc<[Place]>);

struct Place {
    endpoint: Endpoint,
    /// The runtime with the tasks of the endpoint's connections.
    runtime: Handle,
}

impl Endpoints {
    /// A single endpoint, in the current runtime.
    pub(crate) fn one(endpoint: Endpoint) -> Self {
        let runtime = Handle::current();
        Self([Place { endpoint, runtime }].into())
    }

    /// Runs each worker on a thread of its own, as long as the process runs.
    pub(crate) async fn of_workers(workers: Vec<Worker>) -> io::Result<Self> {
        let mut places = Vec::new();
        for (number, worker) in (1..).zip(workers) {
            let (tell, started) = oneshot::channel();
            let thread = thread::Builder::new().name(format!("worker {number}"));
            thread.spawn(|| run(worker, tell))?;
            places.push(started.await.map_err(io::Error::other)??);
        }
        Ok(Self(places.into()))
    }

    /// The endpoint of a server without workers.
    pub(crate) fn only(&self) -> Option<&Endpoint> {
        match &*self.0 {
            [place] => Some(&place.endpoint),
            _ => None,
        }
    }

    /// Lets another process bind the addresses, and keeps the connections. Workers cannot do that.
    pub(crate) fn release_addresses(&self) -> io::Result<()> {
        let endpoint = self.only().ok_or(io::ErrorKind::Unsupported)?;
        endpoint.release_addresses()
    }

    /// The addresses, equal for all endpoints.
    pub(crate) fn local_addrs(&self) -> Vec<SocketAddr> {
        let first = self.0.first();
        first.map_or_else(Vec::new, |place| place.endpoint.local_addrs())
    }

    /// Replaces the configuration for new connections.
    pub(crate) fn set_server_config(&self, config: ServerConfig) -> Result<(), ConfigError> {
        self.each()
            .try_for_each(|endpoint| endpoint.set_server_config(Some(config.clone())))
    }

    pub(crate) fn replace_connection_ids(&self) {
        self.each().for_each(Endpoint::replace_connection_ids);
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.each().map(Endpoint::open_connections).sum()
    }

    /// The counters of each endpoint.
    pub(crate) fn stats(&self) -> Vec<EndpointStats> {
        self.each().map(Endpoint::stats).collect()
    }

    /// Starts a task for each endpoint, on the thread of its connections.
    pub(crate) fn spawn<F>(&self, task: impl Fn(Endpoint) -> F) -> JoinSet<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for Place { endpoint, runtime } in self.0.iter() {
            tasks.spawn_on(task(endpoint.clone()), runtime);
        }
        tasks
    }

    /// Closes all connections, and waits until the close has reached the peers or timed out.
    pub(crate) async fn close(&self, code: VarInt, reason: &[u8]) {
        self.each()
            .for_each(|endpoint| endpoint.close(code, reason));
        for endpoint in self.each() {
            endpoint.wait_idle().await;
        }
    }

    fn each(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().map(|place| &place.endpoint)
    }
}

/// The thread of a worker.
fn run(worker: Worker, tell: oneshot::Sender<io::Result<Place>>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // The receiver is gone if the command was interrupted.
            let _ = tell.send(Err(error));
            return;
        }
    };
    runtime.block_on(async {
        let started = worker.start().map(|endpoint| Place {
            endpoint,
            runtime: Handle::current(),
        });
        let goes_on = started.is_ok();
        if tell.send(started).is_ok() && goes_on {
            pending::<()>().await;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use mpquic_tokio::ConnectionError;

    use super::*;
    use crate::options::Alpn;
    use crate::serve;
    use crate::serve::drain::drain;
    use crate::testing::{Served, soon};

    const CLIENTS: usize = 8;

    fn config() -> (ServerConfig, crate::options::trust::Fingerprint) {
        serve::self_signed(&[], &[Alpn::H3.bytes()]).unwrap()
    }

    /// Every worker serves clients equally.
    #[tokio::test]
    async fn workers_act_as_one_server() {
        let (first, pin) = config();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let builder = Endpoint::builder().bind(any).server(first);
        let endpoints = Endpoints::of_workers(builder.workers(2).unwrap()).await;
        let endpoints = endpoints.unwrap();
        assert!(endpoints.only().is_none());
        let [address] = endpoints.local_addrs()[..] else {
            panic!("{:?}", endpoints.local_addrs());
        };
        assert!(address.ip().is_loopback() && address.port() != 0);
        let tasks = Arc::new(AtomicUsize::new(0));
        let _accepting = endpoints.spawn(|endpoint| {
            let tasks = tasks.clone();
            async move {
                tasks.fetch_add(1, Ordering::SeqCst);
                while let Some(incoming) = endpoint.accept().await {
                    tokio::spawn(async move { incoming.await?.accept_bi().await });
                }
            }
        });
        let mut served = Served {
            address,
            endpoints: endpoints.clone(),
            pin,
            alpn: Alpn::H3,
            drain: drain().0,
        };
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(soon(served.try_connect(1000)).await.unwrap());
        }
        assert_eq!(tasks.load(Ordering::SeqCst), 2);
        assert_eq!(endpoints.open_connections(), CLIENTS);
        let accepted = endpoints.stats().into_iter();
        let accepted: Vec<_> = accepted.map(|stats| stats.accepted_handshakes).collect();
        assert_eq!((accepted.len(), accepted.iter().sum()), (2, CLIENTS as u64));

        let (second, pin) = config();
        endpoints.set_server_config(second).unwrap();
        for _ in 0..CLIENTS {
            assert!(soon(served.try_connect(1000)).await.is_err(), "{pin}");
        }
        served.pin = pin;
        for _ in 0..CLIENTS {
            clients.push(soon(served.try_connect(1000)).await.unwrap());
        }
        for client in &clients {
            soon(client.handshake_confirmed()).await.unwrap();
        }
        soon(endpoints.close(7u32.into(), b"over")).await;
        for client in clients {
            let end = soon(client.closed()).await;
            let ConnectionError::ApplicationClosed(close) = end else {
                panic!("{end:?}");
            };
            assert_eq!(
                (close.error_code, &close.reason[..]),
                (7u32.into(), &b"over"[..])
            );
        }
        assert_eq!(endpoints.open_connections(), 0);
    }

    #[tokio::test]
    async fn single_endpoint_is_the_only_one() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::builder().bind(any).build().unwrap();
        let endpoints = Endpoints::one(endpoint.clone());
        let only = endpoints.only().unwrap();
        assert_eq!(only.local_addrs(), endpoint.local_addrs());
        assert_eq!(endpoints.local_addrs(), endpoint.local_addrs());
        assert_eq!(endpoints.open_connections(), 0);
    }
}
