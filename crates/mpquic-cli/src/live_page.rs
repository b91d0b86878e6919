//! The paths of a server as JSON, for the page that shows them live.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mpquic_core::{PathState, PathStats};
use mpquic_tokio::Connection;
use serde::Serialize;

use crate::endpoints::Endpoints;
use crate::observer::Observer;
use crate::report::state_name;

/// The most connections that are told of: those that have carried most.
const MAX_CONNECTIONS: usize = 64;

#[derive(Debug, Serialize)]
struct Now {
    /// Connections that are open.
    open: usize,
    connections: Vec<ConnectionNow>,
}

#[derive(Debug, Serialize)]
struct ConnectionNow {
    number: u64,
    paths: Vec<PathNow>,
}

#[derive(Debug, Serialize)]
struct PathNow {
    id: u32,
    local: IpAddr,
    /// Of the client; its address is nobody's business.
    network: String,
    state: &'static str,
    rtt_ms: f64,
    window: u64,
    in_flight: u64,
    bytes_sent: u64,
    bytes_received: u64,
    packets_sent: u64,
    lost: u64,
}

/// How the paths are now.
pub(crate) fn json(observer: &Observer, endpoints: &Endpoints) -> String {
    let mut open: Vec<_> = observer.connections();
    let carried = |(_, connection): &(u64, Connection)| {
        let stats = connection.stats();
        std::cmp::Reverse(stats.bytes_sent + stats.bytes_received)
    };
    open.sort_by_cached_key(carried);
    open.truncate(MAX_CONNECTIONS);
    open.sort_by_key(|(number, _)| *number);
    let connections = open.into_iter().map(|(number, connection)| {
        let paths = connection.path_stats();
        let paths = paths
            .iter()
            .filter(|path| path.state != PathState::Abandoned);
        let paths = paths.map(PathNow::new).collect();
        ConnectionNow { number, paths }
    });
    let now = Now {
        open: endpoints.open_connections(),
        connections: connections.collect(),
    };
    // There is nothing in it that JSON cannot say.
    serde_json::to_string(&now).unwrap_or_default()
}

impl PathNow {
    fn new(path: &PathStats) -> Self {
        Self {
            id: path.id.0,
            local: path.four_tuple.local.ip().to_canonical(),
            network: network(path.four_tuple.remote.ip()),
            state: state_name(path.state),
            rtt_ms: path.rtt.as_secs_f64() * 1e3,
            window: path.window,
            in_flight: path.in_flight,
            bytes_sent: path.bytes_sent,
            bytes_received: path.bytes_received,
            packets_sent: path.packets_sent,
            lost: path.packets_lost,
        }
    }
}

/// The network in which an address is: the first three bytes of one of IPv4, the first six of one of IPv6.
fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{}/24", Ipv4Addr::new(a, b, c, 0))
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            // In those of 6to4 there is an IPv4 address, which is in a network of 24 bits.
            let c = if a == 0x2002 { c & 0xff00 } else { c };
            format!("{}/48", Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_told_not_the_address() {
        let told = |address: &str| network(address.parse().unwrap());
        assert_eq!(told("203.0.113.77"), "203.0.113.0/24");
        assert_eq!(told("::ffff:203.0.113.77"), "203.0.113.0/24");
        assert_eq!(told("2001:db8:1:2:3:4:5:6"), "2001:db8:1::/48");
        assert_eq!(told("2002:cb00:714d::1"), "2002:cb00:7100::/48");
    }

    #[test]
    fn a_path_as_the_page_gets_it() {
        let mut stats = crate::live::tests::seen(0, 3, 7).stats;
        (stats.bytes_sent, stats.in_flight, stats.state) = (9, 11, PathState::Suspect);
        let json = serde_json::to_string(&PathNow::new(&stats)).unwrap();
        assert_eq!(
            json,
            r#"{"id":3,"local":"192.0.2.13","network":"192.0.2.0/24","state":"suspect","rtt_ms":20.0,"window":122880,"in_flight":11,"bytes_sent":9,"bytes_received":7,"packets_sent":1000,"lost":5}"#
        );
    }
}
