//! quiche, with a loop of our own, because quiche has none. Sockets coalesce in both directions
//! (GSO, GRO), and bytes that servers write are not copied.

use compare_peer::event::{Client, Server};
use compare_peer::options::{IDLE_TIMEOUT, MAX_STREAMS};
use compare_peer::{Options, Program, Result, Role, Workload, ready, tls};
use quiche::{Config, PROTOCOL_VERSION};

use endpoint::Endpoint;

mod endpoint;
mod http3;
mod link;
mod table;

/// Unidirectional streams of HTTP/3, and bytes on each of them.
const HTTP3_STREAMS: u64 = 8;
const HTTP3_WINDOW: u64 = 64 << 10;
/// DATAGRAM frames queued in either direction: a megabyte of them.
const DATAGRAM_QUEUE: usize = 1000;

fn lacks(workload: Workload, options: &Options) -> Option<&'static str> {
    if options.defaults {
        return Some("no defaults that transfer anything");
    }
    if options.http3 && workload == Workload::Datagrams {
        return Some("not over HTTP/3");
    }
    (workload.paths() > 1).then_some("one path at a time only")
}

fn main() -> Result<()> {
    let Program {
        workload,
        options,
        role,
        ..
    } = Program::parse(lacks);
    let config = config(workload, &options, role)?;
    match role {
        Role::Server => {
            let mut endpoint = Endpoint::bind(config, None, workload, &options)?;
            ready(endpoint.address());
            endpoint.run(&mut Server::default())
        }
        Role::Client { port } => {
            let server = Some(options.server(port));
            let mut endpoint = Endpoint::bind(config, server, workload, &options)?;
            endpoint.run(&mut Client::new(workload, &options))
        }
    }
}

fn config(workload: Workload, options: &Options, role: Role) -> Result<Config> {
    let mut config = Config::new(PROTOCOL_VERSION)?;
    let file = |name| tls::file_name(options, name);
    match role {
        Role::Server => {
            config.load_cert_chain_from_pem_file(&file(tls::CERTIFICATE)?)?;
            config.load_priv_key_from_pem_file(&file(tls::KEY)?)?;
        }
        Role::Client { .. } => {
            config.load_verify_locations_from_file(&file(tls::AUTHORITY)?)?;
            config.verify_peer(true);
        }
    }
    config.set_curves_list("X25519")?;
    config.set_application_protos(&[tls::ALPN])?;
    config.set_max_idle_timeout(IDLE_TIMEOUT.as_millis().try_into()?);
    let window = options.window_bytes();
    config.set_initial_max_data(window);
    config.set_max_connection_window(window);
    config.set_initial_max_stream_data_bidi_local(window);
    config.set_initial_max_stream_data_bidi_remote(window);
    config.set_max_stream_window(window);
    config.set_initial_max_streams_bidi(MAX_STREAMS.into());
    if options.http3 {
        config.set_initial_max_streams_uni(HTTP3_STREAMS);
        config.set_initial_max_stream_data_uni(HTTP3_WINDOW);
    }
    // The connection starts with this size, without discovery.
    config.set_max_send_udp_payload_size(options.datagram.into());
    config.set_cc_algorithm(quiche::CongestionControlAlgorithm::CUBIC);
    config.set_disable_active_migration(true);
    if workload == Workload::Datagrams {
        config.enable_dgram(true, DATAGRAM_QUEUE, DATAGRAM_QUEUE);
    }
    Ok(config)
}
