//! Statistics of repeated runs.

/// Quantiles of Student's t distribution for 95 % confidence, two-sided, by degrees of freedom from
/// 1.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Statistics of a set of values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Statistics {
    /// Number of values.
    pub count: usize,
    /// Mean of the values.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean; 0 for a single value.
    pub confidence: f64,
    /// Median of the values.
    pub median: f64,
    /// Tenth percentile.
    pub tenth: f64,
    /// Ninetieth percentile.
    pub ninetieth: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Statistics {
    /// The statistics of these values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let confidence = if count > 1 {
            let deviation = (squares / (count - 1) as f64).sqrt();
            student(count - 1) * deviation / (count as f64).sqrt()
        } else {
            0.0
        };
        Self {
            count,
            mean,
            confidence,
            median: quantile(&values, 0.5),
            tenth: quantile(&values, 0.1),
            ninetieth: quantile(&values, 0.9),
            min: *min,
            max: *max,
        }
    }
}

impl Statistics {
    /// The standard error of the mean; 0 for a single value.
    pub(super) fn standard_error(&self) -> f64 {
        match self.count {
            0 | 1 => 0.0,
            count => self.confidence / student(count - 1),
        }
    }
}

fn student(degrees: usize) -> f64 {
    // Beyond the table, this expansion is good to three digits.
    let further = || 1.960 + 2.372 / degrees as f64 + 2.82 / (degrees as f64).powi(2);
    STUDENT
        .get(degrees.wrapping_sub(1))
        .copied()
        .unwrap_or_else(further)
}

/// The median alone, without sorting, because resampling computes the median thousands of times. 0
/// without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let (below, upper, _) = values.select_nth_unstable_by(last.div_ceil(2), f64::total_cmp);
    let lower = match last % 2 {
        0 => None,
        _ => below.iter().copied().max_by(f64::total_cmp),
    };
    let lower = lower.unwrap_or(*upper);
    lower + (*upper - lower) * 0.5
}

/// A quantile of sorted values, interpolated between the two nearest values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(below), Some(above)) => below + (above - below) * position.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_sample() {
        // Mean 5, sample deviation sqrt(32 / 7): half the interval is 2.365 * 2.138 / sqrt(8).
        let statistics = Statistics::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(
            (statistics.count, statistics.mean, statistics.median),
            (8, 5.0, 4.5)
        );
        assert!(
            (statistics.confidence - 1.788).abs() < 1e-3,
            "{statistics:?}"
        );
        assert_eq!((statistics.min, statistics.max), (2.0, 9.0));
        assert!((statistics.ninetieth - 7.6).abs() < 1e-9);
        assert_eq!(Statistics::of([3.0]).confidence, 0.0);
        assert_eq!(Statistics::of([]).count, 0);
    }

    #[test]
    fn the_median_is_that_of_the_statistics() {
        let values = [7.5, -1.0, 3.25, 0.1, 9.0, 0.1, 2.0, 1e-3, 5.5];
        for count in 0..=values.len() {
            let some = || values[..count].iter().copied();
            assert_eq!(median(some()), Statistics::of(some()).median, "{count}");
        }
    }

    #[test]
    fn the_t_distribution_goes_on_smoothly() {
        assert!((student(31) - 2.0395).abs() < 2e-4);
        assert!((student(60) - 2.0003).abs() < 2e-4);
        assert!((student(1000) - 1.9623).abs() < 2e-4);
    }

    #[test]
    fn the_standard_error_is_the_deviation_by_the_root_of_the_count() {
        let error = |values: &[f64]| Statistics::of(values.iter().copied()).standard_error();
        assert_eq!((error(&[]), error(&[3.0])), (0.0, 0.0));
        // Sample deviation sqrt(2), and sqrt(32 / 7).
        assert!((error(&[1.0, 3.0]) - 1.0).abs() < 1e-12);
        let eight = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!((error(&eight) - (32.0_f64 / 7.0 / 8.0).sqrt()).abs() < 1e-12);
        let many: Vec<_> = (0..100).map(|index| f64::from(index % 2)).collect();
        assert!((error(&many) - (25.0_f64 / 99.0 / 100.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn quantiles_lie_between_the_two_nearest_values() {
        let values = [1.0, 2.0, 4.0];
        let of = |share| quantile(&values, share);
        assert_eq!(
            [of(0.0), of(0.25), of(0.5), of(0.75), of(1.0)],
            [1.0, 1.5, 2.0, 3.0, 4.0]
        );
        assert_eq!((of(-1.0), of(2.0)), (1.0, 4.0));
        assert_eq!(quantile(&[7.0], 0.3), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
        let statistics = Statistics::of([4.0, 1.0, 2.0]);
        assert_eq!((statistics.tenth, statistics.median), (1.2, 2.0));
        assert!((statistics.ninetieth - 3.6).abs() < 1e-12);
        // Two values: 12.706 times the deviation divided by the square root of two.
        assert!((Statistics::of([1.0, 3.0]).confidence - 12.706).abs() < 1e-9);
    }
}
