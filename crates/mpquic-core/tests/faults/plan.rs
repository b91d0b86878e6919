//! What goes wrong in a run, and when: drawn from a seed.

use std::fmt;
use std::time::Duration;

use mpquic_sim::{Change, LinkConfig, Loss, OnResume, Side};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::operations::setup::{Drawn, Sides, draw, one_of};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Which of the two links of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Direction {
    Up,
    Down,
    Both,
}

impl Direction {
    pub(super) fn includes(self, side: Side) -> bool {
        match self {
            Self::Up => side == Side::Client,
            Self::Down => side == Side::Server,
            Self::Both => true,
        }
    }
}

/// What is wrong for a while.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// A path's links do something bad.
    Link(usize, Direction, Change),
    /// A process gets no time.
    Stop(Side, OnResume),
    /// An application reads nothing.
    Slow(Side),
    /// A side's interface of a path is gone.
    Down(Side, usize),
}

/// What happens at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// A side's clock jumps forward.
    Jump(Side, Duration),
    /// A NAT box forgets its bindings.
    Rebind(usize, bool),
    /// The client has another port, and perhaps the address of another path.
    Move(usize, usize),
    /// The client closes a path other than the last, and opens it again.
    Close(usize),
    /// A unidirectional stream of so many bytes.
    Send(Side, u64),
    /// A bidirectional stream, and the answer.
    Ask(Side, u64, u64),
    Datagram(Side, usize),
    /// A side's newest sending stream is reset, and its newest receiving stream is stopped.
    Reset(Side),
    Stop(Side),
    UpdateKeys(Side),
    /// Where the plan ends.
    End,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Episode {
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) fault: Fault,
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Every fault passes: all that was sent arrives.
    Heal,
    /// An application closes the connection while faults go on.
    Close(Side),
    /// An application reads nothing more, and after a time the other side closes.
    Abandon(Side),
    /// A process is killed.
    Vanish(Side),
    /// The server is killed, and a new server takes its place at once.
    Restart,
}

pub(super) struct Plan {
    pub(super) drawn: Drawn,
    pub(super) episodes: Vec<Episode>,
    /// Sorted by time; the last one is [`Act::End`].
    pub(super) acts: Vec<(Duration, Act)>,
    pub(super) ending: Ending,
    /// The faults begin before the handshake.
    pub(super) is_early: bool,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}, early: {}, {:?}, {:?}",
            self.ending, self.is_early, self.episodes, self.acts
        )
    }
}

impl Plan {
    pub(super) fn draw(seed: u64, tls: bool) -> Self {
        let mut drawn = draw(seed, tls, Sides::Apart);
        // Other random numbers than those of the drawn network and configurations.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6661_756c_7473);
        vary_timeouts(&mut random, &mut drawn);
        let paths = drawn.names.len();
        let ending = draw_ending(&mut random);
        let length = SECOND * random.random_range(2..25);
        let mut episodes = Vec::new();
        for _ in 0..random.random_range(1..8) {
            let from = length.mul_f64(random.random_range(0.0..1.0));
            let longest = one_of(&mut random, &[SECOND, 5 * SECOND, 20 * SECOND]);
            let to = from + longest.mul_f64(random.random_range(0.01..1.0));
            let to = to.min(length);
            let fault = draw_fault(&mut random, paths, tls);
            episodes.push(Episode { from, to, fault });
        }
        let mut acts = vec![(length, Act::End)];
        for _ in 0..random.random_range(2..10) {
            let at = length.mul_f64(random.random_range(0.0..0.9));
            acts.push((at, draw_work(&mut random)));
        }
        for _ in 0..random.random_range(0..6) {
            let at = length.mul_f64(random.random_range(0.0..0.9));
            acts.push((at, draw_act(&mut random, paths)));
        }
        acts.sort_by_key(|(at, _)| *at);
        Self {
            drawn,
            episodes,
            acts,
            ending,
            is_early: random.random_bool(0.2),
        }
    }
}

/// Short timeouts too, which a fault may outlast.
fn vary_timeouts(random: &mut Xoshiro256PlusPlus, drawn: &mut Drawn) {
    let timeouts = [
        None,
        Some(15 * SECOND),
        Some(30 * SECOND),
        Some(60 * SECOND),
    ];
    for side in [&mut drawn.setup.client, &mut drawn.setup.server] {
        side.max_idle_timeout = one_of(random, &timeouts);
        side.max_handshake_duration = one_of(random, &[20 * SECOND, 600 * SECOND]);
    }
    // A side that misses the news of the end learns of it only by that.
    if drawn.setup.client.max_idle_timeout.is_none() {
        let server = &mut drawn.setup.server.max_idle_timeout;
        *server = server.or(Some(30 * SECOND));
    }
}

fn draw_ending(random: &mut Xoshiro256PlusPlus) -> Ending {
    let side = one_of(random, &[Side::Client, Side::Server]);
    match random.random_range(0..10) {
        0..6 => Ending::Heal,
        6 => Ending::Close(side),
        7 => Ending::Abandon(side),
        8 => Ending::Vanish(side),
        _ => Ending::Restart,
    }
}

fn draw_fault(random: &mut Xoshiro256PlusPlus, paths: usize, tls: bool) -> Fault {
    let side = one_of(random, &[Side::Client, Side::Server]);
    let path = random.random_range(0..paths);
    match random.random_range(0..10) {
        0 => Fault::Slow(side),
        1 | 2 => {
            let first = one_of(random, &[OnResume::Packets, OnResume::Timers]);
            Fault::Stop(side, first)
        }
        3 => Fault::Down(side, path),
        _ => {
            let directions = [Direction::Up, Direction::Down, Direction::Both];
            let direction = one_of(random, &directions);
            Fault::Link(path, direction, draw_change(random, tls))
        }
    }
}

fn draw_change(random: &mut Xoshiro256PlusPlus, tls: bool) -> Change {
    let share = random.random_range(0.01..0.5);
    match random.random_range(0..9) {
        0 => Change::Outage(true),
        1 => Change::Loss(Loss::bernoulli(share)),
        2 => Change::Loss(Loss::gilbert(share, one_of(random, &[5.0, 20.0, 100.0]))),
        // Only real cryptography notices.
        3 if tls => Change::Corrupt(share),
        3 | 4 => Change::Duplicate(share * 2.0),
        5 => Change::Reorder(share, MS * random.random_range(1..5000)),
        // A black hole for full packets, for probes and padded ones, or for nearly all.
        6 => Change::Mtu(one_of(random, &[1400, 1300, 1227, 600, 100])),
        7 => Change::Delay(MS * random.random_range(1..3000)),
        _ => Change::Rate(one_of(random, &[0.02, 0.1, 1.0])),
    }
}

fn draw_size(random: &mut Xoshiro256PlusPlus) -> u64 {
    let most = one_of(random, &[1, 1000, 20_000, 150_000, 400_000]);
    random.random_range(0..most)
}

fn draw_work(random: &mut Xoshiro256PlusPlus) -> Act {
    let side = one_of(random, &[Side::Client, Side::Server]);
    match random.random_range(0..4) {
        0 | 1 => Act::Send(side, draw_size(random)),
        2 => Act::Ask(side, draw_size(random), draw_size(random)),
        _ => Act::Datagram(side, random.random_range(8..1300)),
    }
}

fn draw_act(random: &mut Xoshiro256PlusPlus, paths: usize) -> Act {
    let path = random.random_range(0..paths);
    let side = one_of(random, &[Side::Client, Side::Server]);
    match random.random_range(0..8) {
        0 => {
            let longest = one_of(random, &[10, 1000, 50_000]);
            Act::Jump(side, MS * random.random_range(1..longest))
        }
        1 => Act::Rebind(path, random.random_bool(0.5)),
        2 | 3 => Act::Move(path, random.random_range(0..paths)),
        4 => Act::Reset(side),
        5 => Act::Stop(side),
        6 => Act::UpdateKeys(side),
        _ => Act::Close(path),
    }
}

/// A link under these changes.
pub(super) fn changed<'a>(
    base: &LinkConfig,
    changes: impl Iterator<Item = &'a Change>,
) -> Vec<Change> {
    let mut all = vec![
        Change::Outage(base.outage),
        Change::Loss(base.loss),
        Change::Corrupt(base.corrupt),
        Change::Duplicate(base.duplicate),
        Change::Reorder(base.reorder, base.reorder_delay),
        Change::Mtu(base.mtu),
        Change::Delay(base.delay),
        Change::Rate(base.rate.map_or(f64::INFINITY, |rate| rate / 1e6)),
    ];
    all.extend(changes);
    all
}
