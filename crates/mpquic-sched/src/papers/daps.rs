//! DAPS: delay-aware packet scheduling.

use std::time::Instant;

use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};
use mpquic_core::{PathId, PathMap};

use crate::choice::carriers;
use crate::papers::reservations::Reservations;
use crate::plain_cases::PlainCases;

/// One-way delays are rounded to multiples of this many milliseconds, or to a coarser grain if the
/// schedule would get too long.
const GRAIN: u64 = 4;
/// Longest schedule, milliseconds.
const MAX_PERIOD: u64 = 4096;
/// Weight of the newest value in the smoothed window.
const NEW: f64 = 1.0 / 8.0;

/// Sends according to a schedule. Every path gets a window of packets as often as its delay fits
/// into the length of the schedule. The order of the turns makes packets arrive in the order in
/// which they leave.
///
/// Source: Sarwar, Boreli, Lochin, Mifdaoui and Smith, "Mitigating Receiver's Buffer Blocking by
/// Delay Aware Packet Scheduling in Multipath Data Transfer", WAINA 2013; Kuhn et al., "DAPS:
/// Intelligent Delay-Aware Packet Scheduling for Multipath Transport", ICC 2014. Inputs: RTT,
/// window. Constants: delays in steps of 4 ms; a smoothed window that keeps seven eighths per round
/// trip; a schedule of at most 4.1 s (with coarser steps if it would be longer).
///
/// The schedule assigns data to paths, as the publications assign sequence numbers. Data of a path
/// whose window is full waits for that path, while other paths send their own data. As published, a
/// new schedule is made only when the old one ends or paths change, so DAPS reacts slowly.
#[derive(Debug, Default)]
pub struct Daps {
    cases: PlainCases,
    reservations: Reservations,
    windows: PathMap<Smoothed>,
    /// Sorted by RTT.
    slots: Vec<Slot>,
    period: u64,
    tick: u64,
    /// The slot whose turn it is, and the packets left of its turn.
    turn: Option<(usize, u64)>,
}

/// A smoothed window in bytes.
#[derive(Debug, Clone, Copy)]
struct Smoothed {
    bytes: f64,
    updated_at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    path: PathId,
    /// Milliseconds from one turn to the next.
    interval: u64,
    packets: u64,
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}

fn interval(path: &PathView, grain: u64) -> u64 {
    let delay = path.rtt.smoothed.as_secs_f64() * 500.0;
    (((delay / grain as f64).round() as u64) * grain).clamp(1, MAX_PERIOD)
}

impl Daps {
    fn note_windows(&mut self, view: &View<'_>) {
        let now = view.now;
        for path in carriers(view) {
            let window = path.window as f64;
            let smoothed = self.windows.get_or_insert_with(path.id, || Smoothed {
                bytes: window,
                updated_at: now,
            });
            if now.saturating_duration_since(smoothed.updated_at) >= path.rtt.smoothed {
                smoothed.bytes += NEW * (window - smoothed.bytes);
                smoothed.updated_at = now;
            }
        }
    }

    fn build(&mut self, view: &View<'_>) {
        self.slots.clear();
        for path in carriers(view) {
            let mtu = f64::from(path.mtu.max(1));
            let window = self.windows.get(path.id).map_or(mtu, |s| s.bytes);
            self.slots.push(Slot {
                path: path.id,
                interval: 1,
                packets: (window / mtu).floor().max(1.0) as u64,
            });
        }
        let rtt = |slot: &Slot| view.path(slot.path).map(|path| path.rtt.smoothed);
        self.slots
            .sort_unstable_by_key(|slot| (rtt(slot), slot.path));
        let mut grain = GRAIN;
        while grain <= MAX_PERIOD {
            self.period = 1;
            for slot in &mut self.slots {
                if let Some(path) = view.path(slot.path) {
                    slot.interval = interval(path, grain);
                }
                self.period = lcm(self.period, slot.interval).min(2 * MAX_PERIOD);
            }
            if self.period <= MAX_PERIOD {
                break;
            }
            grain *= 2;
        }
        self.tick = 0;
        self.turn = None;
    }

    /// Moves on to the next turn; `false` at the end of the schedule.
    fn advance(&mut self) -> bool {
        let later = self.turn.map_or(self.slots.len(), |(index, _)| index + 1);
        let due = |tick: u64, slot: &Slot| tick > 0 && tick.is_multiple_of(slot.interval);
        let mut next = (later..self.slots.len()).find(|index| due(self.tick, &self.slots[*index]));
        if next.is_none() {
            let after = |slot: &Slot| (self.tick / slot.interval + 1) * slot.interval;
            self.tick = self.slots.iter().map(after).min().unwrap_or(u64::MAX);
            if self.tick > self.period {
                self.turn = None;
                return false;
            }
            next = (0..self.slots.len()).find(|index| due(self.tick, &self.slots[*index]));
        }
        self.turn = next.map(|index| (index, self.slots[index].packets));
        next.is_some()
    }
}

impl Daps {
    /// The path of the next packet.
    fn take_turn(&mut self, view: &View<'_>) -> Option<PathId> {
        let carries = |id| carriers(view).any(|path| path.id == id);
        // Every slot may be unusable once, before and after a new schedule is made.
        for _ in 0..2 * (view.paths.len() + 1) {
            if self.turn.is_none_or(|(_, left)| left == 0) {
                if !self.advance() {
                    self.build(view);
                    self.advance();
                }
                continue;
            }
            if let Some((index, left)) = &mut self.turn {
                let path = self.slots[*index].path;
                if carries(path) {
                    *left -= 1;
                    return Some(path);
                }
                *left = 0;
            }
        }
        None
    }

    fn forget_schedule(&mut self) {
        self.slots.clear();
        self.turn = None;
    }
}

impl Scheduler for Daps {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let fastest = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        self.note_windows(view);
        let mut reservations = std::mem::take(&mut self.reservations);
        reservations.sync(view);
        let decision = reservations.dispatch(view, |_, _| self.take_turn(view));
        self.reservations = reservations;
        decision.unwrap_or(Decision::send(fastest.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::PathRemoved(path) => {
                self.windows.remove(*path);
                self.forget_schedule();
            }
            SchedulerEvent::PathAdded(_)
            | SchedulerEvent::PathStatus(..)
            | SchedulerEvent::PathSuspect(_)
            | SchedulerEvent::PathRecovered(_) => self.forget_schedule(),
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "daps"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::sched::DataSelection;

    use super::*;
    use crate::testing::{Scene, full, path, stream};

    /// Sends the next packet. Returns its path and its offset.
    fn send(daps: &mut Daps, scene: &mut Scene) -> (u32, u64) {
        let decision = daps.select(&scene.view());
        let Decision::Send {
            path,
            data: DataSelection::StreamAt { offset, .. },
            max_bytes,
            ..
        } = decision
        else {
            panic!("{decision:?}");
        };
        scene.streams[0].unsent -= max_bytes;
        (path.0, offset)
    }

    /// The paths of the next packets.
    fn order(daps: &mut Daps, scene: &mut Scene, packets: usize) -> Vec<u32> {
        (0..packets).map(|_| send(daps, scene).0).collect()
    }

    #[test]
    fn a_schedule_ends_when_all_turns_coincide() {
        for (a, b, expected) in [(8, 24, 24), (16, 24, 48), (24, 16, 48), (1, 7, 7)] {
            assert_eq!(lcm(a, b), expected);
        }
    }

    #[test]
    fn new_window_has_a_weight_of_an_eighth_per_round_trip() {
        let mut scene = Scene::new(vec![path(0, 48)]);
        let mut daps = Daps::default();
        let mut smoothed = |window, later: u64| {
            scene.paths[0].window = window;
            scene.now += std::time::Duration::from_millis(later);
            daps.note_windows(&scene.view());
            daps.windows.get(PathId(0)).unwrap().bytes
        };
        assert_eq!(smoothed(8_000, 0), 8_000.0);
        assert_eq!(smoothed(16_000, 47), 8_000.0);
        assert_eq!(smoothed(16_000, 1), 9_000.0);
        assert_eq!(smoothed(1_000, 48), 8_000.0);
    }

    #[test]
    fn turns_come_as_often_as_the_delay_fits() {
        let mut scene = Scene::new(vec![path(0, 48), path(1, 16)]);
        scene.paths[0].window = 2_400;
        scene.paths[1].window = 2_400;
        scene.streams = vec![stream(0, 0, 100_000)];
        let mut daps = Daps::default();
        // One-way delays of 24 and 8 ms: the fast path sends at 8, 16 and 24 ms, the slow path at
        // 24 ms.
        let expected = [1, 1, 1, 1, 1, 1, 0, 0];
        assert_eq!(order(&mut daps, &mut scene, 8), expected);
        assert_eq!(order(&mut daps, &mut scene, 8), expected);
        assert_eq!(daps.period, 24);
    }

    #[test]
    fn data_of_a_blocked_path_waits_while_the_other_path_sends() {
        let mut scene = Scene::new(vec![path(0, 48), full(path(1, 16))]);
        for path in &mut scene.paths {
            path.window = 2_400;
        }
        scene.streams = vec![stream(0, 0, 8 * 1140)];
        let mut daps = Daps::default();
        // Three turns of two packets belong to the fast path; the slow path sends data behind them.
        assert_eq!(send(&mut daps, &mut scene), (0, 6 * 1140));
        assert_eq!(send(&mut daps, &mut scene), (0, 7 * 1140));
        let on = PathId(1);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(daps.select(&scene.view()), wait);
        scene.paths[1] = path(1, 16);
        assert_eq!(send(&mut daps, &mut scene), (1, 0));
    }

    #[test]
    fn long_schedules_are_made_coarser() {
        let mut scene = Scene::new(vec![
            path(0, 52),
            path(1, 136),
            path(2, 328),
            path(3, 1_000),
        ]);
        scene.streams = vec![stream(0, 0, 100_000)];
        let mut daps = Daps::default();
        daps.select(&scene.view());
        assert!(daps.period <= MAX_PERIOD, "{}", daps.period);
    }
}
