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
//! Three more are not in that list: `olia-mpquic` ([`OliaMpquic`]) and `olia-ns3` ([`OliaNs3`]),
//! baselines of publications ([`published`]), and `prague` ([`Uncoupled`]`<`[`Prague`]`>`) for networks with L4S queues
//! ([`experimental`]).
//!
//! Window-based controllers leave the first slow start by HyStart++ (RFC 9406), before the queue of
//! the bottleneck overflows, and reduce their windows proportionally (RFC 9937).
//!
//! [`by_name`] and [`default`](default()) wrap all controllers except `wvegas` and the baselines in
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
mod olia_ns3;
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
pub use olia_ns3::OliaNs3;
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

/// A list of controllers: name, single-path controller, type, source and description of each.
macro_rules! controllers {
    ($($name:literal, $single_path:literal => $make:ty, $source:literal, $description:literal;)*) => {
        &[$(ControllerInfo {
            name: $name,
            description: $description,
            source: $source,
            single_path: $single_path,
            make: || Box::new(<$make>::default()),
        }),*]
    };
}

static CONTROLLERS: &[ControllerInfo] = controllers! {
    "coupled-bbr", "bbr" => CarefulResume<CoupledBbr>,
        "mpquic; draft-ietf-ccwg-bbr-06, detection in the spirit of RFC 8382",
        "BBR on each path, coupled where paths share a bottleneck: one fair share there, full speed elsewhere (the default)";
    "olia", "newreno" => CarefulResume<Olia>,
        "Khalili et al., \"MPTCP Is Not Pareto-Optimal\", CoNEXT 2012",
        "coupled: one fair share of a common bottleneck, better paths favoured; by loss";
    "lia", "newreno" => CarefulResume<Lia>,
        "RFC 6356",
        "coupled: as fast as one flow on the best path, every path in use";
    "balia", "newreno" => CarefulResume<Balia>,
        "Peng et al., \"Multipath TCP: Analysis, Design, and Implementation\", IEEE/ACM ToN 2016",
        "coupled: a compromise between lia and olia, friendly and quick to follow changes";
    "wvegas", "wvegas" => Wvegas,
        "Cao et al., \"Delay-Based Congestion Control for Multipath TCP\", ICNP 2012",
        "coupled, by delay: short queues; gives way to loss-based flows";
    "cubic", "cubic" => CarefulResume<Uncoupled<Cubic>>,
        "RFC 9438",
        "CUBIC on each path, every path a fair share of its own";
    "bbr", "bbr" => CarefulResume<Uncoupled<Bbr>>,
        "draft-ietf-ccwg-bbr-06",
        "BBRv3 on each path: by rate, not loss; every path a fair share of its own";
    "newreno", "newreno" => CarefulResume<Uncoupled<NewReno>>,
        "RFC 9002 section 7",
        "NewReno on each path, every path a fair share of its own";
};

static PUBLISHED: &[ControllerInfo] = controllers! {
    "olia-mpquic", "newreno" => OliaMpquic,
        "github.com/qdeconinck/mp-quic, which the ETC and PStream papers ran on",
        "a published baseline: OLIA with the initial window, back-off and overflow of mp-quic";
    "olia-ns3", "newreno" => OliaNs3,
        "github.com/ssjShirley/mpquic-ns3, which the thesis about MSAB ran on",
        "a published baseline: OLIA of the ns-3 module, which adds what it should take away";
};

static EXPERIMENTAL: &[ControllerInfo] = controllers! {
    "prague", "prague" => CarefulResume<Uncoupled<Prague>>,
        "draft-briscoe-iccrg-prague-congestion-control-04",
        "by the share of ECN marks, on each path: short queues where these are L4S queues, and only for these";
};

/// The controllers of this crate for general use, the default first.
pub fn list() -> &'static [ControllerInfo] {
    CONTROLLERS
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
    PUBLISHED
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
    EXPERIMENTAL
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
    if let Some(info) = find(EXPERIMENTAL) {
        return Ok(scalable(info.name, info.make));
    }
    find(CONTROLLERS)
        .or_else(|| find(PUBLISHED))
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
