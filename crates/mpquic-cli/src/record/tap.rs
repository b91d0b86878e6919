//! Records arriving packets, beside the log of the user.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mpquic_core::qlog::{ConnectionStart, Event, Factory, PacketType, Sink};
use mpquic_lab::PathRecording;

/// Adds packets to the current recording, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Option<Load>>>);

#[derive(Debug)]
struct Load {
    began: Instant,
    recording: PathRecording,
}

/// The tap, and the log behind it.
#[derive(Debug)]
struct Tapped {
    tap: Tap,
    log: Option<Arc<dyn Factory>>,
}

#[derive(Debug)]
struct TappedSink {
    tap: Tap,
    log: Option<Box<dyn Sink>>,
}

impl Tap {
    /// A log that passes events to this tap, and then to `log` if present.
    pub(crate) fn before(&self, log: Option<Arc<dyn Factory>>) -> Arc<dyn Factory> {
        Arc::new(Tapped {
            tap: self.clone(),
            log,
        })
    }

    /// Adds all later packets to this recording.
    pub(crate) fn begin(&self, now: Instant, recording: PathRecording) {
        *self.load() = Some(Load {
            began: now,
            recording,
        });
    }

    /// Ends the recording, and returns it; `None` without a recording.
    pub(crate) fn end(&self) -> Option<PathRecording> {
        self.load().take().map(|load| load.recording)
    }

    fn load(&self) -> MutexGuard<'_, Option<Load>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Factory for Tapped {
    fn start(&self, connection: &ConnectionStart) -> Option<Box<dyn Sink>> {
        Some(Box::new(TappedSink {
            tap: self.tap.clone(),
            log: self.log.as_ref().and_then(|log| log.start(connection)),
        }))
    }
}

impl Sink for TappedSink {
    fn on_event(&mut self, now: Instant, event: &Event<'_>) {
        if let Event::PacketReceived(packet) = event
            && packet.packet_type == PacketType::OneRtt
            && let Some(load) = &mut *self.tap.load()
        {
            let seconds = now.saturating_duration_since(load.began).as_secs_f64();
            let bytes = packet.size as u64;
            load.recording
                .on_packet(seconds, packet.packet_number, bytes);
        }
        if let Some(log) = &mut self.log {
            log.on_event(now, event);
        }
    }
}
