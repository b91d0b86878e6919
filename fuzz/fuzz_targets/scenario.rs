//! Scenario files of the lab: built-in ones with changed lines, or any text. What is read does not
//! depend on comments, blank lines and line ends; what is refused is refused with a place; what is
//! accepted can be drawn from and built.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mpquic_sim::scenario::{Draw, Points, Position, Scenario, Source, built_in};

#[derive(Debug, Arbitrary)]
enum Edit {
    Delete {
        line: u16,
    },
    Double {
        line: u16,
    },
    Swap {
        line: u16,
        other: u16,
    },
    /// Another value behind the `=` of a line.
    Value {
        line: u16,
        value: Value,
    },
    Insert {
        line: u16,
        text: String,
    },
    /// A line of another scenario.
    Borrow {
        line: u16,
        file: u8,
        from: u16,
    },
}

#[derive(Debug, Arbitrary)]
enum Value {
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<f32>),
    Range(f32, f32),
    Binomial(u16, f32),
    Word(u8),
}

#[derive(Debug, Arbitrary)]
enum Input {
    Changed { file: u8, edits: Vec<Edit> },
    Any(String),
}

fuzz_target!(|input: Input| {
    let text = match input {
        Input::Changed { file, edits } => changed(file, &edits),
        Input::Any(text) => text,
    };
    if text.len() > 1 << 16 {
        return;
    }
    let parsed = Scenario::parse("dir/some-name.toml", &text);
    match &parsed {
        Ok(scenario) => {
            assert_eq!(scenario.id, "some-name");
            check(scenario);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("dir/some-name.toml"), "{message}");
        }
    }
    // A file with multi-line strings means something else with other line ends.
    if !text.contains("\"\"\"") && !text.contains("'''") && !text.contains('\r') {
        let other = format!("# first\n\n{}\n# last", text.replace('\n', "\r\n"));
        let other = Scenario::parse("dir/some-name.toml", &other);
        match (parsed, other) {
            (Ok(scenario), Ok(other)) => assert_same(&scenario, &other),
            (Err(_), Err(_)) => {}
            (one, other) => panic!("{one:?}, but with comments {other:?}"),
        }
    }
});

/// Not by `==`: floats may be nan to the file's author.
fn assert_same(one: &Scenario, other: &Scenario) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
}

fn check(scenario: &Scenario) {
    assert!((1..=8).contains(&scenario.paths.len()));
    for (index, path) in scenario.paths.iter().enumerate() {
        let others = &scenario.paths[..index];
        assert!(others.iter().all(|other| other.name != path.name));
        assert!(path.via.iter().all(|link| *link < scenario.links.len()));
    }
    let names = || scenario.contenders.iter().map(|contender| &contender.name);
    assert!(names().count() > 0 && names().any(|name| *name == scenario.baseline));
    assert!(scenario.runs >= 1 && scenario.warm_up < scenario.limit);
    assert!(!scenario.metrics().is_empty());

    if is_large(scenario) {
        return;
    }
    let points = Points::new(scenario);
    assert!(points.sweeps() >= 1 && points.points() >= 1);
    for sweep in [0, points.sweeps() - 1] {
        assert_eq!(points.labels(sweep).len(), points.labels(0).len());
        let at = Position {
            sweep,
            point: points.points() - 1,
            run: scenario.runs - 1,
        };
        let values = points.values(at);
        assert_eq!(values.len(), scenario.parameters.len());
        assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
        assert_eq!(points.values(at), values, "drawn from a seed");
        let shared = scenario.links.iter().map(|link| &link.links);
        for pair in shared.chain(scenario.paths.iter().map(|path| &path.links)) {
            let [up, down] = pair.links(&values, 1);
            assert_eq!(format!("{up:?}{down:?}"), {
                let [up, down] = pair.links(&values, 1);
                format!("{up:?}{down:?}")
            });
        }
    }
}

/// Whoever writes it has to wait for it.
fn is_large(scenario: &Scenario) -> bool {
    let swept = scenario
        .parameters
        .iter()
        .map(|parameter| match &parameter.source {
            Source::Swept(values) => values.len(),
            Source::Uniform(..) | Source::Binomial(..) => 1,
        });
    let combinations = swept.fold(1_usize, usize::saturating_mul);
    combinations > 10_000 || matches!(scenario.draw, Draw::SpaceFilling(count) if count > 30)
}

fn changed(file: u8, edits: &[Edit]) -> String {
    let files = built_in();
    let text = |file: u8| files[usize::from(file) % files.len()].text;
    let mut lines: Vec<String> = text(file).lines().map(str::to_owned).collect();
    for edit in edits.iter().take(20) {
        if lines.is_empty() {
            break;
        }
        let count = lines.len();
        let at = |line: u16| usize::from(line) % count;
        match edit {
            Edit::Delete { line } => drop(lines.remove(at(*line))),
            Edit::Double { line } => lines.insert(at(*line), lines[at(*line)].clone()),
            Edit::Swap { line, other } => lines.swap(at(*line), at(*other)),
            Edit::Value { line, value } => {
                let line = &mut lines[at(*line)];
                if let Some((key, _)) = line.split_once('=') {
                    *line = format!("{key}= {}", write(value));
                }
            }
            Edit::Insert { line, text } => lines.insert(at(*line), text.clone()),
            Edit::Borrow { line, file, from } => {
                let others: Vec<_> = text(*file).lines().collect();
                let from = usize::from(*from) % others.len().max(1);
                lines.insert(
                    at(*line),
                    others.get(from).copied().unwrap_or("").to_owned(),
                );
            }
        }
    }
    lines.join("\n")
}

fn write(value: &Value) -> String {
    const WORDS: [&str; 12] = [
        "true",
        "false",
        "nan",
        "inf",
        "-0.0",
        "\"lrf\"",
        "\"olia\"",
        "\"bulk\"",
        "[]",
        "{}",
        "1e400",
        "9007199254740993",
    ];
    match value {
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(values) => format!("{values:?}"),
        Value::Range(from, to) => format!("\"{from:?}..{to:?}\""),
        Value::Binomial(trials, probability) => {
            format!("\"binomial({trials}, {probability:?})\"")
        }
        Value::Word(word) => WORDS[usize::from(*word) % WORDS.len()].to_owned(),
    }
}
