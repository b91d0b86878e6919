//! The table of open flows, for statistics.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// TCP, UDP or IP.
    pub kind: FlowKind,
    /// The target; `None` for IP packets, which have many targets.
    pub target: Option<Target>,
    /// The user of the flow, where users are known.
    pub user: Option<String>,
    /// The class of the flow, as this side sees the flow.
    pub class: Class,
    /// Payload bytes from this side to the other end of the connection between proxy and client.
    pub sent: u64,
    /// Payload bytes from the other end.
    pub received: u64,
    /// Time since the flow began.
    pub age: Duration,
}

/// The flows of one user so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserStats {
    /// The user; `None` where users are not known.
    pub user: Option<String>,
    /// Open flows.
    pub open: u64,
    /// Payload bytes from this side to the other end of the connection between proxy and client, of
    /// open flows and of flows that are over.
    pub sent: u64,
    /// Payload bytes from the other end.
    pub received: u64,
}

impl UserStats {
    fn add(&mut self, carried: &Carried) {
        self.sent += carried.to_stream.load(Ordering::Relaxed);
        self.received += carried.from_stream.load(Ordering::Relaxed);
    }
}

/// Payload bytes of a flow.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) to_stream: AtomicU64,
    pub(crate) from_stream: AtomicU64,
}

impl Carried {
    /// The bytes of both directions.
    pub(crate) fn total(&self) -> u64 {
        self.to_stream.load(Ordering::Relaxed) + self.from_stream.load(Ordering::Relaxed)
    }
}

/// The state of an open flow.
#[derive(Debug)]
pub(crate) struct Flow {
    id: u64,
    kind: FlowKind,
    target: Option<Target>,
    user: Option<String>,
    began: Instant,
    /// Time of the last payload, in milliseconds after `began`.
    last: AtomicU64,
    pub(crate) carried: Carried,
    guess: Mutex<Guess>,
    /// The next number for a payload that is sent twice.
    number: AtomicU64,
    /// The number of flows of the table whose TCP connections are full.
    stalled: Arc<AtomicUsize>,
}

/// Counts a flow whose TCP connection is full. Dropping this value ends the count.
#[derive(Debug)]
pub(crate) struct Stalled<'a>(&'a AtomicUsize);

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flow {
    fn guess(&self) -> MutexGuard<'_, Guess> {
        self.guess.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// TCP, UDP or IP.
    pub(crate) fn kind(&self) -> FlowKind {
        self.kind
    }

    /// The class, as told or guessed.
    pub(crate) fn class(&self) -> Class {
        self.guess().class()
    }

    /// Reports sent bytes. Returns a new class after a change.
    pub(crate) fn on_payload(&self, bytes: usize, now: Instant) -> Option<Class> {
        self.on_used(now);
        self.guess().on_payload(bytes, now)
    }

    /// Reports that the flow waited this time for room to send.
    pub(crate) fn on_waited(&self, time: Duration) {
        if !time.is_zero() {
            self.guess().on_waited(time);
        }
    }

    /// Reports a payload.
    pub(crate) fn on_used(&self, now: Instant) {
        let after = now.saturating_duration_since(self.began).as_millis() as u64;
        self.last.fetch_max(after, Ordering::Relaxed);
    }

    /// The use of the flow, where `answers` counts the bytes of answers.
    pub(crate) fn used(&self, answers: &AtomicU64) -> Use {
        Use {
            is_answered: answers.load(Ordering::Relaxed) > 0,
            last: self.began + Duration::from_millis(self.last.load(Ordering::Relaxed)),
        }
    }

    /// The number of flows of the same client or server whose TCP connections are full.
    pub(crate) fn stalled(&self) -> usize {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Counts this flow as stalled: the TCP connection is full.
    pub(crate) fn stall(&self) -> Stalled<'_> {
        self.stalled.fetch_add(1, Ordering::Relaxed);
        Stalled(&self.stalled)
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

/// The open flows, and the bytes of flows that are over.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    next: AtomicU64,
    flows: Mutex<Flows>,
    stalled: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Flows {
    /// In the order in which they began.
    open: BTreeMap<u64, Arc<Flow>>,
    /// The bytes of flows that are over, by user.
    over: BTreeMap<Option<String>, UserStats>,
}

/// A flow in the table. Dropping this removes the flow from the table.
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
        let mut flows = self.table.lock();
        flows.open.remove(&self.flow.id);
        let user = &self.flow.user;
        let known = flows.over.entry(user.clone());
        let known = known.or_insert_with(|| UserStats {
            user: user.clone(),
            ..UserStats::default()
        });
        known.add(&self.flow.carried);
    }
}

impl FlowTable {
    fn lock(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a flow. Without a class in `said`, the flow's traffic tells the class.
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
            stalled: self.stalled.clone(),
        });
        self.lock().open.insert(id, flow.clone());
        OpenFlow {
            table: self.clone(),
            flow,
        }
    }

    pub(crate) fn stats(&self) -> Vec<FlowStats> {
        let flows: Vec<_> = self.lock().open.values().cloned().collect();
        flows.iter().map(|flow| flow.stats()).collect()
    }

    /// The users with a flow now or before, in the order of their names. The numbers of bytes only
    /// rise.
    pub(crate) fn users(&self) -> Vec<UserStats> {
        let flows = self.lock();
        let mut users = flows.over.clone();
        for flow in flows.open.values() {
            let user = users.entry(flow.user.clone()).or_default();
            user.user.clone_from(&flow.user);
            user.open += 1;
            user.add(&flow.carried);
        }
        users.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_users_are_those_of_open_flows_and_of_flows_that_are_over() {
        let table = Arc::new(FlowTable::default());
        let begin = |user: Option<&str>, bytes: u64| {
            let flow = table.begin(FlowKind::Tcp, None, user, None);
            flow.carried.to_stream.fetch_add(bytes, Ordering::Relaxed);
            flow.carried.from_stream.fetch_add(1, Ordering::Relaxed);
            flow
        };
        let users = || {
            let users = table.users().into_iter();
            let users = users.map(|user| (user.user, user.open, user.sent, user.received));
            users.collect::<Vec<_>>()
        };
        assert_eq!(users(), []);
        let first = begin(Some("alice"), 5);
        let second = begin(Some("alice"), 7);
        let other = begin(None, 9);
        let alice = Some("alice".to_owned());
        let expected = [(None, 1, 9, 1), (alice.clone(), 2, 12, 2)];
        assert_eq!(users(), expected);
        drop(first);
        assert_eq!(users(), [(None, 1, 9, 1), (alice.clone(), 1, 12, 2)]);
        drop((second, other));
        assert_eq!(users(), [(None, 0, 9, 1), (alice, 0, 12, 2)]);
    }
}
