//! [`Gate`]: checks credentials, with growing waits after wrong ones.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use sha2::{Digest, Sha256};

use crate::credentials::Credentials;
use crate::shares::Tries;

/// Checks credentials. From the fifth wrong credential on, the client's network must wait, and the
/// user name from this network, too. Each wait is longer, up to five minutes.
#[derive(Debug, Default)]
pub struct Gate(Tries);

/// Why a credential is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotLetIn {
    /// No user has this credential.
    Wrong,
    /// Too many wrong credentials: no credential is checked for this time.
    Wait(Duration),
}

/// The user of a connection, after the first right credential.
#[derive(Debug, Default)]
pub struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The hash of the last right credential.
    shown: Option<[u8; 32]>,
    user: Option<String>,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the user, if known.
    pub fn user(&self) -> Option<String> {
        self.lock().user.clone()
    }

    /// True for the last right credential.
    pub(crate) fn is_right(&self, shown: &HeaderValue) -> bool {
        let right = self.lock().shown;
        right.is_some_and(|right| right == <[u8; 32]>::from(Sha256::digest(shown)))
    }

    /// Stores the user, and the right credential if the client showed one.
    pub(crate) fn set(&self, shown: Option<&HeaderValue>, user: Option<&str>) {
        *self.lock() = State {
            shown: shown.map(|shown| Sha256::digest(shown).into()),
            user: user.map(str::to_owned),
        };
    }
}

impl Gate {
    /// The name of the user who shows this value of `Authorization` or `Proxy-Authorization`, from
    /// this address, over the connection of `known`.
    ///
    /// # Errors
    ///
    /// [`NotLetIn::Wrong`] for a wrong credential; [`NotLetIn::Wait`] while the address or the name
    /// has to wait.
    pub fn user(
        &self,
        credentials: &Credentials,
        client: IpAddr,
        shown: &HeaderValue,
        known: &Known,
    ) -> Result<String, NotLetIn> {
        let name = Credentials::claimed(shown);
        // A credential of this connection that was right before is no guess, so waits for the
        // guesses of neighbours do not apply.
        let is_known = known.is_right(shown);
        if !is_known && let Some(wait) = self.0.wait(client, &name) {
            return Err(NotLetIn::Wait(wait));
        }
        match credentials.user(shown) {
            Some(user) => {
                if !is_known {
                    self.0.on_success(client, &name);
                    known.set(Some(shown), Some(user));
                }
                Ok(user.to_owned())
            }
            None => {
                self.0.on_failure(client, &name);
                Err(NotLetIn::Wrong)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::Credential;

    #[tokio::test(start_paused = true)]
    async fn known_user_of_a_connection_goes_on_while_others_guess() {
        let [right, wrong] = ["basic alice:wonderland", "basic alice:guess"]
            .map(|text| text.parse::<Credential>().unwrap());
        let credentials = Credentials::new([right.clone()]);
        let (gate, client) = (Gate::default(), IpAddr::from([192, 0, 2, 1]));
        let [known, stranger] = [Known::default(), Known::default()];
        let look = |credential: &Credential, known: &Known| {
            gate.user(&credentials, client, &credential.to_field(), known)
        };
        assert_eq!(look(&right, &known), Ok("alice".to_owned()));
        assert_eq!(known.user().as_deref(), Some("alice"));
        for _ in 0..5 {
            assert_eq!(look(&wrong, &stranger), Err(NotLetIn::Wrong));
        }
        let wait = NotLetIn::Wait(Duration::from_secs(1));
        assert_eq!(look(&wrong, &stranger), Err(wait));
        assert_eq!(look(&right, &stranger), Err(wait));
        assert_eq!(look(&right, &known), Ok("alice".to_owned()));
        assert_eq!(stranger.user(), None);
    }
}
