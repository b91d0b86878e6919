//! `mpquic proxy client`.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mpquic_proxy::{Client, ClientOptions, Entrance, Listener};
use mpquic_tokio::Connection;

use crate::clock;
use crate::failure::{Cause, Failure};
use crate::options::Alpn;
use crate::proxy_args::{Forward, ProxyClient, read_credentials};
use crate::proxy_status::{Role, Status};
#[cfg(target_os = "linux")]
use crate::proxy_tun::{Device, failed as device_failed};
use crate::retry::Retry;
use crate::screen;
use crate::service_manager;
use crate::session::{Purpose, Sessions};
#[cfg(target_os = "linux")]
use crate::signals::Hangups;

/// Where SOCKS is if no entrance is asked for.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);
/// Requests that a proxy may begin: none.
const NO_FLOWS: u32 = 0;
/// It is tried for ever to get a connection back.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Runs until it is dropped, or the proxy is not the right one.
pub(crate) async fn run(args: ProxyClient) -> Result<(), Failure> {
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
    let adapt = |transport: &mut _| mpquic_proxy::adapt(transport, NO_FLOWS);
    let sessions = Sessions::with(&args.reach, purpose, adapt)?;
    let client = Client::new(options(&args)?);
    let _entrances = open(&args, &client).await?;
    let current = Arc::new(Mutex::new(None::<Connection>));
    let (watched, shown) = (client.clone(), current.clone());
    let status = move || {
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Status::new(Role::Client, shown.as_slice(), &watched.flows())
    };
    let _answering = args.status.answer(Role::Client, status)?;
    service_manager::ready();
    #[cfg(target_os = "linux")]
    if let Some(name) = &args.tun.tun {
        let addresses = sessions.addresses(&args.url).await?;
        let mut sessions = sessions;
        sessions.become_way_out(addresses);
        let mut device = Device::open(name, &args.tun)?;
        let carrier = device.carry(&client).await?;
        let route = || device.route();
        let mut hangups = Hangups::new();
        return tokio::select! {
            ended = keep(&args, &sessions, &client, &current, route) => ended,
            error = carrier.ended() => Err(device_failed(name, &error)),
            // The terminal is closed: there is something to undo.
            () = hangups.next() => Err(Failure::other("interrupted")),
        };
    }
    keep(&args, &sessions, &client, &current, || Ok(())).await
}

/// Keeps a connection to the proxy, until it is not the right one, and shows it. Calls each time that
/// there is one.
async fn keep(
    args: &ProxyClient,
    sessions: &Sessions<'_>,
    client: &Client,
    current: &Mutex<Option<Connection>>,
    mut connected_again: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut retry = Retry::new(FOR_EVER, clock::now());
    let mut advanced = clock::now();
    loop {
        match sessions.connection(&args.url).await {
            Ok(connected) => {
                let connection = connected.connection;
                let show = |shown| {
                    *current.lock().unwrap_or_else(PoisonError::into_inner) = shown;
                };
                show(Some(connection.clone()));
                tracing::info!("connected to {}", args.url);
                connected_again()?;
                let ended = client.run(connection.clone()).await;
                let reason = match (connection.close_reason(), ended) {
                    (Some(reason), _) => reason.to_string(),
                    (None, Ok(error) | Err(error)) => error.to_string(),
                };
                show(None);
                sessions.give_up().await;
                tracing::warn!("the connection to the proxy is lost: {reason}; trying again");
                advanced = clock::now();
            }
            // Another time it would be no better.
            Err(failure) if matches!(failure.cause(), None | Some(Cause::Trust | Cause::File)) => {
                return Err(failure);
            }
            Err(failure) => tracing::warn!("{}; trying again", failure.message()),
        }
        let pause = retry.next(advanced, clock::now());
        tokio::time::sleep(pause.map_or(FOR_EVER, |(pause, _)| pause)).await;
    }
}

/// There is an entrance besides those that are ports.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unused_variables, reason = "there are devices on Linux only")
)]
fn has_device(args: &ProxyClient) -> bool {
    #[cfg(target_os = "linux")]
    return args.tun.tun.is_some();
    #[cfg(not(target_os = "linux"))]
    false
}

fn options(args: &ProxyClient) -> Result<ClientOptions, Failure> {
    let authority = args.url.authority().cloned();
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
    options.tcp_idle = Duration::from_secs(args.idle.tcp_idle);
    options.udp_idle = Duration::from_secs(args.idle.udp_idle);
    Ok(options)
}

/// Opens the entrances, and tells where they are.
async fn open(args: &ProxyClient, client: &Client) -> Result<Vec<Listener>, Failure> {
    let socks = args.socks.iter().map(|address| (Entrance::Socks, *address));
    let http = args.http.iter().map(|address| (Entrance::Http, *address));
    let forwards = args.forward.iter().cloned();
    let forwards = forwards.map(|Forward { entrance, listen }| (entrance, listen));
    let mut wanted: Vec<_> = socks.chain(http).chain(forwards).collect();
    #[cfg(target_os = "linux")]
    wanted.extend((args.tproxy.iter()).map(|address| (Entrance::Transparent, *address)));
    if wanted.is_empty() && !has_device(args) {
        wanted.push((Entrance::Socks, DEFAULT));
    }
    let mut open = Vec::new();
    for (entrance, address) in wanted {
        let kind = match &entrance {
            Entrance::Socks => "socks".to_owned(),
            Entrance::Http => "http".to_owned(),
            Entrance::Tcp(target) => format!("tcp to {target}"),
            Entrance::Udp(target) => format!("udp to {target}"),
            Entrance::Transparent => "tproxy".to_owned(),
        };
        let listener = client
            .listen(entrance.clone(), address)
            .await
            .map_err(|error| {
                let needs = match error.kind() {
                    ErrorKind::PermissionDenied if entrance == Entrance::Transparent => {
                        "; run mpquic as root, or with the capability CAP_NET_ADMIN"
                    }
                    _ => "",
                };
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
