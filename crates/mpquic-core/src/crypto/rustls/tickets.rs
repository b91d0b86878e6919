//! Session tickets. A ticket is valid in one QUIC version (RFC 9369 section 5), and only while the
//! server's limits are no lower than at its issue (RFC 9000 section 7.4.1).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::server::{ProducesTickets, StoresServerSessions};

use crate::version::Version;
use crate::wire::transport_parameters::{TransportParameters, ZERO_RTT_LIMITS};

/// A client's tickets of all versions.
pub(super) struct ClientTickets([Arc<ClientSessionMemoryCache>; Version::ALL.len()]);

impl ClientTickets {
    /// Keeps `count` tickets for each version.
    pub(super) fn new(count: usize) -> Self {
        Self(Version::ALL.map(|_| Arc::new(ClientSessionMemoryCache::new(count))))
    }

    /// The tickets of a version.
    pub(super) fn of(&self, version: Version) -> Arc<ClientSessionMemoryCache> {
        let [v1, v2] = &self.0;
        match version {
            Version::V1 => v1.clone(),
            Version::V2 => v2.clone(),
        }
    }
}

/// The tickets of one connection's version. The version may change before the first ticket arrives.
pub(super) struct ConnectionTickets {
    all: Arc<ClientTickets>,
    version: AtomicUsize,
}

impl ConnectionTickets {
    pub(super) fn new(all: Arc<ClientTickets>, version: Version) -> Self {
        let sessions = Self {
            all,
            version: AtomicUsize::default(),
        };
        sessions.set_version(version);
        sessions
    }

    pub(super) fn set_version(&self, version: Version) {
        let index = Version::ALL.iter().position(|known| *known == version);
        self.version
            .store(index.unwrap_or_default(), Ordering::Relaxed);
    }

    fn current(&self) -> Arc<ClientSessionMemoryCache> {
        let index = self.version.load(Ordering::Relaxed);
        let version = Version::ALL.get(index).copied().unwrap_or_default();
        self.all.of(version)
    }
}

impl fmt::Debug for ConnectionTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionTickets")
    }
}

impl ClientSessionStore for ConnectionTickets {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.current().set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.current().kx_hint(server_name)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        ticket: Tls13ClientSessionValue,
    ) {
        self.current().insert_tls13_ticket(server_name, ticket);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.current().take_tls13_ticket(server_name)
    }
}

/// The QUIC version and the limits on which 0-RTT data relies. A server stores them with each
/// session; later limits may be higher, never lower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    version: Version,
    limits: [u64; ZERO_RTT_LIMITS],
}

impl Terms {
    pub(super) fn new(version: Version, parameters: &TransportParameters) -> Self {
        Self {
            version,
            limits: parameters.zero_rtt_limits(),
        }
    }

    /// A session with its terms behind it.
    fn append_to(&self, session: &[u8]) -> Vec<u8> {
        let limits = self.limits.iter().flat_map(|limit| limit.to_be_bytes());
        let version = self.version.to_u32().to_be_bytes();
        session
            .iter()
            .copied()
            .chain(version)
            .chain(limits)
            .collect()
    }

    /// The session without its terms, if the server still keeps to them.
    fn strip_from(&self, mut session: Vec<u8>) -> Option<Vec<u8>> {
        let (rest, limits) = session.split_last_chunk::<{ 8 * ZERO_RTT_LIMITS }>()?;
        let (rest, version) = rest.split_last_chunk()?;
        let length = rest.len();
        let (limits, _) = limits.as_chunks();
        let limits = limits.iter().map(|limit| u64::from_be_bytes(*limit));
        let keeps = limits.zip(self.limits).all(|(before, now)| before <= now);
        let is_ours = u32::from_be_bytes(*version) == self.version.to_u32();
        session.truncate(length);
        (keeps && is_ours).then_some(session)
    }
}

/// A server's sessions in a store for all, with the terms of one connection.
#[derive(Debug)]
pub(super) struct ServerSessions {
    pub(super) all: Arc<dyn StoresServerSessions>,
    pub(super) terms: Terms,
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.all.put(key, self.terms.append_to(&value))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.terms.strip_from(self.all.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.terms.strip_from(self.all.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.all.can_cache()
    }
}

/// Seals a server's sessions into tickets, with the terms of one connection.
#[derive(Debug)]
pub(super) struct ServerTickets {
    pub(super) all: Arc<dyn ProducesTickets>,
    pub(super) terms: Terms,
}

impl ProducesTickets for ServerTickets {
    fn enabled(&self) -> bool {
        self.all.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.all.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.all.encrypt(&self.terms.append_to(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.terms.strip_from(self.all.decrypt(cipher)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ticketer without encryption.
    #[derive(Debug)]
    struct Open;

    impl ProducesTickets for Open {
        fn enabled(&self) -> bool {
            true
        }

        fn lifetime(&self) -> u32 {
            3600
        }

        fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
            Some(plain.to_vec())
        }

        fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
            Some(cipher.to_vec())
        }
    }

    fn tickets(version: Version, initial_max_data: u64) -> ServerTickets {
        let parameters = TransportParameters {
            initial_max_data,
            ..TransportParameters::default()
        };
        ServerTickets {
            all: Arc::new(Open),
            terms: Terms::new(version, &parameters),
        }
    }

    /// A client offers the key share that the server took last, so that it need not ask again.
    #[test]
    fn the_servers_choice_is_remembered_for_each_version() {
        let all = Arc::new(ClientTickets::new(4));
        let tickets = ConnectionTickets::new(all.clone(), Version::V1);
        let name = ServerName::try_from("localhost").unwrap();
        assert_eq!(tickets.kx_hint(&name), None);
        tickets.set_kx_hint(name.clone(), NamedGroup::secp384r1);
        assert_eq!(tickets.kx_hint(&name), Some(NamedGroup::secp384r1));
        let others = ConnectionTickets::new(all, Version::V2);
        assert_eq!(others.kx_hint(&name), None);
    }

    /// RFC 9000 section 7.4.1 and RFC 9369 section 5.
    #[test]
    fn a_ticket_is_good_for_its_version_and_for_no_lower_limits() {
        let ticket = tickets(Version::V1, 1000).encrypt(b"session").unwrap();
        let taken = |version, limit| tickets(version, limit).decrypt(&ticket);
        assert_eq!(taken(Version::V1, 1000).as_deref(), Some(&b"session"[..]));
        assert_eq!(taken(Version::V1, 1001).as_deref(), Some(&b"session"[..]));
        assert_eq!(taken(Version::V1, 999), None);
        assert_eq!(taken(Version::V2, 1000), None);
        // A ticket from a server that stored no terms.
        assert_eq!(tickets(Version::V1, 1000).decrypt(b"session"), None);
    }
}
