//! Limits of open files and sockets of the process.

#[cfg(unix)]
use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process to the hard limit. The usual soft limit is for programs that
/// call `select`.
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
    usize::try_from(limit() / 4 * 3)
        .unwrap_or(usize::MAX)
        .max(1)
}

/// Number of files that a server may hold open: a third of the limit. The rest is for sockets,
/// logs, and the directories of a path while the server opens a file.
pub(crate) fn for_files() -> usize {
    usize::try_from(limit() / 3).unwrap_or(usize::MAX).max(1)
}

/// The limit of this process; the largest number if there is none.
fn limit() -> u64 {
    #[cfg(unix)]
    let limit = getrlimit(Resource::Nofile).current;
    #[cfg(not(unix))]
    let limit = None;
    limit.unwrap_or(u64::MAX)
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
        assert_eq!(for_files() as u64, (most / 3).max(1));
    }
}
