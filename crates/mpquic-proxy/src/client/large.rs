//! Payloads that are larger than a packet of the paths: they travel on the flow's stream, in
//! DATAGRAM capsules (RFC 9297 section 3.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use mpquic_h3::h3::client::RequestStream;
use mpquic_h3::h3::error::Code;
use mpquic_h3::{RecvStream, SendStream};
use mpquic_tokio::StreamWatch;
use tokio::sync::mpsc;

use crate::capsule::{Capsules, DATAGRAM, datagram_capsule, udp_capsule};
use crate::datagrams::Deliver;
use crate::flow_table::Flow;
use crate::ip_capsule::{Told, parse};
use crate::streams::{Incoming, Outgoing};

/// This number of bytes of a flow may wait at any rate of the paths: two payloads of the largest
/// size.
const ALWAYS: usize = 128 << 10;
/// At most this number of bytes of all flows of a client may wait together.
const TOGETHER: usize = 16 << 20;
/// Bytes of memory of a payload besides its content.
const OVERHEAD: usize = 64;

/// The number of bytes that wait in all flows of a client.
#[derive(Debug, Default)]
pub(super) struct Pool(AtomicUsize);

/// A payload that waits. Dropping this value frees its room.
#[derive(Debug)]
struct Waiting {
    capsule: Bytes,
    flow: Arc<AtomicUsize>,
    pool: Arc<Pool>,
}

impl Waiting {
    fn size(&self) -> usize {
        self.capsule.len() + OVERHEAD
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.flow.fetch_sub(self.size(), Ordering::Relaxed);
        self.pool.0.fetch_sub(self.size(), Ordering::Relaxed);
    }
}

/// The large payloads of a flow, for its stream.
#[derive(Debug)]
pub(super) struct Large {
    waiting: mpsc::UnboundedSender<Waiting>,
    flow: Arc<AtomicUsize>,
    pool: Arc<Pool>,
}

/// The end of a [`Large`] at which the stream takes payloads.
#[derive(Debug)]
pub(super) struct Queue(mpsc::UnboundedReceiver<Waiting>);

impl Large {
    pub(super) fn new(pool: Arc<Pool>) -> (Self, Queue) {
        let (waiting, queue) = mpsc::unbounded_channel();
        let large = Self {
            waiting,
            flow: Arc::default(),
            pool,
        };
        (large, Queue(queue))
    }

    /// Queues a payload. False without room: the payload is lost, as in UDP. `most` is the number
    /// of bytes that may wait at the present rate of the paths.
    pub(super) fn push(&self, payload: &[u8], most: impl FnOnce() -> usize) -> bool {
        self.push_if(payload.len(), most, || udp_capsule(payload))
    }

    /// Queues a datagram of bound UDP in the same way.
    pub(super) fn push_bound(&self, datagram: &[u8], most: impl FnOnce() -> usize) -> bool {
        self.push_if(datagram.len(), most, || datagram_capsule(datagram))
    }

    /// Queues a capsule. False without room.
    pub(super) fn push_capsule(&self, capsule: Bytes) -> bool {
        self.push_if(capsule.len(), || 0, || capsule)
    }

    fn push_if(
        &self,
        length: usize,
        most: impl FnOnce() -> usize,
        capsule: impl FnOnce() -> Bytes,
    ) -> bool {
        let size = length + OVERHEAD;
        let own = self.flow.load(Ordering::Relaxed) + size;
        let all = self.pool.0.load(Ordering::Relaxed) + size;
        if all > TOGETHER || own > ALWAYS && own > most() {
            return false;
        }
        let waiting = Waiting {
            capsule: capsule(),
            flow: self.flow.clone(),
            pool: self.pool.clone(),
        };
        self.flow.fetch_add(waiting.size(), Ordering::Relaxed);
        self.pool.0.fetch_add(waiting.size(), Ordering::Relaxed);
        self.waiting.send(waiting).is_ok()
    }
}

/// The stream of a datagram flow, whose end is the end of the flow.
pub(super) struct Ending {
    send: RequestStream<SendStream<Bytes>, Bytes>,
    recv: RequestStream<RecvStream, Bytes>,
    watch: StreamWatch,
    large: Queue,
    capsules: Capsules,
}

impl Ending {
    pub(super) fn new(
        (send, recv): (
            RequestStream<SendStream<Bytes>, Bytes>,
            RequestStream<RecvStream, Bytes>,
        ),
        watch: StreamWatch,
        large: Queue,
        capsules: Capsules,
    ) -> Self {
        Self {
            send,
            recv,
            watch,
            large,
            capsules,
        }
    }

    pub(super) fn watch(&self) -> &StreamWatch {
        &self.watch
    }

    /// Reads capsules until the proxy has assigned addresses; false if the flow ends before.
    pub(super) async fn assigned(&mut self, deliver: &dyn Deliver) -> bool {
        match read(&mut self.recv, &mut self.capsules, deliver, true).await {
            Ok(is_assigned) => is_assigned,
            Err(code) => self.refuse(code),
        }
    }

    /// Carries capsules both ways until the end of the flow.
    pub(super) async fn run(&mut self, deliver: &dyn Deliver, flow: &Flow) {
        let ended = tokio::select! {
            ended = read(&mut self.recv, &mut self.capsules, deliver, false) => ended,
            () = write(&mut self.send, &mut self.large, &self.watch, flow) => Ok(false),
        };
        if let Err(code) = ended {
            self.refuse(code);
        }
    }

    fn refuse(&mut self, code: Code) -> bool {
        self.recv.stop(code);
        self.send.stop_stream(code);
        false
    }
}

/// Sends queued payloads until the stream fails. The payloads take turns with the data of streams
/// of the flow's class.
async fn write(send: &mut impl Outgoing, large: &mut Queue, watch: &StreamWatch, flow: &Flow) {
    let mut class = None;
    while let Some(waiting) = large.0.recv().await {
        let now = flow.class();
        if class.replace(now) != Some(now) {
            let _ = watch.set_priority(now.priority());
        }
        if send.send(waiting.capsule.clone()).await.is_err() {
            return;
        }
    }
}

/// Reads capsules until the end of the flow. With `until_assigned`, returns true once the proxy has
/// assigned addresses.
///
/// # Errors
///
/// The code of a malformed capsule.
async fn read(
    recv: &mut impl Incoming,
    capsules: &mut Capsules,
    deliver: &dyn Deliver,
    until_assigned: bool,
) -> Result<bool, Code> {
    loop {
        while let Some((kind, value)) = (capsules.take()).map_err(|_| Code::H3_EXCESSIVE_LOAD)? {
            if kind == DATAGRAM {
                deliver.on_datagram(&value);
                continue;
            }
            match parse(kind, &value) {
                Ok(Some(Told::Assigned(addresses))) => {
                    let addresses: Vec<_> =
                        addresses.iter().map(|assigned| assigned.address).collect();
                    deliver.on_assigned(&addresses);
                    if until_assigned {
                        return Ok(true);
                    }
                }
                // Other capsules of CONNECT-IP need no action. A capsule of an unknown context is
                // dropped, as at the proxy.
                Ok(Some(_)) => {}
                Ok(None) => deliver.on_capsule(kind, &value)?,
                Err(error) => {
                    tracing::debug!(%error, "a capsule of CONNECT-IP");
                    return Err(Code::H3_MESSAGE_ERROR);
                }
            }
        }
        match recv.recv().await {
            Ok(Some(piece)) => capsules.push(piece),
            Ok(None) | Err(_) => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flood of large payloads takes bounded memory, and sent payloads make room for others.
    #[test]
    fn payloads_that_wait_take_little_memory() {
        let pool = Arc::new(Pool::default());
        let payload = vec![7; 60_000];
        let flow = |most: usize| {
            let (large, queue) = Large::new(pool.clone());
            let count = (0..1000).take_while(|_| large.push(&payload, || most));
            (count.count(), large, queue)
        };
        let (count, slow, mut queue) = flow(0);
        assert_eq!(count, 2, "on slow paths");
        let (count, fast, _fast) = flow(1 << 20);
        assert_eq!(count, 17, "on fast paths");
        let sent = queue.0.try_recv().unwrap();
        assert_eq!(sent.capsule, udp_capsule(&payload));
        drop(sent);
        assert!(slow.push(&payload, || 0) && !slow.push(&payload, || 0));
        let others: Vec<_> = (0..20).map(|_| flow(1 << 20)).collect();
        let last = others.last().unwrap();
        assert_eq!(last.0, 0, "all flows together");
        assert!(pool.0.load(Ordering::Relaxed) <= TOGETHER);
        drop((others, slow, fast, queue, _fast));
        assert_eq!(pool.0.load(Ordering::Relaxed), 0);
    }
}
