//! `mpquic get`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use mpquic_tokio::{ClientConfig, Connection, Endpoint, VarInt};

use crate::args::{Get, Local};
use crate::download::Download;
use crate::failure::Failure;
use crate::report::Report;
use crate::serve::{CLOSE_TIME, all_protocols};
use crate::sink::Destination;
use crate::trust::{Trust, Verifier};

/// Port of `https` URLs that name none.
const DEFAULT_PORT: u16 = 443;
/// How long a server may take to complete the handshake.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Paths opened unless --paths says otherwise.
const MAX_PATHS: u32 = 8;

/// Fetches every URL, one after the other; one connection serves all those of a server in a row.
pub(crate) async fn run(args: Get) -> Result<(), Failure> {
    let destinations: Vec<_> = args
        .urls
        .iter()
        .map(|url| destination(&args, url))
        .collect::<Result<_, _>>()?;
    let trust = args.trust.trust();
    // Unusable certificates are worth an error before anything is fetched.
    Verifier::new(&trust)?;
    let mut session = None;
    let mut result = Ok(());
    for (url, destination) in args.urls.iter().zip(&destinations) {
        match get(&args, &trust, url, destination, &mut session).await {
            Ok(report) => tell(&args, &report, destination)?,
            Err(failure) => {
                failure.about(url).report();
                result = Err(Failure::Reported);
            }
        }
    }
    if let Some(session) = session {
        session.close().await;
    }
    result
}

async fn get(
    args: &Get,
    trust: &Trust,
    url: &Uri,
    destination: &Destination,
    session: &mut Option<Session>,
) -> Result<Report, Failure> {
    let mut download = Download::start(url, destination, args.quiet)?;
    let connection = match session.take().filter(|session| session.serves(url)) {
        Some(current) => {
            download.before = current.connection.path_stats();
            session.insert(current).connection.clone()
        }
        None => {
            let connected = Session::connect(args, trust, url).await?;
            session.insert(connected).connection.clone()
        }
    };
    let result = download.run(&connection).await;
    if connection.close_reason().is_some() {
        *session = None;
    }
    result
}

fn tell(args: &Get, report: &Report, destination: &Destination) -> Result<(), Failure> {
    if args.json {
        let json = serde_json::to_string(report).map_err(Failure::other)?;
        if *destination == Destination::Stdout {
            eprintln!("{json}");
        } else {
            println!("{json}");
        }
    } else if !args.quiet {
        let file = report.file.as_deref().unwrap_or("standard output");
        eprintln!("{file}: {}", report.summary());
        eprint!("{}", report.table());
    }
    Ok(())
}

/// Where a URL's file goes.
fn destination(args: &Get, url: &Uri) -> Result<Destination, Failure> {
    if let Some(output) = &args.output {
        if output == Path::new("-") {
            return Ok(Destination::Stdout);
        }
        if args.urls.len() > 1 {
            let message = "-o names one file, but there are several URLs; use --output-dir";
            return Err(Failure::usage(message));
        }
        return Ok(Destination::File(output.clone()));
    }
    let last = url.path().rsplit('/').next().unwrap_or_default();
    if matches!(last, "" | "." | "..") {
        let message = format!("{url} names no file to write to; name one with -o");
        return Err(Failure::usage(message));
    }
    let directory = args.output_dir.clone().unwrap_or_default();
    if args.output_dir.is_some() && !directory.is_dir() {
        let message = format!("--output-dir {}: no such directory", directory.display());
        return Err(Failure::usage(message));
    }
    Ok(Destination::File(directory.join(PathBuf::from(last))))
}

/// A connection, and what it is good for.
struct Session {
    endpoint: Endpoint,
    connection: Connection,
    authority: String,
}

impl Session {
    fn serves(&self, url: &Uri) -> bool {
        url.authority()
            .is_some_and(|authority| authority.as_str() == self.authority)
            && self.connection.close_reason().is_none()
    }

    async fn connect(args: &Get, trust: &Trust, url: &Uri) -> Result<Self, Failure> {
        let authority = url
            .authority()
            .ok_or_else(|| Failure::usage("the URL names no host"))?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let addresses = if args.server_addr.is_empty() {
            resolve(host, authority.port_u16().unwrap_or(DEFAULT_PORT)).await?
        } else {
            args.server_addr.clone()
        };
        let mut failure = Failure::other(format!("{host} has no address"));
        for address in addresses {
            let connected = connect_to(args, trust, address, host).await;
            match connected {
                Ok((endpoint, connection)) => {
                    warn_if_single_path(args, &connection);
                    return Ok(Self {
                        endpoint,
                        connection,
                        authority: authority.to_string(),
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn close(self) {
        self.connection.close(VarInt::from_u32(0), b"done");
        // The server should hear of it, but need not.
        let _ = tokio::time::timeout(CLOSE_TIME, self.endpoint.wait_idle()).await;
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses
        .map_err(|error| Failure::other(format!("cannot find the address of {host}: {error}")))?;
    Ok(addresses.collect())
}

async fn connect_to(
    args: &Get,
    trust: &Trust,
    address: SocketAddr,
    host: &str,
) -> Result<(Endpoint, Connection), Failure> {
    let verifier = Verifier::new(trust)?;
    let mut transport = args.policy.transport(args.paths.unwrap_or(MAX_PATHS));
    args.qlog.apply(&mut transport)?;
    let config = ClientConfig::new(Arc::new(verifier.tls(&all_protocols())?))
        .transport(transport)
        .server_addresses(args.server_addr.clone());
    let endpoint = endpoint(args, address)?;
    let connecting = endpoint
        .connect_with(config, address, host)
        .map_err(|error| Failure::other(format!("cannot connect to {address}: {error}")))?;
    match tokio::time::timeout(CONNECT_TIME, connecting).await {
        Ok(Ok(connection)) => Ok((endpoint, connection)),
        Ok(Err(error)) => Err(match verifier.refusal() {
            Some(refusal) => Failure::other(refusal),
            None => Failure::other(format!("cannot connect to {address}: {error}")),
        }),
        Err(_) => {
            let seconds = CONNECT_TIME.as_secs();
            Err(Failure::other(format!(
                "no answer from {address} for {seconds} s; is a QUIC server there, and does a \
                 firewall let UDP through?"
            )))
        }
    }
}

/// Sockets for the local addresses asked for, or for every interface.
fn endpoint(args: &Get, server: SocketAddr) -> Result<Endpoint, Failure> {
    let mut builder = Endpoint::builder();
    for local in &args.local {
        builder = match local {
            Local::Address(ip) => builder.bind(SocketAddr::new(*ip, 0)),
            Local::Interface(name) => builder.bind_interface(name),
        };
    }
    // A socket bound to an interface does not reach servers on this very machine.
    if args.local.is_empty()
        && !is_ours(server.ip())
        && let Ok(endpoint) = Endpoint::builder().all_interfaces().build()
    {
        return Ok(endpoint);
    }
    if args.local.is_empty() {
        builder = builder.bind(SocketAddr::new(unspecified(server.ip()), 0));
    }
    builder
        .build()
        .map_err(|error| Failure::other(format!("cannot use the local addresses: {error}")))
}

fn unspecified(family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// True for addresses of this machine.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn warn_if_single_path(args: &Get, connection: &Connection) {
    if !connection.is_multipath() && args.paths != Some(1) && !args.quiet {
        eprintln!("mpquic: the server does not support multipath; going on with one path");
    }
}
