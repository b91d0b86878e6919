//! `mpquic proxy server`.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use mpquic_core::config::TransportOptions;
use mpquic_proxy::shares::Taker;
use mpquic_proxy::{Access, MAX_FIELDS, Observe, Over, ReverseRule, Server, ServerOptions};
use mpquic_tokio::ServerConfig;

use crate::options::Alpn;
use crate::options::credentials::read_users;
use crate::options::trust::Fingerprint;
use crate::process::clock;
use crate::process::descriptors;
use crate::process::failure::Failure;
use crate::process::screen;
use crate::process::service_manager;
use crate::process::signals::{Hangups, Upgrades};
use crate::proxy::args::ProxyServer;
use crate::proxy::change;
use crate::proxy::liveness::{forget, until_client_gone};
use crate::proxy::status::{Role, Status};
use crate::serve;
use crate::serve::access_log::Entry;
use crate::serve::endpoints::Endpoints;
use crate::serve::flood::Flood;
use crate::serve::http3::serve_requests;
use crate::serve::limits;
use crate::serve::observer::{Observer, Text};
use crate::serve::succession::Succession;
use crate::text::count::count;

const ALPN: [&[u8]; 1] = [Alpn::H3.bytes()];

/// Most characters of a target in a line of the log.
const MAX_TARGET: usize = 255;

/// Reports requests to the tool's observer, once the server listens.
struct Report {
    observer: OnceLock<Arc<Observer>>,
    /// Lines about refused clients without a user: anybody can cause them.
    strangers: Arc<Flood>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            observer: OnceLock::new(),
            strangers: Flood::new("requests of strangers refused"),
        }
    }
}

impl Report {
    fn log(&self, is_known: bool, status: StatusCode, line: impl Display) {
        if !is_known && status.is_client_error() {
            self.strangers.log(line)
        } else {
            tracing::info!("{line}")
        }
    }
}

/// The beginning of a target, without control characters.
fn shown(target: &str) -> String {
    let mut characters = target.chars();
    let shown: String = characters.by_ref().take(MAX_TARGET).collect();
    let end = characters.next().map_or("", |_| "...");
    format!("{}{end}", shown.escape_debug())
}

impl Observe for Report {
    fn on_over(&self, over: &Over<'_>) {
        let Some(observer) = self.observer.get() else {
            return;
        };
        let status = over.status.as_u16();
        let user = over.user.unwrap_or("anybody");
        let (target, sent) = (shown(over.target), over.sent);
        let (method, received) = (shown(over.method), over.received);
        let sent_bytes = count(sent, "byte");
        let line = format!(
            "{method} {target} for {user}: {status}, {sent_bytes} to the client, {received} from it"
        );
        self.log(over.user.is_some(), over.status, line);
        observer.on_request(Entry {
            time: clock::time_of_day(),
            client: over.client,
            user: over.user.map(str::to_owned),
            method: over.method.to_owned(),
            target: over.target.to_owned(),
            protocol: "HTTP/3",
            status: Some(status),
            bytes: sent,
            cut: false,
            seconds: over.duration,
        });
    }
}

/// Runs until interrupted, and then until open flows have ended. `read_again` returns the current
/// options.
pub(crate) async fn run(
    mut args: ProxyServer,
    read_again: impl Fn() -> Result<ProxyServer, Failure>,
) -> Result<(), Failure> {
    args.listening.client_ca = args.client_ca.take();
    let report = Arc::new(Report::default());
    let (hangups, upgrades) = (Hangups::new(), Upgrades::new());
    let proxy = Server::new(options(&args, report.clone())?);
    let listening = &args.listening;
    let transport = transport(&args)?;
    let watched = proxy.clone();
    let figures = Arc::new(move || figures(&watched));
    let started = listening.start(&ALPN, transport, args.max_connections, Some(figures));
    let (server, draining) = started.await?;
    let _ = report.observer.set(server.observer.clone());
    if let Some(fingerprint) = server.fingerprint {
        let port = server.port();
        screen::say(format_args!(
            "The certificate is self-signed. Use it with:\n  mpquic proxy client --pin {fingerprint} https://HOST:{port}"
        ));
    }
    let connections = limits::connections(args.max_connections);
    let of_client = u64::from(args.max_client_connections);
    let observer = server.observer.clone();
    let served = proxy.clone();
    let serve = move |address: std::net::SocketAddr, connection, draining| {
        let (connections, observer, proxy) =
            (connections.clone(), observer.clone(), served.clone());
        async move {
            let taker = Taker::new(None, address.ip());
            let Some(held) = connections.try_take_of(&taker, 1, of_client) else {
                return serve::turn_away(&connection);
            };
            let _observed = observer.on_connection(&connection);
            let requests = proxy.connection(&connection);
            let quic = mpquic_h3::Connection::new(connection.clone()).max_frame_size(MAX_FIELDS);
            let http = Server::http();
            let answer = |request| {
                let (requests, in_use) = (requests.clone(), held.activity().begin_use());
                async move {
                    requests.answer(request).await;
                    drop(in_use);
                }
            };
            tokio::select! {
                reason = serve_requests(&connection, http.build(quic), answer, draining) => reason,
                () = held.gives_way() => serve::give_way(&connection),
                () = until_client_gone(&connection, held.activity()) => {
                    forget(&connection);
                    "ended, no program listens on the client's ports".to_owned()
                }
            }
        }
    };
    let (watched, observed) = (proxy.clone(), server.observer.clone());
    let status = move || {
        let connections = observed.connections().into_iter();
        let connections: Vec<_> = connections.map(|(_, connection)| connection).collect();
        Status::new(Role::Server, &connections, &watched.flows())
    };
    let answering = (args.status).answer(Role::Server, status, change::refuse_of_server)?;
    service_manager::ready();
    let endpoints = server.endpoints.clone();
    let serving = async {
        tokio::select! {
            () = serve::accept(&endpoints, listening.retry, serve, draining) => {}
            never = reload((&proxy, &endpoints, &report), &read_again, hangups) => match never {},
        }
    };
    let limit = Duration::from_secs(args.drain_timeout);
    let succession = Succession {
        upgrades,
        check: Box::new(|| renewed(&read_again, &report).map(drop)),
        beside: Some(Box::new(answering)),
        limit: Duration::from_secs(args.upgrade_timeout),
    };
    server.run(serving, limit, Some(succession)).await;
    Ok(())
}

/// What files and options say now, for the proxy and its endpoints, with the name of the
/// certificate.
fn renewed(
    read_again: impl Fn() -> Result<ProxyServer, Failure>,
    report: &Arc<Report>,
) -> Result<(ServerOptions, ServerConfig, Fingerprint), Failure> {
    let mut args = read_again()?;
    args.listening.client_ca = args.client_ca.take();
    let listening = &args.listening;
    let identity = listening.identity()?;
    let options = options(&args, report.clone())?;
    let (transport, most) = (transport(&args)?, args.max_connections);
    let config = listening.config(&identity, &ALPN, transport, most)?;
    Ok((options, config, identity.fingerprint()?))
}

/// Limits for a client's connection before its first right credential.
fn transport(args: &ProxyServer) -> Result<TransportOptions, Failure> {
    let listening = &args.listening;
    let mut transport = listening.connections.transport(listening.max_paths)?;
    args.idle.adapt_server(&mut transport);
    Ok(transport)
}

/// Reads certificate, key, credentials, rules and limits again after each SIGHUP. Faulty files
/// change nothing, and open flows go on.
async fn reload(
    (proxy, endpoints, report): (&Server, &Endpoints, &Arc<Report>),
    read_again: impl Fn() -> Result<ProxyServer, Failure>,
    mut hangups: Hangups,
) -> Infallible {
    loop {
        hangups.next().await;
        if let Some(observer) = report.observer.get() {
            observer.reopen_log();
        }
        let renew = || {
            let (options, config, fingerprint) = renewed(&read_again, report)?;
            let replaced = endpoints.set_server_config(config);
            replaced.map_err(Failure::usage)?;
            proxy.set_options(options);
            Ok::<_, Failure>(fingerprint)
        };
        match renew() {
            Ok(fingerprint) => tracing::info!(
                "read again: credentials, rules and limits of flows, and certificate {fingerprint}"
            ),
            Err(failure) => tracing::error!("nothing changes: {}", failure.message()),
        }
    }
}

fn options(args: &ProxyServer, observer: Arc<Report>) -> Result<ServerOptions, Failure> {
    let access = match &args.credentials {
        Some(path) => Access::Users(read_users(path)?),
        None if args.open => Access::Anybody,
        None if args.listening.client_ca.is_some() => Access::Certificates,
        None => {
            return Err(Failure::usage(
                "nobody may use the proxy yet: name its users with --credentials FILE or --client-ca PEM, or \
                 let everybody use it with --open",
            ));
        }
    };
    let mut options = ServerOptions::new(access);
    options.rules.allow = args.allow.clone();
    options.rules.deny = args.deny.clone();
    options.rules.only_allowed = args.only_allowed;
    options.rules.nat64 = args.nat64.clone();
    options.max_flows = args.max_flows as usize;
    options.all_flows = descriptors::for_flows();
    options.udp_ports = descriptors::for_udp_ports();
    options.user_memory = u64::from(args.max_user_memory) << 20;
    options.all_memory = u64::from(args.max_memory) << 20;
    options.flows_per_second = args.max_new_flows;
    options.udp_bindings = !args.no_udp_binding;
    options.reverse = reverse(args)?;
    options.connect_timeout = Duration::from_secs(args.target_timeout);
    options.classes = args.class.clone();
    options.tcp_idle = Duration::from_secs(args.idle.tcp_idle);
    options.udp_idle = Duration::from_secs(args.idle.udp_idle);
    options.observer = Some(observer);
    Ok(options)
}

/// The rules of --allow-reverse.
fn reverse(args: &ProxyServer) -> Result<Vec<ReverseRule>, Failure> {
    let named = args.allow_reverse.iter().find(|rule| rule.user().is_some());
    if let (true, Some(rule)) = (args.open, named) {
        return Err(Failure::usage(format_args!(
            "--allow-reverse {rule}: with --open nobody has a name; name users with --credentials FILE, or leave \
             `USER=` out"
        )));
    }
    Ok(args.allow_reverse.clone())
}

/// The proxy's own figures, in the text format of Prometheus.
fn figures(proxy: &Server) -> String {
    let stats = proxy.stats();
    let mut text = Text::default();
    text.family("mpquic_proxy_flows", "gauge", "Open flows to targets.");
    for (kind, count) in [
        ("tcp", stats.open_tcp),
        ("udp", stats.open_udp),
        ("ip", stats.open_ip),
    ] {
        text.sample(&format!("{{kind=\"{kind}\"}}"), count as f64);
    }
    let help = "Payload bytes, of open flows as well.";
    text.family("mpquic_proxy_bytes_total", "counter", help);
    for (direction, count) in [
        ("to_targets", stats.to_targets),
        ("from_targets", stats.from_targets),
    ] {
        text.sample(&format!("{{direction=\"{direction}\"}}"), count as f64);
    }
    let users = proxy.users();
    let users = || users.iter().map(|of| (label(of.user.as_deref()), of));
    text.family(
        "mpquic_proxy_user_flows",
        "gauge",
        "Open flows of each user.",
    );
    for (user, of) in users() {
        text.sample(&format!("{{user=\"{user}\"}}"), of.open as f64);
    }
    let (name, help) = (
        "mpquic_proxy_user_bytes_total",
        "Payload bytes of each user.",
    );
    text.family(name, "counter", help);
    for (user, of) in users() {
        for (direction, count) in [("to_targets", of.received), ("from_targets", of.sent)] {
            let labels = format!("{{user=\"{user}\",direction=\"{direction}\"}}");
            text.sample(&labels, count as f64);
        }
    }
    let help = "UDP payloads and IP packets that were too large, or had no room.";
    let name = "mpquic_proxy_dropped_payloads_total";
    text.figure(name, "counter", help, stats.dropped_payloads);
    let help = "UDP flows without an answer that ended to make room for new ones.";
    let name = "mpquic_proxy_displaced_udp_flows_total";
    text.figure(name, "counter", help, stats.displaced_udp);
    let help = "Memory of requests that are being answered, open flows among them.";
    let name = "mpquic_proxy_request_memory_bytes";
    text.figure(name, "gauge", help, stats.request_memory);
    text.0
}

/// A user in the label of a metric.
fn label(user: Option<&str>) -> String {
    let user = user.unwrap_or("anybody");
    user.replace('\\', r"\\").replace('"', r#"\""#)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::Parser;

    use super::*;
    use crate::testing::{Anything, Served, logged_by};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        server: ProxyServer,
    }

    fn arguments(options: &[&str]) -> ProxyServer {
        let line = ["x"].iter().chain(options);
        Line::try_parse_from(line).unwrap().server
    }

    #[test]
    fn strangers_cause_one_line_a_second() {
        let told = logged_by(async {
            let report = Report::default();
            for number in 0..50 {
                let refused = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
                report.log(false, refused, format_args!("stranger {number}"));
            }
            tokio::time::sleep(Duration::from_millis(1100)).await;
            for number in 0..2 {
                report.log(true, StatusCode::FORBIDDEN, format_args!("user {number}"));
                report.log(false, StatusCode::OK, format_args!("anybody {number}"));
            }
        });
        let count = |text: &str| told.matches(text).count();
        assert_eq!(count("stranger 0"), 1, "{told}");
        assert_eq!(count("49 more requests of strangers refused"), 1, "{told}");
        assert_eq!((count("user "), count("anybody ")), (2, 2), "{told}");
        assert_eq!(told.lines().count(), 6, "{told}");
    }

    #[test]
    fn long_targets_are_cut() {
        let target = format!("{}\n", "x".repeat(254));
        assert_eq!(shown(&target), format!("{}\\n", "x".repeat(254)));
        let longer = format!("{target}{}", "y".repeat(4000));
        assert_eq!(shown(&longer), format!("{}\\n...", "x".repeat(254)));
    }

    #[test]
    fn strangers_have_few_streams() {
        let limits = [
            "--max-flows",
            "100",
            "--max-paths",
            "3",
            "--max-outage",
            "60",
        ];
        let args = arguments(&[&["--open"], &limits[..]].concat());
        let transport = transport(&args).unwrap();
        assert_eq!(transport.max_concurrent_bidi_streams, 16);
        let windows = [transport.initial_receive_window, transport.send_window];
        assert_eq!(windows, [1 << 20; 2]);
        assert!(transport.datagram_receive_buffer.is_some());
        assert_eq!(transport.max_concurrent_paths, 3);
        assert_eq!(transport.max_idle_timeout, Some(Duration::from_secs(60)));
        let usual = super::transport(&arguments(&["--open"])).unwrap();
        assert_eq!(usual.max_idle_timeout, Some(Duration::from_secs(900)));
    }

    #[test]
    fn options_are_those_of_the_command_line() {
        let more = [
            "--max-flows",
            "7",
            "--max-new-flows",
            "8",
            "--max-user-memory",
            "16",
            "--max-memory",
            "64",
            "--target-timeout",
            "9",
        ];
        let idle = ["--tcp-idle", "10", "--udp-idle", "11", "--send-queue", "50"];
        let args = arguments(&[&["--open"], &more[..], &idle].concat());
        let options = options(&args, Arc::default()).unwrap();
        assert_eq!((options.max_flows, options.flows_per_second), (7, 8));
        assert_eq!(options.user_memory, 16 << 20);
        assert_eq!(options.all_memory, 64 << 20);
        let queue = transport(&args).unwrap().send_queue_time;
        assert_eq!(queue, Some(Duration::from_millis(50)));
        let seconds = [options.connect_timeout, options.tcp_idle, options.udp_idle];
        assert_eq!(seconds.map(|time| time.as_secs()), [9, 10, 11]);
        assert!(options.observer.is_some());
        let missing = arguments(&["--credentials", "/missing/file"]);
        let failure = super::options(&missing, Arc::default()).err().unwrap();
        assert!(failure.message().starts_with("cannot read /missing/file: "));
        let mut nobody = arguments(&[]);
        let failure = super::options(&nobody, Arc::default()).err().unwrap();
        assert_eq!(failure.code(), 2);
        for option in ["--credentials", "--client-ca", "--open"] {
            assert!(failure.message().contains(option), "{failure:?}");
        }
        nobody.listening.client_ca = Some("authority.pem".into());
        assert!(super::options(&nobody, Arc::default()).is_ok());
    }

    #[test]
    fn figures_are_told_by_kind_and_direction() {
        let options = options(&arguments(&["--open"]), Arc::default()).unwrap();
        let expected = "\
# HELP mpquic_proxy_flows Open flows to targets.
# TYPE mpquic_proxy_flows gauge
mpquic_proxy_flows{kind=\"tcp\"} 0
mpquic_proxy_flows{kind=\"udp\"} 0
mpquic_proxy_flows{kind=\"ip\"} 0
# HELP mpquic_proxy_bytes_total Payload bytes, of open flows as well.
# TYPE mpquic_proxy_bytes_total counter
mpquic_proxy_bytes_total{direction=\"to_targets\"} 0
mpquic_proxy_bytes_total{direction=\"from_targets\"} 0
# HELP mpquic_proxy_user_flows Open flows of each user.
# TYPE mpquic_proxy_user_flows gauge
# HELP mpquic_proxy_user_bytes_total Payload bytes of each user.
# TYPE mpquic_proxy_user_bytes_total counter
# HELP mpquic_proxy_dropped_payloads_total UDP payloads and IP packets that were too large, or had no room.
# TYPE mpquic_proxy_dropped_payloads_total counter
mpquic_proxy_dropped_payloads_total 0
# HELP mpquic_proxy_displaced_udp_flows_total UDP flows without an answer that ended to make room for new ones.
# TYPE mpquic_proxy_displaced_udp_flows_total counter
mpquic_proxy_displaced_udp_flows_total 0
# HELP mpquic_proxy_request_memory_bytes Memory of requests that are being answered, open flows among them.
# TYPE mpquic_proxy_request_memory_bytes gauge
mpquic_proxy_request_memory_bytes 0
";
        assert_eq!(figures(&Server::new(options)), expected);
        assert_eq!(label(None), "anybody");
        assert_eq!(label(Some(r#"a"b\c"#)), r#"a\"b\\c"#);
    }

    /// Names, kinds and labels of the metrics in the queries of the dashboard are those of the
    /// metrics page.
    #[tokio::test]
    async fn the_dashboard_asks_for_metrics_that_there_are() {
        let served = Served::start(Anything::new(1), limits::Limits::default(), Alpn::H3);
        let client = served.connect(1000).await;
        let observer = Observer::new(None);
        let _observed = observer.on_connection(&client);
        let proxy = Server::new(options(&arguments(&["--open"]), Arc::default()).unwrap());
        let page = observer.metrics(&served.endpoints) + &figures(&proxy);
        let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let kinds: BTreeMap<_, _> = kinds.filter_map(|line| line.split_once(' ')).collect();
        let dashboard = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/grafana/mpquic-proxy.json"
        );
        let dashboard = std::fs::read_to_string(dashboard).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        let mut asked = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                let (before, rest) = query.split_once("mpquic_").unwrap();
                let end = rest.find('{').unwrap();
                let name = format!("mpquic_{}", &rest[..end]);
                let kind = kinds.get(&*name).copied();
                let is_rate = before.ends_with("rate(") || before.ends_with("increase(");
                let expected = if is_rate { "counter" } else { "gauge" };
                assert_eq!(kind, Some(expected), "{query}");
                // The labels of samples. Users, requests and paths have no sample yet.
                let by = before.split_once("by (").map_or("", |(_, rest)| rest);
                let by = by.split_once(')').map_or("", |(labels, _)| labels);
                let source = [
                    include_str!("server.rs"),
                    include_str!("../serve/observer.rs"),
                ]
                .concat();
                for label in by.split(", ").filter(|label| !label.is_empty()) {
                    let written = [format!("{label}=\\\"{{"), format!("{label}=\"")];
                    let is_label = source.contains(&written[0]) || page.contains(&written[1]);
                    assert!(is_label, "{label} of {query}");
                    let legend = target["legendFormat"].as_str().unwrap();
                    assert!(legend.contains(&format!("{{{{{label}}}}}")), "{legend}");
                }
                asked.insert(name);
            }
        }
        let of_proxy = kinds
            .keys()
            .filter(|name| name.starts_with("mpquic_proxy_"));
        for name in of_proxy {
            assert!(asked.contains(*name), "no panel shows {name}");
        }
    }
}
