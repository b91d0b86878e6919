//! A sender on a simulated link, for tests of rate-based controllers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, DeliveryRate, RttSnapshot, Sent,
};

use crate::testing::start;
use crate::uncoupled::{PathController, PathLimits};

pub(crate) const MTU: u64 = 1200;

/// A packet in flight, with the state that delivery rate samples need.
#[derive(Debug, Clone, Copy)]
struct Packet {
    sent_at: Instant,
    /// When the acknowledgement arrives; `None` if the packet is lost.
    acked_at: Option<Instant>,
    marked: bool,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    app_limited: bool,
}

/// The calls of a [`Flow`] to the controller of its path.
pub(crate) trait Steer {
    fn on_packet_sent(&mut self, sent: &Sent);
    fn on_ack(&mut self, ack: &Acked);
    fn on_congestion_event(&mut self, event: &CongestionEvent);
    fn limits(&self) -> PathLimits;
}

impl<C: PathController> Steer for C {
    fn on_packet_sent(&mut self, sent: &Sent) {
        PathController::on_packet_sent(self, sent);
    }

    fn on_ack(&mut self, ack: &Acked) {
        PathController::on_ack(self, ack);
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        PathController::on_congestion_event(self, event);
    }

    fn limits(&self) -> PathLimits {
        PathController::limits(self)
    }
}

/// One controller on one link with a drop-tail queue. The application always has data to send, or
/// produces data at [`Self::application`].
pub(crate) struct Flow<C> {
    pub(crate) controller: C,
    pub(crate) now: Instant,
    /// Rate of the link, bytes per second.
    pub(crate) rate: f64,
    pub(crate) rtt: Duration,
    /// Longest queue; a packet that finds a longer one is dropped.
    pub(crate) queue: Duration,
    /// The link loses every n-th packet.
    pub(crate) lose_every: Option<u64>,
    /// Packets behind a longer queue are marked.
    pub(crate) mark_above: Option<Duration>,
    /// Acknowledgements arrive only at multiples of this time.
    pub(crate) acknowledge_every: Option<Duration>,
    /// Rate at which the application produces data, bytes per second; `None` for unlimited data.
    pub(crate) application: Option<f64>,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) longest_queue: Duration,
    /// The next acknowledgement reports that RTT measurement starts again.
    pub(crate) rtt_restarts: bool,
    packets: VecDeque<Packet>,
    in_flight: u64,
    link_free_at: Instant,
    next_send: Instant,
    next_data: Instant,
    delivered_at: Instant,
    first_sent_at: Instant,
    app_limited_until: u64,
    min_rtt: Duration,
    samples: u64,
    sent: u64,
}

impl<C: PathController> Flow<C> {
    /// A link of `mbit` Mbit/s, an RTT of `rtt` ms and a queue of `queue` round trips.
    pub(crate) fn new(mbit: f64, rtt: u64, queue: f64) -> Self {
        let now = start();
        Self::steered_by(C::new(now, MTU as u16), now, mbit, rtt, queue)
    }
}

impl<C: Steer> Flow<C> {
    /// Like [`Self::new`], with the given controller and starting time.
    pub(crate) fn steered_by(controller: C, now: Instant, mbit: f64, rtt: u64, queue: f64) -> Self {
        let rtt = Duration::from_millis(rtt);
        Self {
            controller,
            now,
            rate: mbit * 1e6 / 8.0,
            rtt,
            queue: rtt.mul_f64(queue),
            lose_every: None,
            mark_above: None,
            acknowledge_every: None,
            application: None,
            delivered: 0,
            lost: 0,
            longest_queue: Duration::ZERO,
            rtt_restarts: false,
            packets: VecDeque::new(),
            in_flight: 0,
            link_free_at: now,
            next_send: now,
            next_data: now,
            delivered_at: now,
            first_sent_at: now,
            app_limited_until: 0,
            min_rtt: Duration::MAX,
            samples: 0,
            sent: 0,
        }
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Makes two flows share one queue, if this is called for each of the two in turn.
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")),
        expect(dead_code, reason = "only the record needs it")
    )]
    pub(crate) fn share_queue<D: Steer>(&mut self, other: &mut Flow<D>) {
        let free_at = self.link_free_at.max(other.link_free_at);
        (self.link_free_at, other.link_free_at) = (free_at, free_at);
    }

    /// Changes the rate of the link, also for packets in the queue.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        let factor = self.rate / rate;
        let (now, rtt) = (self.now, self.rtt);
        let stretch = |time: Instant| now + time.saturating_duration_since(now).mul_f64(factor);
        for packet in &mut self.packets {
            if let Some(acked_at) = &mut packet.acked_at
                && *acked_at > now + rtt
            {
                *acked_at = stretch(*acked_at - rtt) + rtt;
            }
        }
        if self.link_free_at > now {
            self.link_free_at = stretch(self.link_free_at);
        }
        self.rate = rate;
    }

    /// Runs for a time and returns the delivered bytes per second.
    pub(crate) fn run(&mut self, time: Duration) -> f64 {
        let (end, before) = (self.now + time, self.delivered);
        self.run_until(end, |_| false);
        (self.delivered - before) as f64 / time.as_secs_f64()
    }

    /// Runs until `done` holds or until `end`; true if `done` held.
    pub(crate) fn run_until(&mut self, end: Instant, mut done: impl FnMut(&Self) -> bool) -> bool {
        while !done(self) {
            let ack = self.packets.iter().find_map(|packet| packet.acked_at);
            let room = self.in_flight + MTU <= self.controller.limits().window;
            let send = room.then_some(self.next_send.max(self.next_data).max(self.now));
            let next = [ack, send].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return false;
            };
            self.now = next;
            if ack == Some(next) {
                self.acknowledge();
            } else {
                self.send();
            }
        }
        true
    }

    /// Rounds `time` up to the next burst of acknowledgements.
    fn acknowledged_at(&self, time: Instant) -> Instant {
        let Some(every) = self.acknowledge_every else {
            return time;
        };
        let bursts = (time - start()).as_nanos().div_ceil(every.as_nanos());
        start() + every * bursts as u32
    }

    fn send(&mut self) {
        let now = self.now;
        if self.in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        if self.application.is_some() {
            self.app_limited_until = (self.delivered + self.in_flight).max(1);
        }
        self.sent += 1;
        let queue = self.link_free_at.saturating_duration_since(now);
        let dropped =
            queue > self.queue || self.lose_every.is_some_and(|n| self.sent.is_multiple_of(n));
        let acked_at = (!dropped).then(|| {
            self.longest_queue = self.longest_queue.max(queue);
            let serialisation = Duration::from_secs_f64(MTU as f64 / self.rate);
            self.link_free_at = self.link_free_at.max(now) + serialisation;
            self.acknowledged_at(self.link_free_at + self.rtt)
        });
        self.packets.push_back(Packet {
            sent_at: now,
            acked_at,
            marked: self.mark_above.is_some_and(|limit| queue > limit),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until > 0,
        });
        self.in_flight += MTU;
        let pacing = self.controller.limits().pacing_rate.unwrap_or(u64::MAX);
        let gap = Duration::from_secs_f64(MTU as f64 / pacing as f64);
        self.next_send = self.next_send.max(now) + gap;
        if let Some(rate) = self.application {
            self.next_data = self.next_data.max(now) + Duration::from_secs_f64(MTU as f64 / rate);
        }
        self.controller
            .on_packet_sent(&Sent::new(now, self.sent, MTU, self.in_flight));
    }

    /// Acknowledges the next packet that arrived. Packets sent before it are lost.
    fn acknowledge(&mut self) {
        let position = self.packets.iter().position(|p| p.acked_at.is_some());
        let (mut lost, mut lost_at) = (0, None);
        for packet in self.packets.drain(..position.unwrap_or(0)) {
            lost += MTU;
            lost_at = Some(packet.sent_at);
        }
        let Some(packet) = self.packets.pop_front() else {
            return;
        };
        self.in_flight -= MTU;
        self.delivered += MTU;
        self.delivered_at = self.now;
        self.first_sent_at = packet.sent_at;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let ack = self.acked(&packet);
        self.controller.on_ack(&ack);
        if let Some(sent_at) = lost_at {
            self.in_flight -= lost;
            self.lost += lost;
            self.report(CongestionKind::Loss, sent_at, lost);
        }
        if packet.marked {
            self.report(CongestionKind::Ecn, packet.sent_at, 0);
        }
    }

    fn report(&mut self, kind: CongestionKind, sent_at: Instant, lost_bytes: u64) {
        let mut event = CongestionEvent::new(kind, self.now, sent_at);
        event.lost_bytes = lost_bytes;
        event.in_flight = self.in_flight;
        self.controller.on_congestion_event(&event);
    }

    fn acked(&mut self, packet: &Packet) -> Acked {
        let now = self.now;
        let rtt = now - packet.sent_at;
        self.min_rtt = self.min_rtt.min(rtt);
        self.samples += 1;
        let interval = (packet.sent_at - packet.first_sent_at).max(now - packet.delivered_at);
        let bytes = self.delivered - packet.delivered;
        let rate = (bytes as f64 / interval.as_secs_f64()) as u64;
        let mut sample = DeliveryRate::new(rate, packet.delivered, self.delivered);
        sample.app_limited = packet.app_limited;
        let mut snapshot = RttSnapshot::new(rtt);
        snapshot.variance = rtt / 8;
        snapshot.min = self.min_rtt;
        snapshot.samples = self.samples;
        let mut acked = Acked::new(now, packet.sent_at, MTU, snapshot);
        acked.largest = self.samples;
        acked.marked = u64::from(packet.marked);
        acked.in_flight = self.in_flight;
        acked.app_limited = packet.app_limited;
        acked.rtt_restarted = std::mem::take(&mut self.rtt_restarts);
        acked.delivery_rate = (interval >= self.min_rtt).then_some(sample);
        acked
    }
}
