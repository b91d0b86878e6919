//! Limits of open files, sockets and ports of the process.

#[cfg(unix)]
use rustix::process::{Resource, getrlimit, setrlimit};

/// Least number of ports that UDP flows leave.
const LEAST_REST: usize = 512;
/// Number of dynamic ports (RFC 6335 section 6), which macOS and Windows use.
const IANA: usize = 16_384;

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

/// Number of UDP flows with a port each. The rest of the system's ports is for name lookups of this
/// process and for other programs.
pub(crate) fn for_udp_ports() -> usize {
    udp_ports(ephemeral_ports())
}

fn udp_ports(all: usize) -> usize {
    let rest = (all / 8).max(LEAST_REST).min(all / 2);
    (all - rest).max(1)
}

/// Number of ports that the system gives to sockets without a chosen port.
fn ephemeral_ports() -> usize {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    range
        .ok()
        .and_then(|range| ports_in(&range))
        .unwrap_or(IANA)
}

/// Number of ports in a range of Linux, such as `32768 60999`.
fn ports_in(range: &str) -> Option<usize> {
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some(usize::from(last.checked_sub(first)?) + 1)
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
    fn udp_flows_leave_ports_for_lookups() {
        assert_eq!(ports_in("32768\t60999\n"), Some(28_232));
        assert_eq!(ports_in("1024 65535"), Some(64_512));
        for wrong in ["", "1", "a b", "2 1", "0 65536"] {
            assert_eq!(ports_in(wrong), None, "{wrong}");
        }
        for (all, flows) in [(28_232, 24_703), (2000, 1488), (600, 300), (1, 1)] {
            assert_eq!(udp_ports(all), flows, "{all}");
        }
        assert!(for_udp_ports() < ephemeral_ports());
    }

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
