//! [`TransportConfig`]: limits and behaviour of connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mpquic_tokio as mp;
use mpquic_tokio::TransportOptions;
use mpquic_tokio::knowledge::Knowledge;
use quinn_proto::{VarInt, VarIntBoundsExceeded};

use crate::congestion::ControllerFactory;
#[cfg(feature = "qlog")]
use crate::qlog::QlogStream;

/// The shortest time between two timers.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Bytes that the peer may send on a stream before the program reads, unless it says otherwise:
/// quinn's default, 12.5 MB/s for a tenth of a second.
const STREAM_RECEIVE_WINDOW: u64 = 1_250_000;
/// The longest initial round trip.
const LONGEST_RTT: Duration = Duration::from_secs(3600);
/// The smallest limit of handshake data that waits for earlier bytes.
const LEAST_CRYPTO_BUFFER: usize = 4096;
/// The smallest packet threshold (RFC 9002 section 6.1.1).
const LEAST_PACKET_THRESHOLD: u32 = 3;
/// The range of time thresholds, in round trips.
const TIME_THRESHOLDS: (f64, f64) = (1.0, 16.0);
/// The sizes of UDP datagrams that QUIC allows.
const MTUS: (u16, u16) = (1200, 65527);

/// Changes the options of mpquic.
type Edit = Arc<dyn Fn(&mut TransportOptions) + Send + Sync>;

/// Limits and behaviour of connections. Settings without a call keep the default of mpquic
/// (`mpquic_tokio::default_transport`), which may differ from quinn's default.
///
/// A value outside of the range that mpquic allows becomes the nearest allowed one.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let mut transport = mpquic_quinn::TransportConfig::default();
/// transport
///     .max_concurrent_bidi_streams(8_u8.into())
///     .keep_alive_interval(Some(Duration::from_secs(5)))
///     // Options beyond those of quinn.
///     .mpquic_options(|options| options.max_concurrent_paths = 2);
/// let transport = Arc::new(transport);
/// # drop(transport);
/// ```
#[derive(Clone, Default)]
pub struct TransportConfig {
    max_concurrent_bidi_streams: Option<VarInt>,
    max_concurrent_uni_streams: Option<VarInt>,
    max_idle_timeout: Option<Option<IdleTimeout>>,
    stream_receive_window: Option<VarInt>,
    receive_window: Option<VarInt>,
    send_window: Option<u64>,
    packet_threshold: Option<u32>,
    time_threshold: Option<f32>,
    initial_rtt: Option<Duration>,
    initial_mtu: Option<u16>,
    mtu_discovery: Option<Option<MtuDiscoveryConfig>>,
    ack_frequency: Option<Option<AckFrequencyConfig>>,
    keep_alive_interval: Option<Option<Duration>>,
    crypto_buffer_size: Option<usize>,
    allow_spin: Option<bool>,
    datagram_receive_buffer_size: Option<Option<usize>>,
    datagram_send_buffer_size: Option<usize>,
    congestion_controller: Option<Arc<dyn ControllerFactory + Send + Sync + 'static>>,
    segmentation_offload: Option<bool>,
    #[cfg(feature = "qlog")]
    qlog: Option<QlogStream>,
    edits: Vec<Edit>,
}

impl TransportConfig {
    /// Sets how many streams in both directions the peer may have open.
    pub fn max_concurrent_bidi_streams(&mut self, value: VarInt) -> &mut Self {
        self.max_concurrent_bidi_streams = Some(value);
        self
    }

    /// Sets how many streams in one direction the peer may have open.
    pub fn max_concurrent_uni_streams(&mut self, value: VarInt) -> &mut Self {
        self.max_concurrent_uni_streams = Some(value);
        self
    }

    /// Sets after which silence on all paths the connection ends; `None` for never. The shorter
    /// time of both sides counts.
    pub fn max_idle_timeout(&mut self, value: Option<IdleTimeout>) -> &mut Self {
        self.max_idle_timeout = Some(value);
        self
    }

    /// Sets how many unread bytes the peer may send on one stream.
    pub fn stream_receive_window(&mut self, value: VarInt) -> &mut Self {
        self.stream_receive_window = Some(value);
        self
    }

    /// Sets how many unread bytes the peer may send on all streams together.
    pub fn receive_window(&mut self, value: VarInt) -> &mut Self {
        self.receive_window = Some(value);
        self
    }

    /// Sets how many unacknowledged bytes all streams may hold together.
    pub fn send_window(&mut self, value: u64) -> &mut Self {
        self.send_window = Some(value);
        self
    }

    /// No effect: streams of one priority share the connection.
    /// `SendStream::as_mpquic().set_incremental(false)` makes streams follow each other.
    pub fn send_fairness(&mut self, value: bool) -> &mut Self {
        let _ = value;
        self
    }

    /// Sets how many later packets must arrive until a packet counts as lost.
    pub fn packet_threshold(&mut self, value: u32) -> &mut Self {
        self.packet_threshold = Some(value);
        self
    }

    /// Sets after how many round trips a packet counts as lost when a later packet has arrived.
    pub fn time_threshold(&mut self, value: f32) -> &mut Self {
        self.time_threshold = Some(value);
        self
    }

    /// Sets the round trip that counts before the first measurement.
    pub fn initial_rtt(&mut self, value: Duration) -> &mut Self {
        self.initial_rtt = Some(value);
        self
    }

    /// Sets the size of UDP payloads at the start of a path, bytes.
    pub fn initial_mtu(&mut self, value: u16) -> &mut Self {
        self.initial_mtu = Some(value);
        self
    }

    /// No effect: each path starts at [`Self::initial_mtu`], and a path that loses large packets
    /// returns to 1200 bytes.
    pub fn min_mtu(&mut self, value: u16) -> &mut Self {
        let _ = value;
        self
    }

    /// Sets the search for larger UDP payloads; `None` turns the search off.
    pub fn mtu_discovery_config(&mut self, value: Option<MtuDiscoveryConfig>) -> &mut Self {
        self.mtu_discovery = Some(value);
        self
    }

    /// No effect: packets have the size of their content.
    pub fn pad_to_mtu(&mut self, value: bool) -> &mut Self {
        let _ = value;
        self
    }

    /// Sets how often the peer shall acknowledge; `None` leaves the choice to the peer.
    pub fn ack_frequency_config(&mut self, value: Option<AckFrequencyConfig>) -> &mut Self {
        self.ack_frequency = Some(value);
        self
    }

    /// No effect: three probe timeouts of losses count as persistent congestion (RFC 9002 section
    /// 7.6).
    pub fn persistent_congestion_threshold(&mut self, value: u32) -> &mut Self {
        let _ = value;
        self
    }

    /// Sets after which silence a path sends a PING, so that neither side's timeout passes; `None`
    /// for never.
    pub fn keep_alive_interval(&mut self, value: Option<Duration>) -> &mut Self {
        self.keep_alive_interval = Some(value);
        self
    }

    /// Sets how many bytes of the handshake may wait for earlier bytes.
    pub fn crypto_buffer_size(&mut self, value: usize) -> &mut Self {
        self.crypto_buffer_size = Some(value);
        self
    }

    /// Sets whether observers may measure round trips by the spin bit; false by default.
    pub fn allow_spin(&mut self, value: bool) -> &mut Self {
        self.allow_spin = Some(value);
        self
    }

    /// Sets how many bytes of DATAGRAMs may wait for the application; `None` turns DATAGRAMs off.
    pub fn datagram_receive_buffer_size(&mut self, value: Option<usize>) -> &mut Self {
        self.datagram_receive_buffer_size = Some(value);
        self
    }

    /// Sets how many bytes of DATAGRAMs may wait to be sent.
    pub fn datagram_send_buffer_size(&mut self, value: usize) -> &mut Self {
        self.datagram_send_buffer_size = Some(value);
        self
    }

    /// Sets the congestion controller. Each path has a controller of its own then; mpquic's default
    /// sees all paths.
    pub fn congestion_controller_factory(
        &mut self,
        factory: Arc<dyn ControllerFactory + Send + Sync + 'static>,
    ) -> &mut Self {
        self.congestion_controller = Some(factory);
        self
    }

    /// Sets whether several datagrams may leave with one call of the system.
    pub fn enable_segmentation_offload(&mut self, enabled: bool) -> &mut Self {
        self.segmentation_offload = Some(enabled);
        self
    }

    /// Sets the log of connections; `None` for no log.
    #[cfg(feature = "qlog")]
    pub fn qlog_stream(&mut self, stream: Option<QlogStream>) -> &mut Self {
        self.qlog = stream;
        self
    }

    /// Changes mpquic's further options, after all other settings: the scheduler, the number of
    /// paths, the limits of memory. `mpquic_tokio::TransportOptions` lists them.
    pub fn mpquic_options(
        &mut self,
        edit: impl Fn(&mut TransportOptions) + Send + Sync + 'static,
    ) -> &mut Self {
        self.edits.push(Arc::new(edit));
        self
    }

    /// The configuration for mpquic. Only options of [`Self::mpquic_options`] can be out of range.
    pub(crate) fn to_mpquic(&self, knowledge: Option<&Knowledge>) -> mp::TransportConfig {
        self.options(knowledge).build().unwrap_or_else(|error| {
            tracing::error!(%error, "a transport configuration cannot be used: the default takes its place");
            mp::TransportConfig::new(mp::schedulers::default(), mp::controllers::default())
        })
    }

    fn options(&self, knowledge: Option<&Knowledge>) -> TransportOptions {
        let mut options = mp::default_transport();
        if let Some(knowledge) = knowledge {
            options.knowledge = Some(knowledge.clone());
        }
        self.set_windows(&mut options);
        self.set_times(&mut options);
        self.set_sizes(&mut options);
        self.set_behaviour(&mut options);
        for edit in &self.edits {
            edit(&mut options);
        }
        options
    }

    fn set_windows(&self, options: &mut TransportOptions) {
        const MOST_STREAMS: u64 = 1 << 59;
        if let Some(count) = self.max_concurrent_bidi_streams {
            options.max_concurrent_bidi_streams = count.into_inner().min(MOST_STREAMS);
        }
        if let Some(count) = self.max_concurrent_uni_streams {
            options.max_concurrent_uni_streams = count.into_inner().min(MOST_STREAMS);
        }
        if let Some(window) = self.receive_window {
            options.max_receive_window = window.into_inner();
        }
        let most = options.max_receive_window;
        // Programs for quinn may leave this much unread, for example while they write themselves.
        options.initial_receive_window = most;
        options.initial_stream_receive_window = STREAM_RECEIVE_WINDOW;
        if let Some(window) = self.stream_receive_window {
            let window = window.into_inner().min(most);
            options.initial_stream_receive_window = window;
            options.max_stream_receive_window = Some(window);
        }
        let initial = &mut options.initial_stream_receive_window;
        *initial = (*initial).min(most);
        if let Some(window) = self.send_window {
            options.send_window = window.max(1);
            options.initial_send_window = options.initial_send_window.min(options.send_window);
        }
    }

    fn set_times(&self, options: &mut TransportOptions) {
        let longest = Duration::from_millis(VarInt::MAX.into_inner());
        if let Some(timeout) = self.max_idle_timeout {
            let timeout = timeout
                .map(|timeout| timeout.0)
                .filter(|time| !time.is_zero());
            options.max_idle_timeout = timeout.map(|time| time.clamp(GRANULARITY, longest));
        }
        if let Some(interval) = self.keep_alive_interval {
            options.keep_alive_interval = interval.map(|time| time.clamp(GRANULARITY, longest));
        }
        if let Some(rtt) = self.initial_rtt {
            options.initial_rtt = rtt.clamp(GRANULARITY, LONGEST_RTT);
        }
        if let Some(threshold) = self.packet_threshold {
            options.packet_threshold = threshold.max(LEAST_PACKET_THRESHOLD).into();
        }
        if let Some(threshold) = self.time_threshold.filter(|value| !value.is_nan()) {
            let (least, most) = TIME_THRESHOLDS;
            options.time_threshold = f64::from(threshold).clamp(least, most);
        }
    }

    fn set_sizes(&self, options: &mut TransportOptions) {
        let (least, most) = MTUS;
        if let Some(mtu) = self.initial_mtu {
            options.initial_mtu = mtu.clamp(least, most);
        }
        match &self.mtu_discovery {
            Some(None) => options.max_mtu = options.initial_mtu,
            Some(Some(discovery)) => {
                options.max_mtu = discovery.upper_bound.clamp(options.initial_mtu, most);
            }
            None => options.max_mtu = options.max_mtu.max(options.initial_mtu),
        }
        if let Some(size) = self.crypto_buffer_size {
            options.crypto_buffer = size.max(LEAST_CRYPTO_BUFFER);
        }
        if let Some(size) = self.datagram_receive_buffer_size {
            options.datagram_receive_buffer = size.filter(|size| *size > 0);
        }
        if let Some(size) = self.datagram_send_buffer_size {
            options.datagram_send_buffer = size;
        }
        if self.segmentation_offload == Some(false) {
            options.max_transmit_segments = 1;
        }
    }

    fn set_behaviour(&self, options: &mut TransportOptions) {
        if let Some(spin) = self.allow_spin {
            options.spin_bit = spin;
        }
        if let Some(frequency) = &self.ack_frequency {
            options.ack_frequency = frequency.as_ref().map(AckFrequencyConfig::to_mpquic);
        }
        if let Some(factory) = &self.congestion_controller {
            options.controller = crate::congestion::for_mpquic(factory);
        }
        #[cfg(feature = "qlog")]
        if let Some(stream) = &self.qlog {
            options.qlog = Some(Arc::new(stream.clone()));
        }
    }
}

impl fmt::Debug for TransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_mpquic(None).fmt(f)
    }
}

/// How often the peer shall acknowledge.
#[derive(Debug, Clone, Default)]
pub struct AckFrequencyConfig {
    ack_eliciting_threshold: Option<VarInt>,
    max_ack_delay: Option<Duration>,
    reordering_threshold: Option<VarInt>,
}

impl AckFrequencyConfig {
    /// Sets how many packets may arrive without an acknowledgement.
    pub fn ack_eliciting_threshold(&mut self, value: VarInt) -> &mut Self {
        self.ack_eliciting_threshold = Some(value);
        self
    }

    /// Sets how long the peer may wait; `None` leaves the choice to the peer.
    pub fn max_ack_delay(&mut self, value: Option<Duration>) -> &mut Self {
        self.max_ack_delay = value;
        self
    }

    /// Sets after how many missing packets the peer acknowledges at once.
    pub fn reordering_threshold(&mut self, value: VarInt) -> &mut Self {
        self.reordering_threshold = Some(value);
        self
    }

    fn to_mpquic(&self) -> mp::AckFrequencyOptions {
        const LONGEST_DELAY: Duration = Duration::from_millis((1 << 14) - 1);
        let mut options = mp::AckFrequencyOptions::default();
        if let Some(threshold) = self.ack_eliciting_threshold {
            // quinn counts the packets that may stay unacknowledged, mpquic the one that asks for
            // an answer too.
            let threshold = threshold.into_inner().saturating_add(1);
            options.ack_eliciting_threshold = threshold.min(VarInt::MAX.into_inner());
        }
        options.max_ack_delay = self.max_ack_delay.map(|delay| delay.min(LONGEST_DELAY));
        options.reordering_threshold = self.reordering_threshold.map(VarInt::into_inner);
        options
    }
}

/// The search for larger UDP payloads.
#[derive(Debug, Clone)]
pub struct MtuDiscoveryConfig {
    upper_bound: u16,
}

impl MtuDiscoveryConfig {
    /// No effect: each path searches again after a change of its addresses.
    pub fn interval(&mut self, value: Duration) -> &mut Self {
        let _ = value;
        self
    }

    /// Sets the size of the largest UDP payload, bytes.
    pub fn upper_bound(&mut self, value: u16) -> &mut Self {
        self.upper_bound = value;
        self
    }

    /// No effect: the time until a path tries large packets again is fixed.
    pub fn black_hole_cooldown(&mut self, value: Duration) -> &mut Self {
        let _ = value;
        self
    }

    /// No effect: the precision of the search is fixed.
    pub fn minimum_change(&mut self, value: u16) -> &mut Self {
        let _ = value;
        self
    }
}

impl Default for MtuDiscoveryConfig {
    fn default() -> Self {
        Self { upper_bound: 1452 }
    }
}

/// A time of silence after which a connection ends.
#[derive(Default, Copy, Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct IdleTimeout(Duration);

impl From<VarInt> for IdleTimeout {
    /// A time in milliseconds; 0 for never.
    fn from(milliseconds: VarInt) -> Self {
        Self(Duration::from_millis(milliseconds.into_inner()))
    }
}

impl TryFrom<Duration> for IdleTimeout {
    type Error = VarIntBoundsExceeded;

    fn try_from(time: Duration) -> Result<Self, Self::Error> {
        VarInt::try_from(time.as_millis()).map(Self::from)
    }
}

impl fmt::Debug for IdleTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// The least and the largest values that quinn's setters take.
    fn extremes() -> [TransportConfig; 2] {
        let longest = Duration::from_millis(VarInt::MAX.into_inner());
        let (none, most) = (VarInt::from_u32(0), VarInt::MAX);
        let of = |(number, size, mtu, time, factor): (VarInt, usize, u16, Duration, f32)| {
            let mut frequency = AckFrequencyConfig::default();
            frequency
                .ack_eliciting_threshold(number)
                .max_ack_delay(Some(time))
                .reordering_threshold(number);
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(mtu);
            let mut config = TransportConfig::default();
            config
                .max_concurrent_bidi_streams(number)
                .max_concurrent_uni_streams(number)
                .max_idle_timeout(Some(number.into()))
                .stream_receive_window(number)
                .receive_window(number)
                .send_window(number.into_inner())
                .packet_threshold(mtu.into())
                .time_threshold(factor)
                .initial_rtt(time)
                .initial_mtu(mtu)
                .mtu_discovery_config(Some(discovery))
                .ack_frequency_config(Some(frequency))
                .keep_alive_interval(Some(time))
                .crypto_buffer_size(size)
                .datagram_receive_buffer_size(Some(size))
                .datagram_send_buffer_size(size);
            config
        };
        [
            of((none, 0, 0, Duration::ZERO, 0.0)),
            of((most, usize::MAX, u16::MAX, longest, f32::INFINITY)),
        ]
    }

    #[test]
    fn each_value_that_quinn_takes_can_be_used() -> Result<(), Box<dyn Error>> {
        for config in extremes() {
            config.options(None).build()?;
        }
        let mut config = TransportConfig::default();
        config.time_threshold(f32::NAN).mtu_discovery_config(None);
        let options = config.options(None);
        assert_eq!(options.max_mtu, options.initial_mtu);
        options.build()?;
        Ok(())
    }

    #[test]
    fn settings_reach_mpquic_and_others_keep_its_defaults() {
        let mut ours = mp::default_transport();
        // quinn's window of a stream, and no tighter window of all streams.
        ours.initial_stream_receive_window = 1_250_000;
        ours.initial_receive_window = ours.max_receive_window;
        let unset = TransportConfig::default().options(None);
        assert_eq!(format!("{unset:?}"), format!("{ours:?}"));

        let mut config = TransportConfig::default();
        config
            .stream_receive_window(VarInt::from_u32(1000))
            .max_idle_timeout(None)
            .enable_segmentation_offload(false)
            .allow_spin(true)
            .mpquic_options(|options| options.max_concurrent_paths = 2);
        let options = config.options(None);
        assert_eq!(options.initial_stream_receive_window, 1000);
        assert_eq!(options.max_stream_receive_window, Some(1000));
        assert_eq!(options.max_idle_timeout, None);
        assert_eq!(options.max_transmit_segments, 1);
        assert!(options.spin_bit);
        assert_eq!(options.max_concurrent_paths, 2);
        assert_eq!(options.max_receive_window, ours.max_receive_window);
    }

    #[test]
    fn idle_timeouts_are_milliseconds() {
        let second = Duration::from_secs(1);
        assert_eq!(
            IdleTimeout::try_from(second),
            Ok(VarInt::from_u32(1000).into())
        );
        assert!(IdleTimeout::try_from(Duration::MAX).is_err());
    }
}
