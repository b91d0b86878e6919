//! [`Named`]: a closure that makes policies, with a name for `Debug`.

use std::fmt;

/// The factory that `sched::factory` and `congestion::factory` return.
pub(crate) struct Named<F> {
    pub(crate) name: &'static str,
    pub(crate) make: F,
}

impl<F> fmt::Debug for Named<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
