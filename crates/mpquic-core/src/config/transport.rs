//! [`TransportConfig`]: checked options of a connection.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::transport_options::{AckFrequencyOptions, TransportOptions};
use crate::congestion::ControllerFactory;
use crate::error::InvalidOption;
use crate::sched::SchedulerFactory;
use crate::wire::buf::{MAX_UDP_PAYLOAD, MIN_DATAGRAM, VARINT_MAX};
use crate::wire::frame::MAX_STREAM_COUNT;

/// The longest delay of acknowledgements that can be announced or asked for (RFC 9000 section
/// 18.2).
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis((1 << 14) - 1);

/// Most open streams of the peer, to keep stream counts below 2^60.
pub(crate) const MAX_CONCURRENT_STREAMS: u64 = MAX_STREAM_COUNT / 2;

/// The granularity of timers (RFC 9002 section 6.1.2).
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// The longest time that can be announced in milliseconds.
const MAX_INTERVAL: Duration = Duration::from_millis(VARINT_MAX);

/// The longest initial RTT, to keep its multiples from overflowing.
const MAX_INITIAL_RTT: Duration = Duration::from_secs(3600);

/// The longest time for unsent bytes, to keep products with rates from overflowing.
const MAX_SEND_QUEUE_TIME: Duration = Duration::from_secs(3600);

/// The smallest packet threshold that RFC 9002 section 6.1.1 recommends.
const MIN_PACKET_THRESHOLD: u64 = 3;

/// The smallest limit of a connection's memory, bytes: what a connection needs without any data.
const MIN_MEMORY: u64 = 1 << 20;

/// The smallest buffer for CRYPTO data that RFC 9000 section 7.5 allows, bytes.
const MIN_CRYPTO_BUFFER: usize = 4096;

impl TransportOptions {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// The first option with a value that the documentation of its field does not allow.
    pub fn build(self) -> Result<TransportConfig, InvalidOption> {
        check(&self)?;
        Ok(TransportConfig(self))
    }
}

/// Checked options of a connection. It dereferences to them.
#[derive(Debug, Clone)]
pub struct TransportConfig(TransportOptions);

impl TransportConfig {
    /// Defaults for bulk transfer and services alike, with these policies. To change anything else,
    /// build it from [`TransportOptions`].
    pub fn new(
        scheduler: Arc<dyn SchedulerFactory>,
        controller: Arc<dyn ControllerFactory>,
    ) -> Self {
        Self(TransportOptions::new(scheduler, controller))
    }

    /// The same configuration with another [`TransportOptions::timer_lateness`].
    #[must_use]
    pub fn with_timer_lateness(mut self, lateness: Duration) -> Self {
        self.0.timer_lateness = lateness;
        self
    }

    /// The options it was built from, for example to build a similar configuration.
    pub fn options(&self) -> &TransportOptions {
        &self.0
    }

    /// The probe timeout that follows from the initial RTT (RFC 9002 section 6.2.2).
    pub(crate) fn initial_pto(&self) -> Duration {
        3 * self.initial_rtt
    }

    /// The parameter of this name (RFC 9221 section 3).
    pub(crate) fn max_datagram_frame_size(&self) -> u64 {
        let buffer = self.datagram_receive_buffer.unwrap_or(0);
        buffer.min(usize::from(u16::MAX)) as u64
    }
}

impl Deref for TransportConfig {
    type Target = TransportOptions;

    #[inline]
    fn deref(&self) -> &TransportOptions {
        &self.0
    }
}

#[cfg(any(test, feature = "testing"))]
impl TransportConfig {
    /// Defaults with policies that cannot be built, for components without policies.
    pub(crate) fn without_policies() -> Self {
        Self(TransportOptions::without_policies())
    }
}

type Checked = Result<(), InvalidOption>;

/// Checks all options.
fn check(options: &TransportOptions) -> Checked {
    counts(options)?;
    windows(options)?;
    times(options)?;
    sizes(options)?;
    acknowledgements(options)?;
    if let Some(asked) = &options.ack_frequency {
        ack_frequency(asked)?;
    }
    loss_detection(options)
}

fn counts(options: &TransportOptions) -> Checked {
    InvalidOption::unless_within(
        "active_connection_id_limit",
        options.active_connection_id_limit,
        2..=u32::MAX.into(),
    )?;
    let bidi = options.max_concurrent_bidi_streams;
    let uni = options.max_concurrent_uni_streams;
    let streams = 0..=MAX_CONCURRENT_STREAMS;
    InvalidOption::unless_within("max_concurrent_bidi_streams", bidi, streams.clone())?;
    InvalidOption::unless_within("max_concurrent_uni_streams", uni, streams)?;
    InvalidOption::unless_at_least("max_transmit_segments", options.max_transmit_segments, 1)
}

fn windows(options: &TransportOptions) -> Checked {
    let max = options.max_receive_window;
    InvalidOption::unless_within("max_receive_window", max, 0..=VARINT_MAX)?;
    for (option, window) in [
        (
            "initial_stream_receive_window",
            options.initial_stream_receive_window,
        ),
        ("initial_receive_window", options.initial_receive_window),
    ] {
        if window > max {
            let expected = format!("at most {max} (max_receive_window)");
            return Err(InvalidOption::new(option, window, expected));
        }
    }
    if let Some(limit) = options.max_stream_receive_window {
        let least = options.initial_stream_receive_window;
        if limit < least {
            let expected = format!("at least {least} (initial_stream_receive_window)");
            return Err(InvalidOption::new(
                "max_stream_receive_window",
                limit,
                expected,
            ));
        }
    }
    InvalidOption::unless_at_least("send_window", options.send_window, 1)?;
    let initial = options.initial_send_window;
    InvalidOption::unless_at_least("initial_send_window", initial, 1)?;
    if let Some(time) = options.send_queue_time {
        let allowed = Duration::ZERO..=MAX_SEND_QUEUE_TIME;
        InvalidOption::unless_within("send_queue_time", time, allowed)?;
    }
    let Some(limit) = options.memory_limit else {
        return Ok(());
    };
    let least = MIN_MEMORY.max(options.initial_receive_window.saturating_mul(4));
    if limit < least {
        let expected = format!("at least {least} (1 MiB, four times initial_receive_window)");
        return Err(InvalidOption::new("memory_limit", limit, expected));
    }
    Ok(())
}

fn times(options: &TransportOptions) -> Checked {
    for (option, interval) in [
        ("max_idle_timeout", options.max_idle_timeout),
        (
            "max_handshake_duration",
            Some(options.max_handshake_duration),
        ),
        ("keep_alive_interval", options.keep_alive_interval),
    ] {
        if let Some(interval) = interval {
            InvalidOption::unless_within(option, interval, MIN_INTERVAL..=MAX_INTERVAL)?;
        }
    }
    let allowed = MIN_INTERVAL..=MAX_INITIAL_RTT;
    InvalidOption::unless_within("initial_rtt", options.initial_rtt, allowed)
}

fn sizes(options: &TransportOptions) -> Checked {
    let (initial, max) = (options.initial_mtu, options.max_mtu);
    let allowed = MIN_DATAGRAM as u16..=MAX_UDP_PAYLOAD;
    InvalidOption::unless_within("initial_mtu", initial, allowed)?;
    if !(initial..=MAX_UDP_PAYLOAD).contains(&max) {
        let expected = format!("from {initial} (initial_mtu) to {MAX_UDP_PAYLOAD}");
        return Err(InvalidOption::new("max_mtu", max, expected));
    }
    if let Some(buffer) = options.datagram_receive_buffer {
        InvalidOption::unless_at_least("datagram_receive_buffer", buffer, 1)?;
    }
    InvalidOption::unless_within("max_redundancy", options.max_redundancy, 0..=100)?;
    InvalidOption::unless_at_least("crypto_buffer", options.crypto_buffer, MIN_CRYPTO_BUFFER)
}

fn acknowledgements(options: &TransportOptions) -> Checked {
    let max = options.max_ack_delay;
    InvalidOption::unless_within("max_ack_delay", max, Duration::ZERO..=MAX_ACK_DELAY)?;
    // draft-ietf-quic-ack-frequency-14 section 3
    if let Some(min) = options.min_ack_delay.filter(|min| *min > max) {
        let (min, expected) = (
            format!("{min:?}"),
            format!("at most {max:?} (max_ack_delay)"),
        );
        return Err(InvalidOption::new("min_ack_delay", min, expected));
    }
    let threshold = options.ack_eliciting_threshold;
    InvalidOption::unless_at_least("ack_eliciting_threshold", threshold, 1)
}

fn ack_frequency(asked: &AckFrequencyOptions) -> Checked {
    InvalidOption::unless_within(
        "ack_frequency.ack_eliciting_threshold",
        asked.ack_eliciting_threshold,
        1..=VARINT_MAX,
    )?;
    if let Some(delay) = asked.max_ack_delay {
        let allowed = Duration::ZERO..=MAX_ACK_DELAY;
        InvalidOption::unless_within("ack_frequency.max_ack_delay", delay, allowed)?;
    }
    if let Some(threshold) = asked.reordering_threshold {
        let allowed = 0..=VARINT_MAX;
        InvalidOption::unless_within("ack_frequency.reordering_threshold", threshold, allowed)?;
    }
    Ok(())
}

fn loss_detection(options: &TransportOptions) -> Checked {
    let allowed = MIN_PACKET_THRESHOLD..=VARINT_MAX;
    InvalidOption::unless_within("packet_threshold", options.packet_threshold, allowed)?;
    InvalidOption::unless_within("time_threshold", options.time_threshold, 1.0..=16.0)
}
