//! Charts as inline SVG: lines over an axis, and grouped bars.

mod axis;
mod bars;
mod lines;
mod plot;

pub(super) use bars::{Bars, bars};
pub(super) use lines::{Line, lines};
pub(super) use plot::{Plot, escape, swatch};
