//! Charts as inline SVG: lines over an axis, grouped bars, and areas.

mod areas;
mod axis;
mod bars;
mod lines;
mod plot;

pub(super) use areas::{Area, areas};
pub(super) use bars::{Bars, bars};
pub(super) use lines::{Line, lines};
pub(super) use plot::{COLOURS, Plot, escape, swatch};
