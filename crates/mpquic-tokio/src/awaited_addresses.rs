//! [`Awaited`]: local addresses that this machine may not have yet.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use crate::connection_state::SharedEndpoint;
use crate::{local_addresses, start};

/// A local address to bind once it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) ip: IpAddr,
    /// The interface of a link-local address; `None` for any.
    pub(crate) link: Option<String>,
}

impl Awaited {
    /// The address to bind, with any port; `None` if its link does not have it.
    pub(crate) fn place(&self, interfaces: &[if_addrs::Interface]) -> Option<SocketAddr> {
        let IpAddr::V6(ip) = self.ip else {
            return Some(SocketAddr::new(self.ip, 0));
        };
        if !ip.is_unicast_link_local() {
            return Some(SocketAddr::new(self.ip, 0));
        }
        let is_it = |interface: &&if_addrs::Interface| {
            let link = self.link.as_ref();
            interface.ip() == self.ip && link.is_none_or(|link| *link == interface.name)
        };
        let index = interfaces.iter().find(is_it)?.index?;
        Some(SocketAddrV6::new(ip, 0, 0, index).into())
    }
}

/// Binds the addresses that are there now. False if binding a present address failed.
pub(crate) fn bind(endpoint: &Arc<SharedEndpoint>, awaited: &[Awaited]) -> bool {
    if awaited.is_empty() {
        return true;
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let bound = endpoint.sockets.all();
    let is_bound = |place: &SocketAddr| {
        let mut bound = bound.iter().filter(|socket| socket.interface().is_none());
        bound.any(|socket| {
            let mut local = socket.local();
            local.set_port(0);
            local == *place
        })
    };
    let places = awaited.iter().filter_map(|one| one.place(&interfaces));
    let missing: Vec<_> = places.filter(|place| !is_bound(place)).collect();
    let (mut changed, mut all_done) = (false, true);
    for place in missing {
        match start::bind(endpoint, place, None) {
            Ok(_) => changed = true,
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => {
                tracing::debug!(%error, %place, "cannot bind");
                all_done = false;
            }
        }
    }
    if changed {
        local_addresses::follow(endpoint);
    }
    all_done
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Endpoint;
    use crate::testing::TestResult;

    #[test]
    fn a_link_local_address_has_the_number_of_its_link() {
        let ip: IpAddr = "fe80::1".parse().expect("it is one");
        let of = |name: &str, index| if_addrs::Interface {
            name: name.to_owned(),
            addr: if_addrs::IfAddr::V6(if_addrs::Ifv6Addr {
                ip: "fe80::1".parse().expect("it is one"),
                netmask: "ffff:ffff:ffff:ffff::".parse().expect("it is one"),
                prefixlen: 64,
                broadcast: None,
            }),
            index: Some(index),
            oper_status: if_addrs::IfOperStatus::Up,
            is_p2p: false,
        };
        let interfaces = [of("eth0", 2), of("eth1", 3)];
        let place = |ip, link: Option<&str>| {
            let link = link.map(str::to_owned);
            let place = Awaited { ip, link }.place(&interfaces);
            place.map(|place| place.to_string())
        };
        assert_eq!(place(ip, Some("eth1")).as_deref(), Some("[fe80::1%3]:0"));
        assert_eq!(place(ip, None).as_deref(), Some("[fe80::1%2]:0"));
        assert_eq!(place(ip, Some("wwan0")), None);
        let other = "fe80::2".parse().expect("it is one");
        assert_eq!(place(other, Some("eth1")), None);
        let v4 = place([192, 0, 2, 1].into(), None);
        assert_eq!(v4.as_deref(), Some("192.0.2.1:0"));
    }

    #[tokio::test]
    async fn an_address_may_come_later() -> TestResult {
        let [here, absent] = [[127, 0, 0, 1], [192, 0, 2, 77]].map(IpAddr::from);
        let builder = Endpoint::builder().bind_awaited(here, None);
        let endpoint = builder.bind_awaited(absent, None).build()?;
        let ips = || endpoint.local_addrs().iter().map(SocketAddr::ip).collect();
        let bound: Vec<_> = ips();
        assert_eq!(bound, [here]);
        // As if it had come now.
        let state = endpoint.state();
        let [come, still] = [[127, 0, 0, 2].into(), absent].map(|ip| Awaited { ip, link: None });
        assert!(bind(state, &[come.clone(), still]));
        assert!(bind(state, std::slice::from_ref(&come)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let bound: Vec<_> = ips();
        assert_eq!(bound, [here, come.ip], "each has one socket");
        Ok(())
    }
}
