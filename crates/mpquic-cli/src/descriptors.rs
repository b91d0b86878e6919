//! How many files and sockets this process may have open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Makes it as many as the system lets us have: the lower limit is for programs that call `select`.
pub(crate) fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // With less it works as well, and refuses more.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// As many as are wanted for one user, or what leaves others three quarters of all.
pub(crate) fn share(wanted: usize) -> usize {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) => of(soft, wanted),
        Err(_) => wanted,
    }
}

fn of(all: u64, wanted: usize) -> usize {
    let share = usize::try_from(all / 4).unwrap_or(usize::MAX).max(1);
    wanted.min(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_leaves_most_of_them_to_others() {
        assert_eq!(of(1024, 16_384), 256);
        assert_eq!(of(1 << 20, 16_384), 16_384);
        assert_eq!(of(2, 7), 1);
        raise();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(share(usize::MAX), of(soft, usize::MAX));
    }
}
