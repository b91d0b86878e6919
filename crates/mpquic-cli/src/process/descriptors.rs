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
        // With a refusal the limit stays as it is, and the server refuses work sooner.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Number of descriptors for one user: `wanted`, and at most a quarter of the limit, so that other
/// users find some.
pub(crate) fn share(wanted: usize) -> usize {
    #[cfg(unix)]
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    let limit = u64::MAX;
    share_of(limit, wanted)
}

fn share_of(limit: u64, wanted: usize) -> usize {
    let share = usize::try_from(limit / 4).unwrap_or(usize::MAX).max(1);
    wanted.min(share)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_three_quarters_to_others() {
        assert_eq!(share_of(1024, 16_384), 256);
        assert_eq!(share_of(1 << 20, 16_384), 16_384);
        assert_eq!(share_of(2, 7), 1);
    }

    #[test]
    fn the_soft_limit_rises_to_the_hard_limit() {
        let mut limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.unwrap_or(u64::MAX);
        limit.current = Some(most - 1);
        setrlimit(Resource::Nofile, limit).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
        assert_eq!(share(usize::MAX), share_of(most, usize::MAX));
    }
}
