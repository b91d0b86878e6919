//! The paths of a server as JSON, for the page that shows them live.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mpquic_core::{PathState, PathStats};
use mpquic_tokio::Connection;
use serde::Serialize;

use crate::report::state_name;
use crate::serve::endpoints::Endpoints;
use crate::serve::observer::Observer;
use crate::text::json;

/// Most connections on the page: the connections with most traffic.
const MAX_CONNECTIONS: usize = 64;

#[derive(Debug, Serialize)]
struct Now {
    /// Number of open connections.
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
    /// Network of the client. The page does not show the client's address.
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

/// The current paths as JSON.
pub(crate) fn json(observer: &Observer, endpoints: &Endpoints) -> String {
    let carried = |connection: &Connection| {
        let stats = connection.stats();
        stats.bytes_sent + stats.bytes_received
    };
    let told = busiest(observer.connections(), carried);
    let connections = told.into_iter().map(|(number, connection)| {
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
    // JSON can represent all of these values.
    json::line(&now)
}

/// Connections with the most traffic, by number.
fn busiest<C>(mut open: Vec<(u64, C)>, carried: impl Fn(&C) -> u64) -> Vec<(u64, C)> {
    open.sort_by_cached_key(|(_, connection)| std::cmp::Reverse(carried(connection)));
    open.truncate(MAX_CONNECTIONS);
    open.sort_by_key(|(number, _)| *number);
    open
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

/// The network of an address: the first three bytes of an IPv4 address, or six of an IPv6 address.
fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{}/24", Ipv4Addr::new(a, b, c, 0))
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            // A 6to4 address contains an IPv4 address, whose network has 24 bits.
            let c = if a == 0x2002 { c & 0xff00 } else { c };
            format!("{}/48", Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;
    use mpquic_tokio::Endpoint;

    use super::*;
    use crate::options::Alpn;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, soon};

    #[test]
    fn a_network_is_told_not_the_address() {
        let told = |address: &str| network(address.parse().unwrap());
        assert_eq!(told("203.0.113.77"), "203.0.113.0/24");
        assert_eq!(told("::ffff:203.0.113.77"), "203.0.113.0/24");
        assert_eq!(told("2001:db8:1:2:3:4:5:6"), "2001:db8:1::/48");
        assert_eq!(told("2002:cb00:714d::1"), "2002:cb00:7100::/48");
    }

    #[test]
    fn live_page_shows_the_busiest_connections() {
        let numbers = |count: u64| -> Vec<u64> {
            // The first and the last have carried least.
            let carried = |number: u64| (2 * number).min(199 - 2 * number);
            let open = (1..=count).rev().map(|number| (number, carried(number)));
            let told = busiest(open.collect(), |carried| *carried);
            told.into_iter().map(|(number, _)| number).collect()
        };
        assert_eq!(numbers(64), Vec::from_iter(1..=64));
        assert_eq!(numbers(65), Vec::from_iter(2..=65));
        assert_eq!(numbers(99), Vec::from_iter(18..=81));
    }

    #[tokio::test]
    async fn the_page_is_told_of_paths_in_use() {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoints = Endpoints::one(Endpoint::builder().bind(any).build().unwrap());
        let observer = Observer::new(None);
        assert_eq!(
            json(&observer, &endpoints),
            r#"{"open":0,"connections":[]}"#
        );
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let locals = [1, 2].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let connected = served.connect_from(&locals, 1000).await;
        let (client, connection) = connected.unwrap();
        soon(connection.handshake_confirmed()).await.unwrap();
        soon(connection.wait_for_paths(2)).await.unwrap();
        let _observed = observer.on_connection(&connection);
        connection.path(PathId(0)).unwrap().close().unwrap();
        let now = json(&observer, &Endpoints::one(client));
        let now: serde_json::Value = serde_json::from_str(&now).unwrap();
        assert_eq!(
            (&now["open"], &now["connections"][0]["number"]),
            (&1.into(), &1.into())
        );
        let paths = now["connections"][0]["paths"].as_array().unwrap();
        assert_eq!((paths.len(), &paths[0]["id"]), (1, &1.into()), "{now}");
    }

    #[test]
    fn a_path_as_the_page_gets_it() {
        let mut stats = crate::report::live::tests::seen(0, 3, 7).stats;
        (stats.bytes_sent, stats.in_flight, stats.state) = (9, 11, PathState::Suspect);
        let json = serde_json::to_string(&PathNow::new(&stats)).unwrap();
        assert_eq!(
            json,
            r#"{"id":3,"local":"192.0.2.13","network":"192.0.2.0/24","state":"suspect","rtt_ms":20.0,"window":122880,"in_flight":11,"bytes_sent":9,"bytes_received":7,"packets_sent":1000,"lost":5}"#
        );
    }
}
