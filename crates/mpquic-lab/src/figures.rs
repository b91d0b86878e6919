//! Figures in the prose of documents, taken from the tables of results.
//!
//! A figure stands between two marks: `<!--lab QUERY-->0.65<!--/-->`. A query has the words
//! `SCENARIO COLUMN WHAT`:
//!
//! - `SCENARIO` is the name of a scenario. `#2` behind the name selects its second claim.
//! - `COLUMN` is `theirs`, `forms` (against published forms) or `ours`.
//! - `WHAT` is `number` (with its interval), `verdict`, the name of a contender (its median), `A/B`
//!   (the ratio of two medians), or `A<B` (by how many percent A is smaller than B).

use crate::Failure;

const OPEN: &str = "<!--lab ";
const OPENED: &str = "-->";
const CLOSE: &str = "<!--/-->";

/// A row of the tables: the name of its scenario, and the other cells.
struct Line<'a> {
    scenario: &'a str,
    cells: Vec<&'a str>,
}

/// The claims in the tables, in their order.
fn lines(tables: &str) -> Vec<Line<'_>> {
    let mut scenario = "";
    let mut lines = Vec::new();
    for line in tables.lines().filter(|line| line.starts_with('|')) {
        let inner = line.trim_start_matches('|').trim_end_matches('|');
        let mut cells: Vec<_> = inner.split(" | ").map(str::trim).collect();
        let name = cells.remove(0);
        if let Some((id, _)) = name.strip_prefix('`').and_then(|name| name.split_once('`')) {
            scenario = id;
        } else if !name.is_empty() {
            scenario = "";
        }
        if !scenario.is_empty() {
            lines.push(Line { scenario, cells });
        }
    }
    lines
}

/// The cell of a query, and the word for its content.
fn cell<'a>(lines: &[Line<'a>], query: &str) -> Option<(&'a str, String)> {
    let words: Vec<_> = query.split_whitespace().collect();
    let [claim, column, what] = words.as_slice() else {
        return None;
    };
    let (scenario, number) = claim.split_once('#').unwrap_or((claim, "1"));
    let number = number.parse::<usize>().ok()?.checked_sub(1)?;
    let index = match (*column, *what) {
        ("theirs", _) => 2,
        ("forms", "verdict") => 4,
        ("forms", _) => 3,
        ("ours", "verdict") => 7,
        ("ours", _) => 6,
        _ => return None,
    };
    let mut of_scenario = lines.iter().filter(|line| line.scenario == scenario);
    let cell = of_scenario.nth(number)?.cells.get(index)?;
    Some((cell, (*what).to_owned()))
}

/// The number behind the name of a contender.
fn median<'a>(cell: &'a str, contender: &str) -> Option<&'a str> {
    let mut entries = cell.split([';', '<', '>']).map(str::trim);
    entries.find_map(|entry| {
        let rest = entry.strip_prefix(contender)?.strip_prefix(' ')?;
        rest.split_whitespace().next()
    })
}

/// The answer to a query.
fn answer(lines: &[Line<'_>], query: &str) -> Option<String> {
    let (cell, what) = cell(lines, query)?;
    let of = |name: &str| median(cell, name)?.parse::<f64>().ok();
    let text = match what.as_str() {
        "verdict" => cell.to_owned(),
        "number" => {
            let number = cell.split(';').next().unwrap_or_default();
            let number = number.split(" (").next().unwrap_or_default();
            number.trim_end_matches(", stated").to_owned()
        }
        what => match (what.split_once('/'), what.split_once('<')) {
            (Some((a, b)), _) => format!("{:.2}", of(a)? / of(b)?),
            (_, Some((a, b))) => format!("{:.0} %", (1.0 - of(a)? / of(b)?) * 100.0),
            _ => median(cell, what)?.to_owned(),
        },
    };
    (!text.is_empty()).then_some(text)
}

/// The text with each marked figure as in the tables.
///
/// # Errors
///
/// A query without an answer, or a mark without an end.
pub(super) fn filled(text: &str, tables: &str) -> Result<String, Failure> {
    let lines = lines(tables);
    let mut parts = text.split(OPEN);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (query, rest) = part
            .split_once(OPENED)
            .ok_or_else(|| Failure::usage(format!("`{OPEN}` without `{OPENED}`")))?;
        let (_, after) = rest
            .split_once(CLOSE)
            .ok_or_else(|| Failure::usage(format!("`{OPEN}{query}` without `{CLOSE}`")))?;
        let answer = answer(&lines, query)
            .ok_or_else(|| Failure::usage(format!("the tables have no answer to `{query}`")))?;
        filled += &format!("{OPEN}{query}{OPENED}{answer}{CLOSE}{after}");
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "| scenario | metric | published |\n| --- | --- | --- |\n\
        | `a`, Figure 1 | s | x < y | x 1.5 < y 3 s ± 0.1; plot | lrf-ns3 2.000 (1.0 to 3.0) < b 4.000 s; of 1 pairs 1 | confirmed |  | lrf 3.000 < b 4.000 s | refuted | why |\n\
        |  | s | a/b | 0.650, stated | 0.595 [0.586, 0.605] (0.5 to 0.7); run by run 0.6 | within 0.10 |  |  |  |  |\n\
        | other | 1 |\n";

    #[test]
    fn queries_find_numbers_medians_and_verdicts() {
        let lines = lines(TABLES);
        let cases = [
            ("a ours lrf", "3.000"),
            ("a forms lrf-ns3", "2.000"),
            ("a forms lrf-ns3/b", "0.50"),
            ("a ours lrf<b", "25 %"),
            ("a ours verdict", "refuted"),
            ("a theirs y", "3"),
            ("a#2 forms number", "0.595 [0.586, 0.605]"),
            ("a#2 theirs number", "0.650"),
        ];
        for (query, expected) in cases {
            assert_eq!(answer(&lines, query).as_deref(), Some(expected), "{query}");
        }
        for query in [
            "a",
            "b ours lrf",
            "a#3 ours number",
            "a ours c",
            "a#2 ours number",
        ] {
            assert_eq!(answer(&lines, query), None, "{query}");
        }
    }

    #[test]
    fn marked_figures_are_replaced_and_the_rest_stays() {
        let text = "It took <!--lab a ours lrf-->9.9<!--/--> s, not 9.9.";
        let expected = "It took <!--lab a ours lrf-->3.000<!--/--> s, not 9.9.";
        assert_eq!(filled(text, TABLES).unwrap(), expected);
        assert_eq!(filled(expected, TABLES).unwrap(), expected);
        assert!(filled("<!--lab c ours lrf-->1<!--/-->", TABLES).is_err());
        assert!(filled("<!--lab a ours lrf-->1", TABLES).is_err());
    }
}
