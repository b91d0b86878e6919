//! The names of quinn: this crate has them with the same signatures, and `docs/quinn.md` lists
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// With this crate.
#[rustfmt::skip]
#[expect(clippy::type_complexity, clippy::too_many_lines, reason = "signatures are compared as they are")]
mod ours {
    use mpquic_quinn as quinn;

    include!("names.in");
}

/// With quinn itself.
#[rustfmt::skip]
#[expect(clippy::type_complexity, clippy::too_many_lines, reason = "signatures are compared as they are")]
mod theirs {
    include!("names.in");
}

/// Names of features that the tests do not always have.
fn of_features() -> Vec<&'static str> {
    #[cfg(feature = "platform-verifier")]
    {
        use mpquic_quinn::{ClientConfig, rustls};
        let _: fn() -> ClientConfig = ClientConfig::with_platform_verifier;
        let _: fn() -> Result<ClientConfig, rustls::Error> =
            ClientConfig::try_with_platform_verifier;
    }
    #[cfg(feature = "qlog")]
    let _: fn(mpquic_quinn::QlogConfig) -> Option<mpquic_quinn::QlogStream> =
        mpquic_quinn::QlogConfig::into_stream;
    vec![
        "ClientConfig::with_platform_verifier",
        "ClientConfig::try_with_platform_verifier",
        "TransportConfig::qlog_stream",
        "QlogConfig",
        "QlogConfig::writer",
        "QlogConfig::title",
        "QlogConfig::description",
        "QlogConfig::start_time",
        "QlogConfig::into_stream",
        "QlogStream",
    ]
}

/// The page with the table.
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/quinn.md");
    fs::read_to_string(path).expect("docs/quinn.md can be read")
}

/// The names of a cell: `A::{b, c}` stands for `A::b` and `A::c`.
fn names_of(cell: &str) -> Vec<String> {
    let mut names = Vec::new();
    for code in cell.split('`').skip(1).step_by(2) {
        match code.split_once("::{") {
            Some((before, list)) => {
                let list = list.trim_end_matches('}').split(", ");
                names.extend(list.map(|name| format!("{before}::{name}")));
            }
            None => names.push(code.to_owned()),
        }
    }
    names
}

/// The state of each name of the table.
fn table(page: &str) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    let (_, rows) = page
        .split_once("| Names | State |")
        .expect("a table of names");
    for row in rows
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, state, reason] = cells.as_slice() else {
            panic!("three cells: {row}");
        };
        assert!(["equal", "adapted", "missing"].contains(state), "{row}");
        assert_eq!(
            *state == "equal",
            reason.is_empty(),
            "a reason for each difference: {row}"
        );
        for name in names_of(names) {
            let twice = table.insert(name.clone(), (*state).to_owned());
            assert!(twice.is_none(), "{name} stands twice in the table");
        }
    }
    table
}

#[test]
fn the_page_lists_each_compared_name() {
    let page = page();
    let table = table(&page);
    let used: BTreeSet<_> = ours::names().0.into_iter().collect();
    assert_eq!(used, theirs::names().0.into_iter().collect());
    let used: BTreeSet<_> = used
        .into_iter()
        .chain(of_features().into_iter().map(str::to_owned))
        .collect();
    let present = table.iter().filter(|(_, state)| *state != "missing");
    let present: BTreeSet<_> = present.map(|(name, _)| name.clone()).collect();
    let unlisted: Vec<_> = used.difference(&present).collect();
    let unused: Vec<_> = present.difference(&used).collect();
    assert!(unlisted.is_empty(), "not in the table: {unlisted:#?}");
    assert!(unused.is_empty(), "not in names.in: {unused:#?}");
}

#[test]
fn the_page_counts_its_names() {
    let page = page();
    let table = table(&page);
    let count = |wanted: &str| table.values().filter(|state| *state == wanted).count();
    let (equal, adapted, missing) = (count("equal"), count("adapted"), count("missing"));
    let line = format!(
        "Of {} names, {equal} are equal, {adapted} adapted and {missing} missing.",
        table.len()
    );
    assert!(page.contains(&line), "docs/quinn.md should say: {line}");
}
