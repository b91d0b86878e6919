//! [`SharedTickets`]: session tickets that every server of a fleet can open.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use quinn_proto::{StdSystemTime, TimeSource};
use rustls::crypto::SecureRandom;
use rustls::server::ProducesTickets;

use super::suites::provider;
use crate::crypto::tokens::{TokenKey, is_fresh, put_time, take_time};

/// Seals TLS sessions into tickets that each server with the same secret opens: a returning client
/// resumes its session at any of them, also after a restart.
///
/// Guard the secret like the private key of a certificate: with it, an attacker can pose as the
/// server to clients that resume a session. Past connections stay confidential, because each
/// connection has its own key exchange.
///
/// Servers with shared tickets accept no 0-RTT data, because a server cannot detect data that
/// another server has accepted before.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use mpquic_core::crypto::rustls::{QuicServerConfig, SharedTickets};
/// # use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
/// # let chain = vec![CertificateDer::from_pem_file("certificate.pem")?];
/// # let key = PrivateKeyDer::from_pem_file("key.pem")?;
///
/// let (old, new) = ([7; 32], [8; 32]);
/// let tickets = Arc::new(SharedTickets::new(old));
/// let crypto = QuicServerConfig::with_certificate(chain, key, &[b"h3"])?
///     .with_shared_tickets(tickets.clone());
///
/// // A new secret, in three steps, each at all servers before the next:
/// tickets.change(old, &[new]);
/// tickets.change(new, &[old]);
/// // … and after `SharedTickets::LIFETIME`:
/// tickets.change(new, &[]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct SharedTickets {
    keys: RwLock<Keys>,
    random: &'static dyn SecureRandom,
    clock: Arc<dyn TimeSource>,
}

struct Keys {
    seals: TokenKey,
    /// Further keys, which only open tickets.
    others: Vec<TokenKey>,
}

impl Keys {
    fn new(secret: [u8; 32], others: &[[u8; 32]]) -> Self {
        let key = |secret| TokenKey::derived(secret, b"mpquic tickets of TLS sessions");
        Self {
            seals: key(&secret),
            others: others.iter().map(key).collect(),
        }
    }
}

impl SharedTickets {
    /// Validity of a ticket.
    pub const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

    /// Tickets with keys derived from `secret`. A server may use the same secret for its address
    /// validation tokens.
    pub fn new(secret: [u8; 32]) -> Self {
        Self {
            keys: RwLock::new(Keys::new(secret, &[])),
            random: provider().secure_random,
            clock: Arc::new(StdSystemTime),
        }
    }

    /// Sets the wall clock for the age of tickets; by default, the system's clock.
    #[must_use]
    pub fn time_source(mut self, clock: Arc<dyn TimeSource>) -> Self {
        self.clock = clock;
        self
    }

    /// Seals tickets with `secret` from now on. Tickets sealed with `secret` or with one of
    /// `others` are valid.
    pub fn change(&self, secret: [u8; 32], others: &[[u8; 32]]) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        *keys = Keys::new(secret, others);
    }
}

impl ProducesTickets for SharedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        Self::LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; 16];
        self.random.fill(&mut nonce).ok()?;
        let mut text = Vec::new();
        put_time(&mut text, self.clock.now());
        text.extend_from_slice(session);
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let ticket = keys.seals.seal(nonce, &text);
        (!ticket.is_empty()).then_some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = std::iter::once(&keys.seals).chain(&keys.others);
        let (_, text) = all.find_map(|key| key.open(ticket))?;
        let mut session = &text[..];
        let issued = take_time(&mut session)?;
        is_fresh(issued, Self::LIFETIME, self.clock.now()).then(|| session.to_vec())
    }
}

impl fmt::Debug for SharedTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTickets")
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    struct At(SystemTime);

    impl TimeSource for At {
        fn now(&self) -> SystemTime {
            self.0
        }
    }

    fn tickets(secret: u8, seconds: u64) -> SharedTickets {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds);
        SharedTickets::new([secret; 32]).time_source(Arc::new(At(now)))
    }

    #[test]
    fn a_ticket_is_good_at_servers_with_its_secret_and_not_for_ever() {
        let ticket = tickets(1, 0).encrypt(b"session").unwrap();
        let again = tickets(1, 0).encrypt(b"session").unwrap();
        assert_ne!(ticket, again, "two cannot be told to be one client's");
        let opened = |secret, seconds| tickets(secret, seconds).decrypt(&ticket);
        let lifetime = SharedTickets::LIFETIME.as_secs();
        for seconds in [0, lifetime - 1] {
            assert_eq!(opened(1, seconds).as_deref(), Some(&b"session"[..]));
        }
        assert_eq!(opened(1, lifetime + 1), None);
        assert_eq!(opened(2, 0), None);
        for byte in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[byte] ^= 1;
            assert_eq!(tickets(1, 0).decrypt(&changed), None);
            assert_eq!(tickets(1, 0).decrypt(&ticket[..byte]), None);
        }
    }

    /// An address validation token is not taken for a ticket, even if both have the same secret.
    #[test]
    fn a_token_is_no_ticket() {
        let mut text = Vec::new();
        put_time(&mut text, tickets(1, 0).clock.now());
        let token = TokenKey::new(&[1; 32]).seal([0; 16], &text);
        assert_eq!(tickets(1, 0).decrypt(&token), None);
    }

    #[test]
    fn servers_change_the_secret_one_after_the_other() {
        let (one, two) = (tickets(1, 0), tickets(1, 0));
        let both = || {
            for (from, to) in [(&one, &two), (&two, &one)] {
                let ticket = from.encrypt(b"session").unwrap();
                assert!(to.decrypt(&ticket).is_some());
            }
        };
        let before = one.encrypt(b"session").unwrap();
        for server in [&one, &two] {
            server.change([1; 32], &[[2; 32]]);
            both();
        }
        for server in [&one, &two] {
            server.change([2; 32], &[[1; 32]]);
            both();
        }
        assert!(one.decrypt(&before).is_some());
        one.change([2; 32], &[]);
        both();
        assert_eq!(one.decrypt(&before), None);
    }
}
