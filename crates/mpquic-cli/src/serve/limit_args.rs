//! The options of `mpquic serve` that limit clients.

use std::time::Duration;

use clap::Args;

use crate::process::descriptors;
use crate::rate::Rate;
use crate::serve::client_limits::AddressLimits;
use crate::serve::limits::Limits;

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitArgs {
    /// Open connections of all clients. Beyond the limit, the server closes an idle connection of
    /// the address with most connections, or the new connection
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_connections: u32,
    /// Open connections of one address (of IPv6: one network of 64 bits); the server closes further
    /// connections [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) max_client_connections: Option<u32>,
    /// Requests of a connection that are answered at a time; others wait
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) max_requests: u16,
    /// Open files for all clients, at most a third of the process's limit of descriptors; other
    /// requests wait
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=60_000))]
    pub(crate) max_open_files: u16,
    /// Requests per second from one address; N requests may come at once. Others are answered with
    /// 429 Too Many Requests [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) client_requests: Option<u32>,
    /// Send files at most at this rate, to all clients together, in bits per second with a unit,
    /// such as 800k, 20M or 1.5G [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    /// Send files to one address at most at this rate, in bits per second with a unit, such as
    /// 800k, 20M or 1.5G [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) client_rate: Option<Rate>,
    /// Give up a request whose client accepts no data for this time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) stall_timeout: u64,
    /// After SIGTERM or SIGINT, let open requests finish for up to this time; a second signal stops
    /// the server at once
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) drain_timeout: u64,
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            connections: self.max_connections,
            files_per_client: self.max_requests.into(),
            files: usize::from(self.max_open_files).min(descriptors::for_files()),
            stall: Duration::from_secs(self.stall_timeout),
            rate: self.rate,
            address: AddressLimits {
                connections: self.max_client_connections,
                requests_per_second: self.client_requests,
                rate: self.client_rate,
                ..AddressLimits::default()
            },
            ..Limits::default()
        }
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        Duration::from_secs(self.drain_timeout)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn limits_are_those_of_the_command_line() {
        let usual = Line::try_parse_from(["x"]).unwrap().limits;
        assert_eq!(usual.drain_timeout(), Duration::from_secs(30));
        let limits = usual.limits();
        assert_eq!((limits.files_per_client, limits.files), (16, 256));
        assert_eq!(limits.stall, Duration::from_secs(30));
        let none = (limits.rate, limits.address.connections, limits.address.rate);
        assert_eq!(none, (None, None, None));
        let line = "x --max-requests 2 --max-open-files 3 --stall-timeout 4 --rate 8M \
                    --max-client-connections 5 --client-requests 6 --client-rate 16M \
                    --drain-timeout 7";
        let args = Line::try_parse_from(line.split_whitespace())
            .unwrap()
            .limits;
        assert_eq!(args.drain_timeout(), Duration::from_secs(7));
        let limits = args.limits();
        assert_eq!((limits.files_per_client, limits.files), (2, 3));
        assert_eq!(limits.stall, Duration::from_secs(4));
        assert_eq!(limits.rate, Some(Rate::mbit(8)));
        let address = limits.address;
        assert_eq!(
            (address.connections, address.requests_per_second),
            (Some(5), Some(6))
        );
        assert_eq!(address.rate, Some(Rate::mbit(16)));
    }
}
