//! Requests of the user or the system to end.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interrupts and requests to terminate. They no longer end the process by themselves from the
/// time on that this is made.
pub(crate) struct Signals {
    #[cfg(unix)]
    handled: Option<[Signal; 2]>,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            handled: match [SignalKind::interrupt(), SignalKind::terminate()].map(signal) {
                [Ok(interrupt), Ok(terminate)] => Some([interrupt, terminate]),
                _ => None,
            },
        }
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some([interrupt, terminate]) = &mut self.handled {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        // If no handler can be installed, the system ends the process.
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Requests to read configuration again (SIGHUP). They no longer end the process from the time on
/// that this is made.
pub(crate) struct Hangups {
    #[cfg(unix)]
    handled: Option<Signal>,
}

impl Hangups {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            handled: signal(SignalKind::hangup()).ok(),
        }
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(hangup) = &mut self.handled
            && hangup.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}
