//! Draws lines over a common axis, with the name of each line at its end.

use std::fmt::Write as _;

use super::axis::Axis;
use super::plot::{
    BOTTOM, CHARACTER, HEIGHT, LEFT, Plot, RIGHT, TOP, WIDTH, classes, error_bar, escape,
    horizontal_axis, mark_published, open_over, vertical_axis,
};

/// The least vertical distance between names at the ends of lines.
const SPACING: f64 = 11.0;
/// The most lines with names at their ends; in a fuller chart, only the legend names the lines.
const MAX_NAMES: usize = 16;
/// The most characters of a line's name.
const MAX_NAME: usize = 20;

/// A line of a chart.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Line {
    pub(in super::super) name: String,
    /// The index of the line's colour and pattern.
    pub(in super::super) series: usize,
    /// True for a thin line, which is not the main subject of the chart.
    pub(in super::super) thin: bool,
    pub(in super::super) points: Vec<(f64, f64)>,
    /// Half of the confidence interval of each point; empty without intervals.
    pub(in super::super) errors: Vec<f64>,
    /// The published points, in the same units.
    pub(in super::super) published: Vec<(f64, f64)>,
}

impl Line {
    /// The upper ends of the confidence intervals of all points.
    fn tops(&self) -> impl Iterator<Item = f64> {
        let errors = self.errors.iter().copied().chain(std::iter::repeat(0.0));
        let points = self.points.iter().zip(errors);
        points.map(|(point, error)| point.1 + error)
    }
}

/// Draws lines over a common axis.
pub(in super::super) fn lines(plot: &Plot, lines: &[Line]) -> String {
    // All lines of a distribution end at the top, and names at their ends would overlap.
    let named = !plot.steps && lines.len() <= MAX_NAMES;
    let right = WIDTH - if named { name_width(lines) } else { RIGHT };
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::new(points().map(|point| point.0), LEFT, right).or_logarithmic(plot.logarithmic);
    let bounds = lines.iter().flat_map(Line::tops);
    let published = lines.iter().flat_map(|line| &line.published);
    let bounds = bounds.chain(points().chain(published).map(|point| point.1));
    let y = Axis::new(bounds, HEIGHT - BOTTOM, TOP).or_logarithmic(plot.logarithmic);
    let y = y.including_zero();
    let mut svg = open_over(plot, &x, &y);
    vertical_axis(&mut svg, &y, &plot.y, right);
    horizontal_axis(&mut svg, &x, &plot.x);
    for line in lines {
        plot.begin(&mut svg, line.series);
        let mut path = String::new();
        for (index, (px, py)) in line.points.iter().enumerate() {
            let (px, py) = (x.at(*px), y.at(*py));
            let _ = match (index, plot.steps) {
                (0, _) => write!(path, "M{px:.1} {py:.1}"),
                (_, true) => write!(path, "H{px:.1}V{py:.1}"),
                (_, false) => write!(path, "L{px:.1} {py:.1}"),
            };
        }
        if plot.steps && !path.is_empty() {
            let _ = write!(path, "H{right:.1}");
        }
        let thin = if line.thin { " thin" } else { "" };
        let _ = writeln!(
            svg,
            "<path class=\"line {}{thin}\" d=\"{path}\"><title>{}</title></path>",
            classes(line.series),
            escape(&line.name)
        );
        for (point, half) in line.points.iter().zip(&line.errors) {
            error_bar(
                &mut svg,
                &y,
                x.at(point.0),
                point.1,
                *half,
                &classes(line.series),
            );
        }
        for (px, py) in &line.published {
            mark_published(&mut svg, (x.at(*px), y.at(*py)), *py);
        }
        plot.end(&mut svg);
    }
    if named {
        names(&mut svg, lines, &x, &y, plot);
    }
    svg + "</svg>\n"
}

/// The width of the longest name of a line.
pub(super) fn name_width(lines: &[Line]) -> f64 {
    let longest = lines
        .iter()
        .map(|line| shortened(&line.name).chars().count())
        .max();
    longest.unwrap_or(0) as f64 * CHARACTER + 12.0
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= MAX_NAME {
        return name.into();
    }
    name.chars().take(MAX_NAME - 1).chain(['…']).collect()
}

/// Writes the name of each line at its end. Overlapping names are moved up or down.
pub(super) fn names(svg: &mut String, lines: &[Line], x: &Axis, y: &Axis, plot: &Plot) {
    let ends = lines.iter().filter_map(|line| {
        let (px, py) = line.points.last()?;
        Some((line, x.at(*px), y.at(*py)))
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by(|(_, _, a), (_, _, b)| a.total_cmp(b));
    let mut heights: Vec<f64> = ends.iter().map(|(_, _, height)| *height).collect();
    let mut lowest = TOP - SPACING;
    for height in &mut heights {
        *height = height.max(lowest + SPACING);
        lowest = *height;
    }
    let mut highest = HEIGHT - BOTTOM + SPACING;
    for height in heights.iter_mut().rev() {
        *height = height.min(highest - SPACING);
        highest = *height;
    }
    let right = ends.iter().map(|(_, end, _)| *end).fold(LEFT, f64::max);
    for ((line, end, from), height) in ends.into_iter().zip(heights) {
        plot.begin(svg, line.series);
        let _ = writeln!(
            svg,
            "<path class=\"leader {0}\" d=\"M{end:.1} {from:.1}L{1:.1} {height:.1}\"/>\
             <text class=\"name {0}\" x=\"{2:.1}\" y=\"{3:.1}\">{4}</text>",
            classes(line.series),
            right + 5.0,
            right + 7.0,
            height + 3.5,
            escape(&shortened(&line.name))
        );
        plot.end(svg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out() {
        let line = Line {
            name: "<script>\"&".into(),
            points: vec![(0.0, 1.0), (1.0, 2.0)],
            ..Line::default()
        };
        let svg = lines(&Plot::default(), &[line]);
        assert!(
            svg.contains("&lt;script&gt;&quot;&amp;") && !svg.contains("<script"),
            "{svg}"
        );
    }

    #[test]
    fn names_of_lines_that_end_together_do_not_overlap() {
        let line = |series| Line {
            name: format!("line {series}"),
            series,
            points: vec![(0.0, 0.0), (1.0, if series < 5 { 0.0 } else { 1.0 })],
            ..Line::default()
        };
        let svg = lines(&Plot::default(), &(0..10).map(line).collect::<Vec<_>>());
        let names = svg.split("<text class=\"name").skip(1);
        let height = |name: &str| -> f64 {
            let (_, rest) = name.split_once(" y=\"").unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let mut heights: Vec<f64> = names.map(height).collect();
        heights.sort_by(f64::total_cmp);
        assert_eq!(heights.len(), 10);
        assert!(
            heights
                .windows(2)
                .all(|pair| pair[1] - pair[0] > SPACING - 0.2),
            "{heights:?}"
        );
        assert!(
            heights[0] >= TOP && heights[9] <= HEIGHT - BOTTOM + 4.0,
            "{heights:?}"
        );
    }
}
