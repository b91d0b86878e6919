//! TLS by s2n-tls, the default of s2n-quic. This module keeps session tickets, because s2n-quic
//! leaves them to applications.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use compare_peer::{Options, Result, Workload, tls};
use s2n_quic::provider::tls::s2n_tls::callbacks::ConnectionFuture;
use s2n_quic::provider::tls::s2n_tls::callbacks::{
    SessionTicket, SessionTicketCallback, VerifyHostNameCallback,
};
use s2n_quic::provider::tls::s2n_tls::config::ConnectionInitializer;
use s2n_quic::provider::tls::s2n_tls::connection::Connection;
use s2n_quic::provider::tls::s2n_tls::error::Error;
use s2n_quic::provider::tls::s2n_tls::{Client, Server};

pub(crate) fn server(workload: Workload, options: &Options) -> Result<Server> {
    let certificate = options.credentials.join(tls::CERTIFICATE);
    let key = options.credentials.join(tls::KEY);
    let mut builder = Server::builder()
        .with_certificate(certificate.as_path(), key.as_path())?
        .with_application_protocols([tls::ALPN])?;
    if workload == Workload::Resumed {
        let config = builder.config_mut();
        config.enable_session_tickets(true)?;
        // The bytes may be easy to guess, because no attacker takes part.
        config.add_session_ticket_key(b"tickets", &[0x5a; 32], SystemTime::now())?;
    }
    Ok(builder.build()?)
}

pub(crate) fn client(workload: Workload, options: &Options) -> Result<Client> {
    let authority = options.credentials.join(tls::AUTHORITY);
    let mut builder = Client::builder()
        .with_empty_trust_store()?
        .with_certificate(authority.as_path())?
        .with_application_protocols([tls::ALPN])?;
    if workload == Workload::Resumed {
        let ticket = Ticket::default();
        builder = builder.with_verify_host_name_callback(Counting)?;
        let config = builder.config_mut();
        config.set_session_ticket_callback(ticket.clone())?;
        config.set_connection_initializer(ticket)?;
    }
    Ok(builder.build()?)
}

/// Counts full handshakes: s2n-tls checks a name only in them.
struct Counting;

impl VerifyHostNameCallback for Counting {
    fn verify_host_name(&self, name: &str) -> bool {
        tls::count_verified();
        name == tls::SERVER_NAME
    }
}

/// The last session ticket: a server sends one ticket, which resumes many connections.
#[derive(Clone, Default)]
struct Ticket(Arc<Mutex<Option<Vec<u8>>>>);

impl Ticket {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionTicketCallback for Ticket {
    fn on_session_ticket(&self, _: &mut Connection, ticket: &SessionTicket) {
        let mut data = vec![0; ticket.len().unwrap_or_default()];
        if ticket.data(&mut data).is_ok() {
            *self.lock() = Some(data);
        }
    }
}

impl ConnectionInitializer for Ticket {
    fn initialize_connection(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<Pin<Box<dyn ConnectionFuture>>>, Error> {
        if let Some(ticket) = &*self.lock() {
            connection.set_session_ticket(ticket)?;
        }
        Ok(None)
    }
}
