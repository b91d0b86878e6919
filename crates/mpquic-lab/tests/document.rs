//! `docs/lab.md` has a row for every scenario, every published claim and every built-in policy.

use mpquic_sim::scenario::{Claim, Scenario, built_in};

const DOCUMENT: &str = include_str!("../../../docs/lab.md");

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

#[test]
fn rows_with_a_difference_have_a_reason() {
    let mut differing = 0;
    for line in DOCUMENT.lines() {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [_, _, _, _, theirs, _, ours, reason] = cells.as_slice()
            && [theirs, ours].map(|cell| ["differs", "refuted", "in part"].contains(cell))
                != [false; 2]
        {
            differing += 1;
            assert!(!reason.is_empty(), "{line}");
        }
    }
    assert!(
        differing > 50,
        "{differing} rows differ: are the columns still these?"
    );
}
