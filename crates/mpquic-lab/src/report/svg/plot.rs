//! The parts that all kinds of charts share: the frame, the axes and marks.

use std::fmt::Write as _;

use super::axis::{Axis, tick_label};
use crate::numbers::short;

pub(super) const WIDTH: f64 = 520.0;
pub(super) const HEIGHT: f64 = 260.0;
pub(super) const LEFT: f64 = 58.0;
pub(super) const RIGHT: f64 = 12.0;
pub(super) const TOP: f64 = 10.0;
pub(super) const BOTTOM: f64 = 42.0;
/// The approximate width of a character in a small label.
pub(super) const CHARACTER: f64 = 6.5;

/// The number of colours for series.
pub(in super::super) const COLOURS: usize = 8;
/// The number of dash patterns for lines.
const DASHES: usize = 4;

/// The title and the axes of a chart.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Plot {
    /// The title of the chart, for screen readers.
    pub(in super::super) title: String,
    pub(in super::super) x: String,
    pub(in super::super) y: String,
    /// True if the horizontal axis may be logarithmic.
    pub(in super::super) logarithmic: bool,
    /// True if lines consist of steps instead of straight lines.
    pub(in super::super) steps: bool,
    /// True if the series are contenders: the page's script can hide contenders.
    pub(in super::super) contenders: bool,
}

impl Plot {
    /// Begins the group of SVG elements of a contender, which the page's script can hide.
    pub(super) fn begin(&self, svg: &mut String, series: usize) {
        if self.contenders {
            let _ = writeln!(svg, "<g data-s=\"{series}\">");
        }
    }

    /// Ends the group of SVG elements of a contender.
    pub(super) fn end(&self, svg: &mut String) {
        if self.contenders {
            svg.push_str("</g>\n");
        }
    }
}

/// Escapes a text for HTML.
pub(in super::super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The CSS classes of a series: a colour and, for lines, a dash pattern. The first 32
/// series have different combinations.
pub(super) fn classes(series: usize) -> String {
    let again = series / COLOURS;
    let dash = (series + again) % DASHES;
    format!("c{} d{dash}", series % COLOURS)
}

/// A short line in the style of a series, for legends.
pub(in super::super) fn swatch(series: usize) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 30 10\" aria-hidden=\"true\">\
         <path class=\"line {}\" d=\"M0 5H30\"/></svg>",
        classes(series)
    )
}

pub(super) fn open(plot: &Plot) -> String {
    open_with(plot, "")
}

/// Opens a chart in which the page's script shows the values under the pointer.
pub(super) fn open_over(plot: &Plot, x: &Axis, y: &Axis) -> String {
    let scales = format!(" data-x=\"{}\" data-y=\"{}\"", x.scale(), y.scale());
    open_with(plot, &scales)
}

fn open_with(plot: &Plot, more: &str) -> String {
    let title = escape(&plot.title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\"{more}>\
         <title>{title}</title>\n"
    )
}

pub(super) fn vertical_axis(svg: &mut String, axis: &Axis, label: &str, right: f64) {
    for tick in axis.ticks() {
        let y = axis.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
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

pub(super) fn horizontal_axis(svg: &mut String, axis: &Axis, label: &str) {
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
        axis.middle(),
        HEIGHT - 8.0,
        escape(label)
    );
}

/// Marks a published value by a diamond.
pub(super) fn mark_published(svg: &mut String, (x, y): (f64, f64), value: f64) {
    let _ = writeln!(
        svg,
        "<path class=\"published\" d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\">\
         <title>published: {}</title></path>",
        y - 5.0,
        short(value)
    );
}

/// Draws a confidence interval in the colour of a CSS class.
pub(super) fn error_bar(svg: &mut String, axis: &Axis, x: f64, value: f64, half: f64, class: &str) {
    let (low, high) = (axis.at(value - half), axis.at(value + half));
    let (low, high) = (low.min(HEIGHT - BOTTOM), high.max(TOP));
    // Draws only intervals higher than the strokes at their ends.
    if low - high > 1.0 {
        let (left, right) = (x - 2.5, x + 2.5);
        let path = format!(
            "M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}"
        );
        // A light line below the dark one makes the interval visible on bars of any colour.
        let _ = writeln!(
            svg,
            "<path class=\"halo\" d=\"{path}\"/><path class=\"error {class}\" d=\"{path}\"/>"
        );
    }
}
