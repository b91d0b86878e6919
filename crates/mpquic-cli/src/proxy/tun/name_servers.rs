//! [`NameServers`]: the name servers of `--dns`, also after another program has replaced them.
//!
//! A DHCP client writes the name servers of each new network into the resolver's file. Lookups
//! would then go past the tunnel, or fail.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::resolver::Resolver;
use super::state::{State, StateFile};
use crate::process::failure::Failure;

/// Interval of the looks at the resolver's file.
const INTERVAL: Duration = Duration::from_secs(2);
/// Least time between two lines of the log.
const LINES: Duration = Duration::from_secs(60);

/// The present setting; `None` before the first and after the last. Clones are handles to the same
/// setting.
#[derive(Debug, Clone, Default)]
pub(super) struct NameServers(Arc<Mutex<Option<Resolver>>>);

impl NameServers {
    fn lock(&self) -> MutexGuard<'_, Option<Resolver>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name servers of `--dns` are set in the resolver.
    pub(super) fn on_set(&self, resolver: Resolver) {
        *self.lock() = Some(resolver);
    }

    /// Ends the watch over the name servers. Returns the last setting of the resolver.
    pub(super) fn end(&self) -> Option<Resolver> {
        self.lock().take()
    }
}

/// Looks at the name servers while the client runs.
#[derive(Debug)]
pub(crate) struct NameServerWatch {
    pub(super) servers: Vec<IpAddr>,
    /// The file of `--dns-file`.
    pub(super) dns_file: Option<PathBuf>,
    pub(super) current: NameServers,
    /// The state of the device, which names the replaced file for `mpquic proxy down`.
    pub(super) state: State,
    pub(super) file: StateFile,
    /// Time of the last line in the log.
    pub(super) told: Option<Instant>,
}

impl NameServerWatch {
    /// Looks every two seconds.
    pub(crate) async fn run(mut self) -> Infallible {
        loop {
            tokio::time::sleep(INTERVAL).await;
            // `resolvectl` waits for a service.
            let looked = tokio::task::spawn_blocking(move || {
                self.look(Resolver::plan(&self.servers, self.dns_file.as_deref()));
                self
            });
            self = match looked.await {
                Ok(watch) => watch,
                Err(error) => {
                    tracing::error!("name servers are not looked at any more: {error}");
                    std::future::pending().await
                }
            };
        }
    }

    /// Sets the name servers of `--dns` again if the resolver's file, read for the plan `now`, has
    /// another content.
    fn look(&mut self, now: Result<Resolver, Failure>) {
        let current = self.current.clone();
        let mut current = current.lock();
        let Some(set) = current.as_mut() else {
            return;
        };
        let done = match now {
            Ok(now) => match now.after(set) {
                None => return,
                Some(next) => self.keep(&next).map(|()| *set = next),
            },
            Err(failure) => Err(failure),
        };
        if self.told.is_some_and(|told| told.elapsed() < LINES) {
            return;
        }
        self.told = Some(Instant::now());
        match done {
            Ok(()) => tracing::warn!(
                "another program has changed the name servers; those of --dns are set again"
            ),
            Err(failure) => {
                tracing::error!("cannot keep the name servers: {}", failure.message());
            }
        }
    }

    /// Writes the state file for `mpquic proxy down`, and then the name servers.
    fn keep(&mut self, next: &Resolver) -> Result<(), Failure> {
        self.state.resolver = next.replaced().cloned();
        (self.file.write(&self.state))
            .map_err(|error| Failure::other(format_args!("cannot keep a state: {error}")))?;
        next.set(&self.state.name, &self.servers)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::place::Links;
    use super::super::state::tests::state;
    use super::*;
    use crate::testing::logged;

    #[test]
    fn name_servers_of_other_programs_are_replaced_and_restored_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let servers = vec![IpAddr::from([9, 9, 9, 9])];
        let plan = || Resolver::plan_of(&path, Links::Refused, &servers);
        let read = || fs::read_to_string(&path).unwrap();
        fs::write(&path, "nameserver 192.168.1.1\n").unwrap();
        let current = NameServers::default();
        let states = [directory.path().join("states")];
        let mut watch = NameServerWatch {
            servers: servers.clone(),
            dns_file: None,
            current: current.clone(),
            file: StateFile::create(&states, &state("tun0")).unwrap(),
            state: state("tun0"),
            told: None,
        };
        watch.look(plan());
        assert_eq!(read(), "nameserver 192.168.1.1\n", "not set before");
        let first = plan().unwrap();
        first.set("tun0", &servers).unwrap();
        let ours = read();
        current.on_set(first);
        let told = logged(|| watch.look(plan()));
        assert!(told.is_empty() && read() == ours, "{told}");
        // A new network, in place or with a new file.
        for (number, is_new) in [(2, false), (3, true)] {
            let theirs = format!("nameserver 192.168.{number}.1\nsearch lan{number}\n");
            if is_new {
                fs::remove_file(&path).unwrap();
            }
            fs::write(&path, &theirs).unwrap();
            let told = logged(|| watch.look(plan()));
            assert_eq!(
                told.contains("set again"),
                number == 2,
                "one line a minute: {told}"
            );
            assert_eq!(read(), format!("{ours}search lan{number}\n"));
            let kept = watch.file.read().unwrap().resolver.unwrap();
            assert_eq!(kept.before.as_deref(), Some(&*theirs));
        }
        // Another program had saved an earlier content of this tool, and brings the content back.
        fs::write(&path, &ours).unwrap();
        watch.look(plan());
        assert_eq!(read(), format!("{ours}search lan3\n"));
        let last = current.end().unwrap();
        let replaced = last.replaced().unwrap();
        assert_eq!(
            replaced.before.as_deref(),
            Some("nameserver 192.168.3.1\nsearch lan3\n")
        );
        fs::write(&path, "nameserver 192.168.4.1\n").unwrap();
        watch.look(plan());
        assert_eq!(read(), "nameserver 192.168.4.1\n", "not after the end");
    }
}
