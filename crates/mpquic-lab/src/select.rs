//! Finds the scenarios, schedulers and controllers that a command line names.

use std::fs;
use std::path::Path;

use mpquic_sim::scenario::{self, BuiltIn, Scenario};

use crate::{Failure, Policies};

/// The built-in scenario of this name.
pub(super) fn built_in(name: &str) -> Result<&'static BuiltIn, Failure> {
    let name = name.to_lowercase();
    let found = scenario::built_in().iter().find(|file| file.id == name);
    found.ok_or_else(|| unknown(&name))
}

fn unknown(name: &str) -> Failure {
    let files = scenario::built_in().iter().map(|file| file.id);
    // Suggests names with the same first letters as the unknown name.
    let start: String = name.chars().take(3).collect();
    let alike: Vec<_> = files.filter(|id| id.starts_with(&start)).collect();
    let hint = if alike.is_empty() {
        "`mpquic lab list` shows all".to_owned()
    } else {
        format!("there are: {}", alike.join(", "))
    };
    Failure::usage(format!("there is no scenario `{name}`; {hint}"))
}

fn parse(policies: &Policies, file: &BuiltIn) -> Result<Scenario, Failure> {
    Scenario::parse_with(policies, file.id, file.text).map_err(Failure::other)
}

/// All built-in scenarios.
pub(super) fn all(policies: &Policies) -> Result<Vec<Scenario>, Failure> {
    let files = scenario::built_in().iter();
    files.map(|file| parse(policies, file)).collect()
}

/// A scenario, and the argument that selects only this scenario on a command line.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) scenario: Scenario,
}

impl Named {
    fn built_in(scenario: Scenario) -> Self {
        let name = scenario.id.clone();
        Self { name, scenario }
    }
}

/// Finds the scenarios of a command line. A name is a built-in scenario, a pattern of such names, a
/// file, or `all`.
pub(super) fn scenarios(policies: &Policies, names: &[String]) -> Result<Vec<Named>, Failure> {
    let mut scenarios: Vec<Named> = Vec::new();
    for name in names {
        let mut found = named(policies, name)?;
        let is_new = |id: &str| scenarios.iter().all(|other| other.scenario.id != id);
        found.retain(|new| is_new(&new.scenario.id));
        scenarios.extend(found);
    }
    Ok(scenarios)
}

fn named(policies: &Policies, name: &str) -> Result<Vec<Named>, Failure> {
    let is_file = name.ends_with(".toml") || Path::new(name).is_file();
    if is_file {
        let text =
            fs::read_to_string(name).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let scenario = Scenario::parse_with(policies, name, &text).map_err(Failure::usage)?;
        let name = name.to_owned();
        return Ok(vec![Named { name, scenario }]);
    }
    let named = |scenarios: Vec<Scenario>| scenarios.into_iter().map(Named::built_in).collect();
    if name == "all" {
        return Ok(named(all(policies)?));
    }
    if !name.contains('*') {
        return Ok(named(vec![parse(policies, built_in(name)?)?]));
    }
    let pattern = name.to_lowercase();
    let fitting = scenario::built_in()
        .iter()
        .filter(|file| fits(&pattern, file.id));
    let fitting: Vec<_> = fitting
        .map(|file| parse(policies, file))
        .collect::<Result<_, _>>()?;
    if fitting.is_empty() {
        Err(unknown(name))
    } else {
        Ok(named(fitting))
    }
}

/// True if a text matches a pattern. Each `*` in the pattern stands for any characters.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
            ends.any(|end| fits(rest, &text[end..]))
        }),
    }
}

/// The named schedulers, or all schedulers for `all`.
pub(super) fn schedulers(policies: &Policies, names: &[String]) -> Result<Vec<String>, Failure> {
    if names == ["all"] {
        return Ok(policies.scheduler_names());
    }
    for name in names {
        policies.scheduler(name).map_err(Failure::usage)?;
    }
    Ok(names.to_vec())
}

/// The named controllers, or all controllers for `all`.
pub(super) fn controllers(policies: &Policies, names: &[String]) -> Result<Vec<String>, Failure> {
    if names == ["all"] {
        return Ok(policies.controller_names());
    }
    for name in names {
        policies.controller(name).map_err(Failure::usage)?;
    }
    Ok(names.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_star_of_a_pattern_matches_any_characters() {
        for (pattern, text) in [
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "abc"),
            ("*", ""),
            ("a", "a"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a*", "bc"), ("*b", "abc"), ("a", "ab"), ("a*d*c", "abc")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
