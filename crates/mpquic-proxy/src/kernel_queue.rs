//! [`KernelQueue`]: the size of the kernel's queue for a program's bytes.

use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// How often the size follows the flow.
const PERIOD: Duration = Duration::from_millis(100);
/// A queue holds the bytes of this number of periods.
const PERIODS: f64 = 2.0;
/// The size at the start, in bytes. Many uploads that start together on slow links fill their
/// queues at once.
const FIRST: usize = 16 << 10;
/// The smallest size, in bytes: some segments.
const LEAST: usize = 8 << 10;
/// The largest size, in bytes. Programs are near: at a round trip of 2 ms, this is the queue of 1
/// Gbit/s.
const MOST: usize = 256 << 10;

/// Sizes the kernel's queue of bytes that a program has sent and the flow has not read.
///
/// The kernel acknowledges these bytes to the program, and lets the queue of a slow reader grow to
/// megabytes. The program would believe in a rate that the links do not have, and wait for the end
/// of its upload for minutes. So a flow that waits for room in its stream has a queue of 200 ms.
#[derive(Debug)]
pub(crate) struct KernelQueue {
    size: usize,
    /// Start of the current period.
    began: Instant,
    /// Bytes read in this period.
    bytes: u64,
    /// The time of this period in which the flow waited for room in its stream.
    waited: Duration,
}

impl KernelQueue {
    /// The queue of a new flow.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            size: FIRST,
            began: now,
            bytes: 0,
            waited: Duration::ZERO,
        }
    }

    /// The size, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The flow waited this time for room in its stream.
    pub(crate) fn on_waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// The flow has read from the queue. Returns the size after a change.
    pub(crate) fn on_read(&mut self, bytes: usize, now: Instant) -> Option<usize> {
        self.bytes += bytes as u64;
        let elapsed = now.saturating_duration_since(self.began);
        if elapsed < PERIOD {
            return None;
        }
        let before = self.size;
        let waited = self.waited.as_secs_f64() / elapsed.as_secs_f64();
        let size = if waited >= 0.5 {
            let of_period = self.bytes as f64 * PERIOD.as_secs_f64() / elapsed.as_secs_f64();
            // A connection that starts takes much for a moment.
            ((of_period * PERIODS) as usize).min(self.size * 2)
        } else if waited < 0.1 && self.bytes >= self.size as u64 {
            // The queue may be what holds the program back.
            self.size * 2
        } else {
            self.size
        };
        *self = Self {
            size: size.clamp(LEAST, MOST),
            ..Self::new(now)
        };
        (self.size != before).then_some(self.size)
    }
}

/// The first release of Linux whose connections may outgrow the first window of their listener.
const GROWS: (u32, u32) = (6, 11);

/// Lets connections of the listener offer a small window from their start: a program could send 64
/// KiB before the flow has a [`KernelQueue`]. An older Linux would keep connections at this window.
pub(crate) fn prepare(listener: &TcpListener) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    if release.is_ok_and(|release| version(&release) >= GROWS) {
        let _ = SockRef::from(listener).set_recv_buffer_size(FIRST);
    }
}

/// The first two numbers of a release; zeros for others.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.trim().split(['.', '-']).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_two_numbers() {
        for (release, numbers) in [
            ("6.18.44-fc", (6, 18)),
            ("6.1.0-9-amd64\n", (6, 1)),
            ("5-rc1", (5, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(version(release), numbers);
        }
        assert!(version("6.9.12") < GROWS && version("10.0") > GROWS);
    }

    /// The size after each of some periods, in which a flow reads ten times and waits this part of
    /// the time.
    fn sizes(bytes: usize, waits: f64, periods: u32) -> Vec<usize> {
        let mut now = Instant::now();
        let mut queue = KernelQueue::new(now);
        let mut period = || {
            for _ in 0..10 {
                now += PERIOD / 10;
                queue.on_waited((PERIOD / 10).mul_f64(waits));
                queue.on_read(bytes / 10, now);
            }
            queue.size()
        };
        (0..periods).map(|_| period()).collect()
    }

    #[test]
    fn a_flow_that_waits_for_links_has_a_queue_of_200_ms() {
        // 4 Mbit/s, 10 Mbit/s, 240 kbit/s, 1 Gbit/s.
        for (bytes, size) in [
            (50_000, 100_000),
            (125_000, 250_000),
            (3000, LEAST),
            (12_500_000, MOST),
        ] {
            assert_eq!(sizes(bytes, 0.9, 7)[4..], [size; 3]);
        }
        // A burst is over before the queue has its size.
        assert_eq!(sizes(200_000, 0.9, 1), [2 * FIRST]);
    }

    #[test]
    fn a_queue_grows_while_it_alone_holds_the_program_back() {
        let grown = sizes(10 << 20, 0.05, 7);
        assert_eq!(grown[..4], [2 * FIRST, 4 * FIRST, 8 * FIRST, MOST]);
        assert_eq!(grown[5..], [MOST, MOST]);
        // The start of slow links, which hold the flow back now and then.
        assert_eq!(sizes(100_000, 0.2, 5), [FIRST; 5]);
        // Keys of a terminal fill no queue.
        assert_eq!(sizes(500, 0.0, 5), [FIRST; 5]);
    }
}
