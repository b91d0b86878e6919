//! A congestion controller that limits the rate of each path, as if loopback were a link of this
//! rate.

use std::sync::Arc;

use mpquic_core::congestion::{
    Controller, ControllerFactory, ControllerWrapper, factory, scalable,
};
use mpquic_core::{EcnCodepoint, PathId};

/// Controllers of `inner`, limited to `bytes_per_second` on each path.
pub(crate) fn limited(
    inner: Arc<dyn ControllerFactory>,
    bytes_per_second: u64,
) -> Arc<dyn ControllerFactory> {
    let codepoint = inner.ecn_codepoint();
    let make = move || -> Box<dyn Controller> {
        Box::new(Limited {
            inner: inner.build(),
            bytes_per_second,
        })
    };
    match codepoint {
        EcnCodepoint::Ect1 => scalable("limited", make),
        _ => factory("limited", make),
    }
}

#[derive(Debug)]
struct Limited {
    inner: Box<dyn Controller>,
    bytes_per_second: u64,
}

impl ControllerWrapper for Limited {
    fn inner(&self) -> &dyn Controller {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Controller {
        &mut *self.inner
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        let rate = self.inner.pacing_rate(path).unwrap_or(u64::MAX);
        Some(rate.min(self.bytes_per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_keeps_the_inner_ecn_choice() {
        for (name, codepoint) in [("olia", EcnCodepoint::Ect0), ("prague", EcnCodepoint::Ect1)] {
            let held = limited(mpquic_cc::by_name(name).unwrap(), 1000);
            assert_eq!(held.ecn_codepoint(), codepoint);
        }
    }

    #[test]
    fn pacing_rate_stays_below_the_limit() {
        // A controller without a pacing rate of its own, and one with a rate far above the limit.
        for name in ["newreno", "bbr"] {
            let mut held = limited(mpquic_cc::by_name(name).unwrap(), 1000).build();
            held.on_path_opened(PathId(0), crate::process::clock::now(), 1200);
            assert_eq!(held.pacing_rate(PathId(0)), Some(1000));
        }
        let mut held = limited(mpquic_cc::by_name("bbr").unwrap(), u64::MAX).build();
        held.on_path_opened(PathId(0), crate::process::clock::now(), 1200);
        let mut free = mpquic_cc::by_name("bbr").unwrap().build();
        free.on_path_opened(PathId(0), crate::process::clock::now(), 1200);
        assert_eq!(held.pacing_rate(PathId(0)), free.pacing_rate(PathId(0)));
        assert_eq!(
            (held.name(), held.window(PathId(0))),
            ("bbr", free.window(PathId(0)))
        );
    }
}
