//! Charts as inline SVG: lines over an axis, grouped bars, bars in rows, areas, and ranges.

mod areas;
mod axis;
mod bars;
mod lines;
mod plot;
mod ranges;
mod rows;

pub(super) use areas::{Area, areas};
pub(super) use bars::{Bars, bars};
pub(super) use lines::{Line, lines};
pub(super) use plot::{COLOURS, Plot, escape, swatch};
pub(super) use ranges::{Range, ranges};
pub(super) use rows::rows;
