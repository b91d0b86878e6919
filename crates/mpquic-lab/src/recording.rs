//! Estimates a scenario from a recording of real paths.

use std::fmt::Write as _;

use mpquic_sim::experiment::{Statistics, quantile};

use crate::Failure;

/// The length of the intervals that count arrivals, seconds.
const INTERVAL: f64 = 0.02;
/// The number of intervals in a window, over which rates are measured.
const WINDOW: usize = 10;
/// The least number of busy intervals in a window that shows the rate under load: a single busy
/// interval may be a burst.
const LEAST_BUSY: usize = 3;
/// The least number of windows at full speed for an estimate.
const LEAST_WINDOWS: usize = 2;
/// A path is up to speed from the first window with at least this share of the upper quartile of
/// all windows' rates.
const UP_TO_SPEED: f64 = 0.9;
/// The 10th and the 90th percentile of a steady path's rates differ by at most this share of their
/// mean. A path that is not steady gets a trace of rates.
const STEADY: f64 = 0.25;
/// The excess over the shortest round trip above which a round trip shows a queue: in ms, and as a
/// share of the shortest round trip.
const NO_QUEUE: (f64, f64) = (1.0, 0.05);
/// The least longest wait (ms) of a path with a queue: a shorter wait may be chance.
const LEAST_QUEUE: f64 = 5.0;
/// A wait of at least this share of the longest wait shows a full queue.
const FULL: f64 = 0.9;
/// The losses in an interval are a burst beyond this number, and beyond this multiple of the mean
/// losses per interval.
const BURST: f64 = 4.0;
/// The number of missing packets that count as too large probes for the path's MTU, not as losses.
const PROBES: i64 = 4;
/// The least size of the default queue of a scenario, as milliseconds at the path's rate.
const DEFAULT_QUEUE: f64 = 50.0;
/// The interquartile range above which round trips without load show jitter: in ms, and as a share
/// of their median.
const JITTER: (f64, f64) = (1.0, 0.05);
/// The interquartile range of the sum of two jitters, each uniform between -1 and 1.
const MIDDLE_HALF: f64 = 1.172;
/// The largest payload of a UDP datagram, bytes.
const MAX_PAYLOAD: u64 = 65_535;
/// The number of round trips after which silence is an outage. During a shorter silence, a sender
/// may only have waited for acknowledgements.
const OUTAGE: f64 = 2.0;
/// The rate of an outage, Mbit/s: above zero, because the link of a scenario always has a rate.
const STANDSTILL: f64 = 0.01;
/// The least size of a queue, bytes: a smaller queue does not hold a single packet.
const ONE_PACKET: f64 = 1500.0;
/// The UDP payload of datagrams that scenarios accept, bytes.
const MTU: std::ops::RangeInclusive<u64> = 1200..=1452;

/// Measurements of a path: first without load, and then during a download at the full rate of the
/// path.
///
/// ```
/// use mpquic_lab::PathRecording;
///
/// let mut path = PathRecording::new("wlan0", true);
/// path.on_idle_rtt(20.0);
/// for number in 0..5000 {
///     // With headers, 1250 bytes each millisecond: 10 Mbit/s.
///     path.on_packet(number as f64 / 1e3, number, 1222);
/// }
/// let scenario = mpquic_lab::recorded(&[path], 20)?;
/// assert!(scenario.contains("rate_mbit = 10.0"));
/// # Ok::<(), mpquic_lab::Failure>(())
/// ```
#[derive(Debug, Clone)]
pub struct PathRecording {
    name: String,
    /// Bytes of the IP and UDP headers of a packet.
    headers: u64,
    /// The largest UDP payload of an arrived packet, bytes.
    mtu: u64,
    /// Round trips without load, ms.
    idle_rtts: Vec<f64>,
    /// Round trips under load: the time of the end (seconds after the load began), and the length
    /// (ms).
    loaded_rtts: Vec<(f64, f64)>,
    /// The arrivals of each interval since the load began.
    arrivals: Vec<Arrivals>,
    /// The largest packet number that has arrived.
    largest: Option<u64>,
}

/// The packets that arrived in one interval.
#[derive(Debug, Clone, Copy, Default)]
struct Arrivals {
    bytes: u64,
    packets: u64,
    /// Packets overtaken by a later packet, less the overtaken packets that arrived afterwards.
    missing: i64,
}

/// The properties of a link, as far as a recording shows the properties.
#[derive(Debug, Clone, PartialEq)]
struct Estimate {
    /// The rate of the link in Mbit/s, including IP headers.
    rate_mbit: f64,
    /// The rates of the windows in Mbit/s, for a link that is not steady.
    trace: Option<Vec<f64>>,
    rtt_ms: f64,
    jitter_ms: Option<f64>,
    loss_pct: f64,
    /// The size of the queue, in bytes, because the size of a real queue does not depend on the
    /// current rate.
    queue_bytes: Option<f64>,
    /// True if the download filled the link. Otherwise, the link may carry more than `rate_mbit`.
    is_filled: bool,
}

/// The measurements of one window of the download.
#[derive(Debug, Clone, Copy)]
struct Window {
    mbit: f64,
    packets: u64,
    missing: i64,
    /// The part of `missing` in bursts.
    burst: i64,
    /// The longest wait in the queue among the round trips under way during this window, ms; `None`
    /// without a round trip.
    wait: Option<f64>,
    /// The rate of the intervals with a queue, Mbit/s; `None` for too few busy intervals.
    busy: Option<f64>,
    /// True for a window of an outage: no packet arrived, although the client had requested data.
    is_outage: bool,
}

impl PathRecording {
    /// A recording of the path `name`, without measurements.
    pub fn new(name: &str, is_ipv4: bool) -> Self {
        Self {
            name: name.to_owned(),
            headers: if is_ipv4 { 28 } else { 48 },
            mtu: 0,
            idle_rtts: Vec::new(),
            loaded_rtts: Vec::new(),
            arrivals: Vec::new(),
            largest: None,
        }
    }

    /// Adds a round trip without load, in milliseconds.
    pub fn on_idle_rtt(&mut self, milliseconds: f64) {
        self.idle_rtts.push(milliseconds);
    }

    /// Adds a round trip of `milliseconds` that ended `seconds` after the load began.
    pub fn on_loaded_rtt(&mut self, seconds: f64, milliseconds: f64) {
        self.loaded_rtts.push((seconds, milliseconds));
    }

    /// Adds a packet with its packet number and the bytes of its UDP payload. The packet arrived
    /// `seconds` after the load began.
    ///
    /// Skipped numbers belong to lost packets. The recording ignores a packet larger than any UDP
    /// datagram, and a packet later than one day after the beginning.
    pub fn on_packet(&mut self, seconds: f64, number: u64, payload: u64) {
        let index = (seconds.max(0.0) / INTERVAL) as usize;
        // A day. Only a damaged log goes on for longer.
        if index > 86_400 * 50 || payload > MAX_PAYLOAD {
            return;
        }
        if index >= self.arrivals.len() {
            self.arrivals.resize(index + 1, Arrivals::default());
        }
        let arrivals = &mut self.arrivals[index];
        self.mtu = self.mtu.max(payload);
        arrivals.bytes += payload + self.headers;
        arrivals.packets += 1;
        match self.largest {
            Some(largest) if number < largest => arrivals.missing -= 1,
            Some(largest) => {
                arrivals.missing += (number - largest).saturating_sub(1).min(1 << 20) as i64;
            }
            None => {}
        }
        self.largest = Some(self.largest.unwrap_or(0).max(number));
    }

    /// The shortest round trip with or without load, ms.
    fn shortest_rtt(&self) -> Option<f64> {
        let loaded = self.loaded_rtts.iter().map(|(_, rtt)| *rtt);
        let all = self.idle_rtts.iter().copied().chain(loaded);
        all.min_by(f64::total_cmp)
    }

    /// Tells for each window whether the window is part of an outage.
    fn outages(&self, shortest: f64) -> Vec<bool> {
        let mut outages = vec![false; self.arrivals.len() / WINDOW];
        let is_silent = |interval: &Arrivals| interval.packets == 0;
        let runs = self.arrivals.chunk_by(|a, b| is_silent(a) == is_silent(b));
        let mut start = 0;
        for run in runs {
            let end = start + run.len();
            let milliseconds = 1e3 * INTERVAL * run.len() as f64;
            if is_silent(&run[0]) && milliseconds > OUTAGE * shortest {
                let whole = outages.iter_mut().take(end / WINDOW);
                whole
                    .skip(start.div_ceil(WINDOW))
                    .for_each(|outage| *outage = true);
            }
            start = end;
        }
        outages
    }

    /// Tells for each interval whether its packets waited in a queue.
    ///
    /// A round trip beyond the shortest round trip by more than `least` (ms) waited in a queue, and
    /// the excess is its wait. The queue existed for as long as the wait, before the end of the
    /// round trip.
    fn busy_intervals(
        &self,
        round_trips: &[&(f64, f64)],
        (shortest, least): (f64, f64),
    ) -> Vec<bool> {
        let mut busy = vec![false; self.arrivals.len()];
        for (at, rtt) in round_trips {
            let wait = rtt - shortest;
            if wait <= least {
                continue;
            }
            let last = (at / INTERVAL) as usize;
            let first = ((at - wait / 1e3) / INTERVAL).ceil().max(0.0) as usize;
            let waited = busy.iter_mut().take(last.saturating_add(1));
            waited
                .skip(first.min(last))
                .for_each(|interval| *interval = true);
        }
        busy
    }

    /// The measurements of all windows. A wait shorter than `least` (ms) counts as chance.
    fn windows(&self, shortest: f64, least: f64) -> Vec<Window> {
        let seconds = INTERVAL * WINDOW as f64;
        // An incomplete window at the end does not count: its rate would be too low.
        let whole = self.arrivals.chunks_exact(WINDOW).enumerate();
        let missing: i64 = self.arrivals.iter().map(|interval| interval.missing).sum();
        let usual = missing.max(0) as f64 / self.arrivals.len().max(1) as f64;
        let outages = self.outages(shortest);
        // A round trip across an outage is long because of the outage, and does not show a queue.
        let round_trips = self.loaded_rtts.iter().filter(|(at, rtt)| {
            let [first, last] = [at - rtt / 1e3, *at].map(|at| (at / seconds) as usize);
            let spanned = outages.iter().take(last.saturating_add(1)).skip(first);
            !spanned.into_iter().any(|is_outage| *is_outage)
        });
        let round_trips: Vec<_> = round_trips.collect();
        let is_burst = |interval: &&Arrivals| interval.missing as f64 > BURST * (1.0 + usual);
        let busy = self.busy_intervals(&round_trips, (shortest, least));
        let window = |(index, intervals): (usize, &[Arrivals])| {
            let times = index as f64 * seconds..(index + 1) as f64 * seconds;
            let under_way = round_trips
                .iter()
                .filter(|(at, rtt)| *at >= times.start && at - rtt / 1e3 < times.end);
            let waits = under_way.map(|(_, rtt)| rtt - shortest);
            let bursts = intervals.iter().filter(is_burst);
            // While its queue is empty, a link carries less than its rate, so only the intervals
            // with a queue show the rate.
            let busy = intervals.iter().zip(&busy[index * WINDOW..]);
            let busy = busy.filter_map(|(interval, is_busy)| is_busy.then_some(interval.bytes));
            let (bytes, count) = busy.fold((0, 0), |(sum, count), bytes| (sum + bytes, count + 1));
            let mbit = |bytes: u64, count: usize| bytes as f64 * 8e-6 / (count as f64 * INTERVAL);
            Window {
                busy: (count >= LEAST_BUSY).then(|| mbit(bytes, count)),
                mbit: mbit(intervals.iter().map(|it| it.bytes).sum(), WINDOW),
                packets: intervals.iter().map(|interval| interval.packets).sum(),
                missing: intervals.iter().map(|interval| interval.missing).sum(),
                burst: bursts.map(|interval| interval.missing).sum(),
                wait: waits.max_by(f64::total_cmp),
                is_outage: outages[index],
            }
        };
        whole.map(window).collect()
    }

    /// Estimates the properties of the link; `None` if the recording is too short.
    fn estimate(&self) -> Option<Estimate> {
        let shortest = self.shortest_rtt()?;
        // Round trips under load vary at least as much as round trips without load.
        let least = NO_QUEUE.0.max(NO_QUEUE.1 * shortest);
        let least = least.max(self.idle_spread(shortest));
        let mut windows = self.windows(shortest, least);
        let mut rates: Vec<_> = windows.iter().map(|window| window.mbit).collect();
        rates.sort_by(f64::total_cmp);
        let fast = UP_TO_SPEED * quantile(&rates, 0.75);
        let start = windows.iter().position(|window| window.mbit >= fast)?;
        // The windows of the start keep the queue that grew before the path was up to speed.
        let start: Vec<_> = windows.drain(..start).collect();
        if fast <= 0.0 || windows.len() < LEAST_WINDOWS {
            return None;
        }
        let busy = windows.iter().filter(|it| it.busy.is_some()).count();
        let outages = windows.iter().filter(|window| window.is_outage).count();
        let is_filled = 4 * busy >= windows.len() - outages;
        // On a link with room to spare, waits are due to chance, and the rate during a wait is no
        // better estimate.
        for window in windows.iter_mut().filter(|_| is_filled) {
            window.mbit = window.busy.unwrap_or(window.mbit);
        }
        let counted = |window: &&Window| !is_filled || window.busy.is_some() || window.is_outage;
        let mut rates: Vec<_> = windows.iter().filter(counted).map(|w| w.mbit).collect();
        rates.sort_by(f64::total_cmp);
        let spread = Statistics::of(rates.iter().copied());
        let is_steady = outages == 0 && spread.ninetieth - spread.tenth <= STEADY * spread.mean;
        let rate_mbit = if is_steady {
            quantile(&rates, 0.5)
        } else {
            spread.mean
        };
        // Each wait goes with the rate that emptied its queue. In windows of the start, the queue
        // emptied at the rate of the whole path.
        let waits = windows.iter().map(|window| (window.wait, window.mbit));
        let waits = waits.chain(start.iter().map(|window| (window.wait, rate_mbit)));
        let waits = waits.filter_map(|(wait, mbit)| Some((wait?, mbit)));
        let waits: Vec<_> = waits.collect();
        let longest = waits.iter().map(|(wait, _)| *wait).fold(0.0, f64::max);
        let full = waits.iter().filter(|(wait, _)| *wait >= FULL * longest);
        // A round trip may include windows without any arrival, and such windows have no rate.
        let full = full.map(|(_, mbit)| *mbit).filter(|mbit| *mbit > 0.0);
        let mut full: Vec<_> = full.collect();
        full.sort_by(f64::total_cmp);
        let mbit = quantile(&full, 0.5);
        let (loss, overflowed) = losses(&windows, longest);
        let (rtt_ms, jitter_ms) = self.delay(shortest);
        Some(Estimate {
            rate_mbit,
            trace: (!is_steady).then(|| trace(&windows, is_filled)),
            rtt_ms,
            jitter_ms,
            loss_pct: 100.0 * loss,
            queue_bytes: (overflowed || longest > DEFAULT_QUEUE.max(rtt_ms))
                .then_some(longest * mbit * 125.0)
                .filter(|bytes| *bytes >= ONE_PACKET),
            is_filled,
        })
    }

    /// The difference between the 95th percentile of round trips without load and the shortest
    /// round trip, ms.
    fn idle_spread(&self, shortest: f64) -> f64 {
        let mut rtts = self.idle_rtts.clone();
        rtts.sort_by(f64::total_cmp);
        if rtts.is_empty() {
            0.0
        } else {
            quantile(&rtts, 0.95) - shortest
        }
    }

    /// The round trip of the path, and the jitter of one direction on a path with jitter, ms.
    fn delay(&self, shortest: f64) -> (f64, Option<f64>) {
        let mut rtts = self.idle_rtts.clone();
        rtts.sort_by(f64::total_cmp);
        if rtts.len() < 8 {
            return (shortest, None);
        }
        let width = quantile(&rtts, 0.75) - quantile(&rtts, 0.25);
        let median = quantile(&rtts, 0.5);
        if width > JITTER.0.max(JITTER.1 * median) {
            (median, Some((width / MIDDLE_HALF).min(median / 2.0)))
        } else {
            (shortest, None)
        }
    }
}

/// The share of packets lost while the queue was not full, and whether the queue overflowed.
fn losses(windows: &[Window], longest: f64) -> (f64, bool) {
    let has_queue = longest >= LEAST_QUEUE;
    let is_full = |window: &Window| window.wait.is_some_and(|wait| wait > longest / 2.0);
    let (mut full, mut others) = (Vec::new(), Vec::new());
    for (index, window) in windows.iter().enumerate() {
        // The arrival of the next packets reveals a drop by the queue, perhaps a window later.
        let near = &windows[index.saturating_sub(1)..=index];
        if has_queue && near.iter().any(is_full) {
            full.push(window)
        } else {
            others.push(window)
        }
    }
    let share = |windows: &[&Window], with_bursts: bool| {
        let missing = |window: &&Window| {
            if with_bursts {
                window.missing
            } else {
                window.missing - window.burst
            }
        };
        let missing = windows.iter().map(missing).sum::<i64>() - PROBES;
        let missing = missing.max(0) as f64;
        let packets = windows.iter().map(|window| window.packets).sum::<u64>();
        missing / (missing + packets as f64).max(1.0)
    };
    // On a path with a queue, bursts of losses are drops by the queue, even if no round trip shows
    // a full queue.
    let loss = share(&others, !has_queue);
    (
        loss,
        !full.is_empty() && share(&full, true) > 2.0 * loss + 1e-4,
    )
}

/// The rate of each window.
///
/// On a filled link, a window without a queue shows only a part of the rate, and gets at least the
/// rate of the window before.
fn trace(windows: &[Window], is_filled: bool) -> Vec<f64> {
    let mut rate: f64 = 0.0;
    let rates = windows.iter().map(|window| {
        if window.is_outage {
            return STANDSTILL;
        }
        rate = if !is_filled || window.busy.is_some() {
            window.mbit
        } else {
            window.mbit.max(rate)
        };
        rate.max(STANDSTILL)
    });
    rates.collect()
}

/// The scenario of one file of `size_mb` megabytes over these paths, with the default policies.
///
/// # Errors
///
/// [`Failure::Failed`] if the recording of a path is too short.
pub fn recorded(paths: &[PathRecording], size_mb: u32) -> Result<String, Failure> {
    let names: Vec<_> = (0..paths.len()).map(|index| name(paths, index)).collect();
    let mtu = paths.iter().map(|path| path.mtu).min().unwrap_or(0);
    let mtu = mtu.clamp(*MTU.start(), *MTU.end());
    let mut text = format!(
        "# Links as they were measured from the server to the client; the way back is taken to be like\n\
         # it. `mpquic advise` and `mpquic lab run` read this file.\n\
         title = \"{size_mb} MB over {}\"\nschedulers = [\"auto\"]\nruns = 6\nlimit_s = 3600\n\n\
         [workload]\nkind = \"file\"\nsize_mb = {size_mb}\n\n[transport]\nmtu = {mtu}\n",
        names.join(" and ")
    );
    for (path, name) in paths.iter().zip(&names) {
        let estimate = path.estimate().ok_or_else(|| {
            let message = format!(
                "too little arrived over {} to say what it is like",
                path.name
            );
            Failure::other(message)
        })?;
        text += &estimate.link(name);
    }
    Ok(text)
}

/// A name for a path: scenarios accept the name, and no earlier path has the name.
fn name(paths: &[PathRecording], index: usize) -> String {
    let plain = |path: &PathRecording| -> String {
        let characters = path.name.chars();
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let plain = characters.map(|c| if is_plain(&c) { c } else { '-' });
        plain.collect()
    };
    let own = plain(&paths[index]);
    if paths[..index].iter().any(|other| plain(other) == own) || own.is_empty() {
        format!("{own}_{}", index + 1)
    } else {
        own
    }
}

impl Estimate {
    /// The `[[path]]` table of the link.
    fn link(&self, name: &str) -> String {
        let mut text = String::from("\n[[path]]\n");
        if !self.is_filled {
            text += "# Its queue stayed empty: it may be able to carry more.\n";
        }
        let _ = writeln!(text, "name = \"{name}\"");
        let _ = writeln!(text, "rate_mbit = {:.3}", self.rate_mbit);
        if let Some(trace) = &self.trace {
            let rates: Vec<_> = trace.iter().map(|rate| format!("{rate:.3}")).collect();
            let every = 1e3 * INTERVAL * WINDOW as f64;
            let _ = writeln!(
                text,
                "trace = {{ every_ms = {every:.0}, rate_mbit = [{}] }}",
                rates.join(", ")
            );
        }
        let _ = writeln!(text, "rtt_ms = {:.2}", self.rtt_ms);
        if let Some(jitter) = self.jitter_ms {
            let _ = writeln!(text, "jitter_ms = {jitter:.2}");
        }
        let _ = writeln!(text, "loss_pct = {:.3}", self.loss_pct);
        if let Some(queue) = self.queue_bytes {
            let _ = writeln!(text, "queue_bytes = {queue:.0}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording of a second at a tenth of the rate `mbit`, and of ten seconds at the full rate.
    ///
    /// After the first second, the queue is 40 % full, and full in the seconds that begin at 5 s
    /// and 10 s.
    fn recording(mbit: impl Fn(f64) -> f64, queue_ms: f64, every_nth_lost: u64) -> PathRecording {
        let mut path = PathRecording::new("a b", true);
        for _ in 0..20 {
            path.on_idle_rtt(20.0);
        }
        let (mut time, mut number) = (0.0, 0);
        while time < 11.0 {
            let rate = mbit(time) * if time < 1.0 { 0.1 } else { 1.0 };
            time += 1250.0 * 8e-6 / rate;
            number += 1;
            if number % every_nth_lost != 0 {
                path.on_packet(time, number, 1222);
            }
        }
        for tick in 0..1100 {
            let time = f64::from(tick) / 100.0;
            let wait = match () {
                () if time < 1.0 => 0.0,
                () if (time as u32).is_multiple_of(5) => queue_ms,
                () => 0.4 * queue_ms,
            };
            path.on_loaded_rtt(time, 20.0 + wait);
        }
        path
    }

    /// The time in which a full queue empties, ms.
    fn queue_ms(estimate: &Estimate) -> Option<f64> {
        let bytes = estimate.queue_bytes?;
        Some((bytes / estimate.rate_mbit / 125.0).round())
    }

    #[test]
    fn a_steady_link_gives_its_rate_loss_rtt_and_queue() {
        let path = recording(|_| 10.0, 100.0, 200);
        let estimate = path.estimate().unwrap();
        // The rate counts only arrived packets: the link lost one of 200 packets.
        assert!(
            (estimate.rate_mbit / 9.95 - 1.0).abs() < 0.01,
            "{estimate:?}"
        );
        assert!((estimate.loss_pct - 0.5).abs() < 0.1, "{estimate:?}");
        assert_eq!((estimate.rtt_ms, estimate.jitter_ms), (20.0, None));
        // The queue is longer than the default queue of a scenario, so the estimate has a queue.
        assert_eq!(queue_ms(&estimate), Some(100.0));
        assert!(estimate.is_filled && estimate.trace.is_none());
        assert_eq!(
            queue_ms(&recording(|_| 10.0, 40.0, 200).estimate().unwrap()),
            None
        );
    }

    #[test]
    fn a_rate_that_varies_becomes_a_trace() {
        let rate = |time: f64| {
            if (time as u32).is_multiple_of(2) {
                20.0
            } else {
                5.0
            }
        };
        let estimate = recording(rate, 30.0, u64::MAX).estimate().unwrap();
        let trace = estimate.trace.unwrap();
        assert_eq!(trace.len(), 45, "{trace:?}");
        let fast = trace.iter().filter(|rate| **rate > 18.0).count();
        let slow = trace.iter().filter(|rate| **rate < 6.0).count();
        assert!(fast >= 24 && slow >= 19, "{trace:?}");
        assert_eq!(estimate.loss_pct, 0.0);
    }

    #[test]
    fn a_round_trip_counts_in_each_window_while_it_is_under_way() {
        let rate = |time: f64| [20.0, 5.0][time as usize % 2];
        let mut path = recording(rate, 300.0, u64::MAX);
        // A round trip of 320 ms ends every 400 ms, so that no round trip ends in every second
        // window.
        path.loaded_rtts = (1..28).map(|n| (0.4 * f64::from(n), 320.0)).collect();
        let trace = path.estimate().unwrap().trace.unwrap();
        for (index, mbit) in trace.iter().enumerate() {
            // The trace begins at 2 s, when the path is up to speed. Each second has five windows.
            let expected = rate(2.0 + (index / 5) as f64);
            assert!((mbit / expected - 1.0).abs() < 0.1, "{index}: {trace:?}");
        }
    }

    #[test]
    fn an_outage_is_a_standstill_in_the_trace() {
        let with_silence = |delay: f64| {
            let mut path = recording(|_| 10.0, 100.0, u64::MAX);
            path.arrivals[250..280].fill(Arrivals::default());
            path.loaded_rtts.retain(|(at, _)| !(5.0..5.6).contains(at));
            // The round trip began just before the outage and ended with the outage.
            path.loaded_rtts.push((5.6, 620.0));
            let delayed = path.loaded_rtts.iter_mut().map(|(_, rtt)| rtt);
            delayed
                .chain(&mut path.idle_rtts)
                .for_each(|rtt| *rtt += delay);
            path.estimate().unwrap()
        };
        let estimate = with_silence(0.0);
        assert_eq!(estimate.queue_bytes, Some(125_000.0), "{estimate:?}");
        let trace = estimate.trace.unwrap();
        let outage: Vec<_> = (0..trace.len()).filter(|i| trace[*i] < 1.0).collect();
        assert_eq!(outage, [20, 21, 22], "{trace:?}");
        assert!(trace.iter().all(|mbit| *mbit == STANDSTILL || *mbit > 9.0));
        // With round trips of 620 ms, a silence of 600 ms may be a wait for acknowledgements.
        assert_eq!(with_silence(600.0).trace, None);
    }

    #[test]
    fn losses_while_the_queue_is_full_are_not_losses_of_the_link() {
        let mut path = recording(|_| 10.0, 40.0, u64::MAX);
        // The queue is full from 5 s to 6 s.
        for _ in 0..50 {
            let largest = path.largest.unwrap();
            path.on_packet(5.5, largest + 2, 1222);
        }
        let estimate = path.estimate().unwrap();
        assert_eq!((estimate.loss_pct, queue_ms(&estimate)), (0.0, Some(40.0)));
    }

    #[test]
    fn bursts_of_losses_count_only_on_a_link_without_a_queue() {
        for (queue_ms, expected) in [(40.0, 0.0), (0.0, 0.5)] {
            let mut path = recording(|_| 10.0, queue_ms, u64::MAX);
            let largest = path.largest.unwrap();
            path.on_packet(7.5, largest + 51, 1222);
            let loss = path.estimate().unwrap().loss_pct;
            assert!((loss - expected).abs() < 0.05, "{queue_ms}: {loss}");
        }
    }

    #[test]
    fn three_missing_packets_are_mtu_probes_and_not_losses() {
        let mut path = recording(|_| 10.0, 0.0, u64::MAX);
        for _ in 0..3 {
            let largest = path.largest.unwrap();
            path.on_packet(7.5, largest + 2, 1222);
        }
        assert_eq!(path.estimate().unwrap().loss_pct, 0.0);
    }

    #[test]
    fn a_queue_has_the_same_bytes_at_both_rates_of_a_link() {
        // A queue of 125 kB takes 200 ms to empty at 5 Mbit/s, and 50 ms at 20 Mbit/s.
        let fast = |time: f64| (time as usize).is_multiple_of(2);
        let rate = |time: f64| if fast(time) { 20.0 } else { 5.0 };
        let mut path = recording(rate, 0.0, u64::MAX);
        path.loaded_rtts.clear();
        for tick in 1..1100 {
            let time = f64::from(tick) / 100.0;
            let wait = if fast(time) { 50.0 } else { 200.0 };
            path.on_loaded_rtt(time, 20.0 + wait);
        }
        let bytes = path.estimate().unwrap().queue_bytes.unwrap();
        assert!((bytes / 125_000.0 - 1.0).abs() < 0.01, "{bytes}");
    }

    #[test]
    fn a_round_trip_across_an_outage_shows_no_queue() {
        let mut path = recording(|_| 10.0, 0.0, u64::MAX);
        path.arrivals[255..280].fill(Arrivals::default());
        path.loaded_rtts.retain(|(at, _)| !(5.1..5.6).contains(at));
        path.loaded_rtts.push((5.6, 520.0));
        let windows = path.windows(20.0, 1.0);
        assert!(windows[25].busy.is_none() && (windows[25].mbit - 5.0).abs() < 0.5);
    }

    #[test]
    fn only_intervals_with_a_queue_show_the_rate_of_a_link() {
        // During half of each window, the sender uses only half of the link's rate.
        let filled = |time: f64| ((10.0 * time + 1e-6) as usize).is_multiple_of(2);
        let mut path = recording(|time| if filled(time) { 10.0 } else { 5.0 }, 0.0, u64::MAX);
        for (at, rtt) in &mut path.loaded_rtts {
            *rtt = if filled(*at) { 30.0 } else { 20.0 };
        }
        let estimate = path.estimate().unwrap();
        assert!(
            (estimate.rate_mbit / 10.0 - 1.0).abs() < 0.06,
            "{estimate:?}"
        );
        assert_eq!(estimate.trace, None);
    }

    #[test]
    fn jitter_without_load_is_not_taken_for_a_queue() {
        // Round trips vary by up to 4 ms with and without load. The link was never full.
        let mut path = recording(|_| 10.0, 0.0, u64::MAX);
        path.idle_rtts = (0..20).map(|n| 20.0 + f64::from(n % 5)).collect();
        for (index, (_, rtt)) in path.loaded_rtts.iter_mut().enumerate() {
            *rtt = 20.0 + (index % 5) as f64;
        }
        assert!(!path.estimate().unwrap().is_filled);
    }

    #[test]
    fn round_trips_without_load_show_the_jitter() {
        let mut path = recording(|_| 10.0, 30.0, u64::MAX);
        path.idle_rtts = (0..101).map(|n| 20.0 + f64::from(n) / 10.0).collect();
        let estimate = path.estimate().unwrap();
        assert_eq!(estimate.rtt_ms, 25.0);
        assert!((estimate.jitter_ms.unwrap() - 5.0 / MIDDLE_HALF).abs() < 0.1);
    }

    #[test]
    fn a_recorded_scenario_parses() {
        let steady = recording(|_| 10.0, 100.0, 200);
        let rate = |time: f64| {
            if (time as u32).is_multiple_of(2) {
                20.0
            } else {
                5.0
            }
        };
        let varying = recording(rate, 30.0, u64::MAX);
        let text = recorded(&[steady, varying], 5).unwrap();
        let scenario = mpquic_sim::scenario::Scenario::parse("x.toml", &text).unwrap();
        let names: Vec<_> = scenario
            .paths
            .iter()
            .map(|path| path.name.as_str())
            .collect();
        assert_eq!(names, ["a-b", "a-b_2"], "{text}");
        assert_eq!(scenario.transport.mtu, 1222);
        let [_, down] = scenario.paths[1].links.links(&[], 1);
        assert_eq!(down.trace.unwrap().mbit.len(), 45);
    }

    #[test]
    fn payloads_larger_than_a_udp_datagram_are_ignored() {
        let mut path = recording(|_| 10.0, 30.0, u64::MAX);
        let before = path.estimate();
        for number in 0..3 {
            path.on_packet(5.0, number, u64::MAX - 28);
            path.on_packet(5.0, number, MAX_PAYLOAD + 1);
        }
        assert_eq!(path.estimate(), before);
    }

    #[test]
    fn a_recording_that_is_too_short_is_an_error() {
        let mut path = PathRecording::new("a", false);
        assert!(recorded(std::slice::from_ref(&path), 1).is_err());
        path.on_idle_rtt(1.0);
        path.on_packet(0.0, 1, 100);
        path.on_packet(f64::INFINITY, 2, 100);
        path.on_packet(f64::NAN, u64::MAX, 100);
        assert!(recorded(&[path], 1).is_err());
    }
}
