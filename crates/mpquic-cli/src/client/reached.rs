//! [`ReachedServers`]: the servers to which a command has made a connection, and since when they
//! are gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::Uri;
use http::uri::Authority;

use crate::process::failure::{Cause, Failure};

/// The first failed attempt to connect after the last connection, and why it failed.
#[derive(Debug)]
struct Absence {
    since: Instant,
    message: String,
}

/// Hosts and ports as in URLs. A server that was reached before is expected back: it restarts, or
/// its connection was lost.
#[derive(Debug, Default)]
pub(crate) struct ReachedServers(Mutex<HashMap<String, Option<Absence>>>);

impl ReachedServers {
    /// A connection to this server was made.
    pub(crate) fn note(&self, server: &Authority) {
        self.all().insert(server.to_string(), None);
    }

    /// No connection to this server could be made.
    pub(crate) fn miss(&self, server: &Authority, failure: &Failure, now: Instant) {
        let is_absent = matches!(failure.cause(), Some(Cause::Name | Cause::Connect));
        if let Some(absence @ None) = self.all().get_mut(server.as_str())
            && is_absent
        {
            let message = failure.message();
            *absence = Some(Absence {
                since: now,
                message: message.to_owned(),
            });
        }
    }

    /// True if a connection to the server of this URL was made.
    pub(crate) fn has(&self, url: &Uri) -> bool {
        let server = url.authority().map(Authority::as_str);
        server.is_some_and(|server| self.all().contains_key(server))
    }

    /// The failure of a request to this URL: without a new connection to a server that was reached
    /// before, the connection is lost.
    pub(crate) fn judge(&self, url: &Uri, failure: Failure) -> Failure {
        match failure.cause() {
            Some(Cause::Name | Cause::Connect) if self.has(url) => {
                Cause::Broken.failed(failure.message())
            }
            _ => failure,
        }
    }

    /// The failure of all further requests, if the server of this URL has been gone for `limit`.
    /// Without a limit, each request has an attempt of its own.
    pub(crate) fn given_up(&self, url: &Uri, limit: Duration, now: Instant) -> Option<Failure> {
        let all = self.all();
        let absence = all.get(url.authority()?.as_str())?.as_ref()?;
        let is_over = !limit.is_zero() && now.saturating_duration_since(absence.since) >= limit;
        is_over.then(|| Cause::Broken.failed(&absence.message))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Option<Absence>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_given_up_for_all_files_at_once() {
        let reached = ReachedServers::default();
        let url = Uri::from_static("https://host:5/a");
        let server = url.authority().unwrap();
        let (start, limit) = (crate::process::clock::now(), Duration::from_secs(10));
        let at = |seconds| start + Duration::from_secs(seconds);
        let (gone, lost) = (
            Cause::Connect.failed("nobody"),
            Cause::Broken.failed("lost"),
        );
        let given_up = |limit, now| reached.given_up(&url, limit, now);
        reached.miss(server, &gone, at(0));
        assert!(
            !reached.has(&url) && given_up(limit, at(100)).is_none(),
            "never reached"
        );
        reached.note(server);
        reached.miss(server, &lost, at(0));
        assert!(
            reached.has(&url) && given_up(limit, at(100)).is_none(),
            "not absent"
        );
        reached.miss(server, &gone, at(1));
        reached.miss(server, &gone, at(9));
        assert!(given_up(limit, at(10)).is_none());
        let failure = given_up(limit, at(11)).unwrap();
        assert_eq!(
            (failure.message(), failure.cause()),
            ("nobody", Some(Cause::Broken))
        );
        assert!(given_up(Duration::ZERO, at(11)).is_none());
        reached.note(server);
        assert!(given_up(limit, at(11)).is_none(), "it is back");
    }
}
