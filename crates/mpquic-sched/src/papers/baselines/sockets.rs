//! Packets handed to independent TCP connections.

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{carriers, lowest_rtt};
use crate::papers::choice::backlog;
use crate::papers::ecf::{self, EcfForm};
use crate::papers::qaware::{QAware, QAwareForm};
use crate::papers::reservations::Reservations;
use crate::plain_cases::PlainCases;

/// The send buffer of a TCP socket of ns-3, bytes.
const SOCKET_BUFFER: u64 = 131_072;

/// How [`Sockets`] chooses the path of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRule {
    /// The path with the lowest smoothed RTT.
    LowestRtt,
    /// Like `LowestRtt`, but if the socket of that path is full, ECF decides between waiting and
    /// the next path with room.
    Ecf,
    /// QAware's rule, as printed.
    QAware,
}

/// Gives every packet to the socket of one path, regardless of the congestion window of the path.
/// Packets stay with their path, and a packet whose socket is full (128 KiB) waits for room in that
/// socket.
///
/// Source: the simulation of Shreedhar, Mohan, Kaul and Kangasharju, "QAware: A Cross-Layer
/// Approach to MPTCP Scheduling", IFIP Networking 2018, whose "scheduler assigns packets over
/// independent TCP streams" (footnote 5). The code of the simulation is not public. The buffer size
/// here is the default of ns-3, and the behaviour of full sockets is a guess. Inputs: RTT, bytes in
/// flight, unsent bytes of the streams; for QAware also the local queue.
#[derive(Debug)]
pub struct Sockets {
    rule: SocketRule,
    cases: PlainCases,
    reservations: Reservations,
    qaware: QAware,
    /// ECF has decided to wait.
    waiting: bool,
}

impl Sockets {
    /// A scheduler with this rule.
    pub fn new(rule: SocketRule) -> Self {
        Self {
            rule,
            cases: PlainCases::default(),
            reservations: Reservations::default(),
            qaware: QAware::new(QAwareForm::Paper),
            waiting: false,
        }
    }

    /// The path of the next packet; `None` to wait.
    fn pick(&mut self, view: &View<'_>, reservations: &Reservations) -> Option<PathId> {
        let has_room = |path: &&PathView| {
            let held = path.in_flight + reservations.queued(path.id);
            held + u64::from(path.mtu) <= SOCKET_BUFFER
        };
        let chosen = match self.rule {
            SocketRule::QAware => self.qaware.first(carriers(view)).filter(has_room),
            SocketRule::LowestRtt => lowest_rtt(carriers(view)).filter(has_room),
            SocketRule::Ecf => {
                let fast = lowest_rtt(carriers(view))?;
                let chosen = lowest_rtt(carriers(view).filter(has_room))?;
                let waiting = &mut self.waiting;
                let waits = fast.id != chosen.id
                    && ecf::waits(EcfForm::Paper, backlog(view), fast, chosen, waiting);
                Some(chosen).filter(|_| !waits)
            }
        };
        chosen.map(|path| path.id)
    }
}

impl Scheduler for Sockets {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let fastest = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        if self.rule == SocketRule::QAware {
            self.qaware.look_at_queues(view);
        }
        let mut reservations = std::mem::take(&mut self.reservations);
        reservations.sync(view);
        let decision = reservations.dispatch(view, |reservations, _| self.pick(view, reservations));
        self.reservations = reservations;
        decision.unwrap_or(Decision::send(fastest.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.cases.on_event(event);
        self.qaware.on_event(event, view);
    }

    fn needs(&self) -> Needs {
        let needs = Needs::default().with_streams();
        match self.rule {
            SocketRule::QAware => needs.with_local_queue(),
            SocketRule::LowestRtt | SocketRule::Ecf => needs,
        }
    }

    fn name(&self) -> &'static str {
        match self.rule {
            SocketRule::LowestRtt => "lrf-sockets",
            SocketRule::Ecf => "ecf-sockets",
            SocketRule::QAware => "qaware-sockets",
        }
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::sched::DataSelection;

    use super::*;
    use crate::testing::{Scene, full, path, stream};

    /// A fast path whose window is full, a slow path with room, and data for both sockets.
    fn scene() -> Scene {
        let mut scene = Scene::new(vec![full(path(0, 10)), path(1, 50)]);
        scene.streams = vec![stream(0, 0, 1 << 20)];
        scene
    }

    /// The path and the offset of the sent data, if the decision sends.
    fn sends(decision: &Decision) -> Option<(u32, u64)> {
        match decision {
            Decision::Send {
                path,
                data: DataSelection::StreamAt { offset, .. },
                ..
            } => Some((path.0, *offset)),
            _ => None,
        }
    }

    #[test]
    fn a_full_socket_is_waited_for_although_another_path_is_idle() {
        let scene = scene();
        let mut sockets = Sockets::new(SocketRule::LowestRtt);
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(sockets.select(&scene.view()), wait);
        // 12,000 bytes are in flight: pieces of 1140 bytes fit as long as a whole datagram would
        // fit.
        let pieces = (SOCKET_BUFFER - 12_000 - 1200) / 1140 + 1;
        assert_eq!(sockets.reservations.queued(PathId(0)), pieces * 1140);
        // The remaining data takes the path with the lowest RTT from then on.
        let mut later = scene;
        later.paths[1] = path(1, 5);
        assert_eq!(
            sends(&sockets.select(&later.view())),
            Some((1, pieces * 1140))
        );
    }

    #[test]
    fn ecf_goes_on_with_the_next_socket() {
        let scene = scene();
        let mut sockets = Sockets::new(SocketRule::Ecf);
        let (_, offset) = sends(&sockets.select(&scene.view())).unwrap();
        assert_eq!(offset, sockets.reservations.queued(PathId(0)));
    }

    #[test]
    fn a_longer_local_queue_moves_packets_to_the_other_socket() {
        let mut scene = scene();
        for path in &mut scene.paths {
            path.local_queue = Some(0);
        }
        let mut sockets = Sockets::new(SocketRule::QAware);
        scene.paths[0].local_queue = Some(6 * 1200);
        assert_eq!(sends(&sockets.select(&scene.view())), Some((1, 0)));
    }
}
