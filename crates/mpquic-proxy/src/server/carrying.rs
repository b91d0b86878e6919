//! The flow of a request that was let in: the way to the target, the answer, and the data of both
//! directions.

use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Response;
#[cfg(target_os = "linux")]
use mpquic_h3::DatagramSender;
use mpquic_h3::h3::server::RequestStream;
use mpquic_h3::{RecvStream, SendStream};

use super::accounts::Counted;
use super::bound::Bound;
#[cfg(target_os = "linux")]
use super::ip;
use super::refusal::Refused;
use super::reverse::Picked;
use super::{Call, Open, Stream, outwards, udp};
use crate::bound as bound_udp;
use crate::copies::UdpSender;
use crate::flow_table::Flow;
use crate::ip_scope::IpScope;
use crate::relay::{Unchanged, relay};
use crate::shares::Taker;
use crate::target::Target;

type Halves = (
    RequestStream<SendStream<Bytes>, Bytes>,
    RequestStream<RecvStream, Bytes>,
);

impl Call<'_> {
    pub(super) async fn tcp(
        &self,
        (target, names): (&Target, &outwards::Names<'_>),
        mut stream: Stream,
        flow: &Flow,
    ) -> Result<(), (Refused, Stream)> {
        let shared = &self.connection.shared;
        let options = &self.options;
        let connecting = async {
            let addresses = outwards::addresses(target, names, &options.rules).await?;
            outwards::connect(&addresses, names.deadline).await
        };
        let connected = tokio::select! {
            connected = connecting => connected,
            // The client has cancelled the request.
            _ = self.watch.stopped() => return Ok(()),
        };
        let tcp = match connected {
            Ok(tcp) => tcp,
            Err(refused) => return Err((refused, stream)),
        };
        let _open = Open::new(&shared.open_tcp);
        if stream.send_response(Response::new(())).await.is_ok() {
            let halves: Halves = stream.split();
            let passing = (flow, &Unchanged);
            // The round trip to a target may be long, and needs the kernel's own size of the queue.
            let ended = relay((tcp, None), halves, &self.watch, options.tcp_idle, passing).await;
            tracing::debug!(%target, ?ended, "a TCP flow is over");
        }
        Ok(())
    }

    pub(super) async fn udp(
        &self,
        (target, names): (&Target, &outwards::Names<'_>),
        mut stream: Stream,
        flow: &Arc<Flow>,
    ) -> Result<(), (Refused, Stream)> {
        let shared = &self.connection.shared;
        let options = &self.options;
        let opening = async {
            let addresses = outwards::addresses(target, names, &options.rules).await?;
            outwards::udp_socket(&addresses).await
        };
        let socket = match opening.await {
            Ok(socket) => socket,
            Err(refused) => return Err((refused, stream)),
        };
        let _open = Open::new(&shared.open_udp);
        let id = stream.id();
        let joined = udp::Joined::new(socket, flow.clone());
        // Registered before the answer: a client may send payloads as soon as the answer arrives.
        let _registered = self.connection.demux.register(id, joined.clone());
        let mut response = Response::new(());
        response
            .headers_mut()
            .insert(udp::CAPSULE_PROTOCOL, udp::TRUE);
        self.numbers.offer(response.headers_mut());
        if stream.send_response(response).await.is_ok() {
            let halves: Halves = stream.split();
            let dropped = &shared.dropped_payloads;
            let connection = &self.connection.connection;
            let sender = UdpSender::new(connection, id, flow.clone(), self.numbers);
            let idle = options.udp_idle;
            (joined.run(&sender, halves, &self.watch, idle, dropped)).await;
        }
        Ok(())
    }

    /// A port for payloads to and from many peers.
    pub(super) async fn bound(
        &self,
        open: &Counted,
        mut stream: Stream,
        flow: &Arc<Flow>,
    ) -> Result<(), (Refused, Stream)> {
        let shared = &self.connection.shared;
        let how = (self.numbers, self.filtering);
        let opening = Bound::open(self.options.clone(), flow.clone(), open.newcomers(), how);
        let bound = match opening.await {
            Ok(bound) => bound,
            Err(error) => return Err((outwards::refused(&error), stream)),
        };
        let _open = Open::new(&shared.open_udp);
        let id = stream.id();
        // Registered before the answer: a client may send payloads as soon as the answer arrives.
        let _registered = self.connection.demux.register(id, bound.clone());
        let mut response = Response::new(());
        let fields = response.headers_mut();
        fields.insert(udp::CAPSULE_PROTOCOL, udp::TRUE);
        bound_udp::offer(fields);
        self.numbers.offer(fields);
        self.filtering.offer(fields);
        let own = self.connection.connection.local_ip();
        if let Some(address) = bound.public_address(own) {
            fields.insert(bound_udp::PUBLIC_ADDRESS, address);
        }
        if stream.send_response(response).await.is_ok() {
            let halves: Halves = stream.split();
            let connection = &self.connection.connection;
            let sender = UdpSender::new(connection, id, flow.clone(), self.numbers);
            let dropped = &shared.dropped_payloads;
            bound.run(&sender, halves, &self.watch, dropped).await;
        }
        Ok(())
    }

    /// A TCP port of this machine that leads to the client.
    pub(super) async fn listen(
        &self,
        at: SocketAddr,
        owner: &Taker,
        mut stream: Stream,
    ) -> Result<(), (Refused, Stream)> {
        let shared = &self.connection.shared;
        let serving = match shared.ports.open(at, owner) {
            Ok(serving) => serving,
            Err(refused) => return Err((refused, stream)),
        };
        let mut response = Response::new(());
        let fields = response.headers_mut();
        fields.insert(udp::CAPSULE_PROTOCOL, udp::TRUE);
        if stream.send_response(response).await.is_ok() {
            let halves: Halves = stream.split();
            let accounts = (&shared.accounts, self.options.max_flows);
            serving.run(accounts, halves, &self.watch).await;
        }
        Ok(())
    }

    /// A connection to such a port.
    pub(super) async fn accept(
        &self,
        picked: &Mutex<Option<Picked>>,
        mut stream: Stream,
        flow: &Flow,
    ) -> Result<(), (Refused, Stream)> {
        let picked = picked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(tcp) = picked.and_then(Picked::into_connection) else {
            return Err((Refused::NOT_FOUND, stream));
        };
        let _open = Open::new(&self.connection.shared.open_tcp);
        if stream.send_response(Response::new(())).await.is_ok() {
            let halves: Halves = stream.split();
            let (idle, passing) = (self.options.tcp_idle, (flow, &Unchanged));
            let ended = relay((tcp, None), halves, &self.watch, idle, passing).await;
            tracing::debug!(?ended, "a TCP flow to a client is over");
        } else {
            let _ = tcp.set_zero_linger();
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) async fn ip(
        &self,
        _scope: IpScope,
        stream: Stream,
        _flow: &Arc<Flow>,
    ) -> Result<(), (Refused, Stream)> {
        Err((Refused::PROTOCOL, stream))
    }

    #[cfg(target_os = "linux")]
    pub(super) async fn ip(
        &self,
        scope: IpScope,
        mut stream: Stream,
        flow: &Arc<Flow>,
    ) -> Result<(), (Refused, Stream)> {
        let shared = &self.connection.shared;
        let options = &self.options;
        let identifier = shared.next_identifier.fetch_add(1, Ordering::Relaxed);
        let counters = (flow.clone(), shared.dropped_payloads.clone());
        let opened = ip::Outside::open(scope, options.rules.clone(), counters, identifier);
        let outside = match opened {
            Ok(outside) => outside,
            Err(error) => {
                shared.no_icmp.call_once(|| {
                    tracing::warn!(
                        "no ping for clients, for there are no sockets for ICMP: {error}; \
                         `sysctl net.ipv4.ping_group_range='0 2147483647'` lets everybody have them, and \
                         the capability CAP_NET_RAW this process"
                    );
                });
                return Err((Refused::NO_ICMP, stream));
            }
        };
        let _open = Open::new(&shared.open_ip);
        let id = stream.id();
        // Registered before the answer: a client may send packets as soon as the answer arrives.
        let _registered = self.connection.demux.register(id, outside.clone());
        let mut response = Response::new(());
        let fields = response.headers_mut();
        fields.insert(udp::CAPSULE_PROTOCOL, udp::TRUE);
        if stream.send_response(response).await.is_ok() {
            let halves: Halves = stream.split();
            let sender = DatagramSender::new(&self.connection.connection, id);
            (outside.run(&sender, halves, &self.watch, options.udp_idle)).await;
        }
        Ok(())
    }
}
