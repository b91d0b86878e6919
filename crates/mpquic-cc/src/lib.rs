//! Congestion controllers for mpquic: limits for the bytes in flight and the pacing of each path.
//!
//! A controller implements [`mpquic_core::congestion::Controller`]. One object controls all paths
//! of a connection. Coupled algorithms look at all paths, so that a connection takes no more than
//! one fair share of a bottleneck that several of its paths use. Algorithms for a single path
//! implement [`PathController`] and become a controller through [`Uncoupled`].
//!
//! | name | type | |
//! |---|---|---|
//! | `coupled-bbr` (default) | [`CoupledBbr`] | by rate; coupled where paths share a bottleneck |
//! | `olia` | [`Olia`] | by loss; coupled, favours the better paths |
//! | `lia` | [`Lia`] | RFC 6356, coupled |
//! | `balia` | [`Balia`] | coupled, between the two |
//! | `wvegas` | [`Wvegas`] | coupled, by delay instead of loss |
//! | `cubic` | [`Uncoupled`]`<`[`Cubic`]`>` | RFC 9438 on each path |
//! | `bbr` | [`Uncoupled`]`<`[`Bbr`]`>` | BBRv3 on each path |
//! | `newreno` | [`Uncoupled`]`<`[`NewReno`]`>` | RFC 9002 section 7 on each path |
//!
//! Two more are not in that list: `olia-mpquic` ([`OliaMpquic`]), a baseline of publications
//! ([`published`]), and `prague` ([`Uncoupled`]`<`[`Prague`]`>`) for networks with L4S queues
//! ([`experimental`]).
//!
//! Window-based controllers leave the first slow start by HyStart++ (RFC 9406), before the queue of
//! the bottleneck overflows, and reduce their windows proportionally (RFC 9937).
//!
//! [`by_name`] and [`default`](default()) wrap all controllers except `wvegas` and `olia-mpquic` in
//! [`CarefulResume`]: paths that an earlier connection used start quicker (RFC 9959). wVegas grows
//! by one datagram per round trip. If the saved window were too large, wVegas would take long to
//! grow from half of the delivered bytes to the capacity of the path.

use std::sync::Arc;

use mpquic_core::congestion::{Controller, ControllerFactory, factory, scalable};
use thiserror::Error;

mod balia;
mod bbr;
mod careful_resume;
mod coupled;
mod coupled_bbr;
mod cubic;
mod lia;
mod new_reno;
mod olia;
mod olia_mpquic;
mod prague;
mod prr;
mod slow_start;
mod uncoupled;
mod window;
mod wvegas;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_link;

pub use balia::Balia;
pub use bbr::Bbr;
pub use careful_resume::{CarefulResume, Found, Resumable};
pub use coupled::Coupled;
pub use coupled_bbr::CoupledBbr;
pub use cubic::Cubic;
pub use lia::Lia;
pub use new_reno::NewReno;
pub use olia::Olia;
pub use olia_mpquic::OliaMpquic;
pub use prague::Prague;
pub use uncoupled::{PathController, PathLimits, Uncoupled};
pub use wvegas::Wvegas;

/// A built-in controller, described for lists.
#[derive(Debug, Clone, Copy)]
pub struct ControllerInfo {
    /// The name to pass to [`by_name`].
    pub name: &'static str,
    /// A description of one line.
    pub description: &'static str,
    /// The publication that describes the algorithm.
    pub source: &'static str,
    /// The single-path controller of competing flows in measurements of fairness. For a coupled
    /// controller, its uncoupled algorithm; otherwise the controller itself.
    pub single_path: &'static str,
    make: fn() -> Box<dyn Controller>,
}

static CONTROLLERS: [ControllerInfo; 8] = [
    ControllerInfo {
        name: "coupled-bbr",
        description: "BBR on each path, coupled where paths share a bottleneck: one fair share there, full speed elsewhere (the default)",
        source: "mpquic; draft-ietf-ccwg-bbr-06, detection in the spirit of RFC 8382",
        single_path: "bbr",
        make: || Box::new(CarefulResume::<CoupledBbr>::default()),
    },
    ControllerInfo {
        name: "olia",
        description: "coupled: one fair share of a common bottleneck, better paths favoured; by loss",
        source: "Khalili et al., \"MPTCP Is Not Pareto-Optimal\", CoNEXT 2012",
        single_path: "newreno",
        make: || Box::new(CarefulResume::<Olia>::default()),
    },
    ControllerInfo {
        name: "lia",
        description: "coupled: as fast as one flow on the best path, every path in use",
        source: "RFC 6356",
        single_path: "newreno",
        make: || Box::new(CarefulResume::<Lia>::default()),
    },
    ControllerInfo {
        name: "balia",
        description: "coupled: a compromise between lia and olia, friendly and quick to follow changes",
        source: "Peng et al., \"Multipath TCP: Analysis, Design, and Implementation\", IEEE/ACM ToN 2016",
        single_path: "newreno",
        make: || Box::new(CarefulResume::<Balia>::default()),
    },
    ControllerInfo {
        name: "wvegas",
        description: "coupled, by delay: short queues; gives way to loss-based flows",
        source: "Cao et al., \"Delay-Based Congestion Control for Multipath TCP\", ICNP 2012",
        single_path: "wvegas",
        make: || Box::new(Wvegas::default()),
    },
    ControllerInfo {
        name: "cubic",
        description: "CUBIC on each path, every path a fair share of its own",
        source: "RFC 9438",
        single_path: "cubic",
        make: || Box::new(CarefulResume::<Uncoupled<Cubic>>::default()),
    },
    ControllerInfo {
        name: "bbr",
        description: "BBRv3 on each path: by rate, not loss; every path a fair share of its own",
        source: "draft-ietf-ccwg-bbr-06",
        single_path: "bbr",
        make: || Box::new(CarefulResume::<Uncoupled<Bbr>>::default()),
    },
    ControllerInfo {
        name: "newreno",
        description: "NewReno on each path, every path a fair share of its own",
        source: "RFC 9002 section 7",
        single_path: "newreno",
        make: || Box::new(CarefulResume::<Uncoupled<NewReno>>::default()),
    },
];

static PUBLISHED: [ControllerInfo; 1] = [ControllerInfo {
    name: "olia-mpquic",
    description: "a published baseline: OLIA with the initial window, back-off and overflow of mp-quic",
    source: "github.com/qdeconinck/mp-quic, which the ETC and PStream papers ran on",
    single_path: "newreno",
    make: || Box::new(OliaMpquic::default()),
}];

static EXPERIMENTAL: [ControllerInfo; 1] = [ControllerInfo {
    name: "prague",
    description: "by the share of ECN marks, on each path: short queues where these are L4S queues, and only for these",
    source: "draft-briscoe-iccrg-prague-congestion-control-04",
    single_path: "prague",
    make: || Box::new(CarefulResume::<Uncoupled<Prague>>::default()),
}];

/// The controllers of this crate for general use, the default first.
pub fn list() -> &'static [ControllerInfo] {
    &CONTROLLERS
}

/// Controllers exactly as publications ran them, as baselines for published results. [`by_name`]
/// finds them, too.
///
/// ```
/// let olia = mpquic_cc::by_name(mpquic_cc::published()[0].name)?;
/// assert_eq!(olia.build().name(), "olia-mpquic");
/// # Ok::<(), mpquic_cc::UnknownController>(())
/// ```
pub fn published() -> &'static [ControllerInfo] {
    &PUBLISHED
}

/// Controllers that need a network which treats ECT(1) packets as L4S does; the Internet does not
/// promise that. [`by_name`] finds them, too. They mark packets as ECT(1).
///
/// ```
/// use mpquic_core::EcnCodepoint;
///
/// let prague = mpquic_cc::by_name(mpquic_cc::experimental()[0].name)?;
/// assert_eq!(prague.ecn_codepoint(), EcnCodepoint::Ect1);
/// # Ok::<(), mpquic_cc::UnknownController>(())
/// ```
pub fn experimental() -> &'static [ControllerInfo] {
    &EXPERIMENTAL
}

/// No controller has the requested name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "no congestion controller is called `{name}`; there are: {}; published baselines: {}; \
     for networks with L4S queues: {}",
    names(list()),
    names(published()),
    names(experimental())
)]
pub struct UnknownController {
    /// The requested name.
    pub name: String,
}

fn names(infos: &[ControllerInfo]) -> String {
    let names: Vec<_> = infos.iter().map(|info| info.name).collect();
    names.join(", ")
}

/// The controller with this name (see [`list`], [`published`] and [`experimental`]).
///
/// # Errors
///
/// [`UnknownController`] if no controller has this name. The message lists all names.
pub fn by_name(name: &str) -> Result<Arc<dyn ControllerFactory>, UnknownController> {
    let find = |infos: &'static [ControllerInfo]| infos.iter().find(|info| info.name == name);
    if let Some(info) = find(&EXPERIMENTAL) {
        return Ok(scalable(info.name, info.make));
    }
    find(&CONTROLLERS)
        .or_else(|| find(&PUBLISHED))
        .map(|info| factory(info.name, info.make))
        .ok_or_else(|| UnknownController { name: name.into() })
}

/// The default controller, `coupled-bbr`.
pub fn default() -> Arc<dyn ControllerFactory> {
    let info = &CONTROLLERS[0];
    factory(info.name, info.make)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::PathId;
    use mpquic_core::congestion::{CongestionKind, Controller};

    use super::*;
    use crate::testing::{acked, congestion, sent, start};

    const PATH: PathId = PathId(3);

    fn all() -> impl Iterator<Item = &'static ControllerInfo> {
        list().iter().chain(published()).chain(experimental())
    }

    /// Controllers that reduce their window in proportion to delivered bytes (RFC 9937).
    const BY_LOSS: [&str; 6] = ["newreno", "cubic", "lia", "olia", "balia", "wvegas"];

    fn opened(name: &str) -> Box<dyn Controller> {
        let mut controller = by_name(name).unwrap().build();
        controller.on_path_opened(PATH, start(), 1200);
        controller
    }

    /// RFC 9002 section 7.2: two datagrams of any size may be in flight.
    #[test]
    fn windows_follow_the_largest_datagram() {
        for info in all() {
            let mut controller = opened(info.name);
            controller.on_mtu_update(PATH, 9000);
            let now = start();
            controller.on_ack(PATH, &acked(now, now, 1200));
            let window = controller.window(PATH);
            assert!(window >= 2 * 9000, "{}: {window}", info.name);
        }
    }

    #[test]
    fn packets_sent_in_recovery_reduce_the_window() {
        for name in BY_LOSS {
            let now = start();
            let after = |packets| {
                let mut controller = opened(name);
                assert!(!controller.in_recovery(PATH), "{name}");
                let event = congestion(CongestionKind::Loss, now, now);
                controller.on_congestion_event(PATH, &event);
                assert!(controller.in_recovery(PATH), "{name}");
                for _ in 0..packets {
                    controller.on_packet_sent(PATH, &sent(now, 1200, 12_000));
                }
                let mut ack = acked(now, now, 6000);
                ack.in_flight = 12_000;
                controller.on_ack(PATH, &ack);
                controller.window(PATH)
            };
            assert!(after(2) < after(1), "{name}: {} {}", after(2), after(1));
        }
    }

    #[test]
    fn memory_grows_with_sent_packets_on_each_path() {
        for name in ["bbr", "coupled-bbr"] {
            let mut controller = opened(name);
            assert_eq!(controller.memory(), 0, "{name}");
            let sends = |controller: &mut Box<dyn Controller>, path| {
                for second in 0..50 {
                    let now = start() + Duration::from_secs(second);
                    controller.on_packet_sent(path, &sent(now, 1200, 12_000));
                }
                controller.memory()
            };
            let one = sends(&mut controller, PATH);
            assert!(one >= 50 * 32, "{name}");
            let other = PathId(5);
            controller.on_path_opened(other, start(), 1200);
            assert_eq!(sends(&mut controller, other), 2 * one, "{name}");
        }
    }

    #[test]
    fn every_listed_name_builds_a_controller_of_that_name() {
        for info in all() {
            assert_eq!(by_name(info.name).unwrap().build().name(), info.name);
        }
        assert_eq!(default().build().name(), "coupled-bbr");
    }

    #[test]
    fn error_for_an_unknown_name_lists_all_names() {
        let error = by_name("westwood").unwrap_err().to_string();
        assert!(error.contains("`westwood`"), "{error}");
        for info in all() {
            assert!(error.contains(info.name), "{error}");
        }
    }
}
