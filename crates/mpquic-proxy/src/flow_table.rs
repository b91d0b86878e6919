//! The flows that are open, for whoever wants to see them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::class::{Class, FlowKind, Guess};
use crate::giving_way::Use;
use crate::target::Target;

/// An open flow.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FlowStats {
    /// Counts the flows of this client or server, from 0 on.
    pub number: u64,
    /// What it carries.
    pub kind: FlowKind,
    /// Where it goes; `None` for IP packets, which go anywhere.
    pub target: Option<Target>,
    /// Who opened it, where users are known.
    pub user: Option<String>,
    /// What it is for, as this side sees it.
    pub class: Class,
    /// Payload bytes from this side to the other end of the connection between the proxy and its client,
    pub sent: u64,
    /// and from there.
    pub received: u64,
    /// How long it has been open.
    pub age: Duration,
}

/// Bytes that were carried.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) to_stream: AtomicU64,
    pub(crate) from_stream: AtomicU64,
}

impl Carried {
    /// Those of both directions.
    pub(crate) fn total(&self) -> u64 {
        self.to_stream.load(Ordering::Relaxed) + self.from_stream.load(Ordering::Relaxed)
    }
}

/// What is known of a flow.
#[derive(Debug)]
pub(crate) struct Flow {
    id: u64,
    kind: FlowKind,
    target: Option<Target>,
    user: Option<String>,
    began: Instant,
    /// When it carried something last, milliseconds after it began.
    last: AtomicU64,
    pub(crate) carried: Carried,
    guess: Mutex<Guess>,
    /// The next of its payloads that are sent twice.
    number: AtomicU64,
}

impl Flow {
    fn guess(&self) -> MutexGuard<'_, Guess> {
        self.guess.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it carries.
    pub(crate) fn kind(&self) -> FlowKind {
        self.kind
    }

    /// What it is for.
    pub(crate) fn class(&self) -> Class {
        self.guess().class()
    }

    /// It sends so many bytes. Tells the class if that has changed.
    pub(crate) fn on_payload(&self, bytes: usize, now: Instant) -> Option<Class> {
        self.on_used(now);
        self.guess().on_payload(bytes, now)
    }

    /// It carries something.
    pub(crate) fn on_used(&self, now: Instant) {
        let after = now.saturating_duration_since(self.began).as_millis() as u64;
        self.last.fetch_max(after, Ordering::Relaxed);
    }

    /// What it was used for, where `answers` counts the bytes that came back.
    pub(crate) fn used(&self, answers: &AtomicU64) -> Use {
        Use {
            is_answered: answers.load(Ordering::Relaxed) > 0,
            last: self.began + Duration::from_millis(self.last.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn stats(&self) -> FlowStats {
        FlowStats {
            number: self.id,
            kind: self.kind,
            target: self.target.clone(),
            user: self.user.clone(),
            class: self.class(),
            sent: self.carried.to_stream.load(Ordering::Relaxed),
            received: self.carried.from_stream.load(Ordering::Relaxed),
            age: self.began.elapsed(),
        }
    }
}

/// The open flows, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    next: AtomicU64,
    flows: Mutex<BTreeMap<u64, Arc<Flow>>>,
}

/// A flow that is in the table until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenFlow {
    table: Arc<FlowTable>,
    flow: Arc<Flow>,
}

impl Deref for OpenFlow {
    type Target = Arc<Flow>;

    fn deref(&self) -> &Arc<Flow> {
        &self.flow
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.table.lock().remove(&self.flow.id);
    }
}

impl FlowTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Flow>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A flow begins. If it was said what it is for, that is not guessed.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: FlowKind,
        target: Option<&Target>,
        user: Option<&str>,
        said: Option<Class>,
    ) -> OpenFlow {
        let now = Instant::now();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let flow = Arc::new(Flow {
            id,
            kind,
            target: target.cloned(),
            user: user.map(str::to_owned),
            began: now,
            last: AtomicU64::new(0),
            carried: Carried::default(),
            guess: Mutex::new(Guess::new(kind, target.map_or(0, Target::port), said, now)),
            number: AtomicU64::new(0),
        });
        self.lock().insert(id, flow.clone());
        OpenFlow {
            table: self.clone(),
            flow,
        }
    }

    pub(crate) fn stats(&self) -> Vec<FlowStats> {
        let flows: Vec<_> = self.lock().values().cloned().collect();
        flows.iter().map(|flow| flow.stats()).collect()
    }
}
