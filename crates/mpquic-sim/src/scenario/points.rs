//! The parameter values of each run: sweeps, and draws that fill the space of possible values.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::model::{Draw, Scenario};
use super::number::{Parameter, Source};

/// Candidates per wanted space-filling point.
const CANDIDATES_PER_POINT: usize = 50;
/// Steps of the search for the distance that gives the wanted number of points.
const SEARCH_STEPS: usize = 30;

/// The indices that determine the parameter values of a run; the same for all contenders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Index of the combination of swept values.
    pub sweep: usize,
    /// Index of the space-filling point.
    pub point: usize,
    /// Index of the repetition.
    pub run: usize,
}

/// All values of the parameters of a scenario.
#[derive(Debug, Clone)]
pub struct Points {
    parameters: Vec<Parameter>,
    /// For each combination, the index into each swept parameter's values.
    sweeps: Vec<Vec<usize>>,
    /// Shares of the distributions, one row per point.
    points: Vec<Vec<f64>>,
    draw: Draw,
    seed: u64,
}

impl Points {
    /// The points of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let parameters = scenario.parameters.clone();
        let is_drawn = |parameter: &&Parameter| !matches!(parameter.source, Source::Swept(_));
        let dimensions = parameters.iter().filter(is_drawn).count();
        let points = match scenario.draw {
            Draw::SpaceFilling(count) if dimensions > 0 => {
                space_filling(dimensions, count, scenario.seed)
            }
            _ => vec![vec![0.5; dimensions]],
        };
        Self {
            sweeps: combinations(&parameters, scenario.zip_sweeps),
            parameters,
            points,
            draw: scenario.draw,
            seed: scenario.seed,
        }
    }

    /// The number of combinations of swept values.
    pub fn sweeps(&self) -> usize {
        self.sweeps.len()
    }

    /// The number of points.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// The swept parameters of a combination: name and label.
    pub fn labels(&self, sweep: usize) -> Vec<(String, String)> {
        let swept = self.parameters.iter().filter_map(|parameter| {
            let Source::Swept(values) = &parameter.source else {
                return None;
            };
            Some((parameter, values))
        });
        let labels = swept
            .zip(&self.sweeps[sweep])
            .map(|((parameter, values), index)| (parameter.name.clone(), values[*index].1.clone()));
        labels.collect()
    }

    /// The names of all parameters, in the order of [`Self::values`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters
            .iter()
            .map(|parameter| parameter.name.as_str())
    }

    /// The values of all parameters.
    pub fn values(&self, at: Position) -> Vec<f64> {
        let mut swept = self.sweeps[at.sweep].iter();
        let mut point = self.points[at.point].iter();
        let seed = self.seed ^ (at.run as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let value = |parameter: &Parameter| match &parameter.source {
            Source::Swept(values) => {
                let index = swept.next().copied().unwrap_or(0);
                values.get(index).map_or(0.0, |(value, _)| *value)
            }
            Source::Uniform(..) | Source::Binomial(..) => match self.draw {
                Draw::Uniform => parameter.quantile(random.random()),
                Draw::SpaceFilling(_) => parameter.quantile(point.next().copied().unwrap_or(0.5)),
            },
        };
        self.parameters.iter().map(value).collect()
    }
}

fn combinations(parameters: &[Parameter], zip: bool) -> Vec<Vec<usize>> {
    let lengths: Vec<_> = parameters
        .iter()
        .filter_map(|parameter| match &parameter.source {
            Source::Swept(values) => Some(values.len()),
            _ => None,
        })
        .collect();
    if zip {
        let length = lengths.iter().copied().min().unwrap_or(1);
        return (0..length)
            .map(|index| vec![index; lengths.len()])
            .collect();
    }
    let mut combinations = vec![Vec::new()];
    for length in lengths {
        let longer = |combination: Vec<usize>| {
            (0..length).map(move |index| [combination.as_slice(), &[index]].concat())
        };
        combinations = combinations.into_iter().flat_map(longer).collect();
    }
    combinations
}

/// Chooses `count` points of the unit cube that are far from each other, by the method of Wootton,
/// Sergent and Phan-Tan-Luu (WSP): keep a random point, remove all points too close to the kept
/// point, and go on with the nearest remaining point.
fn space_filling(dimensions: usize, count: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5753_5000);
    let crowd: Vec<Vec<f64>> = (0..count.max(4) * CANDIDATES_PER_POINT)
        .map(|_| (0..dimensions).map(|_| random.random()).collect())
        .collect();
    // The larger the distance, the fewer points remain. Looks for the largest distance that leaves
    // enough points.
    let (mut enough, mut too_few) = (0.0, (dimensions as f64).sqrt());
    for _ in 0..SEARCH_STEPS {
        let distance = f64::midpoint(enough, too_few);
        if select(&crowd, distance).len() >= count {
            enough = distance;
        } else {
            too_few = distance;
        }
    }
    let mut chosen = select(&crowd, enough);
    chosen.truncate(count);
    chosen
        .into_iter()
        .map(|index| crowd[index].clone())
        .collect()
}

fn select(crowd: &[Vec<f64>], distance: f64) -> Vec<usize> {
    let apart = |a: usize, b: usize| {
        let squares = crowd[a].iter().zip(&crowd[b]).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let mut left: Vec<usize> = (1..crowd.len()).collect();
    let mut chosen = vec![0];
    let mut last = 0;
    loop {
        left.retain(|index| apart(*index, last) >= distance);
        let near = |a: &usize, b: &usize| apart(*a, last).total_cmp(&apart(*b, last));
        let Some(next) = left.iter().copied().min_by(near) else {
            return chosen;
        };
        left.retain(|index| *index != next);
        chosen.push(next);
        last = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_filling_points_keep_their_distance_and_reach_everywhere() {
        let points = space_filling(2, 20, 1);
        assert_eq!(points.len(), 20);
        let apart = |a: &[f64], b: &[f64]| (a[0] - b[0]).hypot(a[1] - b[1]);
        for (index, a) in points.iter().enumerate() {
            let nearest = points[..index]
                .iter()
                .map(|b| apart(a, b))
                .fold(9.0, f64::min);
            // Twenty points placed at random nearly always come closer than 0.05.
            assert!(nearest > 0.12, "{a:?} {nearest}");
        }
        for corner in [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.5, 0.5]] {
            let nearest = points.iter().map(|p| apart(p, &corner)).fold(9.0, f64::min);
            assert!(nearest < 0.35, "{corner:?} {nearest}");
        }
        assert_eq!(points, space_filling(2, 20, 1));
        assert_ne!(points, space_filling(2, 20, 2));
    }

    #[test]
    fn sweeps_combine_or_go_together() {
        let parameters = [
            Parameter::swept("a", vec![1.0, 2.0]),
            Parameter::parse("b", "0..1").unwrap(),
            Parameter::swept("c", vec![3.0, 4.0]),
        ];
        let product = [vec![0, 0], vec![0, 1], vec![1, 0], vec![1, 1]];
        assert_eq!(combinations(&parameters, false), product);
        assert_eq!(combinations(&parameters, true), [vec![0, 0], vec![1, 1]]);
        assert_eq!(combinations(&parameters[1..2], false), [vec![]; 1]);
        assert_eq!(combinations(&parameters[1..2], true), [vec![]; 1]);
    }

    #[test]
    fn points_are_selected_from_the_nearest_on() {
        let crowd = [0.0, 0.3, 0.1, 0.9, 0.5, 0.45].map(|x| vec![x]);
        // From the first point to the nearest point that is far enough away, and so on.
        assert_eq!(select(&crowd, 0.2), [0, 1, 4, 3]);
        assert_eq!(select(&crowd, 0.0), [0, 2, 1, 5, 4, 3]);
        assert_eq!(select(&crowd, 2.0), [0]);
        let plane = [vec![0.0, 0.0], vec![0.3, 0.4], vec![0.0, 0.6]];
        assert_eq!(select(&plane, 0.5), [0, 1], "0.36 apart");
    }
}
