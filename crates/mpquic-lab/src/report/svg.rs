//! Charts as inline SVG: lines over an axis, and grouped bars.

use std::fmt::Write as _;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;
/// Values further apart than this are drawn on a logarithmic axis if the chart allows it.
const LOGARITHMIC_FROM: f64 = 20.0;

/// Colours there are; further series start over, dashed.
pub(super) const COLOURS: usize = 8;

/// What a chart shows on its axes.
#[derive(Debug, Clone, Default)]
pub(super) struct Plot {
    /// What it shows, for those who cannot see it.
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    /// The horizontal axis may be logarithmic.
    pub(super) logarithmic: bool,
    /// Steps instead of straight lines.
    pub(super) steps: bool,
    /// The vertical axis need not start at zero.
    pub(super) floating: bool,
}

/// A line.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
    /// Half the confidence interval of each point, or nothing.
    pub(super) errors: Vec<f64>,
}

/// Bars of one colour: one per group.
#[derive(Debug, Clone, Default)]
pub(super) struct Bars {
    pub(super) name: String,
    pub(super) colour: usize,
    /// Height and half the confidence interval.
    pub(super) values: Vec<Option<(f64, f64)>>,
    /// What was published, in the same units.
    pub(super) published: Vec<Option<f64>>,
}

/// Text that HTML shows as it is.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// An axis: from values to positions.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
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

    fn including_zero(mut self) -> Self {
        self.low = self.low.min(0.0);
        self.high += (self.high - self.low) * 0.05;
        self
    }

    fn or_logarithmic(mut self, allowed: bool) -> Self {
        self.logarithmic = allowed && self.low > 0.0 && self.high / self.low >= LOGARITHMIC_FROM;
        self
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share
    }

    /// About five round values.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let values = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|n| n * 10f64.powi(decade)));
            let inside = |value: &f64| (self.low * 0.999..=self.high * 1.001).contains(value);
            return values.filter(inside).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
        let step = step
            .into_iter()
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(rough);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

fn tick_label(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    match rounded.abs() {
        1e9.. => format!("{}G", rounded / 1e9),
        1e6.. => format!("{}M", rounded / 1e6),
        1e4.. => format!("{}k", rounded / 1e3),
        _ => rounded.to_string(),
    }
}

fn open(plot: &Plot) -> String {
    let title = escape(&plot.title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>\n"
    )
}

fn vertical_axis(svg: &mut String, axis: &Axis, label: &str) {
    for tick in axis.ticks() {
        let y = axis.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            y + 3.5,
            tick_label(tick)
        );
    }
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        svg,
        "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(12 {middle:.1}) \
         rotate(-90)\">{}</text>",
        escape(label)
    );
}

fn horizontal_axis(svg: &mut String, axis: &Axis, label: &str) {
    let bottom = HEIGHT - BOTTOM;
    for tick in axis.ticks() {
        let x = axis.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 4.0,
            bottom + 15.0,
            tick_label(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"label\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        escape(label)
    );
}

fn error_bar(svg: &mut String, axis: &Axis, x: f64, (value, half): (f64, f64)) {
    if half > 0.0 {
        let (low, high) = (axis.at((value - half).max(axis.low)), axis.at(value + half));
        let high = high.max(TOP);
        let (left, right) = (x - 3.0, x + 3.0);
        let _ = writeln!(
            svg,
            "<path class=\"error\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}\
             M{left:.1} {high:.1}H{right:.1}\"/>"
        );
    }
}

/// Lines over a common axis.
pub(super) fn lines(plot: &Plot, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::new(points().map(|point| point.0), (LEFT, WIDTH - RIGHT))
        .or_logarithmic(plot.logarithmic);
    let tops = lines.iter().flat_map(|line| {
        let errors = line.errors.iter().copied().chain(std::iter::repeat(0.0));
        line.points
            .iter()
            .zip(errors)
            .map(|(point, error)| point.1 + error)
    });
    let mut y = Axis::new(
        tops.chain(points().map(|point| point.1)),
        (HEIGHT - BOTTOM, TOP),
    );
    if !plot.floating {
        y = y.including_zero();
    }
    let mut svg = open(plot);
    vertical_axis(&mut svg, &y, &plot.y);
    horizontal_axis(&mut svg, &x, &plot.x);
    for line in lines {
        let mut path = String::new();
        for (index, (px, py)) in line.points.iter().enumerate() {
            let (px, py) = (x.at(*px), y.at(*py));
            let _ = match (index, plot.steps) {
                (0, _) => write!(path, "M{px:.1} {py:.1}"),
                (_, true) => write!(path, "H{px:.1}V{py:.1}"),
                (_, false) => write!(path, "L{px:.1} {py:.1}"),
            };
        }
        let dashed = if line.dashed || line.colour >= COLOURS {
            " dashed"
        } else {
            ""
        };
        let _ = writeln!(
            svg,
            "<path class=\"line c{}{dashed}\" d=\"{path}\"><title>{}</title></path>",
            line.colour % COLOURS,
            escape(&line.name)
        );
        for (point, half) in line.points.iter().zip(&line.errors) {
            error_bar(&mut svg, &y, x.at(point.0), (point.1, *half));
        }
    }
    svg + "</svg>\n"
}

/// Groups of bars.
pub(super) fn bars(plot: &Plot, groups: &[String], bars: &[Bars]) -> String {
    let tops = bars.iter().flat_map(|bars| {
        let values = bars
            .values
            .iter()
            .flatten()
            .map(|(value, half)| value + half);
        values.chain(bars.published.iter().flatten().copied())
    });
    let y = Axis::new(tops, (HEIGHT - BOTTOM, TOP)).including_zero();
    let mut svg = open(plot);
    vertical_axis(&mut svg, &y, &plot.y);
    let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let width = (group_width * 0.8 / bars.len().max(1) as f64).min(40.0);
    for (group, name) in groups.iter().enumerate() {
        let centre = LEFT + group_width * (group as f64 + 0.5);
        let first = centre - width * bars.len() as f64 / 2.0;
        for (index, bars) in bars.iter().enumerate() {
            let x = first + width * index as f64;
            bar(&mut svg, &y, bars, group, (x, width));
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
    let _ = writeln!(
        svg,
        "<rect class=\"c{}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
         <title>{}: {}</title></rect>",
        bars.colour % COLOURS,
        x + 0.5,
        (width - 1.0).max(1.0),
        (bottom - top).max(0.0),
        escape(&bars.name),
        crate::table::short(value)
    );
    let centre = x + width / 2.0;
    error_bar(svg, y, centre, (value, half));
    if let Some(published) = bars.published.get(group).copied().flatten() {
        let _ = writeln!(
            svg,
            "<path class=\"published\" d=\"M{centre:.1} {:.1}l5 5l-5 5l-5 -5z\">\
             <title>published: {}</title></path>",
            y.at(published) - 5.0,
            crate::table::short(published)
        );
    }
}

/// A group's name under its bars, on two lines if it is long.
fn group_label(svg: &mut String, name: &str, centre: f64, width: f64) {
    let fits = (width / 5.5) as usize;
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
        let y = HEIGHT - BOTTOM + 14.0 + 11.0 * line as f64;
        let _ = writeln!(
            svg,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{centre:.1}\" y=\"{y:.1}\">{}</text>",
            escape(part)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_ticks() {
        let axis = |low: f64, high: f64| Axis::new([low, high].into_iter(), (0.0, 100.0));
        assert_eq!(axis(0.0, 10.0).ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
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
}
