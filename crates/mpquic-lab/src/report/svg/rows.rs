//! Draws many bars in rows, each with its name and value.

use std::fmt::Write as _;

use super::axis::{Axis, vertical_line};
use super::bars::Bars;
use super::plot::{CHARACTER, COLOURS, Plot, WIDTH, escape, mark_published};
use crate::numbers::short;

/// The height of a row.
const ROW: f64 = 15.0;
/// The height of the axis below the last row.
const FOOT: f64 = 30.0;
/// The width of the margin on the right, for values.
const MARGIN: f64 = 50.0;

/// Draws one row for each bar of a group.
pub(in super::super) fn rows(plot: &Plot, bars: &[Bars], group: usize) -> String {
    let there = |bars: &&Bars| bars.values.get(group).is_some_and(Option::is_some);
    let bars: Vec<_> = bars.iter().filter(there).collect();
    let height = ROW * bars.len() as f64 + FOOT;
    let longest = bars.iter().map(|bars| bars.name.chars().count()).max();
    let left = longest.unwrap_or(0) as f64 * CHARACTER + 8.0;
    let ends = bars.iter().flat_map(|bars| {
        let value = bars.values[group].map(|(value, half)| value + half);
        [value, bars.published.get(group).copied().flatten()]
    });
    let axis = Axis::new(ends.flatten(), left, WIDTH - MARGIN).including_zero();
    let title = escape(&plot.title);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>\n"
    );
    let bottom = height - FOOT;
    for tick in axis.ticks() {
        let x = axis.at(tick);
        vertical_line(&mut svg, x, bottom, tick);
    }
    for (index, bars) in bars.iter().enumerate() {
        plot.begin(&mut svg, bars.series);
        row(&mut svg, &axis, bars, group, ROW * index as f64);
        plot.end(&mut svg);
    }
    let _ = writeln!(
        svg,
        "<text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        axis.middle(),
        height - 4.0,
        escape(&plot.y)
    );
    svg + "</svg>\n"
}

fn row(svg: &mut String, axis: &Axis, bars: &Bars, group: usize, y: f64) {
    let Some((value, half)) = bars.values[group] else {
        return;
    };
    let (from, to) = (axis.at(0.0), axis.at(value));
    let (low, high) = (axis.at((value - half).max(0.0)), axis.at(value + half));
    let (name, middle, text) = (escape(&bars.name), y + ROW / 2.0, y + ROW / 2.0 + 3.5);
    let path = format!("M{low:.1} {middle:.1}H{high:.1}");
    let _ = writeln!(
        svg,
        "<text text-anchor=\"end\" x=\"{:.1}\" y=\"{text:.1}\">{name}</text>\
         <rect class=\"c{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
         <title>{name} {} ± {}</title></rect>\
         <path class=\"halo\" d=\"{path}\"/><path class=\"error\" d=\"{path}\"/>\
         <text x=\"{:.1}\" y=\"{text:.1}\">{}</text>",
        from - 6.0,
        bars.series % COLOURS,
        y + 1.5,
        (to - from).max(1.0),
        ROW - 3.0,
        short(value),
        short(half),
        high.max(to) + 5.0,
        short(value)
    );
    if let Some(published) = bars.published.get(group).copied().flatten() {
        mark_published(svg, (axis.at(published), middle), published);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_a_row_of_its_own_with_name_and_value() {
        let bars: Vec<_> = (0..32)
            .map(|series| Bars {
                name: format!("scheduler-{series}"),
                series,
                values: vec![
                    None,
                    (series != 7).then_some((f64::from(series as u8), 1.0)),
                ],
                ..Bars::default()
            })
            .collect();
        let svg = rows(&Plot::default(), &bars, 1);
        assert_eq!(svg.matches("<rect ").count(), 31);
        assert!(!svg.contains("scheduler-7<"));
        assert!(
            svg.contains(">scheduler-31</text>") && svg.contains(">31.00</text>"),
            "{svg}"
        );
        // The rows are below each other and inside of the chart.
        let rows = svg.split("<rect ").skip(1);
        let heights: Vec<f64> = rows
            .map(|row| {
                row.split_once(" y=\"")
                    .unwrap()
                    .1
                    .split('"')
                    .next()
                    .unwrap()
            })
            .map(|y| y.parse().unwrap())
            .collect();
        assert!(
            heights
                .windows(2)
                .all(|pair| (pair[1] - pair[0] - ROW).abs() < 0.2)
        );
        assert!(svg.contains(&format!("0 0 {WIDTH} {}", ROW * 31.0 + FOOT)));
    }
}
