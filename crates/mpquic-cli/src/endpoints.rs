//! The endpoints of a server: one on all threads, or one for each worker, which has a thread of its own.

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

/// Clones are the same endpoints.
#[derive(Clone)]
pub(crate) struct Endpoints(Arc<[Place]>);

struct Place {
    endpoint: Endpoint,
    /// Where the tasks of its connections are.
    runtime: Handle,
}

impl Endpoints {
    /// One, in the current runtime.
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

    /// The one there is, unless there are workers.
    pub(crate) fn only(&self) -> Option<&Endpoint> {
        match &*self.0 {
            [place] => Some(&place.endpoint),
            _ => None,
        }
    }

    /// The addresses that all have.
    pub(crate) fn local_addrs(&self) -> Vec<SocketAddr> {
        let first = self.0.first();
        first.map_or_else(Vec::new, |place| place.endpoint.local_addrs())
    }

    /// For connections to come.
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

    /// Of each endpoint.
    pub(crate) fn stats(&self) -> Vec<EndpointStats> {
        self.each().map(Endpoint::stats).collect()
    }

    /// Starts a task for each endpoint where its connections are.
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

    /// Ends all connections, and waits until their peers were told.
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
            // Nobody waits if the command was interrupted.
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
