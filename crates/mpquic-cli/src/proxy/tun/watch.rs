//! Looks at the machine's routes and at the kill switch while the client runs.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::changes::Changes;
use super::guard::Guard;
use super::kill_switch;
use super::state::State;
use super::strays::{self, Strays};
use crate::process::failure::Failure;
use crate::proxy::status::TunnelRow;

/// Least time between two checks.
const LEAST: Duration = Duration::from_millis(500);

/// The status of the device, for `mpquic proxy status`.
pub(crate) type Shown = Arc<Mutex<Option<TunnelRow>>>;

/// A watch over a device.
#[derive(Debug)]
pub(crate) struct Watch {
    state: State,
    guard: Guard,
    strays: Strays,
    shown: Shown,
    /// True once the last failure is in the log.
    has_failed: bool,
}

impl Watch {
    pub(super) fn new(state: State, guard: Guard, shown: Shown) -> Self {
        Self {
            state,
            guard,
            strays: Strays::default(),
            shown,
            has_failed: false,
        }
    }

    /// Checks at once, and then after each change.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut changes = Changes::new(self.state.kill_switch.is_some() || self.guard.is_set());
        loop {
            // The task waits for programs of the system, so it runs on a thread of its own.
            let looked = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            self = match looked.await {
                Ok(watch) => watch,
                Err(error) => {
                    tracing::error!("routes are not looked at any more: {error}");
                    std::future::pending().await
                }
            };
            tokio::time::sleep(LEAST).await;
            changes.next().await;
        }
    }

    fn look(&mut self) {
        // A failure of one does not stop the other.
        let kept = self.guard.keep();
        let counted = self.keep_closed().and_then(|()| self.count());
        match counted.and(kept) {
            Ok(()) => self.has_failed = false,
            Err(failure) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::error!(
                    "cannot look for routes past the tunnel: {}",
                    failure.message()
                );
            }
            Err(_) => {}
        }
    }

    /// Closes the kill switch again after another program has removed its table. A reload of all
    /// firewall rules removes the table, for example.
    fn keep_closed(&self) -> Result<(), Failure> {
        let Some(kill_switch) = &self.state.kill_switch else {
            return Ok(());
        };
        if !kill_switch::is_closed()? {
            kill_switch.close(&self.state.name)?;
            tracing::warn!("another program opened the kill switch; it is closed again");
        }
        Ok(())
    }

    /// Logs and counts routes, and updates the kill switch after changes of the local networks.
    fn count(&mut self) -> Result<(), Failure> {
        let routes = strays::list()?;
        let counts = self.strays.look(&routes, &self.state);
        let name = &self.state.name;
        if let Some(kill_switch) = &mut self.state.kill_switch
            && let Some(lan) = &mut kill_switch.lan
        {
            let now = strays::local_networks(&routes, name);
            if *lan != now {
                *lan = now;
                kill_switch.close(name)?;
            }
        }
        let row = TunnelRow {
            device: name.clone(),
            kill_switch: self.state.kill_switch.is_some(),
            routes_refused: counts.refused,
            routes_past: counts.past,
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(row);
        Ok(())
    }
}
