//! [`DatagramFlows`]: the UDP flows of one local socket, or the flows of a device.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::flows::{Client, DatagramFlow, NoFlow, Wanted};
use crate::datagrams::Deliver;

/// Flows of one socket open at a time, unless something else is said. Payloads that would need one
/// more are lost.
pub(crate) const MOST: usize = 256;
/// Bytes of payloads that wait for a flow to open, which takes a round trip. More are lost.
const WAITING: usize = 256 << 10;

/// What the proxy refused is not asked for again so soon; payloads for it are lost.
const REFUSED: Duration = Duration::from_secs(1);

/// Flows by what tells them apart. They end when this is dropped.
pub(crate) struct DatagramFlows<K> {
    client: Client,
    most: usize,
    flows: Mutex<BTreeMap<K, Flow>>,
    /// Dropped with this, which ends the tasks.
    alive: watch::Sender<()>,
}

enum Flow {
    Opening(Waiting),
    Open(Arc<DatagramFlow>),
    /// A moment ago.
    Refused,
}

/// Payloads that wait for a flow to open.
#[derive(Default)]
struct Waiting {
    payloads: Vec<Vec<u8>>,
    /// With the memory that each takes beside its bytes.
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, payload: &[u8]) {
        self.bytes += payload.len() + 64;
        self.payloads.push(payload.to_vec());
    }
}

impl<K: Ord + Clone + Send + 'static> DatagramFlows<K> {
    /// At most so many are open at a time. Payloads that would need one more are lost.
    pub(crate) fn new(client: Client, most: usize) -> Arc<Self> {
        Arc::new(Self {
            client,
            most,
            flows: Mutex::default(),
            alive: watch::Sender::new(()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Flow>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a payload, behind a byte that is 0. If there is no flow yet it is opened, and its answers go
    /// where `deliver` says.
    pub(crate) fn send(
        self: &Arc<Self>,
        key: &K,
        payload: &[u8],
        open: impl FnOnce() -> (Wanted, Arc<dyn Deliver>),
    ) {
        let mut flows = self.lock();
        let is_full = flows.len() >= self.most;
        match flows.get_mut(key) {
            Some(Flow::Open(flow)) => {
                let flow = flow.clone();
                drop(flows);
                flow.send(payload);
            }
            Some(Flow::Opening(waiting)) if waiting.bytes + payload.len() <= WAITING => {
                waiting.push(payload);
            }
            Some(Flow::Opening(_) | Flow::Refused) => {}
            None if !is_full => {
                let mut waiting = Waiting::default();
                waiting.push(payload);
                flows.insert(key.clone(), Flow::Opening(waiting));
                drop(flows);
                let (wanted, deliver) = open();
                let flows = Arc::downgrade(self);
                let opening = carry(flows, self.client.clone(), key.clone(), wanted, deliver);
                let mut alive = self.alive.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        () = opening => {}
                        _ = alive.changed() => {}
                    }
                });
            }
            None => {}
        }
    }
}

/// Opens a flow and waits for its end.
async fn carry<K: Ord + Clone + Send + 'static>(
    flows: Weak<DatagramFlows<K>>,
    client: Client,
    key: K,
    wanted: Wanted,
    deliver: Arc<dyn Deliver>,
) {
    match client.connect_datagrams(&wanted, deliver).await {
        Ok(flow) => {
            let flow = Arc::new(flow);
            if let Some(flows) = flows.upgrade() {
                let opening = flows.lock().insert(key.clone(), Flow::Open(flow.clone()));
                if let Some(Flow::Opening(waiting)) = opening {
                    (waiting.payloads.iter()).for_each(|payload| flow.send(payload));
                }
            }
            flow.ended().await;
        }
        // There will soon be one again, and that there is none was told already.
        Err(error @ (NoFlow::Unconnected | NoFlow::Broken)) => {
            tracing::debug!("no {wanted}: {error}");
        }
        Err(error) => {
            tracing::info!("no {wanted}: {error}");
            // Not every payload is worth a request that is refused.
            if let Some(flows) = flows.upgrade() {
                flows.lock().insert(key.clone(), Flow::Refused);
            }
            tokio::time::sleep(REFUSED).await;
        }
    }
    if let Some(flows) = flows.upgrade() {
        flows.lock().remove(&key);
    }
}
