//! The connection joins parts that own themselves: how large it is may only fall.

use std::fs;
use std::path::{Path, PathBuf};

use super::tables::{FIELDS, LINES, LONGEST, METHODS};

/// How large a connection is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Size {
    fields: usize,
    methods: usize,
    lines: usize,
    /// Lines of the longest file.
    longest: usize,
}

impl Size {
    /// Adds a file.
    fn add(&mut self, text: &str) {
        for line in blocks(text, "impl Connection {") {
            let line = line.strip_prefix("    ").unwrap_or_default();
            self.methods += usize::from(is_method(line));
        }
        for line in blocks(text, "pub struct Connection {") {
            let line = line.strip_prefix("    ").unwrap_or_default();
            let name = without_visibility(line).split(':').next();
            let name = name.unwrap_or_default();
            let is_name =
                line.contains(": ") && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            self.fields += usize::from(is_name && !name.is_empty());
        }
        self.lines += text.lines().count();
        self.longest = self.longest.max(text.lines().count());
    }
}

/// The lines of blocks that begin with this line.
fn blocks<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    let mut inside = false;
    text.lines().filter(move |&line| {
        let is_edge = line == start || line == "}";
        if is_edge {
            inside = line == start;
        }
        inside && !is_edge
    })
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(line, |(_, rest)| rest),
        None => rest.strip_prefix(' ').unwrap_or(line),
    }
}

fn is_method(line: &str) -> bool {
    let line = without_visibility(line);
    let line = line.strip_prefix("const ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.starts_with("fn ")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("its entries, too").path();
        let is_test = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains("test"));
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if !is_test {
            found.push(path);
        }
    }
}

#[test]
fn the_connection_only_becomes_smaller() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/connection");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let mut size = Size::default();
    for file in files {
        size.add(&fs::read_to_string(file).expect("source can be read"));
    }
    for (what, counted, bound) in [
        ("FIELDS", size.fields, FIELDS),
        ("METHODS", size.methods, METHODS),
        ("LINES", size.lines, LINES),
        ("LONGEST", size.longest, LONGEST),
    ] {
        assert!(
            counted <= bound.limit,
            "{what}: {counted} are more than {}",
            bound.limit
        );
        let lowest = bound.limit - bound.slack.min(bound.limit);
        assert!(
            counted >= lowest,
            "{what} fell: make {counted} its limit in tables.rs"
        );
    }
}

#[test]
fn fields_and_methods_are_counted() {
    let mut size = Size::default();
    size.add(
        "pub struct Connection {\n    /// A side: ours.\n    side: Side,\n    pub(crate) paths: Paths,\n}\n\
         struct Other {\n    no: u8,\n}\nimpl Connection {\n    pub fn a() {\n        fn inner() {}\n    }\n\n\
         \x20   pub(super) const fn b() {}\n    async fn c() {}\n}\nimpl Drop for Connection {\n    fn drop() {}\n}\n",
    );
    let expected = Size {
        fields: 2,
        methods: 3,
        lines: 19,
        longest: 19,
    };
    assert_eq!(size, expected);
}
