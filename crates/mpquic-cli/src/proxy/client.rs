//! `mpquic proxy client`.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::Authority;
use mpquic_proxy::{Client, ClientOptions, Entrance, Listener};
use mpquic_tokio::TransportOptions;

use crate::client::backup;
use crate::client::live::Live;
use crate::client::session::{Purpose, Sessions};
use crate::options::Alpn;
use crate::options::credentials::read_credentials;
use crate::options::hosts;
use crate::process::failure::Failure;
use crate::process::screen;
use crate::process::service_manager;
#[cfg(target_os = "linux")]
use crate::process::signals::Hangups;
use crate::proxy::args::{Forward, ProxyClient};
use crate::proxy::control::{Control, Current};
#[cfg(target_os = "linux")]
use crate::proxy::keeping::addresses;
use crate::proxy::keeping::keep;
use crate::proxy::reverse::keep_open;
use crate::proxy::status::{Role, Status, TunnelRow};
#[cfg(target_os = "linux")]
use crate::proxy::tun::{self, Device, Proxy, failed as device_failed};

/// The SOCKS entrance if no entrance is named.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);
/// Requests that a proxy may begin: none.
const NO_FLOWS: u32 = 0;

/// Runs until dropped, or until the proxy is not the right one.
pub(crate) async fn run(args: ProxyClient) -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    args.tun.check()?;
    let live = Arc::new(Live::default());
    let current = Current::default();
    let sessions = sessions(&args)?.that_follow(&live);
    let client = Client::new(options(&args)?);
    let control = Arc::new(Control::new(&args, &live, &current));
    let tunnel = Arc::new(Mutex::new(None::<TunnelRow>));
    let (watched, shown, beside) = (client.clone(), current.clone(), tunnel.clone());
    let steered = control.clone();
    let status = move || {
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let beside = beside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let status = Status::new(Role::Client, shown.as_slice(), &watched.flows());
        status.with(beside).with_interfaces(steered.rows())
    };
    let commanded = control.clone();
    let command = move |line: &str| commanded.command(line);
    // Programs that wait for the line of an entrance may ask for the status next.
    let _answering = args.status.answer(Role::Client, status, command)?;
    let _entrances = open(&args, &client).await?;
    service_manager::ready();
    #[cfg(target_os = "linux")]
    if let Some(name) = &args.tun.tun {
        let host = args
            .url
            .authority()
            .map(Authority::to_string)
            .unwrap_or_default();
        // A client refuses before its first change. Links may change until the device is made.
        args.tun.check_resolver()?;
        let left = tun::addresses_left(name, &args.tun, &host)?;
        let addresses = match left.filter(|_| args.reach.server_addr.is_empty()) {
            Some(addresses) => addresses,
            None => addresses(&args, &sessions).await?,
        };
        sessions.become_way_out(addresses.clone());
        let proxy = Proxy {
            name: host,
            addresses,
        };
        let mut device = Device::open(name, &args.tun, &proxy)?;
        let carrier = device.carry(&client).await?;
        let (watch, name_servers) = (device.watch(tunnel), device.watch_name_servers());
        let route = || device.route();
        let mut hangups = Hangups::new();
        return tokio::select! {
            ended = keep(&args, &sessions, &client, &current, route) => ended,
            error = carrier.ended() => Err(device_failed(name, &error)),
            never = watch.run() => match never {},
            never = name_servers.run() => match never {},
            never = control.follow() => match never {},
            never = keep_open(&client, &args.reverse) => match never {},
            // The terminal is closed: changes have to be undone.
            () = hangups.next() => Err(Failure::interrupted()),
        };
    }
    tokio::select! {
        ended = keep(&args, &sessions, &client, &current, || Ok(())) => ended,
        never = control.follow() => match never {},
        never = keep_open(&client, &args.reverse) => match never {},
    }
}

fn sessions(args: &ProxyClient) -> Result<Sessions<'_>, Failure> {
    let limited: Vec<_> = args.quota.iter().map(|quota| quota.from.clone()).collect();
    backup::check(&args.reach, "--quota", &limited)?;
    let purpose = Purpose {
        urls: std::slice::from_ref(&args.url),
        alpn: &[Alpn::H3],
        early_data: false,
        quiet: false,
        datagrams: true,
        rate: None,
        backup: &args.preference.backup,
        weights: &[],
        costs: &args.preference.cost,
    };
    let adapt = |transport: &mut TransportOptions| args.idle.adapt(transport, NO_FLOWS);
    Sessions::with(&args.reach, purpose, adapt)
}

/// An entrance other than a port exists.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "network devices need Linux")
)]
fn has_device(args: &ProxyClient) -> bool {
    #[cfg(target_os = "linux")]
    return args.tun.tun.is_some();
    #[cfg(not(target_os = "linux"))]
    false
}

fn options(args: &ProxyClient) -> Result<ClientOptions, Failure> {
    let authority = args.url.authority().map(Authority::as_str);
    let authority = authority.and_then(|told| hosts::without_link(told).parse().ok());
    let authority = authority.ok_or_else(|| Failure::usage("the URL names no host"))?;
    let mut options = ClientOptions::new(authority);
    if let Some(path) = &args.credentials {
        let mut credentials = read_credentials(path)?;
        options.credential = credentials.pop();
        if !credentials.is_empty() {
            let message = format!("--credentials {}: more than one line", path.display());
            return Err(Failure::usage(message));
        }
    }
    options.classes = args.class.clone();
    options.udp_binding = args.udp_binding()?;
    options.tcp_idle = Duration::from_secs(args.idle.tcp_idle);
    options.udp_idle = Duration::from_secs(args.idle.udp_idle);
    Ok(options)
}

/// The entrances of the options, or the default one.
fn wanted(args: &ProxyClient) -> Vec<(Entrance, SocketAddr)> {
    let socks = args.socks.iter().map(|address| (Entrance::Socks, *address));
    let http = args.http.iter().map(|address| (Entrance::Http, *address));
    let forwards = args.forward.iter().cloned();
    let forwards = forwards.map(|Forward { entrance, listen }| (entrance, listen));
    let mut wanted: Vec<_> = socks.chain(http).chain(forwards).collect();
    #[cfg(target_os = "linux")]
    wanted.extend((args.tproxy.iter()).map(|address| (Entrance::Transparent, *address)));
    if wanted.is_empty() && args.reverse.is_empty() && !has_device(args) {
        wanted.push((Entrance::Socks, DEFAULT));
    }
    wanted
}

/// A further need of an entrance that cannot be opened.
fn needs(error: ErrorKind, entrance: &Entrance) -> &'static str {
    match error {
        ErrorKind::PermissionDenied if *entrance == Entrance::Transparent => {
            "; run mpquic as root, or with the capability CAP_NET_ADMIN"
        }
        _ => "",
    }
}

/// Opens the entrances, and tells where they are.
async fn open(args: &ProxyClient, client: &Client) -> Result<Vec<Listener>, Failure> {
    let mut open = Vec::new();
    let wanted = wanted(args);
    let is_udp = |entrance: &Entrance| matches!(entrance, Entrance::Udp(_));
    for (entrance, address) in &wanted {
        let (address, is_like) = (*address, is_udp(entrance));
        let alike = wanted.iter().filter(|(other, _)| is_udp(other) == is_like);
        let alike: Vec<_> = alike.map(|(_, address)| *address).collect();
        let kind = match entrance {
            Entrance::Socks => "socks".to_owned(),
            Entrance::Http => "http".to_owned(),
            Entrance::Tcp(target) => format!("tcp to {target}"),
            Entrance::Udp(target) => format!("udp to {target}"),
            Entrance::Transparent => "tproxy".to_owned(),
            other => format!("{other:?}"),
        };
        let listener = client
            .listen_beside(entrance.clone(), address, &alike)
            .await
            .map_err(|error| {
                let needs = needs(error.kind(), entrance);
                Failure::other(format!(
                    "cannot listen on {address} for {kind}: {error}{needs}"
                ))
            })?;
        let address = listener.address();
        screen::print(format_args!("{kind} on {address}"));
        if !address.ip().is_loopback() {
            tracing::warn!("whoever reaches {address} can use the proxy in your name");
        }
        open.push(listener);
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clap::Parser;
    use mpquic_tokio::{Connection, ServerConfig};

    use super::*;
    use crate::process::failure::Cause;
    use crate::process::screen::tests::Heard;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, logged_by, soon};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        client: ProxyClient,
    }

    fn arguments(url: &str, options: &[&str]) -> ProxyClient {
        let line = [&["x", url], options].concat();
        Line::try_parse_from(line).unwrap().client
    }

    #[test]
    fn default_entrance_exists_without_a_device() {
        let wanted = |options: &[&str]| {
            let wanted = wanted(&arguments("https://host", options));
            let told = wanted
                .iter()
                .map(|(entrance, at)| format!("{entrance:?} {at}"));
            told.collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[]), ["Socks 127.0.0.1:1080"]);
        assert_eq!(wanted(&["--http", "8080"]), ["Http 127.0.0.1:8080"]);
        let two = ["--http", "1", "--socks", "192.0.2.1:2"];
        assert_eq!(wanted(&two), ["Socks 192.0.2.1:2", "Http 127.0.0.1:1"]);
        #[cfg(target_os = "linux")]
        {
            assert_eq!(wanted(&["--tproxy", "3"]), ["Transparent 127.0.0.1:3"]);
            assert!(wanted(&["--tun"]).is_empty());
            assert_eq!(wanted(&["--tun", "--socks", "4"]), ["Socks 127.0.0.1:4"]);
        }
        assert!(wanted(&["-R", "80:host:81"]).is_empty());
        let forward = &wanted(&["-L", "udp:5:host:6"])[0];
        assert!(forward.starts_with("Udp(") && forward.ends_with(" 127.0.0.1:5"));
    }

    #[test]
    fn times_are_those_of_the_command_line() {
        let times = ["--tcp-idle", "7", "--udp-idle", "8"];
        let more = ["--send-queue", "50", "--max-outage", "60"];
        let args = arguments("https://host", &[&times[..], &more].concat());
        let options = options(&args).unwrap();
        let idle = [options.tcp_idle, options.udp_idle];
        assert_eq!(idle.map(|time| time.as_secs()), [7, 8]);
        let mut transport = mpquic_tokio::default_transport();
        args.idle.adapt(&mut transport, NO_FLOWS);
        let queue = Duration::from_millis(50);
        assert_eq!(transport.send_queue_time, Some(queue));
        assert_eq!(transport.max_idle_timeout, Some(Duration::from_secs(60)));
    }

    #[test]
    fn udp_ports_are_filtered_by_address_unless_told() {
        use mpquic_proxy::Filtering::{AddressDependent, EndpointIndependent};
        let binding = |line: &[&str]| {
            options(&arguments("https://host", line))
                .unwrap()
                .udp_binding
        };
        let mapping = ["--udp-mapping", "endpoint-independent"];
        assert_eq!(binding(&[]), None);
        assert_eq!(binding(&mapping), Some(AddressDependent));
        let all = [&mapping[..], &["--udp-filtering", "endpoint-independent"]].concat();
        assert_eq!(binding(&all), Some(EndpointIndependent));
        let alone = arguments("https://host", &["--udp-filtering", "address-dependent"]);
        let told = options(&alone).unwrap_err().message().to_owned();
        assert!(
            told.contains("add --udp-mapping endpoint-independent"),
            "{told}"
        );
    }

    #[test]
    fn errors_of_entrances_name_the_missing_privilege() {
        let denied = ErrorKind::PermissionDenied;
        assert!(needs(denied, &Entrance::Transparent).contains("CAP_NET_ADMIN"));
        assert_eq!(needs(denied, &Entrance::Socks), "");
        assert_eq!(needs(ErrorKind::AddrInUse, &Entrance::Transparent), "");
    }

    #[tokio::test]
    async fn entrances_are_printed_with_their_addresses() {
        let args = arguments("https://host", &["--socks", "0", "-L", "0:target:80"]);
        let client = Client::new(options(&args).unwrap());
        let heard = Heard::begin();
        let open = open(&args, &client).await.unwrap();
        let at: Vec<_> = open.iter().map(Listener::address).collect();
        let told = format!("socks on {}\ntcp to target:80 on {}\n", at[0], at[1]);
        assert_eq!(heard.take(), [&*told, ""]);
        let taken = at[0].to_string();
        let args = arguments("https://host", &["--http", &taken]);
        let failure = super::open(&args, &client).await.err().unwrap();
        let start = format!("cannot listen on {taken} for http: ");
        assert!(
            failure.message().starts_with(&start),
            "{}",
            failure.message()
        );
    }

    #[test]
    fn an_entrance_that_others_can_reach_is_warned_of() {
        let opened = |address: &str| {
            logged_by(async {
                let args = arguments("https://host", &["--socks", address]);
                let client = Client::new(options(&args).unwrap());
                let _heard = Heard::begin();
                open(&args, &client).await.unwrap();
            })
        };
        let told = "can use the proxy in your name";
        assert!(opened("0.0.0.0:0").contains(told));
        assert!(!opened("127.0.0.1:0").contains(told));
    }

    /// The current connection is shown.
    #[tokio::test]
    async fn current_connection_is_shown_until_lost() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let args = arguments(&served.url("/").to_string(), &["--insecure"]);
        let sessions = sessions(&args).unwrap().that_forget();
        let client = Client::new(options(&args).unwrap());
        let (current, made) = (Mutex::new(None), Cell::new(0));
        let shown = || current.lock().unwrap().clone();
        let connected_again = || {
            made.set(made.get() + 1);
            Ok(())
        };
        let keeping = keep(&args, &sessions, &client, &current, connected_again);
        let watching = async {
            let until = async |is_there: bool| {
                while shown().is_some() != is_there {
                    tokio::task::yield_now().await;
                }
            };
            until(true).await;
            let connection: Connection = shown().unwrap();
            // It takes DATAGRAMs.
            assert_eq!(made.get(), 1);
            connection.close(0u32.into(), b"");
            until(false).await;
            until(true).await;
            assert_eq!(made.get(), 2);
        };
        tokio::select! {
            ended = keeping => panic!("{ended:?}"),
            () = soon(watching) => {}
        }
    }

    /// The name may have an address in a moment.
    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn a_name_without_an_address_is_waited_for() {
        let args = arguments("https://missing.invalid", &[]);
        let sessions = sessions(&args).unwrap().that_forget();
        let waiting = tokio::time::timeout(Duration::from_secs(60), addresses(&args, &sessions));
        assert!(waiting.await.is_err());
        let args = arguments("https://127.0.0.1:4433", &[]);
        let sessions = super::sessions(&args).unwrap().that_forget();
        let found = addresses(&args, &sessions).await.unwrap();
        assert_eq!(found, ["127.0.0.1:4433".parse().unwrap()]);
    }

    /// A link may be plugged in later.
    #[test]
    fn the_link_of_the_proxy_is_waited_for_and_that_is_told_once() {
        let told = logged_by(async {
            let args = arguments("https://[fe80::1%25absent0]:4433", &["--insecure"]);
            let sessions = sessions(&args).unwrap().that_forget();
            let client = Client::new(options(&args).unwrap());
            let current = Mutex::new(None);
            let kept = keep(&args, &sessions, &client, &current, || Ok(()));
            let kept = tokio::time::timeout(Duration::from_secs(1), kept).await;
            assert!(kept.is_err(), "{kept:?}");
        });
        let line = "fe80::1: there is no link `absent0`; `mpquic paths` lists the links by name; trying again";
        assert_eq!(told.matches(line).count(), 1, "{told}");
    }

    /// At boot the clock may be years off. Here the certificate is, until it is replaced.
    #[tokio::test]
    async fn certificate_of_another_time_is_waited_for() {
        let made = |until: i32| {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(until, 1, 1);
            let pem = params.self_signed(&key).unwrap().pem();
            let (chain, key) = (pem.as_bytes(), key.serialize_pem());
            let config = ServerConfig::with_pem(chain, key.as_bytes(), &[Alpn::H3.bytes()]);
            (config.unwrap(), pem)
        };
        let ((expired, one), (valid, other)) = (made(1991), made(4000));
        let authorities = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&authorities, one + &other).unwrap();
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        served.endpoints.set_server_config(expired).unwrap();
        let authorities = authorities.path().to_str().unwrap();
        let args = arguments(&served.url("/").to_string(), &["--ca", authorities]);
        let sessions = sessions(&args).unwrap().that_forget();
        let client = Client::new(options(&args).unwrap());
        let current = Mutex::new(None);
        let keeping = keep(&args, &sessions, &client, &current, || Ok(()));
        let attempts = || served.endpoints.stats()[0].accepted_handshakes;
        let changing = async {
            // The second attempt proves another try after the first failure.
            while attempts() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            served.endpoints.set_server_config(valid).unwrap();
            while current.lock().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = keeping => panic!("{ended:?}"),
            () = soon(changing) => {}
        }
    }

    /// A retry would fail as well; an unreachable proxy may come back.
    #[tokio::test]
    async fn wrong_proxy_is_not_retried() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let url = served.url("/").to_string();
        let pin = format!("sha256:{}", "0".repeat(64));
        let args = arguments(&url, &["--pin", &pin]);
        let sessions = sessions(&args).unwrap().that_forget();
        let client = Client::new(options(&args).unwrap());
        let current = Mutex::new(None);
        let kept = keep(&args, &sessions, &client, &current, || Ok(()));
        assert_eq!(soon(kept).await.unwrap_err().cause(), Some(Cause::Trust));
        // The callback may end the client.
        let args = arguments(&url, &["--insecure"]);
        let sessions = super::sessions(&args).unwrap().that_forget();
        let no = || Err(Failure::other("no"));
        let kept = keep(&args, &sessions, &client, &current, no);
        assert_eq!(soon(kept).await.unwrap_err().message(), "no");
    }
}
