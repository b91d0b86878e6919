//! The values of bounds after losses and marks.

use std::time::Duration;

use mpquic_core::congestion::CongestionKind;

use super::*;
use crate::bbr::bandwidth::Latest;
use crate::bbr::model::Bounds;
use crate::bbr::send_log::Flight;
use crate::bbr::{MaxBandwidth, Variant};
use crate::testing::{congestion, start};

const MS: Duration = Duration::from_millis(1);

/// A path that has delivered a megabyte per second, and half a megabyte per second in the last
/// round trip.
fn path(variant: Variant, phase: Phase) -> Bbr {
    let mut bbr = Bbr::with_variant(variant, start(), 1200);
    bbr.phase = phase;
    bbr.full_pipe.was_full = phase != Phase::Startup;
    bbr.window = 100_000.0;
    bbr.max_bandwidth = MaxBandwidth::starting_from(1e6, 0);
    bbr.latest = Latest {
        bandwidth: 5e5,
        in_flight: 40_000.0,
    };
    bbr
}

fn round(lost: f64, acked: f64, events: u32, marked: bool) -> LossRound {
    LossRound {
        lost,
        acked,
        events,
        marked,
    }
}

fn loss(lost_bytes: u64) -> CongestionEvent {
    let mut event = congestion(CongestionKind::Loss, start() + 50 * MS, start());
    event.lost_bytes = lost_bytes;
    event
}

#[test]
fn losses_leave_seven_tenths_of_bounds_or_the_delivered_rate() {
    let mut bbr = path(Variant::DRAFT, Phase::Cruise);
    for (bandwidth, in_flight) in [(7e5, 70_000.0), (5e5, 49_000.0), (5e5, 40_000.0)] {
        bbr.adapt_short_term(&round(1.0, 1e9, 1, false));
        let bounds = bbr.bounds;
        assert!((bounds.short_term_bandwidth - bandwidth).abs() < 1e-6);
        assert!((bounds.short_term - in_flight).abs() < 1e-6);
    }
}

#[test]
fn marks_leave_more_of_the_bounds_than_losses() {
    for (events, expected) in [(0, 85_000.0), (1, 70_000.0)] {
        let mut bbr = path(Variant::DRAFT, Phase::Down);
        bbr.adapt_short_term(&round(f64::from(events), 1e5, events, true));
        assert!((bbr.bounds.short_term - expected).abs() < 1e-6);
    }
}

#[test]
fn losses_set_no_short_term_bounds_in_startup_refill_and_up() {
    for phase in [Phase::Startup, Phase::Refill, Phase::Up] {
        let mut bbr = path(Variant::DRAFT, phase);
        bbr.adapt_short_term(&round(1e5, 1e5, 9, true));
        assert!(bbr.bounds.short_term.is_infinite());
    }
    let mut bbr = path(Variant::DRAFT, Phase::Cruise);
    bbr.adapt_short_term(&round(0.0, 1e5, 0, false));
    assert!(bbr.bounds.short_term.is_infinite(), "nothing was lost");
}

#[test]
fn quick_variant_tolerates_a_fiftieth_with_a_queue_and_a_tenth_without() {
    for (has_queue, tolerated) in [(true, 2_000.0), (false, 10_000.0)] {
        for (lost, reacts) in [(tolerated, false), (tolerated + 100.0, true)] {
            let mut bbr = path(Variant::QUICK, Phase::Cruise);
            if !has_queue {
                bbr.min_rtt.on_ack(start(), Some(40 * MS), 1.0);
            }
            bbr.adapt_short_term(&round(lost, 100_000.0 - lost, 1, false));
            assert_eq!(bbr.bounds.short_term.is_finite(), reacts, "{lost}");
        }
    }
}

#[test]
fn queue_overflowed_if_a_quarter_and_six_datagrams_are_lost() {
    let bbr = path(Variant::DRAFT, Phase::Startup);
    for (lost, acked, overflows) in [
        (7_200.0, 21_599.0, true),
        (7_200.0, 21_600.0, false),
        (7_199.0, 0.0, false),
    ] {
        assert_eq!(bbr.has_overflowed(&round(lost, acked, 1, false)), overflows);
    }
}

/// `in_flight` bytes were in flight when the newest acknowledged packet left; `lost` bytes were
/// lost since.
fn sample(in_flight: f64, lost: u64, bbr: &mut Bbr) -> Sample {
    bbr.losses.on_event(&loss(lost));
    Sample {
        now: start(),
        rate: None,
        delivered: 0.0,
        app_limited: false,
        newly_acked: 0.0,
        in_flight: 0.0,
        at_departure: Flight {
            bytes: in_flight,
            lost: 0.0,
        },
        rtt: None,
    }
}

#[test]
fn six_loss_batches_above_a_fiftieth_end_startup() {
    for (events, lost, ends) in [(6, 2_001, true), (5, 2_001, false), (6, 2_000, false)] {
        let mut bbr = path(Variant::DRAFT, Phase::Startup);
        let sample = sample(1e5, lost, &mut bbr);
        let round = round(lost as f64, 1e6, events, false);
        bbr.check_startup_losses(&sample, &round);
        assert_eq!(bbr.full_pipe.was_full, ends, "{events} {lost}");
        assert_eq!(bbr.undo.phase.is_some(), ends);
        let bound = if ends { 40_000.0 } else { f64::INFINITY };
        assert_eq!(bbr.bounds.long_term, bound);
    }
}

/// A delivery rate that grows in the same round trip is not that of a full queue.
#[test]
fn quick_startup_goes_on_despite_losses_while_the_rate_grows() {
    for (grows, ends) in [(true, false), (false, true)] {
        let mut bbr = path(Variant::QUICK, Phase::Startup);
        bbr.full_pipe.on_round(1e6);
        if !grows {
            bbr.full_pipe.on_round(1e6);
        }
        let sample = sample(1e5, 5_000, &mut bbr);
        bbr.check_startup_losses(&sample, &round(5_000.0, 1e6, 6, false));
        assert_eq!(bbr.full_pipe.was_full, ends);
    }
}

#[test]
fn two_marked_round_trips_end_startup() {
    let mut bbr = path(Variant::DRAFT, Phase::Startup);
    let sample = sample(1e5, 0, &mut bbr);
    for (marked, ends) in [(1, false), (2, true)] {
        bbr.losses.marked_rounds = marked;
        bbr.check_startup_losses(&sample, &round(0.0, 1e5, 0, true));
        assert_eq!(bbr.full_pipe.was_full, ends);
    }
}

#[test]
fn bound_after_startup_is_the_larger_of_product_and_delivered_bytes() {
    let mut bbr = path(Variant::DRAFT, Phase::Startup);
    bbr.end_startup(1_000.0);
    assert_eq!((bbr.bounds.long_term, bbr.window), (40_000.0, 4_800.0));
    bbr.min_rtt.on_ack(start(), Some(100 * MS), 1.0);
    bbr.end_startup(7_000.0);
    assert_eq!((bbr.bounds.long_term, bbr.window), (100_000.0, 7_000.0));
    assert!(bbr.full_pipe.was_full);
}

/// A probe with 100 kB in flight that lost `lost` bytes in a batch, and `before` bytes earlier.
fn probing(before: f64, lost: u64) -> Bbr {
    let mut bbr = path(Variant::DRAFT, Phase::Up);
    bbr.window = 50_000.0;
    bbr.cycle.is_probe_sample = true;
    let bytes = 100_000.0;
    let flight = Flight { bytes, lost: 0.0 };
    bbr.log.push(start(), MS, flight);
    bbr.losses.on_event(&loss(before as u64));
    bbr.on_loss(&loss(lost));
    bbr
}

#[test]
fn bound_is_the_point_at_which_losses_of_a_probe_became_too_many() {
    assert_eq!(probing(0.0, 2_000).phase, Phase::Up);
    assert_eq!(probing(1.0, 2_000).phase, Phase::Down);
    for (before, lost, expected) in [
        (0.0, 10_000, 90_000.0 + 0.02 * 90_000.0 / 0.98),
        (
            1_000.0,
            10_000,
            90_000.0 + (0.02 * 90_000.0 - 1_000.0) / 0.98,
        ),
        (0.0, 90_000, 0.7 * 50_000.0),
    ] {
        let bbr = probing(before, lost);
        let bound = bbr.bounds.long_term;
        assert!((bound - expected).abs() < 1e-6, "{bound} {expected}");
        assert!(bbr.cycle.was_too_high && !bbr.cycle.is_probe_sample);
        assert_eq!(bbr.undo.phase, Some(Phase::Up));
    }
}

#[test]
fn mark_on_a_probe_bounds_it_by_the_bytes_in_flight() {
    let mut bbr = probing(0.0, 1);
    let mut event = loss(0);
    event.kind = CongestionKind::Ecn;
    bbr.on_ecn(&event);
    assert_eq!((bbr.bounds.long_term, bbr.phase), (100_000.0, Phase::Down));
    bbr.bounds = Bounds::NONE;
    bbr.on_ecn(&event);
    assert!(bbr.bounds.long_term.is_infinite(), "once in a probe");
}

#[test]
fn spurious_losses_restore_bounds_and_phase() {
    let of = |value: f64| Bounds {
        long_term: value,
        short_term: value + 1.0,
        short_term_bandwidth: value + 2.0,
    };
    let (startup, up) = (Some(Phase::Startup), Some(Phase::Up));
    for (undone, phase, expected) in [
        (startup, Phase::Drain, Phase::Startup),
        (startup, Phase::ProbeRtt, Phase::ProbeRtt),
        (up, Phase::Down, Phase::Refill),
        (up, Phase::Up, Phase::Up),
        (up, Phase::ProbeRtt, Phase::ProbeRtt),
        (None, Phase::Cruise, Phase::Cruise),
    ] {
        for (before, now, left) in [(9e4, 5e4, 9e4), (5e4, 9e4, 9e4)] {
            let mut bbr = path(Variant::DRAFT, phase);
            bbr.undo = Undo {
                bounds: of(before),
                phase: undone,
            };
            bbr.bounds = of(now);
            (bbr.window, bbr.prior_window) = (10_000.0, 20_000.0);
            bbr.on_spurious_loss(&loss(0));
            assert_eq!(bbr.phase, expected, "{undone:?} {phase:?}");
            assert_eq!(bbr.bounds.long_term, left);
            let is_kept = expected != Phase::Refill;
            let short_term = if is_kept { left + 1.0 } else { f64::INFINITY };
            let bandwidth = if is_kept { left + 2.0 } else { f64::INFINITY };
            assert_eq!(bbr.bounds.short_term, short_term);
            assert_eq!(bbr.bounds.short_term_bandwidth, bandwidth);
            assert_eq!((bbr.undo.phase, bbr.window), (None, 20_000.0));
            assert_eq!(bbr.full_pipe.was_full, undone != startup);
        }
    }
}

#[test]
fn only_the_first_loss_of_a_round_trip_saves_the_state() {
    let mut bbr = path(Variant::DRAFT, Phase::Cruise);
    bbr.undo.phase = Some(Phase::Up);
    bbr.bounds.long_term = 60_000.0;
    bbr.on_loss(&loss(1200));
    assert_eq!(bbr.undo.bounds.long_term, 60_000.0);
    assert_eq!((bbr.undo.phase, bbr.prior_window), (None, 100_000.0));
    bbr.bounds.long_term = 50_000.0;
    bbr.window = 150_000.0;
    bbr.on_loss(&loss(1200));
    assert_eq!(bbr.undo.bounds.long_term, 60_000.0);
    assert_eq!(bbr.prior_window, 100_000.0);
}

const DATAGRAM: u16 = 1000;

/// A path that has shown 1 MB/s, and delivers 10 kB/s and 20 kB in a round trip now.
fn collapsing(variant: Variant, rtts: [u64; 2]) -> Bbr {
    let mut bbr = Bbr::with_variant(variant, start(), DATAGRAM);
    bbr.max_bandwidth = MaxBandwidth::starting_from(1e6, 0);
    for ms in rtts {
        let rtt = Some(Duration::from_millis(ms));
        bbr.min_rtt.on_ack(start(), rtt, 1.0);
    }
    bbr.latest = Latest {
        bandwidth: 1e4,
        in_flight: 2e4,
    };
    bbr
}

/// Ends round trips that lost so many of ten datagrams.
fn end_lossy_rounds(bbr: &mut Bbr, lost: [u32; 2]) {
    for lost in lost {
        let bytes = f64::from(lost) * f64::from(DATAGRAM);
        let round = LossRound {
            lost: bytes,
            acked: 10.0 * f64::from(DATAGRAM) - bytes,
            events: lost,
            marked: false,
        };
        bbr.check_collapse(start(), &round);
    }
}

#[test]
fn two_round_trips_with_most_bytes_lost_behind_a_queue_count() {
    let queue = [100, 900];
    for (variant, rtts, lost, collapses) in [
        (Variant::QUICK, queue, [6, 6], true),
        (Variant::QUICK, queue, [0, 6], false),
        (Variant::QUICK, queue, [6, 5], false),
        (Variant::QUICK, [100, 101], [6, 6], false),
        (Variant::DRAFT, queue, [6, 6], false),
    ] {
        let mut bbr = collapsing(variant, rtts);
        end_lossy_rounds(&mut bbr, lost);
        let bandwidth = if collapses { 1e4 } else { 1e6 };
        assert_eq!(bbr.max_bandwidth.get(), bandwidth, "{rtts:?} {lost:?}");
        assert_eq!(bbr.bounds.long_term == 2e4, collapses);
        assert_eq!(bbr.full_pipe.was_full, collapses, "startup ends");
    }
}

#[test]
fn a_probe_of_a_collapsed_path_ends() {
    for (phase, after) in [
        (Phase::Up, Phase::Down),
        (Phase::Refill, Phase::Down),
        (Phase::Cruise, Phase::Cruise),
    ] {
        let mut bbr = collapsing(Variant::QUICK, [100, 900]);
        bbr.phase = phase;
        end_lossy_rounds(&mut bbr, [6, 6]);
        assert_eq!(bbr.phase, after);
    }
}
