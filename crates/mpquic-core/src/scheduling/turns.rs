//! [`Turns`]: decides whether the application or the scheduler assigns the next data.

use super::assignment::Assignment;
use crate::ids::PathId;

/// The participant that assigns the next data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The application, which has bound data to paths.
    Bound,
    Scheduler,
    /// The scheduler's decision could not be carried out: its path carries other data.
    SecondChoice,
}

/// Whose turns are left in a round.
#[derive(Debug, Clone, Copy, Default)]
enum Left {
    BoundThenScheduler,
    SchedulerThenBound,
    Scheduler,
    Bound,
    SecondChoice,
    #[default]
    Nobody,
}

/// Bound data takes turns with the scheduler, and paths with bound data take turns with each other.
/// A round ends with the first assignment that can be carried out; each participant has at most one
/// turn in it.
#[derive(Debug)]
pub(super) struct Turns {
    left: Left,
    /// The last assignment was bound data, so the scheduler begins the next round.
    was_bound: bool,
    /// The path of that assignment, or of an earlier one.
    last_path: PathId,
    second_choice: Option<Assignment>,
}

impl Turns {
    /// No round has begun.
    pub(super) fn new() -> Self {
        Self {
            left: Left::Nobody,
            was_bound: false,
            last_path: PathId::ZERO,
            second_choice: None,
        }
    }

    /// Begins a round; `has_bound` is true if bound data waits.
    #[inline]
    pub(super) fn begin(&mut self, has_bound: bool) {
        self.left = match (has_bound, self.was_bound) {
            (true, false) => Left::BoundThenScheduler,
            (true, true) => Left::SchedulerThenBound,
            (false, _) => Left::Scheduler,
        };
        self.second_choice = None;
    }

    /// The next turn of the round.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Turn> {
        self.was_bound = false;
        let (turn, left) = match self.left {
            Left::BoundThenScheduler => (Turn::Bound, Left::Scheduler),
            Left::SchedulerThenBound => (Turn::Scheduler, Left::Bound),
            Left::Scheduler => (Turn::Scheduler, Left::SecondChoice),
            Left::Bound => (Turn::Bound, Left::SecondChoice),
            Left::SecondChoice => (Turn::SecondChoice, Left::Nobody),
            Left::Nobody => return None,
        };
        self.left = left;
        Some(turn)
    }

    /// Assigns bound data of the path whose turn it is. `able` are the paths whose bound data can
    /// be sent.
    #[inline]
    pub(super) fn next_bound(&mut self, able: impl Iterator<Item = PathId>) -> Option<Assignment> {
        let last = self.last_path;
        let path = able.min_by_key(|path| (*path <= last, *path))?;
        self.last_path = path;
        self.was_bound = true;
        Some(Assignment::bound(path))
    }

    /// The scheduler has decided.
    #[inline]
    pub(super) fn on_decided(&mut self, decided: &Assignment) {
        self.second_choice = decided.instead();
    }

    /// Takes the assignment that replaces a failed decision of the scheduler.
    pub(super) fn take_second_choice(&mut self) -> Option<Assignment> {
        self.second_choice.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(turns: &mut Turns, has_bound: bool) -> Vec<Turn> {
        turns.begin(has_bound);
        std::iter::from_fn(|| turns.take()).collect()
    }

    fn send_bound(turns: &mut Turns, paths: &[u32]) -> Option<PathId> {
        turns.begin(true);
        while turns.take()? != Turn::Bound {}
        let able = paths.iter().map(|path| PathId(*path));
        turns.next_bound(able).map(|assignment| assignment.path)
    }

    #[test]
    fn each_has_one_turn_in_a_round() {
        use Turn::{Bound, Scheduler, SecondChoice};
        let mut turns = Turns::new();
        assert_eq!(turns.take(), None, "no round has begun");
        assert_eq!(round(&mut turns, false), [Scheduler, SecondChoice]);
        assert_eq!(round(&mut turns, true), [Bound, Scheduler, SecondChoice]);
    }

    #[test]
    fn the_scheduler_begins_after_bound_data_was_sent() {
        use Turn::{Bound, Scheduler, SecondChoice};
        let mut turns = Turns::new();
        assert_eq!(send_bound(&mut turns, &[1]), Some(PathId(1)));
        assert_eq!(round(&mut turns, true), [Scheduler, Bound, SecondChoice]);
        assert_eq!(round(&mut turns, true), [Bound, Scheduler, SecondChoice]);
        assert_eq!(send_bound(&mut turns, &[]), None);
        let after_nothing = round(&mut turns, true);
        assert_eq!(after_nothing, [Bound, Scheduler, SecondChoice]);
    }

    #[test]
    fn paths_with_bound_data_take_turns() {
        let mut turns = Turns::new();
        let sent = [0; 5].map(|_| send_bound(&mut turns, &[3, 0, 2]));
        assert_eq!(sent, [2, 3, 0, 2, 3].map(|path| Some(PathId(path))));
        assert_eq!(send_bound(&mut turns, &[1]), Some(PathId(1)));
    }

    #[test]
    fn a_second_choice_counts_once_and_in_its_round() {
        let mut turns = Turns::new();
        let mut decided = Assignment::next(PathId(1));
        decided.data = Some(crate::sched::DataSelection::Datagram);
        turns.begin(false);
        turns.on_decided(&decided);
        let second = turns.take_second_choice();
        assert_eq!(second.map(|second| second.path), Some(PathId(1)));
        assert!(turns.take_second_choice().is_none());
        turns.on_decided(&decided);
        turns.begin(false);
        assert!(turns.take_second_choice().is_none());
    }
}
