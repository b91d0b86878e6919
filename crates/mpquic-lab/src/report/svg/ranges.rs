//! Draws ratios with their intervals in rows, on an axis around 1.

use std::fmt::Write as _;

use super::axis::vertical_line;
use super::plot::{CHARACTER, WIDTH, escape};

/// The height of a row.
const ROW: f64 = 18.0;
/// The height of the axis below the last row.
const FOOT: f64 = 30.0;
/// The width of the margin to the right of the axis.
const MARGIN: f64 = 14.0;
/// The largest width for names.
const MAX_NAME: f64 = 240.0;
/// The axis reaches at least to this ratio, and to its inverse.
const LEAST: f64 = 1.02;

/// A ratio with its interval.
pub(in super::super) struct Range {
    pub(in super::super) name: String,
    pub(in super::super) ratio: f64,
    /// The interval of the ratio. A single run has no bounds.
    pub(in super::super) interval: (f64, f64),
    /// The CSS class with the colour of the row.
    pub(in super::super) class: &'static str,
}

/// Draws one row per ratio on a logarithmic axis with 1 in the middle.
pub(in super::super) fn ranges(title: &str, label: &str, ranges: &[Range]) -> String {
    let title = escape(title);
    let height = ROW * ranges.len() as f64 + FOOT;
    let longest = ranges.iter().map(|range| range.name.chars().count()).max();
    let left = (longest.unwrap_or(0) as f64 * CHARACTER + 8.0).min(MAX_NAME);
    let ends = ranges.iter().flat_map(|range| {
        let (low, high) = range.interval;
        [range.ratio, low, high]
    });
    let far = ends.filter(|end| end.is_finite() && *end > 0.0);
    let far = far.fold(LEAST.ln(), |far, end| far.max(end.ln().abs())) * 1.05;
    let (middle, half) = ((left + WIDTH - MARGIN) / 2.0, (WIDTH - MARGIN - left) / 2.0);
    let at = |ratio: f64| middle + half * (ratio.ln() / far).clamp(-1.0, 1.0);
    let bottom = height - FOOT;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>\n"
    );
    for tick in ticks(far) {
        let x = at(tick);
        vertical_line(&mut svg, x, bottom, tick);
    }
    for (index, range) in ranges.iter().enumerate() {
        let y = ROW * (index as f64 + 0.5);
        let (low, high) = (at(range.interval.0), at(range.interval.1));
        let fits = ((left - 8.0) / CHARACTER) as usize;
        let name: String = range.name.chars().take(fits).collect();
        let _ = writeln!(
            svg,
            "<text text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <g class=\"{}\"><path class=\"error\" d=\"M{low:.1} {y:.1}H{high:.1}\"/>\
             <circle class=\"point\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\">\
             <title>{} {:.3} [{:.3}, {:.3}]</title></circle></g>",
            left - 6.0,
            y + 3.5,
            escape(&name),
            range.class,
            at(range.ratio),
            escape(&range.name),
            range.ratio,
            range.interval.0,
            range.interval.1
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"label\" text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
        height - 4.0,
        escape(label)
    );
    svg + "</svg>\n"
}

/// Round ratios on both sides of 1. `far` is the logarithm of the largest ratio on the axis.
fn ticks(far: f64) -> Vec<f64> {
    let steps: &[f64] = match far.exp() {
        ..1.03 => &[0.98, 0.99, 1.0, 1.01, 1.02],
        ..1.15 => &[0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1],
        ..1.7 => &[0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4],
        ..6.0 => &[0.2, 0.5, 1.0, 2.0, 5.0],
        ..12.0 => &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0],
        _ => &[0.01, 0.1, 1.0, 10.0, 100.0],
    };
    let inside = |tick: &f64| tick.ln().abs() <= far;
    steps.iter().copied().filter(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_ticks_on_both_sides_of_one() {
        for far in [1.02_f64, 1.05, 1.2, 1.6, 2.5, 8.0, 200.0] {
            let ticks = ticks(far.ln() * 1.05);
            assert!(ticks.first() < Some(&1.0), "{far} {ticks:?}");
            assert!(
                ticks.last() > Some(&1.0) && ticks.len() <= 7,
                "{far} {ticks:?}"
            );
        }
    }
}
