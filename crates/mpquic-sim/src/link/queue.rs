//! The packets that wait for a link, in a single line or in several. Disciplines choose the packets
//! to drop or mark before the queue is full.

mod codel;
mod dual;
mod flows;
mod line;
mod pie;
#[cfg(test)]
mod tests;

use super::config::Discipline;
use codel::Controlled;
use dual::Dual;
use flows::Flows;
use line::Line;
use pie::Pie;

pub(super) use line::{Queue, Queued};

/// An empty queue. Random drops use `seed`.
pub(super) fn new(discipline: Discipline, seed: u64) -> Box<dyn Queue> {
    match discipline {
        Discipline::Fifo => Box::new(Line::default()),
        Discipline::CoDel => Box::new(Controlled::default()),
        Discipline::FqCoDel => Box::new(Flows::default()),
        Discipline::Pie => Box::new(Pie::new(seed)),
        Discipline::DualPi2 => Box::new(Dual::default()),
    }
}
