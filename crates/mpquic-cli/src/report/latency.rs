//! Latencies: their distribution, and the increase by a load.

use std::time::Duration;

use serde::Serialize;

/// Samples of a latency.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    micros: Vec<u32>,
}

/// The distribution of samples, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) min_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        let micros = u32::try_from(latency.as_micros());
        self.micros.push(micros.unwrap_or(u32::MAX));
    }

    pub(crate) fn len(&self) -> usize {
        self.micros.len()
    }

    /// Statistics of all samples; `None` without samples.
    pub(crate) fn spread(&self) -> Option<Spread> {
        self.spread_since(0)
    }

    /// Statistics without the first samples.
    pub(crate) fn spread_since(&self, first: usize) -> Option<Spread> {
        let mut sorted = self.micros.get(first..)?.to_vec();
        sorted.sort_unstable();
        let part = |part| Some(f64::from(nearest_rank(&sorted, part)?) / 1e3);
        Some(Spread {
            count: sorted.len(),
            min_ms: part(0.0)?,
            p50_ms: part(0.5)?,
            p90_ms: part(0.9)?,
            p99_ms: part(0.99)?,
            max_ms: part(1.0)?,
        })
    }
}

/// The smallest sorted value with at least this part of the values at or below it; `None` without
/// values.
pub(crate) fn nearest_rank<T: Copy>(sorted: &[T], part: f64) -> Option<T> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    let last = sorted.len().checked_sub(1)?;
    sorted.get(rank.saturating_sub(1).min(last)).copied()
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "median {:.2} ms, 90 % {:.2} ms, 99 % {:.2} ms, max {:.2} ms",
            self.p50_ms, self.p90_ms, self.p99_ms, self.max_ms
        )
    }
}

/// The effect of a load on latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bufferbloat {
    /// Growth of the median, in milliseconds.
    pub(crate) added_ms: f64,
    pub(crate) grade: &'static str,
}

impl Bufferbloat {
    pub(crate) fn new(idle: Spread, loaded: Spread) -> Self {
        let added_ms = (loaded.p50_ms - idle.p50_ms).max(0.0);
        let grade = match added_ms {
            ..5.0 => "A+",
            5.0..30.0 => "A",
            30.0..60.0 => "B",
            60.0..200.0 => "C",
            200.0..400.0 => "D",
            _ => "F",
        };
        Self { added_ms, grade }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(millis: impl IntoIterator<Item = u64>) -> Spread {
        let mut latencies = Latencies::default();
        for latency in millis {
            latencies.add(Duration::from_millis(latency));
        }
        latencies.spread().unwrap()
    }

    #[test]
    fn ranks_are_the_nearest() {
        let hundred = spread((1..=100).rev());
        let ranks = [hundred.min_ms, hundred.p50_ms, hundred.p90_ms];
        assert_eq!(ranks, [1.0, 50.0, 90.0]);
        assert_eq!((hundred.p99_ms, hundred.max_ms), (99.0, 100.0));
        let one = spread([7]);
        assert_eq!((one.count, one.min_ms, one.p50_ms), (1, 7.0, 7.0));
        assert_eq!((one.p99_ms, one.max_ms), (7.0, 7.0));
        assert_eq!(Latencies::default().spread(), None);
    }

    #[test]
    fn later_samples_have_a_spread_of_their_own() {
        let mut latencies = Latencies::default();
        for millis in [1000, 1, 2, 3] {
            latencies.add(Duration::from_millis(millis));
        }
        assert_eq!(latencies.spread_since(1).unwrap().max_ms, 3.0);
        assert_eq!(latencies.spread_since(4), None);
        assert_eq!(latencies.spread_since(5), None);
    }

    #[test]
    fn bufferbloat_has_grades() {
        let grade = |loaded| Bufferbloat::new(spread([10]), spread([loaded])).grade;
        for (loaded, expected) in [
            (1, "A+"),
            (14, "A+"),
            (15, "A"),
            (39, "A"),
            (40, "B"),
            (70, "C"),
            (210, "D"),
            (410, "F"),
        ] {
            assert_eq!(grade(loaded), expected, "{loaded}");
        }
    }

    #[test]
    fn a_load_never_makes_latency_better() {
        let added = |idle, loaded| Bufferbloat::new(spread([idle]), spread([loaded])).added_ms;
        assert_eq!(
            [added(10, 4), added(10, 10), added(10, 12)],
            [0.0, 0.0, 2.0]
        );
        let grade = |loaded| Bufferbloat::new(spread([10]), spread([loaded])).grade;
        assert_eq!([69, 209, 409].map(grade), ["B", "C", "D"]);
        let mut latencies = Latencies::default();
        latencies.add(Duration::from_secs(1 << 40));
        assert_eq!(latencies.len(), 1);
        let longest = f64::from(u32::MAX) / 1e3;
        assert_eq!(latencies.spread().unwrap().max_ms, longest);
        let told = spread((1..=100).rev()).to_string();
        assert_eq!(
            told,
            "median 50.00 ms, 90 % 90.00 ms, 99 % 99.00 ms, max 100.00 ms"
        );
    }
}
