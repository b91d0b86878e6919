//! `mpquic paths`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use http::Uri;
use mpquic_core::qlog::EcnValidation;
use mpquic_tokio::path_managers::fits_interface;
use mpquic_tokio::{Connection, InterfaceAddress, LeftOutReason, SendStream};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

use crate::client::session::{Purpose, Sessions, is_here, is_on_link, leave, link_of};
use crate::options::examples;
use crate::options::origin::listed;
use crate::options::reach::Reach;
use crate::options::{Alpn, Local, parse_url};
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::report;
use crate::text::json;

/// How long a connection is observed for its round trip and its largest datagram.
const SETTLE: Duration = Duration::from_secs(1);
/// The least number of observations.
const LOOKS: usize = 3;
/// Bytes sent for each observation.
const NOISE: usize = 2000;
/// Why no path starts from an interface of this option.
const EXCLUDED: &str = "--exclude";
/// The largest datagram before the search for larger ones has any result (RFC 9000 section 14.1).
const SMALLEST: u16 = 1200;
/// The least time between two observations.
const LOOK: Duration = Duration::from_millis(20);

/// List the addresses from which paths can start, and try which of them reach a server
///
/// Lists each address of this machine, and the reason if no path starts there without --local. With
/// a URL, it connects from each of the other addresses to the server, by any protocol of this tool,
/// and prints measurements. No file is fetched.
#[derive(Debug, Args)]
#[command(after_help = examples::PATHS)]
pub(crate) struct Paths {
    /// A server, as https://HOST[:PORT]
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: Option<Uri>,
    /// Repeat every N seconds, until SIGINT or SIGTERM ends the command (exit code 0)
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub(crate) watch: Option<u64>,
    /// Print a JSON object for each address
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// A line of output: an address, and its measurements.
#[derive(Debug, Serialize)]
struct Row {
    /// Number of the round, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u64>,
    /// Null if the system chooses.
    interface: Option<String>,
    /// Null if the system chooses.
    address: Option<IpAddr>,
    /// Why no path starts here without --local.
    left_out: Option<String>,
    /// Absent if the address was not tried.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    tried: Option<Tried>,
}

/// The result of a connection to the server.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Tried {
    Reached(Reached),
    Failed { error: String },
}

#[derive(Debug, Serialize)]
struct Reached {
    server: SocketAddr,
    handshake_ms: f64,
    /// Smallest and smoothed round trip.
    min_rtt_ms: f64,
    rtt_ms: f64,
    /// Largest datagram, bytes of UDP payload.
    mtu: u16,
    /// Whether ECN marks arrive: `capable` or `failed`; `testing` or `unknown` if the test did not
    /// finish.
    ecn: &'static str,
    multipath: bool,
    quic_version: String,
    key_exchange: Option<String>,
    protocol: String,
}

/// A place from which a connection can start.
pub(crate) struct Start {
    interface: Option<String>,
    address: Option<IpAddr>,
    /// Local address or interface; `None` lets the system choose.
    pub(crate) local: Option<Local>,
    /// Why no path starts here, if none does.
    pub(crate) left_out: Option<String>,
}

/// Prints the list once, or repeatedly with --watch.
pub(crate) async fn run(args: Paths) -> Result<(), Failure> {
    let Some(seconds) = args.watch else {
        return look(&args, None).await;
    };
    let mut looks = tokio::time::interval(Duration::from_secs(seconds));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0.. {
        looks.tick().await;
        match look(&args, Some(round)).await {
            // What is wrong with the command line stays wrong.
            Err(failure) if failure.cause().is_none() => return Err(failure),
            Err(failure) => drop(failure.report()),
            Ok(()) => {}
        }
        if screen::is_closed() {
            break;
        }
    }
    Ok(())
}

async fn look(args: &Paths, round: Option<u64>) -> Result<(), Failure> {
    let listed = listed()?;
    let Some(url) = &args.url else {
        let rows = starts(&args.reach, listed, &[]).into_iter();
        let rows: Vec<_> = rows.map(|start| start.row(round, None)).collect();
        print(&rows, args.json);
        return Ok(());
    };
    let purpose = Purpose::look(url, &[Alpn::H3, Alpn::HqInterop, Alpn::Perf]);
    let sessions = Sessions::new(&args.reach, purpose)?;
    let servers = sessions.addresses(url).await;
    let servers = servers.map_err(|failure| failure.about(url))?;
    let all = &listed;
    let tries = starts(&args.reach, listed.clone(), &servers)
        .into_iter()
        .map(|start| async {
            let tried = match start.left_out {
                Some(_) => None,
                None => Some(try_from(&sessions, url, &start, (&servers, all)).await),
            };
            (start, tried)
        });
    let tried = join_all(tries).await;
    let first_failure = tried
        .iter()
        .find_map(|(_, tried)| tried.as_ref()?.as_ref().err())
        .cloned();
    let reached = tried.iter().any(|(_, tried)| matches!(tried, Some(Ok(_))));
    let rows: Vec<_> = tried
        .into_iter()
        .map(|(start, tried)| start.row(round, tried))
        .collect();
    print(&rows, args.json);
    match (reached, first_failure) {
        (true, _) => Ok(()),
        (false, Some(failure)) => Err(failure.about(url)),
        (false, None) => {
            let left_out = rows.iter().filter_map(|row| row.left_out.as_deref());
            Err(Cause::Connect.failed(none_left(left_out)).about(url))
        }
    }
}

/// Why no address of this machine is tried, and the options that could add one. `left_out` are the
/// reasons of the addresses.
pub(crate) fn none_left<'a>(left_out: impl Iterator<Item = &'a str> + Clone) -> String {
    const NONE: &str = "no interface has an address that can reach the server";
    let has = |wanted: &[&str]| left_out.clone().any(|reason| wanted.contains(&reason));
    let [tunnel, bridge] = [LeftOutReason::Tunnel, LeftOutReason::Bridge].map(|it| it.to_string());
    let options = [
        (has(&[EXCLUDED]), "--exclude leaves an interface out"),
        (
            has(&[&tunnel, &bridge]),
            "--local names a tunnel or a bridge that leads to the server",
        ),
    ];
    let options = options.into_iter().filter(|(is_it, _)| *is_it);
    let told = std::iter::once(NONE).chain(options.map(|(_, told)| told));
    told.collect::<Vec<_>>().join("; ")
}

/// Places from which connections can start: the addresses of --local, or all addresses of this
/// machine. For a server on this machine, the system chooses. A server with a link-local address is
/// reached from the link-local addresses of its link.
pub(crate) fn starts(
    reach: &Reach,
    listed: Vec<InterfaceAddress>,
    servers: &[SocketAddr],
) -> Vec<Start> {
    let here = servers.iter().any(is_here);
    let links: Vec<_> = servers.iter().filter_map(link_of).collect();
    let has_only_links = !servers.is_empty() && servers.iter().all(is_on_link);
    if !reach.local.is_empty() {
        let named = reach.local.iter().map(|local| match local {
            Local::Address(_) | Local::OnLink(..) => Start {
                interface: listed
                    .iter()
                    .find(|listed| local.is(listed))
                    .map(|listed| listed.name.clone()),
                address: local.ip(),
                local: Some(local.clone()),
                left_out: None,
            },
            Local::Interface(name) => Start {
                interface: Some(name.clone()),
                address: None,
                local: Some(local.clone()),
                left_out: None,
            },
        });
        return named.collect();
    }
    let is_excluded = |name: &str| {
        let mut excluded = reach.exclude.iter();
        excluded.any(|excluded| fits_interface(excluded, name))
    };
    let all = listed.into_iter().map(|listed| {
        let on_link = on_link(&links, &listed);
        Start {
            left_out: match listed.left_out {
                _ if is_excluded(&listed.name) => Some(EXCLUDED.to_owned()),
                _ if on_link.is_some() && !here => None,
                Some(reason) => Some(reason.to_string()),
                None if here => Some("the server is on this machine".to_owned()),
                None if has_only_links => Some("the server has a link-local address".to_owned()),
                None => None,
            },
            local: Some(match on_link {
                Some(ip) => Local::OnLink(ip, listed.name.clone()),
                None => Local::Interface(listed.name.clone()),
            }),
            interface: Some(listed.name),
            address: Some(listed.ip),
        }
    });
    let any = here.then_some(Start {
        interface: None,
        address: None,
        local: None,
        left_out: None,
    });
    all.chain(any).collect()
}

/// The address of an interface, if the address is link-local, usable, and on one of these links.
fn on_link(links: &[String], listed: &InterfaceAddress) -> Option<Ipv6Addr> {
    let is_usable = matches!(listed.left_out, None | Some(LeftOutReason::LinkLocal));
    match listed.ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() && is_usable => {
            links.contains(&listed.name).then_some(ip)
        }
        _ => None,
    }
}

/// Connects from a place and measures.
async fn try_from(
    sessions: &Sessions<'_>,
    url: &Uri,
    start: &Start,
    (servers, listed): (&[SocketAddr], &[InterfaceAddress]),
) -> Result<Reached, Failure> {
    let reached = |server: &&SocketAddr| start.reaches(**server, listed);
    let Some(server) = servers.iter().find(reached) else {
        let is_of_version = servers.iter().any(|server| start.reaches(*server, &[]));
        return Err(Cause::Connect.failed(if is_of_version {
            "another address of the interface suits the server better"
        } else {
            "the server has no address of this IP version"
        }));
    };
    let began = Instant::now();
    let (endpoint, connection) = sessions
        .connect_from(url, start.local.as_ref(), *server)
        .await?;
    let handshake = began.elapsed();
    let path = || connection.path_stats().into_iter().next();
    let protocol = connection.handshake_data().and_then(|data| data.protocol);
    let protocol = protocol.unwrap_or_default();
    let settled = async {
        let mut noise = Noise::begin(&connection, &protocol).await;
        let mut before: Vec<u16> = Vec::new();
        while let Some(path) = path() {
            // Acknowledgements show the round trip, and whether marks arrive.
            let _ = connection.path(path.id).map(|path| path.ping());
            noise.send().await;
            sleep(3 * path.rtt + LOOK).await;
            if is_settled(&before, path.mtu, path.ecn) {
                return;
            }
            before.push(path.mtu);
        }
    };
    let _ = timeout(SETTLE, settled).await;
    let Some(path) = path() else {
        let reason = connection.close_reason();
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        return Err(Cause::Connect.failed(format_args!("connected, and lost again{reason}")));
    };
    let reached = Reached {
        server: path.four_tuple.remote,
        handshake_ms: millis(handshake),
        min_rtt_ms: millis(path.min_rtt),
        rtt_ms: millis(path.rtt),
        mtu: path.mtu,
        ecn: match path.ecn {
            EcnValidation::Testing => "testing",
            EcnValidation::Unknown => "unknown",
            EcnValidation::Failed => "failed",
            EcnValidation::Capable => "capable",
        },
        multipath: connection.is_multipath(),
        quic_version: connection.version().to_string(),
        key_exchange: report::key_exchange(&connection),
        protocol: String::from_utf8_lossy(&protocol).into_owned(),
    };
    leave(&endpoint, &connection, 0u32.into()).await;
    Ok(reached)
}

/// True if the result is final after these largest datagrams: the largest datagram has grown and no
/// longer grows, and ECN is known.
fn is_settled(before: &[u16], mtu: u16, ecn: EcnValidation) -> bool {
    let is_told = !matches!(ecn, EcnValidation::Testing | EcnValidation::Unknown);
    let has_grown = mtu > SMALLEST;
    before.len() >= LOOKS && is_told && has_grown && before.last() == Some(&mtu)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Data that the server ignores: only packets with data carry ECN marks and show the largest
/// datagram.
struct Noise(Option<SendStream>);

impl Noise {
    /// On a stream of a type that the server ignores, if the protocol has one.
    async fn begin(connection: &Connection, protocol: &[u8]) -> Self {
        let start: &[u8] = match protocol {
            // RFC 9114 section 6.2.3: the first of the types that mean nothing.
            b"h3" => &[0x21],
            // A request for nothing.
            b"perf" => &[0; 8],
            _ => return Self(None),
        };
        let mut stream = connection.open_uni().await.ok();
        if let Some(send) = &mut stream {
            let _ = send.write_all(start).await;
        }
        Self(stream)
    }

    async fn send(&mut self) {
        if let Some(send) = &mut self.0 {
            // A server may refuse to take more.
            let _ = send.write_all(&[0; NOISE]).await;
        }
    }
}

impl Start {
    /// True if the server's address has the same IP version, and no other address of the interface
    /// suits it better.
    pub(crate) fn reaches(&self, server: SocketAddr, listed: &[InterfaceAddress]) -> bool {
        // Between two addresses of a link, no route decides.
        if let (true, Some(Local::OnLink(_, name))) = (is_on_link(&server), &self.local) {
            return link_of(&server).as_ref() == Some(name);
        }
        let is_v4 = self.address.map(|address| address.is_ipv4());
        let is_it = |at: &&InterfaceAddress| {
            Some(at.ip) == self.address && Some(&at.name) == self.interface.as_ref()
        };
        let suits = |at: &InterfaceAddress| at.suits(server.ip(), listed);
        is_v4.is_none_or(|is_v4| is_v4 == server.is_ipv4())
            && listed.iter().find(is_it).is_none_or(suits)
    }

    /// Its name as in `--local`.
    pub(crate) fn name(&self) -> String {
        match (&self.local, &self.interface, self.address) {
            (Some(local @ (Local::Address(_) | Local::OnLink(..))), ..) => local.to_string(),
            (_, Some(interface), _) => interface.clone(),
            (_, None, Some(address)) => address.to_string(),
            (_, None, None) => "any".to_owned(),
        }
    }

    fn row(self, round: Option<u64>, tried: Option<Result<Reached, Failure>>) -> Row {
        Row {
            round,
            interface: self.interface,
            address: self.address,
            left_out: self.left_out,
            tried: tried.map(|tried| match tried {
                Ok(reached) => Tried::Reached(reached),
                Err(failure) => Tried::Failed {
                    error: failure.message().to_owned(),
                },
            }),
        }
    }
}

fn print(rows: &[Row], json: bool) {
    if json {
        for row in rows {
            json::print(row);
        }
        return;
    }
    screen::write(table(rows));
}

/// A line for each address.
fn table(rows: &[Row]) -> String {
    let any = || "any".to_owned();
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            let address = row.address.map(|address| address.to_string());
            (
                row.interface.clone().unwrap_or_else(any),
                address.unwrap_or_else(any),
                what(row),
            )
        })
        .collect();
    let widest = |cell: fn(&(String, String, String)) -> &String, title: &str| {
        let widths = cells.iter().map(|cells| cell(cells).len());
        widths.max().unwrap_or(0).max(title.len())
    };
    let interface = widest(|cells| &cells.0, "interface");
    let address = widest(|cells| &cells.1, "address");
    let mut table = match rows.first().and_then(|row| row.round) {
        Some(round) if round > 0 => "\n".to_owned(),
        _ => String::new(),
    };
    let _ = writeln!(table, "{:interface$}  address", "interface");
    for (name, ip, what) in &cells {
        let _ = writeln!(table, "{name:interface$}  {ip:address$}  {what}");
    }
    table
}

fn what(row: &Row) -> String {
    match (&row.left_out, &row.tried) {
        (Some(reason), _) => format!("left out: {reason}"),
        (None, None) => "usable".to_owned(),
        (None, Some(Tried::Failed { error })) => format!("not reached: {error}"),
        (None, Some(Tried::Reached(reached))) => format!(
            "reached {} in {:.2} ms: rtt {:.2} ms, mtu {}, ECN {}, {}, QUIC {}, {}",
            reached.server,
            reached.handshake_ms,
            reached.min_rtt_ms,
            reached.mtu,
            reached.ecn,
            if reached.multipath {
                "multipath"
            } else {
                "no multipath"
            },
            reached.quic_version,
            reached.protocol
        ),
    }
}

#[cfg(test)]
mod tests;
