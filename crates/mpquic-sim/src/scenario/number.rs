//! Numbers of a scenario: fixed, drawn for each run, or swept over a list.

use std::fmt;

/// The limits of a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    min: f64,
    max: f64,
    unit: &'static str,
    infinite: bool,
}

impl Limits {
    pub(super) const fn new(min: f64, max: f64, unit: &'static str) -> Self {
        Self {
            min,
            max,
            unit,
            infinite: false,
        }
    }

    /// Also allows infinity.
    pub(super) const fn or_infinite(mut self) -> Self {
        self.infinite = true;
        self
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value) || (self.infinite && value == f64::INFINITY)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {} to {}", self.min, self.max)?;
        if !self.unit.is_empty() {
            write!(f, " ({})", self.unit)?;
        }
        if self.infinite {
            write!(f, ", or inf")?;
        }
        Ok(())
    }
}

/// A number of a scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// The same value in all runs.
    Fixed(f64),
    /// The parameter with this index.
    Varied(usize),
}

impl Number {
    /// The value of the number for these values of the parameters.
    pub fn at(self, values: &[f64]) -> f64 {
        match self {
            Self::Fixed(value) => value,
            Self::Varied(index) => values[index],
        }
    }

    /// The number in words: "10", "20 to 40" or "1, 2 or 5", with each value multiplied by
    /// `factor`.
    pub(super) fn words(self, parameters: &[Parameter], factor: f64) -> String {
        let short = |value: f64| ((value * factor * 1e4).round() / 1e4).to_string();
        let parameter = match self {
            Self::Fixed(value) => return short(value),
            Self::Varied(index) => parameters.get(index),
        };
        match parameter.map(|parameter| &parameter.source) {
            None => String::new(),
            Some(Source::Uniform(low, high)) => format!("{} to {}", short(*low), short(*high)),
            Some(Source::Binomial(trials, share)) => {
                format!("about {} (binomial)", short(f64::from(*trials) * share))
            }
            Some(Source::Swept(values)) => {
                let values: Vec<_> = values.iter().map(|(value, _)| short(*value)).collect();
                match values.as_slice() {
                    [first @ .., last] if !first.is_empty() => {
                        format!("{} or {last}", first.join(", "))
                    }
                    _ => values.concat(),
                }
            }
        }
    }
}

/// The source of a parameter's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Drawn uniformly between two bounds.
    Uniform(f64, f64),
    /// Drawn from the binomial distribution with this many trials of this probability.
    Binomial(u32, f64),
    /// Each value in turn, with its label.
    Swept(Vec<(f64, String)>),
}

/// A number that differs between runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The name of the parameter, as `wifi.rate_mbit`.
    pub name: String,
    /// The source of its values.
    pub source: Source,
}

impl Parameter {
    /// Reads `LO..HI` or `binomial(N, P)`.
    pub(super) fn parse(name: &str, text: &str) -> Option<Self> {
        let source = if let Some((low, high)) = text.split_once("..") {
            let (low, high): (f64, f64) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
            (low <= high && high.is_finite()).then_some(Source::Uniform(low, high))?
        } else {
            let arguments = text.strip_prefix("binomial(")?.strip_suffix(')')?;
            let (trials, probability) = arguments.split_once(',')?;
            let trials: u32 = trials.trim().parse().ok().filter(|n| *n <= 100_000)?;
            let probability: f64 = probability.trim().parse().ok()?;
            let possible = (0.0..=1.0).contains(&probability);
            possible.then_some(Source::Binomial(trials, probability))?
        };
        Some(Self {
            name: name.into(),
            source,
        })
    }

    pub(super) fn swept(name: &str, values: Vec<f64>) -> Self {
        let labels = values.into_iter().map(|value| (value, value.to_string()));
        Self::swept_labels(name, labels.collect())
    }

    pub(super) fn swept_labels(name: &str, values: Vec<(f64, String)>) -> Self {
        Self {
            name: name.into(),
            source: Source::Swept(values),
        }
    }

    /// The smallest and the largest value.
    pub(super) fn bounds(&self) -> (f64, f64) {
        match &self.source {
            Source::Uniform(low, high) => (*low, *high),
            Source::Binomial(trials, _) => (0.0, f64::from(*trials)),
            Source::Swept(values) => {
                let values = values.iter().map(|(value, _)| *value);
                let least = values.clone().fold(f64::INFINITY, f64::min);
                (least, values.fold(f64::NEG_INFINITY, f64::max))
            }
        }
    }

    /// The quantile of the distribution at this share, 0 to 1; the first value of a swept
    /// parameter.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        match &self.source {
            Source::Uniform(low, high) => low + (high - low) * share,
            Source::Binomial(trials, probability) => {
                binomial_quantile(*trials, *probability, share)
            }
            Source::Swept(values) => values.first().map_or(0.0, |(value, _)| *value),
        }
    }
}

fn binomial_quantile(trials: u32, probability: f64, share: f64) -> f64 {
    if probability >= 1.0 {
        return f64::from(trials);
    }
    let odds = probability / (1.0 - probability);
    // In logarithms, because the first terms may be too small for a float.
    let mut term = f64::from(trials) * (1.0 - probability).ln();
    let mut sum = term.exp();
    for successes in 0..trials {
        if sum >= share {
            return f64::from(successes);
        }
        term += (f64::from(trials - successes) / f64::from(successes + 1) * odds).ln();
        sum += term.exp();
    }
    f64::from(trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_their_distribution() {
        let uniform = Parameter::parse("x", "90..100").unwrap();
        assert_eq!(uniform.quantile(0.0), 90.0);
        assert_eq!(uniform.quantile(0.25), 92.5);
        let binomial = Parameter::parse("x", "binomial(100, 0.5)").unwrap();
        assert_eq!(binomial.bounds(), (0.0, 100.0));
        let draws: Vec<_> = (0..1000)
            .map(|n| binomial.quantile((f64::from(n) + 0.5) / 1000.0))
            .collect();
        let mean = draws.iter().sum::<f64>() / 1000.0;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1000.0;
        assert!((mean - 50.0).abs() < 0.05, "{mean}");
        assert!((variance - 25.0).abs() < 0.5, "{variance}");
    }

    #[test]
    fn text_that_is_no_distribution_is_refused() {
        for text in [
            "",
            "5",
            "9..1",
            "1..inf",
            "..2",
            "binomial(10)",
            "binomial(10, 2)",
            "1..x",
        ] {
            assert_eq!(Parameter::parse("x", text), None, "{text}");
        }
    }

    #[test]
    fn certain_value_is_always_drawn() {
        let of = |text: &str| Parameter::parse("x", text).unwrap();
        let draws = |text: &str| [0.0, 0.3, 0.999_999].map(|share| of(text).quantile(share));
        assert_eq!(draws("binomial(5, 1)"), [5.0; 3]);
        assert_eq!(draws("binomial(5, 0)"), [0.0; 3]);
        assert_eq!(draws("binomial(0, 0.5)"), [0.0; 3]);
        assert_eq!(draws("7..7"), [7.0; 3]);
        assert_eq!(of("binomial(100000, 0.5)").bounds(), (0.0, 1e5));
        assert_eq!(Parameter::parse("x", "binomial(100001, 0.5)"), None);
        // Heads of two coins: a quarter none, a half one, a quarter two.
        let coins = of("binomial(2, 0.5)");
        let at = [0.2, 0.3, 0.7, 0.8].map(|share| coins.quantile(share));
        assert_eq!(at, [0.0, 1.0, 1.0, 2.0]);
    }

    #[test]
    fn numbers_are_described_in_words() {
        let parameters = [
            Parameter::parse("a", "2..4").unwrap(),
            Parameter::parse("b", "binomial(10, 0.5)").unwrap(),
            Parameter::swept("c", vec![1.0, 2.5, 3.0]),
            Parameter::swept("d", vec![7.0]),
        ];
        let words = |number: Number| number.words(&parameters, 0.5);
        assert_eq!(words(Number::Fixed(0.123_456)), "0.0617");
        let varied = [0, 1, 2, 3, 4].map(|index| words(Number::Varied(index)));
        let expected = [
            "1 to 2",
            "about 2.5 (binomial)",
            "0.5, 1.25 or 1.5",
            "3.5",
            "",
        ];
        assert_eq!(varied, expected);
        let values = [1.0, 2.0];
        assert_eq!(
            (
                Number::Fixed(5.0).at(&values),
                Number::Varied(1).at(&values)
            ),
            (5.0, 2.0)
        );
        assert_eq!(parameters[2].bounds(), (1.0, 3.0));
        assert_eq!(
            (parameters[0].bounds(), parameters[2].quantile(0.9)),
            ((2.0, 4.0), 1.0)
        );
        assert_eq!(Parameter::swept("e", Vec::new()).quantile(0.5), 0.0);
    }
}
