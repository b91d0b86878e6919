//! Limits of open files and sockets of the process.

#[cfg(unix)]
use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process to the hard limit. The usual soft limit is for programs that call
/// `select`.
pub(crate) fn raise() {
    #[cfg(unix)]
    {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        // After a refusal, the limit stays, and the server refuses work sooner.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Number of flows with a socket each: three quarters of the limit. The rest is for new
/// connections, files and logs.
pub(crate) fn for_flows() -> usize {
    #[cfg(unix)]
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    let limit = u64::MAX;
    usize::try_from(limit / 4 * 3).unwrap_or(usize::MAX).max(1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_rises_to_the_hard_limit() {
        let mut limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.unwrap_or(u64::MAX);
        limit.current = Some(most - 1);
        setrlimit(Resource::Nofile, limit).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
        assert_eq!(for_flows() as u64, (most / 4 * 3).max(1));
    }
}
