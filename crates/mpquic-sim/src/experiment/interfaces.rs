//! [`Interfaces`]: the addresses of a client, as they come and go during a run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpquic_paths::Local;

use crate::scenario::PathSpec;

/// The network interfaces of a client, one for each path.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    all: Vec<Interface>,
    /// The time up to which changes have been made.
    changed: Option<Duration>,
}

#[derive(Debug)]
struct Interface {
    local: Local,
    /// The times, from and to, at which the interface has no address.
    absent: Vec<(Duration, Option<Duration>)>,
}

impl Interfaces {
    /// Adds the interface of a path.
    pub(super) fn add(&mut self, address: SocketAddr, path: &PathSpec) {
        let local = Local::new(address).on(&path.name);
        self.all.push(Interface {
            local: if path.backup { local.backup() } else { local },
            absent: path.absent.clone(),
        });
    }

    /// The addresses of the client at a time.
    pub(super) fn locals(&self, at: Duration) -> Arc<[Local]> {
        let is_absent = |interface: &&Interface| {
            let mut absences = interface.absent.iter();
            absences.any(|(from, to)| *from <= at && to.is_none_or(|to| at < to))
        };
        let there = self.all.iter().filter(|one| !is_absent(one));
        there.map(|interface| interface.local.clone()).collect()
    }

    /// When an address comes or goes next.
    pub(super) fn next_change(&self) -> Option<Duration> {
        let absences = self.all.iter().flat_map(|interface| &interface.absent);
        let times = absences.flat_map(|(from, to)| [Some(*from), *to]);
        let is_new = |time: &Duration| self.changed.is_none_or(|changed| changed < *time);
        times.flatten().filter(is_new).min()
    }

    /// The addresses at `now`; `None` if no address came or went since the last call.
    pub(super) fn take_change(&mut self, now: Duration) -> Option<Arc<[Local]>> {
        self.next_change().filter(|at| *at <= now)?;
        self.changed = Some(now);
        Some(self.locals(now))
    }
}
