//! A few types join parts that own themselves: how large these types are may only fall.

use std::fs;
use std::path::{Path, PathBuf};

use super::tables::{JOINTS, LINES, LONGEST, Limit};

/// How large a type is, and the folder with its methods.
#[derive(Debug, Default, PartialEq, Eq)]
struct Size {
    fields: usize,
    methods: usize,
    lines: usize,
    /// Lines of the longest file.
    longest: usize,
}

impl Size {
    /// Adds a file's part of the type with this name.
    fn add(&mut self, name: &str, text: &str) {
        let (block, declaration) = (format!("impl {name} {{"), format!("struct {name} {{"));
        for line in blocks(text, |line| line == block) {
            let line = line.strip_prefix("    ").unwrap_or_default();
            self.methods += usize::from(is_method(line));
        }
        for line in blocks(text, |line| without_visibility(line) == declaration) {
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

/// The lines of top-level blocks whose first line is a start.
fn blocks(text: &str, is_start: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |&line| {
        let starts = is_start(line);
        if starts || line == "}" {
            inside = starts;
            return false;
        }
        inside
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

/// Compares a count with the limit above it.
fn compare(what: &str, counted: usize, bound: &Limit) {
    let Limit { limit, slack } = *bound;
    assert!(counted <= limit, "{what}: {counted} are more than {limit}");
    assert!(
        counted + slack >= limit,
        "{what} fell: make {counted} its limit in tables.rs"
    );
}

#[test]
fn types_that_join_others_only_become_smaller() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for joint in JOINTS {
        let mut files = Vec::new();
        sources(&source.join(joint.folder), &mut files);
        let mut size = Size::default();
        for file in files {
            let text = fs::read_to_string(file).expect("source can be read");
            size.add(joint.name, &text);
        }
        let what = |of: &str| format!("{of} of {}", joint.name);
        compare(&what("fields"), size.fields, &joint.fields);
        compare(&what("methods"), size.methods, &joint.methods);
        if joint.folder == "connection" {
            compare("LINES", size.lines, &LINES);
            compare("LONGEST", size.longest, &LONGEST);
        }
    }
}

#[test]
fn fields_and_methods_are_counted() {
    let mut size = Size::default();
    size.add(
        "Connection",
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
