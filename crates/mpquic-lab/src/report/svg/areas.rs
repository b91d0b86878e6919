//! Draws stacked areas with marks above them.

use std::fmt::Write as _;

use super::axis::Axis;
use super::lines::{Line, name_width, names};
use super::plot::{
    BOTTOM, COLOURS, HEIGHT, LEFT, Plot, TOP, WIDTH, escape, horizontal_axis, open_over,
    vertical_axis,
};

/// The height of the row with the marks of one area.
const ROW: f64 = 7.0;

/// An area of a stack.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Area {
    pub(in super::super) name: String,
    /// The index of the area's colour.
    pub(in super::super) series: usize,
    /// The height of the area at each position on the horizontal axis. All areas have the same
    /// positions.
    pub(in super::super) points: Vec<(f64, f64)>,
    /// Events with a stroke: the position and a description.
    pub(in super::super) strokes: Vec<(f64, String)>,
    /// Intervals with a bar: the beginning and the end.
    pub(in super::super) bars: Vec<(f64, f64)>,
}

/// Draws areas on top of each other, the first at the bottom. Above the areas, each area has a row
/// with its marks.
pub(in super::super) fn areas(plot: &Plot, areas: &[Area]) -> String {
    // The upper edge of each area.
    let mut edges: Vec<Line> = Vec::new();
    for area in areas {
        let below = edges.last().map_or(&[][..], |edge| &edge.points);
        let below = below
            .iter()
            .map(|point| point.1)
            .chain(std::iter::repeat(0.0));
        let points = area.points.iter().zip(below);
        edges.push(Line {
            name: area.name.clone(),
            series: area.series,
            points: points.map(|((x, y), below)| (*x, y + below)).collect(),
            ..Line::default()
        });
    }
    let right = WIDTH - name_width(&edges);
    let top = TOP + ROW * areas.len() as f64;
    let points = || edges.iter().flat_map(|edge| &edge.points);
    let x = Axis::new(points().map(|point| point.0), LEFT, right);
    let y = Axis::new(points().map(|point| point.1), HEIGHT - BOTTOM, top).including_zero();
    let mut svg = open_over(plot, &x, &y);
    vertical_axis(&mut svg, &y, &plot.y, right);
    horizontal_axis(&mut svg, &x, &plot.x);
    for (index, area) in areas.iter().enumerate() {
        let edge = &edges[index].points;
        let mut path = String::new();
        for (px, py) in edge {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x.at(*px), y.at(*py));
        }
        for (index, (px, py)) in edge.iter().enumerate().rev() {
            let below = py - area.points[index].1;
            let _ = write!(path, "L{:.1} {:.1}", x.at(*px), y.at(below));
        }
        let (colour, name) = (area.series % COLOURS, escape(&area.name));
        let _ = writeln!(
            svg,
            "<path class=\"area c{colour}\" d=\"{path}Z\"><title>{name}</title></path>"
        );
        marks(&mut svg, &x, area, TOP + ROW * index as f64);
    }
    // Writes the name of an area at the middle of its height.
    let middles = edges.iter().zip(areas).map(|(edge, area)| {
        let last = edge.points.last().zip(area.points.last());
        let middle = last.map(|(edge, own)| (edge.0, edge.1 - own.1 / 2.0));
        Line {
            points: middle.into_iter().collect(),
            ..edge.clone()
        }
    });
    names(&mut svg, &middles.collect::<Vec<_>>(), &x, &y, plot);
    svg + "</svg>\n"
}

fn marks(svg: &mut String, x: &Axis, area: &Area, top: f64) {
    let colour = area.series % COLOURS;
    for (from, to) in &area.bars {
        let (from, to) = (x.at(*from), x.at(*to));
        let _ = writeln!(
            svg,
            "<path class=\"mark c{colour}\" d=\"M{from:.1} {:.1}H{:.1}\"><title>{}: silent</title></path>",
            top + ROW / 2.0,
            to.max(from + 1.0),
            escape(&area.name)
        );
    }
    for (at, what) in &area.strokes {
        let _ = writeln!(
            svg,
            "<path class=\"mark c{colour}\" d=\"M{:.1} {top:.1}v{:.1}\"><title>{}</title></path>",
            x.at(*at),
            ROW - 1.5,
            escape(what)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_area_is_drawn_on_top_of_the_area_before() {
        let area = |name: &str, height| Area {
            name: name.into(),
            points: vec![(0.0, height), (1.0, height)],
            strokes: vec![(0.5, "2 lost".into())],
            bars: vec![(0.0, 0.5)],
            ..Area::default()
        };
        let svg = areas(&Plot::default(), &[area("a<", 1.0), area("b", 3.0)]);
        let edges: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("class=\"area"))
            .map(|line| {
                let (_, path) = line.split_once(" d=\"M").unwrap();
                let mut numbers = path.split(['L', ' ', 'Z']);
                numbers.nth(1).unwrap().parse().unwrap()
            })
            .collect();
        let bottom = HEIGHT - BOTTOM;
        let [a, b] = edges[..] else {
            panic!("{svg}");
        };
        // The heights of the two edges are 1 and 4 on the same scale.
        assert!(
            ((bottom - b) / (bottom - a) - 4.0).abs() < 0.02,
            "{edges:?}"
        );
        assert!(
            svg.contains("a&lt;") && svg.matches("2 lost").count() == 2,
            "{svg}"
        );
    }
}
