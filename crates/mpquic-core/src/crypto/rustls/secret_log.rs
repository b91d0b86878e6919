//! [`SecretLog`]: a rustls key log that keeps secrets for us, because rustls has no other interface
//! to them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::KeyLog;
use rustls::crypto::tls13::OkmBlock;

use super::key_derivation::TrafficSecrets;

/// Names of a client's and a server's secret of the Handshake level.
pub(super) const HANDSHAKE: [&str; 2] = [
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
];
/// Names of both secrets of the 1-RTT level.
pub(super) const ONE_RTT: [&str; 2] = ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"];
/// Name of the secret from which keying material is exported.
pub(super) const EXPORTER: &str = "EXPORTER_SECRET";

/// The log of one session, which keeps the secrets with certain names.
pub(super) struct SecretLog {
    /// The application's key log, which also receives all secrets.
    log: Arc<dyn KeyLog>,
    kept: Mutex<Vec<(&'static str, Option<OkmBlock>)>>,
}

impl SecretLog {
    /// Keeps the secrets with these names and gives all of them to `log`.
    pub(super) fn new(log: Arc<dyn KeyLog>, names: &[&'static str]) -> Self {
        let kept = names.iter().map(|name| (*name, None)).collect();
        Self {
            log,
            kept: Mutex::new(kept),
        }
    }

    /// The secret with this name, once it is known; only once.
    pub(super) fn take(&self, name: &str) -> Option<OkmBlock> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, secret) = kept.iter_mut().find(|(known, _)| *known == name)?;
        secret.take()
    }

    /// The secrets of one level, by the names of the client's and the server's; only once.
    pub(super) fn take_level(&self, [client, server]: [&str; 2]) -> Option<TrafficSecrets> {
        Some(TrafficSecrets {
            client: self.take(client)?,
            server: self.take(server)?,
        })
    }
}

impl fmt::Debug for SecretLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretLog")
    }
}

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if self.log.will_log(label) {
            self.log.log(label, client_random, secret);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = kept.iter_mut().find(|(known, _)| *known == label) {
            *place = Some(OkmBlock::new(secret));
        }
    }
}
