use super::*;

fn verdict(outcome: &'static str) -> Verdict {
    Verdict {
        found: "1.000".into(),
        outcome,
        reason: String::new(),
        moved: false,
    }
}

fn row(as_published: Option<&'static str>, ours: &'static str) -> Row {
    Row {
        metric: String::new(),
        published: String::new(),
        theirs: String::new(),
        as_published: as_published.map(verdict),
        ours: verdict(ours),
    }
}

#[test]
fn only_claims_with_a_published_form_count_in_its_column() {
    let rows = [
        row(None, "confirmed"),
        row(Some("refuted"), "confirmed"),
        row(Some("confirmed"), "undecided"),
    ];
    let counts = counts(&rows);
    let of = |name| counts.iter().find(|count| count.0 == name).unwrap();
    assert_eq!(of("confirmed"), &("confirmed", 1, 2));
    assert_eq!(of("refuted"), &("refuted", 1, 0));
    assert_eq!(of("undecided"), &("undecided", 0, 1));
}

fn finding(mean: f64, interval: (f64, f64)) -> Finding {
    Finding {
        outcome: Outcome::Confirmed,
        values: vec![mean],
        number: None,
        interval: Some(interval),
        paired: None,
        pairs: [0; 3],
        edge: Edge::Far,
    }
}

#[test]
fn a_small_gain_measured_as_none_is_too_small_to_tell() {
    let judge = |ratio, or_better, mean, interval| {
        let claim = Claim::Ratio {
            contender: "qaware".into(),
            against: "lrf".into(),
            ratio,
            or_better,
            best: false,
        };
        outcome(&claim, &finding(mean, interval))
    };
    let small = "too small to tell";
    assert_eq!(judge(1.10, false, 1.000, (1.0, 1.0)), small);
    assert_eq!(judge(1.05, false, 0.990, (0.98, 0.995)), small);
    assert_eq!(judge(1.06, false, 1.03, (0.99, 1.07)), small);
    assert_eq!(judge(0.92, false, 1.005, (1.001, 1.009)), small);
    // A measured gain, a large gain, a claim of equality and a bound.
    assert_eq!(judge(1.10, false, 1.05, (1.02, 1.08)), "within 0.10");
    assert_eq!(judge(0.92, false, 0.95, (0.93, 0.97)), "within 0.10");
    assert_eq!(judge(1.40, false, 1.35, (1.32, 1.36)), "within 0.10");
    assert_eq!(judge(1.00, false, 1.01, (0.99, 1.03)), "within 0.10");
    assert_eq!(judge(1.05, true, 1.00, (1.0, 1.0)), "confirmed");
}

#[test]
fn a_verdict_that_moves_with_the_seed_is_undecided() {
    let mut moving = verdict("confirmed");
    moving.settle(&verdict("confirmed"), 7, "chance");
    assert_eq!(moving, verdict("confirmed"));
    moving.settle(&verdict("refuted"), 7, "chance");
    assert_eq!(
        (moving.outcome, &moving.reason[..]),
        ("undecided", "chance")
    );
    assert!(moving.moved);
    assert_eq!(moving.found, "1.000; confirmed, with seed 7 refuted");
    let settled = moving.clone();
    moving.settle(&verdict("refuted"), 23, "undecided before");
    assert_eq!(moving, settled);
}
