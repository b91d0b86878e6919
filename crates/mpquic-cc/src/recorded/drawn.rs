//! Worlds with random links and random changes.

use mpquic_core::congestion::{CongestionEvent, CongestionKind, SavedCapacity};

use mpquic_sim::SplitMix64;

use super::{Link, NEW_RENO, OnPath, Rival, TURN};
use crate::testing_link::{Flow, MTU};

/// A random world, and the random changes of its links.
pub(super) struct Drawn {
    pub(super) links: Vec<Link>,
    pub(super) in_one_queue: usize,
    pub(super) rival: Option<Rival>,
    numbers: SplitMix64,
    /// The mean number of turns between two changes.
    calm: u64,
    /// The number of kinds of changes.
    kinds: u64,
}

impl Drawn {
    pub(super) fn new(seed: u64) -> Self {
        let mut numbers = SplitMix64::new(seed);
        let count = 1 + numbers.below(3);
        let mut link = || {
            let mbit = [1, 2, 5, 10, 20, 40][numbers.below(6) as usize] as f64;
            let rtt = [2, 10, 25, 60, 150, 400][numbers.below(6) as usize] + numbers.below(5);
            (
                mbit,
                rtt,
                [0.2, 0.5, 1.0, 1.5, 4.0][numbers.below(5) as usize],
            )
        };
        Self {
            links: (0..count).map(|_| link()).collect(),
            in_one_queue: if numbers.below(3) == 0 {
                2.min(count as usize)
            } else {
                1
            },
            rival: (numbers.below(3) == 0).then_some(NEW_RENO),
            numbers,
            calm: 150,
            kinds: 14,
        }
    }

    /// A long world with few packets per round trip. There a controller needs long to find out
    /// which paths share a queue.
    pub(super) fn long(seed: u64) -> Self {
        let mut numbers = SplitMix64::new(seed ^ 0x5eed);
        let count = 1 + numbers.below(3) as usize;
        let in_one_queue = count.saturating_sub(numbers.below(3) as usize).max(1);
        let mut link = || {
            let mbit = [2.0, 3.0, 4.0, 6.0][numbers.below(4) as usize];
            let queue = [0.4, 0.7, 1.0, 1.2, 1.5, 3.0][numbers.below(6) as usize];
            (mbit, 20 + 20 * numbers.below(5), queue)
        };
        let mut links: Vec<Link> = (0..count).map(|_| link()).collect();
        for index in 1..in_one_queue {
            links[index] = (links[0].0, links[index].1, links[0].2);
        }
        let names = ["newreno", "newreno", "cubic", "bbr"];
        let name = names.get(numbers.below(6) as usize);
        let from = 1_000 * numbers.below(20);
        let rival = name.map(|name| Rival {
            name,
            from,
            until: from + 20_000 + 1_000 * numbers.below(40),
        });
        Self {
            links,
            in_one_queue,
            rival,
            numbers,
            calm: 5_000,
            kinds: 16,
        }
    }

    pub(super) fn change(&mut self, links: &mut [Flow<OnPath>]) {
        let numbers = &mut self.numbers;
        if numbers.below(self.calm) > 0 {
            return;
        }
        let link = &mut links[numbers.below(self.links.len() as u64) as usize];
        let OnPath { controller, path } = &link.controller;
        let (controller, path, now) = (controller.clone(), *path, link.now);
        let report = |kind, lost| {
            let mut event = CongestionEvent::new(kind, now, now - 20 * TURN);
            event.lost_bytes = lost;
            event.in_flight = link.in_flight();
            controller.borrow_mut().on_congestion_event(path, &event);
        };
        match numbers.below(self.kinds) {
            0 => link.set_rate(link.rate * [0.3, 0.7, 1.5, 3.0][numbers.below(4) as usize]),
            1 => link.rtt = link.rtt * [5, 8, 15, 25][numbers.below(4) as usize] / 10,
            2 => link.rtt_restarts = true,
            3 => link.application = Some(1e3 * (5 + numbers.below(500)) as f64),
            4 | 5 => link.application = None,
            6 => link.lose_every = Some(10 + numbers.below(500)),
            7 => link.lose_every = None,
            8 => link.mark_above = Some(link.rtt / 4),
            9 => link.mark_above = None,
            10 => {
                report(CongestionKind::Loss, 3 * MTU);
                report(CongestionKind::Spurious, 3 * MTU);
            }
            11 => report(CongestionKind::Persistent, 20 * MTU),
            12 => {
                let mtu = 1200 + 10 * numbers.below(30) as u16;
                controller.borrow_mut().on_mtu_update(path, mtu);
            }
            13 => {
                let mut controller = controller.borrow_mut();
                controller.on_path_closed(path);
                controller.on_path_opened(path, now, MTU as u16);
                let saved = SavedCapacity {
                    window: 20_000 * (1 + numbers.below(20)),
                    rtt: link.rtt,
                };
                controller.resume(path, now, saved);
            }
            14 => link.acknowledge_every = Some(TURN * (2 + numbers.below(30) as u32)),
            _ => link.acknowledge_every = None,
        }
    }
}
