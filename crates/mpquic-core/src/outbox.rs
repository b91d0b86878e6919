//! [`Outbox`]: messages from the components of a connection to each other.
//!
//! A component gets the outbox with each call that changes the component, and need not know the
//! other components or the connection.

use std::collections::VecDeque;
use std::time::Instant;

use crate::cid::peer::ResetTokens;
use crate::congestion::{CongestionKind, Controller};
use crate::error::ConnectionError;
use crate::event::{ConnectionStats, EndpointEvent, Event, PathEvent, RouteChange};
use crate::guarded::GuardedController;
use crate::ids::PathId;
use crate::packet::delivery::Delivery;
use crate::qlog::{self, DropReason, Initiator, PathChange};
use crate::recorder::{Dropped, Recorder};
use crate::sched::{Needs, PacketInfo, SchedulerEvent};
use crate::space::SentPacket;

/// Events for the application, the endpoint and the scheduler, frames to repeat, the congestion
/// controller, the log, and the connection's counters.
#[derive(Debug)]
pub(crate) struct Outbox {
    events: VecDeque<Event>,
    endpoint_events: VecDeque<EndpointEvent>,
    scheduler_events: VecDeque<SchedulerEvent>,
    /// Frames that their owners must send again, because a path fails to deliver them.
    repeated: Vec<Delivery>,
    /// Packets sent since the scheduler's last decision.
    pub(crate) train: Train,
    /// The scheduler wants an event for every packet.
    packet_events: bool,
    pub(crate) controller: GuardedController,
    pub(crate) log: Recorder,
    pub(crate) stats: ConnectionStats,
}

/// The packets sent for one assignment of the scheduler.
#[derive(Debug, Default)]
pub(crate) struct Train {
    /// Of its datagrams.
    pub(crate) bytes: u64,
    /// Bytes of streams and DATAGRAMs that were sent for the first time.
    pub(crate) new: u64,
    /// Content of the train's last packet, for copies on other paths, or of a copy.
    pub(crate) content: Vec<Delivery>,
    /// Data of redundant streams that was sent, with the path of each piece.
    pub(crate) wanted: Vec<(PathId, Delivery)>,
}

impl Outbox {
    pub(crate) fn new(controller: GuardedController, needs: Needs, log: Recorder) -> Self {
        Self {
            events: VecDeque::with_capacity(1),
            endpoint_events: VecDeque::new(),
            scheduler_events: VecDeque::new(),
            repeated: Vec::new(),
            train: Train::default(),
            packet_events: needs.packet_events,
            controller,
            log,
            stats: ConnectionStats::default(),
        }
    }

    /// Bytes of memory besides itself, with what grows in the controller.
    pub(crate) fn memory(&self) -> u64 {
        let events = self.events.capacity() * size_of::<Event>()
            + self.endpoint_events.capacity() * size_of::<EndpointEvent>()
            + self.scheduler_events.capacity() * size_of::<SchedulerEvent>();
        let frames = self.repeated.capacity() + self.train.content.capacity();
        (events + frames * size_of::<Delivery>()) as u64 + self.controller.memory()
    }

    /// Sets the time of everything that is logged from now on.
    #[inline]
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.log.set_time(now);
    }

    /// Queues an event for the application.
    pub(crate) fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Queues an event about a path for the application, and logs it.
    pub(crate) fn path_event(&mut self, event: PathEvent) {
        if let Some((path, change)) = logged(&event) {
            self.log.event(|| qlog::Event::PathChanged { path, change });
        }
        self.event(Event::Path(event));
    }

    /// Tells the application that the connection ended.
    pub(crate) fn connection_lost(&mut self, reason: ConnectionError) {
        self.log.event(|| qlog::Event::ConnectionLost(&reason));
        self.event(Event::ConnectionLost { reason });
    }

    /// Counts and logs a packet that is not processed. Duplicates are normal, and not counted.
    pub(crate) fn drop_packet(&mut self, path: PathId, dropped: Dropped, reason: DropReason) {
        if reason != DropReason::Duplicate {
            self.stats.packets_dropped += 1;
        }
        self.log.event(|| qlog::Event::PacketDropped {
            path,
            packet_type: dropped.packet_type,
            size: dropped.size,
            reason,
        });
    }

    /// Queues an event for the endpoint.
    pub(crate) fn endpoint_event(&mut self, change: RouteChange) {
        self.endpoint_events.push_back(EndpointEvent(change));
    }

    /// Queues an event that the scheduler gets before it decides again.
    pub(crate) fn scheduler_event(&mut self, event: SchedulerEvent) {
        self.scheduler_events.push_back(event);
    }

    /// The controller was told of congestion on a path.
    pub(crate) fn on_congestion(&mut self, path: PathId, kind: CongestionKind) {
        self.scheduler_event(SchedulerEvent::Congestion(path, kind));
    }

    /// Queues an event about a packet or an RTT sample, for schedulers that ask for those.
    #[inline]
    pub(crate) fn packet_event(&mut self, event: impl FnOnce() -> SchedulerEvent) {
        if self.packet_events {
            self.scheduler_events.push_back(event());
        }
    }

    /// Queues frames that their owners have to send again.
    pub(crate) fn repeat(&mut self, frames: impl IntoIterator<Item = Delivery>) {
        self.repeated.extend(frames);
    }

    /// Takes the frames given to [`Self::repeat`]; [`Self::set_repeated`] returns the memory.
    pub(crate) fn take_repeated(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.repeated)
    }

    /// Takes memory back for the next frames.
    pub(crate) fn set_repeated(&mut self, mut memory: Vec<Delivery>) {
        memory.clear();
        self.repeated = memory;
    }

    /// The next event for the application.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next event for the endpoint.
    pub(crate) fn next_endpoint_event(&mut self) -> Option<EndpointEvent> {
        let event = self.endpoint_events.pop_front();
        if event.is_none() && self.endpoint_events.capacity() > 0 {
            // Many events come at the end of the handshake and few later, so the memory is not
            // kept.
            self.endpoint_events = VecDeque::new();
        }
        event
    }

    /// Events that the scheduler was not told yet.
    pub(crate) fn scheduler_events(&mut self) -> &mut VecDeque<SchedulerEvent> {
        &mut self.scheduler_events
    }

    /// Queues the first events of another scheduler, which wants these events about packets. Events
    /// for the former scheduler are dropped.
    pub(crate) fn greet_scheduler(
        &mut self,
        needs: Needs,
        events: impl Iterator<Item = SchedulerEvent>,
    ) {
        self.packet_events = needs.packet_events;
        self.scheduler_events.clear();
        self.scheduler_events.extend(events);
    }

    /// Events for the scheduler, and the controller for questions about windows.
    pub(crate) fn scheduler_news(&mut self) -> (&mut VecDeque<SchedulerEvent>, &GuardedController) {
        (&mut self.scheduler_events, &self.controller)
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.events.shrink_to_fit();
        self.scheduler_events.shrink_to_fit();
        self.repeated.shrink_to_fit();
        self.train.content.shrink_to_fit();
        self.train.wanted.shrink_to_fit();
    }
}

impl ResetTokens for Outbox {
    fn add(&mut self, token: [u8; 16]) {
        self.endpoint_event(RouteChange::ResetTokenAdded(token));
    }

    fn remove(&mut self, token: [u8; 16]) {
        self.endpoint_event(RouteChange::ResetTokenRemoved(token));
    }
}

/// A packet as schedulers see it.
pub(crate) fn packet_info(path: PathId, packet_number: u64, packet: &SentPacket) -> PacketInfo {
    PacketInfo {
        path,
        packet_number,
        bytes: packet.bytes.into(),
        tag: packet.tag,
        sent_at: packet.time_sent,
    }
}

/// The log's word for a path event. New addresses are logged as another event.
fn logged(event: &PathEvent) -> Option<(PathId, PathChange)> {
    let change = match event {
        PathEvent::Established(_) => PathChange::Established,
        PathEvent::Abandoned {
            error_code,
            by_peer,
            ..
        } => PathChange::Abandoned {
            error_code: *error_code,
            initiator: if *by_peer {
                Initiator::Remote
            } else {
                Initiator::Local
            },
        },
        PathEvent::Discarded(_) => PathChange::Discarded,
        PathEvent::Suspect(_) => PathChange::Suspect,
        PathEvent::Recovered(_) => PathChange::Recovered,
        PathEvent::RemoteStatus(_, status) => PathChange::PeerStatus(*status),
        PathEvent::Migrated(..) | PathEvent::Available | PathEvent::ServerAddresses(_) => {
            return None;
        }
    };
    Some((event.path()?, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TransportOptions;
    use crate::congestion::{Acked, CongestionEvent, Controller, factory};

    /// Always has the same window.
    #[derive(Debug)]
    struct Fixed;

    impl Controller for Fixed {
        fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}
        fn on_path_closed(&mut self, _: PathId) {}
        fn on_mtu_update(&mut self, _: PathId, _: u16) {}
        fn on_ack(&mut self, _: PathId, _: &Acked) {}
        fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {}
        fn window(&self, _: PathId) -> u64 {
            12_000
        }
        fn name(&self) -> &'static str {
            "fixed"
        }
    }

    impl Outbox {
        /// For tests of components.
        pub(crate) fn for_tests() -> Self {
            let mut options = TransportOptions::without_policies();
            options.controller = factory("fixed", || Box::new(Fixed));
            let config = options.build().unwrap();
            let start = qlog::ConnectionStart {
                now: crate::recovery::testing::start(),
                side: quinn_proto::Side::Client,
                original_dcid: quinn_proto::ConnectionId::new(&[]),
            };
            let log = Recorder::start(&config, &start);
            Self::new(GuardedController::new(&config), Needs::default(), log)
        }

        /// Takes the changes of routes reported to the endpoint since the last call.
        pub(crate) fn take_route_changes(&mut self) -> Vec<RouteChange> {
            self.endpoint_events
                .drain(..)
                .map(|event| event.0)
                .collect()
        }
    }
}
