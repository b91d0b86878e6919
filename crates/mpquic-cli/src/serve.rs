//! `mpquic serve`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpquic_tokio::{Endpoint, Incoming, ServerConfig, VarInt};

use crate::args::{Alpn, Serve};
use crate::failure::Failure;
use crate::files::{Directory, Source};
use crate::hq;
use crate::trust::Fingerprint;

/// Port used when none is named.
const DEFAULT_PORT: u16 = 4433;
/// How long a closing server waits for its clients to hear of it.
pub(crate) const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Runs until interrupted.
pub(crate) async fn run(args: Serve) -> Result<(), Failure> {
    let directory = Directory::new(&args.dir)
        .map_err(|error| Failure::usage(format!("cannot serve {}: {error}", args.dir.display())))?;
    let alpn: Vec<_> = args.alpn.iter().map(|alpn| alpn.bytes()).collect();
    let (config, fingerprint) = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => (with_certificate(cert, key, &alpn)?, None),
        _ => {
            let (config, fingerprint) = self_signed(&args.listen, &alpn)?;
            (config, Some(fingerprint))
        }
    };
    let mut transport = args.policy.transport(args.max_paths);
    args.qlog.apply(&mut transport)?;
    let config = config.transport(transport);
    let interrupted = interrupted();
    let endpoint = listen(&args.listen, config)?;
    for address in endpoint.local_addrs() {
        println!("listening on {address}");
    }
    if let Some(fingerprint) = fingerprint {
        println!("certificate {fingerprint}");
        let port = endpoint
            .local_addr()
            .map_or(DEFAULT_PORT, |local| local.port());
        eprintln!(
            "The certificate is self-signed. Fetch with:\n  \
             mpquic get --pin {fingerprint} https://HOST:{port}/FILE"
        );
    }
    tokio::select! {
        () = accept(&endpoint, Arc::new(directory), args.retry) => {}
        () = interrupted => {}
    }
    endpoint.close(VarInt::from_u32(0), b"the server ends");
    let _ = tokio::time::timeout(CLOSE_TIME, endpoint.wait_idle()).await;
    Ok(())
}

/// Serves every client on a task of its own until the endpoint is closed. With `retry`, clients
/// have to prove their address first.
pub(crate) async fn accept(endpoint: &Endpoint, source: Arc<dyn Source>, retry: bool) {
    while let Some(incoming) = endpoint.accept().await {
        if retry && !incoming.remote_address_validated() {
            if let Some(client) = incoming.remote_address() {
                tracing::info!("{client}: sent a Retry");
            }
            // Fails for validated addresses only.
            let _ = incoming.retry();
            continue;
        }
        tokio::spawn(serve_client(incoming, source.clone()));
    }
}

async fn serve_client(incoming: Incoming, source: Arc<dyn Source>) {
    let client = incoming.remote_address();
    let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::info!("{client}: no connection: {error}");
            return;
        }
    };
    let multipath = if connection.is_multipath() {
        "multipath"
    } else {
        "no multipath"
    };
    tracing::info!("{client}: connected, {multipath}");
    // One protocol so far; the next is chosen here, by the ALPN that was negotiated.
    let reason = hq::serve(connection, source).await;
    tracing::info!("{client}: {reason}");
}

fn listen(addresses: &[SocketAddr], config: ServerConfig) -> Result<Endpoint, Failure> {
    let bind = |addresses: &[SocketAddr]| {
        let builder = Endpoint::builder().server(config.clone());
        let builder = addresses
            .iter()
            .fold(builder, |builder, address| builder.bind(*address));
        builder.build()
    };
    let endpoint = if addresses.is_empty() {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT));
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT));
        // Where IPv6 is off.
        bind(&[any]).or_else(|_| bind(&[v4]))
    } else {
        bind(addresses)
    };
    endpoint
        .map_err(|error| Failure::other(format!("cannot listen: {error}; try another --listen")))
}

fn with_certificate(chain: &Path, key: &Path, alpn: &[&[u8]]) -> Result<ServerConfig, Failure> {
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
    };
    ServerConfig::with_pem(&read(chain)?, &read(key)?, alpn).map_err(|error| {
        let (chain, key) = (chain.display(), key.display());
        Failure::usage(format!("cannot use --cert {chain} --key {key}: {error}"))
    })
}

/// A new certificate for the addresses listened on.
pub(crate) fn self_signed(
    addresses: &[SocketAddr],
    alpn: &[&[u8]],
) -> Result<(ServerConfig, Fingerprint), Failure> {
    let mut names = vec!["localhost".to_owned()];
    names.extend(addresses.iter().map(|address| address.ip().to_string()));
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (config, certificate) = ServerConfig::self_signed(&names, alpn).map_err(Failure::other)?;
    Ok((config, Fingerprint::of(&certificate)))
}

/// The protocols the tool speaks, as ALPN names them.
pub(crate) fn all_protocols() -> Vec<&'static [u8]> {
    vec![Alpn::HqInterop.bytes()]
}

/// Resolves when the user or the system asks the process to end. From the call on, not from the
/// first poll, such a request no longer ends the process by itself.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        [SignalKind::interrupt(), SignalKind::terminate()].map(signal)
    };
    async move {
        #[cfg(unix)]
        if let [Ok(mut interrupt), Ok(mut terminate)] = signals {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        // Without a handler the system ends the process itself.
        let _ = tokio::signal::ctrl_c().await;
    }
}
