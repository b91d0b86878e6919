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
    use std::time::Instant;

    use mpquic_core::congestion::{Acked, CongestionEvent};

    use super::*;

    #[test]
    fn rate_limit_keeps_the_inner_ecn_choice() {
        for (name, codepoint) in [("olia", EcnCodepoint::Ect0), ("prague", EcnCodepoint::Ect1)] {
            let held = limited(mpquic_cc::by_name(name).unwrap(), 1000);
            assert_eq!(held.ecn_codepoint(), codepoint);
        }
    }

    /// A controller whose paths have their number as pacing rate, and no rate on path 0.
    #[derive(Debug)]
    struct Numbered;

    impl Controller for Numbered {
        fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}
        fn on_path_closed(&mut self, _: PathId) {}
        fn on_mtu_update(&mut self, _: PathId, _: u16) {}
        fn on_ack(&mut self, _: PathId, _: &Acked) {}
        fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {}
        fn window(&self, path: PathId) -> u64 {
            1000 + u64::from(path.0)
        }
        fn pacing_rate(&self, path: PathId) -> Option<u64> {
            Some(u64::from(path.0)).filter(|rate| *rate > 0)
        }
        fn name(&self) -> &'static str {
            "numbered"
        }
    }

    #[test]
    fn rates_below_the_limit_and_windows_stay_the_inner_ones() {
        let held = limited(factory("numbered", || Box::new(Numbered)), 500).build();
        let rates = [0, 400, 600].map(|path| held.pacing_rate(PathId(path)));
        assert_eq!(rates, [500, 400, 500].map(Some));
        assert_eq!((held.name(), held.window(PathId(3))), ("numbered", 1003));
    }
}
