//! [`LinkReport`]: bytes on the wire of each link, over all connections of a transfer.

use mpquic_tokio::Traffic;
use mpquic_tokio::path_managers::Origin;
use serde::Serialize;

/// The bytes of the IP packets of one link, those of paths and connections that have ended among
/// them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LinkReport {
    /// The interface, or the local address without an interface.
    pub(crate) link: String,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
}

/// The bytes of each link between two readings of a meter. A link without any is left out.
pub(crate) fn between(before: &[Traffic], after: &[Traffic]) -> Vec<LinkReport> {
    let report = |now: &Traffic| {
        let earlier = before.iter().find(|earlier| earlier.at == now.at);
        let (sent, received) = earlier.map_or((0, 0), |earlier| (earlier.sent, earlier.received));
        LinkReport {
            link: match &now.at {
                Origin::Address(ip) => ip.to_string(),
                Origin::Interface(name) => name.clone(),
            },
            bytes_received: now.received.saturating_sub(received),
            bytes_sent: now.sent.saturating_sub(sent),
        }
    };
    let links = after.iter().map(report);
    let is_used = |link: &LinkReport| link.bytes_received + link.bytes_sent > 0;
    links.filter(is_used).collect()
}
