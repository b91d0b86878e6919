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
        (false, None) => Err(Cause::Connect
            .failed("no address of this machine is left to try; see --local and --exclude")
            .about(url)),
    }
}

/// Places from which connections can start: the addresses of --local, or all addresses of this
/// machine. For a server on this machine, the system chooses. A server with a link-local address is reached from the
/// link-local addresses of its link.
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
                _ if is_excluded(&listed.name) => Some("--exclude".to_owned()),
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
        return Err(Cause::Connect.failed(match is_of_version {
            false => "the server has no address of this IP version",
            true => "another address of the interface suits the server better",
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

/// True if the result is final after these largest datagrams: the largest datagram no longer grows,
/// and ECN is known.
fn is_settled(before: &[u16], mtu: u16, ecn: EcnValidation) -> bool {
    let is_told = !matches!(ecn, EcnValidation::Testing | EcnValidation::Unknown);
    before.len() >= LOOKS && is_told && before.last() == Some(&mtu)
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
            match reached.multipath {
                true => "multipath",
                false => "no multipath",
            },
            reached.quic_version,
            reached.protocol
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use futures_util::future::join;
    use mpquic_tokio::LeftOutReason;

    use super::*;
    use crate::options::Alpn;
    use crate::process::screen::tests::Heard;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, end_of_first, pair, reach, soon};

    #[test]
    fn a_path_is_watched_until_nothing_changes() {
        let is = |before: &[u16], ecn| is_settled(before, 1400, ecn);
        assert!(is(&[1200, 1300, 1400], EcnValidation::Capable));
        assert!(is(&[1400, 1400, 1400, 1400], EcnValidation::Failed));
        assert!(!is(&[1400, 1400], EcnValidation::Capable), "too soon");
        assert!(!is(&[1400, 1400, 1300], EcnValidation::Capable), "it grows");
        assert!(!is(&[], EcnValidation::Capable));
        for untold in [EcnValidation::Testing, EcnValidation::Unknown] {
            assert!(!is(&[1400, 1400, 1400], untold));
        }
        assert_eq!(millis(Duration::from_micros(1500)), 1.5);
    }

    /// What goes over a path to see what it carries is of a kind that servers ignore.
    #[tokio::test]
    async fn noise_means_nothing_to_a_server() {
        let pair = pair(Alpn::H3).await;
        for (protocol, start) in [(&b"h3"[..], &[0x21][..]), (b"perf", &[0; 8])] {
            let mut noise = soon(Noise::begin(&pair.client, protocol)).await;
            noise.send().await;
            drop(noise);
            let mut stream = soon(pair.server.accept_uni()).await.unwrap();
            let read = soon(stream.read_to_end(10_000)).await.unwrap();
            assert_eq!(read, [start, &[0; NOISE]].concat());
        }
        let mut none = Noise::begin(&pair.client, b"hq-interop").await;
        none.send().await;
        assert!(none.0.is_none());
    }

    #[tokio::test]
    async fn paths_shows_findings_of_a_server() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::Perf);
        let (url, reach) = (served.url("/"), served.reach(&["--local", "127.0.0.2"]));
        let look = Purpose::look(&url, &[Alpn::H3, Alpn::Perf]);
        let sessions = Sessions::new(&reach, look).unwrap().that_forget();
        let start = starts(&reach, listed(), &[served.address]).remove(0);
        let servers = ["[::1]:1".parse().unwrap(), served.address];
        let mut tries = 0..5;
        let reached = loop {
            tries
                .next()
                .expect("it takes all of the time that there is, whatever shows");
            let began = Instant::now();
            let reached = soon(try_from(&sessions, &url, &start, (&servers, &[]))).await;
            let took = began.elapsed();
            assert!(took >= LOOKS as u32 * LOOK, "{took:?}");
            if took < SETTLE {
                break reached.unwrap();
            }
        };
        assert_eq!(reached.server, served.address);
        assert_eq!((reached.ecn, &*reached.protocol), ("capable", "perf"));
        assert!(reached.multipath && reached.mtu >= 1200);
        assert_eq!(reached.quic_version, "v1");
        for time in [reached.handshake_ms, reached.min_rtt_ms, reached.rtt_ms] {
            assert!((0.01..1000.0).contains(&time), "{time} ms");
        }
        let none = try_from(&sessions, &url, &start, (&servers[..1], &[])).await;
        let failure = none.err().unwrap();
        assert_eq!(
            failure.message(),
            "the server has no address of this IP version"
        );
    }

    #[tokio::test]
    async fn a_server_hears_when_the_look_is_over() {
        let (served, observer) = Served::observed(Alpn::Perf);
        let (url, reach) = (served.url("/"), served.reach(&["--local", "127.0.0.1"]));
        let look = Purpose::look(&url, &[Alpn::Perf]);
        let sessions = Sessions::new(&reach, look).unwrap().that_forget();
        let start = starts(&reach, listed(), &[served.address]).remove(0);
        let servers = [served.address];
        let looked = try_from(&sessions, &url, &start, (&servers, &[]));
        let (reached, close) = soon(join(looked, end_of_first(&observer))).await;
        assert_eq!(reached.unwrap().protocol, "perf");
        let close = (close.error_code, &close.reason[..]);
        assert_eq!(close, (0u32.into(), &b"done"[..]));
    }

    /// Only packets with data carry ECN marks, so without an answer the observation takes its full
    /// time.
    #[tokio::test(start_paused = true)]
    async fn paths_observes_until_settled_or_timeout() {
        for (alpn, times) in [
            (Alpn::Perf, 4 * LOOK..8 * LOOK),
            (Alpn::HqInterop, SETTLE..SETTLE + LOOK),
        ] {
            let served = Served::start(Anything::new(1), Limits::default(), alpn);
            let (url, reach) = (served.url("/"), served.reach(&["--local", "127.0.0.1"]));
            let alpn = [alpn];
            let sessions = Sessions::new(&reach, Purpose::look(&url, &alpn));
            let sessions = sessions.unwrap().that_forget();
            let start = starts(&reach, listed(), &[served.address]).remove(0);
            let began = Instant::now();
            let servers = [served.address];
            try_from(&sessions, &url, &start, (&servers, &[]))
                .await
                .unwrap();
            let took = began.elapsed();
            assert!(times.contains(&took), "{took:?}");
        }
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        paths: Paths,
    }

    /// Without a server, its place is unknown.
    #[tokio::test]
    async fn all_addresses_are_listed_without_a_server() {
        let args = Line::try_parse_from(["x"]).unwrap().paths;
        let heard = Heard::begin();
        look(&args, None).await.unwrap();
        let [printed, said] = heard.take();
        let count = crate::options::origin::listed().unwrap().len();
        assert_eq!((printed.lines().count(), &*said), (count + 1, ""));
        assert!(!printed.contains("on this machine"), "{printed}");
    }

    fn one(name: &str, ip: &str, left_out: Option<LeftOutReason>) -> InterfaceAddress {
        // Every machine has at least one to begin with.
        let mut one = mpquic_tokio::interface_addresses().unwrap().remove(0);
        (one.name, one.ip, one.left_out) = (name.to_owned(), ip.parse().unwrap(), left_out);
        one
    }

    fn listed() -> Vec<InterfaceAddress> {
        vec![
            one("lo", "127.0.0.1", Some(LeftOutReason::Loopback)),
            one("eth0", "192.0.2.1", None),
            one("wlan0", "2001:db8::1", None),
        ]
    }

    /// Servers on another machine and on this machine.
    const THERE: &str = "198.51.100.1:443";
    const HERE: &str = "127.0.0.1:443";

    /// Names of the used places, and the reasons for the others.
    fn told(named: &[&str], server: &str) -> Vec<String> {
        let mut reach = reach(&[]);
        let named = named.iter().map(|named| named.parse().unwrap());
        reach.local = named.map(Local::Address).collect();
        let starts = starts(&reach, listed(), &[server.parse().unwrap()]).into_iter();
        let told = starts.map(|start| match &start.left_out {
            None => format!("{}: {:?}", start.name(), start.interface),
            Some(why) => format!("{}: {why}", start.name()),
        });
        told.collect()
    }

    #[test]
    fn paths_start_where_the_user_says_or_where_it_makes_sense() {
        let lo = format!("lo: {}", LeftOutReason::Loopback);
        let used = ["eth0: Some(\"eth0\")", "wlan0: Some(\"wlan0\")"];
        assert_eq!(told(&[], THERE), [&lo, used[0], used[1]]);
        let here = "the server is on this machine";
        let expected = [
            lo,
            format!("eth0: {here}"),
            format!("wlan0: {here}"),
            "any: None".into(),
        ];
        assert_eq!(told(&[], HERE), expected);
        // A named address counts for its interface.
        let named = told(&["192.0.2.1", "127.0.0.1"], HERE);
        assert_eq!(
            named,
            ["192.0.2.1: Some(\"eth0\")", "127.0.0.1: Some(\"lo\")"]
        );
        assert_eq!(told(&["192.0.2.9"], THERE), ["192.0.2.9: None"]);
    }

    /// `get` lets the system choose; here, each address of the link is tried.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_link_local_server_is_reached_from_its_link() {
        // Each machine has this link, with the number 1.
        let (link_local, other) = (Some(LeftOutReason::LinkLocal), "eth7");
        let listed = vec![
            one("lo", "2001:db8::1", None),
            one("lo", "fe80::1", link_local),
            one("lo", "fe80::3", Some(LeftOutReason::Tentative)),
            one(other, "fe80::1", link_local),
            one(other, "192.0.2.1", None),
        ];
        let of = |servers: &[&str]| {
            let servers: Vec<_> = servers.iter().map(|it| it.parse().unwrap()).collect();
            let starts = starts(&reach(&[]), listed.clone(), &servers).into_iter();
            let told = starts.map(|start| match &start.left_out {
                Some(why) => why.clone(),
                None => {
                    let reached = servers.iter().filter(|it| start.reaches(**it, &listed));
                    format!("{}: {}", start.name(), reached.count())
                }
            });
            told.collect::<Vec<_>>()
        };
        let elsewhere = "the server has a link-local address";
        let expected = [
            elsewhere,
            "fe80::1%lo: 1",
            "tentative",
            "link-local",
            elsewhere,
        ];
        assert_eq!(of(&["[fe80::9%1]:443"]), expected);
        let both = of(&["[fe80::9%1]:443", THERE]);
        assert_eq!((&*both[1], &*both[4]), ("fe80::1%lo: 1", "eth7: 1"));
        assert_eq!(of(&[THERE])[1], "link-local");
    }

    #[test]
    fn an_address_reaches_its_own_version() {
        let start = |address: Option<&str>| Start {
            interface: None,
            address: address.map(|address| address.parse().unwrap()),
            local: None,
            left_out: None,
        };
        let reaches = |address| {
            let servers = ["192.0.2.1:1", "[2001:db8::1]:1"];
            servers.map(|server| start(address).reaches(server.parse().unwrap(), &[]))
        };
        assert_eq!(reaches(Some("192.0.2.7")), [true, false]);
        assert_eq!(reaches(Some("::1")), [false, true]);
        assert_eq!(reaches(None), [true, true]);
        assert_eq!(start(Some("::1")).name(), "::1");
    }

    fn rows(round: Option<u64>) -> Vec<Row> {
        let start = |name: Option<&str>, address: Option<&str>, left_out: Option<&str>| Start {
            interface: name.map(str::to_owned),
            address: address.map(|address| address.parse().unwrap()),
            local: None,
            left_out: left_out.map(str::to_owned),
        };
        let reached = Reached {
            server: "192.0.2.9:443".parse().unwrap(),
            handshake_ms: 1.25,
            min_rtt_ms: 0.5,
            rtt_ms: 0.75,
            mtu: 1452,
            ecn: "capable",
            multipath: true,
            quic_version: "v1".to_owned(),
            key_exchange: Some("x25519".to_owned()),
            protocol: "h3".to_owned(),
        };
        let failed = Cause::Connect.failed("no answer\nat all");
        vec![
            start(Some("lo"), Some("::1"), Some("loopback")).row(round, None),
            start(Some("eth0"), Some("192.0.2.1"), None).row(round, Some(Ok(reached))),
            start(None, None, None).row(round, Some(Err(failed))),
            start(Some("a"), Some("192.0.2.7"), None).row(round, None),
        ]
    }

    #[test]
    fn a_line_for_each_address() {
        let expected = "\
interface  address
lo         ::1        left out: loopback
eth0       192.0.2.1  reached 192.0.2.9:443 in 1.25 ms: rtt 0.50 ms, mtu 1452, ECN capable, multipath, QUIC v1, h3
any        any        not reached: no answer at all
a          192.0.2.7  usable
";
        assert_eq!(table(&rows(None)), expected);
        assert_eq!(table(&rows(Some(0))), expected);
        // The rounds stand apart.
        assert_eq!(table(&rows(Some(1))), format!("\n{expected}"));
        assert_eq!(table(&[]), "interface  address\n");
    }

    #[test]
    fn an_object_for_each_address() {
        let objects: Vec<_> = rows(Some(3))
            .iter()
            .map(|row| serde_json::to_string(row).unwrap())
            .collect();
        assert_eq!(
            objects,
            [
                r#"{"round":3,"interface":"lo","address":"::1","left_out":"loopback"}"#,
                r#"{"round":3,"interface":"eth0","address":"192.0.2.1","left_out":null,"server":"192.0.2.9:443","handshake_ms":1.25,"min_rtt_ms":0.5,"rtt_ms":0.75,"mtu":1452,"ecn":"capable","multipath":true,"quic_version":"v1","key_exchange":"x25519","protocol":"h3"}"#,
                r#"{"round":3,"interface":null,"address":null,"left_out":null,"error":"no answer at all"}"#,
                r#"{"round":3,"interface":"a","address":"192.0.2.7","left_out":null}"#,
            ]
        );
    }
}
