//! Signals from the user or the system.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals SIGINT and SIGTERM. Once this value exists, these signals do not end the process by
/// themselves. A signal that was ignored when the process began stays ignored, for `nohup` and
/// background jobs of shells.
pub(crate) struct Signals {
    /// The handlers of the two signals: `None` inside for an ignored signal, outside if the system
    /// allows no handlers.
    #[cfg(unix)]
    handled: Option<[Option<Signal>; 2]>,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            handled: match [SignalKind::interrupt(), SignalKind::terminate()].map(unless_ignored) {
                [Ok(interrupt), Ok(terminate)] => Some([interrupt, terminate]),
                _ => None,
            },
        }
    }

    /// Waits for the next SIGINT or SIGTERM.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some([interrupt, terminate]) = &mut self.handled {
            tokio::select! {
                () = next(interrupt) => {}
                () = next(terminate) => {}
            }
            return;
        }
        // Without a handler, the system ends the process.
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Handles SIGXFSZ, which otherwise ends the process when a file grows beyond the limit of file
/// sizes (`ulimit -f`). The writer of the file then gets an error. Must run in a Tokio runtime.
pub(crate) fn survive_large_files() {
    #[cfg(unix)]
    {
        // Tokio keeps the handler of a signal after the drop of `Signal`.
        let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
        drop(unless_ignored(kind));
    }
}

/// Waits for the next signal, or for ever if the signal is ignored.
#[cfg(unix)]
async fn next(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Handles a signal from now on. `None` if the signal was ignored when the process began.
#[cfg(unix)]
fn unless_ignored(kind: SignalKind) -> std::io::Result<Option<Signal>> {
    if is_ignored(kind) {
        Ok(None)
    } else {
        signal(kind).map(Some)
    }
}

/// True if the process ignores a signal. Only Linux reports ignored signals.
#[cfg(unix)]
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) & (1 << (kind.as_raw_value() - 1)) != 0
}

/// The ignored signals of a process, from the text of its `status` file on Linux: bit N - 1 stands
/// for signal N.
#[cfg(unix)]
fn ignored(status: &str) -> u64 {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default()
}

/// Requests to read configuration again (SIGHUP). Once this value exists, the signal does not end
/// the process.
pub(crate) struct Hangups {
    #[cfg(unix)]
    handled: Option<Signal>,
}

impl Hangups {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            handled: unless_ignored(SignalKind::hangup()).ok().flatten(),
        }
    }

    /// Waits for the next SIGHUP.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        return next(&mut self.handled).await;
        #[cfg(not(unix))]
        std::future::pending().await
    }
}

/// Requests to hand over to a new process (SIGUSR2). Once this value exists, the signal does not
/// end the process.
pub(crate) struct Upgrades {
    #[cfg(unix)]
    handled: Option<Signal>,
}

impl Upgrades {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(unix)]
            handled: unless_ignored(SignalKind::user_defined2()).ok().flatten(),
        }
    }

    /// Waits for the next SIGUSR2.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        return next(&mut self.handled).await;
        #[cfg(not(unix))]
        std::future::pending().await
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_file_of_linux() {
        let status = "Name:\tmpquic\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\n";
        assert_eq!(ignored(status), 0x1003);
        for odd in ["", "SigIgn:", "SigIgn:\tx"] {
            assert_eq!(ignored(odd), 0, "{odd}");
        }
        // Rust ignores SIGPIPE, and the tests do not ignore SIGTERM.
        assert_eq!(is_ignored(SignalKind::pipe()), cfg!(target_os = "linux"));
        assert!(!is_ignored(SignalKind::terminate()));
    }
}
