//! Groups of bars, each with its name and value along it.

use std::fmt::Write as _;

use super::{
    Axis, BOTTOM, CHARACTER, COLOURS, HEIGHT, LEFT, Plot, RIGHT, TOP, WIDTH, error_bar, escape,
    open, vertical_axis,
};
use crate::table::short;

/// Narrower bars have no text along them.
const MIN_WIDTH_FOR_TEXT: f64 = 10.0;

/// Bars of one colour: one per group.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Bars {
    pub(in super::super) name: String,
    pub(in super::super) series: usize,
    /// Height and half the confidence interval.
    pub(in super::super) values: Vec<Option<(f64, f64)>>,
    /// What was published, in the same units.
    pub(in super::super) published: Vec<Option<f64>>,
}

/// Groups of bars.
pub(in super::super) fn bars(plot: &Plot, groups: &[String], bars: &[Bars]) -> String {
    let tops = bars.iter().flat_map(|bars| {
        let values = bars.values.iter().flatten();
        let tops = values.map(|(value, half)| value + half);
        tops.chain(bars.published.iter().flatten().copied())
    });
    let y = Axis::new(tops, (HEIGHT - BOTTOM, TOP)).including_zero();
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
            bar(
                &mut svg,
                &y,
                bars,
                group,
                (first + width * index as f64, width),
            );
        }
        group_label(&mut svg, name, centre, group_width);
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, y: &Axis, bars: &Bars, group: usize, (x, width): (f64, f64)) {
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
    let centre = x + width / 2.0;
    let upper = error_bar(svg, y, centre, (value, half));
    if let Some(published) = bars.published.get(group).copied().flatten() {
        super::published(svg, (centre, y.at(published)), published);
    }
    if width >= MIN_WIDTH_FOR_TEXT {
        // Inside if there is room below the confidence interval, otherwise above it.
        let length = label.chars().count() as f64 * CHARACTER + 6.0;
        let lower = y.at(value - half).min(bottom);
        let (class, from) = if bottom - lower > length {
            ("inside", bottom - 4.0)
        } else {
            ("above", (upper - 7.0).max(TOP + length))
        };
        let _ = writeln!(
            svg,
            "<text class=\"{class}\" transform=\"translate({:.1} {from:.1}) rotate(-90)\">{}</text>",
            centre + 3.5,
            escape(&label)
        );
    }
}

/// A group's name under its bars, on two lines if it is long.
fn group_label(svg: &mut String, name: &str, centre: f64, width: f64) {
    let fits = (width / CHARACTER) as usize;
    let middle = name.len() / 2;
    let breaks = name
        .match_indices(['-', ' ', ';', '=', '_'])
        .map(|(index, _)| index + 1);
    let split = breaks.min_by_key(|index| index.abs_diff(middle));
    let parts = match split {
        Some(split) if name.chars().count() > fits => vec![&name[..split], &name[split..]],
        _ => vec![name],
    };
    for (line, part) in parts.into_iter().enumerate() {
        let y = HEIGHT - BOTTOM + 14.0 + 12.0 * line as f64;
        let _ = writeln!(
            svg,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{centre:.1}\" y=\"{y:.1}\">{}</text>",
            escape(part)
        );
    }
}
