//! Draws groups of bars. The name and the value of a bar stand along the bar.

use std::fmt::Write as _;

use super::axis::Axis;
use super::plot::{
    BOTTOM, CHARACTER, COLOURS, HEIGHT, LEFT, Plot, RIGHT, TOP, WIDTH, error_bar, escape,
    mark_published, open, vertical_axis,
};
use crate::numbers::short;

/// Bars narrower than this have no text along them.
const MIN_WIDTH_FOR_TEXT: f64 = 12.0;
/// The most lines for the name of a group.
const MAX_LINES: usize = 3;

/// The bars of one series: one bar per group, all of the same colour.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Bars {
    pub(in super::super) name: String,
    pub(in super::super) series: usize,
    /// The height of each bar, and half of its confidence interval.
    pub(in super::super) values: Vec<Option<(f64, f64)>>,
    /// The published value for each bar, in the unit of the bars.
    pub(in super::super) published: Vec<Option<f64>>,
    /// Single runs, drawn as dots.
    pub(in super::super) runs: Vec<Vec<f64>>,
}

/// Draws groups of bars.
pub(in super::super) fn bars(plot: &Plot, groups: &[String], bars: &[Bars]) -> String {
    let tops = bars.iter().flat_map(|bars| {
        let values = bars.values.iter().flatten();
        let tops = values.map(|(value, half)| value + half);
        let others = bars.published.iter().flatten();
        tops.chain(others.chain(bars.runs.iter().flatten()).copied())
    });
    let y = Axis::new(tops, HEIGHT - BOTTOM, TOP).including_zero();
    let mut svg = open(plot);
    vertical_axis(&mut svg, &y, &plot.y, WIDTH - RIGHT);
    let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    for (group, name) in groups.iter().enumerate() {
        let there = |bars: &&Bars| bars.values.get(group).is_some_and(Option::is_some);
        let bars: Vec<_> = bars.iter().filter(there).collect();
        let width = (group_width * 0.86 / bars.len().max(1) as f64).min(40.0);
        let centre = LEFT + group_width * (group as f64 + 0.5);
        let first = centre - width * bars.len() as f64 / 2.0;
        for (index, bars) in bars.into_iter().enumerate() {
            plot.begin(&mut svg, bars.series);
            bar(
                &mut svg,
                &y,
                bars,
                group,
                first + width * index as f64,
                width,
            );
            plot.end(&mut svg);
        }
        group_label(&mut svg, name, centre, group_width);
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, y: &Axis, bars: &Bars, group: usize, x: f64, width: f64) {
    let Some((value, half)) = bars.values.get(group).copied().flatten() else {
        return;
    };
    let (top, bottom) = (y.at(value), HEIGHT - BOTTOM);
    let colour = bars.series % COLOURS;
    let label = format!("{} {}", bars.name, short(value));
    let _ = writeln!(
        svg,
        "<rect class=\"c{colour}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
         <title>{} ± {}</title></rect>",
        x + 0.5,
        (width - 1.0).max(1.0),
        (bottom - top).max(0.0),
        escape(&label),
        short(half)
    );
    error_bar(svg, y, x + width * 0.78, value, half, "");
    for run in bars.runs.get(group).into_iter().flatten() {
        let (x, y) = (x + width * 0.6, y.at(*run));
        let _ = writeln!(
            svg,
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.8\">\
             <title>a run: {}</title></circle>",
            short(*run)
        );
    }
    if let Some(published) = bars.published.get(group).copied().flatten() {
        mark_published(svg, (x + width / 2.0, y.at(published)), published);
    }
    if width >= MIN_WIDTH_FOR_TEXT {
        // A short text fits inside of the bar; a longer text stands above the bar.
        let length = label.chars().count() as f64 * CHARACTER + 6.0;
        let (class, from) = if bottom - top > length {
            ("inside", bottom - 4.0)
        } else {
            ("above", (top - 4.0).max(TOP + length))
        };
        let _ = writeln!(
            svg,
            "<text class=\"{class}\" transform=\"translate({:.1} {from:.1}) rotate(-90)\">{}</text>",
            x + width * 0.36 + 3.5,
            escape(&label)
        );
    }
}

/// Writes the name of a group below its bars, a long name on several lines.
fn group_label(svg: &mut String, name: &str, centre: f64, width: f64) {
    for (line, part) in wrapped(name, (width / CHARACTER) as usize)
        .iter()
        .enumerate()
    {
        let y = HEIGHT - BOTTOM + 14.0 + 12.0 * line as f64;
        let _ = writeln!(
            svg,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{centre:.1}\" y=\"{y:.1}\">{}</text>",
            escape(part)
        );
    }
}

/// Breaks a name after punctuation into lines of at most `fits` characters. Cuts off a longer line,
/// and drops the lines beyond `MAX_LINES`.
fn wrapped(name: &str, fits: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for part in name.split_inclusive(['-', ' ', ';', '=', '_', '.']) {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + part.trim_end().chars().count() > fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(part);
        }
    }
    lines.truncate(MAX_LINES);
    for line in &mut lines {
        if line.trim_end().chars().count() > fits.max(2) {
            *line = line.chars().take(fits.max(2) - 1).chain(['…']).collect();
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups_stay_below_their_bars() {
        let lines = wrapped("etc-s-hhll workload.handshake_path=hh", 19);
        assert_eq!(lines, ["etc-s-hhll ", "workload.handshake_", "path=hh"]);
        assert_eq!(wrapped("a;b", 10), ["a;b"]);
        for fits in 1..30 {
            let lines = wrapped("a long name-with parts;and=values_of.many kinds", fits);
            let longest = lines
                .iter()
                .map(|line| line.trim_end().chars().count())
                .max();
            assert!(
                longest <= Some(fits.max(2)) && lines.len() <= MAX_LINES,
                "{fits} {lines:?}"
            );
        }
    }
}
