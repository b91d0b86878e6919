//! The direction of dependencies, read from the source: which module of the core may name which,
//! and which crate may name which. A new module or crate needs a row here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Module of the core, and the modules it may name. `connection` joins the parts and `endpoint`
/// holds connections, so they come last; `lib` re-exports.
const MODULES: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("path_map", &["ids"]),
    ("error", &[]),
    ("range_set", &[]),
    ("random", &[]),
    ("congestion", &["ids"]),
    ("sched", &["ids", "congestion"]),
    ("version", &[]),
    ("wire", &["ids", "error", "range_set", "version"]),
    ("qlog", &["ids", "error", "congestion", "version", "wire"]),
    ("crypto", &["ids", "error", "version", "wire"]),
    (
        "packet",
        &["ids", "error", "version", "wire", "crypto", "sched"],
    ),
    (
        "config",
        &["sched", "congestion", "qlog", "version", "crypto"],
    ),
    (
        "cid",
        &["ids", "error", "range_set", "random", "wire", "packet"],
    ),
    (
        "space",
        &[
            "ids",
            "error",
            "range_set",
            "random",
            "wire",
            "packet",
            "config",
        ],
    ),
    (
        "recovery",
        &[
            "ids",
            "error",
            "range_set",
            "wire",
            "packet",
            "config",
            "congestion",
            "space",
        ],
    ),
    (
        "stream",
        &[
            "ids",
            "error",
            "range_set",
            "wire",
            "packet",
            "config",
            "sched",
        ],
    ),
    ("event", &["ids", "error", "stream"]),
    (
        "guarded",
        &["ids", "config", "congestion", "path_map", "sched"],
    ),
    (
        "recorder",
        &["ids", "config", "packet", "qlog", "version", "wire"],
    ),
    (
        "outbox",
        &[
            "ids",
            "error",
            "congestion",
            "event",
            "guarded",
            "qlog",
            "recorder",
            "sched",
            "space",
        ],
    ),
    (
        "path",
        &[
            "crypto",
            "event",
            "outbox",
            "qlog",
            "random",
            "ids",
            "error",
            "range_set",
            "wire",
            "packet",
            "config",
            "sched",
            "congestion",
            "space",
            "recovery",
            "cid",
        ],
    ),
    (
        "connection",
        &[
            "event",
            "guarded",
            "outbox",
            "recorder",
            "ids",
            "path_map",
            "error",
            "range_set",
            "random",
            "version",
            "wire",
            "qlog",
            "crypto",
            "packet",
            "config",
            "sched",
            "congestion",
            "space",
            "recovery",
            "cid",
            "stream",
            "path",
        ],
    ),
    (
        "testing",
        &[
            "ids", "error", "wire", "crypto", "packet", "config", "space", "recovery",
        ],
    ),
    (
        "endpoint",
        &[
            "ids",
            "error",
            "version",
            "wire",
            "qlog",
            "crypto",
            "packet",
            "config",
            "event",
            "connection",
        ],
    ),
];

/// Single names that break an arrow of [`MODULES`], and why that is right.
const NAMES: &[(&str, &str, &str)] = &[];

/// Crate, and the crates of ours it may name.
const CRATES: &[(&str, &[&str])] = &[
    ("mpquic-core", &[]),
    ("mpquic-sched", &["mpquic_core"]),
    ("mpquic-cc", &["mpquic_core"]),
    ("mpquic-qlog", &["mpquic_core"]),
    ("mpquic-sim", &["mpquic_core", "mpquic_sched", "mpquic_cc"]),
    (
        "mpquic-lab",
        &["mpquic_core", "mpquic_sched", "mpquic_cc", "mpquic_sim"],
    ),
    ("mpquic-h3", &["mpquic_core", "mpquic_tokio"]),
    (
        "mpquic-tokio",
        &["mpquic_core", "mpquic_sched", "mpquic_cc"],
    ),
    (
        "mpquic-cli",
        &[
            "mpquic_core",
            "mpquic_sched",
            "mpquic_cc",
            "mpquic_qlog",
            "mpquic_lab",
            "mpquic_tokio",
            "mpquic_h3",
        ],
    ),
];

/// Files outside the core that may name rustls: they load or hand out certificates, decide whom to
/// trust, or implement the core's crypto traits. Nobody else names it, and nobody names
/// quinn_proto.
const RUSTLS: &[&str] = &[
    "mpquic-cli/src/args.rs",
    "mpquic-cli/src/serve.rs",
    "mpquic-cli/src/trust.rs",
    "mpquic-sim/src/null_crypto.rs",
    "mpquic-sim/src/tls.rs",
    "mpquic-tokio/src/config.rs",
    "mpquic-tokio/src/connection.rs",
];

#[test]
fn modules_of_the_core_name_only_what_lies_below() {
    let mut faults = BTreeSet::new();
    for source in Source::all().filter(|source| source.krate == "mpquic-core") {
        let module = source.module();
        if module == "lib" {
            continue;
        }
        let row = MODULES.iter().find(|row| row.0 == module);
        let Some((_, allowed)) = row else {
            faults.insert(format!("{}: module {module} has no row here", source.path));
            continue;
        };
        for (target, item) in source.core_paths() {
            let is_module = MODULES.iter().any(|row| row.0 == target);
            let excepted = NAMES
                .iter()
                .any(|name| source.path.ends_with(name.0) && name.1 == target && name.2 == item);
            if is_module && target != module && !allowed.contains(&&*target) && !excepted {
                faults.insert(format!("{} names {target}::{item}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn crates_name_only_what_lies_below() {
    let mut faults = BTreeSet::new();
    for source in Source::all() {
        let Some((_, allowed)) = CRATES.iter().find(|row| row.0 == source.krate) else {
            faults.insert(format!("crate {} has no row here", source.krate));
            continue;
        };
        let own = source.krate.replace('-', "_");
        for word in source.words() {
            if word.starts_with("mpquic_")
                && word != own
                && CRATES.iter().any(|row| row.0.replace('-', "_") == word)
                && !allowed.contains(&word)
            {
                faults.insert(format!("{} names {word}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn only_the_core_names_quinn_proto_and_rustls() {
    let mut faults = BTreeSet::new();
    for source in Source::all().filter(|source| source.krate != "mpquic-core") {
        let rustls_allowed = RUSTLS.contains(&&*source.path);
        for (before, word, after) in source.words_in_context() {
            let is_external = !before.ends_with("::") && after.starts_with("::");
            if is_external && (word == "quinn_proto" || (word == "rustls" && !rustls_allowed)) {
                faults.insert(format!("{} names {word}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The files of `tests/` make one program a crate, because each links the world anew. A file that its
/// parent does not declare would never be compiled, and its tests never run.
#[test]
fn every_test_file_is_part_of_its_crates_program() {
    let mut faults = Vec::new();
    for tests in folders_of_crates("tests") {
        let root = tests.join("main.rs");
        let files = fs::read_dir(&tests).expect("the folder of tests can be read");
        if root.is_file() {
            undeclared(&tests, &root, &mut faults);
        } else if files.count() != 1 {
            faults.push(format!("{} needs a main.rs", tests.display()));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Adds the files below a folder that the file above them does not declare.
fn undeclared(folder: &Path, parent: &Path, faults: &mut Vec<String>) {
    let declarations = fs::read_to_string(parent).expect("a source file can be read");
    for entry in fs::read_dir(folder).expect("a folder of tests can be read") {
        let path = entry.expect("its entries, too").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if path == *parent || !(is_source || path.is_dir()) {
            continue;
        }
        let declaration = format!("mod {name};");
        if !declarations.lines().any(|line| line == declaration) {
            faults.push(format!("{} is not declared", path.display()));
        } else if path.is_dir() {
            undeclared(&path, &path.join("mod.rs"), faults);
        }
    }
}

#[test]
fn the_tables_have_no_cycle() {
    for (index, (module, allowed)) in MODULES.iter().enumerate() {
        let below = MODULES[..index].iter().map(|row| row.0);
        let below: BTreeSet<_> = below.collect();
        assert!(
            allowed.iter().all(|name| below.contains(name)),
            "{module} may name a module that comes later"
        );
    }
}

#[test]
fn paths_are_found_however_they_are_written() {
    let source = Source {
        krate: "mpquic-core".into(),
        path: "mpquic-core/src/space/sent.rs".into(),
        text: strip(
            "// crate::comment::No\nuse crate::{ids::PathId, wire::{frame::Ack, buf}, packet};\n\
             let x = crate::recovery::loss::Y; use super::super::path::set; use super::local;\n\
             #[cfg(test)]\nmod tests {\n use crate::endpoint::Z;\n}\n",
        ),
    };
    let found = source.core_paths();
    let expected = [
        ("ids", "PathId"),
        ("packet", ""),
        ("path", "set"),
        ("recovery", "loss"),
        ("wire", "buf"),
        ("wire", "frame"),
    ];
    let found: Vec<_> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
    assert_eq!(found, expected);
}

/// A source file without comments and unit tests.
struct Source {
    krate: String,
    /// From the folder of crates, such as `mpquic-core/src/lib.rs`.
    path: String,
    text: String,
}

impl Source {
    fn all() -> impl Iterator<Item = Self> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for src in folders_of_crates("src") {
            collect(&src, &mut files);
        }
        assert!(!files.is_empty());
        files.sort();
        files.into_iter().map(move |file| {
            let path = file.strip_prefix(&crates).expect("found below it");
            let path = path.to_string_lossy().replace('\\', "/");
            let krate = path.split('/').next().unwrap_or_default().to_owned();
            let text = strip(&fs::read_to_string(&file).expect("source can be read"));
            Self { krate, path, text }
        })
    }

    /// Module names from the crate's root to this file.
    fn modules(&self) -> Vec<&str> {
        let inside = self.path.split("/src/").nth(1).unwrap_or_default();
        let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        inside.split('/').collect()
    }

    fn module(&self) -> &str {
        self.modules()[0]
    }

    /// Every `crate::a::b` and its equivalents with `super` and groups as `(a, b)`; `b` is empty if
    /// nothing follows.
    fn core_paths(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for (before, word, after) in self.words_in_context() {
            if before.ends_with("::") {
                continue;
            }
            let mut rest = after;
            if word == "super" {
                let mut supers = 1;
                while let Some(deeper) = rest.strip_prefix("::super") {
                    supers += 1;
                    rest = deeper;
                }
                if supers != self.modules().len() {
                    continue;
                }
            } else if word != "crate" {
                continue;
            }
            let Some(rest) = rest.strip_prefix("::") else {
                continue;
            };
            for path in members(rest) {
                let name = first_word(path);
                let items = path[name.len()..].strip_prefix("::").unwrap_or_default();
                for item in members(items) {
                    found.insert((name.to_owned(), first_word(item).to_owned()));
                }
            }
        }
        found
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.words_in_context().map(|(_, word, _)| word)
    }

    /// Each word with the text before and after it.
    fn words_in_context(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let mut end = 0;
        std::iter::from_fn(move || {
            let start = end + self.text[end..].find(is_word)?;
            let length = self.text[start..].find(|c| !is_word(c));
            end = length.map_or(self.text.len(), |length| start + length);
            Some((
                &self.text[..start],
                &self.text[start..end],
                &self.text[end..],
            ))
        })
    }
}

/// The folders of this name that crates have.
fn folders_of_crates(name: &str) -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = fs::read_dir(&crates).expect("the folder of crates can be read");
    let folders = entries.map(|entry| entry.expect("its entries, too").path().join(name));
    folders.filter(|folder| folder.is_dir()).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The word a text starts with.
fn first_word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// The members of the group a text starts with; without a group, the text alone.
fn members(text: &str) -> Vec<&str> {
    let Some(group) = text.strip_prefix('{') else {
        return vec![text];
    };
    let mut members = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        if depth == 0 && (c == ',' || c == '}') {
            members.push(group[start..at].trim());
            start = at + 1;
        }
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth < 0 {
            break;
        }
    }
    members.retain(|member| !member.is_empty());
    members
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("its entries, too").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path
                .file_name()
                .is_some_and(|name| name != "tests.rs" && name != "testing.rs")
        {
            files.push(path);
        }
    }
}

/// Drops comments, and everything after `#[cfg(test)] mod tests {`, which ends a file.
fn strip(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines();
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}
