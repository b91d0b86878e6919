//! tquic, with a loop of our own, because tquic has none. Sockets coalesce in both directions (GSO,
//! GRO).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use compare_peer::event::{Application, Client, Server, Udp};
use compare_peer::options::{IDLE_TIMEOUT, MAX_STREAMS};
use compare_peer::{Options, Program, Result, Role, Workload, ready, tls};
use tquic::{Config, CongestionControlAlgorithm, Endpoint, PacketInfo, TlsConfig};

use handler::{Handler, Sender, Shared};

mod handler;

fn lacks(workload: Workload, options: &Options) -> Option<&'static str> {
    if options.defaults {
        return Some("no defaults that transfer anything");
    }
    match workload {
        Workload::Datagrams => Some("no DATAGRAM frames"),
        Workload::TwoPaths | Workload::FourPaths => Some("several paths by an early draft only"),
        _ => None,
    }
}

fn main() -> Result<()> {
    let Program {
        workload,
        options,
        role,
        ..
    } = Program::parse(lacks);
    let application: Box<dyn Application> = match role {
        Role::Server => Box::<Server>::default(),
        Role::Client { .. } => Box::new(Client::new(workload, &options)),
    };
    let shared = Rc::new(RefCell::new(Shared::new(application)));
    let udp = Rc::new(RefCell::new(Udp::bind(options.socket(role), &options)?));
    let endpoint = Endpoint::new(
        Box::new(config(&options, role)?),
        matches!(role, Role::Server),
        Box::new(Handler(shared.clone())),
        Rc::new(Sender::new(udp.clone(), &options)),
    );
    if matches!(role, Role::Server) {
        ready(udp.borrow().address());
    }
    let server = match role {
        Role::Server => None,
        Role::Client { port } => Some(options.server(port)),
    };
    run(endpoint, &udp, &shared, server, workload)
}

fn config(options: &Options, role: Role) -> Result<Config> {
    let file = |name| tls::file_name(options, name);
    let protocols = vec![tls::ALPN.to_vec()];
    let tls = match role {
        Role::Server => {
            let (certificate, key) = (file(tls::CERTIFICATE)?, file(tls::KEY)?);
            TlsConfig::new_server_config(&certificate, &key, protocols, false)?
        }
        Role::Client { .. } => {
            let mut tls = TlsConfig::new_client_config(protocols, false)?;
            tls.set_ca_certs(&file(tls::AUTHORITY)?)?;
            tls.set_verify(true);
            tls
        }
    };
    let mut config = Config::new()?;
    config.set_tls_config(tls);
    config.set_max_idle_timeout(IDLE_TIMEOUT.as_millis().try_into()?);
    let window = options.window_bytes();
    config.set_initial_max_data(window);
    config.set_max_connection_window(window);
    config.set_initial_max_stream_data_bidi_local(window);
    config.set_initial_max_stream_data_bidi_remote(window);
    config.set_max_stream_window(window);
    config.set_initial_max_streams_bidi(MAX_STREAMS.into());
    // The size to discover.
    config.set_send_udp_payload_size(options.datagram.into());
    config.set_congestion_control_algorithm(CongestionControlAlgorithm::Cubic);
    Ok(config)
}

/// Runs until the application is done: a client of `server`; without `server`, a server.
fn run(
    mut endpoint: Endpoint,
    udp: &RefCell<Udp>,
    shared: &RefCell<Shared>,
    server: Option<SocketAddr>,
    workload: Workload,
) -> Result<()> {
    let local = udp.borrow().address();
    loop {
        while let Some(server) = server
            && shared.borrow_mut().application.connect()
        {
            let session = shared.borrow().session.clone();
            let session = session.filter(|_| workload == Workload::Resumed);
            let name = Some(tls::SERVER_NAME);
            endpoint.connect(local, server, name, session.as_deref(), None, None)?;
        }
        let time = Instant::now();
        udp.borrow_mut().receive(|src, datagram| {
            let info = PacketInfo {
                src,
                dst: local,
                time,
            };
            // A datagram for no connection changes nothing.
            let _ = endpoint.recv(datagram, &info);
            Ok(())
        })?;
        endpoint.on_timeout(Instant::now());
        endpoint.process_connections()?;
        let mut shared = shared.borrow_mut();
        shared.check()?;
        if shared.application.is_done()? {
            return Ok(());
        }
        let timeout = endpoint.timeout().map(|time| Instant::now() + time);
        let deadline = timeout.into_iter().chain(shared.application.deadline());
        udp.borrow().wait(deadline.min())?;
    }
}
