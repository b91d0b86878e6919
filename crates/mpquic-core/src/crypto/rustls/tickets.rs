//! Session tickets, each good for one version of QUIC (RFC 9369 section 5).

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

/// A client's tickets of all versions.
pub(super) struct ClientTickets([Arc<ClientSessionMemoryCache>; Version::ALL.len()]);

impl ClientTickets {
    /// Keeps so many tickets for each version.
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

/// Tickets for one connection: those of its version, which may change before any arrive.
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

/// A server's sessions of one version, in a store for all.
#[derive(Debug)]
pub(super) struct ServerSessions {
    pub(super) all: Arc<dyn StoresServerSessions>,
    pub(super) version: Version,
}

impl ServerSessions {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.version.to_u32().to_be_bytes(), key].concat()
    }
}

impl StoresServerSessions for ServerSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.all.put(self.key(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.all.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.all.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        self.all.can_cache()
    }
}

/// Seals a server's sessions into tickets of one version.
#[derive(Debug)]
pub(super) struct ServerTickets {
    pub(super) all: Arc<dyn ProducesTickets>,
    pub(super) version: Version,
}

impl ProducesTickets for ServerTickets {
    fn enabled(&self) -> bool {
        self.all.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.all.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let version = self.version.to_u32().to_be_bytes();
        self.all.encrypt(&[plain, &version].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let mut plain = self.all.decrypt(cipher)?;
        let (rest, version) = plain.split_last_chunk()?;
        let length = rest.len();
        let is_ours = u32::from_be_bytes(*version) == self.version.to_u32();
        plain.truncate(length);
        is_ours.then_some(plain)
    }
}
