use std::collections::BTreeSet;

use crate::points::{Constants, Found, constants, find};
use crate::render::{Numbered, render};

fn found(text: &str) -> Found {
    let file = syn::parse_file(text).unwrap();
    let mut known = Constants::new();
    constants(&file, &mut known);
    find(text, &file, &known)
}

fn described(text: &str) -> Vec<String> {
    let points = found(text).points.into_iter();
    let changes = points.flat_map(|point| point.changes);
    changes.map(|change| change.what).collect()
}

#[test]
fn each_kind_of_change_is_found() {
    let cases = [
        (
            "fn f(a: u8, b: u8) { g(a <= b) }",
            "`f` does nothing, `<=` becomes `<`, `<=` becomes `>`",
        ),
        (
            "fn f() -> bool { A && !b }",
            "`f` returns `true`, `f` returns `false`, `&&` becomes `||`, `!b` without `!`",
        ),
        (
            "fn f() -> Option<u8> { g(a / 100)?; None }",
            "`f` returns `None`, `g(a / 100)?;` is left out, `/` becomes `*`, `100` becomes `99`",
        ),
        (
            "fn f() -> u8 { if x.y() { 0u8 } }",
            "`f` returns `Default::default()`, `x.y()` is negated, `0u8` becomes `1u8`",
        ),
        ("fn f() -> Option<u8> { None }", ""),
        ("fn f() -> Result<(), u8> { Ok(()) }", ""),
        (
            "fn f() -> bool { true }",
            "`f` returns `false`, `true` becomes `false`",
        ),
        (
            "const N: u64 = 7; fn f() -> &u8 { x += N }",
            "`+=` becomes `-=`, `N` becomes `(N + 1)`",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(described(text).join(", "), expected, "{text}");
    }
}

/// There, nothing can be switched at run time, or nobody wants to.
#[test]
fn constants_patterns_types_and_tests_are_left_alone() {
    let text = "
        const A: u8 = 1 + 2;
        static B: bool = !true;
        const fn f() -> u8 { 3 }
        fn g(x: [u8; 4]) -> &u8 { match x { [5, ..] => y, _ => [z; 6] } }
        #[cfg(test)] mod tests { fn f() { 7 } }
        #[cfg(all(test, feature = \"a\"))] mod others { fn f() { 10 } }
        #[test] fn t() { 8 }
        impl Debug for X { fn fmt() { 9 } }
    ";
    assert_eq!(described(text), [""; 0]);
    assert_eq!(found("#[cfg(test)] mod tests;").test_modules, ["tests"]);
}

/// What is not compiled cannot be noticed.
#[test]
fn code_of_other_systems_is_left_alone() {
    let here = std::env::consts::OS;
    let there = if here == "linux" { "windows" } else { "linux" };
    for (condition, is_changed) in [
        (format!("target_os = \"{here}\""), true),
        (format!("target_os = \"{there}\""), false),
        (format!("not(target_os = \"{here}\")"), false),
        (
            format!("not(any(target_os = \"{here}\", target_vendor = \"sony\"))"),
            false,
        ),
        (format!("any(test, target_os = \"{here}\")"), true),
        (
            format!("all(feature = \"a\", target_os = \"{there}\")"),
            false,
        ),
        ("any(test, feature = \"a\")".to_owned(), true),
        ("not(feature = \"a\")".to_owned(), true),
    ] {
        let found = described(&format!("#[cfg({condition})] fn f() -> &u8 {{ 7 }}"));
        assert_eq!(!found.is_empty(), is_changed, "{condition}");
    }
}

#[test]
fn a_let_chain_keeps_its_operators() {
    let text = "fn f() -> &u8 { if let Some(a) = b && a < c && d {} }";
    assert_eq!(described(text), ["`<` becomes `<=`", "`<` becomes `>=`"]);
}

#[test]
fn changes_are_nested_and_the_broken_ones_left_out() {
    let text = "fn f(a: u8) -> bool { g(a + 1 < 9); }";
    let found = found(text);
    let mut next = 0..;
    let points = found.points.iter();
    let numbered: Vec<_> = points
        .map(|point| Numbered {
            point,
            numbers: point.changes.iter().map(|_| next.next()).collect(),
        })
        .collect();
    let all: BTreeSet<u32> = (0..next.start).collect();
    assert_eq!(render(text, &numbered, &all).text, text);
    // `f` returns false, the statement, `<` becomes `>=`, and `-`.
    let wanted = [1, 2, 4, 5];
    let broken = all.iter().copied().filter(|it| !wanted.contains(it));
    let rendered = render(text, &numbered, &broken.collect());
    assert_eq!(
        rendered.text,
        "fn f(a: u8) -> bool { if crate::__mutant(1) { return false; }  \
         if !crate::__mutant(2) { \
         g((if crate::__mutant(4) { (a + 1) >= (9) } else { \
         (if crate::__mutant(5) { (a) - (1) } else { a + 1 }) < 9 })); } }"
    );
    assert!(syn::parse_file(&rendered.text).is_ok());
    for (place, number) in &rendered.places {
        let part = &rendered.text[place.clone()];
        assert!(part.contains(&format!("__mutant({number})")), "{part}");
    }
}
