//! From what was seen of real paths to a scenario.

use std::fmt::Write as _;

use mpquic_sim::experiment::{Statistics, quantile};

use crate::Failure;

/// Arrivals are counted in intervals of so many seconds,
const INTERVAL: f64 = 0.02;
/// and rates are those of so many intervals.
const WINDOW: usize = 10;
/// So many intervals of a window with a queue show the rate; one may be a burst.
const LEAST_BUSY: usize = 3;
/// Fewer windows than this say nothing.
const LEAST_WINDOWS: usize = 2;
/// A path is up to speed from the first window on that reaches this part of what it reaches later.
const UP_TO_SPEED: f64 = 0.9;
/// A path has one rate if the middle four fifths of what its windows show lie within this share of it;
/// others have a trace.
const STEADY: f64 = 0.25;
/// Round trips that are longer than the shortest by less than this (ms), or by a smaller share, say
/// nothing of a queue.
const NO_QUEUE: (f64, f64) = (1.0, 0.05);
/// A queue of less than this (ms) is not told from chance.
const LEAST_QUEUE: f64 = 5.0;
/// A wait of this share of the longest is one in a full queue.
const FULL: f64 = 0.9;
/// Losses in an interval are a burst if they are more than this, and by this factor more than usual.
const BURST: f64 = 4.0;
/// So many packets may be missing because they were too large: probes for the path's MTU.
const PROBES: i64 = 4;
/// What a queue of a scenario holds at least unless it is told otherwise, ms.
const DEFAULT_QUEUE: f64 = 50.0;
/// A path jitters if its round trips without load differ by more than this (ms), and by more than this
/// share.
const JITTER: (f64, f64) = (1.0, 0.05);
/// The width of the middle half of the sum of two uniform jitters, in units of one of them.
const MIDDLE_HALF: f64 = 1.172;
/// No UDP datagram has a larger payload, bytes.
const MAX_PAYLOAD: u64 = 65_535;
/// Silence longer than so many round trips is an outage; during less, a sender may have waited for
/// acknowledgements.
const OUTAGE: f64 = 2.0;
/// The rate of an outage, Mbit/s: a link of a scenario never stands still.
const STANDSTILL: f64 = 0.01;
/// A shorter queue holds no packet, bytes.
const ONE_PACKET: f64 = 1500.0;
/// UDP payload of datagrams in scenarios.
const MTU: std::ops::RangeInclusive<u64> = 1200..=1452;

/// What was seen of a path, first without load and then while a download over it took all it could
/// get.
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
    /// Bytes of IP and UDP headers.
    headers: u64,
    /// The most bytes of UDP payload that arrived in one packet.
    mtu: u64,
    idle_rtts: Vec<f64>,
    /// With the time at which they ended, seconds.
    loaded_rtts: Vec<(f64, f64)>,
    /// In intervals.
    arrivals: Vec<Arrivals>,
    largest: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Arrivals {
    bytes: u64,
    packets: u64,
    /// Packets that did not arrive before a later one; less those that arrived after all.
    missing: i64,
}

/// A link, as far as a recording shows it.
#[derive(Debug, Clone, PartialEq)]
struct Estimate {
    /// Of IP packets.
    rate_mbit: f64,
    /// The rates of windows, if they differ.
    trace: Option<Vec<f64>>,
    rtt_ms: f64,
    jitter_ms: Option<f64>,
    loss_pct: f64,
    /// What the queue holds. Queues hold bytes: a faster rate empties them sooner.
    queue_bytes: Option<f64>,
    /// False if nothing shows that more would not have arrived.
    is_filled: bool,
}

/// A part of the load.
#[derive(Debug, Clone, Copy)]
struct Window {
    mbit: f64,
    packets: u64,
    missing: i64,
    /// Those of the missing ones that were lost in a burst.
    burst: i64,
    /// The longest wait in the queue, ms; `None` if no round trip was under way in it.
    wait: Option<f64>,
    /// The rate of the parts with a queue, if these are long enough.
    busy: Option<f64>,
    /// Nothing arrived, although it was asked for.
    is_outage: bool,
}

impl PathRecording {
    /// Nothing has been seen yet of a path of this name.
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

    /// Adds a round trip, in milliseconds, that ended so many seconds after the load began.
    pub fn on_loaded_rtt(&mut self, seconds: f64, milliseconds: f64) {
        self.loaded_rtts.push((seconds, milliseconds));
    }

    /// A packet with this number and so many bytes of UDP payload arrived so many seconds after the load
    /// began. Numbers that are left out are of packets that were lost. What is larger than any packet, or
    /// more than a day after the beginning, is ignored.
    pub fn on_packet(&mut self, seconds: f64, number: u64, payload: u64) {
        let index = (seconds.max(0.0) / INTERVAL) as usize;
        // A day; only a damaged log has more.
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

    fn shortest_rtt(&self) -> Option<f64> {
        let loaded = self.loaded_rtts.iter().map(|(_, rtt)| *rtt);
        let all = self.idle_rtts.iter().copied().chain(loaded);
        all.min_by(f64::total_cmp)
    }

    /// Which windows are part of an outage.
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

    /// In which intervals what arrived had waited: at the end of a round trip that took longer than the
    /// shortest by more than `least` (ms), and during this wait before.
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

    /// `least`: a shorter wait (ms) is chance.
    fn windows(&self, shortest: f64, least: f64) -> Vec<Window> {
        let seconds = INTERVAL * WINDOW as f64;
        // What is over before its time says nothing of the rate.
        let whole = self.arrivals.chunks_exact(WINDOW).enumerate();
        let missing: i64 = self.arrivals.iter().map(|interval| interval.missing).sum();
        let usual = missing.max(0) as f64 / self.arrivals.len().max(1) as f64;
        let outages = self.outages(shortest);
        // What took so long because of an outage did not wait in a queue.
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
            // While its queue is empty, a link carries less than it could.
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

    /// What the link is like; `None` if too little was seen.
    fn estimate(&self) -> Option<Estimate> {
        let shortest = self.shortest_rtt()?;
        // What round trips differ by without load, they do with it.
        let least = NO_QUEUE.0.max(NO_QUEUE.1 * shortest);
        let least = least.max(self.idle_spread(shortest));
        let mut windows = self.windows(shortest, least);
        let mut rates: Vec<_> = windows.iter().map(|window| window.mbit).collect();
        rates.sort_by(f64::total_cmp);
        let fast = UP_TO_SPEED * quantile(&rates, 0.75);
        let start = windows.iter().position(|window| window.mbit >= fast)?;
        // The queue that built up meanwhile belongs to the start.
        let start: Vec<_> = windows.drain(..start).collect();
        if fast <= 0.0 || windows.len() < LEAST_WINDOWS {
            return None;
        }
        let busy = windows.iter().filter(|it| it.busy.is_some()).count();
        let outages = windows.iter().filter(|window| window.is_outage).count();
        let is_filled = 4 * busy >= windows.len() - outages;
        // Where it is not filled, what waited did so by chance.
        for window in windows.iter_mut().filter(|_| is_filled) {
            window.mbit = window.busy.unwrap_or(window.mbit);
        }
        let counted = |window: &&Window| !is_filled || window.busy.is_some() || window.is_outage;
        let mut rates: Vec<_> = windows.iter().filter(counted).map(|w| w.mbit).collect();
        rates.sort_by(f64::total_cmp);
        let spread = Statistics::of(rates.iter().copied());
        let is_steady = outages == 0 && spread.ninetieth - spread.tenth <= STEADY * spread.mean;
        let rate_mbit = match is_steady {
            true => quantile(&rates, 0.5),
            false => spread.mean,
        };
        // Each with the rate at which the queue emptied; that of the start is not known yet then.
        let waits = windows.iter().map(|window| (window.wait, window.mbit));
        let waits = waits.chain(start.iter().map(|window| (window.wait, rate_mbit)));
        let waits = waits.filter_map(|(wait, mbit)| Some((wait?, mbit)));
        let waits: Vec<_> = waits.collect();
        let longest = waits.iter().map(|(wait, _)| *wait).fold(0.0, f64::max);
        let full = waits.iter().filter(|(wait, _)| *wait >= FULL * longest);
        // A round trip may span windows in which nothing arrived.
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

    /// How much longer than the shortest round trips are without load, but for the odd one.
    fn idle_spread(&self, shortest: f64) -> f64 {
        let mut rtts = self.idle_rtts.clone();
        rtts.sort_by(f64::total_cmp);
        match rtts.is_empty() {
            true => 0.0,
            false => quantile(&rtts, 0.95) - shortest,
        }
    }

    /// The round trip, and how much one way differs, if it does.
    fn delay(&self, shortest: f64) -> (f64, Option<f64>) {
        let mut rtts = self.idle_rtts.clone();
        rtts.sort_by(f64::total_cmp);
        if rtts.len() < 8 {
            return (shortest, None);
        }
        let width = quantile(&rtts, 0.75) - quantile(&rtts, 0.25);
        let median = quantile(&rtts, 0.5);
        match width > JITTER.0.max(JITTER.1 * median) {
            true => (median, Some((width / MIDDLE_HALF).min(median / 2.0))),
            false => (shortest, None),
        }
    }
}

/// The share of packets that were lost while the queue was not full, and whether it overflowed.
fn losses(windows: &[Window], longest: f64) -> (f64, bool) {
    let has_queue = longest >= LEAST_QUEUE;
    let is_full = |window: &Window| window.wait.is_some_and(|wait| wait > longest / 2.0);
    let (mut full, mut others) = (Vec::new(), Vec::new());
    for (index, window) in windows.iter().enumerate() {
        // What a queue dropped shows when what was behind it has arrived.
        let near = &windows[index.saturating_sub(1)..=index];
        match has_queue && near.iter().any(is_full) {
            true => full.push(window),
            false => others.push(window),
        }
    }
    let share = |windows: &[&Window], with_bursts: bool| {
        let missing = |window: &&Window| match with_bursts {
            true => window.missing,
            false => window.missing - window.burst,
        };
        let missing = windows.iter().map(missing).sum::<i64>() - PROBES;
        let missing = missing.max(0) as f64;
        let packets = windows.iter().map(|window| window.packets).sum::<u64>();
        missing / (missing + packets as f64).max(1.0)
    };
    // Where there is a queue, it is that which drops many at a time, even if no round trip saw it full.
    let loss = share(&others, !has_queue);
    (
        loss,
        !full.is_empty() && share(&full, true) > 2.0 * loss + 1e-4,
    )
}

/// The rates of windows. One in which the queue was empty has that of the window before, if that was more.
fn trace(windows: &[Window], is_filled: bool) -> Vec<f64> {
    let mut rate: f64 = 0.0;
    let rates = windows.iter().map(|window| {
        if window.is_outage {
            return STANDSTILL;
        }
        rate = match !is_filled || window.busy.is_some() {
            true => window.mbit,
            false => window.mbit.max(rate),
        };
        rate.max(STANDSTILL)
    });
    rates.collect()
}

/// The scenario of a file of so many MB over these paths: they, as they were seen, with the default
/// policies.
///
/// # Errors
///
/// [`Failure::Failed`] if too little was seen of a path.
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

/// A name that scenarios take and that no path before has.
fn name(paths: &[PathRecording], index: usize) -> String {
    let plain = |path: &PathRecording| -> String {
        let characters = path.name.chars();
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
        let plain = characters.map(|c| if is_plain(&c) { c } else { '-' });
        plain.collect()
    };
    let own = plain(&paths[index]);
    match paths[..index].iter().any(|other| plain(other) == own) || own.is_empty() {
        true => format!("{own}_{}", index + 1),
        false => own,
    }
}

impl Estimate {
    /// A `[[path]]`.
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

    /// Ten seconds at a rate, after a second at a tenth of it, through a queue that is half full but
    /// for every fifth second.
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

    /// How long a full queue takes to empty, ms.
    fn queue_ms(estimate: &Estimate) -> Option<f64> {
        let bytes = estimate.queue_bytes?;
        Some((bytes / estimate.rate_mbit / 125.0).round())
    }

    #[test]
    fn a_steady_link_is_found_again() {
        let path = recording(|_| 10.0, 100.0, 200);
        let estimate = path.estimate().unwrap();
        // Of what was sent, one in 200 was lost, after it had used its share of the rate.
        assert!(
            (estimate.rate_mbit / 9.95 - 1.0).abs() < 0.01,
            "{estimate:?}"
        );
        assert!((estimate.loss_pct - 0.5).abs() < 0.1, "{estimate:?}");
        assert_eq!((estimate.rtt_ms, estimate.jitter_ms), (20.0, None));
        // Longer than what is the default.
        assert_eq!(queue_ms(&estimate), Some(100.0));
        assert!(estimate.is_filled && estimate.trace.is_none());
        assert_eq!(
            queue_ms(&recording(|_| 10.0, 40.0, 200).estimate().unwrap()),
            None
        );
    }

    #[test]
    fn what_varies_becomes_a_trace() {
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
    fn round_trips_count_while_they_are_under_way() {
        let rate = |time: f64| [20.0, 5.0][time as usize % 2];
        let mut path = recording(rate, 300.0, u64::MAX);
        // One after the other: in every other window, none ends.
        path.loaded_rtts = (1..28).map(|n| (0.4 * f64::from(n), 320.0)).collect();
        let trace = path.estimate().unwrap().trace.unwrap();
        for (index, mbit) in trace.iter().enumerate() {
            // From the third second on, five windows each.
            let expected = rate(2.0 + (index / 5) as f64);
            assert!((mbit / expected - 1.0).abs() < 0.1, "{index}: {trace:?}");
        }
    }

    #[test]
    fn an_outage_is_in_the_trace() {
        let with_silence = |delay: f64| {
            let mut path = recording(|_| 10.0, 100.0, u64::MAX);
            path.arrivals[250..280].fill(Arrivals::default());
            path.loaded_rtts.retain(|(at, _)| !(5.0..5.6).contains(at));
            // It began before the outage, and waited for its end.
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
        // Within two round trips, a sender may wait for acknowledgements.
        assert_eq!(with_silence(600.0).trace, None);
    }

    #[test]
    fn losses_with_a_full_queue_are_of_the_queue() {
        let mut path = recording(|_| 10.0, 40.0, u64::MAX);
        // From 5 s to 6 s, the queue is full.
        for _ in 0..50 {
            let largest = path.largest.unwrap();
            path.on_packet(5.5, largest + 2, 1222);
        }
        let estimate = path.estimate().unwrap();
        assert_eq!((estimate.loss_pct, queue_ms(&estimate)), (0.0, Some(40.0)));
    }

    #[test]
    fn bursts_are_of_a_queue_if_there_is_one() {
        for (queue_ms, expected) in [(40.0, 0.0), (0.0, 0.5)] {
            let mut path = recording(|_| 10.0, queue_ms, u64::MAX);
            let largest = path.largest.unwrap();
            path.on_packet(7.5, largest + 51, 1222);
            let loss = path.estimate().unwrap().loss_pct;
            assert!((loss - expected).abs() < 0.05, "{queue_ms}: {loss}");
        }
    }

    #[test]
    fn probes_for_the_mtu_are_no_losses() {
        let mut path = recording(|_| 10.0, 0.0, u64::MAX);
        for _ in 0..3 {
            let largest = path.largest.unwrap();
            path.on_packet(7.5, largest + 2, 1222);
        }
        assert_eq!(path.estimate().unwrap().loss_pct, 0.0);
    }

    #[test]
    fn a_queue_holds_bytes() {
        // 200 ms of queue while it empties at 5 Mbit/s are 125 kB; at 20 Mbit/s, 50 ms.
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
    fn who_waited_for_the_end_of_an_outage_was_in_no_queue() {
        let mut path = recording(|_| 10.0, 0.0, u64::MAX);
        path.arrivals[255..280].fill(Arrivals::default());
        path.loaded_rtts.retain(|(at, _)| !(5.1..5.6).contains(at));
        path.loaded_rtts.push((5.6, 520.0));
        let windows = path.windows(20.0, 1.0);
        assert!(windows[25].busy.is_none() && (windows[25].mbit - 5.0).abs() < 0.5);
    }

    #[test]
    fn a_rate_is_that_of_a_link_with_a_queue() {
        // For half of each window the sender leaves the link half empty.
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
    fn jitter_is_no_queue() {
        // Round trips differ by up to 4 ms, with load as without: the link was never full.
        let mut path = recording(|_| 10.0, 0.0, u64::MAX);
        path.idle_rtts = (0..20).map(|n| 20.0 + f64::from(n % 5)).collect();
        for (index, (_, rtt)) in path.loaded_rtts.iter_mut().enumerate() {
            *rtt = 20.0 + (index % 5) as f64;
        }
        assert!(!path.estimate().unwrap().is_filled);
    }

    #[test]
    fn jitter_shows_without_load() {
        let mut path = recording(|_| 10.0, 30.0, u64::MAX);
        path.idle_rtts = (0..101).map(|n| 20.0 + f64::from(n) / 10.0).collect();
        let estimate = path.estimate().unwrap();
        assert_eq!(estimate.rtt_ms, 25.0);
        assert!((estimate.jitter_ms.unwrap() - 5.0 / MIDDLE_HALF).abs() < 0.1);
    }

    #[test]
    fn the_scenario_can_be_read() {
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
    fn what_cannot_be_a_packet_is_ignored() {
        let mut path = recording(|_| 10.0, 30.0, u64::MAX);
        let before = path.estimate();
        for number in 0..3 {
            path.on_packet(5.0, number, u64::MAX - 28);
            path.on_packet(5.0, number, MAX_PAYLOAD + 1);
        }
        assert_eq!(path.estimate(), before);
    }

    #[test]
    fn too_little_is_an_error() {
        let mut path = PathRecording::new("a", false);
        assert!(recorded(std::slice::from_ref(&path), 1).is_err());
        path.on_idle_rtt(1.0);
        path.on_packet(0.0, 1, 100);
        path.on_packet(f64::INFINITY, 2, 100);
        path.on_packet(f64::NAN, u64::MAX, 100);
        assert!(recorded(&[path], 1).is_err());
    }
}
