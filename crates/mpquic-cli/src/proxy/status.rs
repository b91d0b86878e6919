//! [`Status`]: paths and flows of a running proxy, or of a client of a proxy, for `mpquic proxy
//! status`.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use mpquic_proxy::{FlowKind, FlowStats, Target};
use mpquic_tokio::Connection;
use serde::{Deserialize, Serialize};

use crate::client::backup;
use crate::process::failure::one_line;
use crate::proxy::settings::InterfaceRow;
use crate::report::{self, PathReport};
use crate::text::count::count;

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusSocket {
    /// Unix socket that answers `mpquic proxy status` and, of a client, `mpquic proxy ctl`, for
    /// this user and root only [default: proxy-client.sock or proxy-server.sock in
    /// $RUNTIME_DIRECTORY, or else in $XDG_RUNTIME_DIR; no socket if neither is set]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) status_socket: Option<PathBuf>,
}

/// The kind of process that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Client,
    Server,
}

/// The content of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    role: Role,
    connections: Vec<ConnectionRow>,
    pub(crate) flows: Vec<FlowRow>,
    /// The network device of a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tunnel: Option<TunnelRow>,
    /// The interfaces of a client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<InterfaceRow>,
}

/// A network device, and the routes beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TunnelRow {
    pub(crate) device: String,
    /// True while the kill switch is closed.
    pub(crate) kill_switch: bool,
    /// Routes past the device to public addresses. The client's rules make these routes useless.
    pub(crate) routes_refused: usize,
    /// Routes past the device, by way of a gateway, to private addresses.
    pub(crate) routes_past: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct ConnectionRow {
    peer: Option<String>,
    multipath: bool,
    key_exchange: Option<String>,
    paths: Vec<PathReport>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FlowRow {
    /// The number of the flow, counted from the first flow.
    pub(crate) number: u64,
    protocol: String,
    target: String,
    user: Option<String>,
    class: String,
    bytes_sent: u64,
    bytes_received: u64,
    seconds: f64,
}

impl Status {
    pub(crate) fn new(role: Role, connections: &[Connection], flows: &[FlowStats]) -> Self {
        Self {
            role,
            connections: connections.iter().map(connection_row).collect(),
            flows: flows.iter().map(flow_row).collect(),
            tunnel: None,
            interfaces: Vec::new(),
        }
    }

    /// Adds a network device.
    pub(crate) fn with(self, tunnel: Option<TunnelRow>) -> Self {
        Self { tunnel, ..self }
    }

    /// Adds the interfaces from which paths start.
    pub(crate) fn with_interfaces(self, interfaces: Vec<InterfaceRow>) -> Self {
        Self { interfaces, ..self }
    }

    /// A line for each interface that is closed or has a quota.
    fn closed_and_limited(&self) -> String {
        let told = self.interfaces.iter().filter_map(|row| {
            let used = row.used();
            let state = row.state();
            let used = match (used, state) {
                (None, "open") => return None,
                (None, _) => String::new(),
                (Some(used), _) => format!("; quota: {used}"),
            };
            Some(format!("{}: {state}{used}\n", one_line(&row.name)))
        });
        told.collect()
    }

    /// A row for each path and flow, with rates since an earlier status.
    pub(crate) fn table(&self, before: Option<&Before>) -> String {
        let role = match self.role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let connections = count(self.connections.len(), "connection");
        let flows = count(self.flows.len(), "flow");
        let mut text = format!("{role}: {connections}, {flows}\n");
        if let Some(tunnel) = &self.tunnel {
            let _ = writeln!(
                text,
                "{}: kill switch {}; routes past the tunnel: {} refused, {} used",
                one_line(&tunnel.device),
                if tunnel.kill_switch { "closed" } else { "off" },
                tunnel.routes_refused,
                tunnel.routes_past,
            );
        }
        text += &self.closed_and_limited();
        let headings = [
            "connection",
            "path",
            "local",
            "remote",
            "state",
            "rtt ms",
            "sent",
            "received",
            "lost",
        ];
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        rows[0].extend(rate_headings(before));
        for (number, connection) in self.connections.iter().enumerate() {
            rows.extend(connection.paths.iter().map(|path| {
                let mut row = vec![
                    if connection.multipath {
                        number.to_string()
                    } else {
                        format!("{number} (no multipath)")
                    },
                    path.id.to_string(),
                    path.local.clone(),
                    path.remote.clone(),
                    path.state.to_string(),
                    format!("{:.1}", path.rtt_ms),
                    path.bytes_sent.to_string(),
                    path.bytes_received.to_string(),
                    path.lost.to_string(),
                ];
                row.extend(before.into_iter().flat_map(|before| {
                    let bytes = [path.bytes_sent, path.bytes_received];
                    before.rates(before.of_path(connection, path), bytes)
                }));
                row
            }));
        }
        align(&mut text, &rows);
        let headings = [
            "flow", "target", "user", "class", "sent", "received", "seconds",
        ];
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        rows[0].extend(rate_headings(before));
        rows.extend(self.flows.iter().map(|flow| {
            let mut row = vec![
                flow.protocol.clone(),
                flow.target.clone(),
                flow.user.clone().unwrap_or_default(),
                flow.class.clone(),
                flow.bytes_sent.to_string(),
                flow.bytes_received.to_string(),
                format!("{:.0}", flow.seconds),
            ];
            row.extend(before.into_iter().flat_map(|before| {
                let bytes = [flow.bytes_sent, flow.bytes_received];
                before.rates(before.of_flow(flow), bytes)
            }));
            row
        }));
        align(&mut text, &rows);
        text
    }
}

fn rate_headings(before: Option<&Before>) -> impl Iterator<Item = String> {
    let headings = ["sends", "receives"].map(str::to_owned);
    before.into_iter().flat_map(move |_| headings.clone())
}

/// An earlier status.
pub(crate) struct Before {
    pub(crate) status: Status,
    pub(crate) seconds: f64,
}

impl Before {
    /// Bytes that a path had sent and received in the earlier status; zero for a new path.
    fn of_path(&self, connection: &ConnectionRow, path: &PathReport) -> [u64; 2] {
        let same = |row: &&ConnectionRow| row.peer == connection.peer;
        let mut paths = (self.status.connections.iter().filter(same)).flat_map(|row| &row.paths);
        let known = paths.find(|row| row.id == path.id);
        known.map_or([0; 2], |row| [row.bytes_sent, row.bytes_received])
    }

    /// Bytes that a flow had sent and received in the earlier status; zero for a new flow.
    fn of_flow(&self, flow: &FlowRow) -> [u64; 2] {
        let place = (self.status.flows).binary_search_by_key(&flow.number, |row| row.number);
        place.map_or([0; 2], |place| {
            let row = &self.status.flows[place];
            [row.bytes_sent, row.bytes_received]
        })
    }

    /// Sorts flows by their bytes since the earlier status.
    pub(crate) fn put_busiest_first(&self, flows: &mut [FlowRow]) {
        flows.sort_by_cached_key(|flow| {
            let then: u64 = self.of_flow(flow).iter().sum();
            Reverse((flow.bytes_sent + flow.bytes_received).saturating_sub(then))
        });
    }

    /// Bytes per second since the earlier status.
    fn rates(&self, then: [u64; 2], now: [u64; 2]) -> [String; 2] {
        let rate = |which: usize| now[which].saturating_sub(then[which]) as f64 / self.seconds;
        [0, 1].map(|which| report::rate(rate(which)))
    }
}

fn connection_row(connection: &Connection) -> ConnectionRow {
    let mut paths = report::paths(&[], &connection.path_stats());
    backup::mark(&mut paths, connection);
    ConnectionRow {
        peer: connection.remote_address().map(|peer| peer.to_string()),
        multipath: connection.is_multipath(),
        key_exchange: report::key_exchange(connection),
        paths,
    }
}

fn flow_row(flow: &FlowStats) -> FlowRow {
    FlowRow {
        number: flow.number,
        protocol: match flow.kind {
            FlowKind::Tcp => "tcp",
            FlowKind::Udp => "udp",
            FlowKind::Ip => "ip",
            _ => "other",
        }
        .to_owned(),
        target: flow
            .target
            .as_ref()
            .map_or("*".to_owned(), Target::to_string),
        user: flow.user.clone(),
        class: flow.class.to_string(),
        bytes_sent: flow.sent,
        bytes_received: flow.received,
        seconds: flow.age.as_secs_f64(),
    }
}

/// Writes rows with aligned columns, each on one line. Users of the proxy choose the names in them.
fn align(text: &mut String, rows: &[Vec<String>]) {
    let clean = |row: &Vec<String>| row.iter().map(|cell| one_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests;
