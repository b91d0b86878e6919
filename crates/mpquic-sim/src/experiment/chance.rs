//! Significance of differences: single tests, and corrections for many tests.

/// Significance level of a verdict. Together with the two early looks at [`EARLY_LEVEL`], the total
/// level is 0.05.
pub(super) const LEVEL: f64 = 0.04;
/// Significance level of each of the two early looks at a part of the runs, which may end an
/// experiment.
pub(super) const EARLY_LEVEL: f64 = 0.005;

/// The probability that a value of Student's distribution is at least this far from zero, in either
/// direction (Abramowitz and Stegun, 26.7.3 and 26.7.4).
pub(super) fn student(distance: f64, degrees: usize) -> f64 {
    if degrees == 0 {
        return 1.0;
    }
    let angle = (distance.abs() / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    // Each term is the term before it, times cos² and the next ratio of even to odd numbers.
    let (mut term, mut sum) = (if odd { cosine } else { 1.0 }, 0.0);
    let first = if odd { 2 } else { 1 };
    for index in (first..degrees.saturating_sub(1)).step_by(2) {
        sum += term;
        term *= cosine * cosine * index as f64 / (index + 1) as f64;
    }
    if degrees > 1 {
        sum += term;
    }
    let within = if odd {
        2.0 / std::f64::consts::PI * (angle + sine * sum)
    } else {
        sine * sum
    };
    (1.0 - within).clamp(0.0, 1.0)
}

/// The probability that a difference with this mean is not within `bound` of zero, by one tail of
/// Student's distribution.
pub(super) fn beyond(mean: f64, error: f64, count: usize, bound: f64) -> f64 {
    let left = bound - mean.abs();
    match (count, error > 0.0) {
        (0 | 1, _) => 1.0,
        (_, false) => f64::from(u8::from(left < 0.0)),
        (_, true) if left < 0.0 => 1.0,
        (_, true) => student(left / error, count - 1) / 2.0,
    }
}

/// The probability that a value of the normal distribution is at least this far from zero, in
/// either direction (Abramowitz and Stegun, 26.2.17: good to 1.5e-7).
fn normal(distance: f64) -> f64 {
    let x = distance.abs();
    let t = 1.0 / (1.0 + 0.231_641_9 * x);
    let factors = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let series = factors.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (2.0 * density * series).min(1.0)
}

/// The distance from zero that a value of the normal distribution exceeds with this probability.
fn distance(chance: f64) -> f64 {
    let (mut near, mut far) = (0.0, 10.0);
    for _ in 0..60 {
        let middle = f64::midpoint(near, far);
        if normal(middle) > chance {
            near = middle
        } else {
            far = middle
        }
    }
    near
}

/// The probability of a share at least this far from `wanted`, if `wanted` is the true share.
/// `hits` of `count` runs have the property. This test matches Wilson's interval.
pub(super) fn of_share(hits: usize, count: usize, wanted: f64) -> f64 {
    let found = hits as f64 / count as f64;
    let deviation = (wanted * (1.0 - wanted) / count as f64).sqrt();
    if deviation > 0.0 {
        normal((found - wanted) / deviation)
    } else {
        f64::from(u8::from(found == wanted))
    }
}

/// Corrects the chances of several tests, so that with 95 % confidence every verdict is right
/// (Holm, Scandinavian Journal of Statistics 6, 1979). A test is decided if its corrected chance is
/// at most the level of a single test.
///
/// ```
/// use mpquic_sim::experiment::corrected;
/// assert_eq!(corrected(&[0.01, 0.5, 0.02]), [0.03, 0.5, 0.04]);
/// ```
pub fn corrected(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut corrected = vec![1.0; chances.len()];
    let mut least: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        let left = (chances.len() - rank) as f64;
        least = least.max((chances[index] * left).min(1.0));
        corrected[index] = least;
    }
    corrected
}

/// The approximate number of runs that would decide a test, if further runs resembled the `runs`
/// present runs. `chance` is the test's own chance, `corrected` its chance among other tests. The
/// distance from the edge grows with the square root of the number of runs. `None` above a hundred
/// times the present number of runs: the true value is on the edge.
pub(super) fn runs_to_decide(runs: usize, chance: f64, corrected: f64) -> Option<usize> {
    let tests = (corrected / chance).max(1.0);
    let factor = (distance(LEVEL / tests) / distance(chance)).powi(2);
    (factor <= 100.0).then(|| (runs as f64 * factor).ceil() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        // Quantiles for 95 % and 99 % confidence.
        for (distance, degrees, chance) in [
            (12.706, 1, 0.05),
            (4.303, 2, 0.05),
            (3.182, 3, 0.05),
            (2.228, 10, 0.05),
            (2.201, 11, 0.05),
            (2.861, 19, 0.01),
            (1.984, 100, 0.05),
            (-2.228, 10, 0.05),
        ] {
            let found = student(distance, degrees);
            assert!((found - chance).abs() < 1e-4, "{degrees}: {found}");
        }
        assert_eq!((student(0.0, 7), student(9.0, 0)), (1.0, 1.0));
        for (distance_, chance) in [(1.959_964, 0.05), (2.575_829, 0.01), (0.674_490, 0.5)] {
            assert!((normal(distance_) - chance).abs() < 1e-6);
            assert!((distance(chance) - distance_).abs() < 1e-5);
        }
    }

    #[test]
    fn equality_needs_an_interval_within_the_bounds() {
        // 0.01 is 2.228 standard errors from 0, half as far from 0.005.
        let error = 0.01 / 2.228;
        assert!((beyond(0.0, error, 11, 0.01) - 0.025).abs() < 1e-4);
        assert!(beyond(0.005, error, 11, 0.01) > 0.1);
        assert_eq!(beyond(0.02, error, 11, 0.01), 1.0);
        assert_eq!(
            (beyond(0.0, 0.0, 9, 0.01), beyond(0.0, 0.0, 1, 0.01)),
            (0.0, 1.0)
        );
    }

    #[test]
    fn shares_are_tested_as_their_interval_says() {
        // Wilson's interval of 0 of 20 ends at 0.1611.
        assert!(of_share(0, 20, 0.160) > 0.05 && of_share(0, 20, 0.162) < 0.05);
        assert_eq!((of_share(3, 3, 1.0), of_share(2, 3, 1.0)), (1.0, 0.0));
    }

    #[test]
    fn one_significant_test_of_twenty_is_not_significant_together() {
        let mut chances = vec![0.5; 19];
        chances.push(0.04);
        assert!(corrected(&chances).iter().all(|chance| *chance > LEVEL));
        // A test stays undecided while a test with a smaller chance is undecided.
        assert_eq!(corrected(&[0.03, 0.031]), [0.06, 0.06]);
        assert_eq!(corrected(&[0.001, 0.04, 0.04]), [0.003, 0.08, 0.08]);
        assert_eq!(corrected(&[]), [0.0; 0]);
    }

    #[test]
    fn more_runs_move_an_interval_off_the_edge() {
        // Half the distance (2.054 for a chance of 0.04) needs four times as many runs.
        let chance = normal(1.026_874);
        let needed = runs_to_decide(10, chance, chance).unwrap();
        assert!((40..=41).contains(&needed), "{needed}");
        // Among ten tests, (2.878 / 2.054)² as many runs as for one.
        let needed = runs_to_decide(10, chance, 10.0 * chance).unwrap();
        assert!((78..=80).contains(&needed), "{needed}");
        assert_eq!(runs_to_decide(10, 1.0, 1.0), None);
    }

    #[test]
    fn chance_beyond_a_bound_is_half_of_both_tails() {
        // Half of both tails of Student's distribution.
        let (mean, error) = (-0.02, 0.01);
        assert_eq!(beyond(mean, error, 5, 0.05), student(3.0, 4) / 2.0);
        assert_eq!(beyond(0.02, error, 5, 0.05), student(3.0, 4) / 2.0);
        assert_eq!(beyond(0.05, error, 5, 0.05), 0.5);
        assert_eq!(beyond(0.06, error, 5, 0.05), 1.0);
        for count in [0, 1] {
            assert_eq!(beyond(0.0, error, count, 0.05), 1.0);
        }
        // Without any error, the difference is certainly within the bound or certainly not.
        assert_eq!(beyond(0.06, 0.0, 5, 0.05), 1.0);
        assert_eq!(beyond(0.05, 0.0, 5, 0.05), 0.0);
    }

    #[test]
    fn the_chance_of_a_share_is_that_of_its_deviation() {
        // 60 of 100 are two standard deviations of 0.05 above one half.
        assert!((of_share(60, 100, 0.5) - 0.045_500).abs() < 1e-6);
        assert!((of_share(40, 100, 0.5) - 0.045_500).abs() < 1e-6);
        // 20 of 100 where 0.1 is wanted: 0.1 / 0.03 standard deviations.
        assert!((of_share(20, 100, 0.1) - normal(10.0 / 3.0)).abs() < 1e-12);
        assert!(of_share(5, 10, 0.5) > 1.0 - 1e-7);
        assert_eq!((of_share(0, 3, 0.0), of_share(1, 3, 0.0)), (1.0, 0.0));
    }

    #[test]
    fn runs_to_decide_is_none_above_a_hundred_times_as_many() {
        let chance = |share: f64| normal(distance(LEVEL) * share);
        let needed = runs_to_decide(7, chance(0.1005), chance(0.1005)).unwrap();
        assert_eq!(needed, (7.0 / 0.1005_f64.powi(2)).ceil() as usize);
        assert_eq!(runs_to_decide(7, chance(0.0999), chance(0.0999)), None);
    }
}
