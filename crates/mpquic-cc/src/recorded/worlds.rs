//! Worlds with hand-written changes.

use std::time::Duration;

use mpquic_core::congestion::{CongestionEvent, CongestionKind, SavedCapacity};

use super::{Link, NEW_RENO, OnPath, Rival, TURN};
use crate::testing_link::{Flow, MTU, Steer};

/// A simulated network that changes. Numbers of turns are multiples of [`TURN`].
pub(super) struct World {
    pub(super) links: &'static [Link],
    /// This many links, counted from the first, share one queue.
    pub(super) in_one_queue: usize,
    /// Another sender on the first link.
    pub(super) rival: Option<Rival>,
    /// Length of the world.
    pub(super) turns: u64,
    /// Called before each turn, with the number of the turn.
    pub(super) change: fn(u64, &mut [Flow<OnPath>]),
}

/// Reports an event about packets that left `ago` before now to the controller.
fn tell(link: &mut Flow<OnPath>, kind: CongestionKind, ago: Duration, lost_bytes: u64) {
    let mut event = CongestionEvent::new(kind, link.now, link.now - ago);
    event.lost_bytes = lost_bytes;
    event.in_flight = link.in_flight();
    link.controller.on_congestion_event(&event);
}

pub(super) const WORLDS: [World; 19] = [
    World {
        // Two unlike links, without changes.
        links: &[(10.0, 20, 1.0), (20.0, 60, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 6_000,
        change: |_, _| {},
    },
    World {
        // One link loses packets for a while, another link is slow for a while.
        links: &[(8.0, 40, 4.0), (5.0, 10, 0.3), (12.0, 120, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 6_000,
        change: |turn, links| match turn {
            0 => links[0].lose_every = Some(250),
            2_000 => links[2].set_rate(300_000.0),
            3_500 => links[0].lose_every = None,
            4_000 => links[2].set_rate(2_000_000.0),
            _ => {}
        },
    },
    World {
        // One link marks packets, and the application has little data for the other link for a
        // while.
        links: &[(15.0, 30, 2.0), (15.0, 30, 2.0)],
        in_one_queue: 1,
        rival: None,
        turns: 5_000,
        change: |turn, links| match turn {
            0 => links[0].mark_above = Some(Duration::from_millis(8)),
            1_500 => links[1].application = Some(200_000.0),
            3_000 => links[1].application = None,
            _ => {}
        },
    },
    World {
        // A loss that proves spurious, a loss, a mark, persistent congestion, a late spurious loss.
        links: &[(30.0, 25, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 4_000,
        change: |turn, links| {
            let kind = match turn {
                500 | 1_700 => CongestionKind::Loss,
                505 | 2_500 => CongestionKind::Spurious,
                1_800 => CongestionKind::Ecn,
                2_000 => CongestionKind::Persistent,
                _ => return,
            };
            tell(&mut links[0], kind, 10 * TURN, 3 * MTU);
        },
    },
    World {
        // A resumed capacity, larger datagrams, and a path that closes and opens again at once.
        links: &[(25.0, 80, 1.0), (10.0, 300, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 5_000,
        change: |turn, links| {
            let OnPath { controller, path } = &links[(turn / 1_500 % 2) as usize].controller;
            let now = links[0].now;
            match turn {
                0 => {
                    let saved = SavedCapacity {
                        window: 200_000,
                        rtt: 80 * TURN,
                    };
                    controller.borrow_mut().resume(*path, now, saved);
                }
                1_000 => controller.borrow_mut().on_mtu_update(*path, 1400),
                2_000 => {
                    controller.borrow_mut().on_path_closed(*path);
                    controller
                        .borrow_mut()
                        .on_path_opened(*path, now, MTU as u16);
                }
                _ => {}
            }
        },
    },
    World {
        links: &[(3.0, 15, 8.0), (40.0, 15, 0.2), (6.0, 200, 0.5)],
        in_one_queue: 1,
        rival: None,
        turns: 4_000,
        change: |turn, links| {
            // A link falls silent for half a second.
            match turn {
                1_500 => links[1].lose_every = Some(1),
                2_000 => links[1].lose_every = None,
                _ => {}
            }
        },
    },
    World {
        // Slow links whose round trips change, and an application with little data for a while.
        links: &[(4.0, 30, 2.0), (2.0, 60, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 25_000,
        change: |turn, links| match turn {
            8_000 => links[0].application = Some(20_000.0),
            9_500 => links[0].application = None,
            14_000 => links[1].rtt = 20 * TURN,
            18_000 => links[0].rtt = 70 * TURN,
            18_001 => links[0].rtt_restarts = true,
            _ => {}
        },
    },
    World {
        // Two paths share a bottleneck, the third path does not.
        links: &[(6.0, 30, 1.0), (6.0, 50, 1.0), (4.0, 20, 1.0)],
        in_one_queue: 2,
        rival: None,
        turns: 15_000,
        change: |_, _| {},
    },
    World {
        // A loss-based rival on one link, while the other link becomes faster.
        links: &[(6.0, 30, 1.5), (3.0, 40, 1.0)],
        in_one_queue: 1,
        rival: Some(NEW_RENO),
        turns: 15_000,
        change: |turn, links| {
            if turn == 12_000 {
                links[1].set_rate(1_000_000.0);
            }
        },
    },
    World {
        // The start on a very fast link.
        links: &[(700.0, 2, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 120,
        change: |_, _| {},
    },
    World {
        links: &[(10.0, 40, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 5_000,
        change: |turn, links| {
            // Losses in every phase of the controller, and then a report of a spurious loss.
            let kind = match turn % 270 {
                100 | 105 => CongestionKind::Loss,
                130 => CongestionKind::Spurious,
                _ => return,
            };
            tell(&mut links[0], kind, 5 * TURN, 4 * MTU);
        },
    },
    World {
        // Two paths share a bottleneck with a loss-based rival. One path has little data for a
        // while.
        links: &[(12.0, 50, 0.5), (12.0, 50, 0.5)],
        in_one_queue: 2,
        rival: Some(NEW_RENO),
        turns: 12_000,
        change: |turn, links| match turn {
            3_000 => links[1].application = Some(100_000.0),
            6_000 => links[1].application = None,
            9_000 => links[0].lose_every = Some(100),
            _ => {}
        },
    },
    World {
        // Links so slow that windows fall to two datagrams.
        links: &[(0.3, 30, 1.0), (0.5, 100, 0.5)],
        in_one_queue: 1,
        rival: None,
        turns: 15_000,
        change: |turn, links| match turn {
            2_000 => links.iter_mut().for_each(|link| link.lose_every = Some(7)),
            8_000 => links[0].lose_every = None,
            10_000 => links[1].set_rate(1_000_000.0),
            _ => {}
        },
    },
    World {
        // Three paths share a bottleneck with a BBR sender that comes and goes.
        links: &[(16.0, 40, 1.2), (16.0, 55, 1.2), (16.0, 40, 1.2)],
        in_one_queue: 3,
        rival: Some(Rival {
            name: "bbr",
            from: 3_000,
            until: 7_000,
        }),
        turns: 9_000,
        change: |turn, links| match turn {
            4_000 => links[2].application = Some(50_000.0),
            5_500 => links[2].application = None,
            6_000 => links[1].rtt = 90 * TURN,
            _ => {}
        },
    },
    World {
        // Pauses that are longer than the memory of the controllers.
        links: &[(6.0, 40, 1.0), (3.0, 25, 2.0)],
        in_one_queue: 1,
        rival: None,
        turns: 40_000,
        change: |turn, links| match turn {
            3_000 | 20_000 => links[0].application = Some(100.0),
            14_000 | 33_000 => links[0].application = None,
            6_000 => links[1].application = Some(1_500.0),
            17_500 => links[1].application = None,
            _ => {}
        },
    },
    World {
        // Queues that mark early; one queue marks all packets for some time.
        links: &[(20.0, 20, 2.0), (10.0, 60, 1.0), (5.0, 10, 4.0)],
        in_one_queue: 1,
        rival: None,
        turns: 8_000,
        change: |turn, links| match turn {
            0 => {
                links[0].mark_above = Some(TURN);
                links[1].mark_above = Some(10 * TURN);
            }
            2_500 => links[2].mark_above = Some(Duration::ZERO),
            3_500 => links[2].mark_above = None,
            5_000 => links[0].set_rate(700_000.0),
            _ => {}
        },
    },
    World {
        // Fast links: one becomes slower, the other loses packets.
        links: &[(400.0, 8, 0.7), (250.0, 3, 1.0)],
        in_one_queue: 1,
        rival: None,
        turns: 300,
        change: |turn, links| match turn {
            120 => links[0].set_rate(20_000_000.0),
            200 => links[1].lose_every = Some(300),
            _ => {}
        },
    },
    World {
        // Acknowledgements in bursts, losses, and spurious losses, also two of them in a row.
        links: &[(12.0, 50, 1.0), (12.0, 50, 1.0)],
        in_one_queue: 2,
        rival: None,
        turns: 9_000,
        change: |turn, links| {
            if turn == 0 {
                links[0].acknowledge_every = Some(4 * TURN);
                links[1].acknowledge_every = Some(25 * TURN);
            }
            let kind = match turn % 410 {
                150 | 230 => CongestionKind::Loss,
                190 | 260 | 300 => CongestionKind::Spurious,
                _ => return,
            };
            let link = &mut links[(turn / 410 % 2) as usize];
            let mut event = CongestionEvent::new(kind, link.now, link.now - 30 * TURN);
            event.lost_bytes = 5 * MTU;
            event.in_flight = link.in_flight();
            link.controller.on_congestion_event(&event);
        },
    },
    World {
        // Paths that are closed for a while, and datagrams of different sizes.
        links: &[(10.0, 30, 1.0), (10.0, 45, 1.0), (10.0, 30, 1.0)],
        in_one_queue: 3,
        rival: None,
        turns: 9_000,
        change: |turn, links| {
            let OnPath { controller, path } = &links[(turn / 1_000 % 3) as usize].controller;
            let mut controller = controller.borrow_mut();
            match turn % 1_000 {
                200 => controller.on_path_closed(*path),
                700 => {
                    let mtu = [1200, 1450, 9000][(turn / 3_000) as usize];
                    controller.on_path_opened(*path, links[0].now, mtu);
                }
                900 => controller.on_mtu_update(*path, 1300),
                _ => {}
            }
        },
    },
];
