use std::collections::BTreeMap;

use super::*;
use crate::experiment::{Run, State};

const METRIC: &str = "completion_s";

/// Results with two combinations of swept values. `times` holds each contender's times in both
/// combinations; every run is there twice.
fn results(times: [(&str, [[f64; 3]; 2]); 3]) -> ScenarioResults {
    let mut runs = Vec::new();
    for (contender, (_, by_sweep)) in times.iter().enumerate() {
        for (sweep, times) in by_sweep.iter().enumerate() {
            let twice = times.iter().chain(times);
            runs.extend(twice.enumerate().map(|(run, time)| Run {
                contender,
                sweep,
                point: 0,
                run,
                state: State::Finished,
                values: Vec::new(),
                metrics: BTreeMap::from([(METRIC.to_owned(), *time)]),
                paths: Vec::new(),
                flows: Vec::new(),
            }));
        }
    }
    let text = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\n\
                [[path]]\nname = \"a\"\nrate_mbit = 1\nowd_ms = [1, 2]\n";
    let scenario = crate::scenario::Scenario::parse("x.toml", text).unwrap();
    let mut results = crate::experiment::Experiment::new(scenario).results(runs, Vec::new());
    results.contenders = times.map(|(name, _)| name.to_owned()).to_vec();
    results
}

fn three() -> ScenarioResults {
    results([
        ("a", [[1.0, 1.1, 1.05], [2.0, 2.1, 2.0]]),
        ("b", [[2.0, 2.2, 2.1], [2.0, 2.05, 2.05]]),
        ("c", [[4.0, 4.4, 4.2], [1.0, 1.0, 1.0]]),
    ])
}

fn published(at: &str, claim: Claim) -> Published {
    Published {
        text: String::new(),
        metric: METRIC.into(),
        at: at.into(),
        reason: String::new(),
        reason_forms: String::new(),
        theirs: None,
        claim,
    }
}

/// The finding for a claim that is tested alone.
fn alone(results: &ScenarioResults, claim: &Published) -> Finding {
    let all = Results::default();
    all.findings(results, std::slice::from_ref(claim)).remove(0)
}

fn finding(at: &str, claim: Claim) -> Finding {
    alone(&three(), &published(at, claim))
}

fn order(names: &[&[&str]]) -> Claim {
    let group = |names: &&[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Claim::Order(names.iter().map(group).collect())
}

#[test]
fn ratios_are_means_over_the_swept_values_or_of_one() {
    let ratio = |ratio| Claim::Ratio {
        contender: "a".into(),
        against: "b".into(),
        ratio,
        or_better: false,
        best: false,
    };
    let all = finding("", ratio(0.70));
    assert_eq!(all.outcome, Outcome::Confirmed);
    assert!((all.mean() - (0.5 + 2.0 / 2.05) / 2.0).abs() < 1e-9);
    assert!((all.paired.unwrap() - 0.7070).abs() < 1e-3, "{all:?}");
    let (low, high) = all.interval.unwrap();
    assert!(low <= all.mean() && all.mean() <= high && low < high);
    // 0.738 is within 0.10 of the claimed ratio, but a part of the interval is not.
    assert_eq!(finding("", ratio(0.64)).outcome, Outcome::Open);
    let first = finding("a.owd_ms=1", ratio(0.65));
    assert_eq!((first.outcome, first.mean()), (Outcome::Refuted, 0.5));
    assert_eq!(finding("a.owd_ms=9", ratio(1.0)).outcome, Outcome::NotRun);
    let mut bound = ratio(0.65);
    if let Claim::Ratio { or_better, .. } = &mut bound {
        *or_better = true;
    }
    let first = finding("a.owd_ms=1", bound);
    assert_eq!(first.outcome, Outcome::Confirmed);
}

/// "Up to 50 % less" is about the best swept value, which has 0.5; the mean is 0.738.
#[test]
fn a_claim_about_the_best_takes_the_best_of_the_swept_values() {
    let best = |contender: &str, ratio| Claim::Ratio {
        contender: contender.into(),
        against: if contender == "a" { "b" } else { "a" }.into(),
        ratio,
        or_better: false,
        best: true,
    };
    let found = finding("", best("a", 0.5));
    assert_eq!((found.outcome, found.mean()), (Outcome::Confirmed, 0.5));
    assert_eq!(found.values.len(), 2);
    assert_eq!(finding("", best("a", 0.738)).outcome, Outcome::Refuted);
    // The best cell of `b` has 2.05 / 2.
    let found = finding("", best("b", 1.025));
    assert!((found.mean() - 1.025).abs() < 1e-9, "{found:?}");
}

#[test]
fn orders_are_decided_pair_by_pair() {
    let claim = order(&[&["a"], &["b"], &["c"]]);
    let first = finding("a.owd_ms=1", claim.clone());
    assert_eq!(
        (first.pairs, first.outcome),
        ([3, 0, 0], Outcome::Confirmed)
    );
    // In the second combination, `a` and `b` are too close, and `c` is the best.
    let all = finding("", claim);
    assert_eq!((all.pairs, all.outcome), ([3, 1, 2], Outcome::InPart));
    let refuted = finding("", order(&[&["c"], &["a", "b"]]));
    assert_eq!(refuted.pairs, [2, 0, 2]);
    let open = finding("a.owd_ms=2", order(&[&["a"], &["b"]]));
    assert_eq!(open.outcome, Outcome::Open);
    let unknown = finding("", order(&[&["x"], &["y"]]));
    assert_eq!(unknown.outcome, Outcome::NotRun);
    // A single pair in the claimed order does not confirm the order: the other pair is undecided.
    let half = finding("", order(&[&["a"], &["b"]]));
    assert_eq!((half.pairs, half.outcome), ([1, 1, 0], Outcome::InPart));
}

#[test]
fn shares_and_equality_are_decided_from_six_runs_on() {
    let better = |share, by| Claim::Better {
        contender: "a".into(),
        against: "b".into(),
        share,
        by,
    };
    // All of six runs, half of twelve, and none of six.
    for (at, outcome) in [
        ("a.owd_ms=1", Outcome::Confirmed),
        ("", Outcome::Open),
        ("a.owd_ms=2", Outcome::Refuted),
    ] {
        assert_eq!(finding(at, better(0.5, 0.2)).outcome, outcome);
    }
    // Six hits in six runs may be chance against a claim of nine in ten.
    let nearly = finding("a.owd_ms=1", better(0.9, 0.2));
    assert_eq!((nearly.mean(), nearly.outcome), (1.0, Outcome::Open));
    assert_eq!(finding("a.owd_ms=1", better(0.9, 1.0)).mean(), 1.0);
    assert_eq!(finding("", better(0.9, 1.1)).mean(), 0.0);
    let equal = |names: &[&str]| Claim::Equal(names.iter().map(|n| (*n).to_owned()).collect());
    assert_eq!(
        finding("a.owd_ms=2", equal(&["a", "b"])).outcome,
        Outcome::Confirmed
    );
    assert_eq!(finding("", equal(&["a", "b"])).outcome, Outcome::InPart);
    assert_eq!(
        finding("a.owd_ms=1", equal(&["a", "b", "c"])).outcome,
        Outcome::Refuted
    );
}

#[test]
fn fewer_than_six_runs_decide_no_claim() {
    let mut few = three();
    few.runs.retain(|run| run.run < MIN_RUNS - 1);
    let value = Claim::Value {
        contender: "a".into(),
        value: 1.05,
        or_better: false,
    };
    let of = |results: &ScenarioResults| {
        let claim = published("a.owd_ms=1", value.clone());
        alone(results, &claim).outcome
    };
    assert_eq!(
        (of(&few), of(&three())),
        (Outcome::Open, Outcome::Confirmed)
    );
    // A single run does not decide an order either, not even with very different times.
    few.runs.retain(|run| run.run == 0);
    let claim = published("", order(&[&["a"], &["c"]]));
    assert_eq!(alone(&few, &claim).pairs, [0, 2, 0]);
}

#[test]
fn claims_can_be_tested_on_the_published_forms() {
    let forms = vec![("b".to_owned(), "c".to_owned())];
    let claim = published("a.owd_ms=2", order(&[&["b"], &["a"]]));
    assert_eq!(alone(&three(), &claim).outcome, Outcome::Open);
    let claim = claim.of_published(&forms).unwrap();
    assert_eq!(claim.claim, order(&[&["c"], &["a"]]));
    assert_eq!(alone(&three(), &claim).outcome, Outcome::Confirmed);
    let other = published("", order(&[&["x"], &["a"]]));
    assert_eq!(other.of_published(&forms), None);
}

#[test]
fn a_change_is_measured_against_another_scenario() {
    let (mut fast, slow) = (three(), three());
    fast.id = "fast".into();
    // Only the first combination of swept values counts.
    for run in fast.runs.iter_mut().filter(|run| run.sweep == 0) {
        run.metrics.values_mut().for_each(|value| *value *= 0.5);
    }
    let change = Claim::Change {
        contender: "a".into(),
        scenario: "x".into(),
        ratio: 0.5,
    };
    let published = published("", change);
    let results = Results {
        scenarios: vec![slow, fast.clone()],
    };
    let found = results
        .findings(&fast, std::slice::from_ref(&published))
        .remove(0);
    assert_eq!((found.outcome, found.mean()), (Outcome::Confirmed, 0.5));
    assert_eq!(alone(&fast, &published).outcome, Outcome::NotRun);
}

#[test]
fn many_claims_need_more_confidence_than_one() {
    let claim = |share| {
        let claim = Claim::Better {
            contender: "a".into(),
            against: "b".into(),
            share,
            by: 0.0,
        };
        published("a.owd_ms=1", claim)
    };
    // Six of six runs where half are claimed: the chance is 0.014.
    let one = alone(&three(), &claim(0.5));
    assert_eq!((one.outcome, one.edge), (Outcome::Confirmed, Edge::Near));
    let outcomes = |claims: &[Published]| -> Vec<Outcome> {
        let findings = Results::default().findings(&three(), claims);
        findings.into_iter().map(|found| found.outcome).collect()
    };
    let twice = vec![claim(0.5); 2];
    assert_eq!(outcomes(&twice), [Outcome::Confirmed; 2]);
    assert_eq!(outcomes(&vec![claim(0.5); 3]), [Outcome::Open; 3]);
    // A claim far from its edge stays decided among many undecided claims.
    let mut claims = vec![claim(0.9); 9];
    claims.push(claim(0.1));
    assert_eq!(outcomes(&claims)[8..], [Outcome::Open, Outcome::Confirmed]);
}

#[test]
fn results_are_decided_when_all_claims_are_settled() {
    let with = |claims: &[Published]| {
        let mut results = three();
        // Six runs may lie on one side by chance, so the test doubles the runs.
        let again = results.runs.iter().map(|run| Run {
            run: run.run + 100,
            ..run.clone()
        });
        let again: Vec<_> = again.collect();
        results.published = claims.to_vec();
        assert!(!results.is_decided());
        results.runs.extend(again);
        results.is_decided()
    };
    let clear = published("a.owd_ms=1", order(&[&["a"], &["b"], &["c"]]));
    let close = published("a.owd_ms=2", order(&[&["a"], &["b"]]));
    let words = published("", Claim::Words);
    assert!(with(&[clear.clone(), words.clone()]));
    assert!(!with(&[clear.clone(), close]), "that is open");
    assert!(!with(&[words]), "there is nothing to decide");
    let of_others = published("", order(&[&["a"], &["x"]]));
    assert!(!with(&[clear.clone(), of_others]), "x did not run");
    let change = Claim::Change {
        contender: "a".into(),
        scenario: "x".into(),
        ratio: 1.0,
    };
    assert!(!with(&[clear, published("", change)]), "it is not its own");
    // Two contenders with equal times in every run stay equal.
    let mut equal = three();
    let alike = equal.runs.iter().filter(|run| run.contender == 0);
    let alike = alike.map(|run| Run {
        contender: 1,
        ..run.clone()
    });
    let alike: Vec<_> = alike.collect();
    equal.runs.retain(|run| run.contender != 1);
    equal.runs.extend(alike);
    equal.published = vec![published("", order(&[&["a"], &["b"]]))];
    assert!(equal.is_decided());
}

#[test]
fn an_undecided_claim_says_how_many_runs_would_decide() {
    let better = |share| Claim::Better {
        contender: "a".into(),
        against: "b".into(),
        share,
        by: 0.0,
    };
    // 0.9 is 0.816 standard deviations from six of six; 2.05 standard deviations take 37.97 runs.
    let nearly = finding("a.owd_ms=1", better(0.9));
    assert_eq!(
        (nearly.outcome, nearly.edge),
        (Outcome::Open, Edge::Runs(38))
    );
    // Eight of twelve runs.
    let edge = finding("", better(2.0 / 3.0));
    assert_eq!((edge.outcome, edge.edge), (Outcome::Open, Edge::On));
}

#[test]
fn a_test_is_decided_at_its_level_and_settled_at_a_stricter_one() {
    let test = |says, runs| Test {
        says,
        is_negligible: false,
        chance: 0.0,
        runs,
    };
    let clear = test(Some(false), 9);
    assert_eq!(clear.is_decided(0.04), Some(false));
    assert_eq!(clear.is_decided(0.0401), None);
    assert_eq!(test(None, 9).is_decided(0.0), None);
    // By chance, nine runs lie on one side in one of 256 cases, eight runs in one of 128.
    assert!(clear.is_settled(0.005) && !clear.is_settled(0.005_1));
    assert!(!test(Some(true), 8).is_settled(0.0));
    assert!(!test(None, 9).is_settled(0.0));
    let negligible = Test {
        is_negligible: true,
        ..test(None, 1)
    };
    assert!(negligible.is_settled(0.005) && !negligible.is_settled(0.005_1));
}

#[test]
fn the_edge_is_near_where_a_stricter_level_would_not_decide() {
    let test = |chance, runs| Test {
        says: Some(true),
        is_negligible: false,
        chance,
        runs,
    };
    assert_eq!(edge(&test(0.01, 9), 0.01, true), Edge::Far);
    assert_eq!(edge(&test(0.01, 9), 0.010_1, true), Edge::Near);
    assert_eq!(edge(&test(1.0, 9), 1.0, false), Edge::On);
    // Two runs would be enough for the chance, but so few runs decide no claim.
    assert_eq!(edge(&test(0.041, 1), 0.041, false), Edge::Runs(MIN_RUNS));
    assert_eq!(near(0.5), (0.4, 0.6));
    let groups = [vec![(1.0, 2.0), (3.0, 2.0), (5.0, 8.0)], vec![(1.0, 4.0)]];
    assert_eq!(mean_ratio(&groups), (3.0 / 2.0 + 0.25) / 2.0);
}

#[test]
fn a_value_agrees_within_a_tenth() {
    let value = |value| {
        let claim = Claim::Value {
            contender: "c".into(),
            value,
            or_better: false,
        };
        let found = finding("a.owd_ms=2", claim);
        (found.outcome, found.mean())
    };
    // The value is 1 in every run.
    for (claimed, outcome) in [
        (1.0, Outcome::Confirmed),
        (1.111, Outcome::Confirmed),
        (1.112, Outcome::Refuted),
        (0.91, Outcome::Confirmed),
        (0.909, Outcome::Refuted),
    ] {
        assert_eq!(value(claimed), (outcome, 1.0), "{claimed}");
    }
    // A bound has no tolerance.
    for (claimed, outcome) in [(1.001, Outcome::Confirmed), (0.999, Outcome::Refuted)] {
        let bound = Claim::Value {
            contender: "c".into(),
            value: claimed,
            or_better: true,
        };
        assert_eq!(finding("a.owd_ms=2", bound).outcome, outcome, "{claimed}");
    }
    let unknown = Claim::Value {
        contender: "x".into(),
        value: 1.0,
        or_better: false,
    };
    assert_eq!(finding("", unknown).outcome, Outcome::NotRun);
}

#[test]
fn more_is_better_for_some_metrics() {
    let metric = "goodput_mbit";
    let mut rates = three();
    for run in &mut rates.runs {
        let time = run.metrics[METRIC];
        run.metrics = BTreeMap::from([(metric.to_owned(), time)]);
    }
    let outcome = |claim| {
        let claim = Published {
            metric: metric.into(),
            ..published("a.owd_ms=1", claim)
        };
        alone(&rates, &claim).outcome
    };
    // Now `c` is the best, and `a` the worst.
    assert_eq!(
        outcome(order(&[&["c"], &["b"], &["a"]])),
        Outcome::Confirmed
    );
    assert_eq!(outcome(order(&[&["a"], &["b"]])), Outcome::Refuted);
    let ratio = |ratio, or_better| Claim::Ratio {
        contender: "b".into(),
        against: "a".into(),
        ratio,
        or_better,
        best: false,
    };
    assert_eq!(outcome(ratio(1.5, false)), Outcome::Refuted);
    assert_eq!(outcome(ratio(1.5, true)), Outcome::Confirmed);
    assert_eq!(outcome(ratio(2.5, true)), Outcome::Refuted);
    // `b` is better by exactly the whole value of `a`.
    let better = |by| Claim::Better {
        contender: "b".into(),
        against: "a".into(),
        share: 0.5,
        by,
    };
    assert_eq!(outcome(better(0.99)), Outcome::Confirmed);
    assert_eq!(outcome(better(1.01)), Outcome::Refuted);
}

#[test]
fn change_with_a_single_run_is_open() {
    let mut one = three();
    one.runs.retain(|run| run.run == 0);
    let change = Claim::Change {
        contender: "a".into(),
        scenario: "x".into(),
        ratio: 1.0,
    };
    let claim = published("", change);
    let results = Results {
        scenarios: vec![one.clone()],
    };
    let found = results
        .findings(&one, std::slice::from_ref(&claim))
        .remove(0);
    assert_eq!((found.outcome, found.mean()), (Outcome::Open, 1.0));
    one.runs.clear();
    let results = Results {
        scenarios: vec![one.clone()],
    };
    let found = results
        .findings(&one, std::slice::from_ref(&claim))
        .remove(0);
    assert_eq!(found.outcome, Outcome::NotRun);
}

#[test]
fn a_change_needs_runs_of_both_scenarios() {
    let (of, mut other) = (three(), three());
    other.id = "other".into();
    other.runs.clear();
    let change = Claim::Change {
        contender: "a".into(),
        scenario: "other".into(),
        ratio: 1.0,
    };
    let claim = published("", change);
    let results = Results {
        scenarios: vec![of.clone(), other],
    };
    let found = results
        .findings(&of, std::slice::from_ref(&claim))
        .remove(0);
    assert_eq!(found.outcome, Outcome::NotRun);
}

#[test]
fn ratio_to_a_median_of_zero_is_left_out() {
    let mut none = three();
    for run in &mut none.runs {
        if run.contender == 1 {
            run.metrics.values_mut().for_each(|value| *value = 0.0);
        }
    }
    let ratio = Claim::Ratio {
        contender: "a".into(),
        against: "b".into(),
        ratio: 1.0,
        or_better: false,
        best: false,
    };
    let found = alone(&none, &published("", ratio));
    assert_eq!((found.outcome, found.paired), (Outcome::Refuted, None));
}
