//! [`ControllerWrapper`]: a controller that changes some answers of another one.

use std::fmt;
use std::time::Instant;

use super::controller::{Acked, CongestionEvent, Controller, ResumePhase, SavedCapacity, Sent};
use crate::ids::PathId;

/// A controller around another one. Each method passes its call on to [`Self::inner`], unless the
/// wrapper implements the method; the methods mean what those of [`Controller`] mean. Every wrapper
/// is a `Controller`.
///
/// ```
/// use mpquic_core::PathId;
/// use mpquic_core::congestion::{Controller, ControllerWrapper};
///
/// /// Keeps each path's window below a limit.
/// #[derive(Debug)]
/// struct Narrow {
///     inner: Box<dyn Controller>,
///     /// In bytes.
///     limit: u64,
/// }
///
/// impl ControllerWrapper for Narrow {
///     fn inner(&self) -> &dyn Controller {
///         &*self.inner
///     }
///
///     fn inner_mut(&mut self) -> &mut dyn Controller {
///         &mut *self.inner
///     }
///
///     fn window(&self, path: PathId) -> u64 {
///         self.inner.window(path).min(self.limit)
///     }
/// }
/// ```
pub trait ControllerWrapper: fmt::Debug + Send {
    /// The controller inside.
    fn inner(&self) -> &dyn Controller;
    /// The controller inside, for calls that change it.
    fn inner_mut(&mut self) -> &mut dyn Controller;

    /// [`Controller::on_path_opened`]
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.inner_mut().on_path_opened(path, now, mtu);
    }
    /// [`Controller::on_path_closed`]
    fn on_path_closed(&mut self, path: PathId) {
        self.inner_mut().on_path_closed(path);
    }
    /// [`Controller::resume`]
    fn resume(&mut self, path: PathId, now: Instant, saved: SavedCapacity) {
        self.inner_mut().resume(path, now, saved);
    }
    /// [`Controller::resume_phase`]
    fn resume_phase(&self, path: PathId) -> ResumePhase {
        self.inner().resume_phase(path)
    }
    /// [`Controller::on_mtu_update`]
    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        self.inner_mut().on_mtu_update(path, mtu);
    }
    /// [`Controller::on_packet_sent`]
    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        self.inner_mut().on_packet_sent(path, sent);
    }
    /// [`Controller::on_ack`]
    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        self.inner_mut().on_ack(path, ack);
    }
    /// [`Controller::on_congestion_event`]
    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        self.inner_mut().on_congestion_event(path, event);
    }
    /// [`Controller::window`]
    fn window(&self, path: PathId) -> u64 {
        self.inner().window(path)
    }
    /// [`Controller::slow_start_threshold`]
    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.inner().slow_start_threshold(path)
    }
    /// [`Controller::in_recovery`]
    fn in_recovery(&self, path: PathId) -> bool {
        self.inner().in_recovery(path)
    }
    /// [`Controller::pacing_rate`]
    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        self.inner().pacing_rate(path)
    }
    /// [`Controller::burst`]
    fn burst(&self, path: PathId) -> Option<u64> {
        self.inner().burst(path)
    }
    /// [`Controller::send_quantum`]
    fn send_quantum(&self, path: PathId) -> Option<u64> {
        self.inner().send_quantum(path)
    }
    /// [`Controller::acks_per_window`]
    fn acks_per_window(&self) -> u64 {
        self.inner().acks_per_window()
    }
    /// [`Controller::window_after_round`]
    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        self.inner().window_after_round(path, windows)
    }
    /// [`Controller::memory`]
    fn memory(&self) -> u64 {
        self.inner().memory()
    }
    /// [`Controller::name`]
    fn name(&self) -> &'static str {
        self.inner().name()
    }
}

impl<W: ControllerWrapper> Controller for W {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        ControllerWrapper::on_path_opened(self, path, now, mtu);
    }
    fn on_path_closed(&mut self, path: PathId) {
        ControllerWrapper::on_path_closed(self, path);
    }
    fn resume(&mut self, path: PathId, now: Instant, saved: SavedCapacity) {
        ControllerWrapper::resume(self, path, now, saved);
    }
    fn resume_phase(&self, path: PathId) -> ResumePhase {
        ControllerWrapper::resume_phase(self, path)
    }
    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        ControllerWrapper::on_mtu_update(self, path, mtu);
    }
    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        ControllerWrapper::on_packet_sent(self, path, sent);
    }
    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        ControllerWrapper::on_ack(self, path, ack);
    }
    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        ControllerWrapper::on_congestion_event(self, path, event);
    }
    fn window(&self, path: PathId) -> u64 {
        ControllerWrapper::window(self, path)
    }
    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        ControllerWrapper::slow_start_threshold(self, path)
    }
    fn in_recovery(&self, path: PathId) -> bool {
        ControllerWrapper::in_recovery(self, path)
    }
    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        ControllerWrapper::pacing_rate(self, path)
    }
    fn burst(&self, path: PathId) -> Option<u64> {
        ControllerWrapper::burst(self, path)
    }
    fn send_quantum(&self, path: PathId) -> Option<u64> {
        ControllerWrapper::send_quantum(self, path)
    }
    fn acks_per_window(&self) -> u64 {
        ControllerWrapper::acks_per_window(self)
    }
    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        ControllerWrapper::window_after_round(self, path, windows)
    }
    fn memory(&self) -> u64 {
        ControllerWrapper::memory(self)
    }
    fn name(&self) -> &'static str {
        ControllerWrapper::name(self)
    }
}

#[cfg(test)]
mod tests;
