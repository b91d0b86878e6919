//! `docs/conformance.md` must be true as far as a program can check: every requirement of RFC 10069
//! has a row, every named place and test exists, and the rows are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The project's numbers for what RFC 10069 asks.
const REQUIREMENTS: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 30, 31, 32, 33, 34, 35,
    36, 37, 38, 40, 41, 42, 43, 50, 51, 52, 53, 54, 55, 56, 57, 60, 61, 62, 63, 64, 70, 71, 72, 73,
    74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97,
    98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 110, 111, 112, 113, 114, 115, 120, 121,
    122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 140, 141, 142, 143, 144, 145, 146,
    147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 170, 171, 172, 173, 174, 175,
];

/// What the IDs of rows begin with, and where the rules come from.
const SOURCES: [(&str, &str); 19] = [
    ("MP", "RFC 10069"),
    ("9000", "RFC 9000"),
    ("9001", "RFC 9001"),
    ("9002", "RFC 9002"),
    ("9221", "RFC 9221"),
    ("9287", "RFC 9287"),
    ("9368", "RFC 9368"),
    ("9369", "RFC 9369"),
    ("9114", "RFC 9114"),
    ("9204", "RFC 9204"),
    ("9218", "RFC 9218"),
    ("9297", "RFC 9297"),
    ("9298", "RFC 9298"),
    ("9484", "RFC 9484"),
    ("AF", "draft-ietf-quic-ack-frequency-14"),
    ("RS", "draft-ietf-quic-reliable-stream-reset-11"),
    ("AA", "draft-munizaga-quic-alternative-server-address-01"),
    ("OP", "Old and broken peers"),
    ("T", "Computed examples"),
];
/// Number of examples.
const EXAMPLES: u32 = 17;
/// Must, should, may, inherited from RFC 9000, deduced, guidance, statement.
const LEVELS: [&str; 7] = ["M", "S", "Y", "b", "d", "g", "-"];

/// One line of a table.
struct Row {
    line: usize,
    id: String,
    level: String,
    requirement: String,
    places: Vec<String>,
    tests: Vec<String>,
}

#[derive(Default)]
struct Document {
    rows: Vec<Row>,
    /// Rows that are not followed, or whose following no test shows, with the reason.
    deviations: BTreeMap<String, String>,
}

/// The backquoted words of a cell.
fn quoted(cell: &str) -> Vec<String> {
    let words = cell.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

fn is_id(cell: &str) -> bool {
    let Some((family, number)) = cell.split_once('-') else {
        return false;
    };
    let starts_with_digit = number.starts_with(|first: char| first.is_ascii_digit());
    let is_known = SOURCES.iter().any(|(known, _)| *known == family);
    starts_with_digit && is_known
}

fn parse(text: &str) -> Document {
    let mut document = Document::default();
    let mut is_deviation = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            is_deviation = heading == "Deviations";
        }
        let Some(line_cells) = line
            .strip_prefix("| ")
            .and_then(|rest| rest.strip_suffix(" |"))
        else {
            continue;
        };
        let cells: Vec<_> = line_cells.split(" | ").map(str::trim).collect();
        if !is_id(cells[0]) {
            continue;
        }
        let id = cells[0].to_owned();
        let line = index + 1;
        if is_deviation {
            assert_eq!(cells.len(), 2, "line {line}: {id} and a reason");
            let old = document.deviations.insert(id, cells[1].to_owned());
            assert_eq!(old, None, "line {line}: twice");
            continue;
        }
        assert_eq!(cells.len(), 5, "line {line}: not five cells");
        document.rows.push(Row {
            line,
            id,
            level: cells[1].to_owned(),
            requirement: cells[2].to_owned(),
            places: quoted(cells[3]),
            tests: quoted(cells[4]),
        });
    }
    document
}

fn crates() -> PathBuf {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    core.parent().expect("crates are together").to_owned()
}

/// The source of a place or test: relative to the core's `src`, to its `tests` with that prefix, or
/// to all crates with the name of another crate.
fn source_path(file: &str) -> PathBuf {
    let root = crates();
    match file.split('/').next() {
        Some("tests") => root.join("mpquic-core").join(file),
        Some(name) if name.starts_with("mpquic-") => root.join(file),
        _ => root.join("mpquic-core/src").join(file),
    }
}

/// Sources, read once.
#[derive(Default)]
struct Sources(BTreeMap<String, Option<String>>);

impl Sources {
    fn read(&mut self, file: &str) -> Option<&str> {
        let source = self
            .0
            .entry(file.to_owned())
            .or_insert_with(|| fs::read_to_string(source_path(file)).ok());
        source.as_deref()
    }

    /// What is wrong with `file::function`; a test must be marked as one.
    fn fault(&mut self, place: &str, is_test: bool) -> Option<String> {
        let Some((file, function)) = place.split_once("::") else {
            return Some(format!("{place} is not file::function"));
        };
        let Some(source) = self.read(file) else {
            return Some(format!("{file} does not exist"));
        };
        let lines: Vec<_> = source.lines().map(str::trim_start).collect();
        let Some(at) = lines.iter().position(|line| declares(line, function)) else {
            return Some(format!("{file} has no function {function}"));
        };
        // Attributes stand between the mark and the function.
        let mut above = lines[..at].iter().rev();
        let is_marked = above
            .by_ref()
            .take(6)
            .take_while(|line| !line.starts_with('}'))
            .any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"));
        (is_test && !is_marked).then(|| format!("{place} is not a test"))
    }
}

/// True if a line declares a function of this name.
fn declares(line: &str, function: &str) -> bool {
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        if word == "fn" {
            let name = words.next().unwrap_or_default();
            let end = name.find(['(', '<']).unwrap_or(name.len());
            return &name[..end] == function;
        }
        let is_modifier = ["async", "const", "unsafe"].contains(&word) || word.starts_with("pub");
        let continues_visibility = word.ends_with(')');
        if !is_modifier && !continues_visibility {
            return false;
        }
    }
    false
}

fn document() -> Document {
    let path = crates().join("../docs/conformance.md");
    let text = fs::read_to_string(&path).expect("docs/conformance.md");
    parse(&text)
}

#[test]
fn every_requirement_of_rfc_10069_has_a_row() {
    let document = document();
    let listed: BTreeSet<_> = document.rows.iter().map(|row| row.id.as_str()).collect();
    let missing: Vec<_> = REQUIREMENTS
        .iter()
        .map(|number| format!("MP-{number:03}"))
        .filter(|id| !listed.contains(id.as_str()))
        .collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let known = |id: &str| {
        let number = id.strip_prefix("MP-").and_then(|text| text.parse().ok());
        number.is_none_or(|number| REQUIREMENTS.contains(&number))
    };
    let unknown: Vec<_> = listed.into_iter().filter(|id| !known(id)).collect();
    assert!(unknown.is_empty(), "nobody knows {unknown:?}");
}

#[test]
fn every_computed_example_has_a_row() {
    let document = document();
    for number in 1..=EXAMPLES {
        let id = format!("T-{number}");
        assert!(document.rows.iter().any(|row| row.id == id), "{id}");
    }
}

#[test]
fn every_row_names_places_and_tests_that_exist() {
    let document = document();
    let mut sources = Sources::default();
    let mut faults = Vec::new();
    for row in &document.rows {
        let mut fault = |text| faults.push(format!("line {}, {}: {text}", row.line, row.id));
        if !LEVELS.contains(&row.level.as_str()) {
            fault(format!("level {}", row.level));
        }
        if row.requirement.is_empty() {
            fault("says nothing".to_owned());
        }
        let excused = document.deviations.contains_key(&row.id);
        if row.tests.is_empty() && !excused {
            fault("neither a test nor a deviation".to_owned());
        }
        if row.places.is_empty() && !excused {
            fault("no place in the code".to_owned());
        }
        for place in &row.places {
            if let Some(text) = sources.fault(place, false) {
                fault(text);
            }
        }
        for test in &row.tests {
            if let Some(text) = sources.fault(test, true) {
                fault(text);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The limits that `SECURITY.md` promises.
#[test]
fn every_limit_names_tests_that_exist() {
    let path = crates().join("../SECURITY.md");
    let text = fs::read_to_string(&path).expect("SECURITY.md");
    let mut sources = Sources::default();
    let (mut tests, mut faults) = (0, Vec::new());
    let is_limit = |line: &&str| {
        let is_head = line.ends_with("Test |") || line.ends_with("Tests |");
        line.starts_with("| ") && !line.starts_with("| ---") && !is_head
    };
    for row in text.lines().filter(is_limit) {
        let named = quoted(row).into_iter().filter(|word| word.contains("::"));
        let before = tests;
        for test in named {
            tests += 1;
            faults.extend(sources.fault(&test, true));
        }
        if tests == before {
            faults.push(format!("without a test: {row}"));
        }
    }
    assert!(tests >= 15, "only {tests} tests");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_deviation_has_a_reason_and_a_row() {
    let document = document();
    let listed: BTreeSet<_> = document.rows.iter().map(|row| row.id.as_str()).collect();
    for (id, reason) in &document.deviations {
        assert!(listed.contains(id.as_str()), "{id} has no row");
        assert!(reason.len() > 20, "{id}: {reason:?} is no reason");
    }
}

/// Each rule has one row, in the order of the RFCs' sections.
#[test]
fn rows_are_unique_and_in_order() {
    let mut ids = BTreeSet::new();
    let mut last: BTreeMap<String, (Vec<u32>, u32)> = BTreeMap::new();
    for row in document().rows {
        assert!(
            ids.insert(row.id.clone()),
            "line {}: {} again",
            row.line,
            row.id
        );
        let (family, number) = row.id.split_once('-').expect("an ID");
        let (section, rule) = number.split_once('-').unwrap_or((number, "0"));
        let parts = section
            .split('.')
            .map(|part| part.parse().expect("a section"));
        let place = (parts.collect(), rule.parse().expect("a number"));
        if let Some(before) = last.insert(family.to_owned(), place.clone()) {
            assert!(
                before < place,
                "line {}: {} is out of order",
                row.line,
                row.id
            );
        }
    }
}

/// The head of the document tells the number of rows, of rows with a test, and of rows with an
/// entry under deviations.
#[test]
fn the_counts_are_right() {
    let path = crates().join("../docs/conformance.md");
    let text = fs::read_to_string(&path).expect("docs/conformance.md");
    let document = parse(&text);
    let line = |source: &str, rows: &[&Row]| {
        let tested = rows.iter().filter(|row| !row.tests.is_empty()).count();
        let excused = |row: &&&Row| document.deviations.contains_key(&row.id);
        let excused = rows.iter().filter(excused).count();
        format!("| {source} | {} | {tested} | {excused} |", rows.len())
    };
    let mut expected: Vec<_> = SOURCES
        .iter()
        .map(|(family, source)| {
            let is_of = |row: &&Row| row.id.split('-').next() == Some(*family);
            let rows: Vec<_> = document.rows.iter().filter(is_of).collect();
            line(source, &rows[..])
        })
        .collect();
    let all: Vec<_> = document.rows.iter().collect();
    expected.push(line("All", &all[..]));
    let table = text.lines().skip_while(|line| *line != "## Counts");
    let table = table.skip_while(|line| !line.starts_with("| RFC"));
    let found: Vec<_> = table.take_while(|line| line.starts_with('|')).collect();
    assert_eq!(found, expected);
}

/// The checks themselves can fail.
#[test]
fn faults_are_found() {
    let mut sources = Sources::default();
    let mut fault = |place, is_test| sources.fault(place, is_test);
    assert_eq!(fault("path/ids.rs::check", false), None);
    assert!(fault("path/ids.rs::check", true).is_some(), "not a test");
    assert!(fault("path/ids.rs::chec", false).is_some());
    assert!(fault("path/idz.rs::check", false).is_some());
    assert!(fault("path/ids.rs", false).is_some());
    let own = "tests/conformance.rs::faults_are_found";
    assert_eq!(fault(own, true), None);
    assert!(fault("tests/conformance.rs::parse", true).is_some());
    assert_eq!(
        fault("mpquic-cc/src/window.rs::never_below_two_datagrams", true),
        None
    );

    let text = "\
        # Title\n\
        | ID | Level | Requirement | Place | Test |\n\
        | --- | --- | --- | --- | --- |\n\
        | MP-001 | M | words | `a.rs::b` | `c.rs::d`, `e.rs::f` |\n\
        | 9000-2.1-1 | M | words | | |\n\
        ## Deviations\n\
        | 9000-2.1-1 | a reason |\n";
    let text = text.replace("        ", "").replace("| | |", "|  |  |");
    let document = parse(&text);
    assert_eq!(document.rows.len(), 2);
    assert_eq!(document.rows[0].places, ["a.rs::b"]);
    assert_eq!(document.rows[0].tests, ["c.rs::d", "e.rs::f"]);
    assert_eq!(document.deviations["9000-2.1-1"], "a reason");
}
