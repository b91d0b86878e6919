//! [`Lab`]: hosts on a network, and the virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::application::Application;
use crate::host::{Host, OnResume};
use crate::network::{HostId, Network};

/// The time limit passed before the condition held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("it did not happen within {limit:?} of virtual time")]
pub struct TimedOut {
    /// The limit.
    pub limit: Duration,
}

/// The instant at which virtual time starts, equal for all labs of a process.
#[expect(
    clippy::disallowed_methods,
    reason = "virtual time must start at some instant; only differences matter"
)]
pub(crate) fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Hosts with endpoints, joined by a network, in virtual time.
///
/// Time passes only in [`Self::step`], which handles all events at the instant of the next event.
/// Equal seeds and equal calls give equal runs.
pub struct Lab<A> {
    now: Instant,
    /// The network.
    pub network: Network,
    hosts: Vec<Host<A>>,
    /// Wake-ups that connections requested: time, host, connection.
    wake_ups: BinaryHeap<Reverse<(Instant, usize, usize)>>,
    steps: u64,
}

impl<A: Application> Lab<A> {
    /// An empty lab. Links draw their random numbers from `seed`.
    pub fn new(seed: u64) -> Self {
        let now = epoch();
        Self {
            now,
            network: Network::new(seed, now),
            hosts: Vec::new(),
            wake_ups: BinaryHeap::new(),
            steps: 0,
        }
    }

    /// Adds a host.
    pub fn add_host(&mut self, host: Host<A>) -> HostId {
        self.hosts.push(host);
        HostId(self.hosts.len() - 1)
    }

    /// A host.
    pub fn host(&self, id: HostId) -> &Host<A> {
        &self.hosts[id.0]
    }

    /// A host to call methods on.
    pub fn host_mut(&mut self, id: HostId) -> &mut Host<A> {
        &mut self.hosts[id.0]
    }

    /// Resumes a stopped host.
    pub fn resume(&mut self, id: HostId, first: OnResume) {
        self.hosts[id.0].resume(self.now, first, &mut self.network);
    }

    /// The hosts, in the order of their addition. Drops the network and its packets.
    pub fn into_hosts(self) -> Vec<Host<A>> {
        self.hosts
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - epoch()
    }

    /// Number of instants with events so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The time of the next event; `None` if no event will ever come.
    pub fn next_event(&mut self) -> Option<Instant> {
        self.service();
        let is_stale = |(time, host, connection): (Instant, usize, usize)| {
            self.hosts[host].wake_time(connection) != Some(time)
        };
        while self.wake_ups.peek().is_some_and(|entry| is_stale(entry.0)) {
            self.wake_ups.pop();
        }
        let wake_up = self.wake_ups.peek().map(|Reverse((time, ..))| *time);
        match (self.network.next_event(), wake_up) {
            (Some(network), Some(wake_up)) => Some(network.min(wake_up)),
            (network, wake_up) => network.or(wake_up),
        }
    }

    /// Advances to the next event and handles all events at that instant. False if no event will
    /// come.
    pub fn step(&mut self) -> bool {
        let Some(time) = self.next_event() else {
            return false;
        };
        self.step_to(time);
        true
    }

    /// Handles all events at the instant of the next event.
    fn step_to(&mut self, time: Instant) {
        self.advance_to(time);
        while let Some((host, packet)) = self.network.poll(self.now) {
            self.hosts[host.0].receive(self.now, packet, &mut self.network);
        }
        while let Some(Reverse((time, host, connection))) = self.wake_ups.peek().copied() {
            if time > self.now {
                break;
            }
            self.wake_ups.pop();
            self.hosts[host].wake(self.now, connection);
        }
        self.service();
        self.steps += 1;
    }

    /// Lets virtual time pass.
    pub fn drive(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(time) = self.next_event().filter(|time| *time <= end) {
            self.step_to(time);
        }
        self.advance_to(end);
    }

    /// Steps until `done` holds. Returns the virtual time until then.
    ///
    /// # Errors
    ///
    /// [`TimedOut`] if `done` does not hold within `limit`, or can never hold.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<Duration, TimedOut> {
        let start = self.now;
        while !done(self) {
            match self.next_event() {
                Some(time) if time <= start + limit => self.step_to(time),
                _ => return Err(TimedOut { limit }),
            }
        }
        Ok(self.now - start)
    }

    fn advance_to(&mut self, time: Instant) {
        self.now = self.now.max(time);
        self.network.set_now(self.now);
    }

    fn service(&mut self) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if host.is_dirty() {
                host.service(self.now, &mut self.network);
            }
            for (time, connection) in host.take_wake_ups() {
                self.wake_ups.push(Reverse((time, index, connection)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkConfig;
    use crate::pair::{Pair, Setup};
    use crate::topology::Topology;
    use crate::transfers::Transfers;

    const MS: Duration = Duration::from_millis(1);

    fn pair() -> Pair {
        let link = LinkConfig::new(8.0, 10 * MS);
        Pair::new(&Topology::new().path("a", link), Setup::new())
    }

    #[test]
    fn nothing_happens_in_an_empty_lab() {
        let mut lab = Lab::<Transfers>::new(1);
        assert_eq!(
            (lab.next_event(), lab.step(), lab.steps()),
            (None, false, 0)
        );
        let limit = 5 * MS;
        assert_eq!(lab.run_until(limit, |_| false), Err(TimedOut { limit }));
        lab.drive(5 * MS);
        assert_eq!((lab.elapsed(), lab.now() - epoch()), (5 * MS, 5 * MS));
        assert_eq!(lab.network.now(), lab.now());
        assert_eq!(lab.run_until(limit, |_| true), Ok(Duration::ZERO));
        let error = TimedOut { limit }.to_string();
        assert_eq!(error, "it did not happen within 5ms of virtual time");
    }

    #[test]
    fn hosts_are_kept_in_their_order() {
        let mut lab = Lab::<Transfers>::new(1);
        let ids = [1, 2, 3].map(|key| {
            let config = mpquic_core::config::EndpointConfig::new([key; 32]);
            lab.add_host(Host::new(config, None, key.into(), Transfers::default))
        });
        assert_eq!(ids, [HostId(0), HostId(1), HostId(2)]);
        lab.host_mut(ids[1]).stop();
        let stopped = ids.map(|id| lab.host(id).is_stopped());
        assert_eq!(stopped, [false, true, false]);
        let hosts = lab.into_hosts();
        let left: Vec<_> = hosts.iter().map(Host::is_stopped).collect();
        assert_eq!(left, stopped);
    }

    #[test]
    fn step_handles_all_events_of_an_instant_and_their_consequences() {
        let mut pair = pair();
        pair.connect();
        // The Initial leaves before time passes. The Initial takes 1.228 ms at the rate of the
        // link, and 10 ms of propagation.
        let arrival = 10 * MS + Duration::from_micros(1228);
        let start = pair.now();
        assert_eq!(pair.next_event(), Some(start + arrival));
        assert_eq!((pair.steps(), pair.elapsed()), (0, Duration::ZERO));
        assert!(pair.step());
        assert_eq!((pair.steps(), pair.elapsed()), (1, arrival));
        // The server's answer has left already.
        assert!(pair.counters("a")[1].packets_in > 0);
    }

    #[test]
    fn drive_handles_all_events_up_to_its_end() {
        let mut pair = pair();
        pair.connect();
        let lab: &mut Lab<Transfers> = &mut pair;
        let arrival = 10 * MS + Duration::from_micros(1228);
        lab.drive(arrival - Duration::from_nanos(1));
        assert_eq!(lab.steps(), 0);
        lab.drive(Duration::from_nanos(1));
        assert_eq!((lab.steps(), lab.elapsed()), (1, arrival));
        let start = lab.now();
        let moved = |lab: &mut Lab<Transfers>| lab.now() > start;
        let next = lab.next_event().unwrap() - start;
        let limit = next - Duration::from_nanos(1);
        assert_eq!(lab.run_until(limit, moved), Err(TimedOut { limit }));
        assert_eq!(lab.run_until(next, moved), Ok(next));
    }
}
