//! `docs/lab.md` has a row for every scenario, every published claim and every built-in policy.

use mpquic_sim::scenario::{Claim, Scenario, built_in};

const DOCUMENT: &str = include_str!("../../../docs/lab.md");
const FINDINGS: &str = include_str!("../../../docs/findings.md");

#[test]
fn every_scenario_and_every_policy_has_its_row() {
    for file in built_in() {
        let name = format!("`{}`", file.id);
        let scenario = Scenario::parse(file.id, file.text).unwrap();
        let of_scenario = DOCUMENT
            .lines()
            .skip_while(|line| !line.contains(&format!("| {name}")) && !line.starts_with(&name));
        let block: Vec<_> = of_scenario
            .take_while(|line| line.starts_with(['|', '`']) || line.is_empty())
            .collect();
        assert!(!block.is_empty(), "{name} has no row");
        // Claims of one scenario follow each other; long lists of contenders stand by themselves.
        let mut claims = scenario.published.iter();
        let in_words = claims.all(|published| published.claim == Claim::Words);
        if scenario.contenders.len() < 8 || !in_words {
            assert!(block.len() >= scenario.published.len(), "{name}: {block:?}");
        }
    }
    let schedulers = mpquic_sched::list().iter().map(|info| info.name);
    let controllers = mpquic_cc::list().iter().map(|info| info.name);
    for name in schedulers.chain(controllers) {
        assert!(
            DOCUMENT.contains(&format!("| {name} | ")),
            "{name} has no row"
        );
    }
}

/// The cells of each row of claims, and the name of its scenario.
fn claims() -> Vec<(String, Vec<String>)> {
    let mut scenario = String::new();
    let mut rows = Vec::new();
    for line in DOCUMENT.lines() {
        let inner = line
            .strip_prefix("| ")
            .and_then(|line| line.strip_suffix(" |"));
        let cells: Vec<_> = inner
            .unwrap_or_default()
            .split(" | ")
            .map(str::trim)
            .collect();
        if cells.len() != 10 || ["metric", "runs"].contains(&cells[1]) || cells[0] == "---" {
            continue;
        }
        // Long lists of contenders have as many columns.
        match cells[0].split('`').nth(1) {
            Some(name) => name.clone_into(&mut scenario),
            None if cells[0].is_empty() => {}
            None => continue,
        }
        let cells = cells[1..].iter().map(|cell| (*cell).to_owned());
        rows.push((scenario.clone(), cells.collect()));
    }
    rows
}

#[test]
fn verdicts_with_a_difference_have_a_reason() {
    let mut differing = 0;
    for (scenario, cells) in claims() {
        for column in [4, 7] {
            if ["differs", "refuted", "in part"].contains(&cells[column].as_str()) {
                differing += 1;
                assert!(!cells[column + 1].is_empty(), "{scenario}: {cells:?}");
            }
        }
    }
    assert!(
        differing > 50,
        "{differing} differ: are the columns still these?"
    );
}

/// Reasons and figures of authors are in the scenario files; the document repeats them.
#[test]
fn claims_of_the_document_are_those_of_the_scenario_files() {
    let claims = claims();
    for file in built_in() {
        let scenario = Scenario::parse(file.id, file.text).unwrap();
        let rows = claims.iter().filter(|(name, _)| name == file.id);
        let rows: Vec<_> = rows.map(|(_, cells)| cells).collect();
        if rows.is_empty() {
            continue;
        }
        assert_eq!(rows.len(), scenario.published.len(), "{}", file.id);
        for (cells, published) in rows.into_iter().zip(&scenario.published) {
            assert!(
                cells[1].ends_with(&published.text),
                "{}: {cells:?}",
                file.id
            );
            if let Some(theirs) = &published.theirs {
                assert!(cells[2].ends_with(&theirs.source), "{}: {cells:?}", file.id);
            }
            for (reason, known) in [
                (&cells[5], &published.reason_forms),
                (&cells[8], &published.reason),
            ] {
                assert!(
                    reason.is_empty() || reason == known,
                    "{}: {cells:?}",
                    file.id
                );
            }
        }
    }
}

#[test]
fn marked_figures_are_those_of_the_tables() {
    let file = |name: &str| format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let (lab, findings) = (file("lab.md"), file("findings.md"));
    let check = ["table", "--check", "--into", &lab, "--prose", &findings];
    crate::report::lab(&check)
        .unwrap_or_else(|failure| panic!("{failure}; tools/lab-tables fills in the figures"));
}

/// A figure without a mark goes stale.
#[test]
fn every_figure_of_a_result_has_a_mark() {
    let section = |title: &str| {
        let (_, rest) = DOCUMENT.split_once(&format!("## {title}\n")).unwrap();
        rest.split("\n#").next().unwrap()
    };
    let texts = [
        FINDINGS,
        section("Why results differ"),
        section("Applications"),
    ];
    let mut marked = 0;
    for text in texts {
        let mut bare = String::new();
        let mut parts = text.split("<!--lab ");
        bare += parts.next().unwrap();
        for part in parts {
            marked += 1;
            bare += part.split_once("<!--/-->").unwrap().1;
        }
        let words = bare.split(|c: char| c.is_whitespace() || "[](),;:".contains(c));
        let mut before = "";
        for word in words {
            let is_section = std::mem::replace(&mut before, word) == "section";
            let word = word.trim_end_matches('.');
            let is_figure = word.parse::<f64>().is_ok() && word.contains('.');
            assert!(!is_figure || is_section, "{word} has no mark");
        }
    }
    assert!(marked > 50, "{marked} marks");
}
