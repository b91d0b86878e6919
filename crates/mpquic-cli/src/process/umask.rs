//! The permissions that the process withholds from its new files (umask).

#[cfg(unix)]
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(unix)]
use rustix::fs::Mode;

/// The withheld permissions, as bits of a mode; none on systems without them.
#[cfg(unix)]
pub(crate) fn umask() -> u32 {
    static UMASK: OnceLock<Mode> = OnceLock::new();
    // The system tells the value only in exchange for another one.
    let mask = UMASK.get_or_init(|| exchange_umask(|| ()).0);
    let is_set = |bit: &u32| mask.contains(Mode::from_bits_truncate(1 << bit));
    (0..9).filter(is_set).map(|bit| 1_u32 << bit).sum()
}

#[cfg(not(unix))]
pub(crate) fn umask() -> u32 {
    0
}

/// Runs `make`, whose new files are for their owner alone. So are files that other threads make
/// meanwhile.
#[cfg(unix)]
pub(crate) fn with_private_files<T>(make: impl FnOnce() -> T) -> T {
    exchange_umask(make).1
}

/// Withholds all permissions of groups and others while `run` runs. Returns the umask of the
/// process, too.
#[cfg(unix)]
fn exchange_umask<T>(run: impl FnOnce() -> T) -> (Mode, T) {
    use rustix::process::umask;
    // Two exchanges at the same time could leave the process with the umask of one of them.
    static EXCHANGE: Mutex<()> = Mutex::new(());
    let _alone = EXCHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = umask(Mode::RWXG | Mode::RWXO);
    let made = run();
    umask(mask);
    (mask, made)
}
