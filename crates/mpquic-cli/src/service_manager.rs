//! What a service manager is told: systemd, with `Type=notify`.

/// The service is up. Says nothing where nobody listens.
pub(crate) fn ready() {
    #[cfg(target_os = "linux")]
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!("the service manager was not told: {error}");
    }
}
