//! Confidence intervals of measurements: by resampling runs, and for shares of runs.

use crate::random::SplitMix64;

/// Number of resamples. The smallest chance above zero is one divided by the number of resamples.
/// The smallest chance has to be far below 0.05 divided by the number of comparisons of a scenario.
const RESAMPLES: usize = 4000;
/// The least number of runs that decide a claim. The range of five runs misses the median in one of
/// 16 cases, the range of six runs in one of 32. So only from six runs on, the range contains the
/// median with 95 % confidence.
pub(super) const MIN_RUNS: usize = 6;
/// The quantile of the normal distribution for 95 % confidence, two-sided.
const NORMAL: f64 = 1.96;

/// The values of a statistic for resampled runs, sorted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resampled(Vec<f64>);

impl Resampled {
    /// The 95 % interval.
    pub(super) fn interval(&self) -> (f64, f64) {
        let quantile = |share| super::quantile(&self.0, share);
        (quantile(0.025), quantile(0.975))
    }

    /// Whether the statistic is within these bounds, and the chance of a wrong answer. The chance
    /// is the part outside of the widest interval with equal tails that lies completely inside or
    /// outside of the bounds.
    pub(super) fn is_within(&self, (least, most): (f64, f64)) -> (bool, f64) {
        let below = |bound: f64| self.0.partition_point(|value| *value < bound);
        let all = self.0.len();
        // The bounds are slightly wider, because decimal fractions are not exact.
        let too_little = below(least - 1e-9);
        let too_much = all - below(most + 1e-9);
        let wrong_if_inside = too_little.max(too_much);
        let wrong_if_outside = (all - too_little).min(all - too_much);
        let chance = |wrong: usize| (2.0 * (wrong + 1) as f64 / (all + 1) as f64).min(1.0);
        if wrong_if_inside <= wrong_if_outside {
            (true, chance(wrong_if_inside))
        } else {
            (false, chance(wrong_if_outside))
        }
    }
}

/// Resamples a statistic of several groups of runs: the percentile bootstrap, each group
/// separately. A draw takes all measurements of a run together. `None` without runs.
pub(super) fn bootstrap<T: Copy>(
    groups: &[Vec<T>],
    statistic: impl Fn(&[Vec<T>]) -> f64,
) -> Option<Resampled> {
    if groups.iter().all(Vec::is_empty) {
        return None;
    }
    // The same numbers in every call.
    let mut numbers = SplitMix64::new(1);
    let mut resampled = groups.to_vec();
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for (group, runs) in resampled.iter_mut().zip(groups) {
            for run in group.iter_mut() {
                *run = runs[numbers.below(runs.len() as u64) as usize];
            }
        }
        values.push(statistic(&resampled));
    }
    values.sort_by(f64::total_cmp);
    Some(Resampled(values))
}

/// The 95 % interval of the share that `hits` of `count` runs show (Wilson, JASA 1927). `None`
/// without runs.
pub(super) fn share(hits: usize, count: usize) -> Option<(f64, f64)> {
    if count == 0 {
        return None;
    }
    let (n, z) = (count as f64, NORMAL);
    let found = hits as f64 / n;
    let middle = found + z * z / (2.0 * n);
    let half = z * (found * (1.0 - found) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    Some((
        (middle - half).max(0.0) / scale,
        ((middle + half) / scale).min(1.0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_runs() {
        // Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20.
        for (hits, count, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
        ] {
            let (found_low, found_high) = share(hits, count).unwrap();
            assert!((found_low - low).abs() < 1e-4, "{found_low}");
            assert!((found_high - high).abs() < 1e-4, "{found_high}");
        }
        assert_eq!(share(0, 0), None);
    }

    #[test]
    fn the_interval_of_a_mean_is_about_two_standard_errors_wide() {
        // 1 to 100: the standard error of the mean is 28.87 / 10.
        let runs: Vec<f64> = (1..=100).map(f64::from).collect();
        let mean = |groups: &[Vec<f64>]| groups[0].iter().sum::<f64>() / 100.0;
        let resampled = bootstrap(&[runs], mean).unwrap();
        let (low, high) = resampled.interval();
        assert!((low - (50.5 - 5.66)).abs() < 0.6, "{low}");
        assert!((high - (50.5 + 5.66)).abs() < 0.6, "{high}");
        // Bounds at the ends of the interval give a chance of 0.05.
        let (inside, chance) = resampled.is_within((low, high));
        assert!(inside && (chance - 0.05).abs() < 0.003, "{chance}");
        let (inside, chance) = resampled.is_within((high, 100.0));
        assert!(!inside && (chance - 0.05).abs() < 0.003, "{chance}");
        assert!(resampled.is_within((50.5, 100.0)).1 > 0.9);
        let (inside, chance) = resampled.is_within((0.0, 100.0));
        assert!(inside && chance < 0.001, "{chance}");
    }

    #[test]
    fn groups_are_resampled_separately() {
        // A resample draws runs within each group, and never mixes the groups.
        let groups = vec![vec![1.0; 5], vec![3.0; 2]];
        let sum = |groups: &[Vec<f64>]| groups[0][0] + groups[1][0];
        assert_eq!(bootstrap(&groups, sum).unwrap().interval(), (4.0, 4.0));
        assert_eq!(bootstrap(&[Vec::<f64>::new()], |_| 0.0), None);
    }

    #[test]
    fn chance_counts_values_beyond_the_bounds() {
        let resampled = Resampled((1..=9).map(f64::from).collect());
        // Of nine values, two lie above the bounds and one lies below. The larger tail counts: 2 *
        // (2 + 1) / (9 + 1).
        assert_eq!(resampled.is_within((1.5, 7.5)), (true, 2.0 * 3.0 / 10.0));
        assert_eq!(resampled.is_within((0.0, 9.0)), (true, 0.2));
        assert_eq!(resampled.is_within((9.5, 20.0)), (false, 0.2));
        assert_eq!(resampled.is_within((-5.0, 1.5)), (false, 0.4));
        // The bounds belong to the interval, and no chance exceeds one.
        assert_eq!(resampled.is_within((9.0, 20.0)), (false, 0.4));
        assert_eq!(resampled.is_within((4.5, 4.5)), (false, 1.0));
        let (low, high) = resampled.interval();
        assert!((low - 1.2).abs() < 1e-9 && (high - 8.8).abs() < 1e-9);
    }
}
