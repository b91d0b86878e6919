//! [`Axis`]: converts values to positions.

use std::fmt::Write as _;

/// The least ratio of the largest to the smallest value of a logarithmic axis. The chart must allow
/// a logarithmic axis.
const LOGARITHMIC_FROM: f64 = 20.0;

/// An axis of a chart, which converts values to positions.
pub(super) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    pub(super) fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let bounds = values.filter(|value| value.is_finite());
        let (low, high) = bounds.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let high = if high > low {
            high
        } else {
            low + low.abs().max(1.0) * 0.1
        };
        Self {
            low,
            high,
            logarithmic: false,
            from,
            to,
        }
    }

    /// The position of the beginning and the end of the axis, the values at both positions, and
    /// whether the axis is logarithmic (0 or 1).
    pub(super) fn scale(&self) -> String {
        let (from, to, low, high) = (self.from, self.to, self.low, self.high);
        format!(
            "{from:.1} {to:.1} {low} {high} {}",
            u8::from(self.logarithmic)
        )
    }

    /// Extends a linear axis to zero.
    pub(super) fn including_zero(mut self) -> Self {
        if self.logarithmic {
            return self;
        }
        self.low = self.low.min(0.0);
        self.high += (self.high - self.low) * 0.05;
        self
    }

    pub(super) fn or_logarithmic(mut self, allowed: bool) -> Self {
        self.logarithmic = allowed && self.low > 0.0 && self.high / self.low >= LOGARITHMIC_FROM;
        self
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share
    }

    /// The position of the middle of the axis.
    pub(super) fn middle(&self) -> f64 {
        (self.from + self.to) / 2.0
    }

    /// About five round values for the ticks of the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let values = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(decade)));
            let inside = |value: &f64| (self.low * 0.999..=self.high * 1.001).contains(value);
            return values.filter(inside).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power);
        let step = step
            .into_iter()
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(rough);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// A grid line from the top to `bottom`, with its value below the line.
pub(super) fn vertical_line(svg: &mut String, x: f64, bottom: f64, tick: f64) {
    let _ = writeln!(
        svg,
        "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom:.1}\"/>\
         <text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
        bottom + 12.0,
        tick_label(tick)
    );
}

pub(super) fn tick_label(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    match rounded.abs() {
        1e9.. => format!("{}G", rounded / 1e9),
        1e6.. => format!("{}M", rounded / 1e6),
        1e4.. => format!("{}k", rounded / 1e3),
        _ => rounded.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_ticks() {
        let axis = |low: f64, high: f64| Axis::new([low, high].into_iter(), 0.0, 100.0);
        assert_eq!(axis(0.0, 10.0).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(axis(0.0, 1.1).ticks(), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(axis(-1.0, 1.0).ticks().len(), 5);
        assert_eq!(axis(3.0, 3.0).ticks().first(), Some(&3.0));
        let wide = axis(1.0, 100.0).or_logarithmic(true);
        assert_eq!(wide.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!((wide.at(10.0) - 50.0).abs() < 1e-9);
        for (low, high) in [(0.0, 0.037), (12.0, 13.0), (0.0, 5e9), (f64::NAN, 1.0)] {
            let ticks = axis(low, high).ticks().len();
            assert!((2..=11).contains(&ticks), "{low} {high} {ticks}");
        }
    }
}
